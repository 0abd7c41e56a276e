//! One round's subtasks: start what is ready, take in what ended, merge, until nothing is left to do.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use crate::id::{CommitId, RoleName, SubtaskId};
use crate::journal::{Agent, AgentKind, Event, SubtaskStatus};
use crate::run::board::Notice;
use crate::run::round::drive::{ConflictNode, Drive};
use crate::run::round::merges::{Folded, Made};
use crate::run::round::schedule::Place;
use crate::run::work::accept::Accept;
use crate::run::work::first;
use crate::run::work::worker::{self, Begin, Job};
use crate::run::{Error, STOP_LIMIT};
use crate::workspace::Conflict;

impl Drive {
    /// Works the DAG until every node is in its final place and what is done is merged.
    pub async fn execute(&mut self) -> Result<(), Error> {
        let deadline = self.shared.deadline();
        loop {
            if self.shared.stop.cancel.is_cancelled() {
                return self.drain().await;
            }
            let settled = self.start_ready().await?;
            self.show_totals();
            if self.running.is_empty() {
                if let Some(merged) = settled {
                    self.merged = merged;
                    return Ok(());
                }
                // Nothing runs and nothing could be started: only a stop may lead here. Anything else
                // would let a tree be judged that does not hold what was done.
                if !self.stopped() {
                    self.halt("the schedule stood still by a fault of Wharf".to_owned());
                }
                self.end_waiting();
                return Ok(());
            }
            let cancel = self.shared.stop.cancel.clone();
            tokio::select! {
                Some(ended) = self.running.join_next() => self.take(ended).await?,
                () = cancel.cancelled() => {}
                () = sleep_until(deadline) => self.out_of_time(),
            }
        }
    }

    /// The run is told to stop: agents hear the cancel and end; whoever does not in time is dropped.
    async fn drain(&mut self) -> Result<(), Error> {
        self.stopped();
        let reason = self.shared.signal().map_or("a limit", |_| "a signal");
        self.shared
            .journal
            .append(Event::Stopping {
                reason: reason.to_owned(),
            })
            .await?;
        self.shared.tell(&Notice::Stopping {
            reason: reason.to_owned(),
        });
        let limit = Instant::now() + STOP_LIMIT;
        loop {
            tokio::select! {
                ended = self.running.join_next() => match ended {
                    Some(ended) => self.take(ended).await?,
                    None => break,
                },
                () = sleep_until(limit) => {
                    self.running.abort_all();
                    self.shared.warn("some agents did not stop in time and were dropped");
                    break;
                }
            }
        }
        self.end_waiting();
        Ok(())
    }

    fn end_waiting(&mut self) {
        for id in self.schedule.cancel_waiting() {
            let reason = "the run was stopped".to_owned();
            self.end_node(&id, SubtaskStatus::Cancelled, Some(reason));
        }
    }

    /// Starts what may start. Gives the merge of all that is done once every node ended and merged.
    async fn start_ready(&mut self) -> Result<Option<CommitId>, Error> {
        if self.stopped() {
            self.end_waiting();
            return Ok(None);
        }
        // What an earlier process finished makes others ready at once.
        loop {
            let mut settled = false;
            for id in self.schedule.ready() {
                if self.running.len() >= self.shared.plan.run.parallel {
                    return Ok(None);
                }
                settled |= self.start_one(&id).await?;
                if self.halted {
                    return Ok(None);
                }
            }
            if !settled {
                break;
            }
        }
        if !self.schedule.is_over() {
            Ok(None)
        } else {
            self.settle().await
        }
    }

    /// Starts a ready node, or what has to come before it; true when something was settled by that
    /// without anybody at work.
    async fn start_one(&mut self, id: &SubtaskId) -> Result<bool, Error> {
        let needs = self.nodes[id].subtask.needs.clone();
        let inputs = self.inputs(&needs);
        match self.fold(&inputs).await? {
            Folded::Commit(start) if self.absorb(id, &start).await? => Ok(true),
            Folded::Commit(start) => self.start_worker(id, start).await.map(|()| false),
            Folded::Found(conflict_id, conflict) => self.start_merger(conflict_id, *conflict).await,
            Folded::Waiting => Ok(false),
            Folded::Lost(by) => {
                self.block_by_conflict(id, by);
                Ok(true)
            }
        }
    }

    /// Merges what is done. What an unresolved conflict keeps out stays out, and is said.
    async fn settle(&mut self) -> Result<Option<CommitId>, Error> {
        let (mut merged, mut made) = (self.merged.clone(), Vec::new());
        for id in self.schedule.done() {
            let Some(done) = self.nodes.get(&id).and_then(|node| node.done.as_ref()) else {
                continue;
            };
            let both = [merged.clone(), done.snapshot.clone()];
            match self.fold_or_settle(&both, &mut made).await? {
                Folded::Commit(commit) => merged = commit,
                Folded::Found(..) | Folded::Waiting => return Ok(None),
                Folded::Lost(by) => {
                    let kept = "both versions are kept in the run";
                    self.fail(format!(
                        "{id} could not be merged: {by} was not resolved; {kept}"
                    ));
                }
            }
        }
        self.record(made).await?;
        Ok(Some(merged))
    }

    /// What is done when a limit or a fault stops the run is merged as far as nobody has to settle a
    /// conflict for it, so that it can be delivered as what it is. After a signal nothing is.
    pub async fn gather(&mut self) -> Result<(), Error> {
        if self.facts.interrupted.is_some() {
            return Ok(());
        }
        let mut merged = self.merged.clone();
        for id in self.schedule.done() {
            let Some(done) = self.nodes.get(&id).and_then(|node| node.done.as_ref()) else {
                continue;
            };
            let both = [merged.clone(), done.snapshot.clone()];
            match self.fold(&both).await? {
                Folded::Commit(commit) => merged = commit,
                Folded::Found(..) | Folded::Waiting | Folded::Lost(_) => self.shared.warn(format!(
                    "{id} is done and not in the result: a conflict was not resolved before the run \
                     stopped; `wharf diff {} {id}` shows it",
                    self.shared.id
                )),
            }
        }
        self.merged = merged;
        Ok(())
    }

    /// One pair's fold, again for every conflict on the way that is settled without anybody at work.
    async fn fold_or_settle(
        &mut self,
        both: &[CommitId],
        made: &mut Vec<Made>,
    ) -> Result<Folded, Error> {
        loop {
            let folded = self.merges.fold(&self.shared.store, both, made).await;
            match folded.map_err(|source| Error::Workspace { source })? {
                Folded::Found(id, conflict) => {
                    self.record(std::mem::take(made)).await?;
                    if !self.start_merger(id, *conflict).await? {
                        return Ok(Folded::Waiting);
                    }
                }
                Folded::Waiting => {
                    self.record(std::mem::take(made)).await?;
                    return Ok(Folded::Waiting);
                }
                other => return Ok(other),
            }
        }
    }

    /// The tree merged so far, then what is needed, in the DAG's order.
    fn inputs(&self, needs: &[SubtaskId]) -> Vec<CommitId> {
        let mut inputs = vec![self.merged.clone()];
        for id in self.schedule.done_of(needs) {
            let done = self.nodes[&id].done.as_ref();
            inputs.extend(done.map(|done| done.snapshot.clone()));
        }
        inputs
    }

    async fn fold(&mut self, inputs: &[CommitId]) -> Result<Folded, Error> {
        let mut made = Vec::new();
        let store = &self.shared.store;
        let folded = self.merges.fold(store, inputs, &mut made).await;
        self.record(made).await?;
        folded.map_err(|source| Error::Workspace { source })
    }

    /// Journals merges once all of them are on disk; one wait for the journal serves them all.
    async fn record(&self, made: Vec<Made>) -> Result<(), Error> {
        let commits: Vec<CommitId> = made.iter().map(|made| made.commit.clone()).collect();
        let inputs = made.iter().flat_map(|made| made.inputs.clone());
        let inputs: Vec<CommitId> = inputs.collect();
        self.flush(&commits, &inputs).await?;
        let last = made.len().saturating_sub(1);
        for (at, Made { inputs, commit }) in made.into_iter().enumerate() {
            self.shared.tell(&Notice::Merged {
                inputs: inputs.len(),
            });
            let merged = Event::Merged { inputs, commit };
            match at == last {
                true => self.shared.record(merged).await?,
                false => self.shared.note(merged),
            }
        }
        Ok(())
    }

    async fn flush(&self, made: &[CommitId], there: &[CommitId]) -> Result<(), Error> {
        let flushed = self.shared.store.flush(made, there).await;
        flushed.map_err(|source| Error::Workspace { source })
    }

    async fn start_worker(&mut self, id: &SubtaskId, start: CommitId) -> Result<(), Error> {
        let subtask = self.nodes[id].subtask.clone();
        let Some(role) = self.role(&subtask.role).cloned() else {
            self.refuse(id, format!("there is no role `{}`", subtask.role));
            return Ok(());
        };
        let image = match self.image(&role.sandbox).await {
            Ok(image) => image,
            Err(reason) => {
                self.halt(reason.clone());
                self.refuse(id, reason);
                return Ok(());
            }
        };
        let start = self.standing(&start).await?;
        let first = first::worker(self, &subtask, &role, &image, &start);
        self.schedule.set(id, Place::Running);
        let needs = subtask
            .needs
            .iter()
            .filter_map(|need| self.nodes.get(need)?.done.as_ref());
        let needs = needs.map(|done| done.span.clone()).collect();
        let accept = Accept::report(&start.commit);
        self.spawn(Job {
            who: Agent {
                round: self.round,
                subtask: id.clone(),
                role: role.name.clone(),
            },
            kind: AgentKind::Worker,
            role,
            image,
            start,
            first,
            accept,
            parent: self.shared.span.clone(),
            needs,
            begin: Begin::AsRecorded,
        });
        Ok(())
    }

    /// Gives a conflict to a merger; true when it is settled at once, for good or for bad.
    async fn start_merger(&mut self, id: SubtaskId, conflict: Conflict) -> Result<bool, Error> {
        let conflict = Arc::new(conflict);
        self.keep_conflict(&id, &conflict).await?;
        let name = RoleName::new("merger");
        let Some(role) = self.role(&name).cloned() else {
            self.lose(&id, "the plan has no role `merger`".to_owned());
            return Ok(true);
        };
        let who = Agent {
            round: self.round,
            subtask: id.clone(),
            role: name,
        };
        if let Some(end) = self.ended_before(&who, &conflict.start) {
            self.take_merger(end).await?;
            return Ok(true);
        }
        let image = match self.image(&role.sandbox).await {
            Ok(image) => image,
            Err(reason) => {
                self.lose(&id, reason);
                return Ok(true);
            }
        };
        let start = self.standing(&conflict.start).await?;
        let first = first::merger(self, &conflict, &role, &image, &start);
        let sides = self.nodes.values().filter_map(|node| node.done.as_ref());
        let sides = sides.filter(|done| {
            self.merges.holds(&conflict.ours, &done.snapshot)
                || self.merges.holds(&conflict.theirs, &done.snapshot)
        });
        let needs = sides.map(|done| done.span.clone()).collect();
        self.spawn(Job {
            who,
            kind: AgentKind::Merger,
            role,
            image,
            start,
            first,
            accept: Accept::merge(conflict),
            parent: self.shared.span.clone(),
            needs,
            begin: Begin::AsRecorded,
        });
        Ok(false)
    }

    /// Names both sides in the store, where they are kept whatever the merger does, and says it.
    async fn keep_conflict(
        &mut self,
        id: &SubtaskId,
        conflict: &Arc<Conflict>,
    ) -> Result<(), Error> {
        let files = conflict.files.iter();
        let files: Vec<String> = files.map(|f| crate::workspace::display(&f.path)).collect();
        self.shared.tell(&Notice::Conflict {
            subtask: id.to_string(),
            files: files.clone(),
        });
        let sides = [conflict.ours.clone(), conflict.theirs.clone()];
        self.flush(std::slice::from_ref(&conflict.start), &sides)
            .await?;
        let kept = self.shared.store.keep_conflict(id, conflict).await;
        kept.map_err(|source| Error::Workspace { source })?;
        let found = Event::ConflictFound {
            id: id.clone(),
            ours: conflict.ours.clone(),
            theirs: conflict.theirs.clone(),
            files,
            ours_by: first::alone(self, &conflict.ours, &conflict.theirs),
            theirs_by: first::alone(self, &conflict.theirs, &conflict.ours),
        };
        self.shared.record(found).await?;
        let node = ConflictNode {
            conflict: conflict.clone(),
            report: None,
            lost: None,
            dropped: Vec::new(),
            beyond: Vec::new(),
        };
        self.conflicts.insert(id.clone(), node);
        Ok(())
    }

    fn spawn(&mut self, job: Job) {
        self.fresh = true;
        self.running.spawn(worker::work(self.shared.clone(), job));
    }

    fn block_by_conflict(&mut self, id: &SubtaskId, by: SubtaskId) {
        let reason = format!("what it needs could not be merged: {by} was not resolved");
        self.shared.tell(&Notice::Blocked {
            subtask: id.to_string(),
            reason: reason.clone(),
        });
        self.end_node(id, SubtaskStatus::Blocked, Some(reason.clone()));
        self.set_place(id, Place::Blocked { by }, Some(reason));
    }

    fn show_totals(&self) {
        let (done, of) = self.schedule.count();
        self.shared
            .count(|totals| (totals.done, totals.of) = (done, of));
    }
}
