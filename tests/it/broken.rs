//! A sandbox that breaks: told apart from a command that failed, replaced once, and never read as a
//! command's output, whoever works in it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf::journal::Event;
use wharf::run::{Status, VerdictStatus};
use wharf::sandbox::memory::Memory;
use wharf::sandbox::remote::{self, Remote};
use wharf::sandbox::{
    self, Cause, Changes, Command, Error, Exit, Facts, Finished, Options, Sandbox,
};
use wharf::trace::{self, Tracer};
use wharf_toolbox::message::{Reply, ToolboxHello};
use wharf_toolbox::wire::{Frame, Kind, VERSION};

use crate::container::{engine, open, python, run, spec};
use crate::operator::{self, Operator, finish};
use crate::otlp::Receiver;
use crate::proxy::Proxy;
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::world::{Ran, World, passes, put, report, write};

const LIMIT: Duration = Duration::from_secs(60);

fn command(line: &str, timeout: Duration) -> Command {
    Command {
        line: line.into(),
        timeout,
        background: false,
        keep: 4000,
    }
}

async fn one(sandbox: &dyn Sandbox, line: &str, timeout: Duration) -> Result<Finished, Error> {
    let line = command(line, timeout);
    sandbox.run(&line, &CancellationToken::new()).await
}

fn bash(line: &str) -> Answer {
    Answer::call("bash", json!({"command": line}))
}

/// The sandboxes that broke in a run: whose, and whether another took their place.
fn breaks(ran: &Ran) -> Vec<(String, bool)> {
    let events = ran.journal.iter().filter_map(|line| match &line.event {
        Event::SandboxBroken {
            agent,
            reopened,
            cause,
            ..
        } => {
            assert_eq!(cause, "gone");
            Some((agent.subtask.to_string(), *reopened))
        }
        _ => None,
    });
    events.collect()
}

/// An engine whose sandboxes of one subtask break at the call after `after`.
fn breaking(subtask: &str, after: u32, times: Option<u32>) -> Memory {
    Memory {
        break_after: Some(after),
        break_in: Some(subtask.to_owned()),
        break_times: times,
        ..Memory::default()
    }
}

async fn over(
    engine: Memory,
    plan: &str,
    script: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
) -> Ran {
    let mut world = World::new(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    world.engine = Arc::new(engine);
    world.run(plan, script).await
}

/// How many requests a role made.
fn asked(ran: &Ran, ending: &str) -> usize {
    let has = |body: &&serde_json::Value| {
        let tools = body["tools"].as_array().into_iter().flatten();
        tools
            .into_iter()
            .any(|tool| tool["function"]["name"] == ending)
    };
    ran.server.requests().iter().filter(has).count()
}

const ONE: &str = "version: 1\ntask: Do it\nacceptance: {criteria: [\"It is done\"]}\n\
                   subtasks: [{id: a, role: coder, brief: A}]\n";

#[tokio::test]
async fn a_worker_is_told_what_is_lost_and_goes_on_in_a_fresh_sandbox() {
    // One write and its scan go well, the next call breaks it; then all is well.
    let ran = over(breaking("a", 2, Some(1)), ONE, |ask| {
        match (ask.role, ask.ordinal) {
            (Role::Verifier, 0) => Answer::call("read_file", json!({"path": "new.txt"})),
            (Role::Verifier, _) => passes(&["It is done"], "#1"),
            (_, 0) => write("new.txt", "kept\n"),
            (_, 1) => bash("echo lost > lost.txt"),
            (_, 2) => {
                let seen = ask.last();
                for part in [
                    "no result",
                    "broke",
                    "as they were after your last finished turn",
                    "/tmp",
                    "Background",
                ] {
                    assert!(seen.contains(part), "{part} in {seen}");
                }
                assert!(!seen.contains("exit code"), "{seen}");
                bash("cat new.txt && test -f lost.txt")
            }
            (_, 3) => {
                assert!(
                    ask.last().contains("kept") && ask.last().contains("exit code: 1"),
                    "{}",
                    ask.last()
                );
                report("done", "made it")
            }
            (_, n) => panic!("request {n}: {}", ask.last()),
        }
    })
    .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(breaks(&ran), [("a".to_owned(), true)]);
    assert!(
        ran.summary
            .warnings
            .iter()
            .any(|text| text.contains("a: the sandbox broke"))
    );
}

#[tokio::test]
async fn a_second_break_ends_the_subtask_as_a_fault_of_the_environment_and_others_go_on() {
    let plan = "version: 1\ntask: Do it\nsubtasks:\n  - {id: a, role: coder, brief: BREAKS}\n  \
                - {id: b, role: coder, brief: WORKS}\n";
    let ran = over(breaking("a", 0, None), plan, |ask| match ask.ordinal {
        _ if ask.first.contains("BREAKS") => bash("ls"),
        0 => write("b.txt", "changed\n"),
        1 => bash("true"),
        _ => report("done", "made it"),
    })
    .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Error, 3)
    );
    assert!(
        ran.summary.reason.contains("broke again"),
        "{}",
        ran.summary.reason
    );
    assert_eq!(
        breaks(&ran),
        [("a".to_owned(), true), ("a".to_owned(), false)]
    );
    let of = |id: &str| {
        ran.summary
            .subtasks
            .iter()
            .find(|one| one.id == id)
            .unwrap()
    };
    assert_eq!(of("a").status, wharf::journal::SubtaskStatus::Failed);
    assert_eq!(of("b").status, wharf::journal::SubtaskStatus::Done);
    // The first break was answered by one more request, the second by none.
    let to_a = ran
        .server
        .requests()
        .iter()
        .filter(|body| body.to_string().contains("BREAKS"))
        .count();
    assert_eq!(to_a, 2);
}

#[tokio::test]
async fn a_break_between_turns_loses_that_turn_and_says_so() {
    // The write is the first call, the look at the workspace after it the second.
    let ran = over(breaking("a", 1, Some(1)), ONE, |ask| {
        match (ask.role, ask.ordinal) {
            (Role::Verifier, 0) => Answer::call("list_files", json!({})),
            (Role::Verifier, _) => passes(&["It is done"], "#1"),
            (_, 0) => write("new.txt", "first\n"),
            (_, 1) => {
                let seen = ask.last();
                assert!(seen.contains("all that this turn changed"), "{seen}");
                Answer::calls(vec![
                    (
                        "write_file",
                        json!({"path": "new.txt", "content": "again\n"}),
                    ),
                    ("bash", json!({"command": "cat new.txt"})),
                ])
            }
            (_, _) => report("done", "made it"),
        }
    })
    .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.subtasks[0].changed_files, ["new.txt"]);
    assert_eq!(breaks(&ran), [("a".to_owned(), true)]);
}

/// `done` beside work that was never taken is no success.
#[tokio::test]
async fn a_break_at_the_last_look_hands_the_report_back() {
    let plan = ONE.replace("acceptance: {criteria: [\"It is done\"]}\n", "");
    // Write and command, then the look before the report is taken.
    let ran = over(breaking("a", 2, None), &plan, |ask| match ask.ordinal {
        n if n % 2 == 0 => Answer::calls(vec![
            (
                "write_file",
                json!({"path": "new.txt", "content": "mine\n"}),
            ),
            ("bash", json!({"command": "true"})),
            (
                "submit_report",
                json!({"status": "done", "summary": "made it"}),
            ),
        ]),
        _ => {
            let seen = ask.last();
            assert!(
                seen.contains("not handed in") && seen.contains("broke"),
                "{seen}"
            );
            bash("true")
        }
    })
    .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Error, 3)
    );
    assert_eq!(
        breaks(&ran),
        [("a".to_owned(), true), ("a".to_owned(), false)]
    );
    assert!(
        ran.server.requests().len() <= 3,
        "{}",
        ran.server.requests().len()
    );
    assert_ne!(
        ran.summary.subtasks[0].status,
        wharf::journal::SubtaskStatus::Done
    );
}

#[tokio::test]
async fn a_coordinator_whose_sandboxes_break_makes_no_plan() {
    let plan = "version: 1\ntask: Do it\nrun: {rounds: 1}\n";
    let ran = over(breaking("coordinator", 0, None), plan, |ask| {
        assert_eq!(ask.role, Role::Coordinator);
        Answer::call("list_files", json!({}))
    })
    .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Error, 3)
    );
    assert_eq!(breaks(&ran).len(), 2);
    assert_eq!(asked(&ran, "submit_plan"), 2);

    let ran = over(breaking("coordinator", 0, Some(1)), plan, |ask| match (ask.role, ask.ordinal) {
        (Role::Coordinator, 0) => Answer::call("list_files", json!({})),
        (Role::Coordinator, _) => {
            assert!(ask.last().contains("a.txt") || ask.last().contains("broke"), "{}", ask.last());
            Answer::call(
                "submit_plan",
                json!({"summary": "s", "subtasks": [{"id": "a", "role": "coder", "brief": "A", "needs": []}]}),
            )
        }
        (Role::Worker, _) => report("failed", "no"),
        _ => Answer::text("the summary"),
    })
    .await;
    assert_eq!(breaks(&ran), [("coordinator".to_owned(), true)]);
    assert!(
        asked(&ran, "submit_report") > 0,
        "the plan was worked: {}",
        ran.summary.reason
    );
}

#[tokio::test]
async fn a_verifier_whose_sandboxes_break_has_given_no_verdict() {
    let script = |ask: &Ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, 1) if ask.last().contains("broke") => {
            Answer::call("list_files", json!({}))
        }
        (Role::Verifier, n) => passes(&["It is done"], &format!("#{n}")),
        (_, _) => report("done", "nothing to do"),
    };
    let ran = over(breaking("verifier", 0, None), ONE, script).await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Unverified, 4)
    );
    assert!(
        ran.summary.reason.contains("broke again"),
        "{}",
        ran.summary.reason
    );
    let verdict = ran.summary.verdict.as_ref().unwrap();
    assert_eq!(verdict.status, VerdictStatus::Unknown);
    assert_eq!(
        breaks(&ran),
        [
            ("verifier".to_owned(), true),
            ("verifier".to_owned(), false)
        ]
    );
    assert_eq!(asked(&ran, "submit_verdict"), 2);

    let ran = over(breaking("verifier", 0, Some(1)), ONE, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(breaks(&ran), [("verifier".to_owned(), true)]);
}

#[tokio::test]
async fn acceptance_commands_run_again_from_the_first_and_then_are_not_known() {
    let plan = ONE.replace(
        "criteria: [\"It is done\"]",
        "commands: [\"echo built > built.txt\", \"test -f built.txt\"], criteria: [\"It is done\"]",
    );
    let script = |ask: &Ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, _) => report("done", "nothing to do"),
    };
    // The second command needs what the first one made: in the fresh sandbox both run.
    let ran = over(breaking("acceptance", 1, Some(1)), &plan, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(breaks(&ran), [("acceptance".to_owned(), true)]);

    let ran = over(breaking("acceptance", 1, None), &plan, script).await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Unverified, 4)
    );
    assert_eq!(
        breaks(&ran),
        [
            ("acceptance".to_owned(), true),
            ("acceptance".to_owned(), false)
        ]
    );
    let commands = &ran.summary.verdict.as_ref().unwrap().commands;
    assert_eq!(
        commands.iter().map(|run| run.exit_code).collect::<Vec<_>>(),
        [Some(0), None]
    );
    assert!(
        commands[1].note.as_deref().unwrap().contains("broke again"),
        "{:?}",
        commands[1]
    );
    assert!(
        ran.summary.reason.contains("broke again"),
        "{}",
        ran.summary.reason
    );
}

#[tokio::test]
async fn a_merger_whose_sandboxes_break_has_resolved_nothing() {
    let plan = "version: 1\ntask: Do it\nsubtasks:\n  - {id: a, role: coder, brief: SIDE A.}\n  \
                - {id: b, role: coder, brief: SIDE B.}\n";
    let script = |ask: &Ask| {
        let merges = ask.first.contains("onflict");
        let side = if ask.first.contains("SIDE A") {
            "A\n"
        } else {
            "B\n"
        };
        match ask.ordinal {
            0 if merges => Answer::call("read_file", json!({"path": "a.txt"})),
            1 if merges && ask.last().contains("broke") => write("a.txt", "A\nB\n"),
            0 => write("a.txt", side),
            1 => bash("true"),
            2 if merges => bash("true"),
            _ => report("done", "made it"),
        }
    };
    let ran = over(breaking("merge-", 0, None), plan, script).await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Error, 3)
    );
    let [(first, true), (second, false)] = &breaks(&ran)[..] else {
        panic!("{:?}", breaks(&ran));
    };
    assert!(first.starts_with("merge-") && first == second);
    let merger = |body: &&serde_json::Value| body.to_string().contains("onflict");
    assert_eq!(ran.server.requests().iter().filter(merger).count(), 2);

    let ran = over(breaking("merge-", 0, Some(1)), plan, script).await;
    assert_eq!(breaks(&ran).len(), 1);
    assert!(
        ran.summary.conflicts.len() == 1 && ran.summary.exit_code != 3,
        "{}",
        ran.summary.reason
    );
}

// On a real engine.

/// Breaks a live sandbox from outside; the error of the call that was under way, and of the next.
async fn broken_by(name: &str, how: impl AsyncFn(&bollard::Docker, &str)) -> Option<[Error; 2]> {
    let (docker, look) = engine().await?;
    let sandbox = open(&docker, &spec(python(&docker).await, name)).await;
    let id = sandbox.facts().container.clone();
    let (under_way, ()) = tokio::join!(
        one(sandbox.as_ref(), "sleep 50", Duration::from_secs(1)),
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            how(&look, &id).await;
        }
    );
    let next = one(sandbox.as_ref(), "echo on", LIMIT).await;
    sandbox.close().await;
    assert!(
        look.inspect_container(&id, None).await.is_err(),
        "nothing is left of it"
    );
    Some([under_way.unwrap_err(), next.unwrap_err()])
}

fn cause(error: &Error) -> (Cause, &str) {
    match error {
        Error::Broken { cause, reason } => (*cause, reason),
        other => panic!("not a break: {other}"),
    }
}

#[tokio::test]
async fn a_killed_process_1_is_no_output() {
    let killed = broken_by("kill", async |look, id| {
        look.kill_container(id, None).await.unwrap();
    });
    let Some(errors) = killed.await else { return };
    for error in &errors {
        assert_eq!(
            cause(error),
            (
                Cause::Gone,
                "process 1 ended with status 137: it was killed"
            )
        );
    }
}

#[tokio::test]
async fn a_stopped_toolbox_is_broken_within_its_time_and_is_cleared_away() {
    let paused = broken_by("pause", async |look, id| {
        look.pause_container(id).await.unwrap();
    });
    let Some(errors) = paused.await else { return };
    for error in &errors {
        let (cause, reason) = cause(error);
        assert_eq!(cause, Cause::Silent, "{reason}");
        assert!(reason.contains("no answer to run"), "{reason}");
    }
}

/// What an agent may destroy, it may; the sandbox stays one that answers.
#[tokio::test]
async fn an_agent_that_destroys_its_own_floor_still_stands() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let sandbox = open(&docker, &spec(python(&docker).await, "floor")).await;
    let sandbox = sandbox.as_ref();
    for line in [
        "rm -rf /bin /usr/bin /.wharf / 2>/dev/null; true",
        "chmod 000 /bin/sh 2>/dev/null; kill 1; kill -9 1; true",
        "rm -rf /tmp/.wharf /tmp/* ~/.* ~/* 2>/dev/null; true",
        "cd / && rm -rf /workspace/* /workspace/.[a-z]* 2>/dev/null; true",
        "chmod 000 /workspace /tmp $HOME 2>/dev/null; true",
    ] {
        one(sandbox, line, LIMIT).await.unwrap();
        let (exit, text) = run(sandbox, "echo alive; pwd; seq 40000").await;
        assert_eq!(exit, Exit::Code(0), "{line}: {text}");
        assert!(text.starts_with("alive\n/workspace\n"), "{line}: {text}");
        sandbox.write("new.txt", "x".into()).await.unwrap().unwrap();
        let Changes { puts, .. } = sandbox.scan().await.unwrap();
        assert!(puts.len() <= 1, "{line}");
    }
    sandbox.close().await;
}

/// The engine goes away under a run: no model is asked in vain, and nothing is taken for a result.
#[tokio::test]
async fn an_engine_that_goes_away_ends_the_run_as_a_fault_of_the_environment() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    python(&docker).await;
    let proxy = Proxy::start("/var/run/docker.sock".into(), Vec::new());
    let mut world = World::new(&[("a.txt", "one\n")]);
    let options = Options {
        host: Some(proxy.address()),
        state: "/tmp/wharf-it-state".into(),
        machine: format!("it-{}", std::process::id()),
        ..Options::default()
    };
    world.engine = Arc::new(sandbox::connect(&options).await.unwrap());
    world.options.verify = false;
    let proxy = std::sync::Mutex::new(Some(proxy));
    let plan = "version: 1\ntask: Do it\nsubtasks: [{id: a, role: coder, brief: A}]\n";
    let ran = world
        .run(plan, move |ask| {
            if ask.ordinal == 1 {
                drop(proxy.lock().unwrap().take());
            }
            assert!(!ask.last().contains("exit code: 1"), "{}", ask.last());
            bash("echo here")
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Error, 3)
    );
    assert!(
        ran.summary.reason.contains("no other could be opened"),
        "{}",
        ran.summary.reason
    );
    assert_eq!(ran.server.requests().len(), 2);
    let causes = ran.journal.iter().filter_map(|line| match &line.event {
        Event::SandboxBroken {
            cause, reopened, ..
        } => Some((cause.as_str(), *reopened)),
        _ => None,
    });
    assert_eq!(causes.collect::<Vec<_>>(), [("engine", true)]);
}

// Process 1 as somebody else plays it.

/// A greeted sandbox, and the toolbox's end of its stream; either takes the other for gone after `lease`.
async fn played(lease: Option<Duration>) -> (Remote, tokio::io::DuplexStream) {
    let (mut toolbox, near) = tokio::io::duplex(1 << 20);
    let hello = ToolboxHello {
        version: VERSION,
        shell: None,
        git: false,
        held: wharf_toolbox::held::Held::default(),
        sealed: false,
        proxy: None,
    };
    say(&mut toolbox, &Frame::json(Kind::Hello, 0, &hello).unwrap()).await;
    let streams = tokio::io::split(near);
    let start = remote::Start {
        facts: Facts::default(),
        tree_base: None,
        git: false,
        disk: 1 << 30,
        inodes: 1000,
        egress: None,
        closer: Box::new(|| Box::pin(async {})),
    };
    let ended = std::future::pending::<String>();
    let started = remote::greet(streams, start, lease, ended).await;
    (started.unwrap(), toolbox)
}

/// Waits until a call was opened.
async fn opened(toolbox: &mut tokio::io::DuplexStream) {
    let mut bytes = Vec::new();
    loop {
        while let Some((frame, used)) = Frame::decode(&bytes).unwrap() {
            bytes.drain(..used);
            if frame.kind == Kind::Open {
                return;
            }
        }
        let read = tokio::io::AsyncReadExt::read_buf(toolbox, &mut bytes).await;
        assert_ne!(read.unwrap(), 0);
    }
}

async fn say(toolbox: &mut tokio::io::DuplexStream, frame: &Frame) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    tokio::io::AsyncWriteExt::write_all(toolbox, &bytes)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_toolbox_without_a_sign_of_life_is_broken() {
    let (silent, _toolbox) = played(Some(Duration::from_millis(300))).await;
    let error = one(&silent, "x", Duration::from_secs(600))
        .await
        .unwrap_err();
    assert_eq!(cause(&error), (Cause::Silent, "no sign of life for 300ms"));
}

#[tokio::test]
async fn bytes_that_are_no_frame_are_told_from_a_toolbox_that_gives_up() {
    let (noisy, mut toolbox) = played(None).await;
    let (ran, ()) = tokio::join!(one(&noisy, "x", LIMIT), async {
        tokio::io::AsyncWriteExt::write_all(&mut toolbox, &[9; 40])
            .await
            .unwrap();
    });
    assert_eq!(cause(&ran.unwrap_err()).0, Cause::Protocol);
    let again = noisy.read("x", 0, 1).await.unwrap_err();
    assert_eq!(
        cause(&again).0,
        Cause::Protocol,
        "it stays broken, for the same reason"
    );

    let (weary, mut toolbox) = played(None).await;
    let (ran, ()) = tokio::join!(one(&weary, "x", LIMIT), async {
        opened(&mut toolbox).await;
        let reason = "a resource limit was changed from inside".to_owned();
        let close = Frame::json(Kind::Close, 1, &Reply::Failed { reason }).unwrap();
        say(&mut toolbox, &close).await;
    });
    assert_eq!(
        cause(&ran.unwrap_err()),
        (Cause::Unable, "a resource limit was changed from inside")
    );
}

/// A tracing backend sees each kind of end by a word of its own.
#[tokio::test]
async fn spans_tell_a_broken_sandbox_from_a_command_that_failed() {
    let receiver = Receiver::start();
    let endpoint = format!("{}/v1/traces", receiver.http_endpoint);
    let mut world = World::new(&[("a.txt", "one\n")]);
    world.engine = Arc::new(breaking("a", 2, Some(1)));
    world.options.verify = false;
    world.tracer = Tracer::open(&trace::Options {
        target: Some(trace::Target::new(trace::Protocol::HttpProtobuf, endpoint)),
        ..trace::Options::default()
    })
    .unwrap();
    let plan = "version: 1\ntask: Do it\nsubtasks: [{id: a, role: coder, brief: A}]\n";
    world
        .run(plan, |ask| match ask.ordinal {
            0 => bash("false"),
            1 => bash("true"),
            _ => report("done", "made it"),
        })
        .await;
    assert!(world.tracer.flush(Duration::from_secs(10)).await);
    let words: Vec<_> = receiver
        .spans()
        .into_iter()
        .filter_map(|span| span.attributes.get(trace::names::ERROR_TYPE).cloned())
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect();
    let count = |word: &str| words.iter().filter(|one| *one == word).count();
    // The command's own span and the tool call around it.
    assert_eq!(
        (count("nonzero_exit"), count("sandbox_gone")),
        (2, 2),
        "{words:?}"
    );
}

// A full disk.

/// Runs a plan with 3 MiB for the state directory, which is copied to `kept` at the end.
async fn on_a_small_disk(
    operator: &Operator,
    server: &FakeModel,
    plan: &str,
    kept: &std::path::Path,
) -> operator::Said {
    let state = operator.state();
    // A file system of its own, which only these processes see and which is gone with them.
    let mut small = tokio::process::Command::new("unshare");
    let arguments = ["run", "-f", plan, "-C", ".", "--run-id", "run", "--json"];
    let wharf = operator.command(Some(server), &arguments);
    let wharf = wharf.as_std();
    let script = format!(
        "mount -t tmpfs -o size=3m tmpfs '{0}' || exit 99; \"$@\"; code=$?; cp -r '{0}' '{1}'; exit $code",
        state.display(),
        kept.display(),
    );
    small
        .args(["-rm", "sh", "-c", &script, "sh"])
        .arg(wharf.get_program())
        .args(wharf.get_args())
        .env_clear()
        .envs(
            wharf
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(operator.work())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true);
    finish(small.spawn().unwrap()).await
}

/// The operator's own disk is full: the run ends as the environment's fault, and nobody's files change.
#[tokio::test]
async fn a_full_disk_under_the_state_directory_loses_nothing() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    // Made before: no image can be made by whom the namespace below takes for root.
    python(&docker).await;
    let operator = Operator::new();
    put(&operator.work().join("a.txt"), "one\n");
    std::fs::create_dir_all(operator.state()).unwrap();
    let kept = operator.work().with_file_name("kept");
    let server = FakeModel::start(|ask| match ask.ordinal {
        0 => write("small.txt", "taken before the disk was full\n"),
        _ => bash("head -c 6000000 /dev/urandom > big.bin"),
    })
    .await;
    let plan = operator.beside(
        "plan.yaml",
        "version: 1\ntask: Do it\nmodel: openai/fake\nsubtasks: [{id: a, role: coder, brief: A}]\n",
    );
    let said = on_a_small_disk(&operator, &server, &plan, &kept).await;
    assert_ne!(
        said.code,
        Some(99),
        "this test mounts a file system in a namespace of its own: {said:?}"
    );
    assert_eq!(said.code, Some(3), "{said:?}");
    let text = format!("{}{}", said.stdout, said.stderr);
    assert!(text.to_lowercase().contains("no space left"), "{text}");
    assert_eq!(
        std::fs::read_to_string(operator.work().join("a.txt")).unwrap(),
        "one\n"
    );
    assert_eq!(std::fs::read_dir(operator.work()).unwrap().count(), 1);
    // What stood on the disk before stands there still: the journal reads to its end.
    let journal = wharf::journal::read(&kept.join("runs/run/journal.jsonl")).unwrap();
    let turns = journal
        .lines
        .iter()
        .filter(|line| matches!(line.event, Event::TurnDone { .. }));
    assert_eq!(turns.count(), 1);
    crate::stops::none_left(&operator).await;
}

fn names(paths: &[Vec<u8>]) -> Vec<String> {
    paths
        .iter()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect()
}

/// A file that was cut is not carried; once it is written again, by whatever means, it is.
#[tokio::test]
async fn a_file_that_a_full_disk_cut_is_not_taken_for_an_edit() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let mut wanted = spec(python(&docker).await, "torn");
    wanted.disk = 64 << 20;
    let sandbox = open(&docker, &wanted).await;
    let sandbox = sandbox.as_ref();
    for path in ["keep.txt", "other.txt"] {
        sandbox
            .write(path, "before\n".into())
            .await
            .unwrap()
            .unwrap();
    }
    assert_eq!(sandbox.scan().await.unwrap().puts.len(), 2);
    let line = "echo whole > whole.txt; yes > keep.txt & yes > new.txt";
    let full = one(sandbox, line, LIMIT).await.unwrap();
    assert_eq!(full.exit, Exit::Full(137));
    let changes = sandbox.scan().await.unwrap();
    assert_eq!(names(&changes.torn), ["keep.txt", "new.txt"]);
    let puts = |changes: &Changes| {
        changes
            .puts
            .iter()
            .map(|put| put.path.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&puts(&changes)), ["whole.txt"]);
    assert_eq!(changes.deletes, Vec::<Vec<u8>>::new());
    // It stays so until somebody does something about it.
    assert_eq!(
        names(&sandbox.scan().await.unwrap().torn),
        ["keep.txt", "new.txt"]
    );
    one(sandbox, "rm new.txt", LIMIT).await.unwrap();
    sandbox
        .write("keep.txt", "after\n".into())
        .await
        .unwrap()
        .unwrap();
    let changes = sandbox.scan().await.unwrap();
    assert_eq!(
        (names(&changes.torn), names(&puts(&changes))),
        (vec![], vec!["keep.txt".to_owned()])
    );
    sandbox.close().await;
}

/// The limit on one file cuts it to the byte, and a command may swallow that.
#[tokio::test]
async fn a_file_that_its_own_limit_cut_is_not_taken_for_an_edit() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let mut wanted = spec(python(&docker).await, "cut");
    wanted.files.size = 20 << 20;
    let sandbox = open(&docker, &wanted).await;
    let sandbox = sandbox.as_ref();
    let line = "(yes > big.txt) 2>/dev/null; head -c 20000000 /dev/zero > whole; true";
    assert_eq!(one(sandbox, line, LIMIT).await.unwrap().exit, Exit::Code(0));
    let changes = sandbox.scan().await.unwrap();
    assert_eq!(names(&changes.torn), ["big.txt"]);
    assert_eq!(changes.puts.len(), 1);
    one(sandbox, "echo small > big.txt", LIMIT).await.unwrap();
    let changes = sandbox.scan().await.unwrap();
    assert_eq!((changes.torn.len(), changes.puts.len()), (0, 1));
    sandbox.close().await;
}

/// /tmp is a file system of 256 MiB: what does not fit leaves what stood there as it was.
#[tokio::test]
async fn a_write_that_finds_no_room_leaves_the_file_as_it_was() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let sandbox = open(&docker, &spec(python(&docker).await, "no-room")).await;
    let sandbox = sandbox.as_ref();
    sandbox
        .write("/tmp/existing.txt", "old\n".into())
        .await
        .unwrap()
        .unwrap();
    one(
        sandbox,
        "cat /dev/zero > /tmp/fill 2>/dev/null; chmod 640 /tmp/existing.txt",
        LIMIT,
    )
    .await
    .unwrap();
    let big = sandbox
        .write("/tmp/big", vec![b'x'; 5 << 20].into())
        .await
        .unwrap();
    assert!(big.unwrap_err().contains("no space left"));
    let short = sandbox
        .write("/tmp/existing.txt", vec![b'y'; 64 << 10].into())
        .await
        .unwrap();
    assert!(short.unwrap_err().contains("no space left"));
    let (_, text) = run(sandbox, "cat /tmp/existing.txt; ls -A /tmp; rm /tmp/fill").await;
    assert_eq!(text, "old\nexisting.txt\nfill\n");
    sandbox
        .write("/tmp/existing.txt", "new\n".into())
        .await
        .unwrap()
        .unwrap();
    let (_, text) = run(
        sandbox,
        "cat /tmp/existing.txt; stat -c %a /tmp/existing.txt",
    )
    .await;
    assert_eq!(text, "new\n640\n");
    sandbox.close().await;
}

/// `done` is not taken while a file is cut; the agent is told which.
#[tokio::test]
async fn no_subtask_is_done_while_a_file_is_cut() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    python(&docker).await;
    let mut world = World::new(&[("a.txt", "one\n")]);
    world.options.verify = false;
    world.engine = Arc::new(docker);
    let plan = "version: 1\ntask: Do it\nsandbox: {disk: 64m}\n\
                subtasks: [{id: a, role: coder, brief: A}]\n";
    let ran = world
        .run(plan, |ask| match ask.ordinal {
            // Together they fill the disk long before one of them is as large as a file may be.
            0 => bash(
                "head -c 60000000 /dev/zero > /tmp/fill\n\
                 while :; do head -c 1000000 /dev/zero; sleep 0.1; done > a.txt",
            ),
            1 => {
                let seen = ask.last();
                assert!(
                    seen.contains("disk is full") && seen.contains("a.txt: not whole"),
                    "{seen}"
                );
                report("done", "made it")
            }
            2 => {
                let seen = ask.last();
                assert!(
                    seen.contains("not handed in") && seen.contains("a.txt"),
                    "{seen}"
                );
                write("a.txt", "two\n")
            }
            3 => bash("cat a.txt"),
            _ => report("done", "made it"),
        })
        .await;
    let one = &ran.summary.subtasks[0];
    assert_eq!(
        one.status,
        wharf::journal::SubtaskStatus::Done,
        "{:?}",
        one.reason
    );
    assert_eq!(ran.server.requests().len(), 5);
    let patch = std::fs::read_to_string(ran.summary.patch.as_ref().unwrap()).unwrap();
    assert!(patch.contains("-one\n+two\n"), "{patch}");
    assert_eq!(ran.summary.left_out.len(), 0, "{:?}", ran.summary.left_out);
}

#[tokio::test]
async fn an_emptied_workspace_is_not_merged_as_a_deletion_of_all() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    python(&docker).await;
    let mut world = World::new(&[("a.txt", "one\n"), ("b/c.txt", "two\n")]);
    world.engine = Arc::new(docker);
    let plan = "version: 1\ntask: Do it\nsubtasks: [{id: a, role: coder, brief: A}]\n";
    let ran = world
        .run(plan, |ask| match ask.ordinal {
            0 => bash("cd / && rm -rf /workspace"),
            _ => report("done", "made it"),
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Failed, 1)
    );
    assert!(
        ran.summary.reason.contains("removed every file"),
        "{}",
        ran.summary.reason
    );
    assert_eq!(
        std::fs::read_to_string(world.workspace.join("b/c.txt")).unwrap(),
        "two\n"
    );
}
