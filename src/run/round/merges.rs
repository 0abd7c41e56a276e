//! How snapshots become one: pairs fold in order, each pair once, a conflict resolved once for all who need it.

use std::collections::{BTreeMap, HashMap, HashSet};

use sha2::{Digest, Sha256};

use crate::id::{CommitId, SubtaskId};
use crate::workspace::{self, Conflict, Merged, Store};

/// What is known of merges so far.
#[derive(Default)]
pub(in crate::run) struct Merges {
    parents: HashMap<CommitId, Vec<CommitId>>,
    pairs: BTreeMap<(CommitId, CommitId), Pair>,
}

enum Pair {
    Done(CommitId),
    Open(SubtaskId),
    /// The merger could not resolve it.
    Lost(SubtaskId),
}

/// Where a fold came to.
pub(in crate::run) enum Folded {
    Commit(CommitId),
    /// A conflict nobody works on yet.
    Found(SubtaskId, Box<Conflict>),
    /// A merger is at work on it.
    Waiting,
    /// Needs a conflict that was not resolved.
    Lost(SubtaskId),
}

/// A merge that was made, for the journal.
pub(in crate::run) struct Made {
    pub inputs: Vec<CommitId>,
    pub commit: CommitId,
}

impl Merges {
    /// Records where a commit came from.
    pub fn know(&mut self, commit: &CommitId, parents: &[CommitId]) {
        if !parents.contains(commit) {
            self.parents
                .entry(commit.clone())
                .or_insert_with(|| parents.to_vec());
        }
    }

    /// Knows a pair that was merged before.
    pub fn recall(&mut self, inputs: &[CommitId], commit: &CommitId) {
        self.know(commit, inputs);
        if let [ours, theirs] = inputs {
            let key = (ours.clone(), theirs.clone());
            self.pairs.insert(key, Pair::Done(commit.clone()));
        }
    }

    /// True when `ancestor` is `commit` or went into it.
    pub fn holds(&self, commit: &CommitId, ancestor: &CommitId) -> bool {
        let (mut open, mut seen) = (vec![commit], HashSet::new());
        while let Some(next) = open.pop() {
            if next == ancestor {
                return true;
            }
            if seen.insert(next) {
                open.extend(self.parents.get(next).into_iter().flatten());
            }
        }
        false
    }

    /// Merges `inputs` from left to right. Merges that were made are added to `made`.
    pub async fn fold(
        &mut self,
        store: &Store,
        inputs: &[CommitId],
        made: &mut Vec<Made>,
    ) -> Result<Folded, workspace::Error> {
        let Some((first, rest)) = inputs.split_first() else {
            return Ok(Folded::Waiting);
        };
        let mut folded = first.clone();
        for next in rest {
            if self.holds(&folded, next) {
                continue;
            }
            if self.holds(next, &folded) {
                folded = next.clone();
                continue;
            }
            match self.pair(store, &folded, next, made).await? {
                Folded::Commit(commit) => folded = commit,
                other => return Ok(other),
            }
        }
        Ok(Folded::Commit(folded))
    }

    async fn pair(
        &mut self,
        store: &Store,
        ours: &CommitId,
        theirs: &CommitId,
        made: &mut Vec<Made>,
    ) -> Result<Folded, workspace::Error> {
        let key = (ours.clone(), theirs.clone());
        match self.pairs.get(&key) {
            Some(Pair::Done(commit)) => return Ok(Folded::Commit(commit.clone())),
            Some(Pair::Open(_)) => return Ok(Folded::Waiting),
            Some(Pair::Lost(id)) => return Ok(Folded::Lost(id.clone())),
            None => {}
        }
        let inputs = vec![ours.clone(), theirs.clone()];
        match store.merge(ours, theirs).await? {
            Merged::Clean(commit) => {
                self.know(&commit, &inputs);
                self.pairs.insert(key, Pair::Done(commit.clone()));
                made.push(Made {
                    inputs,
                    commit: commit.clone(),
                });
                Ok(Folded::Commit(commit))
            }
            Merged::Conflict(conflict) => {
                let id = conflict_id(ours, theirs);
                self.know(&conflict.start, &inputs);
                self.pairs.insert(key, Pair::Open(id.clone()));
                Ok(Folded::Found(id, Box::new(conflict)))
            }
        }
    }

    /// The merger resolved a conflict; `commit` descends from the conflict's start.
    pub fn resolve(&mut self, id: &SubtaskId, commit: &CommitId) {
        self.close(id, &Pair::Done(commit.clone()));
    }

    /// The merger could not.
    pub fn lose(&mut self, id: &SubtaskId) {
        self.close(id, &Pair::Lost(id.clone()));
    }

    fn close(&mut self, id: &SubtaskId, end: &Pair) {
        for pair in self.pairs.values_mut() {
            if matches!(pair, Pair::Open(open) if open == id) {
                *pair = match end {
                    Pair::Done(commit) => Pair::Done(commit.clone()),
                    Pair::Open(id) => Pair::Open(id.clone()),
                    Pair::Lost(id) => Pair::Lost(id.clone()),
                };
            }
        }
    }
}

/// `merge-` and 12 hex digits of a hash of both sides.
fn conflict_id(ours: &CommitId, theirs: &CommitId) -> SubtaskId {
    let digest = Sha256::digest(format!("{ours}\n{theirs}"));
    let hex: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    SubtaskId::new(format!("merge-{hex}"))
}
