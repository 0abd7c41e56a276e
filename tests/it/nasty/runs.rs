//! A run in each of them, without `--apply`, changes nothing that is the operator's.

use futures::StreamExt as _;
use serde_json::json;
use wharf::run::{self, Status};

use super::repositories::{Is, Nasty, all, photograph};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::workspace::fixture::status;
use crate::world::{World, connect, passes, report, write};

pub const PLAN: &str = "version: 1\ntask: Do it\nacceptance: {criteria: [\"It is done\"]}\n\
                        subtasks: [{id: one, role: coder, brief: Do it.}]\n";

/// A coder that makes one file, and a verifier that finds it.
pub fn script(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => write("made.txt", "made\n"),
        (_, 1) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "made it"),
    }
}

fn shown(nasty: &Nasty) -> String {
    match (nasty.is, nasty.name) {
        (Is::Repository, _) | (_, "sha256") => status(&nasty.work),
        _ => String::new(),
    }
}

async fn one(nasty: &Nasty) {
    let mut world = World::new(&[]);
    world.workspace.clone_from(&nasty.work);
    let (before, status_before) = (photograph(&nasty.top), shown(nasty));
    if nasty.is == Is::Refused {
        let server = FakeModel::start(script).await;
        let refused = run::start(world.order(PLAN, connect(&server))).await;
        let Err(error) = refused else {
            panic!("{} was worked on", nasty.name);
        };
        let error = error.to_string();
        assert!(error.contains("inside of a git repository"), "{error}");
    } else {
        let ran = world.run(PLAN, script).await;
        let told = format!("{}: {}", nasty.name, ran.summary.reason);
        assert_eq!(ran.summary.status, Status::Passed, "{told}");
        let (branch, patch) = (&ran.summary.branch, &ran.summary.patch);
        match nasty.is {
            Is::Repository => assert_eq!(branch.as_deref(), Some("wharf/run"), "{told}"),
            _ => assert!(branch.is_none() && patch.is_some(), "{told}"),
        }
    }
    let after = photograph(&nasty.top);
    for (path, line) in &before {
        assert_eq!(
            after.get(path),
            Some(line),
            "{}: {}",
            nasty.name,
            path.display()
        );
    }
    assert_eq!(after.len(), before.len(), "{}: something new", nasty.name);
    assert_eq!(shown(nasty), status_before, "{}", nasty.name);
}

#[tokio::test]
async fn every_workspace_is_worked_on_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let all = all(dir.path());
    assert!(all.len() > 20);
    // Most of their time is git's.
    futures::stream::iter(&all)
        .for_each_concurrent(4, one)
        .await;
}

/// A path that the journal cannot hold would name another directory when the result is applied.
#[tokio::test]
async fn a_workspace_that_no_record_can_name_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut world = World::new(&[]);
    let name = std::ffi::OsStr::from_bytes(b"work\xff");
    world.workspace = world.workspace.join(name);
    std::fs::create_dir(&world.workspace).unwrap();
    let server = FakeModel::start(script).await;
    let refused = run::start(world.order(PLAN, connect(&server))).await;
    let Err(error) = refused else {
        panic!("it was worked on");
    };
    assert!(
        error.to_string().contains("work\\xFF is no UTF-8"),
        "{error}"
    );
}

/// A turn that wrote costs one process of the store, however many turns there are.
#[tokio::test]
async fn a_turn_s_snapshot_is_one_process() {
    let mut started = Vec::new();
    for turns in [2, 7] {
        let world = World::new(&[("a", "1\n")]);
        let git = world.options.git.clone();
        let ran = world
            .run(PLAN, move |ask| match (ask.role, ask.ordinal) {
                (Role::Verifier, _) => script(ask),
                (_, at) if at < turns => write(&format!("f{at}"), "x\n"),
                (_, at) if at == turns => Answer::call("bash", json!({"command": "true"})),
                _ => report("done", "made them"),
            })
            .await;
        assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
        started.push(git.started());
    }
    assert!(started[1] - started[0] <= 5, "{started:?}");
    assert!(started[0] < 60, "{started:?}");
}
