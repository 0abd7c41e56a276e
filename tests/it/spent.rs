//! What attempts cost that came to no answer: over every wire, on every way out, in pot, journal, result
//! and trace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wharf::journal::{Event, Line, Usage};
use wharf::model::{
    self, Key, Limits, Message, Meter, Model, Price, Provider, Request, ToolSpec, Wire,
};
use wharf::run::{self, Raised, Status, Summary};

use crate::again::Recorded;
use crate::server::{Answer, Ask, FakeModel, Role, Spoken};
use crate::world::{World, passes, report};

const WIRES: [(Spoken, Wire); 3] = [
    (Spoken::Chat, Wire::OpenAi),
    (Spoken::Messages, Wire::Anthropic),
    (Spoken::Responses, Wire::Responses),
];

fn connect(server: &FakeModel, wire: Wire) -> Arc<dyn Model> {
    let mut provider = Provider {
        name: "fake".to_owned(),
        kind: wire,
        ..Provider::openai(Some(server.base_url()), None)
    };
    provider.price = Some(Price {
        input: 1.0,
        cached_input: 1.0,
        output: 1.0,
    });
    let providers = BTreeMap::from([("fake".to_owned(), provider)]);
    model::open_with("fake/m", &providers, Limits::default()).unwrap()
}

/// What a model writes.
#[derive(Clone, Copy, Debug)]
enum Written {
    Text,
    Thoughts,
    Arguments,
}

/// One piece of an answer.
fn piece(spoken: Spoken, written: Written, text: &str) -> Value {
    match (spoken, written) {
        (Spoken::Chat, Written::Text) => {
            json!({"choices": [{"index": 0, "delta": {"content": text}}]})
        }
        (Spoken::Chat, Written::Thoughts) => {
            json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]})
        }
        (Spoken::Chat, Written::Arguments) => {
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "id": "c", "function": {"arguments": text}}]}}]})
        }
        (Spoken::Messages, written) => {
            let delta = match written {
                Written::Text => json!({"type": "text_delta", "text": text}),
                Written::Thoughts => json!({"type": "thinking_delta", "thinking": text}),
                Written::Arguments => json!({"type": "input_json_delta", "partial_json": text}),
            };
            json!({"type": "content_block_delta", "index": 0, "delta": delta})
        }
        (Spoken::Responses, written) => {
            let class = match written {
                Written::Text => "response.output_text.delta",
                Written::Thoughts => "response.reasoning_summary_text.delta",
                Written::Arguments => "response.function_call_arguments.delta",
            };
            json!({"type": class, "output_index": 0, "delta": text})
        }
    }
}

/// How an answer begins.
fn head(spoken: Spoken, written: Written, usage: &Value) -> Vec<Value> {
    let block = match written {
        Written::Text => json!({"type": "text", "text": ""}),
        Written::Thoughts => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Written::Arguments => json!({"type": "tool_use", "id": "t", "name": "bash", "input": {}}),
    };
    match spoken {
        Spoken::Chat => vec![json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})],
        Spoken::Messages => vec![
            json!({"type": "message_start", "message": {"content": [], "usage": usage}}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
        ],
        Spoken::Responses => {
            vec![json!({"type": "response.created", "response": {"status": "in_progress"}})]
        }
    }
}

fn stream(events: &[Value]) -> Answer {
    let text: String = events.iter().map(|e| format!("data: {e}\n\n")).collect();
    Answer::raw(&[&text])
}

/// An answer of so many bytes that closes in order before its end.
fn unfinished(spoken: Spoken, written: Written, bytes: usize) -> Answer {
    let mut events = head(spoken, written, &json!({}));
    let part = "x".repeat(100);
    events.extend((0..bytes / 100).map(|_| piece(spoken, written, &part)));
    stream(&events)
}

fn request() -> Request {
    Request {
        key: Key {
            round: 1,
            subtask: "a".into(),
            role: "coder".into(),
            call: 1,
        },
        messages: vec![Message::User {
            text: "look ".repeat(800),
        }],
        tools: vec![ToolSpec {
            name: "bash".into(),
            description: "Runs a command.".into(),
            schema: json!({"type": "object"}),
        }],
        reply_tokens: 800,
        temperature: None,
        effort: None,
    }
}

/// What a meter shows of one attempt that has no answer.
async fn metered(wire: Wire, answer: Answer) -> (Option<model::Usage>, usize) {
    let server = FakeModel::start(move |_| answer.clone()).await;
    let meter = Meter::default();
    let ask = request();
    let error = connect(&server, wire).attempt(&ask, meter.clone()).await;
    assert!(error.is_err(), "{wire:?}: {error:?}");
    let sent = server.requests().iter().map(|r| r.to_string().len()).sum();
    (meter.reading().usage(), sent)
}

#[tokio::test]
async fn whatever_the_model_wrote_before_a_cut_counts_over_every_wire() {
    for (spoken, wire) in WIRES {
        for written in [Written::Text, Written::Thoughts, Written::Arguments] {
            let shown = format!("{wire:?} {written:?}");
            let (usage, sent) = metered(wire, unfinished(spoken, written, 4_000)).await;
            let usage = usage.expect(&shown);
            assert!(usage.estimated, "{shown}");
            assert_eq!(usage.output, 1_000, "{shown}");
            assert_eq!(usage.input, sent.div_ceil(4) as u64, "{shown}");
        }
        // The middle of an event that never ends is written too.
        let half = Answer::text(&"y".repeat(40_000)).cut(30_000);
        let (usage, _) = metered(wire, half).await;
        let usage = usage.expect("a cut answer is paid for");
        assert!(
            (6_000..=7_600).contains(&usage.output),
            "{wire:?} {usage:?}"
        );
    }
}

/// A server that does not keep to the limit it was given is not listened to without end.
#[tokio::test]
async fn an_answer_many_times_as_long_as_asked_for_is_broken_off_over_every_wire() {
    for (spoken, wire) in WIRES {
        for written in [Written::Text, Written::Thoughts, Written::Arguments] {
            let shown = format!("{wire:?} {written:?}");
            let mut events = head(spoken, written, &json!({}));
            let piece = piece(spoken, written, &"y".repeat(30_000));
            events.extend(std::iter::repeat_n(piece, 400));
            let (usage, _) = metered(wire, stream(&events)).await;
            let output = usage.expect(&shown).output;
            // 256 KiB, a token for four bytes, and what came with the last piece.
            assert!((65_536..=90_000).contains(&output), "{shown}: {output}");
        }
    }
}

#[tokio::test]
async fn a_server_s_own_figure_counts_where_it_came() {
    let broken = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 9}});
    let mut events = head(Spoken::Chat, Written::Text, &json!({}));
    events.extend([piece(Spoken::Chat, Written::Text, &"z".repeat(400)), broken]);
    let (usage, _) = metered(Wire::OpenAi, stream(&events)).await;
    let figures = |usage: Option<model::Usage>| {
        usage.map(|usage| (usage.input, usage.output, usage.estimated))
    };
    assert_eq!(figures(usage), Some((70, 9, false)));
    // What came with the beginning knows what was read, and not what was written since.
    let told = json!({"input_tokens": 70, "output_tokens": 1});
    let mut events = head(Spoken::Messages, Written::Text, &told);
    events.push(piece(Spoken::Messages, Written::Text, &"z".repeat(400)));
    let (usage, _) = metered(Wire::Anthropic, stream(&events)).await;
    assert_eq!(figures(usage), Some((70, 100, true)));
    // An object that is cut in the middle: all that came of it was written.
    let plain = |text: String| {
        let head = format!("{{\"choices\":[{{\"message\":{{\"content\":\"{text}");
        Answer::Raw(
            "application/json".into(),
            vec![(Duration::ZERO, head.into())],
        )
    };
    let (usage, _) = metered(Wire::OpenAi, plain("w".repeat(4_000))).await;
    let output = usage.expect("it is paid for").output;
    assert!((1_000..1_020).contains(&output), "{output}");
}

#[tokio::test]
async fn a_refusal_before_the_first_word_costs_nothing_over_any_wire() {
    let error = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
    for (spoken, wire) in WIRES {
        for code in [400, 401, 402, 403, 404, 413, 429, 500, 502, 503, 529] {
            let (usage, _) = metered(wire, Answer::status(code, error, &[])).await;
            assert_eq!(usage, None, "{wire:?} {code}");
        }
        let inside = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        let (usage, _) = metered(wire, stream(std::slice::from_ref(&inside))).await;
        assert_eq!(usage, None, "{wire:?} {inside}");
        let page = Answer::Raw(
            "text/html".into(),
            vec![(Duration::ZERO, b"<html>Log in</html>".to_vec())],
        );
        let (usage, _) = metered(wire, page).await;
        assert_eq!(usage, None, "{wire:?} page");
        // After the first word it is a cut with a reason.
        let mut events = head(spoken, Written::Text, &json!({}));
        events.extend([piece(spoken, Written::Text, &"z".repeat(400)), inside]);
        let (usage, _) = metered(wire, stream(&events)).await;
        assert_eq!(usage.map(|usage| usage.output), Some(100), "{wire:?}");
        let meter = Meter::default();
        let gone = FakeModel::start(|_| Answer::Silence).await;
        let model = connect(&gone, wire);
        drop(gone);
        tokio::task::yield_now().await;
        let refused = model.attempt(&request(), meter.clone()).await;
        assert!(
            matches!(refused, Err(model::Error::Connect { .. })),
            "{refused:?}"
        );
        assert_eq!(meter.reading().usage(), None, "{wire:?} nobody there");
    }
}

const PLAN: &str = "version: 1
name: spent
task: Do it
acceptance: {criteria: [It is done]}
subtasks: [{id: a, role: coder, brief: BRIEF a.}]
";

/// A run over a wire that ended, with its journal.
async fn end(plan: &str, wire: Wire, server: &FakeModel) -> (World, Summary, Vec<Line>) {
    let world = World::new(&[("a.txt", "a\n")]);
    let summary = run::start(world.order(plan, connect(server, wire))).await;
    let summary = summary.unwrap();
    assert_eq!(server.violations(), Vec::<String>::new());
    let lines = journal(&world);
    (world, summary, lines)
}

fn journal(world: &World) -> Vec<Line> {
    let path = world.state.join("runs/run/journal.jsonl");
    wharf::journal::read(&path).unwrap().lines
}

/// What failed attempts used by the journal, each with the word that ended its call.
fn failed(lines: &[Line]) -> Vec<(Option<Usage>, Option<f64>, Option<String>)> {
    let of = |line: &Line| match &line.event {
        Event::ModelFailed {
            usage,
            cost_usd,
            stop,
            ..
        } => Some((*usage, *cost_usd, stop.clone())),
        _ => None,
    };
    lines.iter().filter_map(of).collect()
}

/// Every token of the result is somebody's, and stands in the journal once.
fn adds_up(summary: &Summary, lines: &[Line]) {
    let mut total = Usage::default();
    for line in lines {
        match &line.event {
            Event::ModelAnswered { usage, .. } => total.add(*usage),
            Event::ModelFailed {
                usage: Some(usage), ..
            } => total.add(*usage),
            _ => {}
        }
    }
    let of = &summary.usage;
    assert_eq!(
        (of.input_tokens, of.output_tokens, of.estimated),
        (total.input_tokens, total.output_tokens, total.estimated)
    );
    let parts = summary.subtasks.iter().map(|s| s.usage);
    let parts = parts.chain(summary.conflicts.iter().map(|c| c.usage));
    let parts = parts.chain(summary.agents.iter().map(|a| a.usage));
    let sum = parts.fold(0, |sum, u| sum + u.input_tokens + u.output_tokens);
    assert_eq!(sum, total.input_tokens + total.output_tokens);
    // A dollar a million tokens.
    let cost = (total.input_tokens + total.output_tokens) as f64 / 1e6;
    let told = summary.cost_usd.unwrap_or_default();
    assert!((told - cost).abs() < 1e-9, "{told} and {cost}");
}

/// A server that writes a lot and never ends comes to the run's limit, and not to as many tries as it likes.
#[tokio::test]
async fn cut_answers_come_to_the_run_s_limit_over_every_wire() {
    let one = async |spoken: Spoken, wire: Wire, answer: Answer| {
        let server = FakeModel::start(move |_| answer.clone()).await;
        let plan = format!("{PLAN}run: {{tokens: 30000}}\n");
        let (_world, summary, lines) = end(&plan, wire, &server).await;
        let shown = format!("{spoken:?} {}", summary.reason);
        assert_eq!(summary.status, Status::Limited, "{shown}");
        assert_eq!(summary.exit_code, 5, "{shown}");
        assert!(server.requests().len() <= 2, "{shown}");
        assert!(summary.usage.output_tokens >= 30_000, "{shown}");
        assert!(summary.usage.estimated, "{shown}");
        assert_eq!(summary.usage.calls, 0, "{shown}");
        adds_up(&summary, &lines);
    };
    let clean = |spoken| unfinished(spoken, Written::Text, 300_000);
    let broken = || Answer::text(&"y".repeat(400_000)).cut(300_000);
    let all = WIRES.iter().flat_map(|&(spoken, wire)| {
        [
            one(spoken, wire, clean(spoken)),
            one(spoken, wire, broken()),
        ]
    });
    futures::future::join_all(all).await;
}

/// An agent's own limit counts them too, also after a resume.
#[tokio::test]
async fn cut_answers_count_for_their_agent_s_own_limit() {
    let plan = format!("{PLAN}agent: {{tokens: 30000}}\n");
    let server = FakeModel::start(|ask| match ask.number {
        0 => unfinished(Spoken::Chat, Written::Text, 120_000),
        _ => Answer::call("list_files", json!({})).usage(1_000, 50),
    })
    .await;
    let (world, summary, lines) = end(&plan, Wire::OpenAi, &server).await;
    let reason = summary.subtasks[0].reason.clone().unwrap_or_default();
    assert!(reason.contains("30000 tokens"), "{reason}");
    assert_eq!(server.requests().len(), 2, "{reason}");
    adds_up(&summary, &lines);
    let whole = Recorded {
        plan,
        patch: None,
        summary,
        requests: 2,
        journal: std::fs::read(world.state.join("runs/run/journal.jsonl")).unwrap(),
        lines,
        world,
    };
    let turn = whole
        .lines
        .iter()
        .position(|line| matches!(line.event, Event::TurnDone { .. }))
        .unwrap();
    let state = whole.killed(&whole.journal[..whole.boundaries()[turn + 1]]);
    let answer = |_: &Ask| Answer::call("list_files", json!({})).usage(1_000, 50);
    let again = whole
        .resume(state, Raised::default(), answer)
        .await
        .unwrap();
    let reason = again.summary.subtasks[0].reason.clone().unwrap_or_default();
    assert!(reason.contains("30000 tokens"), "{reason}");
    assert_eq!(again.requests.len(), 0);
}

/// Looks once and reports; the first request of all is answered by `first`.
fn after(first: Answer) -> impl Fn(&Ask) -> Answer + Send + Sync + 'static {
    move |ask| match (ask.role, ask.results().len()) {
        _ if ask.number == 0 => first.clone(),
        (Role::Worker, _) => report("done", "nothing to do").usage(1_000, 50),
        (Role::Verifier, 0) => Answer::call("list_files", json!({})).usage(1_000, 50),
        _ => passes(&["It is done"], "#1").usage(1_000, 50),
    }
}

/// The first attempt is paid for beside the second, each once.
#[tokio::test]
async fn a_call_that_is_answered_at_its_second_attempt_costs_both_once() {
    let one = async |spoken: Spoken, wire: Wire| {
        let server = FakeModel::start(after(unfinished(spoken, Written::Text, 8_000))).await;
        let (_world, summary, lines) = end(PLAN, wire, &server).await;
        assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
        let failed = failed(&lines);
        let [(Some(lost), Some(cost), None)] = failed.as_slice() else {
            panic!("{wire:?}: {failed:?}");
        };
        assert!(lost.estimated && lost.output_tokens == 2_000, "{lost:?}");
        let both = (lost.input_tokens + lost.output_tokens) as f64 / 1e6;
        assert!((cost - both).abs() < 1e-12);
        assert_eq!(summary.usage.input_tokens, 3 * 1_000 + lost.input_tokens);
        assert_eq!(summary.usage.output_tokens, 3 * 50 + 2_000);
        assert_eq!(summary.usage.calls, 3);
        let of_a = summary.subtasks[0].usage;
        assert_eq!(of_a.input_tokens, 1_000 + lost.input_tokens);
        adds_up(&summary, &lines);
    };
    let all = WIRES.iter().map(|&(spoken, wire)| one(spoken, wire));
    futures::future::join_all(all).await;
}

/// Refusals on the way leave the figures of the answers as they are.
#[tokio::test]
async fn a_call_that_was_refused_on_its_way_costs_what_its_answer_did() {
    let at_once = [("retry-after-ms", "5")];
    for code in [429, 503] {
        let server = FakeModel::start(after(Answer::status(code, "{}", &at_once))).await;
        let (_world, summary, lines) = end(PLAN, Wire::OpenAi, &server).await;
        assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
        assert!(matches!(failed(&lines).as_slice(), [(None, None, None)]));
        assert_eq!(summary.usage.input_tokens, 3_000);
        assert!(!summary.usage.estimated);
        adds_up(&summary, &lines);
    }
    for code in [400, 401] {
        let server = FakeModel::start(move |_| Answer::status(code, "{}", &[])).await;
        let (_world, summary, lines) = end(PLAN, Wire::OpenAi, &server).await;
        assert_ne!(summary.exit_code, 0);
        let used = summary.usage.input_tokens + summary.usage.output_tokens;
        assert_eq!((used, summary.usage.estimated), (0, false), "{code}");
        adds_up(&summary, &lines);
    }
}

/// An answer of which so many bytes come, and which then goes on for ever.
fn endless(spoken: Spoken, bytes: usize) -> Answer {
    let Answer::Raw(kind, mut pieces) = unfinished(spoken, Written::Text, bytes) else {
        unreachable!("an unfinished answer is raw")
    };
    pieces.push((Duration::from_secs(600), Vec::new()));
    Answer::Raw(kind, pieces)
}

/// A call that was out when the run was told to stop, or when its agent's time was over.
#[tokio::test]
async fn a_call_that_is_broken_off_is_in_pot_and_journal_over_every_wire() {
    let timed = async |spoken: Spoken, wire: Wire| {
        let server = FakeModel::start(move |_| endless(spoken, 4_000)).await;
        let plan = format!("{PLAN}agent: {{time: 2s}}\n");
        let (_world, summary, lines) = end(&plan, wire, &server).await;
        assert_eq!(summary.exit_code, 1, "{wire:?} {}", summary.reason);
        let failed = failed(&lines);
        let [(Some(lost), Some(_), Some(stop))] = failed.as_slice() else {
            panic!("{wire:?}: {failed:?}");
        };
        assert_eq!(stop, "cancelled");
        assert!(lost.input_tokens > 100 && lost.output_tokens == 1_000);
        adds_up(&summary, &lines);
    };
    let all = WIRES.iter().map(|&(spoken, wire)| timed(spoken, wire));
    futures::future::join_all(all).await;
    for (spoken, wire) in WIRES {
        let server = FakeModel::start(move |_| endless(spoken, 4_000)).await;
        let (whole, lost) = interrupted("", &server, wire).await;
        adds_up(&whole.summary, &whole.lines);
        assert!(lost.input_tokens > 100, "{wire:?} {lost:?}");
    }
}

/// A run that was told to stop while its first call was out, and what that call used.
async fn interrupted(extra: &str, server: &FakeModel, wire: Wire) -> (Recorded, Usage) {
    let world = World::new(&[("a.txt", "a\n")]);
    let plan = format!("{PLAN}{extra}");
    let running = tokio::spawn(run::start(world.order(&plan, connect(server, wire))));
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What was written by then is on its way.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let code = &world.stop.exit_code;
    code.store(130, std::sync::atomic::Ordering::SeqCst);
    world.stop.cancel.cancel();
    let summary = running.await.unwrap().unwrap();
    assert_eq!(summary.status, Status::Interrupted, "{}", summary.reason);
    let lines = journal(&world);
    let failed = failed(&lines);
    let [(Some(lost), _, Some(stop))] = failed.as_slice() else {
        panic!("{failed:?}");
    };
    assert_eq!(stop, "cancelled");
    let whole = Recorded {
        plan,
        patch: None,
        summary,
        requests: server.requests().len(),
        journal: std::fs::read(world.state.join("runs/run/journal.jsonl")).unwrap(),
        lines: lines.clone(),
        world,
    };
    (whole, *lost)
}

/// What was spent without an answer stays spent when the run goes on.
#[tokio::test]
async fn a_resumed_run_keeps_what_was_spent_without_an_answer() {
    let server = FakeModel::start(|_| endless(Spoken::Chat, 120_000)).await;
    let (whole, lost) = interrupted("run: {tokens: 40000}\n", &server, Wire::OpenAi).await;
    assert_eq!(lost.output_tokens, 30_000);
    let answer = after(Answer::text("never"));
    let again = whole
        .resume(whole.killed(&whole.journal), Raised::default(), answer)
        .await
        .unwrap();
    again.ends(Status::Limited);
    assert_eq!(again.requests.len(), 0);
    adds_up(&again.summary, &again.lines);
    assert_eq!(again.summary.usage.output_tokens, 30_000);
    let more = Raised {
        tokens: Some(200_000),
        ..Raised::default()
    };
    let answer = after(report("done", "nothing to do").usage(1_000, 50));
    let again = whole
        .resume(whole.killed(&whole.journal), more, answer)
        .await
        .unwrap();
    again.ends(Status::Passed);
    assert_eq!(again.summary.usage.output_tokens, 30_000 + 3 * 50);
    adds_up(&again.summary, &again.lines);
}
