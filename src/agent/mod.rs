//! One agent's conversation, from its first message to the call that ends it.
//!
//! Owns: the turn, the history and its elision, stop reasons, the first message.
//! Takes: an `Assignment`, and a `Checkpoint` through which everything outside is reached.
//! Gives: an `Outcome`: the ending tool's arguments or the reason it stopped.
//! Never: a container, HTTP or git.
//!
//! Every reply leads to exactly one `Turn`. What an agent is told beside its tool results either stands
//! in the last of them or follows from the reply alone, so a conversation is rebuilt from replies and
//! results and needs no record of its own but what it was told when it went on in another process.

mod barren;
mod compaction;
mod effort;
mod ending;
pub mod first;
pub mod history;
mod instructions;
mod leak;
mod limits;
mod permit;
mod reachable;
mod report;
mod stall;
mod summary;
mod turn;
mod words;
mod work;

pub use compaction::{Shortened, Way};
pub use effort::effort;
pub use permit::Permit;
pub use reachable::Reachable;
pub use summary::messages as summary;
pub use words::bare;
pub use work::work;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{model, plan, sandbox, tools, trace};

/// Everything one agent is given.
pub struct Assignment {
    pub role: plan::Role,
    /// The ending tool its role must call.
    pub ending: tools::Ending,
    /// The system message: the role's prompt.
    pub system: String,
    /// The first user message, whole.
    pub first: String,
    pub tools: tools::Set,
    pub compaction: plan::Compaction,
    /// Tokens a request and its reply may hold together.
    pub context_window: u64,
    /// Round, subtask and role of every request; `call` is counted by the loop.
    pub key: model::Key,
    /// Replies to go on from, in order; empty for a fresh agent.
    pub past: Vec<Past>,
    /// How an earlier process shortened the conversation, each with the turns that were done before.
    pub shortened: Vec<(u32, Way)>,
    /// Tokens that a request for a summary and its reply may hold together.
    pub summary_window: u64,
    /// What an earlier process used of its time.
    pub spent: Duration,
    /// The agent's span: turns put theirs under it.
    pub span: trace::Span,
}

/// A reply of an earlier process, with what came of it.
#[derive(Clone, Debug)]
pub struct Past {
    pub reply: model::Reply,
    /// None: its calls have no recorded result and are run again.
    pub results: Option<Vec<CallOutput>>,
    /// What `Checkpoint::turn` gave back.
    pub left_out: Vec<String>,
    /// What the agent was told after this turn when it went on in another process.
    pub told: Option<String>,
}

/// What an agent's loop reaches of the run: model, sandbox, snapshots, the live board.
pub trait Checkpoint: Send + Sync {
    /// One logical model call: gate, pot, retries, journal and span included. `call` counts from 1.
    fn ask<'a>(
        &'a self,
        request: model::Request,
        span: &'a trace::Span,
    ) -> BoxFuture<'a, Result<model::Reply, Stop>>;

    /// One logical call for the `number`th summary of the conversation, on the same pot; one that an
    /// earlier process paid for is given again.
    fn condense<'a>(
        &'a self,
        number: u32,
        request: model::Request,
        span: &'a trace::Span,
    ) -> BoxFuture<'a, Result<model::Reply, Stop>>;

    /// The conversation was shortened: for the journal.
    fn shortened<'a>(&'a self, how: &'a Shortened) -> BoxFuture<'a, Result<(), Stop>>;

    /// The sandbox as it is now.
    fn sandbox(&self) -> Arc<dyn sandbox::Sandbox>;

    /// The sandbox broke: reopen it at the last snapshot. Gives what to tell the agent, or the stop
    /// that ends it when the number of reopenings is used up.
    fn reopen<'a>(&'a self, broken: sandbox::Error) -> BoxFuture<'a, Result<String, Stop>>;

    /// A turn's calls ran (none, when the reply had no call). Hears the cancel by itself. Snapshots the tree when one of them may have written, then journals the
    /// results. Returns what was left out of the snapshot, for the agent to know; may be empty.
    fn turn<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Vec<String>, Stop>>;

    /// May this call run, and as what? Hooks and whoever consents stand behind it. An inner `Err` is what
    /// the agent is told, an outer one ends it.
    fn permit<'a>(
        &'a self,
        tools: &'a tools::Set,
        call: tools::Call,
        call_id: &'a str,
    ) -> BoxFuture<'a, Result<Result<Permit, tools::Output>, Stop>>;

    /// A call ran: what hooks make of its result.
    fn seen<'a>(
        &'a self,
        call: &'a tools::Call,
        call_id: &'a str,
        output: tools::Output,
    ) -> BoxFuture<'a, Result<tools::Output, Stop>>;

    /// The rules refused a call.
    fn refused(&self, tool: &str, call_id: &str, reason: &str);

    /// The ending call's arguments passed their schema; may they end the agent? An inner `Err` is told
    /// to it, an outer one ends it.
    fn accept<'a>(
        &'a self,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Result<(), String>, Stop>>;

    /// What the agent does now, for the live board: one short line.
    fn doing(&self, line: &str);

    /// Tokens of the agent's attempts that came to no answer, those of earlier processes included.
    fn unanswered(&self) -> u64 {
        0
    }

    /// Fires when the run is told to stop.
    fn cancel(&self) -> &tokio_util::sync::CancellationToken;
}

/// One model reply and the results of its calls, as they stand in the conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// From 1.
    pub number: u32,
    pub results: Vec<CallOutput>,
    /// One of the calls may have changed files.
    pub wrote: bool,
}

/// One call's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallOutput {
    /// The `#N` shown to the model; counts through the conversation from 1.
    pub number: u32,
    pub call_id: String,
    pub tool: String,
    pub arguments: Value,
    pub text: String,
    pub failed: bool,
    pub exit_code: Option<i32>,
    pub seconds: f64,
    /// What the call's span says of it.
    #[serde(flatten)]
    pub traced: Traced,
}

/// What a trace is told of a call, beside its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Why it failed, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// A program was started in the sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executed: bool,
}

impl CallOutput {
    /// True when the call ran, went well and showed something: what the pass of a criterion may rest on.
    /// One that was refused, failed or handed back shows nothing, and neither does what still runs.
    pub fn shows(&self) -> bool {
        use tools::Ending::{Plan, Report, Verdict};
        let endings = [Plan, Report, Verdict];
        let runs = matches!(self.tool.as_str(), "bash" | "process") && self.exit_code.is_none();
        !self.failed && !runs && endings.iter().all(|ending| ending.tool() != self.tool)
    }
}

/// How an agent ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub ended: Result<Value, Stop>,
    pub turns: u32,
    pub tool_calls: u32,
    pub elapsed: Duration,
    /// The numbers of its tool results that exist, for evidence.
    pub results: Vec<CallOutput>,
}

/// Why an agent ended without its ending call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "stop", rename_all = "snake_case")]
pub enum Stop {
    /// A limit of the agent's own: turns, tokens, time, tool calls.
    #[error("the agent used up its limit of {limit}")]
    AgentLimit { limit: String },
    /// A limit of the run: the pot or the time.
    #[error("the run came to its limit of {0}")]
    RunLimit(Limit),
    /// Five answers in a row without a usable call; `why` is what the last one lacked.
    #[error("the model gave no usable tool call {answers} times in a row ({why})")]
    NoCall { answers: u32, why: String },
    /// Five answers in a row led nowhere; `times` of them handed in and were handed back, the last of those
    /// for this reason.
    #[error("{}", barren::handed_back(*answers, *times, why))]
    HandedBack {
        answers: u32,
        times: u32,
        why: String,
    },
    /// Its report said nothing, or too much, twice.
    #[error("the agent handed in no usable report: it {fault}")]
    NoReport { fault: String },
    /// The same call with the same result, again and again.
    #[error("the agent repeated {tool} with the same result {times} times")]
    Stalled { tool: String, times: u32 },
    /// The model cannot be asked: key, quota, server, window.
    #[error("the model could not be asked: {reason}")]
    Model { reason: String, hint: String },
    /// The request is longer than the model takes: the loop elides and asks again.
    #[error("the request did not fit the model's context window")]
    ContextOverflow {
        /// The tokens that the model says it holds, where it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u64>,
    },
    /// A sandbox could not be opened, or the run's own disk failed.
    #[error("the sandbox failed: {reason}")]
    Environment { reason: String },
    /// The sandbox broke, and so did the one that took its place.
    #[error("the sandbox broke again after it was replaced: {reason}")]
    Broken { reason: String },
    /// A hook of the operator's did not let it start, or did not take what it handed in.
    #[error("a hook stopped it: {reason}")]
    Hook { reason: String },
    #[error("cancelled")]
    Cancelled,
}

/// A limit of the run that is used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{limit}")]
pub struct Limit {
    #[serde(default)]
    pub of: Resource,
    /// What was granted and what is left of it, in words.
    pub limit: String,
}

/// What a run may use up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    #[default]
    Tokens,
    Money,
    Time,
}

impl Stop {
    /// True when the turn it came in is whole and is to be kept; else its calls are run again on resume.
    fn keeps_turn(&self) -> bool {
        matches!(
            self,
            Self::Stalled { .. } | Self::AgentLimit { .. } | Self::NoReport { .. }
        )
    }
}

impl Stop {
    /// What a span says of it: as it is, without what a model wrote or had quoted back to it.
    pub fn without_quotes(&self) -> String {
        let bare = |why: &str| format!("stopped for {why}");
        match self {
            Self::NoCall { answers, .. } => {
                bare(&format!("{answers} answers without a usable call"))
            }
            Self::HandedBack { answers, times, .. } => bare(&format!(
                "{answers} answers that led nowhere, {times} of them handed back"
            )),
            Self::NoReport { .. } => bare("reports that could not be used"),
            other => other.to_string(),
        }
    }

    /// A word of low cardinality, for `error.type`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::AgentLimit { .. } | Self::RunLimit(_) => "budget_exceeded",
            Self::NoCall { .. }
            | Self::HandedBack { .. }
            | Self::Stalled { .. }
            | Self::NoReport { .. } => "invalid_response",
            Self::Model { .. } => "model_error",
            Self::ContextOverflow { .. } => "context_overflow",
            Self::Environment { .. } | Self::Broken { .. } => "sandbox_lost",
            Self::Hook { .. } => "denied",
            Self::Cancelled => "cancelled",
        }
    }
}
