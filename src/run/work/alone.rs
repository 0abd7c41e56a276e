//! Agents that work while no subtask does: the coordinator, the verifiers.

use std::collections::{BTreeMap, VecDeque};

use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::id::SubtaskId;
use crate::run::round::drive::Drive;
use crate::run::work::worker::{self, Begin, End, Job};
use crate::run::{Error, STOP_LIMIT};

/// Those that ended, by their place.
type Ends = BTreeMap<SubtaskId, End>;

impl Drive {
    /// Runs one agent; None when it was dropped because it did not stop in time or ended by a fault of ours.
    pub async fn alone(&mut self, job: Job) -> Result<Option<End>, Error> {
        let mut ends = self.together(vec![job]).await?;
        Ok(ends.pop().flatten())
    }

    /// Runs agents beside each other, `run.parallel` at a time; their ends in the order of the jobs,
    /// each None as `alone` says it.
    pub async fn together(&mut self, jobs: Vec<Job>) -> Result<Vec<Option<End>>, Error> {
        let places: Vec<SubtaskId> = jobs.iter().map(|job| job.who.subtask.clone()).collect();
        let (mut ends, mut waiting) = (Ends::new(), VecDeque::new());
        for job in jobs {
            let known = match job.begin {
                Begin::AsRecorded => self.ended_before(&job.who, &job.start.commit),
                Begin::Anew => None,
            };
            match known {
                Some(end) => drop(ends.insert(job.who.subtask.clone(), end)),
                None => waiting.push_back(job),
            }
        }
        let deadline = self.shared.deadline();
        let cancel = self.shared.stop.cancel.clone();
        loop {
            while self.running.len() < self.shared.plan.run.parallel
                && let Some(job) = waiting.pop_front()
            {
                self.fresh = true;
                self.running.spawn(worker::work(self.shared.clone(), job));
            }
            if self.running.is_empty() {
                break;
            }
            tokio::select! {
                Some(ended) = self.running.join_next() => self.take_alone(ended, &mut ends),
                () = cancel.cancelled() => break,
                () = sleep_until(deadline) => {
                    self.out_of_time();
                    break;
                }
            }
        }
        self.stop_together(&mut ends).await;
        self.stopped();
        Ok(places.iter().map(|place| ends.remove(place)).collect())
    }

    fn take_alone(&mut self, ended: Result<End, JoinError>, ends: &mut Ends) {
        match ended {
            Ok(end) => drop(ends.insert(end.who.subtask.clone(), end)),
            Err(error) if error.is_panic() => {
                let fault = format!("an agent's task ended by a fault of Wharf: {error}");
                self.facts.environment.get_or_insert(fault);
            }
            Err(_) => {}
        }
    }

    /// Whoever still runs hears the cancel; who does not end in time is dropped.
    async fn stop_together(&mut self, ends: &mut Ends) {
        let limit = Instant::now() + STOP_LIMIT;
        loop {
            match timeout_at(limit, self.running.join_next()).await {
                Ok(Some(ended)) => self.take_alone(ended, ends),
                Ok(None) => return,
                Err(_) => {
                    self.running.abort_all();
                    self.shared
                        .warn("an agent did not stop in time and was dropped");
                    return;
                }
            }
        }
    }
}
