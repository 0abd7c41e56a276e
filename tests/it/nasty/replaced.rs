//! Over several turns: what is refused in the end brings back what the agent began with, what an agent
//! took away again is not named, and no rule that it wrote hides its work.

use serde_json::{Value, json};
use wharf::run::Status;

use super::runs::PLAN as IN_MEMORY;
use crate::operator::{Operator, skipped};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::workspace::fixture::{self, git};
use crate::world::{World, passes, put, report, write};

const PLAN: &str = "version: 1\nname: one\ntask: Do the work\nmodel: openai/fake\n\
                    acceptance: {criteria: [\"It is done\"]}\n\
                    subtasks: [{id: a, role: coder, brief: Do it.}]\n";

const TURNS: [&str; 2] = [
    "rm a.txt kept.log pkg; rm -r d; mkfifo pipe; mkdir sub; printf '*\\n' > sub/.gitignore; echo hid > sub/f; \
     echo x > new.log; mkdir cache; echo '*' > cache/.gitignore; echo tag > cache/CACHEDIR.TAG; echo ok",
    "rm pipe; mkfifo a.txt; head -c 70000000 /dev/zero > d; mkdir pkg; echo x > 'pkg/git~1'; \
     echo again > kept.log; echo b > b; echo ok",
];

fn script(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, turn) if turn < TURNS.len() => Answer::call("bash", json!({"command": TURNS[turn]})),
        _ => {
            let last = ask.last();
            assert!(last.contains("d/x: its removal"), "{last}");
            report("done", "did it")
        }
    }
}

fn operator() -> Operator {
    let operator = Operator::new();
    for (path, content) in [
        ("a.txt", "a\n"),
        ("d/x", "x\n"),
        ("d/y", "y\n"),
        ("pkg", "pkg\n"),
        ("e", "e\n"),
        (".gitignore", "*.log\n"),
        ("kept.log", "kept\n"),
    ] {
        put(&operator.work().join(path), content);
    }
    operator.git(&["init", "-q", "-b", "main"]);
    operator.git(&["add", "-A", "-f"]);
    operator.git(&["commit", "-q", "-m", "first"]);
    operator
}

fn left_out(result: &Value) -> Vec<(&str, &str)> {
    let left = result["left_out"].as_array().unwrap().iter();
    left.map(|left| {
        (
            left["path"].as_str().unwrap(),
            left["reason"].as_str().unwrap(),
        )
    })
    .collect()
}

#[tokio::test]
async fn what_stands_in_the_end_decides_whatever_the_turns_were() {
    if skipped() {
        return;
    }
    let operator = operator();
    let server = FakeModel::start(script).await;
    let said = operator.run(&server, PLAN, &[]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let result = said.object();
    let branch = result["branch"].as_str().unwrap();
    // The removals of the first turn are not delivered without what was to take their place.
    let changed = operator.git(&["diff", "--name-status", "main", branch]);
    assert_eq!(changed, "A\tb\nM\tkept.log\n");
    assert_eq!(
        operator.git(&["show", &format!("{branch}:kept.log")]),
        "again\n"
    );
    let left = left_out(&result);
    let paths: Vec<&str> = left.iter().map(|(path, _)| *path).collect();
    let expected = [
        "a.txt",
        "cache/",
        "d",
        "d/x",
        "d/y",
        "new.log",
        "pkg",
        "pkg/git~1",
        "sub/.gitignore",
        "sub/f",
    ];
    assert_eq!(paths, expected, "{left:?}");
    let own = "ignored only by a .gitignore that was written in this run";
    assert!(left.contains(&("new.log", "ignored")), "{left:?}");
    assert!(left.contains(&("cache/", "ignored")), "{left:?}");
    assert!(left.contains(&("sub/f", own)), "{left:?}");
    let warnings = result["warnings"].to_string();
    assert!(
        warnings.contains("8 files that agents made are not in the result"),
        "{warnings}"
    );
}

/// An agent whose own rules shut out everything that it made: its work is named, to the verifier too.
#[tokio::test]
async fn a_rule_of_the_agent_s_own_hides_nothing_unsaid() {
    if skipped() {
        return;
    }
    let operator = operator();
    let server = FakeModel::start(|ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => {
            let text = ask.body["messages"].to_string();
            assert!(
                text.contains("- out/: ignored only by a .gitignore"),
                "{text}"
            );
            Answer::call("list_files", json!({}))
        }
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => Answer::call(
            "bash",
            json!({"command": "echo '*' > .gitignore; mkdir out; echo x > out/x; echo e2 > e"}),
        ),
        _ => report("done", "did it"),
    })
    .await;
    let said = operator.run(&server, PLAN, &[]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let result = said.object();
    let branch = result["branch"].as_str().unwrap();
    let changed = operator.git(&["diff", "--name-status", "main", branch]);
    assert_eq!(changed, "M\t.gitignore\nM\te\n");
    let warnings = result["warnings"].to_string();
    assert!(
        warnings.contains("out/ (ignored only by a .gitignore that was written in this run)"),
        "{warnings}"
    );
}

/// A removal of one turn is taken; in a later one a file that is refused takes its folder's place.
#[tokio::test]
async fn what_made_way_in_an_earlier_turn_stays_too() {
    let world = World::new(&[
        ("a", "1\n"),
        ("pkg/k.hid", "KEY=canary\n"),
        ("pkg/x.py", "x\n"),
    ]);
    fixture::init(&world.workspace);
    git(&world.workspace, &["add", "-A"]);
    git(&world.workspace, &["commit", "-q", "-m", "first"]);
    let plan = format!("{IN_MEMORY}workspace: {{hide: [\"*.hid\"]}}\n");
    let ran = world
        .run(&plan, |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, 0) => Answer::call("list_files", json!({})),
            (Role::Verifier, _) => passes(&["It is done"], "#1"),
            (_, 0) => Answer::call("bash", json!({"command": "rm pkg/x.py; echo b > b"})),
            (_, 1) => write("pkg", "a file\n"),
            (_, 2) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "made pkg a file"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let branch = ran.summary.branch.as_ref().unwrap();
    let changed = git(&world.workspace, &["diff", "--name-status", "HEAD", branch]);
    assert_eq!(changed, "A\tb\n");
    let left = ran.summary.left_out.iter();
    let left: Vec<&str> = left
        .filter(|left| left.subtask.is_some())
        .map(|left| &left.path[..])
        .collect();
    assert_eq!(left, ["pkg", "pkg/x.py"]);
}
