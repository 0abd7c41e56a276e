//! The closed set of events. A line on disk is `{"seq":1,"at":"…","prev":"…","type":"…",…}`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::egress::EgressStep;
use crate::id::{CommitId, RoleName, RunId, SubtaskId, TreeId};

/// A fact of a run. Readers refuse a type they do not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    RunStarted(RunStarted),
    /// The base snapshot stands in the run's store.
    BaseTaken {
        commit: CommitId,
        tree: TreeId,
        files: usize,
        bytes: u64,
        details: Value,
    },
    RoundStarted {
        round: u32,
    },
    /// A DAG passed its check.
    PlanAccepted {
        round: u32,
        summary: String,
        criteria: Vec<String>,
        subtasks: Vec<Subtask>,
    },
    AgentStarted {
        agent: Agent,
        kind: AgentKind,
        model: String,
        start: CommitId,
    },
    /// A sandbox answered for the first time.
    SandboxOpened {
        agent: Agent,
        container: String,
        image: String,
        seconds: f64,
    },
    SandboxBroken {
        agent: Agent,
        reason: String,
        reopened: bool,
    },
    /// A sandbox wanted to reach a server: what was decided, or what became of it.
    Egress {
        agent: Agent,
        /// Counts the connections of one sandbox from 1.
        connection: u64,
        host: String,
        port: u16,
        step: EgressStep,
    },
    /// A request is about to go out; its worst case is reserved.
    ModelAsked {
        agent: Agent,
        call: u32,
        attempt: u32,
        messages: usize,
        reserved_tokens: u64,
        request_hash: String,
    },
    ModelAnswered {
        agent: Agent,
        call: u32,
        reply: Value,
        usage: Usage,
        cost_usd: Option<f64>,
        seconds: f64,
    },
    ModelFailed {
        agent: Agent,
        call: u32,
        attempt: u32,
        reason: String,
        retry_seconds: Option<f64>,
    },
    /// A turn's calls ran; their results and, when files changed, the snapshot they led to.
    TurnDone {
        agent: Agent,
        turn: u32,
        results: Vec<Value>,
        snapshot: Option<CommitId>,
        left_out: Vec<String>,
    },
    AgentEnded {
        agent: Agent,
        end: AgentEnd,
    },
    /// A node of the DAG reached its final state in this round.
    SubtaskEnded {
        id: SubtaskId,
        round: u32,
        status: SubtaskStatus,
        reason: Option<String>,
        snapshot: Option<CommitId>,
        changed_files: Vec<String>,
    },
    Merged {
        inputs: Vec<CommitId>,
        commit: CommitId,
    },
    ConflictFound {
        id: SubtaskId,
        ours: CommitId,
        theirs: CommitId,
        files: Vec<String>,
    },
    AcceptanceRan {
        round: u32,
        tree: TreeId,
        commands: Vec<CommandRun>,
        protected_changes: Vec<String>,
    },
    VerdictGiven {
        round: u32,
        verdict: Value,
    },
    Summarised {
        text: String,
        by_model: bool,
    },
    Warned {
        text: String,
    },
    /// The run is told to stop: a signal or a limit.
    Stopping {
        reason: String,
    },
    Delivered {
        branch: Option<String>,
        patch: Option<String>,
        commit: Option<String>,
    },
    /// The last event of a run that ended in order; `result` is result.json.
    RunEnded {
        status: String,
        exit_code: i32,
        reason: String,
        result: Value,
    },
    /// `wharf resume` opened the journal again.
    Resumed {
        wharf_version: String,
    },
    /// `wharf apply` or `--apply` put the result into the operator's directory.
    Applied {
        paths: Vec<String>,
        refused: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    pub wharf_version: String,
    pub run: RunId,
    pub task: String,
    pub plan_name: String,
    pub plan_hash: String,
    /// The operator's directory, absolute.
    pub workspace: String,
    pub models: Vec<String>,
    /// Every value that shapes the run and is in neither plan nor task.
    pub options: Value,
    pub trace_id: Option<String>,
}

/// Which conversation an event belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Agent {
    pub round: u32,
    /// A subtask's id, `coordinator`, `verifier` or `merge-…`.
    pub subtask: SubtaskId,
    pub role: RoleName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    Coordinator,
    Worker,
    Merger,
    Verifier,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subtask {
    pub id: SubtaskId,
    pub role: RoleName,
    pub title: Option<String>,
    pub brief: String,
    pub needs: Vec<SubtaskId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Includes `cached_tokens`.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    pub estimated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentEnd {
    /// The ending call's arguments, when it ended by one.
    pub ended: Option<Value>,
    /// Why not, in words, and the stop as data.
    pub reason: Option<String>,
    pub stop: Option<Value>,
    pub turns: u32,
    pub tool_calls: u32,
    pub seconds: f64,
    /// What it made, on top of where it started.
    pub snapshot: Option<CommitId>,
    /// Paths left out of its snapshots, each with the reason.
    pub left_out: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubtaskStatus {
    Done,
    Failed,
    Blocked,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandRun {
    pub command: String,
    /// None: it could not be told (timeout, sandbox broken); `note` says why.
    pub exit_code: Option<i32>,
    pub seconds: f64,
    pub output_tail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
