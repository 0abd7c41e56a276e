//! What an agent may do: each tool's name, schema and kind, the check of a call, its run in a sandbox.
//!
//! Owns: the tool contract, argument coercion, permission rules, the words of every result.
//! Takes: a call as the model wrote it (name and argument text), a sandbox.
//! Gives: an `Output` for the model, or the sandbox's error.
//! Never: a model, a conversation.

use serde_json::Value;

/// A tool as shown to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub name: String,
    pub description: String,
    pub schema: Value,
    pub kind: Kind,
}

/// What a tool touches; permission rules order by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Execute,
    External,
    Meta,
}

/// A call that may run: known tool, checked arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub tool: String,
    pub kind: Kind,
    pub arguments: Value,
}

/// What the model is told, and what the loop and the spans need to know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub text: String,
    pub failed: bool,
    /// The exit code of a command, where there was one.
    pub exit_code: Option<i32>,
    /// A low-cardinality word when failed: `invalid_arguments`, `tool_not_found`, `timeout`, `nonzero_exit`, `oom_killed`, `denied`.
    pub error_type: Option<&'static str>,
}

/// The tools of one agent, with its rules and limits.
#[derive(Clone, Debug)]
pub struct Set {
    specs: Vec<Spec>,
}

/// What a set is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names from the contract, or of `own`.
    pub names: Vec<String>,
    /// The tool that ends the agent, with its schema.
    pub ending: Ending,
    pub own: Vec<OwnTool>,
    pub mode: Mode,
    pub rules: Vec<Rule>,
    /// Globs that write tools refuse, unless a later `!` pattern takes the path out.
    pub protect: Vec<String>,
    /// Existing paths of the base: only these are protected.
    pub protected_paths: std::sync::Arc<std::collections::BTreeSet<String>>,
    /// Characters kept of each stream.
    pub output: usize,
    pub timeout: std::time::Duration,
    /// Commands of `run_acceptance`, each with its limit.
    pub acceptance: Vec<(String, std::time::Duration)>,
}

/// Which typed call ends the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Plan,
    Report,
    Verdict,
}

/// A tool of the operator's: a command run in the sandbox, its arguments as JSON on standard input.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnTool {
    pub name: String,
    pub description: String,
    pub schema: Value,
    pub command: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Auto,
    Ask,
    /// Reads only.
    Plan,
    Deny,
}

/// A permission rule: the first that matches decides, deny before allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub tool: String,
    pub command: Option<String>,
    pub path: Option<String>,
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Allow,
    Ask,
    Deny,
}

impl Set {
    /// The tools to show to the model, the ending tool last.
    pub fn specs(&self) -> &[Spec] {
        &self.specs
    }
}
