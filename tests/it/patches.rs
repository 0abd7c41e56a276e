//! The command that a result prints puts its patch in place, whatever stands around the workspace.

use std::path::{Path, PathBuf};

use wharf::run::{Delivery, Status};

use crate::server::{Answer, Ask, Role};
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

fn git(dir: &Path, args: &[&str]) {
    let who = ["-c", "user.name=Op", "-c", "user.email=op@example.org"];
    let out = std::process::Command::new("git")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .current_dir(dir)
        .args(who)
        .args(args)
        .output()
        .unwrap();
    assert!(out.status.success(), "git {args:?}: {out:?}");
}

fn repository(top: &Path) {
    std::fs::create_dir_all(top).unwrap();
    git(top, &["init", "-q", "-b", "main"]);
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
            let out = std::process::Command::new("sh")
                .args(["-c", &command])
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .current_dir("/")
                .output()
                .unwrap();
            let told = format!("{layout}, copy {copy}: {command}: {out:?}");
            assert!(out.status.success(), "{told}");
            let read = |name: &str| std::fs::read_to_string(world.workspace.join(name));
            assert_eq!(read("deep/new.txt").expect(&told), "made\n", "{told}");
            assert_eq!(read("old.txt").expect(&told), "changed\n", "{told}");
        }
    }
}
