//! Events become a state: pure, total, and the same for a whole journal and for a prefix of one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::agent::Agent;
use super::checks::{CommandRun, Progress, WithBase};
use super::event::{Event, RunStarted, Subtask, SubtaskStatus};
use super::loss::Dropped;
use super::read::Line;
use super::request::Usage;
use super::tally::{AgentState, Lost, Spent};
use crate::id::{CommitId, SubtaskId, TreeId};

/// Everything a journal says of its run.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub started: Option<(Timestamp, RunStarted)>,
    pub last: Option<Timestamp>,
    /// Time in which no process worked on the run: between the last line of one and the first of the next.
    pub idle: jiff::SignedDuration,
    pub base: Option<Base>,
    pub round: u32,
    pub plans: Vec<Plan>,
    pub agents: BTreeMap<Agent, AgentState>,
    pub subtasks: BTreeMap<SubtaskId, SubtaskState>,
    pub conflicts: Vec<Conflict>,
    pub merges: Vec<(Vec<CommitId>, CommitId)>,
    pub acceptance: Option<Acceptance>,
    pub verdict: Option<(u32, Value)>,
    /// How far each round came.
    pub progress: BTreeMap<u32, Progress>,
    pub summary: Option<String>,
    pub warnings: Vec<String>,
    /// What was out when a process was killed, over all of them; in no agent's figures.
    pub lost: Lost,
    pub stopping: Option<String>,
    pub delivered: Option<Delivered>,
    pub ended: Option<Ended>,
    pub applied: Option<(Vec<String>, Vec<String>)>,
}

#[derive(Clone, Debug)]
pub struct Base {
    pub commit: CommitId,
    pub tree: TreeId,
    pub details: Value,
}

/// A DAG as it was accepted.
#[derive(Clone, Debug)]
pub struct Plan {
    pub round: u32,
    pub summary: String,
    pub criteria: Vec<String>,
    pub subtasks: Vec<Subtask>,
}

#[derive(Clone, Debug)]
pub struct SubtaskState {
    pub round: u32,
    pub status: SubtaskStatus,
    pub reason: Option<String>,
    pub snapshot: Option<CommitId>,
    pub changed_files: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Conflict {
    pub id: SubtaskId,
    pub ours: CommitId,
    pub theirs: CommitId,
    pub files: Vec<String>,
    /// The subtasks that are on one side alone.
    pub ours_by: Vec<SubtaskId>,
    pub theirs_by: Vec<SubtaskId>,
    /// The merger's snapshot that was taken for the merge.
    pub resolved: Option<CommitId>,
    /// What its resolution holds no more, and what it changed beyond the files in conflict.
    pub dropped: Vec<Dropped>,
    pub beyond: Vec<String>,
    /// What it removed of the latter.
    pub removed: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Acceptance {
    pub round: u32,
    pub tree: TreeId,
    pub commands: Vec<CommandRun>,
    pub protected_changes: Vec<String>,
    pub with_base_tests: Option<WithBase>,
    pub at_base: Vec<CommandRun>,
}

#[derive(Clone, Debug)]
pub struct Delivered {
    pub branch: Option<String>,
    pub patch: Option<String>,
    pub commit: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Ended {
    pub status: String,
    pub exit_code: i32,
    pub reason: String,
    pub result: Value,
}

impl State {
    /// The state that these lines lead to.
    pub fn of(lines: &[Line]) -> Self {
        let mut state = Self::default();
        for line in lines {
            state.take(line);
        }
        state
    }

    /// Takes one line more.
    pub fn take(&mut self, line: &Line) {
        if let (Event::Resumed { .. }, Some(last)) = (&line.event, self.last) {
            self.idle += line.at.duration_since(last).max(jiff::SignedDuration::ZERO);
        }
        self.last = Some(line.at);
        match &line.event {
            Event::RunStarted(started) => self.started = Some((line.at, started.clone())),
            Event::BaseTaken {
                commit,
                tree,
                details,
                ..
            } => {
                self.base = Some(Base {
                    commit: commit.clone(),
                    tree: tree.clone(),
                    details: details.clone(),
                });
            }
            Event::RoundStarted { round } => self.round = *round,
            Event::PlanAccepted {
                round,
                summary,
                criteria,
                subtasks,
            } => self.plans.push(Plan {
                round: *round,
                summary: summary.clone(),
                criteria: criteria.clone(),
                subtasks: subtasks.clone(),
            }),
            other => self.take_agent(other),
        }
    }

    fn take_agent(&mut self, event: &Event) {
        match event {
            Event::AgentStarted {
                agent,
                kind,
                model,
                start,
            } => {
                let state = self.agent(agent);
                state.kind = Some(*kind);
                state.model.clone_from(model);
                state.start = Some(start.clone());
                // A second beginning is a conversation of its own; what the first cost stays.
                (state.turns, state.tool_calls) = (0, 0);
                (state.snapshot, state.ended) = (None, None);
                state.left_out.clear();
            }
            Event::AgentResumed { agent, .. } => {
                self.agent(agent).ended = None;
            }
            Event::AgentEnded { agent, end } => {
                self.agent(agent).end(end);
            }
            other => self.take_turn(other),
        }
    }

    fn take_turn(&mut self, event: &Event) {
        match event {
            Event::ModelAsked {
                agent,
                reserved_tokens,
                ..
            } => {
                self.agent(agent).in_flight = *reserved_tokens;
            }
            Event::ModelFailed {
                agent,
                usage,
                cost_usd,
                ..
            } => {
                self.agent(agent).failed(*usage, *cost_usd);
            }
            Event::ModelAnswered {
                agent,
                usage,
                cost_usd,
                ..
            } => {
                self.agent(agent).answered(*usage, *cost_usd);
            }
            Event::TurnDone {
                agent,
                turn,
                results,
                snapshot,
                left_out,
            } => {
                let state = self.agent(agent);
                state.turns = *turn;
                state.tool_calls += results.len() as u32;
                if snapshot.is_some() {
                    state.snapshot.clone_from(snapshot);
                }
                state.left_out.clone_from(left_out);
            }
            Event::Egress { agent, step, .. } => {
                self.agent(agent).egress.take(step);
            }
            other => self.take_end(other),
        }
    }

    fn take_end(&mut self, event: &Event) {
        match event {
            Event::SubtaskEnded {
                id,
                round,
                status,
                reason,
                snapshot,
                changed_files,
            } => {
                let ended = SubtaskState {
                    round: *round,
                    status: *status,
                    reason: reason.clone(),
                    snapshot: snapshot.clone(),
                    changed_files: changed_files.clone(),
                };
                self.subtasks.insert(id.clone(), ended);
            }
            Event::AcceptanceRan {
                round,
                tree,
                commands,
                protected_changes,
                with_base_tests,
                at_base,
            } => {
                self.acceptance = Some(Acceptance {
                    round: *round,
                    tree: tree.clone(),
                    commands: commands.clone(),
                    protected_changes: protected_changes.clone(),
                    with_base_tests: with_base_tests.clone(),
                    at_base: at_base.clone(),
                });
            }
            Event::VerdictGiven { round, verdict } => {
                self.verdict = Some((*round, verdict.clone()))
            }
            Event::RoundEnded {
                round, progress, ..
            } => {
                self.progress.insert(*round, progress.clone());
            }
            other => self.take_rest(other),
        }
    }

    fn take_conflict(&mut self, event: &Event) {
        match event {
            Event::ConflictFound {
                id,
                ours,
                theirs,
                files,
                ours_by,
                theirs_by,
            } => self.conflicts.push(Conflict {
                id: id.clone(),
                ours: ours.clone(),
                theirs: theirs.clone(),
                files: files.clone(),
                ours_by: ours_by.clone(),
                theirs_by: theirs_by.clone(),
                resolved: None,
                dropped: Vec::new(),
                beyond: Vec::new(),
                removed: Vec::new(),
            }),
            Event::ConflictResolved {
                id,
                commit,
                dropped,
                beyond,
                removed,
            } => {
                let found = self.conflicts.iter_mut().filter(|found| found.id == *id);
                found.for_each(|found| {
                    found.resolved = Some(commit.clone());
                    found.dropped.clone_from(dropped);
                    found.beyond.clone_from(beyond);
                    found.removed.clone_from(removed);
                });
            }
            _ => {}
        }
    }

    fn take_rest(&mut self, event: &Event) {
        match event {
            Event::Merged { inputs, commit } => self.merges.push((inputs.clone(), commit.clone())),
            Event::ConflictFound { .. } | Event::ConflictResolved { .. } => {
                self.take_conflict(event);
            }
            Event::Summarised { text, .. } => self.summary = Some(text.clone()),
            Event::Warned { text } => self.warnings.push(text.clone()),
            Event::Stopping { reason } => self.stopping = Some(reason.clone()),
            Event::Delivered {
                branch,
                patch,
                commit,
            } => {
                self.delivered = Some(Delivered {
                    branch: branch.clone(),
                    patch: patch.clone(),
                    commit: commit.clone(),
                });
            }
            Event::RunEnded {
                status,
                exit_code,
                reason,
                result,
            } => {
                self.ended = Some(Ended {
                    status: status.clone(),
                    exit_code: *exit_code,
                    reason: reason.clone(),
                    result: result.clone(),
                });
            }
            Event::Resumed { .. } => {
                (self.ended, self.stopping) = (None, None);
                let agents = self.agents.values_mut();
                agents.for_each(|agent| self.lost.take(agent));
            }
            Event::Applied { paths, refused } => {
                self.applied = Some((paths.clone(), refused.clone()));
            }
            _ => {}
        }
    }

    /// Seconds in which the run was worked on.
    pub fn seconds(&self) -> f64 {
        let Some(((from, _), to)) = self.started.as_ref().zip(self.last) else {
            return 0.0;
        };
        let whole = to.duration_since(*from) - self.idle;
        whole.as_secs_f64().max(0.0)
    }

    /// What is known of an agent, from its first sign of life on.
    fn agent(&mut self, agent: &Agent) -> &mut AgentState {
        self.agents.entry(agent.clone()).or_default()
    }

    /// Tokens and money of the whole run, attempts without an answer included, and its answered calls.
    pub fn totals(&self) -> (Usage, Option<f64>, u64) {
        let mut total = Spent::default();
        self.agents.values().for_each(|a| total.join(a.spent));
        let calls = self.agents.values().map(|a| a.calls).sum();
        (total.usage, total.cost_usd, calls)
    }

    /// The planned nodes of every round with the round they came in, in order.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &Subtask)> {
        self.plans
            .iter()
            .flat_map(|plan| plan.subtasks.iter().map(|s| (plan.round, s)))
    }
}
