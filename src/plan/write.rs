//! A checked plan as the text of a plan file, with its subtasks fixed.

use serde_json::{Map, Value, json};

use super::check::Agent;
use super::consent;
use super::error::Error;
use super::{AcceptanceCommand, AgentLimits, Kind, Plan, Provider, Role, Sandbox, Subtask, units};

/// Why a plan could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("reading the built-in plan: {0}")]
    BuiltIn(#[from] Box<Error>),
    #[error("writing the plan as YAML")]
    Yaml(#[source] serde_saphyr::SerializeError),
}

impl Plan {
    /// The text of a plan file that says the same, with these subtasks. Keys that hold their
    /// default are left out; prompts stand in the text, so that the file needs no other.
    pub fn to_yaml(&self, subtasks: &[Subtask]) -> Result<String, WriteError> {
        let built_in = Self::built_in().map_err(Box::new)?;
        let mut file = Map::new();
        file.insert("version".to_owned(), json!(1));
        file.insert("name".to_owned(), json!(self.name));
        put(
            &mut file,
            "task",
            self.task.as_ref().map(|task| json!(task)),
        );
        put(&mut file, "model", words(&self.model));
        put(&mut file, "workspace", self.workspace_keys(&built_in));
        put(&mut file, "run", self.run_keys(&built_in));
        put(
            &mut file,
            "sandbox",
            sandbox(&self.sandbox, &Sandbox::default()),
        );
        put(&mut file, "permissions", self.permission_keys());
        put(&mut file, "hooks", consent::hooks(&self.hooks));
        put(&mut file, "protect", words_list(&self.protect));
        put(&mut file, "acceptance", self.acceptance_keys());
        if self.compaction != built_in.compaction {
            file.insert("compaction".to_owned(), compaction(&self.compaction));
        }
        put(&mut file, "roles", self.role_keys(&built_in));
        put(&mut file, "tools", self.tool_keys());
        put(&mut file, "providers", self.provider_keys());
        let prices = self.prices.iter();
        let prices: Map<String, Value> =
            prices.map(|(name, p)| (name.clone(), price(*p))).collect();
        put(&mut file, "prices", filled(prices));
        if !subtasks.is_empty() {
            file.insert(
                "subtasks".to_owned(),
                subtasks.iter().map(subtask).collect(),
            );
        }
        serde_saphyr::to_string(&Value::Object(file)).map_err(WriteError::Yaml)
    }

    fn workspace_keys(&self, built_in: &Self) -> Option<Value> {
        let mut keys = Map::new();
        let (workspace, usual) = (&self.workspace, &built_in.workspace);
        put(
            &mut keys,
            "path",
            workspace.path.as_ref().map(|path| json!(path)),
        );
        put(&mut keys, "copy", workspace.copy.then(|| json!(true)));
        if workspace.history != usual.history {
            keys.insert("history".to_owned(), json!(workspace.history));
        }
        if workspace.hide != usual.hide {
            keys.insert("hide".to_owned(), json!(workspace.hide));
        }
        if !workspace.include.is_empty() {
            keys.insert("include".to_owned(), json!(workspace.include));
        }
        filled(keys)
    }

    fn run_keys(&self, built_in: &Self) -> Option<Value> {
        let mut keys = Map::new();
        let (run, usual) = (&self.run, &built_in.run);
        differ(&mut keys, "parallel", run.parallel, usual.parallel);
        differ(&mut keys, "subtasks", run.subtasks, usual.subtasks);
        differ(&mut keys, "rounds", run.rounds, usual.rounds);
        differ(&mut keys, "tokens", run.tokens, usual.tokens);
        put(&mut keys, "cost_usd", run.cost_usd.map(|usd| json!(usd)));
        if run.time != usual.time {
            keys.insert("time".to_owned(), json!(units::show_duration(run.time)));
        }
        filled(keys)
    }

    fn permission_keys(&self) -> Option<Value> {
        let mut keys = Map::new();
        if self.permissions.mode != super::PermissionMode::Auto {
            keys.insert("mode".to_owned(), json!(self.permissions.mode));
        }
        let rules = self.permissions.rules.iter().map(|rule| {
            let mut keys = Map::new();
            keys.insert("tool".to_owned(), json!(rule.tool));
            put(
                &mut keys,
                "command",
                rule.command.as_ref().map(|glob| json!(glob)),
            );
            put(
                &mut keys,
                "path",
                rule.path.as_ref().map(|glob| json!(glob)),
            );
            keys.insert("action".to_owned(), json!(rule.action));
            Value::Object(keys)
        });
        let rules: Vec<Value> = rules.collect();
        put(
            &mut keys,
            "rules",
            (!rules.is_empty()).then(|| json!(rules)),
        );
        let approver = self.permissions.approver.as_ref();
        put(&mut keys, "approver", approver.map(consent::approver));
        filled(keys)
    }

    fn acceptance_keys(&self) -> Option<Value> {
        let mut keys = Map::new();
        let command = |command: &AcceptanceCommand| json!({"run": command.run, "timeout": units::show_duration(command.timeout)});
        let commands: Vec<Value> = self.acceptance.commands.iter().map(command).collect();
        put(
            &mut keys,
            "commands",
            (!commands.is_empty()).then(|| json!(commands)),
        );
        put(&mut keys, "criteria", words_list(&self.acceptance.criteria));
        filled(keys)
    }

    /// Roles by what they add to the built-in ones; all of each when a built-in one is missing.
    fn role_keys(&self, built_in: &Self) -> Option<Value> {
        let alone = built_in
            .roles
            .keys()
            .any(|name| !self.roles.contains_key(name));
        let mut keys = Map::new();
        if alone {
            keys.insert("extends".to_owned(), json!("none"));
        }
        for (name, own) in &self.roles {
            let base = built_in.roles.get(name).filter(|_| !alone);
            put(&mut keys, name.as_str(), self.role(own, base));
        }
        filled(keys)
    }

    fn role(&self, role: &Role, base: Option<&Role>) -> Option<Value> {
        let mut keys = Map::new();
        if base.is_none() && role.kind != Kind::Worker {
            keys.insert("kind".to_owned(), json!(role.kind));
        }
        let same = |pick: fn(&Role) -> &String| base.map(pick) == Some(pick(role));
        if !role.description.is_empty() && !same(|role| &role.description) {
            keys.insert("description".to_owned(), json!(role.description));
        }
        if !same(|role| &role.prompt) {
            keys.insert("prompt".to_owned(), json!(role.prompt));
        }
        if base.map(|base| &base.tools) != Some(&role.tools) {
            keys.insert("tools".to_owned(), json!(role.tools));
        }
        put(&mut keys, "model", words(&role.model));
        put(&mut keys, "sandbox", sandbox(&role.sandbox, &self.sandbox));
        put(&mut keys, "agent", agent(role, base));
        filled(keys)
    }

    fn tool_keys(&self) -> Option<Value> {
        let tool = |tool: &super::OwnTool| {
            let mut keys = json!({"description": tool.description, "schema": tool.schema, "command": tool.command});
            if let Some(rate) = tool.per_minute {
                keys["per_minute"] = json!(rate);
            }
            keys
        };
        let tools = self
            .tools
            .iter()
            .map(|(name, own)| (name.clone(), tool(own)));
        filled(tools.collect())
    }

    fn provider_keys(&self) -> Option<Value> {
        let each = self.providers.iter();
        filled(
            each.map(|(name, own)| (name.clone(), provider(own)))
                .collect(),
        )
    }
}

fn provider(provider: &Provider) -> Value {
    let mut keys = Map::new();
    keys.insert("kind".to_owned(), json!(provider.kind));
    keys.insert("base_url".to_owned(), json!(provider.base_url));
    put(
        &mut keys,
        "api_key_env",
        provider.api_key_env.as_ref().map(|name| json!(name)),
    );
    put(
        &mut keys,
        "profile",
        provider.profile.as_ref().map(|name| json!(name)),
    );
    put(
        &mut keys,
        "context_window",
        provider.context_window.map(|tokens| json!(tokens)),
    );
    put(&mut keys, "price", provider.price.map(price));
    Value::Object(keys)
}

fn price((input, cached, output): (f64, f64, f64)) -> Value {
    json!({"input": input, "cached_input": cached, "output": output})
}

fn sandbox(own: &Sandbox, below: &Sandbox) -> Option<Value> {
    let mut keys = Map::new();
    if own.image != below.image {
        keys.insert("image".to_owned(), own.image.written());
    }
    differ(&mut keys, "pull", own.pull, below.pull);
    differ(&mut keys, "setup", &own.setup, &below.setup);
    differ(&mut keys, "env", &own.env, &below.env);
    differ(&mut keys, "cpus", own.cpus, below.cpus);
    if own.memory != below.memory {
        keys.insert("memory".to_owned(), json!(units::show_size(own.memory)));
    }
    differ(&mut keys, "pids", own.pids, below.pids);
    if own.disk != below.disk {
        keys.insert("disk".to_owned(), json!(units::show_size(own.disk)));
    }
    differ(&mut keys, "inodes", own.inodes, below.inodes);
    if own.fsize != below.fsize {
        let size = own.fsize.map(|bytes| json!(units::show_size(bytes)));
        put(&mut keys, "fsize", size);
    }
    if own.nofile != below.nofile {
        keys.insert("nofile".to_owned(), json!(own.nofile.hard));
    }
    if own.network != below.network {
        keys.insert("network".to_owned(), own.network.written());
    }
    if own.runtime != below.runtime {
        let runtime = own.runtime.as_deref().unwrap_or("default");
        keys.insert("runtime".to_owned(), json!(runtime));
    }
    differ(&mut keys, "strict", own.strict, below.strict);
    differ(&mut keys, "warm", own.warm, below.warm);
    filled(keys)
}

fn agent(role: &Role, base: Option<&Role>) -> Option<Value> {
    let usual = Agent::default();
    let below: &AgentLimits = base.map_or(&usual.limits, |base| &base.limits);
    let own = &role.limits;
    let mut keys = Map::new();
    differ(&mut keys, "turns", own.turns, below.turns);
    differ(&mut keys, "tokens", own.tokens, below.tokens);
    if own.time != below.time {
        keys.insert("time".to_owned(), json!(units::show_duration(own.time)));
    }
    differ(&mut keys, "tool_calls", own.tool_calls, below.tool_calls);
    if own.tool_timeout != below.tool_timeout {
        keys.insert(
            "tool_timeout".to_owned(),
            json!(units::show_duration(own.tool_timeout)),
        );
    }
    differ(&mut keys, "output", own.output, below.output);
    differ(
        &mut keys,
        "reply_tokens",
        own.reply_tokens,
        below.reply_tokens,
    );
    put(
        &mut keys,
        "temperature",
        role.temperature.map(|number| json!(number)),
    );
    put(&mut keys, "effort", role.effort.map(|effort| json!(effort)));
    put(
        &mut keys,
        "context_window",
        role.context_window.map(|tokens| json!(tokens)),
    );
    filled(keys)
}

fn subtask(subtask: &Subtask) -> Value {
    let mut keys = Map::new();
    keys.insert("id".to_owned(), json!(subtask.id));
    keys.insert("role".to_owned(), json!(subtask.role));
    put(
        &mut keys,
        "title",
        subtask.title.as_ref().map(|title| json!(title)),
    );
    keys.insert("brief".to_owned(), json!(subtask.brief));
    put(
        &mut keys,
        "needs",
        (!subtask.needs.is_empty()).then(|| json!(subtask.needs)),
    );
    Value::Object(keys)
}

fn put(keys: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        keys.insert(key.to_owned(), value);
    }
}

fn differ<T: PartialEq + serde::Serialize>(
    keys: &mut Map<String, Value>,
    key: &str,
    own: T,
    usual: T,
) {
    if own != usual {
        keys.insert(key.to_owned(), json!(own));
    }
}

fn filled(keys: Map<String, Value>) -> Option<Value> {
    (!keys.is_empty()).then_some(Value::Object(keys))
}

/// One word as text, several as a list.
fn compaction(compaction: &super::Compaction) -> Value {
    let mut keys = Map::new();
    keys.insert("at".to_owned(), json!(compaction.at));
    keys.insert("keep".to_owned(), json!(compaction.keep));
    keys.insert("words".to_owned(), json!(compaction.words));
    put(&mut keys, "model", words(&compaction.model));
    put(
        &mut keys,
        "messages",
        compaction.messages.map(|most| json!(most)),
    );
    Value::Object(keys)
}

fn words(list: &[String]) -> Option<Value> {
    match list {
        [one] => Some(json!(one)),
        list => words_list(list),
    }
}

fn words_list(list: &[String]) -> Option<Value> {
    (!list.is_empty()).then(|| json!(list))
}
