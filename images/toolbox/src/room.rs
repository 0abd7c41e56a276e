//! How much an agent may write, and how much of that is used.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, StatxFlags, statx};
use rustix::path::Arg;

use crate::bell::lock;
use crate::beneath;

/// Folders deeper than this are not counted.
const DEEPEST: usize = 256;
/// Bytes that must stay free on the machine's disk: below, writes fail in the middle, and not only
/// those of this sandbox.
const FLOOR: u64 = 128 << 20;

/// What lies in the folders that the agent may write to.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// On the disk.
    pub bytes: u64,
    /// Files and folders.
    pub inodes: u64,
}

/// The folders, their limits, and what lay there when somebody last looked.
pub struct Room {
    folders: Vec<PathBuf>,
    disk: u64,
    inodes: u64,
    used: Mutex<Used>,
}

impl Room {
    /// Workspace first; the limits are in bytes and in files.
    pub fn new(folders: Vec<PathBuf>, disk: u64, inodes: u64) -> Room {
        Room {
            folders,
            disk,
            inodes,
            used: Mutex::default(),
        }
    }

    /// The first folder.
    pub fn workspace(&self) -> Option<&Path> {
        self.folders.first().map(PathBuf::as_path)
    }

    /// Counts what lies there now; gives what was known before beside it.
    pub fn look(&self) -> (Used, Used) {
        let mut now = Used::default();
        for folder in &self.folders {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(folder) = rustix::fs::open(folder, flags, Mode::empty()) {
                add(folder, DEEPEST, &mut now);
            }
        }
        (std::mem::replace(&mut *lock(&self.used), now), now)
    }

    /// The limit that `used` is over.
    pub fn passed(&self, used: Used) -> Option<String> {
        if used.bytes > self.disk {
            return Some(format!(
                "disk limit {} reached ({} written)",
                megabytes(self.disk),
                megabytes(used.bytes)
            ));
        }
        if used.inodes > self.inodes {
            return Some(format!("limit of {} files reached", self.inodes));
        }
        let free = self.workspace().and_then(free);
        free.is_some_and(|free| free < FLOOR)
            .then(|| "the disk of the machine is almost full".to_owned())
    }

    /// This process itself wrote a file of so many bytes, which is about to take the place of one of
    /// `freed`; `Err` is the limit that is over then.
    pub fn spend(&self, bytes: u64, freed: u64) -> Result<(), String> {
        let mut used = *lock(&self.used);
        used.bytes += bytes;
        used.inodes += 1;
        if self.passed(used).is_some() {
            used = self.look().1;
        }
        used.bytes = used.bytes.saturating_sub(freed);
        *lock(&self.used) = used;
        self.passed(used).map_or(Ok(()), Err)
    }
}

/// Bytes that the file system of a folder has left; nothing when it does not say.
fn free(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Bytes that a file takes. One that takes less than it holds has holes, or grows on a file system in
/// user space, where the kernel keeps the first figure it got (seen: for as long as the file is
/// open): then the file system is asked itself.
pub fn on_disk(at: BorrowedFd<'_>, name: impl Arg, stat: &Stat) -> u64 {
    const BLOCK: u64 = 512;
    let known = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
    let holds = u64::try_from(stat.st_size).unwrap_or(0);
    if known >= holds || !beneath::regular(stat.st_mode) {
        return known;
    }
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    statx(at, name, flags, StatxFlags::BLOCKS).map_or(known, |asked| asked.stx_blocks * BLOCK)
}

fn add(folder: OwnedFd, deep: usize, used: &mut Used) {
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
        used.bytes += on_disk(at, name, &stat);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && deep > 0 {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(inner) = rustix::fs::openat(at, name, flags, Mode::empty()) {
                add(inner, deep - 1, used);
            }
        }
    }
}
