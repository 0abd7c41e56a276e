//! Ctrl-C in every phase of a run: nothing is asked any more, no container stays, and the run goes on
//! from there to its end.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::operator::{LIMIT, Operator, engine, finish, skipped, until};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::stops::{none_left, says_interrupted, send, sleeping};
use crate::world::{passes, put, report};

const ONE: &str = "version: 1
name: one
task: Do the work
model: openai/fake
acceptance: {criteria: [It is done]}
subtasks: [{id: a, role: coder, brief: BRIEF a.}]
";

const TWO: &str = "version: 1
name: two
task: Do the work
model: openai/fake
acceptance: {criteria: [It is done]}
subtasks: [{id: a, role: coder, brief: BRIEF a.}, {id: b, role: coder, brief: BRIEF b.}]
";

fn turns(ask: &Ask) -> usize {
    let said = ask.messages.iter().filter(|m| m["role"] == "assistant");
    said.count()
}

/// Everybody does what is due without delay. Two workers write one file, so that a merger is needed.
fn diligent(ask: &Ask) -> Answer {
    let write =
        |text: &str| Answer::call("write_file", json!({"path": "both.txt", "content": text}));
    match (ask.role, turns(ask)) {
        (Role::Other, _) => Answer::text("Notes: all of it was made."),
        (Role::Coordinator, _) => Answer::call(
            "submit_plan",
            json!({"summary": "one", "subtasks": [{"id": "a", "role": "coder", "brief": "BRIEF a.", "needs": []}]}),
        ),
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (Role::Worker, 0) if merges(ask) => write("of a\nof b\n"),
        (Role::Worker, 0) if ask.first.contains("BRIEF b.") => write("of b\n"),
        (Role::Worker, 0) => write("of a\n"),
        (Role::Worker, 1) => Answer::call("bash", json!({"command": "true"})),
        (Role::Worker, _) => report("done", "made it"),
    }
}

fn merges(ask: &Ask) -> bool {
    ask.role == Role::Worker && ask.first.contains("conflict")
}

fn notes(ask: &Ask) -> bool {
    ask.role == Role::Other
        && ask
            .messages
            .iter()
            .any(|m| m.to_string().contains("Write the notes"))
}

/// When the run is stopped.
enum When {
    /// A request like this came.
    Asked(fn(&Ask) -> bool),
    /// `sleep 600` runs in a container of the run.
    Sleeps,
}

/// One phase: the plan, what the server holds back with, and when the signal comes.
struct Phase {
    name: &'static str,
    plan: String,
    held: fn() -> Answer,
    when: When,
}

impl Phase {
    fn asked(name: &'static str, plan: &str, when: fn(&Ask) -> bool, held: fn() -> Answer) -> Self {
        Self {
            name,
            plan: plan.to_owned(),
            held,
            when: When::Asked(when),
        }
    }
}

async fn interrupted(phase: Phase) {
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (held, mark) = (phase.held, seen.clone());
    let wanted = match phase.when {
        When::Asked(wanted) => wanted,
        When::Sleeps => |_: &Ask| false,
    };
    let server = FakeModel::start(move |ask| match wanted(ask) {
        true => {
            mark.store(true, std::sync::atomic::Ordering::SeqCst);
            held()
        }
        false => diligent(ask),
    })
    .await;
    let plan = operator.beside("plan.yaml", &phase.plan);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    let engine = engine();
    until(LIMIT, phase.name, async || match phase.when {
        When::Asked(_) => seen.load(std::sync::atomic::Ordering::SeqCst),
        When::Sleeps => sleeping(&engine, &operator).await == 1,
    })
    .await;
    // The answer, as far as there is one, is on its way.
    tokio::time::sleep(Duration::from_millis(300)).await;
    send(&child, Signal::INT);
    let said = finish(child).await;
    let asked = server.requests().len();
    says_interrupted(&operator, &said, 130);
    none_left(&operator).await;
    assert_eq!(
        server.requests().len(),
        asked,
        "{}: asked after its end",
        phase.name
    );
    assert_eq!(server.violations(), Vec::<String>::new(), "{}", phase.name);

    let quick = FakeModel::start(diligent).await;
    if matches!(phase.when, When::Sleeps) {
        // What sleeps would sleep again: that it goes on is what can be seen.
        return;
    }
    let said = operator
        .wharf(Some(&quick), &["resume", "run", "--json"])
        .await;
    assert_eq!(said.code, Some(0), "{}: {said:?}", phase.name);
    assert_eq!(quick.violations(), Vec::<String>::new(), "{}", phase.name);
    none_left(&operator).await;
}

/// The first words of an answer, and then nothing for longer than any test.
fn half() -> Answer {
    let chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "fake",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "I will"}, "finish_reason": null}]});
    let first = format!("data: {chunk}\n\n").into_bytes();
    Answer::Raw(
        "text/event-stream".to_owned(),
        vec![
            (Duration::ZERO, first),
            (Duration::from_secs(600), Vec::new()),
        ],
    )
}

fn later() -> Answer {
    let body = r#"{"error":{"message":"too many requests"}}"#;
    Answer::status(429, body, &[("retry-after", "40")])
}

fn nothing() -> Answer {
    Answer::Silence
}

const OPEN: &str = "version: 1
name: open
task: Do the work
model: openai/fake
acceptance: {criteria: [It is done]}
";

#[tokio::test]
async fn planning_and_the_run_s_summary_can_be_interrupted() {
    if skipped() {
        return;
    }
    let plans = |ask: &Ask| ask.role == Role::Coordinator;
    let sums = |ask: &Ask| ask.role == Role::Other;
    tokio::join!(
        interrupted(Phase::asked("planning", OPEN, plans, half)),
        interrupted(Phase::asked("its wait", OPEN, plans, later)),
        interrupted(Phase::asked("the run's summary", OPEN, sums, nothing)),
    );
}

#[tokio::test]
async fn a_worker_s_wait_its_answer_and_its_notes_can_be_interrupted() {
    if skipped() {
        return;
    }
    let worker = |ask: &Ask| ask.role == Role::Worker && turns(ask) == 1;
    let long = ONE.to_owned() + "compaction: {keep: 2, messages: 8}\nagent: {turns: 20}\n";
    tokio::join!(
        interrupted(Phase::asked("backoff", ONE, worker, later)),
        interrupted(Phase::asked("mid-stream", ONE, worker, half)),
        interrupted_notes(long),
    );
}

/// One agent in a tool, one that waits to ask again, one whose answer has begun, all at the same time: one
/// signal reaches each of them.
#[tokio::test]
async fn agents_in_different_waits_are_interrupted_together() {
    if skipped() {
        return;
    }
    let three = "version: 1
name: three
task: Do the work
model: openai/fake
run: {parallel: 3}
subtasks:
  - {id: a, role: coder, brief: BRIEF a.}
  - {id: b, role: coder, brief: BRIEF b.}
  - {id: c, role: coder, brief: BRIEF c.}
";
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let server = FakeModel::start(|ask| match &ask.first {
        first if first.contains("BRIEF a.") => Answer::call(
            "bash",
            json!({"command": "sleep 600", "timeout_seconds": 600}),
        ),
        first if first.contains("BRIEF b.") => later(),
        _ => half(),
    })
    .await;
    let plan = operator.beside("plan.yaml", three);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    let engine = engine();
    until(LIMIT, "all three wait", async || {
        server.requests().len() == 3 && sleeping(&engine, &operator).await == 1
    })
    .await;
    send(&child, Signal::INT);
    let said = finish(child).await;
    says_interrupted(&operator, &said, 130);
    none_left(&operator).await;
    assert_eq!(server.requests().len(), 3, "nobody asks after it");
    let result: Value = serde_json::from_str(&operator.of_run("result.json")).unwrap();
    let next = result["next"].as_str().unwrap();
    assert!(next.starts_with("wharf resume"), "{next}");
}

/// A worker that looks until its conversation is summed up; the notes never come.
async fn interrupted_notes(plan: String) {
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let script = |ask: &Ask, held: bool| match ask.role {
        Role::Worker
            if !ask
                .messages
                .iter()
                .any(|m| m.to_string().contains("summed up")) =>
        {
            Answer::call("bash", json!({"command": format!("echo {}", turns(ask))}))
        }
        _ if held && notes(ask) => Answer::Silence,
        _ => diligent(ask),
    };
    let server = FakeModel::start(move |ask| script(ask, true)).await;
    let plan = operator.beside("plan.yaml", &plan);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    let asked = |body: &Value| body["messages"].to_string().contains("Write the notes");
    until(LIMIT, "notes are asked for", async || {
        server.requests().iter().any(asked)
    })
    .await;
    send(&child, Signal::INT);
    let said = finish(child).await;
    says_interrupted(&operator, &said, 130);
    none_left(&operator).await;

    let quick = FakeModel::start(move |ask| script(ask, false)).await;
    let said = operator
        .wharf(Some(&quick), &["resume", "run", "--json"])
        .await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        quick.requests().iter().filter(|body| asked(body)).count(),
        1
    );
    none_left(&operator).await;
}

#[tokio::test]
async fn merge_verification_and_acceptance_can_be_interrupted() {
    if skipped() {
        return;
    }
    let verifies = |ask: &Ask| ask.role == Role::Verifier;
    let accepts = ONE.replace("criteria:", "commands: [\"sleep 600\"], criteria:");
    tokio::join!(
        interrupted(Phase::asked("merge", TWO, merges, nothing)),
        interrupted(Phase::asked("verification", ONE, verifies, nothing)),
        interrupted(Phase {
            name: "acceptance",
            plan: accepts,
            held: nothing,
            when: When::Sleeps,
        }),
    );
}

/// A tracing backend that takes connections and never answers: the flush is bounded, and a signal in it
/// changes nothing of what the run came to.
#[tokio::test]
async fn the_last_flush_of_spans_can_be_interrupted() {
    if skipped() {
        return;
    }
    let mut operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    operator
        .env
        .push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), address));
    let server = FakeModel::start(diligent).await;
    let plan = operator.beside("plan.yaml", ONE);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    let result = operator.state().join("runs/run/result.json");
    until(LIMIT, "the result stands", async || result.exists()).await;
    send(&child, Signal::INT);
    let said = finish(child).await;
    let result: Value = serde_json::from_str(&operator.of_run("result.json")).unwrap();
    assert_eq!(result["status"], "passed", "{result}");
    assert!(said.code.is_some(), "it ended by itself: {said:?}");
    none_left(&operator).await;
    drop(silent);
}
