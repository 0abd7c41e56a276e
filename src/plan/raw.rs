//! The plan file's keys as an operator writes them; also the source of its JSON Schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub(super) use super::consent::{ApproverForm, HooksForm};
pub(super) use super::forms::{Command, Count, Roles, RolesShape, Size, Time, Words};
pub(super) use super::servers::{Price, Profile, Provider, ProviderKind};
use super::{Action, Effort, History, Kind, PermissionMode, Pull};

/// A Wharf plan: roles, limits, sandbox, permissions and acceptance of a task.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["version"]))]
pub(super) struct Plan {
    /// Format of the file: 1.
    #[schemars(with = "u8", range(min = 1, max = 1))]
    pub version: Option<Value>,
    /// Shown in lists and reports; default: the file's name.
    pub name: Option<String>,
    /// What to do; may come from the command line instead.
    pub task: Option<String>,
    /// `provider/model` or `replay:FILE`, or a list in order of fall-back.
    pub model: Option<Words>,
    pub workspace: Option<Workspace>,
    pub run: Option<Run>,
    pub agent: Option<Agent>,
    pub sandbox: Option<Sandbox>,
    pub permissions: Option<Permissions>,
    pub hooks: Option<HooksForm>,
    /// Globs of existing files that may not change; a leading `!` takes a path out again.
    pub protect: Option<Vec<String>>,
    pub acceptance: Option<Acceptance>,
    pub verify: Option<Verify>,
    pub compaction: Option<Compaction>,
    #[schemars(with = "Option<RolesShape>")]
    pub roles: Option<Roles>,
    /// Markdown files with front matter, one role each; may hold `*`.
    pub role_files: Option<Words>,
    /// The operator's own tools, by name.
    pub tools: Option<BTreeMap<String, OwnTool>>,
    /// A fixed DAG: no coordinator, one round.
    pub subtasks: Option<Vec<Subtask>>,
    /// Model servers by name; a model is then written `name/model`.
    pub providers: Option<BTreeMap<String, Provider>>,
    /// What models cost, by `provider/model`; beats a provider's price and Wharf's own list.
    pub prices: Option<BTreeMap<String, Price>>,
}

/// The operator's directory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Workspace {
    /// Relative to the plan file; default: the current directory.
    pub path: Option<String>,
    /// Work on a copy and deliver a patch; default: false.
    pub copy: Option<bool>,
    /// How much git history agents see; default: recent.
    pub history: Option<History>,
    /// Globs of files withheld from sandboxes.
    pub hide: Option<Vec<String>>,
    /// Globs of files shown to agents although git ignores them or `hide` withholds them.
    pub include: Option<Vec<String>>,
}

/// Limits of the whole run: one pot for all agents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Run {
    /// Subtasks at work at a time; default: 4.
    #[schemars(range(min = 1))]
    pub parallel: Option<Count>,
    /// The most subtasks a submitted plan may have; default: 20.
    #[schemars(range(min = 1))]
    pub subtasks: Option<Count>,
    /// Rounds in all, the first included; default: 2.
    #[schemars(range(min = 1))]
    pub rounds: Option<Count>,
    /// Tokens of all model calls; default: 20000000.
    pub tokens: Option<Count>,
    /// US dollars of all model calls; no default.
    #[schemars(range(min = 0.0))]
    pub cost_usd: Option<f64>,
    /// Wall clock; default: 60m.
    pub time: Option<Time>,
}

/// Limits of one agent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Agent {
    /// Model replies; default: 40.
    pub turns: Option<Count>,
    /// Tokens; default: 4000000.
    pub tokens: Option<Count>,
    /// Wall clock; default: 20m.
    pub time: Option<Time>,
    /// Tool calls; default: 200.
    pub tool_calls: Option<Count>,
    /// A tool call without a limit of its own; default: 30s.
    pub tool_timeout: Option<Time>,
    /// Characters kept of each stream of a tool's output; default: 8000.
    #[schemars(range(min = 1))]
    pub output: Option<Count>,
    /// Tokens one reply may have; default: 8000.
    #[schemars(range(min = 1))]
    pub reply_tokens: Option<Count>,
    /// Sampling temperature, sent only when given.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// How much the model should think before it answers, sent only when given.
    pub effort: Option<Effort>,
    /// Tokens a request and its reply may hold together; default: what is known of the model.
    #[schemars(range(min = 1024))]
    pub context_window: Option<Count>,
}

/// The container an agent's tools run in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Sandbox {
    /// A name, or a Dockerfile to build from; default: wharf/python.
    #[schemars(with = "Option<Image>")]
    pub image: Option<Value>,
    /// When registries are asked for it; default: missing.
    pub pull: Option<Pull>,
    /// Commands run once, with network, into a cached image layer.
    pub setup: Option<Vec<String>>,
    /// Environment of every command; never put a secret here.
    pub env: Option<BTreeMap<String, String>>,
    /// Processors; default: 2.
    pub cpus: Option<f64>,
    /// Default: 2g.
    pub memory: Option<Size>,
    /// Processes and threads; default: 256, with gVisor 1024.
    #[schemars(range(min = 32))]
    pub pids: Option<Count>,
    /// What may be written; default: 4g.
    pub disk: Option<Size>,
    /// Files and folders that may lie there; default: 500000.
    #[schemars(range(min = 1000))]
    pub inodes: Option<Count>,
    /// The largest file; default: as `disk`.
    pub fsize: Option<Size>,
    /// Files one process may have open; default: 1024, which it may raise to 4096.
    #[schemars(range(min = 64))]
    pub nofile: Option<Count>,
    /// `none`, `full`, or the hosts that can be reached; default: none.
    #[schemars(with = "Option<Network>")]
    pub network: Option<Value>,
    /// A runtime of the engine, such as `runsc`; default: default.
    pub runtime: Option<String>,
    /// Containers kept ready for the next agents, up to 16; default: 0.
    #[schemars(range(min = 0, max = 16))]
    pub warm: Option<Count>,
    /// Refuse an engine that does not hold these limits, instead of a warning; default: false.
    pub strict: Option<bool>,
}

/// Where the image comes from.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "as `Network`")]
pub(super) enum Image {
    Name(String),
    Recipe(Recipe),
}

/// An image built from a Dockerfile; paths are relative to the plan file.
#[derive(Clone, Debug, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "as `Network`")]
pub(super) struct Recipe {
    pub dockerfile: String,
    /// The folder whose files it may take; default: the Dockerfile's.
    pub context: Option<String>,
}

/// What a sandbox can reach.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is read by hand; this is its schema")]
pub(super) enum Network {
    Word(NetworkWord),
    Hosts(Hosts),
}

#[derive(Clone, Debug, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "as `Network`")]
pub(super) enum NetworkWord {
    None,
    Full,
}

/// The hosts that can be reached, through Wharf alone.
#[derive(Clone, Debug, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "as `Network`")]
pub(super) struct Hosts {
    /// `host`, `*.host`, an address, each with or without `:port`; without one: 80 and 443.
    #[schemars(length(min = 1))]
    pub allow: Vec<String>,
    /// Names may lead to private and loopback addresses; default: false.
    #[serde(default)]
    pub private: Option<bool>,
    /// Bytes both ways, over all connections of one sandbox; default: 1g.
    #[serde(default)]
    pub bytes: Option<Size>,
    /// Connections at once; default: 64.
    #[serde(default)]
    #[schemars(range(min = 1, max = 256))]
    pub connections: Option<Count>,
    /// Headers that Wharf adds to requests, and that are never inside.
    #[serde(default)]
    pub inject: Option<Vec<Inject>>,
}

/// A header that Wharf adds to what agents ask one server for by http://.
#[derive(Clone, Debug, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "as `Network`")]
pub(super) struct Inject {
    /// One host that `allow` holds, with or without `:port`.
    pub host: String,
    pub header: String,
    /// The variable of Wharf's own environment that holds the value.
    pub env: String,
    /// Stands before the value, such as `Bearer `.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Wharf speaks TLS to the server; default: true.
    #[serde(default)]
    pub tls: Option<bool>,
}

/// Which tool calls may run.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Permissions {
    /// Default: auto.
    pub mode: Option<PermissionMode>,
    /// The first that matches decides, deny before allow.
    pub rules: Option<Vec<Rule>>,
    pub approver: Option<ApproverForm>,
}

/// A permission rule.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// A tool's name, or `*`.
    pub tool: String,
    /// A glob over the command line.
    pub command: Option<String>,
    /// A glob over the path.
    pub path: Option<String>,
    pub action: Action,
}

/// What the result is judged by.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Acceptance {
    /// Run by Wharf itself on the merged result; exit codes are facts.
    pub commands: Option<Vec<Command>>,
    /// Sentences the verifier judges one by one.
    pub criteria: Option<Vec<String>>,
}

/// How the result is judged.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Verify {
    /// Fresh verifiers asked, up to 9; more than half must agree; default: 1.
    #[schemars(range(min = 1, max = 9))]
    pub votes: Option<Count>,
}

/// How a long conversation is shortened.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Compaction {
    /// Share of the context window at which it starts; default: 0.7.
    #[schemars(range(min = 0.1, max = 1.0))]
    pub at: Option<f64>,
    /// Messages at the end kept whole; default: 6.
    #[schemars(range(min = 1))]
    pub keep: Option<Count>,
    /// Words that a summary of what is left out may have; default: 500.
    #[schemars(range(min = 50, max = 5000))]
    pub words: Option<Count>,
    /// The model, or models in order of fall-back, that write summaries; default: the agent's own.
    pub model: Option<Words>,
    /// Messages past which a conversation is shortened whatever its size; default: however many.
    #[schemars(range(min = 8))]
    pub messages: Option<Count>,
}

/// One kind of agent; what is not said comes from the built-in role of its name and the plan's top level.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Role {
    /// Default: by the role's name, else worker.
    pub kind: Option<Kind>,
    /// What the coordinator is told of it.
    pub description: Option<String>,
    /// The system message.
    pub prompt: Option<String>,
    /// A file that holds the prompt, relative to the plan file.
    pub prompt_file: Option<String>,
    /// Tool names; the tool that ends the agent is added by itself.
    pub tools: Option<Words>,
    pub model: Option<Words>,
    pub sandbox: Option<Sandbox>,
    pub agent: Option<Agent>,
}

/// The front matter of a role file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FrontMatter {
    pub name: Option<String>,
    pub description: Option<String>,
    pub tools: Option<Words>,
    pub model: Option<Words>,
    pub kind: Option<Kind>,
    pub sandbox: Option<Sandbox>,
    pub agent: Option<Agent>,
    /// Written by other tools for their screens; has no effect.
    #[serde(rename = "color")]
    pub _color: Option<String>,
}

/// A tool of the operator's: a command run in the sandbox, its arguments as JSON on standard input.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnTool {
    pub description: String,
    /// JSON Schema of the arguments; default: none are taken.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    pub schema: Option<Value>,
    pub command: String,
    /// Calls a minute, all agents of a run together; default: as many as there are. More wait.
    #[schemars(range(min = 1))]
    pub per_minute: Option<Count>,
}

/// A node of the DAG.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Subtask {
    #[schemars(regex(pattern = "^[a-z0-9][a-z0-9_-]{0,39}$"))]
    pub id: String,
    pub role: String,
    #[serde(default)]
    pub title: Option<String>,
    pub brief: String,
    #[serde(default)]
    pub needs: Option<Vec<String>>,
}
