//! The real program killed over a real engine, and resumed.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Child;

use crate::operator::{LIMIT, Operator, containers, engine, finish, skipped, until};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::stops::{send, sleeping};
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

async fn none_left(operator: &Operator) {
    until(
        Duration::from_secs(20),
        "no container of the run",
        async || containers(&engine(), operator).await.is_empty(),
    )
    .await;
}

fn events(operator: &Operator, kind: &str, subtask: &str) -> usize {
    let journal = operator.of_run("journal.jsonl");
    let lines = journal
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    lines
        .filter(|l| l["type"] == kind && (l["agent"]["subtask"] == subtask || l["id"] == subtask))
        .count()
}

fn tree(operator: &Operator) -> String {
    operator.git(&["rev-parse", "wharf/run^{tree}"])
}

/// Kills a run once its journal has so many lines, and resumes it; the tree it came to.
async fn killed_at(count: usize) -> String {
    let (operator, server) = (repository(), FakeModel::start(script).await);
    let mut child = start(&operator, &server);
    let state = operator.state();
    until(LIMIT, "the journal grows", async || lines(&state) >= count).await;
    child.start_kill().unwrap();
    child.wait().await.unwrap();
    let said = operator
        .wharf(Some(&server), &["resume", "last", "--json"])
        .await;
    assert_eq!(said.code, Some(0), "killed at {count}: {said:?}");
    assert_eq!(
        said.object()["status"],
        "passed",
        "killed at {count}: {said:?}"
    );
    none_left(&operator).await;
    for id in ["a", "b", "c"] {
        assert_eq!(
            events(&operator, "agent_ended", id),
            1,
            "killed at {count}: {id}"
        );
    }
    assert_eq!(
        server.violations(),
        Vec::<String>::new(),
        "killed at {count}"
    );
    tree(&operator)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dozen_kills_of_the_real_program_come_to_the_same_tree() {
    if skipped() {
        return;
    }
    let (operator, server) = (repository(), FakeModel::start(script).await);
    let whole = finish(start(&operator, &server)).await;
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let (all, whole_tree) = (lines(&operator.state()), tree(&operator));
    // From the first record to the last but one, evenly.
    let cuts = (0..12).map(|n| 1 + n * (all - 2) / 11);
    let trees: Vec<String> = futures::stream::iter(cuts)
        .map(killed_at)
        .buffer_unordered(3)
        .collect()
        .await;
    assert_eq!(trees, vec![whole_tree; 12]);

    // A run that has ended says the same again and does nothing.
    let asked = server.requests().len();
    let again = operator
        .wharf(Some(&server), &["resume", "run", "--json"])
        .await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(again.object()["snapshot"], whole.object()["snapshot"]);
    assert_eq!(
        again.stderr.trim(),
        "run run has ended: nothing is left to do, this is its result"
    );
    assert_eq!(server.requests().len(), asked);
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
