//! What tells that a file may have changed, as the kernel says it; none of it is the agent's to forge.

use std::time::SystemTime;

use rustix::fs::{FileType, Stat};

use crate::record::Mode;

/// Two changes less apart than this may have the same time, by the kernel's clock.
const YOUNG: u128 = 50_000_000;

/// One file's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Time of the last change of content or of what is said about it: seconds since 1970, nanoseconds.
    pub changed: (i64, u64),
    /// The file's number in its file system.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Type and permissions.
    pub mode: u32,
}

impl Stamp {
    /// From the kernel's figures.
    pub fn of(stat: &Stat) -> Stamp {
        Stamp {
            changed: (stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode,
        }
    }

    /// As git would have it; nothing for what git does not carry.
    pub fn kind(&self) -> Option<Mode> {
        match FileType::from_raw_mode(self.mode) {
            FileType::Symlink => Some(Mode::Link),
            FileType::RegularFile if self.mode & 0o100 != 0 => Some(Mode::Executable),
            FileType::RegularFile => Some(Mode::File),
            _ => None,
        }
    }

    /// True when the change is too recent for the clock to tell it from the next one.
    pub fn young(&self) -> bool {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let then = u128::try_from(self.changed.0).unwrap_or(0) * 1_000_000_000
            + u128::from(self.changed.1);
        now.saturating_sub(then) < YOUNG
    }
}
