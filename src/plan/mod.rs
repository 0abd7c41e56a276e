//! Text of a plan file becomes a `Plan` that cannot be invalid.
//!
//! Owns: the plan file's format, the built-in roles, the DAG of subtasks and its checks, drawings, the JSON Schema.
//! Takes: text, and a closure that loads the files a plan names.
//! Gives: a resolved `Plan` (every default filled in, every role merged) or an `Error` with line, column and hint.
//! Never: I/O.

mod bounds;
mod built_in;
mod check;
mod consent;
mod draw;
mod error;
mod faults;
mod files;
mod forms;
mod graph;
mod host;
mod image;
mod inject;
mod named;
mod network;
mod nodes;
mod parse;
mod raw;
mod roles;
mod sections;
mod servers;
mod submit;
mod text;
mod units;
mod warnings;
mod words;
mod write;
mod yaml;

pub use built_in::DEFAULT;
pub use consent::{ANSWER, Approver, ApproverForm, By, Hook, HooksForm, Misfit, Moment};
pub use draw::{Drawing, draw};
pub use error::{Error, nearest};
pub use faults::faults;
pub use graph::Dag;
pub use host::{Allowed, Host};
pub use image::Image;
pub use inject::Inject;
pub use named::model_fault;
pub use network::{Network, Reach};
pub use nodes::GraphError;
pub use parse::parse;
pub use roles::{ENDINGS, TOOLS};
pub use submit::{Submission, submitted};
pub use text::text;
pub use units::{duration, show_duration, show_size, size};
pub use write::WriteError;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{RoleName, SubtaskId};

/// The JSON Schema of a plan file.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(raw::Plan).to_value();
    drop_null_defaults(&mut schema);
    schema
}

/// An absent key is not a null one: the descriptions name the true defaults.
fn drop_null_defaults(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(keys) => {
            if keys.get("default").is_some_and(serde_json::Value::is_null) {
                keys.shift_remove("default");
            }
            keys.values_mut().for_each(drop_null_defaults);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(drop_null_defaults),
        _ => {}
    }
}

/// A checked plan with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub name: String,
    pub task: Option<String>,
    /// In order of fall-back; empty when the plan names none. Relative `replay:` files are left as written.
    pub model: Vec<String>,
    pub workspace: Workspace,
    pub run: RunLimits,
    pub permissions: Permissions,
    /// In order; honoured only from a plan that the operator trusts.
    pub hooks: Vec<Hook>,
    /// Globs of existing files that may not change; a leading `!` takes a path out again.
    pub protect: Vec<String>,
    pub acceptance: Acceptance,
    /// Verifiers asked, 1 to 9.
    pub votes: u32,
    pub compaction: Compaction,
    /// By name; always holds one coordinator and one verifier unless `extends: none` dropped them.
    pub roles: BTreeMap<RoleName, Role>,
    /// The operator's own tools.
    pub tools: BTreeMap<String, OwnTool>,
    /// A fixed DAG; empty means that the coordinator plans.
    pub subtasks: Vec<Subtask>,
    pub providers: BTreeMap<String, Provider>,
    /// US dollars a million tokens by `provider/model`: input, cached input, output.
    pub prices: BTreeMap<String, (f64, f64, f64)>,
    /// Sandbox settings for what Wharf itself runs (acceptance commands); roles carry their own merged ones.
    pub sandbox: Sandbox,
    /// SHA-256 of the plan's text and of every file it loaded, hex.
    pub hash: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Coordinator,
    Worker,
    Verifier,
}

/// One kind of agent, merged from the built-in of its name, the plan's top level and its own keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    pub name: RoleName,
    pub kind: Kind,
    pub description: String,
    pub prompt: String,
    /// Names from the tool contract or of the operator's own tools; the ending tool is not listed.
    pub tools: Vec<String>,
    /// Its own models, else empty.
    pub model: Vec<String>,
    pub temperature: Option<f64>,
    /// How much the model should think; None: as it does by itself.
    pub effort: Option<Effort>,
    pub context_window: Option<u64>,
    pub sandbox: Sandbox,
    pub limits: AgentLimits,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sandbox {
    pub image: Image,
    pub pull: Pull,
    pub setup: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cpus: f64,
    /// Bytes.
    pub memory: u64,
    pub pids: u64,
    /// Bytes.
    pub disk: u64,
    /// Files and folders that may lie in workspace, home and /tmp together.
    pub inodes: u64,
    /// Bytes of the largest file; None: as `disk`.
    pub fsize: Option<u64>,
    pub nofile: OpenFiles,
    pub network: Network,
    pub runtime: Option<String>,
    /// Containers kept ready for the next agents.
    pub warm: usize,
    /// An engine that does not hold a limit is refused instead of warned of.
    pub strict: bool,
}

/// When an image is fetched from its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pull {
    /// When the engine does not have it.
    Missing,
    /// Once a run, even if the engine has it.
    Always,
    /// Not at all.
    Never,
}

/// How many files one process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// What holds unless the process raises it.
    pub soft: u64,
    /// How far it may raise it.
    pub hard: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    pub turns: u32,
    pub tokens: u64,
    pub time: Duration,
    pub tool_calls: u32,
    pub tool_timeout: Duration,
    /// Characters kept of each stream of a tool's output.
    pub output: usize,
    pub reply_tokens: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunLimits {
    pub parallel: usize,
    pub subtasks: usize,
    pub rounds: u32,
    pub tokens: u64,
    pub cost_usd: Option<f64>,
    pub time: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// None: not named by the plan. Relative to the plan file.
    pub path: Option<String>,
    pub copy: bool,
    pub history: History,
    pub hide: Vec<String>,
    /// Globs of what agents see although git ignores it or `hide` withholds it.
    pub include: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum History {
    None,
    Recent,
    Full,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub mode: PermissionMode,
    pub rules: Vec<Rule>,
    /// None: the person at the terminal, where there is one.
    pub approver: Option<Approver>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionMode {
    Auto,
    Ask,
    Plan,
    Deny,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub tool: String,
    /// A glob over the command line or the path of the call.
    pub command: Option<String>,
    pub path: Option<String>,
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Allow,
    Ask,
    Deny,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acceptance {
    pub commands: Vec<AcceptanceCommand>,
    pub criteria: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptanceCommand {
    pub run: String,
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Compaction {
    /// Share of the context window at which a conversation is shortened.
    pub at: f64,
    /// Messages at the end that stay whole.
    pub keep: usize,
    /// Words that a summary may have.
    pub words: usize,
    /// Who writes summaries, in order of fall-back; empty: each agent's own model.
    pub model: Vec<String>,
    /// Messages past which it is shortened too; None: however many.
    pub messages: Option<usize>,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            at: 0.7,
            keep: 6,
            words: 500,
            model: Vec::new(),
            messages: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct OwnTool {
    pub description: String,
    pub schema: serde_json::Value,
    pub command: String,
    /// Calls a minute, all agents of a run together; None: as many as there are.
    pub per_minute: Option<u32>,
}

/// How much a model should think before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    Minimal,
    Low,
    Medium,
    High,
}

/// A model server named by the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// `openai` (chat completions), `openai-responses` or `anthropic` (messages).
    pub kind: String,
    pub base_url: String,
    pub api_key_env: Option<String>,
    /// How the server differs from others, by a name the model room knows.
    pub profile: Option<String>,
    pub context_window: Option<u64>,
    /// US dollars a million tokens: input, cached input, output.
    pub price: Option<(f64, f64, f64)>,
}

/// A node of the DAG.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subtask {
    pub id: SubtaskId,
    pub role: RoleName,
    #[serde(default)]
    pub title: Option<String>,
    pub brief: String,
    #[serde(default)]
    pub needs: Vec<SubtaskId>,
}
