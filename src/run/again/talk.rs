//! One conversation as the journal has it: what was answered, what came of it, how it ended.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::agent::{CallOutput, Stop, Way};
use crate::id::CommitId;
use crate::journal::{AgentEnd, AgentKind, Usage};
use crate::model::Key;
use crate::run::call::pot::Amount;

/// An agent's conversation so far.
#[derive(Clone, Debug)]
pub(in crate::run) struct Talk {
    pub kind: AgentKind,
    /// Where it began; at another commit it would be about other files.
    pub start: CommitId,
    /// Its answers in order.
    pub replies: Vec<Value>,
    /// What came of each, as far as that is known; at most as many as there are answers.
    pub turns: Vec<Turn>,
    /// What it was told when it went on in another process, by the turn at whose end.
    pub told: BTreeMap<u32, String>,
    /// The last of its own calls that was answered.
    pub calls: u32,
    /// Summaries of it that were paid for, by their number.
    pub summaries: BTreeMap<u32, Value>,
    /// How it was shortened, in order, each with the turns done by then.
    pub shortened: Vec<(u32, Way)>,
    pub ended: Option<AgentEnd>,
    /// Tokens of its attempts that came to no answer.
    pub unanswered: u64,
    /// The request that is out and has no answer, with what it may cost.
    out: Option<(u32, Amount)>,
    /// Time of earlier processes, and the first and the last sign of life in this one.
    before: Duration,
    alive: (Timestamp, Timestamp),
}

/// A turn whose results are known.
#[derive(Clone, Debug)]
pub(in crate::run) struct Turn {
    pub results: Vec<Value>,
    pub snapshot: Option<CommitId>,
    pub left_out: Vec<String>,
}

impl Talk {
    pub fn new(kind: AgentKind, start: CommitId, at: Timestamp) -> Self {
        Self {
            kind,
            start,
            replies: Vec::new(),
            turns: Vec::new(),
            told: BTreeMap::new(),
            calls: 0,
            summaries: BTreeMap::new(),
            shortened: Vec::new(),
            ended: None,
            unanswered: 0,
            out: None,
            before: Duration::ZERO,
            alive: (at, at),
        }
    }

    /// A sign of life.
    pub fn seen(&mut self, at: Timestamp) {
        self.alive.1 = at;
    }

    pub fn asked(&mut self, call: u32, worst: Amount) {
        self.out = Some((call, worst));
    }

    /// A request came to nothing. Its number is free again: a recording has no gap there.
    pub fn failed(&mut self, usage: Usage) {
        self.out = None;
        self.unanswered += usage.input_tokens + usage.output_tokens;
    }

    pub fn answered(&mut self, call: u32, reply: Value) {
        self.out = None;
        match call.checked_sub(Key::SUMMARIES) {
            Some(number) => drop(self.summaries.insert(number, reply)),
            None => {
                self.calls = self.calls.max(call);
                self.replies.push(reply);
            }
        }
    }

    /// Its conversation was shortened. What could be found out again is not kept.
    pub fn shorten(&mut self, after: u32, how: &Value) {
        let way = serde_json::from_value::<Way>(how.clone());
        if let Some(way) = way.ok().filter(Way::is_recorded) {
            self.shortened.push((after, way));
        }
    }

    pub fn turn(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    /// It goes on in another process.
    pub fn resumed(&mut self, after: u32, told: Option<String>, at: Timestamp) {
        self.alive = (at, at);
        self.ended = None;
        if let Some(told) = told {
            self.told.insert(after, told);
        }
    }

    /// It ended. What a finished one said word for word is not needed any more, but a verifier's
    /// calls are evidence.
    pub fn end(&mut self, end: AgentEnd) {
        self.ended = Some(end).filter(is_final);
        if self.ended.is_some() {
            self.replies.clear();
            self.summaries.clear();
            self.shortened.clear();
            if self.kind != AgentKind::Verifier {
                self.turns.clear();
            }
        }
    }

    /// The process that worked on it is gone; what its request may have cost is given back.
    pub fn cut(&mut self) -> Option<Amount> {
        self.before = self.spent();
        self.alive.0 = self.alive.1;
        self.out.take().map(|(_, worst)| worst)
    }

    /// The agent's time so far.
    pub fn spent(&self) -> Duration {
        let now = self.alive.1.duration_since(self.alive.0);
        self.before + Duration::try_from(now).unwrap_or_default()
    }

    /// Where its files stand after its last whole turn.
    pub fn snapshot(&self) -> &CommitId {
        let taken = self.turns.iter().rev().find_map(|t| t.snapshot.as_ref());
        taken.unwrap_or(&self.start)
    }

    /// The results that are known, as far as they can be read.
    pub fn results(&self) -> Vec<CallOutput> {
        let all = self.turns.iter().flat_map(|turn| &turn.results);
        all.filter_map(|value| serde_json::from_value(value.clone()).ok())
            .collect()
    }
}

/// True when nothing can be added to what an agent came to. One that was stopped with the run, or
/// that could not reach its model or its sandbox, is not done with its work.
pub(in crate::run) fn is_final(end: &AgentEnd) -> bool {
    if end.ended.is_some() {
        return true;
    }
    let stop = end.stop.clone().map(serde_json::from_value::<Stop>);
    match stop {
        Some(Ok(stop)) => match stop {
            Stop::AgentLimit { .. }
            | Stop::NoCall { .. }
            | Stop::HandedBack { .. }
            | Stop::NoReport { .. }
            | Stop::Stalled { .. }
            | Stop::Hook { .. } => true,
            Stop::RunLimit(_)
            | Stop::Model { .. }
            | Stop::ContextOverflow { .. }
            | Stop::Environment { .. }
            | Stop::Broken { .. }
            | Stop::Cancelled => false,
        },
        // How it stopped could not be told: that is no end to build on.
        Some(Err(_)) | None => false,
    }
}
