//! Whether somebody works on a run: the lock file in its directory tells.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The file in a run's directory that its process keeps locked.
pub const FILE: &str = "lock";

/// Whether a run's lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Yes,
    /// Nobody holds it, so nobody works on the run.
    No,
    /// It could not be told.
    Unknown,
}

/// Looks whether the lock of the run in `dir` is held, without keeping it.
pub fn held(dir: &Path) -> Held {
    let file = match File::open(dir.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Held::No,
        Err(_) => return Held::Unknown,
    };
    // Shared, so that two that look do not take each other for the run.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Held::No,
        Err(Errno::WOULDBLOCK) => Held::Yes,
        Err(_) => Held::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_as_long_as_its_file_is_open() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(held(dir.path()), Held::No);
        let file = File::create(dir.path().join(FILE)).unwrap();
        assert_eq!(held(dir.path()), Held::No);
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(held(dir.path()), Held::Yes);
        drop(file);
        assert_eq!(held(dir.path()), Held::No);
    }
}
