//! The agent's own repository, so that `git status`, `diff` and `log` work; nothing in it is believed.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::command::Commands;
use crate::output::Status;
use crate::reaper::Said;

/// With more files than this it would cost more than it gives.
pub const FILES: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// What `git init` and some settings would leave: in a layer of the image, files keep their times of
/// modification and nothing else that an index knows them by. Every process that an opening waits for costs it some
/// milliseconds, so these three are written instead of run.
const CONFIG: &str = "[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[user]
\tname = agent
\temail = agent@localhost
";

/// Whose a repository is that lies there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// The image's own: it gets one commit more.
    Images,
    /// Made here for the tree before this one, which may differ: its commit is replaced.
    Ours {
        /// Whether it differs.
        changed: bool,
    },
}

/// Makes a repository of one commit. A failure leaves the agent without one and is no error.
pub fn make(git: &str, commands: &Arc<Commands>, bell: &Bell, history: History) {
    let fixed = [
        "-c",
        "safe.directory=*",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "gc.auto=0",
        "-c",
        "commit.gpgSign=false",
        "-c",
        "user.name=wharf",
        "-c",
        "user.email=wharf@localhost",
    ];
    let Ok(made) = init(&commands.root().join(".git")) else {
        return;
    };
    let mut commit = vec!["commit", "-q", "--allow-empty", "-m", "start"];
    match history {
        History::Ours { changed: false } if made == Made::Before => return,
        History::Ours { .. } if made == Made::Before => commit.push("--amend"),
        History::Ours { .. } | History::Images => {}
    }
    let steps: [&[&str]; 2] = [&["add", "-A"], &commit];
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

#[derive(PartialEq, Eq)]
enum Made {
    Now,
    Before,
}

/// An empty repository; one that is there already stays as it is.
fn init(folder: &Path) -> std::io::Result<Made> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Made::Before),
        made => made?,
    }
    for inner in ["objects/info", "objects/pack", "refs/heads", "refs/tags"] {
        std::fs::create_dir_all(folder.join(inner))?;
    }
    std::fs::write(folder.join("config"), CONFIG)?;
    std::fs::write(folder.join("HEAD"), "ref: refs/heads/main\n")?;
    Ok(Made::Now)
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
