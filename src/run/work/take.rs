//! What an agent's end means for the DAG: its node's place, what it blocks, what it says of the run.

use std::collections::BTreeMap;

use crate::agent::Stop;
use crate::id::{CommitId, SubtaskId};
use crate::journal::{AgentKind, Event, SubtaskStatus};
use crate::run::Error;
use crate::run::board::Notice;
use crate::run::round::drive::{Done, Drive};
use crate::run::round::schedule::Place;
use crate::run::work::worker::End;
use crate::run::work::{emptied, ends, salvage};

impl Drive {
    pub async fn take(&mut self, ended: Result<End, tokio::task::JoinError>) -> Result<(), Error> {
        match ended {
            Ok(end) if end.kind == AgentKind::Merger => self.take_merger(end).await,
            Ok(end) => self.take_worker(end).await,
            // The node is not known any more; a panic is a fault of ours and ends the run.
            Err(error) => {
                self.halt(format!(
                    "an agent's task ended by a fault of Wharf: {error}"
                ));
                Ok(())
            }
        }
    }

    pub async fn take_worker(&mut self, end: End) -> Result<(), Error> {
        let id = end.who.subtask.clone();
        self.merges
            .know(&end.snapshot, std::slice::from_ref(&end.start));
        let changed = self.changed(&end.start, &end.snapshot).await?;
        let accident = emptied::accident(&self.shared.store, &end.start, &end.snapshot).await;
        let accident = accident.map_err(|source| Error::Workspace { source })?;
        let mut verdict = ends::of(&end.outcome.ended, accident);
        if let (Err(_), ends::End::Failed(reason)) = (&end.outcome.ended, &mut verdict) {
            *reason = salvage::with_facts(std::mem::take(reason), &changed, &end.commands);
        }
        if let Err(stop) = &end.outcome.ended {
            self.note_stop(stop);
        }
        self.tell_end(&end, &verdict, changed.len());
        let (status, reason) = match verdict {
            ends::End::Done(report) => {
                let done = Done {
                    snapshot: end.snapshot.clone(),
                    report,
                    span: end.span,
                    left_out: end.left_out,
                };
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.done = Some(done);
                }
                (SubtaskStatus::Done, None)
            }
            ends::End::Failed(reason) => (SubtaskStatus::Failed, Some(reason)),
            ends::End::Cancelled => (
                SubtaskStatus::Cancelled,
                Some("the run was stopped".to_owned()),
            ),
        };
        self.journal_end(&id, status, reason.clone(), Some(end.snapshot), changed);
        let place = match status {
            SubtaskStatus::Done => Place::Done,
            SubtaskStatus::Cancelled => Place::Cancelled,
            SubtaskStatus::Failed | SubtaskStatus::Blocked => Place::Failed,
        };
        self.set_place(&id, place, reason);
        Ok(())
    }

    pub async fn take_merger(&mut self, end: End) -> Result<(), Error> {
        let id = end.who.subtask.clone();
        if let Err(stop) = &end.outcome.ended {
            self.note_stop(stop);
        }
        let changed = self.changed(&end.start, &end.snapshot).await?;
        let verdict = ends::of(&end.outcome.ended, None);
        self.tell_end(&end, &verdict, changed.len());
        match verdict {
            ends::End::Done(report) => {
                self.merges
                    .know(&end.snapshot, std::slice::from_ref(&end.start));
                match self.take_resolution(&id, &end.snapshot).await? {
                    Ok(()) => {}
                    Err(left) => {
                        self.lose(&id, left);
                        return Ok(());
                    }
                }
                if let Some(node) = self.conflicts.get_mut(&id) {
                    node.report = Some(report);
                }
                self.journal_end(&id, SubtaskStatus::Done, None, Some(end.snapshot), changed);
            }
            ends::End::Failed(reason) => self.lose(&id, reason),
            ends::End::Cancelled => self.lose(&id, "the run was stopped".to_owned()),
        }
        Ok(())
    }

    pub fn lose(&mut self, id: &SubtaskId, reason: String) {
        self.merges.lose(id);
        let reason = format!("{reason}; {}", self.kept(id));
        if let Some(node) = self.conflicts.get_mut(id) {
            node.lost = Some(reason.clone());
        }
        self.fail(format!("{id} was not resolved: {reason}"));
        self.journal_end(id, SubtaskStatus::Failed, Some(reason), None, Vec::new());
    }

    pub fn refuse(&mut self, id: &SubtaskId, reason: String) {
        self.end_node(id, SubtaskStatus::Failed, Some(reason.clone()));
        self.set_place(id, Place::Failed, Some(reason));
    }

    pub fn end_node(&mut self, id: &SubtaskId, status: SubtaskStatus, reason: Option<String>) {
        self.journal_end(id, status, reason, None, Vec::new());
    }

    /// Moves a node and ends what is blocked by that.
    pub fn set_place(&mut self, id: &SubtaskId, place: Place, reason: Option<String>) {
        if matches!(place, Place::Failed) {
            let reason = reason.unwrap_or_default();
            self.fail(format!("{id} failed: {reason}"));
            if let Some(node) = self.nodes.get_mut(id) {
                node.failed = Some(reason);
            }
        }
        for (blocked, by) in self.schedule.set(id, place) {
            let reason = format!("needs {by}, which is not done");
            if let Some(node) = self.nodes.get_mut(&blocked) {
                node.failed = Some(reason.clone());
            }
            self.shared.tell(&Notice::Blocked {
                subtask: blocked.to_string(),
                reason: reason.clone(),
            });
            self.end_node(&blocked, SubtaskStatus::Blocked, Some(reason));
        }
    }

    pub fn journal_end(
        &self,
        id: &SubtaskId,
        status: SubtaskStatus,
        reason: Option<String>,
        snapshot: Option<CommitId>,
        changed_files: Vec<String>,
    ) {
        let round = self.nodes.get(id).map_or(self.round, |node| node.round);
        let event = Event::SubtaskEnded {
            id: id.clone(),
            round,
            status,
            reason,
            snapshot,
            changed_files,
        };
        // It follows from the agent's own end, which is on disk; whatever is built on it is written after it.
        self.shared.note(event);
    }

    /// What an agent's stop says of the whole run.
    pub fn note_stop(&mut self, stop: &Stop) {
        match stop {
            Stop::Model { reason, hint } => {
                let said = if hint.is_empty() {
                    reason.clone()
                } else {
                    format!("{reason}; {hint}")
                };
                self.halt(said);
            }
            // One agent can break its own sandbox; others go on.
            Stop::Environment { reason } => {
                self.facts.environment.get_or_insert(reason.clone());
            }
            Stop::Broken { .. } => {
                self.facts.environment.get_or_insert(stop.to_string());
            }
            Stop::RunLimit(limit) => {
                self.facts.limited.get_or_insert_with(|| limit.clone());
                self.halted = true;
            }
            _ => {}
        }
    }

    /// Adds a reason why the round failed.
    pub fn fail(&mut self, reason: String) {
        if !self.facts.failed.contains(&reason) {
            self.facts.failed.push(reason);
        }
    }

    /// Paths that differ, for display.
    pub async fn changed(&self, from: &CommitId, to: &CommitId) -> Result<Vec<String>, Error> {
        if from == to {
            return Ok(Vec::new());
        }
        let differences = self.shared.store.differences(from, to).await;
        let differences = differences.map_err(|source| Error::Workspace { source })?;
        Ok(differences
            .iter()
            .map(|d| crate::workspace::display(&d.path))
            .collect())
    }

    fn tell_end(&self, end: &End, verdict: &ends::End, changed_files: usize) {
        let (status, reason) = match verdict {
            ends::End::Done(_) => ("done", None),
            ends::End::Failed(reason) => ("failed", Some(reason.clone())),
            ends::End::Cancelled => ("cancelled", None),
        };
        self.shared.tell(&Notice::AgentEnded {
            agent: end.who.subtask.to_string(),
            role: end.who.role.to_string(),
            status: status.to_owned(),
            reason,
            changed_files,
            turns: end.outcome.turns,
            tokens: end.tokens,
            cost_usd: end.cost_usd,
            seconds: end.outcome.elapsed.as_secs_f64(),
        });
    }

    /// Reports of done subtasks by id, for prompts and the summary.
    pub fn reports(&self) -> BTreeMap<&SubtaskId, &Done> {
        self.nodes
            .iter()
            .filter_map(|(id, node)| Some((id, node.done.as_ref()?)))
            .collect()
    }
}
