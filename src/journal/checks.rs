//! What Wharf's own checks of a result found: commands, tests they ran, how far a round came.

use serde::{Deserialize, Serialize};

/// The acceptance commands with some files as the base has them: evidence that decides nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithBase {
    /// The files that were put back, for display.
    pub paths: Vec<String>,
    pub commands: Vec<CommandRun>,
}

/// A command that Wharf itself ran at a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandRun {
    pub command: String,
    /// None: it could not be told (timeout, sandbox broken); `note` says why.
    pub exit_code: Option<i32>,
    pub seconds: f64,
    pub output_tail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// None: its output does not say how many tests ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCount>,
}

/// How many tests a command ran, by its own output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCount {
    /// The runners whose words these are, such as `pytest`.
    pub runners: Vec<String>,
    /// All that were found, skipped ones among them.
    pub collected: u64,
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

/// How far the result stood after a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub criteria_passed: u64,
    pub criteria: u64,
    pub commands_passed: u64,
    pub commands: u64,
    /// By the commands' own output; 0 where it does not say.
    pub tests_passed: u64,
    pub failed_subtasks: u64,
}
