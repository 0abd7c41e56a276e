//! result.json: what a run came to, field by field as the contract names them.

use serde::{Deserialize, Serialize};

use crate::journal::{CommandRun, Dropped, Progress, SubtaskStatus, Usage, WithBase};

/// The `schema` of result.json.
pub const SCHEMA: &str = "wharf.result/1";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub schema: String,
    pub wharf_version: String,
    pub run: String,
    pub run_dir: String,
    pub status: Status,
    pub exit_code: i32,
    pub reason: String,
    /// The command to type next.
    pub next: String,
    pub task: String,
    pub plan_hash: String,
    pub models: Vec<String>,
    pub started_at: String,
    pub seconds: f64,
    pub rounds: u32,
    pub subtasks: Vec<SubtaskResult>,
    pub conflicts: Vec<ConflictResult>,
    /// The conversations beside those: coordinator, summary, verifier.
    #[serde(default)]
    pub agents: Vec<AgentResult>,
    pub left_out: Vec<LeftOut>,
    pub warnings: Vec<String>,
    pub verdict: Option<Verdict>,
    /// What each round came to; `rounds` is their number.
    #[serde(default)]
    pub progress: Vec<RoundResult>,
    pub base: Option<String>,
    /// The workspace had uncommitted or untracked files at the start: a branch begins with them.
    #[serde(default)]
    pub dirty: bool,
    pub snapshot: Option<String>,
    pub branch: Option<String>,
    pub patch: Option<String>,
    /// The command that applies the patch with git; None without a patch.
    #[serde(default)]
    pub apply: Option<String>,
    pub usage: TotalUsage,
    pub cost_usd: Option<f64>,
    pub trace_id: Option<String>,
    /// The coordinator's words on the whole, or the reports joined.
    pub summary: String,
}

impl Summary {
    /// True when the verdict is a pass, whatever became of the result afterwards.
    pub fn has_passed(&self) -> bool {
        self.verdict.as_ref().map(|verdict| verdict.status) == Some(VerdictStatus::Pass)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Passed,
    Failed,
    Unverified,
    Limited,
    Interrupted,
    Error,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubtaskResult {
    pub id: String,
    pub role: String,
    pub needs: Vec<String>,
    pub round: u32,
    pub status: SubtaskStatus,
    pub reason: Option<String>,
    pub summary: Option<String>,
    pub changed_files: Vec<String>,
    pub turns: u32,
    pub tool_calls: u32,
    pub usage: Usage,
    pub cost_usd: Option<f64>,
    pub seconds: f64,
    /// The commit of its snapshot in the run's store.
    pub snapshot: Option<String>,
}

/// A conflict node: two sides, the files, and how it was resolved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConflictResult {
    pub id: String,
    pub files: Vec<String>,
    pub ours: String,
    pub theirs: String,
    pub status: SubtaskStatus,
    pub reason: Option<String>,
    pub summary: Option<String>,
    /// The subtasks that are on one side alone.
    #[serde(default)]
    pub ours_by: Vec<String>,
    #[serde(default)]
    pub theirs_by: Vec<String>,
    /// What the resolution holds no more of either side, as Wharf found it.
    #[serde(default)]
    pub dropped: Vec<Dropped>,
    /// Paths that the merger changed beyond those in conflict.
    #[serde(default)]
    pub beyond: Vec<String>,
    /// Those of them that it removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Where both versions are kept, resolved or not.
    #[serde(default)]
    pub kept: Option<Kept>,
    pub turns: u32,
    #[serde(default)]
    pub tool_calls: u32,
    pub usage: Usage,
    /// Its merger's, as a subtask has it: None where a price is not known.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    #[serde(default)]
    pub seconds: f64,
}

/// Both sides of a conflict as git finds them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The run's bare repository, absolute.
    pub store: String,
    /// Names of commits in it.
    pub ours: String,
    pub theirs: String,
}

/// An agent that worked no subtask and no conflict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentResult {
    pub id: String,
    pub role: String,
    pub round: u32,
    pub turns: u32,
    pub tool_calls: u32,
    pub usage: Usage,
    pub cost_usd: Option<f64>,
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeftOut {
    pub path: String,
    pub reason: String,
    /// The subtask that made it, or null for the base snapshot.
    pub subtask: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    pub status: VerdictStatus,
    pub summary: String,
    pub criteria: Vec<Criterion>,
    /// Each verifier's own verdict, where the plan asks more than one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    pub commands: Vec<CommandRun>,
    /// The same commands at the base, where their output counts tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_base: Vec<CommandRun>,
    /// What the tests lost against the base's, a sentence a command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_losses: Vec<String>,
    /// Changed files that decide what is checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_checks: Vec<ChangedCheck>,
    pub protected_changes: Vec<String>,
    /// The same commands with the base's version of files that `protect` lets agents change by a
    /// `!`; evidence that decides nothing. None where no such file was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_base_tests: Option<WithBase>,
    /// The git tree that was judged.
    pub tree: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictStatus {
    Pass,
    Fail,
    #[default]
    Unknown,
}

/// One verifier's verdict among several, after Wharf's check of its evidence.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// `verifier`, `verifier-2` and so on.
    pub agent: String,
    pub status: VerdictStatus,
    /// Why it could not be had; then it counts as unknown.
    pub reason: Option<String>,
    pub summary: String,
    pub criteria: Vec<Criterion>,
}

/// A changed file that decides what is checked: a test, its configuration, what runs around it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedCheck {
    /// For display.
    pub path: String,
    /// `added`, `changed`, `removed` or `mode`.
    pub change: String,
    /// What it is, such as `test`, `hook`, `config`, `ci`.
    pub kind: String,
    /// What of its content weakens a check, each in a few words.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Criterion {
    /// The criterion's exact words.
    pub text: String,
    pub status: VerdictStatus,
    /// `#N`, a call of the verifier's own, or `path:line`.
    pub evidence: String,
    /// Of several verifiers the one whose evidence this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// How far the result stood after a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundResult {
    pub round: u32,
    #[serde(flatten)]
    pub progress: Progress,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TotalUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    pub calls: u64,
    pub estimated: bool,
}
