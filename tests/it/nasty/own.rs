//! Wharf's own files inside the workspace: no agent sees them, no result holds or touches them.

use std::path::Path;

use serde_json::json;
use wharf::run::{self, Status};
use wharf::workspace::{Applied, Force, Store};

use super::runs::PLAN;
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::workspace::fixture::{self, git, operators_git, put, read, source, state, write as lay};
use crate::world::{Ran, World, connect, passes, report, write};

/// A coder that looks around, writes where Wharf's files are and beside them.
fn script(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => Answer::call("list_files", json!({})),
        (_, 1) => write(".wharf/runs/evil", "evil\n"),
        (_, 2) => write("made.txt", "made\n"),
        (_, 3) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "made it"),
    }
}

/// Everything that any model was told.
fn told(ran: &Ran) -> String {
    let requests = ran.server.requests();
    requests.iter().map(ToString::to_string).collect()
}

/// The paths of a commit of a run's store.
fn held(world: &World, run: &str, commit: &str) -> String {
    let store = world.state.join("runs").join(run).join("store.git");
    git(&store, &["ls-tree", "-r", "--name-only", commit])
}

fn inside(git: &str) -> World {
    let mut world = World::new(&[("a.txt", "a\n"), (".wharf/notes", "from before: canary\n")]);
    world.state = world.workspace.join(".wharf");
    world.options.state.clone_from(&world.state);
    if git != "none" {
        fixture::init(&world.workspace);
        let ignored = match git {
            "ignored" => ".wharf/\n",
            _ => "",
        };
        lay(&world.workspace, b".gitignore", ignored.as_bytes());
        // One who adds everything has the state of runs in the repository, too.
        fixture::git(&world.workspace, &["add", "-A"]);
        fixture::git(&world.workspace, &["commit", "-q", "-m", "first"]);
    }
    world
}

#[tokio::test]
async fn a_state_directory_inside_the_workspace_is_left_out_and_named() {
    for git in ["none", "tracked", "ignored"] {
        let mut world = inside(git);
        world.options.apply = true;
        let plan = format!("{PLAN}workspace: {{include: [\".wharf/**\", \"**/notes\"]}}\n");
        for run in ["run", "second"] {
            world.options.run_id = Some(wharf::id::RunId::new(run));
            if run == "second" {
                std::fs::remove_file(world.workspace.join("made.txt")).unwrap();
            }
            let server = FakeModel::start(script).await;
            let summary = run::start(world.order(&plan, connect(&server))).await;
            let summary = summary.unwrap_or_else(|error| panic!("{git}: {error}"));
            assert_eq!(summary.status, Status::Passed, "{git}: {}", summary.reason);
            assert_eq!(summary.exit_code, 0, "{git}: {}", summary.reason);
            let base = held(&world, run, summary.base.as_ref().unwrap());
            assert!(
                base.contains("a.txt") && !base.contains(".wharf"),
                "{git}: {base}"
            );
            let result = held(&world, run, summary.snapshot.as_ref().unwrap());
            assert!(
                result.contains("made.txt") && !result.contains(".wharf"),
                "{git}: {result}"
            );
            let left: Vec<&str> = summary.left_out.iter().map(|left| &left.path[..]).collect();
            assert_eq!(left, [".wharf", ".wharf/runs/evil"], "{git}");
            assert_eq!(read(&world.workspace, "made.txt"), "made\n", "{git}");
            assert!(!world.state.join("runs/evil").exists(), "{git}");
            if let Some(branch) = &summary.branch {
                let names =
                    fixture::git(&world.workspace, &["diff", "--name-only", "HEAD", branch]);
                assert_eq!(names, "made.txt\n", "{git}");
            }
            let ran = Ran {
                summary,
                server,
                notices: Vec::new(),
                journal: Vec::new(),
            };
            let told = told(&ran);
            assert!(
                !told.contains("canary") && !told.contains("journal.jsonl"),
                "{git}"
            );
        }
        assert_eq!(
            read(&world.workspace, ".wharf/notes"),
            "from before: canary\n"
        );
    }
}

/// The history of a repository that tracks them shows nothing of them either.
#[tokio::test]
async fn a_history_shows_nothing_of_them() {
    let world = fixture::World::new().await;
    let dir = world.repository(
        "repo",
        &[("a", "1\n"), ("s/wharf/runs/x/journal.jsonl", "canary\n")],
    );
    let store = world.store.clone().keeping_out(&dir.join("s/wharf"));
    let base = store.base(&source(&dir)).await.unwrap();
    assert_eq!((base.files, &base.own[..]), (1, "s/wharf"));
    assert!(!base.dirty, "what is kept out is not deleted");
    let reach = wharf::workspace::Reach {
        commits: 10,
        bytes: 1 << 20,
    };
    let history = store
        .history(&source(&dir), &base, reach)
        .await
        .unwrap()
        .unwrap();
    let all = git(
        store.dir(),
        &["ls-tree", "-r", "--name-only", &base.commit.to_string()],
    );
    assert_eq!(all, "a\n");
    let (pack, _) = store.load_history(&history).unwrap();
    let agents = world.path("agents");
    fixture::init(&agents);
    std::fs::write(agents.join("pack"), &pack).unwrap();
    let unpacked = std::process::Command::new("git")
        .args(["unpack-objects", "-q"])
        .current_dir(&agents)
        .stdin(std::fs::File::open(agents.join("pack")).unwrap())
        .status();
    assert!(unpacked.unwrap().success());
    let shown = git(
        &agents,
        &["ls-tree", "-r", "--name-only", history.tip.as_str()],
    );
    assert_eq!(shown, "a\n");
}

#[tokio::test]
async fn a_workspace_among_them_is_refused() {
    for place in ["", "runs", "runs/run/store.git/x"] {
        let mut world = World::new(&[]);
        std::fs::create_dir_all(world.state.join(place)).unwrap();
        world.workspace = world.state.join(place);
        world.options.run_id = Some(wharf::id::RunId::new("other"));
        let server = FakeModel::start(script).await;
        let refused = run::start(world.order(PLAN, connect(&server))).await;
        let Err(error) = refused else {
            panic!("`{place}` was worked on");
        };
        let error = error.to_string();
        assert!(error.contains("keeps its own files"), "{place}: {error}");
    }
    // A directory that the state directory lies above is as good as any other.
    let mut world = World::new(&[]);
    world.workspace = world.state.join("elsewhere");
    lay(&world.workspace, b"a.txt", b"a\n");
    let ran = world.run(PLAN, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
}

/// A result that was made while they lay elsewhere is not written over them, nor through a link to them.
#[tokio::test]
async fn an_apply_never_writes_there() {
    let world = fixture::World::new().await;
    let dir = world.repository("repo", &[("a", "1\n")]);
    let base = world.base(&dir).await;
    let own = dir.join("s/wharf");
    std::fs::create_dir_all(own.join("runs")).unwrap();
    for (at, link) in [
        ("s/wharf/runs/x", false),
        ("s/wharf", false),
        ("s", false),
        ("s/wharf/runs/x", true),
    ] {
        let there = world
            .child(&base.commit, &[put(at, "x\n"), put("b", "b\n")])
            .await;
        let named = match link {
            true => {
                let link = world.path("link");
                std::os::unix::fs::symlink(&own, &link).unwrap();
                link
            }
            false => own.clone(),
        };
        let store = Store::open(operators_git(), world.store.dir())
            .unwrap()
            .keeping_out(&named);
        let before = state(&dir);
        for force in [Force::No, Force::Overwrite] {
            let applied = store
                .apply(&dir, &base.commit, &there, force)
                .await
                .unwrap();
            let Applied::Refused { paths } = applied else {
                panic!("{at} was written: {applied:?}");
            };
            assert!(
                paths[0].0 == at && paths[0].1.contains("own files"),
                "{paths:?}"
            );
            assert_eq!(state(&dir), before);
        }
    }
    // Beside them everything is as ever.
    let there = world.child(&base.commit, &[put("s/wharf2/x", "x\n")]).await;
    let store = world.store.clone().keeping_out(&own);
    let applied = store
        .apply(&dir, &base.commit, &there, Force::No)
        .await
        .unwrap();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    assert_eq!(read(Path::new(&dir), "s/wharf2/x"), "x\n");
}

/// Where a run's files are is told by where it is now, not by where it was.
#[tokio::test]
async fn a_run_that_was_moved_into_the_workspace_is_not_applied_over_itself() {
    let world = World::new(&[("a", "1\n")]);
    let files = &[("s/x", "x\n"), ("b", "b\n")];
    let ran = world.run(PLAN, super::added::writes(files)).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let state = world.workspace.join("s");
    std::fs::rename(&world.state, &state).unwrap();
    let put = run::apply(operators_git(), &state.join("runs/run"), Force::No).await;
    let put = put.unwrap();
    let Applied::Refused { paths } = put.applied else {
        panic!("it was applied: {put:?}");
    };
    assert!(paths.len() == 1 && paths[0].0 == "s/x", "{paths:?}");
    assert!(!world.workspace.join("b").exists() && !state.join("x").exists());
}
