//! The watch: the lease that Wharf's pings extend, strays, and the size of what was written.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::bell::{Bell, lock};
use crate::command::Commands;

/// Without a ping for so long, Wharf is gone.
pub const LEASE: Duration = Duration::from_secs(60);
const ROUND: Duration = Duration::from_millis(500);
/// A look at the disk may take this part of the time.
const SHARE: u32 = 20;
/// Folders deeper than this are not counted.
const DEEPEST: usize = 256;

/// When the last ping came, and how long one lasts.
pub struct Lease {
    last: Mutex<Instant>,
    length: Duration,
}

impl Lease {
    /// One that begins now; never longer than `LEASE`.
    pub fn of(milliseconds: Option<u64>) -> Lease {
        Lease {
            last: Mutex::new(Instant::now()),
            length: milliseconds.map_or(LEASE, |ms| Duration::from_millis(ms).min(LEASE)),
        }
    }

    /// A ping came.
    pub fn extend(&self) {
        *lock(&self.last) = Instant::now();
    }

    fn over(&self) -> bool {
        lock(&self.last).elapsed() > self.length
    }
}

/// The sentence on a limit of the disk that was passed, until the next command.
#[derive(Default)]
pub struct Over(Mutex<Option<String>>);

impl Over {
    /// The limit that was passed since the last `clear`.
    pub fn said(&self) -> Option<String> {
        lock(&self.0).clone()
    }

    /// A new command begins.
    pub fn clear(&self) {
        *lock(&self.0) = None;
    }
}

/// What the agent may write to, and how much.
pub struct Quota {
    /// Workspace, home and /tmp.
    pub folders: Vec<PathBuf>,
    /// Bytes.
    pub disk: u64,
    /// Files.
    pub inodes: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd)]
struct Used {
    bytes: u64,
    inodes: u64,
}

/// The thread that watches.
pub struct Watch {
    /// Extended by pings.
    pub lease: Arc<Lease>,
    /// Told when a limit is passed.
    pub over: Arc<Over>,
    /// Killed when it is.
    pub commands: Arc<Commands>,
    /// What is counted.
    pub quota: Quota,
    /// Rung when a limit is passed.
    pub bell: Arc<Bell>,
}

impl Watch {
    /// Watches until the lease is over.
    pub fn keep(&self) {
        let mut last = Used::default();
        let mut due = Instant::now();
        while !self.lease.over() {
            std::thread::sleep(ROUND);
            if !self.commands.any() {
                continue;
            }
            self.commands.kill_strays();
            if Instant::now() < due {
                continue;
            }
            let begun = Instant::now();
            let used = self.used();
            due = Instant::now() + begun.elapsed() * SHARE;
            let grown = used.bytes > last.bytes || used.inodes > last.inodes;
            last = used;
            // Over the limit and shrinking is an agent that cleans up.
            if let Some(limit) = self.passed(used).filter(|_| grown) {
                *lock(&self.over.0) = Some(limit);
                self.bell.ring();
                self.commands.kill_all();
            }
        }
    }

    fn passed(&self, used: Used) -> Option<String> {
        let Quota { disk, inodes, .. } = &self.quota;
        if used.bytes > *disk {
            return Some(format!(
                "disk limit {} reached ({} written)",
                megabytes(*disk),
                megabytes(used.bytes)
            ));
        }
        (used.inodes > *inodes).then(|| format!("limit of {inodes} files reached"))
    }

    fn used(&self) -> Used {
        let mut used = Used::default();
        for folder in &self.quota.folders {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(folder) = rustix::fs::open(folder, flags, Mode::empty()) {
                add(folder, DEEPEST, &mut used);
            }
        }
        used
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn add(folder: std::os::fd::OwnedFd, deep: usize, used: &mut Used) {
    let Ok(mut entries) = Dir::new(folder) else {
        return;
    };
    while let Some(Ok(entry)) = entries.read() {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(at) = entries.fd() else { return };
        let Ok(stat) = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        used.inodes += 1;
        used.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && deep > 0 {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(inner) = rustix::fs::openat(at, name, flags, Mode::empty()) {
                add(inner, deep - 1, used);
            }
        }
    }
}
