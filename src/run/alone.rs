//! An agent that works while no subtask does: the coordinator, the verifier.

use tokio::time::{Instant, sleep_until, timeout_at};

use super::drive::Drive;
use super::worker::{self, End, Job};
use super::{Error, STOP_LIMIT};

impl Drive {
    /// Runs one agent; None when it was dropped because it did not stop in time or ended by a fault of ours.
    pub async fn alone(&mut self, job: Job) -> Result<Option<End>, Error> {
        if let Some(end) = self.ended_before(&job.who, &job.start.commit) {
            return Ok(Some(end));
        }
        self.fresh = true;
        let deadline = self.shared.deadline();
        let cancel = self.shared.stop.cancel.clone();
        self.running.spawn(worker::work(self.shared.clone(), job));
        let ended = tokio::select! {
            ended = self.running.join_next() => ended,
            () = cancel.cancelled() => self.stop_alone().await,
            () = sleep_until(deadline) => {
                self.out_of_time();
                self.stop_alone().await
            }
        };
        self.stopped();
        match ended {
            Some(Ok(end)) => Ok(Some(end)),
            Some(Err(error)) if error.is_panic() => {
                let fault = format!("an agent's task ended by a fault of Wharf: {error}");
                self.facts.environment.get_or_insert(fault);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    async fn stop_alone(&mut self) -> Option<Result<End, tokio::task::JoinError>> {
        let limit = Instant::now() + STOP_LIMIT;
        match timeout_at(limit, self.running.join_next()).await {
            Ok(ended) => ended,
            Err(_) => {
                self.running.abort_all();
                self.shared
                    .warn("an agent did not stop in time and was dropped");
                None
            }
        }
    }
}
