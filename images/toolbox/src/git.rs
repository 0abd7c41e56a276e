//! The agent's own repository, so that `git status`, `diff` and `log` work; nothing in it is believed.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::command::Commands;
use crate::output::Status;
use crate::reaper::Said;
use crate::records::{Body, Stop};

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

/// Commits that come before the first tree.
pub struct Given {
    /// The last of them, in hex.
    pub tip: String,
    /// Bytes of the pack.
    pub pack: u64,
    /// Bytes of its index.
    pub index: u64,
}

/// Makes a repository of the commits that come in; false when one lies there already, which stays as
/// it is. A failure leaves none.
pub fn receive(root: &Path, given: &Given, body: &mut Body<'_>) -> Result<bool, Stop> {
    let hex = given.tip.len() == 40 && given.tip.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !hex {
        return Err(Stop::Failed("the history has no name".into()));
    }
    let folder = root.join(".git");
    if init(&folder).map_err(|error| unable(&error))? == Made::Before {
        body.content(given.pack + given.index, &mut |_| Ok(()))?;
        return Ok(false);
    }
    let taken = take(&folder, given, body);
    if taken.is_err() {
        // What is left of it would be taken for a repository.
        let _ = std::fs::remove_dir_all(&folder);
    }
    taken.map(|()| true)
}

fn take(folder: &Path, given: &Given, body: &mut Body<'_>) -> Result<(), Stop> {
    let name = folder.join(format!("objects/pack/pack-{}", given.tip));
    for (end, size) in [("pack", given.pack), ("idx", given.index)] {
        let file = std::fs::File::create(name.with_extension(end));
        let mut file = file.map_err(|error| unable(&error))?;
        body.content(size, &mut |part| {
            file.write_all(part).map_err(|error| unable(&error))
        })?;
    }
    let main = folder.join("refs/heads/main");
    std::fs::write(main, format!("{}\n", given.tip)).map_err(|error| unable(&error))
}

fn unable(error: &std::io::Error) -> Stop {
    Stop::Failed(format!("the history cannot be written: {error}"))
}

/// Makes a repository of one commit, on those that were given. A failure leaves the agent without one and is no error.
pub fn make(git: &str, commands: &Arc<Commands>, bell: &Bell, history: History) {
    let fixed = [
        "-c",
        "safe.directory=*",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "gc.auto=0",
        "-c",
        "maintenance.auto=false",
        "-c",
        "commit.gpgSign=false",
        "-c",
        "user.name=wharf",
        "-c",
        "user.email=wharf@localhost",
        // Contents go into one pack in place of a file each: in a layer of an image each file costs
        // milliseconds, and a repository that ends with its container need not outlive a power loss.
        "-c",
        "core.bigFileThreshold=1",
        "-c",
        "core.fsync=none",
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

/// The commit of the tree has the same hash in every sandbox of the same tree and history.
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
