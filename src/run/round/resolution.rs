//! What a merger's resolution is worth: no marker may stand, and what is gone of a side must be meant.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::id::{CommitId, SubtaskId};
use crate::journal::{self, Event};
use crate::run::Error;
use crate::run::end::words;
use crate::run::round::drive::Drive;
use crate::run::work::desk::Desk;
use crate::workspace::{self, Conflict, Loss, Resolution, Side};

/// Lines of the list of what is gone.
const SHOWN: usize = 40;

/// A merger's conflict, and whether it was asked about what is gone.
pub(in crate::run) struct Resolving {
    conflict: Arc<Conflict>,
    asked: AtomicBool,
}

impl Resolving {
    pub fn new(conflict: Arc<Conflict>) -> Self {
        Self {
            conflict,
            asked: AtomicBool::new(false),
        }
    }

    /// A report was handed back so often in an earlier process; what was asked is not asked again.
    pub fn recall(&self, times: u32) {
        self.asked.store(times > 0, Ordering::SeqCst);
    }

    /// May this report end the merger, whose work is in its snapshot? `Err` holds what it has to mend.
    pub async fn check(&self, desk: &Desk, report: &Value) -> Result<(), String> {
        let (store, snapshot) = (&desk.shared.store, desk.snapshot());
        let resolution = store.resolution(&self.conflict, &snapshot).await;
        let resolution =
            resolution.map_err(|error| format!("the resolution could not be checked: {error}"))?;
        if let Some(left) = unresolved(&resolution) {
            return Err(left);
        }
        let unsaid: Vec<journal::Dropped> = resolution
            .dropped
            .iter()
            .map(recorded)
            .filter(|dropped| !names(report, dropped))
            .collect();
        let asked = self.asked.load(Ordering::SeqCst);
        if unsaid.is_empty() || (asked && says_more(report)) {
            return Ok(());
        }
        self.asked.store(true, Ordering::SeqCst);
        Err(question(&unsaid))
    }
}

/// What keeps the merge from being one; None when nothing does.
fn unresolved(resolution: &Resolution) -> Option<String> {
    let mut left = Vec::new();
    if !resolution.markers.is_empty() {
        let paths = resolution.markers.join(", ");
        left.push(format!("these files still hold conflict markers: {paths}"));
    }
    if !resolution.aside.is_empty() {
        let paths = resolution.aside.join(", ");
        left.push(format!(
            "these were set aside because two things want one name; move, merge or remove each: {paths}"
        ));
    }
    (!left.is_empty()).then(|| left.join("\n"))
}

fn question(unsaid: &[journal::Dropped]) -> String {
    let mut lines: Vec<String> = unsaid.iter().flat_map(words::dropped).collect();
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if more > 0 {
        lines.push(format!("… and {more} more"));
    }
    format!(
        "this, made by one of the sides or left alone by both, is gone from the resolution. Put it back; or, where that is meant, \
         name it in `findings` with the reason and submit again.\n{}",
        lines.join("\n")
    )
}

/// True when the report itself names what is gone, without having been asked.
fn names(report: &Value, dropped: &journal::Dropped) -> bool {
    let said = told(report);
    match dropped.lines.as_slice() {
        [] => said.contains(&dropped.path),
        lines => lines.iter().all(|line| said.contains(line)),
    }
}

/// True when the report says anything beyond its summary.
fn says_more(report: &Value) -> bool {
    !told(report).trim().is_empty()
}

fn told(report: &Value) -> String {
    let items = ["findings", "notes"].map(|key| report[key].as_array());
    let items = items.into_iter().flatten().flatten();
    items
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join("\n")
}

fn recorded(dropped: &workspace::Dropped) -> journal::Dropped {
    let (what, lines) = match &dropped.loss {
        Loss::Lines(lines) => (journal::Loss::Lines, lines.clone()),
        Loss::Version => (journal::Loss::Version, Vec::new()),
        Loss::Deletion => (journal::Loss::Deletion, Vec::new()),
    };
    journal::Dropped {
        path: dropped.path.clone(),
        side: match dropped.side {
            Side::Ours => journal::Side::Ours,
            Side::Theirs => journal::Side::Theirs,
            Side::Both => journal::Side::Both,
        },
        what,
        lines,
    }
}

impl Drive {
    /// Takes a merger's snapshot for the merge; `Err` in the inner result says why it is none.
    pub async fn take_resolution(
        &mut self,
        id: &SubtaskId,
        commit: &CommitId,
    ) -> Result<Result<(), String>, Error> {
        let Some(node) = self.conflicts.get(id) else {
            return Ok(Err("no such conflict is known".to_owned()));
        };
        let resolution = self.shared.store.resolution(&node.conflict, commit).await;
        let resolution = resolution.map_err(|source| Error::Workspace { source })?;
        if let Some(left) = unresolved(&resolution) {
            return Ok(Err(left));
        }
        let dropped: Vec<journal::Dropped> = resolution.dropped.iter().map(recorded).collect();
        let resolved = Event::ConflictResolved {
            id: id.clone(),
            commit: commit.clone(),
            dropped: dropped.clone(),
            beyond: resolution.beyond.clone(),
            removed: resolution.removed,
        };
        self.shared.record(resolved).await?;
        self.merges.resolve(id, commit);
        if let Some(node) = self.conflicts.get_mut(id) {
            (node.dropped, node.beyond) = (dropped, resolution.beyond);
        }
        Ok(Ok(()))
    }

    /// Where both sides of a conflict stand, as a command that shows them.
    pub fn kept(&self, id: &SubtaskId) -> String {
        let store = self.shared.store.dir().display();
        format!(
            "both versions are kept: `git --git-dir={store} diff {0}/ours {0}/theirs`",
            workspace::conflict_ref(id)
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dropped(lines: &[&str]) -> journal::Dropped {
        journal::Dropped {
            path: "a.txt".to_owned(),
            side: journal::Side::Ours,
            what: match lines {
                [] => journal::Loss::Deletion,
                _ => journal::Loss::Lines,
            },
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    #[test]
    fn only_what_findings_or_notes_name_is_named() {
        let report = json!({"summary": "x = 1 in a.txt", "findings": ["x = 1 is obsolete"]});
        assert!(names(&report, &dropped(&["x = 1"])));
        assert!(!names(&report, &dropped(&["x = 1", "y = 2"])));
        assert!(!names(&report, &dropped(&[])));
        assert!(names(&json!({"notes": ["a.txt stays"]}), &dropped(&[])));
        assert!(!says_more(&json!({"summary": "s", "findings": [" "]})));
    }

    #[test]
    fn the_question_is_bounded() {
        let many: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let question = question(&[dropped(&many)]);
        assert!(question.contains("a.txt: line 0") && question.contains("and 60 more"));
        assert!(!question.contains("line 50"));
    }
}
