//! The lock of a run's directory: who holds it works on the run, and nobody else does.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::run::Error;

/// The file in the directory; what it holds means nothing.
const FILE: &str = "lock";
/// How often the lock is tried while somebody only looks whether it is held.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(10);
/// How often it is tried while somebody holds it for itself.
const AFTER: u32 = 10;

/// Locks the directory of a run that was just made.
pub(in crate::run) fn create(dir: &Path) -> std::io::Result<File> {
    let lock = File::create(dir.join(FILE))?;
    // Nobody else can know the directory yet but who looks whether it is alive, for a moment.
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// Locks the directory of an earlier run; refused while another process works on it, however
/// long that has been still.
pub(in crate::run) fn take(dir: &Path) -> Result<File, Error> {
    let path = dir.join(FILE);
    let failed = |source: std::io::Error| Error::Start {
        code: 3,
        kind: "state",
        message: format!("lock the run: {}: {source}", path.display()),
        hint: "make the run's directory and its files readable and writable for this user"
            .to_owned(),
    };
    let open = || {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(&path)
    };
    let lock = open().map_err(failed)?;
    for tried in 0..TRIES {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return still_there(&lock, &path).map(|()| lock).map_err(failed),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(failed(error.into())),
        }
        // Who only looks holds it shared for a moment; who works on the run holds it for itself.
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => flock(&lock, FlockOperation::Unlock).map_err(|e| failed(e.into()))?,
            // A child that its last holder was about to start may hold it for a moment more.
            Err(Errno::WOULDBLOCK) if tried < AFTER => {}
            Err(Errno::WOULDBLOCK) => return Err(held(dir)),
            Err(error) => return Err(failed(error.into())),
        }
        std::thread::sleep(PAUSE);
    }
    Err(held(dir))
}

/// The lock counts only while its file is the one that others would open.
fn still_there(lock: &File, path: &Path) -> std::io::Result<()> {
    let (ours, there) = (lock.metadata()?, std::fs::metadata(path)?);
    if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) {
        return Ok(());
    }
    Err(std::io::Error::other("it was replaced meanwhile"))
}

fn held(dir: &Path) -> Error {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    Error::Start {
        code: 2,
        kind: "running",
        message: format!("another process works on the run {name}"),
        hint: format!("`wharf log {name} -f` follows it; wait for its end, or stop it first"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_the_lock_and_who_looks_does_not_keep_it_from_anybody() {
        let dir = tempfile::tempdir().unwrap();
        let first = take(dir.path()).unwrap();
        assert!(matches!(
            take(dir.path()),
            Err(Error::Start {
                code: 2,
                kind: "running",
                ..
            })
        ));
        drop(first);
        let looking = File::open(dir.path().join(FILE)).unwrap();
        flock(&looking, FlockOperation::NonBlockingLockShared).unwrap();
        let freed = std::thread::spawn(move || {
            std::thread::sleep(PAUSE * 2);
            drop(looking);
        });
        assert!(take(dir.path()).is_ok());
        freed.join().unwrap();
    }

    #[test]
    fn a_lock_that_cannot_be_one_is_an_error_and_what_it_holds_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), b"\0garbage").unwrap();
        drop(take(dir.path()).unwrap());
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        std::fs::create_dir(dir.path().join(FILE)).unwrap();
        assert!(matches!(
            take(dir.path()),
            Err(Error::Start { code: 3, .. })
        ));
    }
}
