//! The process table: who is whose child, and killing all that is under a process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long killing may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Living processes (no zombies) by id, each with its parent.
fn living() -> BTreeMap<i32, i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| parent(pid).map(|parent| (pid, parent)))
        .collect()
}

/// The parent of a living process.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, also parentheses.
    let after = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let text = std::str::from_utf8(stat.get(after..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(parent)
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

/// Children of this process that are not in `known`: what a killed reaper left.
pub fn strays(known: &BTreeSet<i32>) -> BTreeSet<i32> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    living()
        .into_iter()
        .filter(|(pid, parent)| *parent == me && !known.contains(pid))
        .map(|(pid, _)| pid)
        .collect()
}

/// Kills all that is under `root`, whatever it does to stay: first everything is frozen until no
/// new process appears, then killed, until none is left. True when none was seen at last.
pub fn kill_under(root: i32) -> bool {
    let roots = BTreeSet::from([root]);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let frozen = freeze(&roots, begun);
        if frozen.is_empty() {
            return true;
        }
        for pid in frozen {
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

fn freeze(roots: &BTreeSet<i32>, begun: Instant) -> BTreeSet<i32> {
    let mut frozen = BTreeSet::new();
    loop {
        let now = under(roots, &living());
        let fresh: Vec<i32> = now.difference(&frozen).copied().collect();
        if fresh.is_empty() || begun.elapsed() > PATIENCE {
            return now;
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
        assert!(living().contains_key(&me));
        assert_ne!(parent(me), Some(me));
    }
}
