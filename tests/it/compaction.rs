//! A conversation that grows too long is summed up: when, by whom, at whose cost, and what a missing
//! summary, a crash and a recording make of it.

use std::sync::Arc;

use serde_json::{Value, json};
use wharf::journal::{Agent, Event, Line};
use wharf::model::{Key, Recording, Replay};
use wharf::run::{self, Raised, Status, requests};

use crate::again::{Recorded, count, run_dir};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::world::{World, connect, passes, report};

const FILES: &[(&str, &str)] = &[("a.txt", "a\n")];
const NOTES: &str = "Notes: steps were taken, none failed.";

/// Shortened past eight messages, two of them kept.
fn plan(more: &str) -> String {
    format!(
        "version: 1\nname: long\ntask: Do the work\nacceptance: {{criteria: [It is done]}}\n\
         compaction: {{keep: 2, messages: 8{more}}}\n"
    )
}

fn fixed(more: &str) -> String {
    plan(more) + "subtasks: [{id: a, role: coder, brief: BRIEF a.}]\n"
}

/// True for the question for notes; a run's own summary is another.
fn asks_for_notes(body: &Value) -> bool {
    body["tools"].is_null() && body["messages"].to_string().contains("Write the notes")
}

/// The number of the last result, 0 before the first.
fn step(ask: &Ask) -> u32 {
    let last = ask.results().into_iter().next_back();
    let number = last.and_then(|text| text.strip_prefix('#')?.split(' ').next()?.parse().ok());
    number.unwrap_or_default()
}

fn look(number: u32) -> Answer {
    Answer::call("bash", json!({"command": format!("echo step-{number}")}))
}

/// Everybody looks ten times and then hands in what is due.
fn long(ask: &Ask) -> Answer {
    let done = step(ask);
    match ask.role {
        Role::Other if asks_for_notes(&ask.body) => Answer::text(NOTES).usage(70, 30),
        Role::Other => Answer::text("Done."),
        Role::Coordinator if done < 10 => {
            Answer::call("grep", json!({"pattern": format!("p{done}")}))
        }
        _ if done < 10 => look(done + 1),
        _ => due(ask, done as usize),
    }
}

/// What each hands in after so many results.
fn due(ask: &Ask, done: usize) -> Answer {
    match ask.role {
        Role::Coordinator => Answer::call(
            "submit_plan",
            json!({"summary": "one", "subtasks": [{"id": "a", "role": "coder", "brief": "BRIEF a.", "needs": []}]}),
        ),
        Role::Worker => report("done", "made it"),
        Role::Verifier => passes(&["It is done"], &format!("#{done}")),
        Role::Other => Answer::text("Done."),
    }
}

fn notes_asked(server: &[Value]) -> usize {
    server.iter().filter(|body| asks_for_notes(body)).count()
}

fn ways(lines: &[Line]) -> Vec<(u32, String)> {
    let found = lines.iter().filter_map(|line| match &line.event {
        Event::Compacted { after, how, .. } => Some((*after, how["way"].as_str()?.to_owned())),
        _ => None,
    });
    found.collect()
}

#[tokio::test]
async fn everybody_s_conversation_is_summed_up_and_the_pot_pays() {
    let world = World::new(FILES);
    let ran = world.run(&plan(""), long).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let requests = ran.server.requests();
    // Past eight messages after turns 4, 7 and 10, for each of three agents.
    assert_eq!(notes_asked(&requests), 9);
    // Eleven calls each, and the run's own summary.
    assert_eq!(requests.len(), 9 + 3 * 11 + 1);
    assert_eq!(ran.summary.usage.calls, requests.len() as u64);
    for body in requests.iter().filter(|body| !body["tools"].is_null()) {
        let messages = body["messages"].as_array().unwrap();
        assert!(messages.len() <= 9, "{}", messages.len());
    }
    let later = requests.iter().filter(|body| !body["tools"].is_null());
    let noted = later.filter(|body| {
        body["messages"][1]["content"]
            .as_str()
            .unwrap()
            .contains(NOTES)
    });
    assert_eq!(noted.count(), 3 * 7, "from the fifth call on");
    for line in &ran.journal {
        if let Event::Compacted {
            how,
            messages,
            tokens,
            ..
        } = &line.event
        {
            assert_eq!(how["text"], NOTES);
            assert!(
                messages.0 > messages.1 && tokens.0 > tokens.1,
                "{messages:?} {tokens:?}"
            );
        }
    }
    assert_eq!(ways(&ran.journal).len(), 9);
    let worker = ran.summary.subtasks[0].usage;
    assert!(
        worker.input_tokens >= 3 * 70,
        "the notes are part of what the subtask cost"
    );
}

#[tokio::test]
async fn a_summary_that_cannot_be_had_ends_nothing_and_is_not_asked_for_without_end() {
    let cases: [fn() -> Answer; 4] = [
        || Answer::text("Half of the no").finish("length"),
        || Answer::text("  "),
        || Answer::text("no").finish("content_filter"),
        || Answer::status(400, r#"{"error":{"message":"no"}}"#, &[]),
    ];
    for answer in cases {
        let world = World::new(FILES);
        let script = move |ask: &Ask| match asks_for_notes(&ask.body) {
            true => answer(),
            false => long(ask),
        };
        let ran = world.run(&fixed(""), script).await;
        assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
        let requests = ran.server.requests();
        assert_eq!(
            notes_asked(&requests),
            2 * 2,
            "two for each agent, and no more"
        );
        let ways = ways(&ran.journal);
        assert!(
            ways.iter().all(|(_, way)| way == "not_summarised"),
            "{ways:?}"
        );
        assert_eq!(ways.len(), 4);
    }
}

#[tokio::test]
async fn a_model_of_its_own_sums_up_and_answers_in_the_agent_s_window() {
    let world = World::new(FILES);
    let (server, other) = (FakeModel::start(long).await, FakeModel::start(long).await);
    let mut order = world.order(&fixed(", words: 80"), connect(&server));
    order.models.summary = vec![connect(&other)];
    let summary = run::start(order).await.unwrap();
    assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
    assert_eq!(notes_asked(&server.requests()), 0);
    let asked = other.requests();
    assert_eq!((notes_asked(&asked), asked.len()), (6, 6));
    let said = asked[1]["messages"][1]["content"].as_str().unwrap();
    assert!(
        said.contains("in at most 80 words") && said.contains(NOTES),
        "{said}"
    );
    assert!(
        said.contains("step-5") && !said.contains("step-2"),
        "{said}"
    );
    assert!(said.contains("BRIEF a."), "the task stands in it");
}

/// Killed at every line, the run pays for no summary twice and every later request is the same.
#[tokio::test]
async fn a_summary_is_paid_for_once_whenever_the_run_is_killed() {
    let whole = Recorded::of(FILES, &fixed(""), long).await;
    assert_eq!(
        whole.summary.status,
        Status::Passed,
        "{}",
        whole.summary.reason
    );
    let boundaries = whole.boundaries();
    let near = whole
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| match &line.event {
            Event::ModelAnswered { call, agent, .. } => {
                agent.subtask.as_str() == "a" && (*call > Key::SUMMARIES || *call == 8)
            }
            Event::Compacted { agent, .. } | Event::TurnDone { agent, turn: 5, .. } => {
                agent.subtask.as_str() == "a"
            }
            _ => false,
        });
    let cuts: Vec<usize> = near.map(|(at, _)| at + 1).collect();
    assert!(cuts.len() >= 8, "{cuts:?}");
    for cut in cuts {
        let state = whole.killed(&whole.journal[..boundaries[cut]]);
        let again = whole.resume(state, Raised::default(), long).await.unwrap();
        assert_eq!(
            again.summary.status,
            Status::Passed,
            "cut at {cut}: {}",
            again.summary.reason
        );
        let paid =
            |lines: &[Line]| count(lines, |event| matches!(event, Event::ModelAnswered { .. }));
        assert_eq!(paid(&again.lines), whole.requests, "cut at {cut}");
        assert_eq!(
            again.summary.usage.calls, whole.summary.usage.calls,
            "cut at {cut}"
        );
        // What an agent is told after a crash makes its conversation longer, so that old output may have
        // to be elided as well; that costs nothing.
        let summed = |lines: &[Line]| -> Vec<_> {
            let paid = ways(lines).into_iter();
            paid.filter(|(_, way)| way == "summarised").collect()
        };
        assert_eq!(summed(&again.lines), summed(&whole.lines), "cut at {cut}");
    }
}

/// Recordings are looked up by the ordinals of an agent's own calls, which summaries do not shift.
#[tokio::test]
async fn a_recording_answers_with_and_without_its_summaries() {
    let whole = Recorded::of(FILES, &fixed(""), long).await;
    let text = String::from_utf8(whole.journal.clone()).unwrap();
    let of_a_summary = |line: &&str| {
        let value: Value = serde_json::from_str(line).unwrap();
        value["call"]
            .as_u64()
            .is_some_and(|call| call > u64::from(Key::SUMMARIES))
    };
    let without: Vec<&str> = text.lines().filter(|line| !of_a_summary(line)).collect();
    assert!(without.len() < text.lines().count());
    for (recording, summed) in [(text.clone(), 6), (without.join("\n") + "\n", 0)] {
        let world = World::new(FILES);
        let recording = Recording::parse("journal.jsonl", &recording).unwrap();
        let summary = run::start(world.order(&whole.plan, Arc::new(Replay::new(recording)))).await;
        let summary = summary.unwrap();
        assert_eq!(summary.status, whole.summary.status, "{}", summary.reason);
        let read = wharf::journal::read(&run_dir(&world.state).join("journal.jsonl")).unwrap();
        let found = ways(&read.lines);
        let done = found.iter().filter(|(_, way)| way == "summarised").count();
        assert_eq!(done, summed, "{found:?}");
    }
}

/// What each tool has at a place.
fn names(tools: &[Value], at: &str) -> Vec<Value> {
    let tools = tools.iter();
    tools
        .map(|tool| tool.pointer(at).unwrap().clone())
        .collect()
}

/// What the journal says was sent is what came to the server, whoever sent it.
#[tokio::test]
async fn the_journal_has_every_request_as_it_was_sent() {
    let world = World::new(FILES);
    let noisy = |ask: &Ask| match (ask.role, step(ask)) {
        (Role::Worker, 1) => Answer::calls(vec![
            (
                "write_file",
                json!({"path": "b.txt", "content": "long line\n".repeat(3_000)}),
            ),
            ("read_file", json!({"path": "b.txt"})),
        ]),
        _ => long(ask),
    };
    let ran = world.run(&fixed(""), noisy).await;
    let dir = run_dir(&world.state);
    let mut seen = 0;
    for (subtask, role, submits) in [
        ("a", "coder", "submit_report"),
        ("verifier", "verifier", "submit_verdict"),
    ] {
        let who = Agent {
            round: 1,
            subtask: wharf::id::SubtaskId::new(subtask),
            role: wharf::id::RoleName::new(role),
        };
        let all = requests(&dir, &ran.journal, &who).unwrap();
        let own = ran
            .server
            .requests()
            .into_iter()
            .filter(|b| b["tools"].to_string().contains(submits));
        let own: Vec<Value> = own.collect();
        let kept: Vec<_> = all.iter().filter(|asked| !asked.summary).collect();
        assert_eq!(kept.len(), own.len(), "{subtask}");
        for (asked, body) in kept.iter().zip(&own) {
            same_request(asked, body);
            seen += 1;
        }
        assert!(
            all.iter()
                .any(|asked| asked.summary && asked.tools.is_empty()),
            "{subtask}"
        );
    }
    assert!(seen > 20, "{seen}");
    pages(&world, &ran.server.requests());
}

/// Messages, tools and parameters are those of the body.
fn same_request(asked: &run::Asked, body: &Value) {
    assert_eq!(asked.attempts, 1);
    let sent = body["messages"].as_array().unwrap();
    assert_eq!(asked.messages.len(), sent.len());
    for (asked, sent) in asked.messages.iter().zip(sent) {
        same_message(asked, sent);
    }
    let sent = body["tools"].as_array().unwrap();
    for (own, its) in [
        ("/name", "/function/name"),
        ("/description", "/function/description"),
        ("/schema", "/function/parameters"),
    ] {
        assert_eq!(names(&asked.tools, own), names(sent, its));
    }
    let [to] = asked.sent.as_slice() else {
        panic!("{:?}", asked.sent);
    };
    let known = &to.terms.as_ref().unwrap().parameters;
    assert_eq!(known, &parameters(body));
    assert!(
        known["model"] == "fake" && known["tool_choice"] == "auto" && known["stream"] == true,
        "{known:?}"
    );
}

/// What a body holds beside messages and tools.
fn parameters(body: &Value) -> serde_json::Map<String, Value> {
    let mut parts = body.as_object().unwrap().clone();
    parts.retain(|name, _| !["messages", "tools"].contains(&name.as_str()));
    parts
}

/// Role, text, what it answers and calls are the same.
fn same_message(asked: &Value, sent: &Value) {
    assert_eq!(asked["role"], sent["role"]);
    let text = sent["content"].as_str().unwrap_or_default();
    assert_eq!(asked["text"].as_str().unwrap_or_default(), text);
    assert_eq!(asked["call_id"], sent["tool_call_id"]);
    let parts = |value: &Value, key: &str, at: [&str; 3]| {
        let calls = value[key].as_array().cloned().unwrap_or_default();
        let part = |call: &Value| at.map(|at| call.pointer(at).unwrap().clone());
        calls.iter().map(part).collect::<Vec<_>>()
    };
    assert_eq!(
        parts(asked, "calls", ["/id", "/name", "/arguments"]),
        parts(
            sent,
            "tool_calls",
            ["/id", "/function/name", "/function/arguments"]
        )
    );
}

/// What `wharf show` prints of requests, against what the server got.
fn pages(world: &World, sent: &[Value]) {
    let page = wharf_show(world, &["a", "--request", "3"]);
    let third = sent.iter().filter(|body| {
        let body = body["tools"].to_string();
        body.contains("submit_report")
    });
    let third = third.clone().nth(2).unwrap();
    for (name, value) in parameters(third) {
        assert!(
            page.contains(&format!("\n{name} {value}\n")),
            "{name}\n{page}"
        );
    }
    for message in third["messages"].as_array().unwrap() {
        let text = message["content"].as_str().unwrap_or_default();
        assert!(page.contains(text.trim_end()), "{text}");
    }
    assert!(
        page.contains("call 3 of a (coder)") && page.contains("--- tool submit_report"),
        "{page}"
    );
    assert!(
        page.matches("long line").count() > 4_000,
        "both the call and its result are whole"
    );
    let page = wharf_show(world, &["a", "--request", "summary-1"]);
    assert!(
        page.contains("Write the notes") && !page.contains("--- tool"),
        "{page}"
    );
    let json: Value =
        serde_json::from_str(&wharf_show(world, &["a", "--request", "1", "--json"])).unwrap();
    assert_eq!(
        (json["call"].clone(), json["attempts"].clone()),
        (json!(1), json!(1))
    );
}

fn wharf_show(world: &World, more: &[&str]) -> String {
    let mut args = vec!["show", "run"];
    args.extend(more);
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_wharf"))
        .args(&args)
        .env("WHARF_HOME", &world.state)
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[tokio::test]
async fn a_secret_that_was_sent_is_not_in_what_is_shown() {
    let world = World::new(&[("a.txt", "key-canary-77\n")]);
    let script = |ask: &Ask| match step(ask) {
        0 => Answer::call("read_file", json!({"path": "a.txt"})),
        _ => match ask.role {
            Role::Worker => report("done", "made it"),
            _ => passes(&["It is done"], "#1"),
        },
    };
    let server = FakeModel::start(script).await;
    let mut order = world.order(&fixed(""), connect(&server));
    order.keep.secrets = vec!["key-canary-77".to_owned()];
    run::start(order).await.unwrap();
    let page = wharf_show(&world, &["a", "--request", "2"]);
    assert!(
        page.contains("[secret]") && !page.contains("canary-77"),
        "{page}"
    );
    // Its turns, each with the calls and what came of them.
    let page = wharf_show(&world, &["a"]);
    for part in [
        "turn 1\n  #1 read_file a.txt\n      a.txt: lines 1-1 of 1\n      [secret]\n",
        "turn 2\n  #2 submit_report made it\n      handed in\n",
        "next:    wharf show run a --request 2 (",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let all: Value = serde_json::from_str(&wharf_show(&world, &["a", "--json"])).unwrap();
    assert_eq!(all["turns"][0]["results"][0]["tool"], "read_file");
    assert_eq!(all["agent"]["turns"], 2);
}

/// Results that are larger than the whole window, by every tool that has large ones, for every agent: what
/// goes out next fits, and the work goes on.
#[tokio::test]
async fn results_larger_than_the_window_leave_requests_that_fit() {
    let big = "every line of it is like the one before\n".repeat(5_000);
    let world = World::new(&[("big.txt", &big)]);
    let plan = format!(
        "{}agent: {{context_window: 8000}}\n",
        plan("").replace("keep: 2, messages: 8", "keep: 2")
    );
    let looks = [
        ("read_file", json!({"path": "big.txt"})),
        ("grep", json!({"pattern": "line", "max_results": 1000})),
        ("bash", json!({"command": "cat big.txt"})),
    ];
    let ran = world
        .run(&plan, move |ask| {
            let size = ask.body["messages"].to_string().len();
            if size > 32_000 {
                let text = format!("prompt is too long: {size} bytes");
                let error = json!({"error": {"message": text, "code": "context_length_exceeded"}});
                return Answer::status(400, &error.to_string(), &[]);
            }
            let done = step(ask) as usize;
            match ask.role {
                Role::Other if asks_for_notes(&ask.body) => Answer::text(NOTES),
                Role::Other => Answer::text("Done."),
                Role::Coordinator if done < 2 => Answer::call(looks[done].0, looks[done].1.clone()),
                _ if done < 3 => Answer::call(looks[done].0, looks[done].1.clone()),
                _ => due(ask, done),
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let all = ran.server.requests().len();
    assert!(all <= 40, "{all} requests");
}
