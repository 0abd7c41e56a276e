//! Every fault of a model server, over every wire, for every kind of agent: what becomes of the run,
//! and how often the server was asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wharf::journal::{self, Event, SubtaskStatus};
use wharf::model::{self, Limits, Model, Provider, Wire};
use wharf::run::{self, Notice, Status, Summary};

use crate::server::{Answer, Ask, FakeModel, Role, Spoken};
use crate::world::{World, passes, report};

/// A model of the scripted server over a wire. What is silent for 3 s, or does not begin within 5 s, is
/// taken to be stuck.
fn connect(server: &FakeModel, wire: Wire) -> Arc<dyn Model> {
    open("fake/m", &provider(server, wire))
}

fn provider(server: &FakeModel, wire: Wire) -> Provider {
    Provider {
        name: "fake".to_owned(),
        kind: wire,
        ..Provider::openai(Some(server.base_url()), None)
    }
}

fn open(spec: &str, provider: &Provider) -> Arc<dyn Model> {
    let limits = Limits {
        idle: Duration::from_secs(3),
        first_byte: Duration::from_secs(5),
        ..Limits::default()
    };
    let providers = BTreeMap::from([(provider.name.clone(), provider.clone())]);
    model::open_with(spec, &providers, limits).unwrap()
}

/// A run that ended: its result and its journal.
struct Ended {
    world: World,
    summary: Summary,
    journal: Vec<journal::Line>,
}

async fn end(plan: &str, models: Vec<Arc<dyn Model>>) -> Ended {
    let world = World::new(&[("a.txt", "a\n")]);
    let mut order = world.order(plan, models[0].clone());
    order.models.default = models;
    let summary = run::start(order).await.unwrap();
    let journal = journal::read(&world.state.join("runs/run/journal.jsonl")).unwrap();
    Ended {
        world,
        summary,
        journal: journal.lines,
    }
}

impl Ended {
    fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.journal.iter().filter(|l| wanted(&l.event)).count()
    }

    fn failed_attempts(&self) -> usize {
        self.count(|event| matches!(event, Event::ModelFailed { .. }))
    }
}

const FREE: &str = "version: 1\nname: test\ntask: Do the work\n";

/// A call that each kind of agent may make, different each time.
fn look(number: usize) -> Answer {
    let pattern = match number {
        0 => "*.txt".to_owned(),
        other => format!("*.{other}"),
    };
    Answer::call("list_files", json!({ "pattern": pattern }))
}

/// An error in the middle of an answer that began as a 200.
fn inside(spoken: Spoken) -> Answer {
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    match spoken {
        Spoken::Chat => Answer::raw(&[
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"par\"}}]}\n\n",
            "data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n",
        ]),
        Spoken::Messages => Answer::raw(&[
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{}}}\n\n",
            &format!("event: error\ndata: {error}\n\n"),
        ]),
        Spoken::Responses => Answer::raw(&[
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null}}\n\n",
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"it broke\"}}}\n\n",
        ]),
    }
}

fn overflow(spoken: Spoken) -> Answer {
    let body = match spoken {
        Spoken::Chat => {
            json!({"error": {"message": "too long", "code": "context_length_exceeded"}})
        }
        Spoken::Messages => {
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}})
        }
        Spoken::Responses => {
            json!({"error": {"message": "Your input exceeds the context window of this model.", "type": "invalid_request_error"}})
        }
    };
    Answer::status(
        400,
        &body.to_string(),
        &[("content-type", "application/json")],
    )
}

/// Pieces of a body with a pause before the second.
fn pieces(first: &str, pause: Duration, second: &str) -> Answer {
    Answer::Raw(
        "text/event-stream".to_owned(),
        vec![
            (Duration::ZERO, first.as_bytes().to_vec()),
            (pause, second.as_bytes().to_vec()),
        ],
    )
}

/// What one agent's server answers, request by request: each fault, and after it what was meant.
fn troubles(spoken: Spoken, last: Answer) -> Vec<Answer> {
    let half = || {
        let arguments = Value::String("{\"pattern\": \"*.rs".to_owned());
        Answer::calls(vec![("list_files", arguments)])
    };
    let at_once = [("retry-after-ms", "5")];
    let faults = [
        Answer::status(429, "{\"error\":{\"message\":\"slow down\"}}", &at_once),
        Answer::status(503, "<html>Bad gateway</html>", &at_once),
        Answer::status(529, "", &at_once),
        look(100).cut(400),
        inside(spoken),
        pieces(": ping\n\n: ping\n\n", Duration::from_secs(600), ""),
        Answer::raw(&[&"x".repeat(2 << 20)]),
        Answer::Silence,
        half().finish("tool_calls"),
        look(101).finish("length"),
        overflow(spoken),
    ];
    let mut out = Vec::new();
    for (number, fault) in faults.into_iter().enumerate() {
        out.extend([fault, look(number)]);
    }
    out.push(last);
    out
}

async fn all_faults(spoken: Spoken, wire: Wire) {
    let plan = Answer::call(
        "submit_plan",
        json!({"summary": "split", "criteria": ["It is done"],
            "subtasks": [{"id": "a", "role": "coder", "brief": "BRIEF a.", "needs": []}]}),
    );
    let of_role = BTreeMap::from([
        (Role::Coordinator, troubles(spoken, plan)),
        (
            Role::Worker,
            troubles(spoken, report("done", "nothing to do")),
        ),
        (
            Role::Verifier,
            troubles(spoken, passes(&["It is done"], "#1")),
        ),
        (
            Role::Other,
            vec![inside(spoken), Answer::text("All of it was looked at.")],
        ),
    ]);
    let lengths: BTreeMap<Role, usize> = of_role.iter().map(|(r, a)| (*r, a.len())).collect();
    let seen: Arc<Mutex<BTreeMap<Role, usize>>> = Arc::default();
    let notes: Arc<Mutex<usize>> = Arc::default();
    let (counted, noted) = (seen.clone(), notes.clone());
    let server = FakeModel::start(move |ask| {
        let mut seen = counted.lock().unwrap();
        // What did not fit is summed up: each agent's notes fail once before they are written.
        if ask.role == Role::Other && ask.messages[0].to_string().contains("keep the notes") {
            let mut notes = noted.lock().unwrap();
            *notes += 1;
            return match *notes % 2 {
                1 => inside(spoken),
                _ => Answer::text("Task: look. Open: nothing."),
            };
        }
        let place = seen.entry(ask.role).or_default();
        *place += 1;
        let answer = of_role[&ask.role].get(*place - 1).cloned();
        answer.unwrap_or_else(|| Answer::status(400, "the script is over", &[]))
    })
    .await;
    let ended = end(FREE, vec![connect(&server, wire)]).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    let summary = &ended.summary;
    assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
    assert_eq!(summary.summary, "All of it was looked at.");
    assert_eq!(*seen.lock().unwrap(), lengths);
    // Eight faults and the overflow each; what was answered by half a call is no failed attempt.
    let notes = *notes.lock().unwrap();
    assert_eq!(notes, 3 * 2, "each agent's notes, asked for twice");
    assert_eq!(ended.failed_attempts(), 3 * 9 + 1 + notes / 2);
    let ran = ended.count(|event| matches!(event, Event::ModelAnswered { .. }));
    assert_eq!(ran, server.requests().len() - ended.failed_attempts());
    drop(ended.world);
}

#[tokio::test]
async fn chat_completions_survive_every_fault_for_every_agent() {
    all_faults(Spoken::Chat, Wire::OpenAi).await;
}

#[tokio::test]
async fn messages_survive_every_fault_for_every_agent() {
    all_faults(Spoken::Messages, Wire::Anthropic).await;
}

#[tokio::test]
async fn responses_survive_every_fault_for_every_agent() {
    all_faults(Spoken::Responses, Wire::Responses).await;
}

/// A plan whose conversations are summed up past eight messages.
const LONG: &str = "version: 1
task: Do it
acceptance: {criteria: [It is done]}
compaction: {keep: 2, messages: 8}
subtasks: [{id: a, role: coder, brief: BRIEF a.}]
";

fn asks_for_notes(ask: &Ask) -> bool {
    ask.tools.is_empty() && ask.messages[0].to_string().contains("keep the notes")
}

/// Whoever looks `looks` times and then hands in what is due; the notes are answered by `notes`, which
/// counts its questions from 0.
fn looking(
    looks: usize,
    notes: impl Fn(&Ask, usize) -> Answer + Send + Sync + 'static,
) -> impl Fn(&Ask) -> Answer + Send + Sync + 'static {
    let seen: Mutex<(BTreeMap<Role, usize>, usize)> = Mutex::default();
    move |ask| {
        let mut seen = seen.lock().unwrap();
        if asks_for_notes(ask) {
            seen.1 += 1;
            return notes(ask, seen.1 - 1);
        }
        let place = seen.0.entry(ask.role).or_default();
        *place += 1;
        match (ask.role, *place) {
            (Role::Worker, place) if place <= looks => look(place),
            (Role::Worker, _) => report("done", "nothing to do"),
            (Role::Verifier, 1) => look(0),
            (Role::Verifier, _) => passes(&["It is done"], "#1"),
            _ => Answer::text("Done."),
        }
    }
}

/// The call for a summary of a conversation meets each fault once, and each time it is had in the end.
async fn faults_of_notes(spoken: Spoken, wire: Wire) {
    let at_once = [("retry-after-ms", "5")];
    let faults = [
        Answer::status(429, "{\"error\":{\"message\":\"slow down\"}}", &at_once),
        Answer::status(503, "<html>Bad gateway</html>", &at_once),
        Answer::status(529, "", &at_once),
        Answer::text(&"Notes that are never whole. ".repeat(40)).cut(400),
        inside(spoken),
        pieces(": ping\n\n: ping\n\n", Duration::from_secs(600), ""),
        Answer::raw(&[&"x".repeat(2 << 20)]),
        Answer::Silence,
    ];
    let count = faults.len();
    let server = FakeModel::start(looking(28, move |_, number| match number % 2 {
        0 => faults
            .get(number / 2)
            .cloned()
            .unwrap_or_else(|| Answer::text("?")),
        _ => Answer::text("Task: look. Open: nothing."),
    }))
    .await;
    let ended = end(LONG, vec![connect(&server, wire)]).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    let done = |s: &run::SubtaskResult| s.status == SubtaskStatus::Done;
    assert!(
        ended.summary.subtasks.iter().all(done),
        "{}",
        ended.summary.reason
    );
    // Past eight messages after turn 4, and then after every third one: eight times before turn 28.
    assert_eq!(ended.failed_attempts(), count);
    let summed = ended
        .count(|event| matches!(event, Event::Compacted { how, .. } if how["way"] == "summarised"));
    assert!(summed >= count, "{summed}");
    // 28 looks, the report, the verifier's two, and each of the notes; nothing else was asked.
    assert_eq!(server.requests().len(), 28 + 1 + 2 + summed + count);
}

#[tokio::test]
async fn the_notes_of_a_conversation_survive_every_fault_over_every_wire() {
    tokio::join!(
        faults_of_notes(Spoken::Chat, Wire::OpenAi),
        faults_of_notes(Spoken::Messages, Wire::Anthropic),
        faults_of_notes(Spoken::Responses, Wire::Responses),
    );
}

/// What answers the question for notes and is none: after two in a row nobody asks for them any more, and
/// the work goes on without.
#[tokio::test]
async fn notes_that_are_none_end_nothing_over_any_wire() {
    for (spoken, wire) in [
        (Spoken::Chat, Wire::OpenAi),
        (Spoken::Messages, Wire::Anthropic),
        (Spoken::Responses, Wire::Responses),
    ] {
        let lies = [
            Answer::text("Half of the no").finish("length"),
            Answer::text(" "),
            Answer::call("bash", json!({"command": "touch never"})),
            overflow(spoken),
            Answer::status(400, r#"{"error":{"message":"no"}}"#, &[]),
        ];
        for lie in lies {
            let shown = format!("{wire:?} {lie:?}");
            let server = FakeModel::start(looking(10, move |_, _| lie.clone())).await;
            let ended = end(LONG, vec![connect(&server, wire)]).await;
            let done = |s: &run::SubtaskResult| s.status == SubtaskStatus::Done;
            assert!(
                ended.summary.subtasks.iter().all(done),
                "{shown}: {}",
                ended.summary.reason
            );
            assert_eq!(server.requests().len(), 10 + 1 + 2 + 2, "{shown}");
            let none = |event: &Event| matches!(event, Event::Compacted { how, .. } if how["way"] == "not_summarised");
            assert_eq!(ended.count(none), 2, "{shown}");
        }
    }
}

/// A refusal that nothing helps, met by one kind of agent alone: asked once, and told as what it is.
#[tokio::test]
async fn each_agent_that_is_refused_for_good_is_refused_once() {
    let key = r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#;
    for wire in [Wire::OpenAi, Wire::Anthropic, Wire::Responses] {
        // Requests in all, and the exit code. The run's summary is asked for last, and can be done without.
        let table = [
            (Role::Coordinator, 1, 3),
            (Role::Worker, 2, 3),
            (Role::Verifier, 3, 3),
            (Role::Other, 5, 0),
        ];
        for (refused, requests, code) in table {
            let seen: Mutex<BTreeMap<Role, usize>> = Mutex::default();
            let server = FakeModel::start(move |ask| {
                let mut seen = seen.lock().unwrap();
                let place = seen.entry(ask.role).or_default();
                *place += 1;
                match (ask.role, *place) {
                    (role, _) if role == refused => Answer::status(401, key, &[]),
                    (Role::Coordinator, _) => Answer::call(
                        "submit_plan",
                        json!({"summary": "split", "criteria": ["It is done"],
                            "subtasks": [{"id": "a", "role": "coder", "brief": "BRIEF a.", "needs": []}]}),
                    ),
                    (Role::Worker, _) => report("done", "nothing to do"),
                    (Role::Verifier, 1) => look(0),
                    (Role::Verifier, _) => passes(&["It is done"], "#1"),
                    (Role::Other, _) => Answer::text("Done."),
                }
            })
            .await;
            let ended = end(FREE, vec![connect(&server, wire)]).await;
            let shown = format!(
                "{wire:?} {refused:?}: {:?} {}",
                ended.summary.status, ended.summary.reason
            );
            assert_eq!(ended.summary.exit_code, code, "{shown}");
            assert_eq!(server.requests().len(), requests, "{shown}");
            let told = serde_json::to_string(&ended.summary).unwrap();
            assert!(
                code == 0 || told.contains("Incorrect API key"),
                "{shown}: {told}"
            );
        }
    }
}

/// What no server counted is an estimate wherever it is shown.
#[tokio::test]
async fn tokens_that_no_server_counted_are_marked_as_estimated() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "submit_report",
        "arguments": json!({"status": "done", "summary": "nothing to do"}).to_string()}}]});
    let chunk = format!(
        "data: {}\n\n",
        json!({"choices": [{"delta": call, "finish_reason": "tool_calls"}]})
    );
    let server = FakeModel::start(move |_| Answer::raw(&[&chunk, "data: [DONE]\n\n"])).await;
    let ended = end(&many(1, 1), vec![connect(&server, Wire::OpenAi)]).await;
    let summary = serde_json::to_value(&ended.summary).unwrap();
    assert_eq!(summary["usage"]["estimated"], true);
    assert_eq!(summary["subtasks"][0]["usage"]["estimated"], true);
    let report = std::fs::read_to_string(ended.world.state.join("runs/run/report.md")).unwrap();
    assert!(report.contains("output tokens (estimated) in"), "{report}");
}

/// A server that cuts long requests without a word is given away by its own figures, once a run.
#[tokio::test]
async fn a_server_that_counts_less_than_it_was_sent_is_warned_of_once() {
    let world = World::new(&[("big.txt", &"every line is another line\n".repeat(4_000))]);
    let read = |from: usize| Answer::call("read_file", json!({"path": "big.txt", "offset": from}));
    let seen = Mutex::new(0);
    let server = FakeModel::start(move |_| {
        let mut seen = seen.lock().unwrap();
        *seen += 1;
        match *seen {
            3 => report("done", "nothing to do"),
            other => read(other * 700),
        }
        .usage(900, 10)
    })
    .await;
    let summary = run::start(world.order(&many(1, 1), connect(&server, Wire::OpenAi)))
        .await
        .unwrap();
    let doubts = summary
        .warnings
        .iter()
        .filter(|text| text.contains("counted 900 tokens"));
    assert_eq!(doubts.count(), 1, "{:?}", summary.warnings);
}

/// A tool of the operator's that has a rate: the call beyond it waits, and the wait hears the cancel.
#[tokio::test]
async fn a_call_beyond_its_tool_s_rate_waits_and_can_be_stopped() {
    let plan = "version: 1
task: Do it
tools: {ask: {description: Asks., command: echo asked, per_minute: 1}}
roles: {coder: {tools: [ask]}}
subtasks: [{id: a, role: coder, brief: BRIEF a.}]
";
    let world = World::new(&[("a.txt", "a\n")]);
    let server = FakeModel::start(|ask| match ask.results().len() {
        0 => Answer::calls(vec![("ask", json!({})), ("ask", json!({}))]),
        _ => report("done", "nothing to do"),
    })
    .await;
    let order = world.order(plan, connect(&server, Wire::OpenAi));
    let stop = world.stop.clone();
    let began = Instant::now();
    let running = tokio::spawn(run::start(order));
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(
        server.requests().len(),
        1,
        "the second call waits for a minute"
    );
    stop.exit_code
        .store(130, std::sync::atomic::Ordering::SeqCst);
    stop.cancel.cancel();
    let summary = running.await.unwrap().unwrap();
    assert_eq!(summary.status, Status::Interrupted, "{}", summary.reason);
    assert!(began.elapsed() < Duration::from_secs(40));
    drop(world);
}

/// Fixed subtasks without needs.
fn many(count: usize, parallel: usize) -> String {
    let mut text = format!("version: 1\ntask: Do it\nrun: {{parallel: {parallel}}}\nsubtasks:\n");
    for n in 0..count {
        text.push_str(&format!(
            "  - {{id: t{n}, role: coder, brief: \"BRIEF {n}.\"}}\n"
        ));
    }
    text
}

#[tokio::test]
async fn what_cannot_be_helped_is_met_once_and_told_with_the_next_step() {
    let html = [("content-type", "text/html")];
    let key = r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#;
    let quota =
        r#"{"error":{"type":"insufficient_quota","message":"You exceeded your current quota"}}"#;
    let away = [("location", "http://127.0.0.1:1/login")];
    let table = [
        (Answer::status(401, key, &[]), "variable"),
        (
            Answer::status(403, "<html>blocked</html>", &html),
            "firewall",
        ),
        (Answer::status(429, quota, &[]), "quota"),
        (
            Answer::status(404, "{\"detail\":\"Not Found\"}", &[]),
            "base_url",
        ),
        (
            Answer::status(
                404,
                "{\"error\":{\"message\":\"model 'm' not found\"}}",
                &[],
            ),
            "wharf models",
        ),
        (Answer::status(302, "", &away), "leads elsewhere"),
        (
            Answer::status(200, "<!DOCTYPE html><h1>Log in</h1>", &html),
            "web page",
        ),
        (
            Answer::status(429, "{}", &[("retry-after", "3600")]),
            "3600 s",
        ),
    ];
    for wire in [Wire::OpenAi, Wire::Anthropic, Wire::Responses] {
        for (answer, words) in &table {
            let answer = answer.clone();
            let server = FakeModel::start(move |_| answer.clone()).await;
            let ended = end(&many(8, 2), vec![connect(&server, wire)]).await;
            let shown = format!("{wire:?} {words}: {:?}", ended.summary.reason);
            assert_eq!(ended.summary.exit_code, 3, "{shown}");
            // Two were under way together; nobody asks after them.
            assert!(server.requests().len() <= 2, "{shown}");
            let told = serde_json::to_string(&ended.summary).unwrap();
            assert!(told.contains(words), "{words} in {told}");
        }
    }
}

#[tokio::test]
async fn a_wait_that_is_too_long_leads_to_the_next_model_of_the_list() {
    let busy = FakeModel::start(|_| Answer::status(429, "{}", &[("retry-after", "3600")])).await;
    let other = FakeModel::start(|_| report("done", "nothing to do")).await;
    let models = vec![
        open(
            "fake/m",
            &Provider {
                name: "fake".to_owned(),
                ..provider(&busy, Wire::OpenAi)
            },
        ),
        open(
            "other/m",
            &Provider {
                name: "other".to_owned(),
                ..provider(&other, Wire::Responses)
            },
        ),
    ];
    let ended = end(&many(3, 1), models).await;
    let done = |s: &run::SubtaskResult| s.status == SubtaskStatus::Done;
    assert!(ended.summary.subtasks.iter().all(done));
    assert_eq!(busy.requests().len(), 1);
    assert!(
        ended
            .summary
            .warnings
            .iter()
            .any(|text| text.contains("other/m instead")),
        "{:?}",
        ended.summary.warnings
    );
}

/// Sixteen agents at a server that takes one request in 60 ms: none fails, and none runs in step.
#[tokio::test]
async fn a_shared_limit_slows_all_and_fails_none() {
    let every = Duration::from_millis(60);
    let next = Mutex::new(Instant::now());
    let server = FakeModel::start(move |_: &Ask| {
        let mut next = next.lock().unwrap();
        let now = Instant::now();
        if now < *next {
            return Answer::status(429, "{}", &[("retry-after-ms", "60")]);
        }
        *next = now + every;
        report("done", "nothing to do")
    })
    .await;
    let ended = end(&many(16, 16), vec![connect(&server, Wire::OpenAi)]).await;
    let done = |s: &run::SubtaskResult| s.status == SubtaskStatus::Done;
    assert!(ended.summary.subtasks.iter().all(done));
    // The first sixteen came together; after that the pace holds the rest to few refusals.
    let asked = server.requests().len();
    assert!(asked <= 16 + 16 + 16, "{asked} requests for 16 answers");
    let notices = ended.world.watch.notices.lock().unwrap();
    assert!(notices.iter().any(|n| matches!(n, Notice::Waiting { .. })));
}
