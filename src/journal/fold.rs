//! Events become a state: pure, total, and the same for a whole journal and for a prefix of one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::egress::Egress;
use super::event::{
    Agent, AgentEnd, AgentKind, CommandRun, Event, RunStarted, Subtask, SubtaskStatus, Usage,
};
use super::read::Line;
use crate::id::{CommitId, SubtaskId, TreeId};

/// Everything a journal says of its run.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub started: Option<(Timestamp, RunStarted)>,
    pub last: Option<Timestamp>,
    pub base: Option<Base>,
    pub round: u32,
    pub plans: Vec<Plan>,
    pub agents: BTreeMap<Agent, AgentState>,
    pub subtasks: BTreeMap<SubtaskId, SubtaskState>,
    pub conflicts: Vec<Conflict>,
    pub merges: Vec<(Vec<CommitId>, CommitId)>,
    pub acceptance: Option<Acceptance>,
    pub verdict: Option<(u32, Value)>,
    pub summary: Option<String>,
    pub warnings: Vec<String>,
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

/// One conversation so far.
#[derive(Clone, Debug, Default)]
pub struct AgentState {
    pub kind: Option<AgentKind>,
    pub model: String,
    pub start: Option<CommitId>,
    pub turns: u32,
    pub tool_calls: u32,
    pub usage: Usage,
    pub calls: u64,
    pub cost_usd: Option<f64>,
    /// Worst case of a request that went out and has no answer yet, in tokens.
    pub in_flight: u64,
    pub snapshot: Option<CommitId>,
    pub left_out: Vec<String>,
    pub egress: Egress,
    pub ended: Option<AgentEnd>,
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
}

#[derive(Clone, Debug)]
pub struct Acceptance {
    pub round: u32,
    pub tree: TreeId,
    pub commands: Vec<CommandRun>,
    pub protected_changes: Vec<String>,
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
                let state = self.agents.entry(agent.clone()).or_default();
                state.kind = Some(*kind);
                state.model.clone_from(model);
                state.start = Some(start.clone());
            }
            Event::ModelAsked {
                agent,
                reserved_tokens,
                ..
            } => {
                self.agents.entry(agent.clone()).or_default().in_flight = *reserved_tokens;
            }
            Event::ModelFailed { agent, .. } => {
                self.agents.entry(agent.clone()).or_default().in_flight = 0;
            }
            Event::ModelAnswered {
                agent,
                usage,
                cost_usd,
                ..
            } => {
                self.agents
                    .entry(agent.clone())
                    .or_default()
                    .answered(*usage, *cost_usd);
            }
            Event::TurnDone {
                agent,
                turn,
                results,
                snapshot,
                left_out,
            } => {
                let state = self.agents.entry(agent.clone()).or_default();
                state.turns = *turn;
                state.tool_calls += results.len() as u32;
                if snapshot.is_some() {
                    state.snapshot.clone_from(snapshot);
                }
                state.left_out.clone_from(left_out);
            }
            Event::Egress { agent, step, .. } => {
                self.agents
                    .entry(agent.clone())
                    .or_default()
                    .egress
                    .take(step);
            }
            Event::AgentEnded { agent, end } => {
                self.agents.entry(agent.clone()).or_default().end(end);
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
            } => {
                self.acceptance = Some(Acceptance {
                    round: *round,
                    tree: tree.clone(),
                    commands: commands.clone(),
                    protected_changes: protected_changes.clone(),
                });
            }
            Event::VerdictGiven { round, verdict } => {
                self.verdict = Some((*round, verdict.clone()))
            }
            other => self.take_rest(other),
        }
    }

    fn take_rest(&mut self, event: &Event) {
        match event {
            Event::Merged { inputs, commit } => self.merges.push((inputs.clone(), commit.clone())),
            Event::ConflictFound {
                id,
                ours,
                theirs,
                files,
            } => self.conflicts.push(Conflict {
                id: id.clone(),
                ours: ours.clone(),
                theirs: theirs.clone(),
                files: files.clone(),
            }),
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
            Event::Applied { paths, refused } => {
                self.applied = Some((paths.clone(), refused.clone()));
            }
            _ => {}
        }
    }

    /// Tokens, money and calls of the whole run.
    pub fn totals(&self) -> (Usage, Option<f64>, u64) {
        let mut total = AgentState::default();
        let mut unknown = false;
        for agent in self.agents.values().filter(|a| a.calls > 0) {
            unknown |= agent.cost_usd.is_none();
            total.calls += agent.calls;
            total.usage.add(agent.usage);
            total.cost_usd = Some(total.cost_usd.unwrap_or(0.0) + agent.cost_usd.unwrap_or(0.0));
        }
        let cost = if unknown { None } else { total.cost_usd };
        (total.usage, cost, total.calls)
    }

    /// The planned nodes of every round with the round they came in, in order.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &Subtask)> {
        self.plans
            .iter()
            .flat_map(|plan| plan.subtasks.iter().map(|s| (plan.round, s)))
    }
}

impl AgentState {
    fn end(&mut self, end: &AgentEnd) {
        self.turns = end.turns;
        self.tool_calls = end.tool_calls;
        self.in_flight = 0;
        if end.snapshot.is_some() {
            self.snapshot.clone_from(&end.snapshot);
        }
        self.left_out.clone_from(&end.left_out);
        self.ended = Some(end.clone());
    }

    fn answered(&mut self, usage: Usage, cost: Option<f64>) {
        // A cost is known only as long as that of every call is.
        self.cost_usd = match (self.calls, self.cost_usd, cost) {
            (0, _, cost) => cost,
            (_, Some(so_far), Some(more)) => Some(so_far + more),
            _ => None,
        };
        self.calls += 1;
        self.in_flight = 0;
        self.usage.add(usage);
    }
}

impl Usage {
    /// Adds another call's tokens; one estimate makes the sum an estimate.
    pub fn add(&mut self, other: Self) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cached_tokens += other.cached_tokens;
        self.estimated |= other.estimated;
    }
}
