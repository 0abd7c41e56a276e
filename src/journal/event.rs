//! The closed set of events. A line on disk is `{"seq":1,"at":"…","prev":"…","type":"…",…}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::agent::{Agent, AgentEnd, AgentKind};
use super::checks::{CommandRun, Progress, WithBase};
use super::consent::{DecidedBy, HookOutcome};
use super::egress::EgressStep;
use super::loss::Dropped;
use super::request::{Terms, Usage};
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
    /// An agent of an earlier process goes on with its conversation, in a fresh sandbox.
    AgentResumed {
        agent: Agent,
        /// Where the fresh sandbox is opened.
        snapshot: CommitId,
        /// What it is told, and at the end of which turn: the last whole one, or the one whose calls
        /// run again.
        told: Option<String>,
        after: u32,
    },
    /// An image that sandboxes of the run are opened from.
    ImageReady {
        name: String,
        id: String,
        /// What agents are told is in it.
        #[serde(default)]
        describes: String,
    },
    /// A sandbox answered for the first time.
    SandboxOpened {
        agent: Agent,
        container: String,
        image: String,
        seconds: f64,
        /// The program that runs command lines, and the engine's runtime.
        #[serde(default)]
        shell: String,
        #[serde(default)]
        runtime: String,
    },
    SandboxBroken {
        agent: Agent,
        /// A word of a closed list: `gone`, `unable`, `silent`, `protocol`, `engine`, `closed`.
        #[serde(default)]
        cause: String,
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
    /// A call needs consent, and somebody is asked.
    PermissionAsked {
        agent: Agent,
        tool: String,
        call_id: String,
        /// The command line or the path, cut.
        what: String,
        reason: String,
        /// `terminal`, `command` or `url`.
        of: String,
        /// How long the answer may take.
        seconds: f64,
    },
    /// It was decided whether a call runs.
    PermissionDecided {
        agent: Agent,
        tool: String,
        call_id: String,
        what: String,
        allowed: bool,
        by: DecidedBy,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// What was consented to beyond this call; it holds as long as the run lasts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        grants: Vec<Value>,
        /// How long the answer took.
        #[serde(default)]
        seconds: f64,
    },
    /// A hook of the operator's ended.
    HookRan {
        /// None: it was about the run.
        #[serde(default)]
        agent: Option<Agent>,
        /// `PreToolUse`, `PostToolUse`, `SubagentStart`, `SubagentStop` or `Stop`.
        moment: String,
        command: String,
        #[serde(default)]
        tool: Option<String>,
        outcome: HookOutcome,
        #[serde(default)]
        reason: Option<String>,
        seconds: f64,
    },
    /// A request is about to go out; its worst case is reserved.
    ModelAsked {
        agent: Agent,
        call: u32,
        attempt: u32,
        messages: usize,
        reserved_tokens: u64,
        #[serde(default)]
        reserved_usd: f64,
        request_hash: String,
        /// The model that is asked, of several the one whose turn it is.
        #[serde(default)]
        model: String,
        /// None: an earlier wharf asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terms: Option<Terms>,
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
        /// What the attempt took out of the pot all the same.
        #[serde(default)]
        spent_tokens: u64,
        #[serde(default)]
        spent_usd: f64,
        /// The same as the tokens and the cost of an answer are told. None: it used nothing, or an earlier
        /// wharf wrote the line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
        /// What ended the call, in a word, where no other attempt follows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop: Option<String>,
    },
    /// What goes out with a call, so that it can be shown: as the agent's own request before it where
    /// nothing else is said.
    RequestMade {
        agent: Agent,
        call: u32,
        /// Messages at its beginning that are those of the request before.
        same: usize,
        /// The others.
        messages: Vec<Value>,
        /// The tools, where they are not those of the request before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Vec<Value>>,
    },
    /// An agent's conversation was made shorter before a request.
    Compacted {
        agent: Agent,
        /// Turns that were done by then.
        after: u32,
        /// How: `elided`, `summarised` with its text, `not_summarised` with the reason, `dropped`,
        /// `overflowed`.
        how: Value,
        /// Before and after.
        messages: (usize, usize),
        /// The same, estimated.
        tokens: (u64, u64),
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
        /// The subtasks that are on one side alone.
        #[serde(default)]
        ours_by: Vec<SubtaskId>,
        #[serde(default)]
        theirs_by: Vec<SubtaskId>,
    },
    /// A merger's resolution was taken, with what it holds no more of either side.
    ConflictResolved {
        id: SubtaskId,
        commit: CommitId,
        dropped: Vec<Dropped>,
        /// Paths it changed beyond those in conflict.
        beyond: Vec<String>,
        /// Those of them that it removed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        removed: Vec<String>,
    },
    AcceptanceRan {
        round: u32,
        tree: TreeId,
        commands: Vec<CommandRun>,
        protected_changes: Vec<String>,
        /// The same commands with the base's version of files that `protect` lets agents change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with_base_tests: Option<WithBase>,
        /// The same commands at the base, where their tests could be counted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        at_base: Vec<CommandRun>,
    },
    VerdictGiven {
        round: u32,
        verdict: Value,
    },
    /// How far a round came, and why no other one follows although it failed.
    RoundEnded {
        round: u32,
        progress: Progress,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped: Option<String>,
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
        /// Subtasks of the last round that failed are worked again.
        #[serde(default)]
        retry_failed: bool,
        /// Bytes of an unfinished last line that were cut off.
        #[serde(default)]
        torn: u64,
        /// As in `RunStarted`, with limits that were raised since.
        #[serde(default)]
        options: Value,
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
    /// The version of the lines that follow; see `VERSION`.
    #[serde(default = "first_version")]
    pub journal: u32,
    pub run: RunId,
    pub task: String,
    pub plan_name: String,
    pub plan_hash: String,
    /// The operator's directory, absolute.
    pub workspace: String,
    pub models: Vec<String>,
    /// Every value that shapes the run and is in neither plan nor task.
    pub options: Value,
    /// The plan's text, and the files that it names by the name it gives them.
    #[serde(default)]
    pub plan: String,
    #[serde(default)]
    pub plan_files: BTreeMap<String, String>,
    /// The run that this one is a replay of.
    #[serde(default)]
    pub replay_of: Option<RunId>,
    pub trace_id: Option<String>,
    /// The run's own span, for a resumed part to join it.
    #[serde(default)]
    pub root_span: Option<String>,
}

/// The version of the lines that this program writes and the newest it reads. It rises when an older
/// program would misread a line; a new type or a new key with a default does not raise it.
pub const VERSION: u32 = 1;

/// Journals from before there was a number.
fn first_version() -> u32 {
    1
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subtask {
    pub id: SubtaskId,
    pub role: RoleName,
    pub title: Option<String>,
    pub brief: String,
    pub needs: Vec<SubtaskId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubtaskStatus {
    Done,
    Failed,
    Blocked,
    Cancelled,
}
