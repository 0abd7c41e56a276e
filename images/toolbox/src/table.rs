//! The process table: who is whose child, and killing all that is under a process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long killing may take before it counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How long a look at the table may fail before nothing is known.
pub const BLIND: Duration = Duration::from_secs(1);

/// Living processes (no zombies) by id, each with its parent; nothing when the table cannot be
/// read whole, for then a process that is not seen may be there all the same.
fn living() -> Option<BTreeMap<i32, i32>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").ok()? {
        let name = entry.ok()?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if let Some(parent) = parent(pid).ok()? {
            all.insert(pid, parent);
        }
    }
    Some(all)
}

/// The parent of a living process; nothing when it has ended.
fn parent(pid: i32) -> std::io::Result<Option<i32>> {
    let stat = match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let odd = || std::io::Error::other("a line of the process table makes no sense");
    parse(&stat).ok_or_else(odd)
}

fn gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The parent in a line of the table; nothing inside for a zombie.
fn parse(stat: &[u8]) -> Option<Option<i32>> {
    // The name is in parentheses and may hold anything, also parentheses.
    let after = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let text = std::str::from_utf8(stat.get(after..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    Some((!matches!(state, "Z" | "X" | "x")).then_some(parent))
}

/// Everything under `roots`, without them.
fn under(roots: &BTreeSet<i32>, table: &BTreeMap<i32, i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    loop {
        let more: Vec<i32> = table
            .iter()
            .filter(|(_, parent)| roots.contains(*parent) || found.contains(*parent))
            .map(|(pid, _)| *pid)
            .filter(|pid| !roots.contains(pid) && !found.contains(pid))
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Children of this process that are not in `known`: what a killed reaper left. Nothing when the
/// table cannot be read.
pub fn strays(known: &BTreeSet<i32>) -> Option<BTreeSet<i32>> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let strays = living()?
        .into_iter()
        .filter(|(pid, parent)| *parent == me && !known.contains(pid))
        .map(|(pid, _)| pid);
    Some(strays.collect())
}

/// Kills all that is under `root`, whatever it does to stay: first everything is frozen until no
/// new process appears, then killed, until none is left. True when none was seen at last.
pub fn kill_under(root: i32) -> bool {
    let roots = BTreeSet::from([root]);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match freeze(&roots, begun) {
            Some(frozen) if frozen.is_empty() => return true,
            Some(frozen) => kill(&frozen),
            None if begun.elapsed() > BLIND => return false,
            None => {}
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

fn freeze(roots: &BTreeSet<i32>, begun: Instant) -> Option<BTreeSet<i32>> {
    let mut frozen = BTreeSet::new();
    loop {
        let now = under(roots, &living()?);
        let fresh: Vec<i32> = now.difference(&frozen).copied().collect();
        if fresh.is_empty() || begun.elapsed() > PATIENCE {
            return Some(now);
        }
        for pid in fresh {
            signal(pid, Signal::STOP);
            frozen.insert(pid);
        }
    }
}

/// Kills the processes themselves.
pub fn kill(pids: &BTreeSet<i32>) {
    for &pid in pids {
        signal(pid, Signal::KILL);
    }
}

/// Wakes a process that was stopped from inside.
pub fn wake(pid: i32) {
    signal(pid, Signal::CONT);
}

/// A process that is gone already is no failure.
fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_whatever_their_order() {
        let table = BTreeMap::from([(2, 9), (3, 2), (9, 5), (5, 1), (7, 1), (8, 7)]);
        assert_eq!(
            under(&BTreeSet::from([5]), &table),
            BTreeSet::from([2, 3, 9])
        );
        assert_eq!(under(&BTreeSet::from([8]), &table), BTreeSet::new());
    }

    #[test]
    fn a_process_knows_its_parent() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(living().unwrap().contains_key(&me));
        assert_ne!(parent(me).unwrap(), Some(me));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_not_an_end() {
        assert_eq!(parse(b"7 (a) b) S 3 7"), Some(Some(3)));
        assert_eq!(parse(b"7 (x) Z 3 7"), Some(None));
        for odd in [b"".as_slice(), b"7 (x", b"7 (x) S", b"7 (x) S y"] {
            assert_eq!(parse(odd), None);
        }
        assert_eq!(parent(i32::MAX).unwrap(), None);
    }
}
