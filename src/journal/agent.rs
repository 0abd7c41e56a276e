//! Who an agent is, and how one ended.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{CommitId, RoleName, SubtaskId};

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
    /// The commands it ran last, each with its exit code, where it ended without its ending call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}
