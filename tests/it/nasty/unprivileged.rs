//! An operator who is nobody's superior: files that may not be read are named, never lost.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use wharf::run::Status;
use wharf::sandbox::{Exit, Mode, Sandbox as _};

use super::runs::{PLAN, script};
use crate::toolbox;
use crate::workspace::fixture::*;

/// Runs this very test again as a user without rights, where it runs as one who has all.
fn as_nobody(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    false
}

#[tokio::test]
async fn what_may_not_be_read_is_left_out_and_named() {
    if !as_nobody("nasty::unprivileged::what_may_not_be_read_is_left_out_and_named") {
        return;
    }
    let mut world = crate::world::World::new(&[]);
    let top = tempfile::tempdir().unwrap();
    let dir = repository(
        &top.path().join("repo"),
        &[("a", "1\n"), ("closed", "2\n"), ("shut/b", "3\n")],
    );
    write(&dir, b"new/closed", b"4\n");
    write(&dir, b"new/open", b"5\n");
    for closed in ["closed", "shut", "new/closed"] {
        chmod(&dir, closed, 0);
    }
    world.workspace.clone_from(&dir);
    let ran = world.run(PLAN, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let told: Vec<String> = ran
        .notices
        .iter()
        .filter_map(|notice| match notice {
            wharf::run::Notice::Base { left_out, .. } => Some(left_out),
            _ => None,
        })
        .flatten()
        .map(|(path, _)| path.clone())
        .collect();
    for closed in ["closed", "shut", "new/closed"] {
        assert!(
            told.iter().any(|path| path.starts_with(closed)),
            "{closed}: {told:?}"
        );
        chmod(&dir, closed, 0o755);
    }
    // What could not be read is no deletion.
    let changed = git(&dir, &["diff", "--name-status", "main", "wharf/run"]);
    assert_eq!(changed, "A\tmade.txt\nA\tnew/open\n");
    let open = std::fs::read_dir(&dir).unwrap();
    assert!(open.count() >= 4);
}

#[tokio::test]
async fn a_workspace_that_may_not_be_written_is_worked_on() {
    if !as_nobody("nasty::unprivileged::a_workspace_that_may_not_be_written_is_worked_on") {
        return;
    }
    let mut world = crate::world::World::new(&[]);
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("plain");
    write(&dir, b"a", b"1\n");
    chmod(&dir, "", 0o555);
    world.workspace.clone_from(&dir);
    let ran = world.run(PLAN, script).await;
    chmod(&dir, "", 0o755);
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert!(ran.summary.patch.is_some());
}

/// What an agent shut against itself is its work all the same, and is shut as before once it was read.
#[tokio::test]
async fn what_an_agent_shut_comes_back() {
    if !as_nobody("nasty::unprivileged::what_an_agent_shut_comes_back") {
        return;
    }
    let world = toolbox::World::new().await;
    let files: &[(&[u8], Mode, &str)] = &[
        (b"a.txt", Mode::File, "old\n"),
        (b"same.txt", Mode::File, "same\n"),
        (b"deep/kept", Mode::File, "kept\n"),
        (b"deep/gone", Mode::File, "gone\n"),
    ];
    world
        .remote
        .upload(None, &toolbox::tree(files))
        .await
        .unwrap();
    let line = "echo new > a.txt; chmod 000 a.txt same.txt; echo w > written; chmod 222 written; \
                echo x > run; chmod 111 run; mkdir -p shut/in/most listed entered; echo 1 > shut/in/most/f; \
                ln -s f shut/in/most/l; chmod 0 shut/in/most/f shut/in/most shut/in shut; echo 2 > listed/f; \
                chmod 444 listed; echo 3 > entered/f; chmod 311 entered; rm deep/gone; chmod 0 deep; \
                mkdir rules; echo out > rules/.gitignore; chmod 0 rules/.gitignore; echo built > rules/out; \
                mkfifo pipe; chmod 0 pipe; echo away > ../tmp/away; chmod 0 ../tmp/away; \
                ln -s ../tmp/away link; ln -s ../tmp to; stat -c '%n %a' * ../tmp/away; chmod 0 .";
    let finished = world.run(line).await;
    assert_eq!(finished.exit, Exit::Code(0), "{finished:?}");
    let changes = world.scan().await;
    let puts: Vec<(&[u8], Mode, &[u8])> = changes
        .puts
        .iter()
        .map(|put| (&put.path[..], put.mode, &put.content[..]))
        .collect();
    let expected: &[(&[u8], Mode, &[u8])] = &[
        (b"a.txt", Mode::File, b"new\n"),
        (b"entered/f", Mode::File, b"3\n"),
        (b"link", Mode::Link, b"../tmp/away"),
        (b"listed/f", Mode::File, b"2\n"),
        (b"rules/.gitignore", Mode::File, b"out\n"),
        (b"run", Mode::Executable, b"x\n"),
        (b"shut/in/most/f", Mode::File, b"1\n"),
        (b"shut/in/most/l", Mode::Link, b"f"),
        (b"to", Mode::Link, b"../tmp"),
        (b"written", Mode::File, b"w\n"),
    ];
    assert_eq!(puts, expected);
    assert_eq!(changes.deletes, [&b"deep/gone"[..]]);
    let left: Vec<&[u8]> = changes.left_out.iter().map(|(path, _)| &path[..]).collect();
    assert_eq!(left, [&b"pipe"[..], b"rules/out"]);

    chmod(&world.workspace(), "", 0o755);
    let as_it_was = world.run("stat -c '%n %a' * ../tmp/away").await;
    assert_eq!(as_it_was.stdout.head, finished.stdout.head);
    // Nothing is sent again that was seen, although looking at it changed its rights twice.
    let again = world.scan().await;
    assert!(
        again.puts.is_empty() && again.deletes.is_empty(),
        "{again:?}"
    );
    let inner = world
        .run("chmod 755 shut; stat -c %a shut/in; chmod 755 shut/in; stat -c %a shut/in/most; chmod -R u+rwx .")
        .await;
    assert_eq!(&inner.stdout.head[..], b"0\n0\n", "{inner:?}");
    world.remote.close().await;
}

/// A repository that belongs to somebody else, of which git by itself would say nothing: its changes are
/// seen, and the branch is made. As one without rights the files are one's own, which is as good.
#[tokio::test]
async fn a_repository_of_somebody_else_is_no_empty_one() {
    let mut world = crate::world::World::new(&[]);
    let work = repository(&world.workspace.join("repo"), &[("a.txt", "1\n")]);
    write(&work, b"dirty.txt", b"d\n");
    if rustix::process::geteuid().is_root() {
        give_away(&work);
        let asked = Command::new("git")
            .args(["status", "--short"])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", "/nonexistent")
            .current_dir(&work)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(said.contains("dubious ownership"), "{said}");
    }
    world.workspace.clone_from(&work);
    let ran = world.run(PLAN, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert!(ran.summary.dirty, "its changes are seen");
    let names = git(
        &work,
        &[
            "-c",
            "safe.directory=*",
            "ls-tree",
            "--name-only",
            "wharf/run",
        ],
    );
    assert_eq!(names, "a.txt\ndirty.txt\nmade.txt\n");
}

/// All of a directory to the user `nobody`.
fn give_away(dir: &std::path::Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            give_away(&path);
        }
        std::os::unix::fs::lchown(&path, Some(65_534), Some(65_534)).unwrap();
    }
    std::os::unix::fs::lchown(dir, Some(65_534), Some(65_534)).unwrap();
}
