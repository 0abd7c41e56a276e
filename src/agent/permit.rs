//! A call before and after it runs: who consents to it, and what hooks make of it.

use tokio::time::Instant;

use super::Stop;
use super::turn::Course;
use super::work::Worker;
use crate::model;
use crate::tools::{Call, Output};

/// A call that may run.
#[derive(Clone, Debug, PartialEq)]
pub struct Permit {
    pub call: Call,
    /// What the agent is told with the result, such as what a hook changed.
    pub told: Option<String>,
}

impl Worker<'_> {
    /// The call as it may run; None: it was answered. The agent's own time stands still meanwhile.
    pub(super) async fn permitted(
        &mut self,
        course: &mut Course,
        made: &model::Call,
        call: Call,
    ) -> Option<Permit> {
        let since = Instant::now();
        let asking = self.checkpoint.permit(&self.tools, call.clone(), &made.id);
        let answer = tokio::select! {
            biased;
            () = self.checkpoint.cancel().cancelled() => Err(Stop::Cancelled),
            answer = asking => answer,
        };
        self.pause(since);
        let mut output = match answer {
            Ok(Ok(permit)) => return Some(permit),
            Ok(Err(refusal)) => refusal,
            Err(stop) => {
                let told = stop.to_string();
                course.stop = Some(stop);
                Output::refused("cancelled", told)
            }
        };
        if course.stop.is_none() {
            self.pace(course, &call, &mut output);
        }
        self.answer(course, made, Some(call), output);
        None
    }

    /// What hooks make of a result.
    pub(super) async fn looked_at(
        &mut self,
        course: &mut Course,
        made: &model::Call,
        permit: &Permit,
        output: Output,
    ) -> Output {
        let since = Instant::now();
        let looking = self.checkpoint.seen(&permit.call, &made.id, output);
        // First what came of the call: where no hook looks, a cancel costs no result, and a call that was
        // stopped by it is not made again.
        let looked = tokio::select! {
            biased;
            looked = looking => looked,
            () = self.checkpoint.cancel().cancelled() => Err(Stop::Cancelled),
        };
        self.pause(since);
        let mut output = match looked {
            Ok(output) => output,
            Err(stop) => {
                let told = stop.to_string();
                course.stop = Some(stop);
                return Output::refused("cancelled", told);
            }
        };
        if let Some(told) = &permit.told {
            output.text = format!("{}\n[{told}]", output.text.trim_end());
        }
        output
    }

    fn pause(&mut self, since: Instant) {
        let took = since.elapsed();
        self.paused += took;
        self.deadline += took;
    }
}
