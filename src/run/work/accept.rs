//! May an ending call end its agent? What each kind of agent owes is checked here, and told back to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::agent::Stop;
use crate::id::{CommitId, RoleName};
use crate::plan::{self, Dag, Role};
use crate::run::judge::verdict;
use crate::run::judge::witness::Witness;
use crate::run::round::resolution::Resolving;
use crate::run::round::rounds::{self, Briefs};
use crate::run::work::desk::Desk;
use crate::run::work::emptied::Emptying;
use crate::workspace::Conflict;

/// How often a verdict is handed back before it is taken as it is.
const BOUNCES: u32 = 2;

/// What an agent's ending call must hold.
pub(in crate::run) enum Accept {
    Plan(Box<Planning>),
    Report(Emptying),
    Merge(Resolving),
    Verdict(Asked),
}

/// What a submitted plan is checked against.
#[derive(Clone)]
pub(in crate::run) struct PlanCheck {
    pub before: Option<Dag>,
    pub limit: usize,
    pub roles: BTreeMap<RoleName, Role>,
    /// The briefs of each round before.
    pub earlier: BTreeMap<u32, Briefs>,
}

/// The check, and how often a repetition was handed back.
pub(in crate::run) struct Planning {
    check: PlanCheck,
    repeated: AtomicU32,
}

/// What a plan is told that repeats another; also how a resumed run knows that it was told.
pub(in crate::run) const REPEATS: &str = "this plan asks for nothing but what the plan of round";

/// A plan that passed.
pub(in crate::run) struct Planned {
    pub dag: Dag,
    pub summary: String,
    pub criteria: Vec<String>,
    /// The round whose plan it repeats.
    pub repeats: Option<u32>,
}

/// The criteria a verdict must answer, and where its evidence may point.
pub(in crate::run) struct Asked {
    criteria: Vec<String>,
    witness: Arc<Witness>,
    bounces: AtomicU32,
}

impl Accept {
    pub fn plan(check: PlanCheck) -> Self {
        Self::Plan(Box::new(Planning {
            check,
            repeated: AtomicU32::new(0),
        }))
    }

    pub fn merge(conflict: Arc<Conflict>) -> Self {
        Self::Merge(Resolving::new(conflict))
    }

    /// A worker's report, whose work began at this commit.
    pub fn report(start: &CommitId) -> Self {
        Self::Report(Emptying::new(start.clone()))
    }

    pub fn verdict(criteria: Vec<String>, witness: Arc<Witness>) -> Self {
        Self::Verdict(Asked {
            criteria,
            witness,
            bounces: AtomicU32::new(0),
        })
    }

    /// So often an ending call was handed back before, in an earlier process, and so often because it
    /// repeated a plan.
    pub fn recall(&self, times: u32, repeated: u32) {
        match self {
            Self::Merge(resolving) => resolving.recall(times),
            Self::Verdict(asked) => asked.bounces.store(times, Ordering::SeqCst),
            Self::Plan(planning) => planning.repeated.store(repeated, Ordering::SeqCst),
            // What a worker was asked in an earlier process, it is asked again.
            Self::Report(_) => {}
        }
    }

    /// The inner `Err` holds what the agent has to mend.
    pub async fn check(&self, desk: &Desk, arguments: &Value) -> Result<Result<(), String>, Stop> {
        Ok(match self {
            Self::Report(_) | Self::Merge(_) if arguments["status"] != "done" => Ok(()),
            Self::Report(emptying) => match desk.hand_in().await? {
                Ok(()) => emptying.check(desk, arguments).await,
                refused => refused,
            },
            Self::Merge(resolving) => match desk.hand_in().await? {
                Ok(()) => resolving.check(desk, arguments).await,
                refused => refused,
            },
            Self::Plan(planning) => planning.check(arguments),
            Self::Verdict(asked) => asked.check(desk, arguments).await?,
        })
    }
}

impl PlanCheck {
    /// The DAG that these arguments of `submit_plan` lead to, or what is wrong with them.
    pub fn check(&self, arguments: &Value) -> Result<Planned, String> {
        let submitted = plan::submitted(arguments)?;
        let briefs: Briefs = submitted.subtasks.iter().map(rounds::brief).collect();
        let dag = match &self.before {
            None => Dag::new(submitted.subtasks, self.limit, &self.roles),
            Some(before) => before.extend(submitted.subtasks, self.limit, &self.roles),
        };
        let dag = dag.map_err(|error| error.to_string())?;
        Ok(Planned {
            repeats: rounds::repeats(&briefs, &self.earlier),
            dag,
            summary: submitted.summary,
            criteria: submitted.criteria,
        })
    }
}

impl Planning {
    /// A plan that repeats an earlier one is handed back once; then it is taken, and ends the run.
    fn check(&self, arguments: &Value) -> Result<(), String> {
        let planned = self.check.check(arguments)?;
        match planned.repeats {
            Some(round) if self.repeated.fetch_add(1, Ordering::SeqCst) == 0 => Err(format!(
                "{REPEATS} {round} asked for, and that failed. Say in other briefs what is to be done \
                 differently; a second repetition ends the run."
            )),
            _ => Ok(()),
        }
    }
}

impl Asked {
    async fn check(&self, desk: &Desk, arguments: &Value) -> Result<Result<(), String>, Stop> {
        let seen = self.witness.seen(arguments, desk.calls_seen()).await;
        // A store that cannot be read is nothing that a verifier could mend.
        let seen = seen.map_err(|error| Stop::Environment {
            reason: format!("the judged tree could not be read: {error}"),
        })?;
        Ok(match verdict::faults(arguments, &self.criteria, &seen) {
            Some(faults) if self.bounces.fetch_add(1, Ordering::SeqCst) < BOUNCES => Err(faults),
            _ => Ok(()),
        })
    }
}
