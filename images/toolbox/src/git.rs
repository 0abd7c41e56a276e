//! The agent's own repository, so that `git status`, `diff` and `log` work; nothing in it is believed.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::command::Commands;
use crate::output::Status;
use crate::reaper::Said;

/// With more files than this it would cost more than it gives.
pub const FILES: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a repository of one commit. A failure leaves the agent without one and is no error.
pub fn make(git: &str, commands: &Arc<Commands>, bell: &Bell) {
    let fixed = [
        "-c",
        "safe.directory=*",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "gc.auto=0",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "commit.gpgSign=false",
        "-c",
        "user.name=wharf",
        "-c",
        "user.email=wharf@localhost",
    ];
    let steps: [&[&str]; 5] = [
        &["init", "-q"],
        &["config", "user.name", "agent"],
        &["config", "user.email", "agent@localhost"],
        &["add", "-A"],
        &["commit", "-q", "--allow-empty", "-m", "start"],
    ];
    for step in steps {
        let argv: Vec<OsString> = std::iter::once(git)
            .chain(fixed)
            .chain(step.iter().copied())
            .map(OsString::from)
            .collect();
        if !succeeds(&argv, commands, bell) {
            return;
        }
    }
}

/// The one commit has the same hash in every sandbox of the same tree.
const DATES: [(&str, &str); 2] = [
    ("GIT_AUTHOR_DATE", "2000-01-01T00:00:00Z"),
    ("GIT_COMMITTER_DATE", "2000-01-01T00:00:00Z"),
];

fn succeeds(argv: &[OsString], commands: &Arc<Commands>, bell: &Bell) -> bool {
    let Ok(running) = commands.start_with(argv, 4096, &DATES) else {
        return false;
    };
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = bell.count();
        match running.status() {
            Status::Said(said) => return said == Said::Ended(0),
            Status::Silent => return false,
            Status::Open => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            commands.kill(&running);
            return false;
        }
        bell.wait(seen, left);
    }
}
