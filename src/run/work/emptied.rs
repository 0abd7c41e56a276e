//! Work that removes almost everything is taken for an accident until its report says that it is meant.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::id::CommitId;
use crate::run::work::desk::Desk;
use crate::workspace::{self, Removed, Store};

/// The key of a report that says so.
const CONFIRM: &str = "confirm_deletions";
/// From this many files on, the loss of more than half of them has to be meant.
const MANY: usize = 10;

/// Where a worker began, and whether it was asked.
pub(in crate::run) struct Emptying {
    start: CommitId,
    asked: AtomicBool,
}

impl Emptying {
    pub fn new(start: CommitId) -> Self {
        Self {
            start,
            asked: AtomicBool::new(false),
        }
    }

    /// Hands a report back, once, whose work removes almost everything without saying so. One that
    /// does not say so the second time ends the worker, and fails its subtask.
    pub async fn check(&self, desk: &Desk, report: &Value) -> Result<(), String> {
        if confirmed(report) || self.asked.load(Ordering::SeqCst) {
            return Ok(());
        }
        let store = &desk.shared.store;
        let accident = accident(store, &self.start, &desk.snapshot()).await;
        let accident =
            accident.map_err(|error| format!("your changes could not be looked at: {error}"))?;
        let Some(accident) = accident else {
            return Ok(());
        };
        self.asked.store(true, Ordering::SeqCst);
        Err(format!(
            "your work {accident}. If that is an accident, bring the files back (`git status` and `git \
             checkout` help) and submit again. If it is what the brief wants, submit again with \
             `{CONFIRM}: true` and say why in the summary; without it the work counts as failed."
        ))
    }
}

/// What a change removes, in words, where it is so much that it has to be meant.
pub(in crate::run) async fn accident(
    store: &Store,
    from: &CommitId,
    to: &CommitId,
) -> Result<Option<String>, workspace::Error> {
    if from == to {
        return Ok(None);
    }
    Ok(words(store.removed(from, to).await?))
}

/// True when a report says that its deletions are meant.
pub(in crate::run) fn confirmed(report: &Value) -> bool {
    report[CONFIRM] == true
}

fn words(removed: Removed) -> Option<String> {
    let Removed { gone, of } = removed;
    if of > 1 && gone == of {
        return Some("removed every file of the workspace".to_owned());
    }
    (gone >= MANY && gone > of / 2).then(|| format!("removed {gone} of {of} files"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_much_has_to_be_meant() {
        let words = |gone, of| words(Removed { gone, of });
        assert!(words(2, 2).is_some_and(|words| words.contains("every file")));
        assert!(words(10, 19).is_some_and(|words| words.contains("10 of 19")));
        for (gone, of) in [(0, 0), (0, 5), (1, 1), (9, 10), (10, 20), (1, 2)] {
            assert_eq!(words(gone, of), None, "{gone} of {of}");
        }
    }
}
