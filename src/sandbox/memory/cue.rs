//! When a sandbox in memory breaks.

use std::sync::atomic::Ordering;

use super::Memory;

impl Memory {
    /// After how many calls a sandbox that is opened now breaks.
    pub(super) fn breaks(&self, subtask: &str) -> Option<u32> {
        let after = self.break_after?;
        let meant = |only: &String| {
            only == subtask || (only.ends_with('-') && subtask.starts_with(only.as_str()))
        };
        if !self.break_in.as_ref().is_none_or(meant) {
            return None;
        }
        let before = self.broken.fetch_add(1, Ordering::Relaxed);
        self.break_times
            .is_none_or(|times| before < times)
            .then_some(after)
    }
}
