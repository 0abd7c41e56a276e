//! What a result says to type next puts it in place, whatever stands around the workspace.

use std::path::{Path, PathBuf};

use wharf::run::{Delivery, Status};

use crate::server::{Answer, Ask, Role};
use crate::workspace::fixture::{git, init};
use crate::world::{World, passes, put, report, write};

const PLAN: &str = "version: 1\nname: test\ntask: Do the work\n\
                    acceptance: {criteria: [\"It is done\"]}\n\
                    subtasks:\n  - {id: a, role: coder, brief: \"Write new.txt.\"}\n";

fn script(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", serde_json::json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => write("deep/new.txt", "made\n"),
        (_, 1) => write("old.txt", "changed\n"),
        (_, 2) => Answer::call("bash", serde_json::json!({"command": "true"})),
        _ => report("done", "wrote it"),
    }
}

fn repository(top: &Path) {
    std::fs::create_dir_all(top).unwrap();
    init(top);
    put(&top.join("README"), "about\n");
    git(top, &["add", "-A"]);
    git(top, &["commit", "-q", "-m", "first"]);
}

/// Makes what stands around a workspace below `top`; where the workspace then is.
type Layout = fn(top: &Path) -> PathBuf;

const LAYOUTS: [(&str, Layout); 7] = [
    ("no git", |top| top.join("w")),
    ("the top of a repository", |top| {
        repository(&top.join("r"));
        top.join("r")
    }),
    ("a folder of a repository", |top| {
        repository(&top.join("r"));
        top.join("r/a b/c")
    }),
    ("a folder that its repository ignores", |top| {
        repository(&top.join("r"));
        put(&top.join("r/.gitignore"), "in/\n");
        top.join("r/in")
    }),
    ("a folder deep in an ignored one", |top| {
        repository(&top.join("r"));
        put(&top.join("r/.gitignore"), "out/\n");
        top.join("r/out/it's/in")
    }),
    ("a linked worktree", |top| {
        repository(&top.join("r"));
        git(&top.join("r"), &["worktree", "add", "-q", "../linked"]);
        top.join("linked")
    }),
    ("an ignored folder of a linked worktree", |top| {
        repository(&top.join("r"));
        git(&top.join("r"), &["worktree", "add", "-q", "../linked"]);
        put(&top.join("linked/.gitignore"), "in/\n");
        top.join("linked/in")
    }),
];

#[tokio::test]
async fn the_printed_command_applies_the_patch_in_every_layout() {
    for copy in [false, true] {
        for (layout, make) in LAYOUTS {
            let mut world = World::new(&[]);
            let workspace = make(&world.workspace);
            put(&workspace.join("old.txt"), "old\n");
            world.workspace = workspace.canonicalize().unwrap();
            world.options.delivery = Delivery::Patch(world.state.join("my result.patch"));
            std::fs::create_dir_all(&world.state).unwrap();
            let plan = format!("{PLAN}workspace: {{copy: {copy}}}\n");
            let ran = world.run(&plan, script).await;
            let summary = ran.summary;
            assert_eq!(
                summary.status,
                Status::Passed,
                "{layout}: {}",
                summary.reason
            );
            let command = summary.apply.expect("a command");
            let told = format!("{layout}, copy {copy}: {command}");
            typed(Path::new("/"), &command, &told);
            let read = |name: &str| std::fs::read_to_string(world.workspace.join(name));
            assert_eq!(read("deep/new.txt").expect(&told), "made\n", "{told}");
            assert_eq!(read("old.txt").expect(&told), "changed\n", "{told}");
        }
    }
}

/// Types a command in a directory; it must succeed.
fn typed(at: &Path, command: &str, told: &str) {
    let out = std::process::Command::new("sh")
        .args(["-c", command])
        .envs([
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_COMMITTER_NAME", "Op"),
        ])
        .env("GIT_COMMITTER_EMAIL", "op@example.org")
        .current_dir(at)
        .output()
        .unwrap();
    assert!(out.status.success(), "{told}: {out:?}");
}

/// `wharf` over a world's state.
fn wharf(world: &World, args: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_wharf"))
        .args(args)
        .env("WHARF_HOME", &world.state)
        .output()
        .unwrap()
}

/// A world whose workspace is a repository, everything committed.
fn committed() -> World {
    let world = World::new(&[("old.txt", "old\n")]);
    repository(&world.workspace);
    world
}

fn is_in_place(world: &World) {
    let read = |name: &str| std::fs::read_to_string(world.workspace.join(name)).unwrap();
    assert_eq!(read("deep/new.txt"), "made\n");
    assert_eq!(read("old.txt"), "changed\n");
}

#[tokio::test]
async fn a_merge_is_next_only_where_git_does_not_refuse_it() {
    let world = committed();
    let summary = world.run(PLAN, script).await.summary;
    assert_eq!(summary.next, "git merge wharf/run");
    assert!(!summary.dirty);
    typed(&world.workspace, &summary.next, "merge");
    is_in_place(&world);

    let world = committed();
    put(&world.workspace.join("old.txt"), "old, not committed\n");
    put(&world.workspace.join("untracked.txt"), "mine\n");
    let summary = world.run(PLAN, script).await.summary;
    assert_eq!(
        (summary.next.as_str(), summary.dirty),
        ("wharf apply run", true)
    );
    let shown = wharf(&world, &["show", "run"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("working tree at start"), "{shown}");
    let out = wharf(&world, &["apply", "run"]);
    assert!(out.status.success(), "{out:?}");
    is_in_place(&world);
}

/// The script, and somebody who writes a file while the verifier is at work.
fn meddled(path: PathBuf) -> impl Fn(&Ask) -> Answer + Send + Sync + 'static {
    move |ask| {
        if ask.role == Role::Verifier && ask.ordinal == 0 {
            put(&path, "mine\n");
        }
        script(ask)
    }
}

#[tokio::test]
async fn a_refused_apply_says_why_the_exit_code_is_1_and_how_to_go_on() {
    let mut world = committed();
    world.options.apply = true;
    let file = world.workspace.join("old.txt");
    let summary = world.run(PLAN, meddled(file.clone())).await.summary;
    assert_eq!((summary.status, summary.exit_code), (Status::Passed, 1));
    assert!(
        summary.reason.contains("exit code is 1"),
        "{}",
        summary.reason
    );
    assert!(summary.reason.contains("old.txt"), "{}", summary.reason);
    assert_eq!(summary.next, "wharf apply run");
    let out = wharf(&world, &["apply", "run"]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains("in place of yours"), "{told}");
    put(&file, "old\n");
    assert!(wharf(&world, &["apply", "run"]).status.success());
    is_in_place(&world);
}

#[tokio::test]
async fn what_passed_and_could_not_be_delivered_is_applied_without_force() {
    let mut world = committed();
    let file = world.workspace.parent().unwrap().join("taken.patch");
    world.options.delivery = Delivery::Patch(file.clone());
    let summary = world.run(PLAN, meddled(file.clone())).await.summary;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine\n");
    assert_eq!((summary.status, summary.exit_code), (Status::Error, 3));
    assert_eq!(summary.next, "wharf apply run");
    let out = wharf(&world, &["apply", "run"]);
    assert!(out.status.success(), "{out:?}");
    is_in_place(&world);
}

#[tokio::test]
async fn criteria_that_the_coordinator_added_are_told_apart_from_the_plan_s() {
    let plan = "version: 1\nname: test\ntask: Do the work\n\
                acceptance: {criteria: [\"It is done\"]}\n";
    let world = committed();
    let ran = world.run(plan, |ask| match (ask.role, ask.ordinal) {
        (Role::Coordinator, _) => Answer::call(
            "submit_plan",
            serde_json::json!({"summary": "one", "criteria": ["It is neat"],
                "subtasks": [{"id": "a", "role": "coder", "brief": "b", "needs": []}]}),
        ),
        (Role::Verifier, ordinal) if ordinal > 0 => passes(&["It is done", "It is neat"], "#1"),
        _ => script(ask),
    });
    let summary = ran.await.summary;
    assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
    let reason = "criteria: 2 passed (1 of them added by the coordinator)";
    assert_eq!(summary.reason, reason);
}

/// Without a coordinator nobody added what was judged.
#[tokio::test]
async fn the_criterion_that_holds_where_none_was_named_is_called_built_in() {
    let plan = "version: 1\nname: test\ntask: Do the work\n\
                subtasks:\n  - {id: a, role: coder, brief: b}\n";
    let world = committed();
    let ran = world.run(plan, |ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, ordinal) if ordinal > 0 => {
            passes(&["The change does what the task asks for."], "#1")
        }
        _ => script(ask),
    });
    let summary = ran.await.summary;
    assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
    let reason = "criteria: 1 passed (the built-in one, as none was named)";
    assert_eq!(summary.reason, reason);
    for args in [&["show", "run"][..], &["show", "run", "--report"]] {
        let out = wharf(&world, args);
        let told = String::from_utf8_lossy(&out.stdout);
        assert!(told.contains(reason), "{told}");
        assert!(!told.contains("by the coordinator"), "{told}");
    }
}
