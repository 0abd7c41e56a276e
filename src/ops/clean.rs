//! Which runs' directories may go, and their going.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::lock::{Held, held};

/// A run's directory that is old enough, and what can be told about its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Old {
    pub id: String,
    pub dir: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Only a run that surely nobody works on may be removed.
    pub removable: bool,
}

/// The runs under `state` whose directory has not changed for `age`.
pub fn old_runs(state: &Path, age: Duration, now: SystemTime) -> std::io::Result<Vec<Old>> {
    let entries = match std::fs::read_dir(state.join("runs")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut old = Vec::new();
    for entry in entries {
        let entry = entry?;
        let dir = entry.path();
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let changed = last_change(&dir)?;
        // A time in the future says nothing about age, so such a run is kept.
        if now.duration_since(changed).is_ok_and(|idle| idle >= age) {
            old.push(Old {
                id: entry.file_name().to_string_lossy().into_owned(),
                bytes: size(&dir),
                removable: held(&dir) == Held::No,
                dir,
            });
        }
    }
    old.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(old)
}

/// Removes a run's directory. Links inside are removed, never followed.
pub fn remove_run(old: &Old) -> std::io::Result<()> {
    std::fs::remove_dir_all(&old.dir)
}

/// The journal's last write, else the directory's.
fn last_change(dir: &Path) -> std::io::Result<SystemTime> {
    match dir.join("journal.jsonl").metadata() {
        Ok(meta) => meta.modified(),
        Err(_) => dir.metadata()?.modified(),
    }
}

/// Bytes under a directory, as far as they can be counted.
fn size(dir: &Path) -> u64 {
    let mut total = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => open.push(entry.path()),
                Ok(meta) => total += meta.len(),
                Err(_) => {}
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_runs_are_listed_and_a_locked_one_may_not_go() {
        let state = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(86_400);
        assert!(
            old_runs(state.path(), day, SystemTime::now())
                .unwrap()
                .is_empty()
        );
        for id in ["dead", "alive"] {
            let dir = state.path().join("runs").join(id);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("journal.jsonl"), "12345").unwrap();
            std::fs::write(dir.join("lock"), "").unwrap();
        }
        let lock = std::fs::File::open(state.path().join("runs/alive/lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert!(
            old_runs(state.path(), day, SystemTime::now())
                .unwrap()
                .is_empty()
        );
        let old = old_runs(state.path(), day, SystemTime::now() + 2 * day).unwrap();
        let seen: Vec<_> = old
            .iter()
            .map(|o| (o.id.as_str(), o.removable, o.bytes))
            .collect();
        assert_eq!(seen, [("alive", false, 5), ("dead", true, 5)]);
        remove_run(&old[1]).unwrap();
        assert!(!state.path().join("runs/dead").exists());
    }
}
