//! A sandbox at what a subtask left, for a person: what it holds, what it gives, and what it leaves alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;
use wharf::plan;
use wharf::run::{self, Error, Visit, Visiting};
use wharf::sandbox::memory::Memory;

use crate::again::{Recorded, run_dir};
use crate::operator::{Operator, finish, skipped};
use crate::replay::photograph;
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::stops::none_left;
use crate::world::{World, passes, report, write};

const PLAN: &str = "version: 1
name: one
task: Do the work
model: openai/fake
run: {rounds: 1}
acceptance: {criteria: [\"It is done\"]}
subtasks:
  - {id: fix, role: coder, brief: \"BRIEF fix.\", needs: []}
";

fn script(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => write("sub/made.txt", "made\n"),
        (_, 1) => Answer::call("bash", json!({"command": "true"})),
        (_, _) => report("done", "made it"),
    }
}

async fn visit(state: &Path, place: &str) -> Result<Visit, Error> {
    let dir = run_dir(state);
    let kept = run::kept_plan(&dir).unwrap();
    let load = |path: &str| Err(format!("no file {path}"));
    let plan = plan::parse(&kept.text, "plan.yaml", &load).unwrap();
    let mut options = World::new(&[]).options.clone();
    options.state = state.to_owned();
    let how = Visiting {
        dir: &dir,
        place,
        plan: &plan,
        options,
        engine: Arc::new(Memory::default()),
        say: &|_| {},
    };
    run::visit(how, &CancellationToken::new()).await
}

async fn said(visit: &mut Visit, line: &str) -> (i32, String) {
    let limit = Duration::from_secs(5);
    let said = visit.line(line, limit, &CancellationToken::new()).await;
    let said = said.unwrap();
    (
        said.code,
        String::from_utf8(said.stdout.head.to_vec()).unwrap(),
    )
}

#[tokio::test]
async fn a_visit_sees_what_a_subtask_left_and_changes_nothing_of_the_run() {
    let whole = Recorded::of(&[("old.txt", "old\n")], PLAN, script).await;
    let state = &whole.world.state;
    let before = photograph(&run_dir(state));
    for (place, code) in [("fix", 0), ("result", 0), ("verifier", 0), ("base", 1)] {
        let mut visit = visit(state, place).await.unwrap();
        assert!(!visit.about.goes_on);
        assert_eq!(
            said(&mut visit, "cat old.txt").await,
            (0, "old\n".to_owned())
        );
        let seen = said(&mut visit, "cat sub/made.txt").await;
        assert_eq!(seen.0, code, "{place}");
        said(&mut visit, "rm old.txt; echo more > sub/made.txt").await;
        assert_eq!(said(&mut visit, "exit 7").await.0, 7);
        visit.close().await;
    }
    assert_eq!(photograph(&run_dir(state)), before);
    match visit(state, "fxi").await {
        Err(Error::Start { code, hint, .. }) => {
            assert_eq!(code, 2);
            assert_eq!(hint, "it has base, fix, result, verifier");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    }
}

#[tokio::test]
async fn a_run_that_was_cut_off_is_seen_as_far_as_it_went_and_one_that_goes_on_too() {
    let whole = Recorded::of(&[("old.txt", "old\n")], PLAN, script).await;
    let text = String::from_utf8(whole.journal.clone()).unwrap();
    let at = text.find("\"type\":\"subtask_ended\"").unwrap();
    let cut = text[..at].rfind('\n').unwrap() + 1;
    let state = whole.killed(&whole.journal[..cut]);
    let lock = std::fs::File::open(run_dir(state.path()).join("lock")).unwrap();
    lock.lock().unwrap();
    let mut visit = visit(state.path(), "fix").await.unwrap();
    assert!(visit.about.goes_on);
    assert_eq!(said(&mut visit, "cat sub/made.txt").await.1, "made\n");
    visit.close().await;
}

#[tokio::test]
async fn the_verb_gives_a_command_s_exit_code_and_keeps_the_directory_between_lines() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    let server = FakeModel::start(script).await;
    let ran = operator.run(&server, PLAN, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let journal = operator.of_run("journal.jsonl");

    let line = "cat sub/made.txt; echo gone >&2; rm -r sub; id -u; exit 7";
    let one = operator
        .wharf(None, &["shell", "run", "fix", "--", line])
        .await;
    assert_eq!(one.code, Some(7), "{one:?}");
    assert!(one.stdout.starts_with("made\n"), "{one:?}");
    assert!(!one.stdout.contains("\n0\n"), "it is not root: {one:?}");
    assert!(one.stderr.contains("gone"), "{one:?}");

    let mut command = operator.command(None, &["shell", "last", "fix"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(b"cd sub\npwd; cat made.txt\n\nfalse\nsh -c 'exit 3'\n")
        .await
        .unwrap();
    drop(stdin);
    let lines = finish(child).await;
    assert_eq!(lines.code, Some(3), "{lines:?}");
    assert_eq!(lines.stdout, "/workspace/sub\nmade\n", "{lines:?}");

    let late = ["shell", "run", "fix", "--timeout", "1s", "--", "sleep 60"];
    let late = operator.wharf(None, &late).await;
    assert_eq!(late.code, Some(124), "{late:?}");
    assert!(late.stderr.contains("killed after 1s"), "{late:?}");
    let none = operator.wharf(None, &["shell", "run", "nobody"]).await;
    assert_eq!(none.code, Some(2), "{none:?}");

    assert_eq!(operator.of_run("journal.jsonl"), journal);
    none_left(&operator).await;
}
