//! What an agent may do: each tool's name, schema and kind, the check of a call, its run in a sandbox.
//!
//! Owns: the tool contract, argument coercion, permission rules, the words of every result.
//! Takes: a call as the model wrote it (name and argument text), a sandbox.
//! Gives: an `Output` for the model, or the sandbox's error.
//! Never: a model, a conversation.

mod alias;
pub mod approvals;
pub mod clip;
mod command;
pub mod commands;
mod edit;
mod ending;
mod files;
mod globs;
pub mod hooks;
mod json;
mod listed;
mod patch;
pub mod path;
pub mod program;
mod quotes;
pub mod rules;
mod schema;
mod shell;
mod spec;
mod variables;
mod wild;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::sandbox::{self, Sandbox};

pub use rules::Ruling;
pub use spec::{
    FOUND_CHARS, GREP_DEFAULT, GREP_MAX, LINE_CHARS, LIST_MAX, READ_BYTES, READ_LINES, TIMEOUT_MAX,
    WRITE_BYTES,
};

/// A tool as shown to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub name: String,
    pub description: String,
    pub schema: Value,
    pub kind: Kind,
}

/// What a tool touches; permission rules order by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// A low-cardinality word when failed: `invalid_arguments`, `tool_not_found`, `timeout`,
    /// `nonzero_exit`, `oom_killed`, `disk_full`, `denied`, `tool_error`, `cancelled`, `sandbox_broken`.
    pub error_type: Option<&'static str>,
}

/// The tools of one agent, with its rules and limits.
#[derive(Clone, Debug)]
pub struct Set {
    specs: Vec<Spec>,
    ending: Ending,
    own: Vec<OwnTool>,
    policy: rules::Policy,
    output: usize,
    timeout: std::time::Duration,
    memory: u64,
    acceptance: Vec<(String, std::time::Duration)>,
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
    /// The sandbox's memory limit in bytes, named when it kills a command.
    pub memory: u64,
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

/// Why a set of tools cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no tool is named {name}; known are {known}")]
    UnknownTool { name: String, known: String },
    #[error("tool {tool}: {reason}")]
    Schema { tool: String, reason: String },
    #[error("pattern {pattern} of {of}: {reason}")]
    Pattern {
        of: &'static str,
        pattern: String,
        reason: String,
    },
}

impl Set {
    /// Checks the names, the operator's schemas and every pattern.
    pub fn new(options: Options) -> Result<Self, Error> {
        let mut specs = Vec::new();
        for name in &options.names {
            if specs.iter().any(|s: &Spec| s.name == *name) {
                continue;
            }
            specs.push(spec::find(name, &options)?);
        }
        specs.push(ending::spec(options.ending));
        Ok(Self {
            specs,
            ending: options.ending,
            policy: rules::Policy::new(&options)?,
            own: options.own,
            output: options.output,
            timeout: options.timeout,
            memory: options.memory,
            acceptance: options.acceptance,
        })
    }

    /// The tools to show to the model, the ending tool last.
    pub fn specs(&self) -> &[Spec] {
        &self.specs
    }

    /// The name of the tool that ends the agent.
    pub fn ending(&self) -> &'static str {
        self.ending.tool()
    }

    /// True when the set has a tool of this name.
    pub fn has(&self, name: &str) -> bool {
        self.specs.iter().any(|s| s.name == name)
    }

    /// Names and validates a call and holds the rules against it; `Err` is what to tell the model, without
    /// its number. One that needs consent is let through: see `ruling`.
    pub fn check(&self, name: &str, arguments: &str) -> Result<Call, Output> {
        let given = json::object(arguments).map_err(|reason| {
            let text = format!(
                "the arguments of {} were not run: {reason}",
                clip::line(name, 80)
            );
            Output::refused("invalid_arguments", text)
        })?;
        let known: Vec<&str> = self.specs.iter().map(|s| s.name.as_str()).collect();
        let meant = match alias::understand(&known, name, given) {
            Ok(meant) => meant,
            Err(alias::Refusal::Unknown) => return Err(self.unknown(name)),
            Err(alias::Refusal::Advice(text)) => {
                return Err(Output::refused("invalid_arguments", text));
            }
        };
        let Some(spec) = self.specs.iter().find(|s| s.name == meant.tool) else {
            return Err(self.unknown(name));
        };
        let mut value = Value::Object(meant.arguments);
        if !meant.translated {
            schema::validate(&spec.schema, &mut value).map_err(|reason| {
                let text = format!("the arguments of {} do not fit: {reason}", spec.name);
                Output::refused("invalid_arguments", text)
            })?;
        }
        path::tidy(&mut value);
        let call = Call {
            tool: spec.name.clone(),
            kind: spec.kind,
            arguments: value,
        };
        match self.policy.judge(&call) {
            Ruling::Allowed | Ruling::Asked(_) => Ok(call),
            Ruling::Denied(reason) => Err(Output::refused("denied", reason)),
        }
    }

    /// What mode and rules say of a call; nothing in its arguments changes that.
    pub fn ruling(&self, call: &Call) -> Ruling {
        self.policy.judge(call)
    }

    /// Runs a checked call; its text begins with `#number`. `Err` means that the sandbox broke.
    pub async fn run(
        &self,
        call: &Call,
        number: u32,
        sandbox: &dyn Sandbox,
        cancel: &CancellationToken,
    ) -> Result<Output, sandbox::Error> {
        let arguments = &call.arguments;
        if let Some(known) = sandbox.known(number, &call.tool, arguments) {
            return Ok(Output::recorded(known).numbered(number));
        }
        let output = match call.tool.as_str() {
            "bash" => command::bash(self, arguments, sandbox, cancel).await?,
            "process" => command::process(self, arguments, sandbox).await?,
            "run_acceptance" => command::acceptance(self, sandbox, cancel).await?,
            "read_file" => files::read(arguments, sandbox).await?,
            "write_file" => files::write(arguments, sandbox).await?,
            "edit_file" => edit::edit(arguments, sandbox).await?,
            "list_files" => files::list(arguments, sandbox).await?,
            "grep" => files::grep(arguments, sandbox).await?,
            name => match self.own.iter().find(|o| o.name == name) {
                Some(own) => command::own(self, own, arguments, sandbox, cancel).await?,
                None => self.unknown(name),
            },
        };
        Ok(output.numbered(number))
    }

    fn unknown(&self, name: &str) -> Output {
        let known: Vec<&str> = self.specs.iter().map(|s| s.name.as_str()).collect();
        let text = format!(
            "there is no tool {}; your tools are {}",
            clip::line(name, 80),
            known.join(", ")
        );
        Output::refused("tool_not_found", text)
    }
}

/// True when argument text is a JSON object that would be taken.
pub fn is_object(arguments: &str) -> bool {
    arguments.trim_start().starts_with('{') && json::object(arguments).is_ok()
}

impl Ending {
    /// The name of its tool.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Plan => "submit_plan",
            Self::Report => "submit_report",
            Self::Verdict => "submit_verdict",
        }
    }
}

impl Output {
    /// A result that answers what was asked.
    pub fn done(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            failed: false,
            exit_code: None,
            error_type: None,
        }
    }

    /// A result that says why nothing came of the call.
    pub fn refused(error_type: &'static str, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            failed: true,
            exit_code: None,
            error_type: Some(error_type),
        }
    }

    /// A result that was recorded; of its failure only that it was one.
    fn recorded(known: sandbox::Known) -> Self {
        Self {
            error_type: known.failed.then_some("tool_error"),
            text: known.text,
            failed: known.failed,
            exit_code: known.exit_code,
        }
    }

    /// The same with its number in the conversation in front, once.
    pub fn numbered(mut self, number: u32) -> Self {
        self.text = format!("#{number} {}", self.text);
        self
    }
}
