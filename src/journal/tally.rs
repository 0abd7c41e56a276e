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
