//! Files that a full disk left half written, or that could not be written at all.
//!
//! A scan does not carry them until they are written again, by whatever means; removing one that is
//! there settles it too. So no cut file is taken for an edit.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use wharf_toolbox::stamp::Stamp;

use crate::bell::lock;

/// The access mode in a descriptor's flags; 0 is reading only.
const ACCESS: u32 = 3;

/// A moment as files are stamped with it: seconds since 1970, nanoseconds.
type Moment = (i64, u64);

/// What is owed, by path in the workspace.
#[derive(Default)]
pub struct Torn(Mutex<Owed>);

#[derive(Default)]
struct Owed {
    /// A kill that the files have not been looked at since.
    kill: Option<Kill>,
    /// As each was left; nothing where there was none.
    files: BTreeMap<Vec<u8>, Option<Stamp>>,
}

struct Kill {
    /// Open for writing just before it.
    open: BTreeSet<Vec<u8>>,
    /// Whatever changed later was being written too.
    since: Moment,
}

impl Torn {
    /// Everything that runs is about to be killed over a full disk.
    pub fn before_kill(&self, workspace: &Path) {
        let since = a_tick_ago();
        let workspace = std::fs::canonicalize(workspace).unwrap_or_else(|_| workspace.into());
        let open = being_written(&workspace);
        lock(&self.0).kill = Some(Kill { open, since });
    }

    /// True when `after_kill` has work to do.
    pub fn is_pending(&self) -> bool {
        lock(&self.0).kill.is_some()
    }

    /// Enters the files that the kill cut; `entries` is what lies in the workspace now.
    pub fn after_kill<'a>(&self, entries: impl Iterator<Item = (&'a [u8], Stamp)>) {
        let mut owed = lock(&self.0);
        let Some(Kill { open, since }) = owed.kill.take() else {
            return;
        };
        for (path, stamp) in entries {
            if open.contains(path) || stamp.changed >= since {
                owed.files.insert(path.to_vec(), Some(stamp));
            }
        }
    }

    /// A write failed for want of room and left the file as it was.
    pub fn failed(&self, path: &[u8], stamp: Option<Stamp>) {
        lock(&self.0).files.insert(path.to_vec(), stamp);
    }

    /// A write of the whole file succeeded.
    pub fn written(&self, path: &[u8]) {
        lock(&self.0).files.remove(path);
    }

    /// What is still as it was left; the rest is forgotten. `now` tells how a path lies there.
    pub fn left(&self, now: impl Fn(&[u8]) -> Option<Stamp>) -> BTreeSet<Vec<u8>> {
        let mut owed = lock(&self.0);
        owed.files.retain(|path, then| now(path) == *then);
        owed.files.keys().cloned().collect()
    }
}

/// Now, less a tick: stamps are taken from a clock that moves in ticks.
fn a_tick_ago() -> Moment {
    const TICK: Duration = Duration::from_millis(20);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .saturating_sub(TICK);
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    (seconds, u64::from(now.subsec_nanos()))
}

/// Files beneath `workspace` that some process has open for writing.
fn being_written(workspace: &Path) -> BTreeSet<Vec<u8>> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    let mut found = BTreeSet::new();
    for process in processes.flatten() {
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        for descriptor in descriptors.flatten() {
            let Ok(target) = std::fs::read_link(descriptor.path()) else {
                continue;
            };
            let Ok(inner) = target.strip_prefix(workspace) else {
                continue;
            };
            let flags = process.path().join("fdinfo").join(descriptor.file_name());
            if writes(&std::fs::read_to_string(flags).unwrap_or_default()) {
                found.insert(inner.as_os_str().as_bytes().to_vec());
            }
        }
    }
    found
}

/// Flags that cannot be read are taken for writing: a file too many is only written again.
fn writes(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    flags.is_none_or(|flags| flags & ACCESS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_open_for_writing_is_found_and_one_open_for_reading_is_not() {
        let folder = std::env::temp_dir().join(format!("wharf-torn-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        let mut written = std::fs::File::create(folder.join("w")).unwrap();
        std::fs::write(folder.join("r"), "x").unwrap();
        let read = std::fs::File::open(folder.join("r")).unwrap();
        written.write_all(b"x").unwrap();
        let found = being_written(&folder);
        drop(read);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, BTreeSet::from([b"w".to_vec()]));
    }

    #[test]
    fn flags_that_cannot_be_read_count_as_writing() {
        assert!(writes("pos:\t0\nflags:\t0100001\n") && writes("flags:\t02\n") && writes(""));
        assert!(!writes("flags:\t0100000\n"));
    }

    #[test]
    fn what_is_written_again_or_taken_away_is_not_owed_any_more() {
        let folder = std::env::temp_dir().join(format!("wharf-owed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let stamp = |name: &str| {
            let stat = rustix::fs::lstat(folder.join(name)).ok()?;
            Some(Stamp::of(&stat))
        };
        for name in ["cut", "gone", "later"] {
            std::fs::write(folder.join(name), name).unwrap();
        }
        let torn = Torn::default();
        torn.failed(b"cut", stamp("cut"));
        torn.failed(b"gone", stamp("gone"));
        torn.failed(b"new", None);
        torn.failed(b"later", stamp("later"));
        let left = || torn.left(|path| stamp(std::str::from_utf8(path).unwrap()));
        assert_eq!(left().len(), 4);
        std::fs::remove_file(folder.join("gone")).unwrap();
        std::fs::write(folder.join("later"), "longer than before").unwrap();
        assert_eq!(left(), BTreeSet::from([b"cut".to_vec(), b"new".to_vec()]));
        std::fs::write(folder.join("new"), "").unwrap();
        torn.written(b"cut");
        assert_eq!(left(), BTreeSet::new());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
