//! The plan and the prompts that Wharf brings along, from the files under `plans/`.

use std::collections::BTreeMap;

use super::error::Error;
use super::files::Loader;
use super::parse::{own_prompt, parse};
use super::roles::Layer;
use super::yaml::Source;
use super::{Plan, raw};

/// The text of `plans/default.yaml`.
pub const DEFAULT: &str = include_str!("../../plans/default.yaml");

const NAME: &str = "default.yaml";

const PROMPTS: [(&str, &str); 6] = [
    (
        "prompts/coordinator.md",
        include_str!("../../plans/prompts/coordinator.md"),
    ),
    (
        "prompts/researcher.md",
        include_str!("../../plans/prompts/researcher.md"),
    ),
    (
        "prompts/coder.md",
        include_str!("../../plans/prompts/coder.md"),
    ),
    (
        "prompts/reviewer.md",
        include_str!("../../plans/prompts/reviewer.md"),
    ),
    (
        "prompts/verifier.md",
        include_str!("../../plans/prompts/verifier.md"),
    ),
    (
        "prompts/merger.md",
        include_str!("../../plans/prompts/merger.md"),
    ),
];

/// The built-in roles as written, each with its prompt.
pub(super) struct Base {
    pub source: Source,
    pub roles: BTreeMap<String, (raw::Role, String)>,
}

impl Base {
    /// The roles as the lowest layers of a plan's.
    pub fn layers(&self) -> BTreeMap<String, Layer<'_>> {
        let list = self.source.top().key("roles");
        let layer = |(name, (role, prompt)): (&String, &(raw::Role, String))| {
            let layer = Layer {
                at: list.key(name),
                filed: false,
                role: role.clone(),
                prompt: Some(prompt.clone()),
            };
            (name.clone(), layer)
        };
        self.roles.iter().map(layer).collect()
    }
}

fn load(path: &str) -> Result<String, String> {
    let found = PROMPTS.iter().find(|(name, _)| *name == path);
    found
        .map(|(_, text)| (*text).to_owned())
        .ok_or_else(|| "no such built-in file".to_owned())
}

/// Reads the built-in roles. It fails only when Wharf itself was built from a broken file.
pub(super) fn roles() -> Result<Base, Error> {
    let source = Source::read(NAME, DEFAULT)?;
    let file: raw::Plan = source.values()?;
    let mut loader = Loader {
        load: &load,
        loaded: Vec::new(),
    };
    let mut roles = BTreeMap::new();
    for (name, role) in file.roles.unwrap_or_default().by_name {
        let at = source.top().key("roles").key(&name);
        let prompt = own_prompt(&at, &role, &mut loader)?;
        let prompt = prompt.ok_or_else(|| at.key_fault("the role has no prompt", "add one"))?;
        roles.insert(name, (role, prompt));
    }
    Ok(Base { source, roles })
}

impl Plan {
    /// The plan that holds when there is no plan file.
    pub fn built_in() -> Result<Self, Error> {
        parse(DEFAULT, NAME, &load)
    }
}
