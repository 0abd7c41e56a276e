//! Roles: the built-in ones, the plan's own and role files, laid over each other key by key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::check::{self, Agent};
use super::error::{Error, suggest};
use super::yaml::At;
use super::{Kind, OwnTool, Role, Sandbox, raw};
use crate::id::{RoleName, is_valid};

/// The tools of the contract, the ending ones apart.
pub const TOOLS: [&str; 8] = [
    "bash",
    "process",
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "grep",
    "run_acceptance",
];

/// The tools that end an agent; every role has the one of its kind.
pub const ENDINGS: [&str; 3] = ["submit_plan", "submit_report", "submit_verdict"];

/// What other agent tools call ours, in role files.
const FOREIGN: [(&str, &str); 8] = [
    ("Bash", "bash"),
    ("Read", "read_file"),
    ("Write", "write_file"),
    ("Edit", "edit_file"),
    ("MultiEdit", "edit_file"),
    ("Glob", "list_files"),
    ("LS", "list_files"),
    ("Grep", "grep"),
];

/// The keys of one role as one file gives them.
pub(super) struct Layer<'a> {
    pub at: At<'a>,
    /// It stands in a file of its own.
    pub filed: bool,
    pub role: raw::Role,
    /// Its prompt, or the text of its prompt file.
    pub prompt: Option<String>,
}

/// What every role starts from.
pub(super) struct Ground<'a> {
    pub top: At<'a>,
    pub sandbox: Option<&'a raw::Sandbox>,
    pub agent: Option<&'a raw::Agent>,
    pub tools: &'a BTreeMap<String, OwnTool>,
}

/// All layers of a plan's roles, from the lowest to the highest.
#[derive(Default)]
pub(super) struct Layers<'a> {
    pub built_in: BTreeMap<String, Layer<'a>>,
    pub filed: BTreeMap<String, Layer<'a>>,
    pub own: BTreeMap<String, Layer<'a>>,
}

impl Layers<'_> {
    /// Merges every role. Built-in keys lie below the plan's top level, a plan's own above it.
    pub fn resolve(&self, ground: &Ground<'_>) -> Result<BTreeMap<RoleName, Role>, Error> {
        let names = self
            .built_in
            .keys()
            .chain(self.filed.keys())
            .chain(self.own.keys());
        let mut roles = BTreeMap::new();
        for name in names {
            if let Entry::Vacant(place) = roles.entry(RoleName::new(name)) {
                place.insert(self.merge(name, ground)?);
            }
        }
        self.one_each(&roles)?;
        Ok(roles)
    }

    fn merge(&self, name: &str, ground: &Ground<'_>) -> Result<Role, Error> {
        let below = self.built_in.get(name);
        let above: Vec<&Layer<'_>> = [self.filed.get(name), self.own.get(name)]
            .into_iter()
            .flatten()
            .collect();
        let (sandbox, agent) = settings(below, ground, &above)?;
        let all: Vec<&Layer<'_>> = below.into_iter().chain(above).collect();
        let kind = kind(name, &all)?;
        let prompt = all.iter().rev().find_map(|layer| layer.prompt.clone());
        let Some(prompt) = prompt else {
            return Err(self.no_prompt(name, &all));
        };
        let mut role = Role {
            name: RoleName::new(name),
            kind,
            description: String::new(),
            prompt,
            tools: usual_tools(kind, ground.tools),
            model: Vec::new(),
            temperature: agent.temperature,
            effort: agent.effort,
            context_window: agent.context_window,
            sandbox,
            limits: agent.limits,
        };
        for layer in all {
            let Layer { at, role: keys, .. } = layer;
            if let Some(text) = &keys.description {
                role.description = check::text(&at.key("description"), text)?;
            }
            if let Some(words) = &keys.tools {
                role.tools = tools(layer, words, ground.tools)?;
            }
            if let Some(words) = &keys.model {
                role.model = check::models(&at.key("model"), words)?;
            }
        }
        Ok(role)
    }

    fn no_prompt(&self, name: &str, all: &[&Layer<'_>]) -> Error {
        let near = suggest(name, self.built_in.keys().map(String::as_str));
        let hint = match near.strip_prefix("did you mean") {
            Some(_) => format!("{near} A new role takes `prompt` or `prompt_file`"),
            None => "add `prompt` or `prompt_file`".to_owned(),
        };
        let message = format!("the role `{name}` has no prompt");
        match all.last() {
            Some(layer) => layer.at.key_fault(message, hint),
            None => Error::at(("", ""), (1, 1), message, hint),
        }
    }

    /// At most one coordinator and one verifier.
    fn one_each(&self, roles: &BTreeMap<RoleName, Role>) -> Result<(), Error> {
        for (kind, word) in [
            (Kind::Coordinator, "coordinator"),
            (Kind::Verifier, "verifier"),
        ] {
            let mut named = roles.values().filter(|role| role.kind == kind);
            let other = |role: &&Role| role.name.as_str() != word;
            if named.clone().count() < 2 {
                continue;
            }
            let Some(second) = named.rfind(other) else {
                continue;
            };
            let name = second.name.as_str();
            if let Some(layer) = self.own.get(name).or_else(|| self.filed.get(name)) {
                let message = format!("`{name}` is a second {word}; a plan has one");
                let hint = format!(
                    "name it `{word}` to override the built-in one, or write `extends: none`"
                );
                return Err(layer.at.key("kind").value_fault(message, hint));
            }
        }
        Ok(())
    }
}

fn settings(
    below: Option<&Layer<'_>>,
    ground: &Ground<'_>,
    above: &[&Layer<'_>],
) -> Result<(Sandbox, Agent), Error> {
    let mut sandbox = Sandbox::default();
    let mut agent = Agent::default();
    let mut lay = |at: &At<'_>, s: Option<&raw::Sandbox>, a: Option<&raw::Agent>| {
        sandbox = check::lay_sandbox(&at.key("sandbox"), s, &sandbox)?;
        agent = check::lay_agent(&at.key("agent"), a, &agent)?;
        Ok::<(), Error>(())
    };
    if let Some(Layer { at, role, .. }) = below {
        lay(at, role.sandbox.as_ref(), role.agent.as_ref())?;
    }
    lay(&ground.top, ground.sandbox, ground.agent)?;
    for Layer { at, role, .. } in above {
        lay(at, role.sandbox.as_ref(), role.agent.as_ref())?;
    }
    Ok((sandbox, agent))
}

fn kind(name: &str, all: &[&Layer<'_>]) -> Result<Kind, Error> {
    let fixed = match name {
        "coordinator" => Some(Kind::Coordinator),
        "verifier" => Some(Kind::Verifier),
        "merger" => Some(Kind::Worker),
        _ => None,
    };
    let said = all
        .iter()
        .rev()
        .find_map(|layer| Some((*layer, layer.role.kind?)));
    match (fixed, said) {
        (Some(fixed), Some((layer, kind))) if kind != fixed => {
            let message = format!("the role `{name}` cannot be of another kind");
            let hint = "remove `kind`, or give the role another name";
            Err(layer.at.key("kind").value_fault(message, hint))
        }
        (Some(fixed), _) => Ok(fixed),
        (None, said) => Ok(said.map_or(Kind::Worker, |(_, kind)| kind)),
    }
}

/// What a role may do when its file does not say.
fn usual_tools(kind: Kind, own: &BTreeMap<String, OwnTool>) -> Vec<String> {
    let names: &[&str] = match kind {
        Kind::Coordinator => &["read_file", "list_files", "grep"],
        Kind::Verifier => &[
            "bash",
            "process",
            "read_file",
            "list_files",
            "grep",
            "run_acceptance",
        ],
        Kind::Worker => &TOOLS,
    };
    let mut tools: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    if kind == Kind::Worker {
        tools.extend(own.keys().cloned());
    }
    tools
}

fn tools(
    layer: &Layer<'_>,
    words: &raw::Words,
    own: &BTreeMap<String, OwnTool>,
) -> Result<Vec<String>, Error> {
    let at = layer.at.key("tools");
    let mut tools: Vec<String> = Vec::new();
    let pieces: Vec<(At<'_>, &str)> = match words {
        raw::Words::One(line) => line
            .split(',')
            .map(|word| (at.clone(), word.trim()))
            .collect(),
        raw::Words::Many(list) => list
            .iter()
            .enumerate()
            .map(|(i, word)| (at.item(i), word.as_str()))
            .collect(),
    };
    let filed = layer.filed;
    for (at, word) in pieces {
        let foreign = FOREIGN.iter().find(|(name, _)| filed && *name == word);
        let name = foreign.map_or(word, |(_, ours)| ours);
        known_tool(&at, name, own)?;
        match tools.iter().any(|tool| tool == name) {
            true if foreign.is_none() => {
                let message = format!("the tool `{name}` is listed twice");
                return Err(at.value_fault(message, "list it once"));
            }
            true => {}
            false => tools.push(name.to_owned()),
        }
    }
    Ok(tools)
}

/// Checks that a tool exists and may be named.
pub(super) fn known_tool(
    at: &At<'_>,
    name: &str,
    own: &BTreeMap<String, OwnTool>,
) -> Result<(), Error> {
    if ENDINGS.contains(&name) {
        let message = format!("`{name}` is not listed: every agent has the tool that ends it");
        return Err(at.value_fault(message, "remove it"));
    }
    if TOOLS.contains(&name) || own.contains_key(name) {
        return Ok(());
    }
    let known = TOOLS.into_iter().chain(own.keys().map(String::as_str));
    Err(at.value_fault(format!("unknown tool `{name}`"), suggest(name, known)))
}

/// Checks the name of a role.
pub(super) fn role_name(at: &At<'_>, name: &str) -> Result<(), Error> {
    if is_valid(name) && name != "extends" {
        return Ok(());
    }
    let message = format!("`{name}` is no name for a role");
    Err(at.key_fault(
        message,
        "use 1 to 40 of a-z, 0-9, _ and -, first a letter or digit",
    ))
}
