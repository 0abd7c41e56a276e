//! How often the memory limit has killed, by the control group's own counter.

/// Files and the word before the figure: cgroup v2, then v1.
const COUNTERS: [&str; 2] = [
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
];

/// Kills so far; nothing when no counter can be read, and then nothing is claimed.
pub fn kills() -> Option<u64> {
    COUNTERS
        .iter()
        .find_map(|path| count(&std::fs::read_to_string(path).ok()?))
}

fn count(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn both_versions_are_read() {
        assert_eq!(
            count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            Some(3)
        );
        assert_eq!(
            count("low 0\noom 1\noom_kill 2\noom_group_kill 0\n"),
            Some(2)
        );
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\n"), None);
    }
}
