//! Spans for tracing backends; nothing is ever decided from one.
//!
//! Owns: the exporter, span names and attribute names (`names`), the deadline of the last flush.
//! Takes: `Options` from `config`; names, attributes and links from the rooms above.
//! Gives: `Tracer` and `Span`, both cheap to clone and inert when no endpoint is named.
//! Never: content of prompts, replies, tool arguments or results.

pub mod names;

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Texts(Vec<String>),
}

/// Attributes of a span at its start.
pub type Attributes = Vec<(&'static str, Value)>;

/// The exporter of one process.
#[derive(Clone, Debug, Default)]
pub struct Tracer;

/// One span; a clone is the same span. Ends at `end`, or when the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub struct Span;

impl Tracer {
    /// Records nothing.
    pub fn none() -> Self {
        Self
    }

    /// The run's root span, `invoke_workflow {plan}`.
    pub fn run(&self, _start: &RunStart) -> Span {
        Span
    }

    /// Sends what is queued, within `limit`; false when that was not reached.
    pub async fn flush(&self, _limit: std::time::Duration) -> bool {
        true
    }
}

/// What the root span says.
#[derive(Clone, Debug, Default)]
pub struct RunStart {
    pub run: String,
    pub plan: String,
}

/// What an agent's span says.
#[derive(Clone, Debug, Default)]
pub struct AgentStart {
    pub run: String,
    pub role: String,
    pub subtask: String,
    pub description: String,
    pub provider: String,
    pub model: String,
    pub round: u32,
    /// `coordinator`, `worker`, `merger` or `verifier`: decides the OpenInference kind.
    pub kind: &'static str,
}

/// What a chat span says at its start.
#[derive(Clone, Debug, Default)]
pub struct ChatStart {
    pub run: String,
    pub provider: String,
    pub model: String,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub stream: bool,
    pub reply_tokens: u64,
    pub temperature: Option<f64>,
    pub agent: String,
}

/// What a chat span says once the model answered.
#[derive(Clone, Debug, Default)]
pub struct ChatEnd {
    pub response_id: Option<String>,
    pub response_model: Option<String>,
    pub finish: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    pub cost_usd: Option<f64>,
    pub attempts: u32,
}

/// What a sandbox command's span says.
#[derive(Clone, Debug, Default)]
pub struct ExecStart {
    /// `bash`, `sh`: the program started.
    pub executable: String,
    pub container: String,
    pub image: String,
    pub runtime: String,
}

impl Span {
    /// A span that records nothing.
    pub fn none() -> Self {
        Self
    }

    /// `plan {coordinator}`: the coordinator's decomposition.
    pub fn plan(&self, _start: &AgentStart) -> Self {
        Self
    }

    /// `invoke_agent {role}`, linked to the spans of what it needed.
    pub fn agent(&self, _start: &AgentStart, _needs: &[Self]) -> Self {
        Self
    }

    /// `chat {model}`: one logical model call, its retries included.
    pub fn chat(&self, _start: &ChatStart) -> Self {
        Self
    }

    /// What the reply says, on a chat span.
    pub fn answered(&self, _end: &ChatEnd) {}

    /// `execute_tool {name}`.
    pub fn tool(&self, _name: &str, _call_id: &str, _agent: &str) -> Self {
        Self
    }

    /// A command in a sandbox.
    pub fn exec(&self, _start: &ExecStart) -> Self {
        Self
    }

    /// The command's end.
    pub fn exited(&self, _code: i32) {}

    /// An attribute of our own (`wharf.…`).
    pub fn set(&self, _key: &'static str, _value: Value) {}

    /// Something that happened now (`gen_ai.evaluation.result`).
    pub fn event(&self, _name: &'static str, _attributes: Attributes) {}

    /// Status error with a low-cardinality `error.type`.
    pub fn fail(&self, _error_type: &str, _message: &str) {}

    /// Ends the span now.
    pub fn end(&self) {}

    /// 32 hex digits; None for a span that records nothing.
    pub fn trace_id(&self) -> Option<String> {
        None
    }
}
