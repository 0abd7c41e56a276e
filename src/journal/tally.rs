//! What one conversation has come to so far: turns, calls, tokens, money, and its end.

use super::agent::{AgentEnd, AgentKind};
use super::egress::Egress;
use super::request::Usage;
use crate::id::CommitId;

/// One conversation so far.
#[derive(Clone, Debug, Default)]
pub struct AgentState {
    pub kind: Option<AgentKind>,
    pub model: String,
    pub start: Option<CommitId>,
    pub turns: u32,
    pub tool_calls: u32,
    /// Calls that were answered.
    pub calls: u64,
    /// What these and all attempts without an answer used.
    pub spent: Spent,
    /// Worst case of a request that went out and has no answer yet, in tokens.
    pub in_flight: u64,
    pub snapshot: Option<CommitId>,
    pub left_out: Vec<String>,
    pub egress: Egress,
    pub ended: Option<AgentEnd>,
}

impl AgentState {
    pub(super) fn end(&mut self, end: &AgentEnd) {
        self.turns = end.turns;
        self.tool_calls = end.tool_calls;
        self.in_flight = 0;
        if end.snapshot.is_some() {
            self.snapshot.clone_from(&end.snapshot);
        }
        self.left_out.clone_from(&end.left_out);
        self.ended = Some(end.clone());
    }

    pub(super) fn answered(&mut self, usage: Usage, cost: Option<f64>) {
        self.calls += 1;
        self.in_flight = 0;
        self.spent.add(usage, cost);
    }

    pub(super) fn failed(&mut self, usage: Option<Usage>, cost: Option<f64>) {
        self.in_flight = 0;
        if let Some(usage) = usage {
            self.spent.add(usage, cost);
        }
    }
}

/// Tokens and money of several attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub usage: Usage,
    /// Known only as long as that of every attempt is.
    pub cost_usd: Option<f64>,
    any: bool,
}

impl Spent {
    /// Adds one attempt.
    pub fn add(&mut self, usage: Usage, cost: Option<f64>) {
        self.cost_usd = match (self.any, self.cost_usd, cost) {
            (false, _, cost) => cost,
            (true, Some(so_far), Some(more)) => Some(so_far + more),
            (true, ..) => None,
        };
        self.any = true;
        self.usage.add(usage);
    }

    /// Adds several.
    pub fn join(&mut self, other: Self) {
        if other.any {
            self.add(other.usage, other.cost_usd);
        }
    }

    /// True when there was an attempt that used something.
    pub fn is_any(&self) -> bool {
        self.any
    }
}

/// Requests that were out when a process was killed: what they used is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub calls: u64,
    /// Their worst case.
    pub tokens: u64,
}

impl Lost {
    /// Adds what the agent had out, which is then out no more.
    pub(super) fn take(&mut self, agent: &mut AgentState) {
        let tokens = std::mem::take(&mut agent.in_flight);
        self.calls += u64::from(tokens > 0);
        self.tokens += tokens;
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
