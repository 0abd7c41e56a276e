//! However a run is stopped, no container outlives it, and nothing that is not its own is touched.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::operator::{
    LIMIT, Operator, Said, containers, engine, finish, networks, skipped, until,
};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::world::{put, report};

/// How long the engine may take to be rid of a dead run's containers.
const GONE: Duration = Duration::from_secs(20);

const TWO: &str = r#"version: 1
name: two
task: Do the work
model: openai/fake
subtasks:
  - {id: a, role: coder, brief: "BRIEF a."}
  - {id: b, role: coder, brief: "BRIEF b."}
"#;

/// Writes, and in its next turn does what takes longer than any test.
fn sleeper(ask: &Ask) -> Answer {
    match ask.ordinal {
        0 => Answer::calls(vec![
            (
                "write_file",
                json!({"path": "half.txt", "content": "half\n"}),
            ),
            ("bash", json!({"command": "true"})),
        ]),
        _ => Answer::call(
            "bash",
            json!({"command": "sleep 600", "timeout_seconds": 600}),
        ),
    }
}

pub fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id().expect("it runs")).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Starts a run of `plan` and waits until `sleep 600` runs in as many containers.
async fn asleep(operator: &Operator, server: &FakeModel, stdin: Stdio, count: usize) -> Child {
    put(&operator.work().join("keep.txt"), "keep\n");
    let plan = operator.beside("plan.yaml", TWO);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator
        .command(Some(server), &args)
        .stdin(stdin)
        .spawn()
        .unwrap();
    let engine = engine();
    until(LIMIT, "the agents sleep", async || {
        sleeping(&engine, operator).await == count
    })
    .await;
    child
}

/// In how many containers of the operator's `sleep 600` runs.
pub async fn sleeping(engine: &bollard::Docker, operator: &Operator) -> usize {
    let mut count = 0;
    for container in containers(engine, operator).await {
        let id = container.id.unwrap_or_default();
        let Ok(top) = engine.top_processes(&id, None).await else {
            continue;
        };
        let lines = top.processes.unwrap_or_default();
        count += usize::from(lines.iter().any(|l| l.join(" ").contains("sleep 600")));
    }
    count
}

/// A container of somebody else's, running; removed by `remove`.
struct Bystander(String);

impl Bystander {
    async fn start() -> Self {
        let engine = engine();
        let body = bollard::models::ContainerCreateBody {
            image: Some("wharf/python".to_owned()),
            entrypoint: Some(vec!["/bin/sleep".to_owned()]),
            cmd: Some(vec!["300".to_owned()]),
            labels: Some(HashMap::from([("bystander".to_owned(), "yes".to_owned())])),
            // Gone by itself where a test stops before it removes it.
            host_config: Some(bollard::models::HostConfig {
                auto_remove: Some(true),
                ..Default::default()
            }),
            ..Default::default()
        };
        let id = engine.create_container(None, body).await.unwrap().id;
        engine.start_container(&id, None).await.unwrap();
        Self(id)
    }

    async fn is_running(&self) -> bool {
        let seen = engine().inspect_container(&self.0, None).await;
        seen.is_ok_and(|c| c.state.and_then(|s| s.running) == Some(true))
    }

    async fn remove(self) {
        let options = bollard::query_parameters::RemoveContainerOptions {
            force: true,
            ..Default::default()
        };
        engine()
            .remove_container(&self.0, Some(options))
            .await
            .unwrap();
    }
}

pub async fn none_left(operator: &Operator) {
    containers_gone(operator).await;
    let networks = networks(&engine(), operator).await;
    assert!(networks.is_empty(), "{networks:?}");
}

async fn containers_gone(operator: &Operator) {
    let engine = engine();
    until(GONE, "no container of the run", async || {
        containers(&engine, operator).await.is_empty()
    })
    .await;
}

/// What an interrupted run must have said and kept.
pub fn says_interrupted(operator: &Operator, said: &Said, code: i32) {
    assert_eq!(said.code, Some(code), "{said:?}");
    let result: Value = serde_json::from_str(&operator.of_run("result.json")).unwrap();
    assert_eq!(result["status"], "interrupted", "{result}");
    assert_eq!(result["exit_code"], code);
    assert_eq!(said.object()["status"], "interrupted");
    assert!(
        result["branch"].is_null() && result["patch"].is_null(),
        "{result}"
    );
    // What the journal says of each subtask stands there too, the last one's end included.
    let read = wharf::journal::read(&operator.state().join("runs/run/journal.jsonl")).unwrap();
    let ended = wharf::journal::State::of(&read.lines).subtasks;
    for subtask in result["subtasks"].as_array().unwrap() {
        let id = wharf::id::SubtaskId::new(subtask["id"].as_str().unwrap());
        let ended = ended.get(&id).expect("its end");
        assert_eq!(subtask["reason"], serde_json::json!(ended.reason));
        let files = serde_json::json!(ended.changed_files);
        assert_eq!(subtask["changed_files"], files);
    }
}

/// One signal, with what standard input is meanwhile.
async fn one_signal(signal: Signal, code: i32, close_stdin: bool) {
    let operator = Operator::new();
    let server = FakeModel::start(sleeper).await;
    let mut child = asleep(&operator, &server, Stdio::piped(), 2).await;
    // What is never read from may stay open or be closed.
    let held = child.stdin.take();
    let held = if close_stdin { None } else { held };
    send(&child, signal);
    let said = finish(child).await;
    drop(held);
    says_interrupted(&operator, &said, code);
    none_left(&operator).await;
    for subtask in said.object()["subtasks"].as_array().unwrap() {
        assert_eq!(subtask["status"], "cancelled", "{subtask}");
    }
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_signal_ends_the_run_in_order_and_its_containers_with_it() {
    if skipped() {
        return;
    }
    let bystander = Bystander::start().await;
    tokio::join!(
        one_signal(Signal::INT, 130, false),
        one_signal(Signal::TERM, 143, true),
        one_signal(Signal::HUP, 129, true),
    );
    assert!(bystander.is_running().await);
    bystander.remove().await;
}

/// Ctrl-C twice: the second does not wait.
async fn two_signals() {
    let operator = Operator::new();
    let server = FakeModel::start(sleeper).await;
    let child = asleep(&operator, &server, Stdio::null(), 2).await;
    send(&child, Signal::INT);
    // Sooner it would be taken for an echo of the first.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    send(&child, Signal::INT);
    let said = finish(child).await;
    assert_eq!(said.code, Some(130), "{said:?}");
    none_left(&operator).await;
    let runs = operator.wharf(None, &["runs", "--json"]).await;
    assert_eq!(runs.object()["runs"][0]["run"], "run");
}

/// One Ctrl-C that a wrapper hands on once more: the run still ends in order.
async fn echoed_signal() {
    let operator = Operator::new();
    let server = FakeModel::start(sleeper).await;
    let child = asleep(&operator, &server, Stdio::null(), 2).await;
    send(&child, Signal::INT);
    send(&child, Signal::TERM);
    let said = finish(child).await;
    assert_eq!(said.object()["status"], "interrupted", "{said:?}");
    none_left(&operator).await;
}

/// Killed: nothing of Wharf's can run any more, and still nothing stays. A container that never
/// started has no connection to lose; the next run removes it.
async fn killed() {
    let operator = Operator::new();
    let server = FakeModel::start(sleeper).await;
    let mut child = asleep(&operator, &server, Stdio::null(), 2).await;
    let engine = engine();
    let labels = containers(&engine, &operator).await.remove(0).labels;
    child.start_kill().unwrap();
    child.wait().await.unwrap();
    none_left(&operator).await;

    let show = operator.wharf(None, &["show", "last", "--json"]).await;
    assert_eq!(show.code, Some(0), "{show:?}");
    assert!(!show.stdout.contains("passed"), "{show:?}");

    let create = async |labels| {
        let body = bollard::models::ContainerCreateBody {
            image: Some("wharf/python".to_owned()),
            cmd: Some(vec!["true".to_owned()]),
            labels: Some(labels),
            ..Default::default()
        };
        engine.create_container(None, body).await.unwrap().id
    };
    let labels = labels.unwrap();
    let mut foreign = labels.clone();
    foreign.insert("wharf.machine".to_owned(), "another".to_owned());
    let (dead, foreign) = (create(labels).await, create(foreign).await);
    let quick = FakeModel::start(|_| report("failed", "no wish to")).await;
    let plan = operator.beside("plan.yaml", TWO);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "next", "--json"];
    let said = operator.wharf(Some(&quick), &args).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("of run run"), "{said:?}");
    assert!(engine.inspect_container(&dead, None).await.is_err());
    assert!(engine.inspect_container(&foreign, None).await.is_ok());
    engine.remove_container(&foreign, None).await.unwrap();
    none_left(&operator).await;
}

#[tokio::test]
async fn a_run_that_is_killed_leaves_nothing_either() {
    if skipped() {
        return;
    }
    let bystander = Bystander::start().await;
    tokio::join!(two_signals(), killed());
    echoed_signal().await;
    assert!(bystander.is_running().await);
    bystander.remove().await;
}

/// Nothing comes from the model; the run is stopped while it waits.
async fn silent(plan: &str, more: &[&str], role: Role, signal: Signal, code: i32) {
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let server = FakeModel::start(|_| Answer::Silence).await;
    let plan = operator.beside("plan.yaml", plan);
    let mut args = vec!["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    args.extend(more);
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    until(LIMIT, "the model is asked", async || {
        !server.requests().is_empty()
    })
    .await;
    let tools = server.requests()[0]["tools"].to_string();
    assert_eq!(tools.contains("submit_plan"), role == Role::Coordinator);
    send(&child, signal);
    let said = finish(child).await;
    says_interrupted(&operator, &said, code);
    none_left(&operator).await;
}

/// The set-up of an image takes longer than any test; its container goes with the run.
async fn preparing(signal: Signal) -> (Operator, Said) {
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let server = FakeModel::start(sleeper).await;
    let plan = format!("{TWO}sandbox: {{setup: [\"sleep 600\"]}}\n");
    let plan = operator.beside("plan.yaml", &plan);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    let engine = engine();
    until(LIMIT, "the set-up runs", async || {
        sleeping(&engine, &operator).await == 1
    })
    .await;
    send(&child, signal);
    let said = finish(child).await;
    assert!(server.requests().is_empty());
    if signal == Signal::KILL {
        containers_gone(&operator).await;
        // The network of a set-up has no connection to lose.
        let cleaned = operator.wharf(None, &["clean"]).await;
        assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
    }
    none_left(&operator).await;
    (operator, said)
}

#[tokio::test]
async fn a_run_that_prepares_its_image_can_be_stopped_too() {
    if skipped() {
        return;
    }
    let (interrupted, killed) = tokio::join!(preparing(Signal::INT), preparing(Signal::KILL));
    says_interrupted(&interrupted.0, &interrupted.1, 130);
    assert_eq!(killed.1.code, None);
}

/// The engine builds the run's image, which takes longer than any test; the builder's own container has no
/// label of ours, and still goes with the run.
async fn building(signal: Signal) -> (Operator, Said) {
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let mark = format!("sleep 601 # {} {signal:?}", std::process::id());
    let text = format!("FROM wharf/python:latest\nRUN {mark}\n");
    let dockerfile = operator.beside("image/Dockerfile", &text);
    let server = FakeModel::start(sleeper).await;
    let plan = format!("{TWO}sandbox: {{image: {{dockerfile: image/Dockerfile}}}}\n");
    let plan = operator.beside("plan.yaml", &plan);
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    let engine = engine();
    until(LIMIT, "the builder works", async || {
        with_command(&engine, &mark).await == 1
    })
    .await;
    send(&child, signal);
    let said = finish(child).await;
    assert!(server.requests().is_empty());
    until(GONE, "the builder's container is gone", async || {
        with_command(&engine, &mark).await == 0
    })
    .await;
    none_left(&operator).await;
    let made = made_for(&engine, &dockerfile).await;
    assert_eq!(made, 0, "a build that was broken off is no image");
    (operator, said)
}

/// Containers in any state whose command holds these words.
async fn with_command(engine: &bollard::Docker, words: &str) -> usize {
    let options = bollard::query_parameters::ListContainersOptions {
        all: true,
        ..Default::default()
    };
    let all = engine.list_containers(Some(options)).await.unwrap();
    all.iter()
        .filter(|one| one.command.as_deref().is_some_and(|it| it.contains(words)))
        .count()
}

/// Images that say they were made for this.
async fn made_for(engine: &bollard::Docker, what: &str) -> usize {
    let options = bollard::query_parameters::ListImagesOptions {
        all: true,
        ..Default::default()
    };
    let all = engine.list_images(Some(options)).await.unwrap();
    all.iter()
        .filter(|image| image.labels.values().any(|value| value == what))
        .count()
}

#[tokio::test]
async fn a_run_whose_image_is_being_built_can_be_stopped_too() {
    let Some((docker, _)) = crate::container::engine().await else {
        return;
    };
    crate::container::python(&docker).await;
    let (interrupted, killed) = tokio::join!(building(Signal::INT), building(Signal::KILL));
    says_interrupted(&interrupted.0, &interrupted.1, 130);
    assert_eq!(killed.1.code, None);
}

/// A workspace large enough for a layer of its own, which is being made, while sandboxes are kept warm.
async fn layering(signal: Signal) -> (Operator, Said) {
    let operator = Operator::new();
    let unlike = format!("{} {signal:?}\n", std::process::id());
    for n in 0..5100 {
        let path = format!("many/{}/{n}", n / 100);
        put(&operator.work().join(path), &unlike);
    }
    let server = FakeModel::start(|_| Answer::Silence).await;
    let plan = operator.beside("plan.yaml", &format!("{TWO}sandbox: {{warm: 2}}\n"));
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    let engine = engine();
    until(LIMIT, "the layer is being made", async || {
        let all = containers(&engine, &operator).await;
        let subtasks = all.iter().filter_map(|one| one.labels.as_ref());
        let mut subtasks = subtasks.filter_map(|labels| labels.get("wharf.subtask"));
        subtasks.any(|subtask| subtask == "layer")
    })
    .await;
    send(&child, signal);
    let said = finish(child).await;
    if signal == Signal::KILL {
        // One that was made and never started has no connection to lose.
        let cleaned = operator.wharf(None, &["clean"]).await;
        assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
    }
    none_left(&operator).await;
    (operator, said)
}

#[tokio::test]
async fn a_run_that_makes_a_layer_and_keeps_sandboxes_warm_can_be_stopped_too() {
    if skipped() {
        return;
    }
    let (interrupted, killed) = tokio::join!(layering(Signal::INT), layering(Signal::KILL));
    says_interrupted(&interrupted.0, &interrupted.1, 130);
    assert_eq!(killed.1.code, None);
}

#[tokio::test]
async fn a_run_that_waits_for_its_model_hears_a_signal() {
    if skipped() {
        return;
    }
    let open = "version: 1\nname: open\nmodel: openai/fake\n";
    tokio::join!(
        silent(open, &["Do the work"], Role::Coordinator, Signal::INT, 130),
        silent(TWO, &[], Role::Worker, Signal::TERM, 143),
    );
}
