//! The real program killed over a real engine, and resumed.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use rustix::process::Signal;
use serde_json::json;
use tokio::process::Child;
use wharf::journal::{Event, Line};

use crate::again::count;
use crate::crash;
use crate::operator::{LIMIT, Operator, containers, engine, finish, skipped, until};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::stops::{none_left, send, sleeping};
use crate::world::{passes, put, report, write};

const PLAN: &str = r#"version: 1
name: three
task: Do the work
model: openai/fake
run: {parallel: 2}
acceptance: {commands: ["test -f a.log"], criteria: ["It is done"]}
subtasks:
  - {id: a, role: coder, brief: "BRIEF a."}
  - {id: b, role: coder, brief: "BRIEF b."}
  - {id: c, role: coder, brief: "BRIEF c.", needs: [a, b]}
"#;

/// Answers follow from the messages alone, so that a second process is answered as the first would
/// have been.
fn script(ask: &Ask) -> Answer {
    let turns = ask
        .messages
        .iter()
        .filter(|m| m["role"] == "assistant")
        .count();
    let id: String = match ask.first.find("BRIEF ") {
        Some(at) => ask.first[at + 6..]
            .chars()
            .take_while(|c| *c != '.')
            .collect(),
        None => String::new(),
    };
    match (ask.role, turns) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => write(&format!("{id}.txt"), "made\n"),
        (_, 1 | 2) => {
            let line = format!("sleep 0.2; echo {id} >> {id}.log");
            Answer::call("bash", json!({"command": line}))
        }
        _ => report("done", "made it"),
    }
}

fn repository() -> Operator {
    let operator = Operator::new();
    operator.git(&["init", "-q", "-b", "main"]);
    put(&operator.work().join("keep.txt"), "keep\n");
    operator.git(&["add", "."]);
    operator.git(&["commit", "-q", "-m", "first"]);
    operator
}

fn start(operator: &Operator, server: &FakeModel) -> Child {
    let plan = operator.beside("plan.yaml", PLAN);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    operator.command(Some(server), &args).spawn().unwrap()
}

fn lines(state: &Path) -> usize {
    let journal = std::fs::read(state.join("runs/run/journal.jsonl"));
    journal.map_or(0, |bytes| bytes.iter().filter(|b| **b == b'\n').count())
}

fn tree(operator: &Operator) -> String {
    operator.git(&["rev-parse", "wharf/run^{tree}"])
}

/// The run that the dozen kills are tried on: three agents at a time, a conflict and its merger, two rounds.
struct Whole {
    lines: Vec<Line>,
    requests: usize,
    tree: String,
}

/// How many agents of `crash::PLAN` may wait for an answer at a time.
const AT_A_TIME: usize = 3;

/// All subtasks that its coordinator asks for in both rounds.
const IDS: [&str; 4] = ["left", "right", "free", "mend"];

fn start_matrix(server: &FakeModel) -> (Operator, Child) {
    let operator = Operator::new();
    operator.git(&["init", "-q", "-b", "main"]);
    put(&operator.work().join("list.txt"), crash::LINES);
    operator.git(&["add", "."]);
    operator.git(&["commit", "-q", "-m", "first"]);
    let plan = format!("{}model: openai/fake\n", crash::PLAN);
    let plan = operator.beside("plan.yaml", &plan);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(server), &args).spawn().unwrap();
    (operator, child)
}

/// What is on record, less a last line that a kill cut.
fn on_record(operator: &Operator) -> Vec<Line> {
    let path = operator.state().join("runs/run/journal.jsonl");
    wharf::journal::read(&path).unwrap().lines
}

/// Kills a run once its journal has so many lines, and resumes it to the same end; whether it was still under
/// way.
async fn killed_at(whole: &Whole, cut: usize) -> bool {
    let first = FakeModel::start(crash::script).await;
    let (operator, mut child) = start_matrix(&first);
    let state = operator.state();
    until(LIMIT, "the journal grows", async || lines(&state) >= cut).await;
    child.start_kill().unwrap();
    child.wait().await.unwrap();
    let before = on_record(&operator);
    let at = format!(
        "killed after line {} of {}",
        before.len(),
        whole.lines.len()
    );

    let second = FakeModel::start(crash::script).await;
    let said = operator
        .wharf(Some(&second), &["resume", "last", "--json"])
        .await;
    assert_eq!(said.code, Some(0), "{at}: {said:?}");
    assert_eq!(said.object()["status"], "passed", "{at}: {said:?}");
    none_left(&operator).await;
    assert_eq!(tree(&operator), whole.tree, "{at}");
    crash::nothing_twice(&whole.lines, &on_record(&operator), &IDS, &at);
    for server in [&first, &second] {
        assert_eq!(server.violations(), Vec::<String>::new(), "{at}");
    }
    // An answer on record is never asked for again; one that was under way is, and there are only so many.
    let answered = crash::answered(&before);
    let (asked, again) = (first.requests().len(), second.requests().len());
    assert_eq!(again, whole.requests - answered, "{at}: requests");
    assert!(
        (answered..=answered + AT_A_TIME).contains(&asked),
        "{at}: {asked} requests, {answered} answers on record"
    );
    let ended = count(&before, |event| matches!(event, Event::RunEnded { .. }));
    ended == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dozen_kills_of_the_real_program_come_to_the_same_end() {
    if skipped() {
        return;
    }
    let server = FakeModel::start(crash::script).await;
    let (operator, child) = start_matrix(&server);
    let said = finish(child).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let whole = Whole {
        lines: on_record(&operator),
        requests: server.requests().len(),
        tree: tree(&operator),
    };
    let happened = |of: fn(&Event) -> bool| count(&whole.lines, of);
    assert_eq!(happened(|e| matches!(e, Event::RoundStarted { .. })), 2);
    assert_eq!(happened(|e| matches!(e, Event::ConflictFound { .. })), 1);
    crash::nothing_twice(&whole.lines, &whole.lines, &IDS, "not killed");
    // From the first record to the last but one, evenly.
    let all = whole.lines.len();
    let cuts = (0..12).map(|n| 1 + n * (all - 2) / 11);
    let under_way: Vec<bool> = futures::stream::iter(cuts)
        .map(|cut| killed_at(&whole, cut))
        .buffer_unordered(3)
        .collect()
        .await;
    // The last records come at once, so that a kill among them may come late.
    let killed = under_way.iter().filter(|it| **it).count();
    assert!(
        killed > 8,
        "{killed} of 12 were under way when they were killed"
    );

    // A run that has ended says the same again and does nothing.
    let again = operator
        .wharf(Some(&server), &["resume", "run", "--json"])
        .await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(again.object()["snapshot"], said.object()["snapshot"]);
    assert_eq!(
        again.stderr.trim(),
        "run run has ended: nothing is left to do, this is its result"
    );
    assert_eq!(server.requests().len(), whole.requests);
}

/// A run that was killed in the middle of its agents' work.
async fn in_the_middle(operator: &Operator) {
    let server = FakeModel::start(script).await;
    let mut child = start(operator, &server);
    let state = operator.state();
    until(LIMIT, "the agents work", async || lines(&state) >= 12).await;
    child.start_kill().unwrap();
    child.wait().await.unwrap();
    none_left(operator).await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_resume_one_run_one_goes_on_and_one_is_refused() {
    if skipped() {
        return;
    }
    let operator = repository();
    in_the_middle(&operator).await;
    let from = operator.state();
    let pair = async |n: usize| {
        let server = FakeModel::start(|_| Answer::Silence).await;
        let state = from.with_file_name(format!("state-{n}"));
        copy(&from, &state);
        let resume = || {
            let mut command = operator.command(Some(&server), &["resume", "run", "--json"]);
            command.env("WHARF_HOME", &state).spawn().unwrap()
        };
        let (mut one, mut other) = (resume(), resume());
        // The one that goes on waits for its model until it is stopped; the other ends by itself.
        let ended = tokio::select! {
            code = one.wait() => (code.unwrap(), other),
            code = other.wait() => (code.unwrap(), one),
        };
        let (refused, mut goes_on) = ended;
        assert_eq!(refused.code(), Some(2), "pair {n}");
        assert_eq!(
            goes_on.try_wait().unwrap(),
            None,
            "pair {n}: the other one works"
        );
        until(LIMIT, "it goes on", async || !server.requests().is_empty()).await;
        send(&goes_on, Signal::TERM);
        let said = finish(goes_on).await;
        assert_eq!(said.code, Some(143), "pair {n}: {said:?}");
    };
    let pairs = futures::stream::iter(0..20).map(pair);
    pairs.buffer_unordered(3).collect::<Vec<()>>().await;
}

#[tokio::test]
async fn a_process_that_stands_still_keeps_its_run() {
    if skipped() {
        return;
    }
    let operator = repository();
    in_the_middle(&operator).await;
    let slow = FakeModel::start(|ask| match script(ask) {
        Answer::Message { .. } if ask.number == 0 => {
            std::thread::sleep(Duration::from_millis(1500));
            script(ask)
        }
        other => other,
    })
    .await;
    let first = operator
        .command(Some(&slow), &["resume", "run", "--json"])
        .spawn()
        .unwrap();
    until(LIMIT, "the first asks its model", async || {
        !slow.requests().is_empty()
    })
    .await;
    send(&first, Signal::STOP);
    let second = operator
        .wharf(Some(&slow), &["resume", "run", "--json"])
        .await;
    assert_eq!(second.code, Some(2), "{second:?}");
    assert_eq!(second.object()["error"]["kind"], "running");
    send(&first, Signal::CONT);
    let said = finish(first).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    none_left(&operator).await;
}

/// Ctrl-C in the middle of a command; what the dead process left at the engine goes before the next
/// one begins, and every call is answered once.
#[tokio::test]
async fn an_interrupted_run_is_resumed_and_its_calls_are_answered_once() {
    if skipped() {
        return;
    }
    let operator = repository();
    let sleeper = FakeModel::start(|ask| match ask.ordinal {
        0 => script(ask),
        _ => Answer::call(
            "bash",
            json!({"command": "sleep 600", "timeout_seconds": 600}),
        ),
    })
    .await;
    let child = start(&operator, &sleeper);
    let engine = engine();
    until(LIMIT, "the agents sleep", async || {
        sleeping(&engine, &operator).await == 2
    })
    .await;
    let labels = containers(&engine, &operator)
        .await
        .remove(0)
        .labels
        .unwrap();
    send(&child, Signal::INT);
    let said = finish(child).await;
    assert_eq!(said.code, Some(130), "{said:?}");
    assert_eq!(said.object()["next"], "wharf resume run");
    none_left(&operator).await;

    let left = left_behind(&engine, labels).await;
    let server = FakeModel::start(script).await;
    let said = operator
        .wharf(Some(&server), &["resume", "run", "--json"])
        .await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        engine.inspect_container(&left, None).await.is_err(),
        "it was removed first"
    );
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(said.object()["trace_id"].as_str().map(str::len), Some(32));
    none_left(&operator).await;
}

/// A container of the run that was made and never started: it has no connection to lose.
async fn left_behind(engine: &bollard::Docker, labels: HashMap<String, String>) -> String {
    let body = bollard::models::ContainerCreateBody {
        image: Some("wharf/python".to_owned()),
        cmd: Some(vec!["true".to_owned()]),
        labels: Some(labels),
        ..Default::default()
    };
    engine.create_container(None, body).await.unwrap().id
}
