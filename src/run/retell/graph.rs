//! What an agent's span is linked to: the subtasks it needed, the sides of the conflict it settled.

use std::collections::{BTreeMap, HashMap};

use crate::id::{CommitId, SubtaskId};
use crate::journal::{Event, SubtaskStatus};
use crate::trace::Span;

#[derive(Default)]
pub(super) struct Graph {
    needs: HashMap<SubtaskId, Vec<SubtaskId>>,
    sides: HashMap<SubtaskId, [CommitId; 2]>,
    merged: HashMap<CommitId, Vec<CommitId>>,
    /// What each subtask left.
    left: BTreeMap<SubtaskId, CommitId>,
}

impl Graph {
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::PlanAccepted { subtasks, .. } => {
                let needs = subtasks.iter().map(|s| (s.id.clone(), s.needs.clone()));
                self.needs.extend(needs);
            }
            Event::ConflictFound {
                id, ours, theirs, ..
            } => {
                self.sides
                    .insert(id.clone(), [ours.clone(), theirs.clone()]);
            }
            Event::Merged { inputs, commit } => {
                self.merged.insert(commit.clone(), inputs.clone());
            }
            Event::ConflictResolved { id, commit, .. } => {
                let sides = self.sides.get(id).map(|sides| sides.to_vec());
                self.merged
                    .insert(commit.clone(), sides.unwrap_or_default());
            }
            Event::SubtaskEnded {
                id,
                status: SubtaskStatus::Done,
                snapshot: Some(snapshot),
                ..
            } => {
                self.left.insert(id.clone(), snapshot.clone());
            }
            _ => {}
        }
    }

    /// The spans of what this agent needed.
    pub(super) fn needs(&self, id: &SubtaskId, done: &BTreeMap<SubtaskId, Span>) -> Vec<Span> {
        if let Some(sides) = self.sides.get(id) {
            let of_a_side = |(_, left): &(&SubtaskId, &CommitId)| {
                sides.iter().any(|side| self.holds(side, left))
            };
            let left = self.left.iter().filter(of_a_side);
            return left.filter_map(|(id, _)| done.get(id)).cloned().collect();
        }
        let needs = self.needs.get(id).into_iter().flatten();
        needs.filter_map(|need| done.get(need)).cloned().collect()
    }

    /// True when a commit is a merge of this one, or it itself.
    fn holds(&self, commit: &CommitId, wanted: &CommitId) -> bool {
        let mut open = vec![commit];
        let mut seen = std::collections::HashSet::new();
        while let Some(commit) = open.pop() {
            if commit == wanted {
                return true;
            }
            if seen.insert(commit) {
                open.extend(self.merged.get(commit).into_iter().flatten());
            }
        }
        false
    }
}
