//! A verdict stands for the tree that it judged and for no other.

use serde_json::{Value, json};
use wharf::journal::Event;
use wharf::run::{Status, VerdictStatus};

use super::{CRITERIA, plan, turns, verifier};
use crate::server::{Answer, Ask, Role};
use crate::world::{World, report, verdict, write};
use crate::{cli, replay};

/// The tree of a commit in the run's store.
fn tree_of(world: &World, commit: &str) -> String {
    let git = std::process::Command::new("git")
        .arg("--git-dir")
        .arg(world.state.join("runs/run/store.git"))
        .args(["rev-parse", &format!("{commit}^{{tree}}")])
        .output()
        .unwrap();
    String::from_utf8_lossy(&git.stdout).trim().to_owned()
}

/// The first round fails; in the second a limit stops the run after it merged more.
fn limited(ask: &Ask) -> Answer {
    let submit = |ids: &[(&str, &[&str])]| {
        let subtask = |(id, needs): &(&str, &[&str])| json!({"id": id, "role": "coder", "brief": format!("BRIEF {id}."), "needs": needs});
        let subtasks: Vec<Value> = ids.iter().map(subtask).collect();
        Answer::call(
            "submit_plan",
            json!({"summary": "s", "criteria": ["It is done"], "subtasks": subtasks}),
        )
    };
    let id = ["a", "b", "c"]
        .into_iter()
        .find(|id| ask.first.contains(&format!("BRIEF {id}.")));
    match (ask.role, id, turns(ask)) {
        (Role::Coordinator, ..) if ask.first.contains("Round 2") => {
            submit(&[("b", &[]), ("c", &["b"])])
        }
        (Role::Coordinator, ..) => submit(&[("a", &[])]),
        (Role::Verifier, _, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, ..) => verdict("fail", vec![("It is done", "fail", "half of it")]),
        (Role::Other, ..) => Answer::text("Some of it."),
        (_, Some("c"), _) => Answer::call("bash", json!({"command": "true"})).usage(900_000, 10),
        (_, id, 0) => write(&format!("{}.txt", id.unwrap_or("x")), "made\n"),
        (_, _, 1) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "made it"),
    }
}

#[tokio::test]
async fn a_verdict_on_another_tree_than_the_delivered_one_is_none() {
    let world = World::new(&[("keep.txt", "k\n")]);
    let plan = "version: 1\ntask: Do it\nrun: {rounds: 2, tokens: 800000}\n";
    let ran = world.run(plan, limited).await;
    let summary = &ran.summary;
    assert_eq!(summary.status, Status::Limited, "{}", summary.reason);
    let patch = std::fs::read_to_string(summary.patch.as_ref().unwrap()).unwrap();
    assert!(patch.contains("b.txt"), "what merged is delivered: {patch}");
    let delivered = tree_of(&world, summary.snapshot.as_ref().unwrap());
    let judged = ran.journal.iter().find_map(|line| match &line.event {
        Event::VerdictGiven { verdict, .. } => verdict["tree"].as_str().map(str::to_owned),
        _ => None,
    });
    assert_ne!(
        judged.as_ref(),
        Some(&delivered),
        "the round before was judged"
    );
    let stands = |given: &wharf::run::Verdict| {
        given.tree == delivered || given.status == VerdictStatus::Unknown
    };
    assert!(
        summary.verdict.as_ref().is_none_or(stands),
        "{:?}",
        summary.verdict
    );
}

#[tokio::test]
async fn apply_takes_no_tree_that_the_verdict_does_not_name() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(&plan(CRITERIA), |ask| match (ask.role, turns(ask)) {
            (Role::Verifier, _) => verifier(ask),
            (_, 0) => write("b.txt", "b\n"),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "made it"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let home = world.state.parent().unwrap();
    let journal = world.state.join("runs/run/journal.jsonl");
    let written = std::fs::read(&journal).unwrap();
    let base = ran.summary.base.clone().unwrap();
    for other in [tree_of(&world, &base), "0".repeat(40), String::new()] {
        std::fs::write(&journal, &written).unwrap();
        replay::rewrite(&world.state, |event| {
            if event["type"] == "run_ended" {
                event["result"]["verdict"]["tree"] = other.clone().into();
            }
        });
        let (code, _, stderr) = cli::run(home, &["apply", "run"]);
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("has not passed"), "{stderr}");
        assert!(!world.workspace.join("b.txt").exists());
    }
    std::fs::write(&journal, &written).unwrap();
    let (code, _, stderr) = cli::run(home, &["apply", "run"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(world.workspace.join("b.txt").exists());
}
