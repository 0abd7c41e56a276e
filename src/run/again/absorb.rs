//! What an earlier process finished is taken in as it was recorded: nobody works it again.

use crate::agent::{Outcome, Stop};
use crate::id::{CommitId, SubtaskId};
use crate::journal::{Agent, AgentEnd, SubtaskState, SubtaskStatus};
use crate::run::Error;
use crate::run::again::talk;
use crate::run::again::talk::Talk;
use crate::run::round::drive::{Done, Drive};
use crate::run::round::schedule::Place;
use crate::run::work::left_out::pair;
use crate::run::work::worker::End;
use crate::trace::Span;

impl Drive {
    /// An agent's end that is in the journal already. None while it is still to be worked.
    pub fn ended_before(&self, who: &Agent, start: &CommitId) -> Option<End> {
        let (end, talk) = self.shared.past.ended(who, start)?;
        Some(as_recorded(who, start, end, talk))
    }

    /// Takes in a node's worker that ended before; false when there is none.
    pub async fn absorb(&mut self, id: &SubtaskId, start: &CommitId) -> Result<bool, Error> {
        let Some(node) = self.nodes.get(id) else {
            return Ok(false);
        };
        let who = Agent {
            round: self.round,
            subtask: id.clone(),
            role: node.subtask.role.clone(),
        };
        let Some(end) = self.ended_before(&who, start) else {
            return Ok(false);
        };
        self.schedule.set(id, Place::Running);
        let known = self.shared.past.subtask(id).cloned();
        match known.filter(|known| known.round == node.round) {
            Some(known) if self.place_as_known(id, &known, &end) => {}
            // The journal was cut between the agent's end and what follows from it.
            _ => self.take_worker(end).await?,
        }
        Ok(true)
    }

    /// Puts a node where the journal has it, without a look at any file; false when the two records
    /// do not agree.
    fn place_as_known(&mut self, id: &SubtaskId, known: &SubtaskState, end: &End) -> bool {
        match (known.status, &end.outcome.ended, &known.snapshot) {
            (SubtaskStatus::Done, Ok(report), Some(snapshot)) if *snapshot == end.snapshot => {
                self.merges.know(snapshot, std::slice::from_ref(&end.start));
                if let Some(node) = self.nodes.get_mut(id) {
                    node.done = Some(Done {
                        snapshot: snapshot.clone(),
                        report: report.clone(),
                        span: Span::none(),
                        left_out: end.left_out.clone(),
                    });
                }
                self.set_place(id, Place::Done, None);
                true
            }
            (SubtaskStatus::Failed, _, _) => {
                self.set_place(id, Place::Failed, known.reason.clone());
                true
            }
            _ => false,
        }
    }
}

fn as_recorded(who: &Agent, start: &CommitId, end: &AgentEnd, talk: &Talk) -> End {
    let stop = || {
        let stop = end.stop.clone().map(serde_json::from_value::<Stop>);
        match stop {
            Some(Ok(stop)) => stop,
            // `is_final` lets no other one through.
            _ => Stop::Environment {
                reason: end.reason.clone().unwrap_or_default(),
            },
        }
    };
    debug_assert!(talk::is_final(end));
    End {
        who: who.clone(),
        kind: talk.kind,
        start: start.clone(),
        outcome: Outcome {
            ended: end.ended.clone().ok_or_else(stop),
            turns: end.turns,
            tool_calls: end.tool_calls,
            elapsed: std::time::Duration::try_from_secs_f64(end.seconds).unwrap_or_default(),
            results: talk.results(),
        },
        snapshot: end.snapshot.clone().unwrap_or_else(|| start.clone()),
        left_out: end.left_out.iter().map(|line| pair(line)).collect(),
        commands: end.commands.clone(),
        tokens: 0,
        cost_usd: None,
        span: Span::none(),
    }
}
