//! An operator who is nobody's superior: files that may not be read are named, never lost.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use wharf::run::Status;

use super::runs::{PLAN, script};
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
