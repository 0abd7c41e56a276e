//! A whole plan file becomes a `Plan`: reading, checks of each part, roles, subtasks, hash.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::check;
use super::error::Error;
use super::files::{Loader, RoleFile};
use super::graph::Dag;
use super::image;
use super::nodes::GraphError;
use super::roles::{self, Ground, Layer, Layers};
use super::sections::{
    acceptance, compaction, hooks, own_tools, permissions, prices, providers, run_limits, votes,
    workspace,
};
use super::yaml::{At, Source};
use super::{Kind, OwnTool, Plan, Role, Sandbox, Subtask, built_in, raw};
use crate::id::{RoleName, SubtaskId};

pub(super) type Load<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Reads and checks a plan file. `name` stands in messages; `load` gives the text of a file named
/// relative to the plan (and, for a pattern with `*`, the matching paths, one a line).
pub fn parse(text: &str, name: &str, load: Load<'_>) -> Result<Plan, Error> {
    let source = Source::read(name, text)?;
    let file: raw::Plan = source.values()?;
    let top = source.top();
    check_version(&top, &file)?;
    let mut loader = Loader {
        load,
        loaded: Vec::new(),
    };
    let tools = own_tools(&top, &file)?;
    let (roles, sandbox) = resolve_roles(&top, &file, &tools, &mut loader)?;
    let model = match &file.model {
        Some(words) => check::models(&top.key("model"), words)?,
        None => Vec::new(),
    };
    let mut run = run_limits(&top, file.run.as_ref())?;
    let subtasks = subtasks(&top, file.subtasks.as_deref(), run.subtasks, &roles)?;
    if subtasks.is_empty() {
        need_coordinator(&top, &roles)?;
    } else {
        run.rounds = 1;
    }
    let task = file.task.as_ref();
    let task = task.map(|task| check::text(&top.key("task"), task));
    Ok(Plan {
        name: plan_name(&top, file.name.as_deref())?.unwrap_or_else(|| stem(name)),
        task: task.transpose()?,
        model,
        workspace: workspace(&top, file.workspace.unwrap_or_default())?,
        run,
        hooks: hooks(&top, file.hooks.as_ref(), &tools)?,
        permissions: permissions(&top, file.permissions.unwrap_or_default(), &tools)?,
        protect: check::globs(&top.key("protect"), &file.protect.unwrap_or_default())?,
        acceptance: acceptance(&top, file.acceptance.unwrap_or_default())?,
        votes: votes(&top, file.verify.unwrap_or_default())?,
        compaction: compaction(&top, file.compaction.unwrap_or_default())?,
        roles,
        tools,
        subtasks,
        providers: providers(&top, file.providers.unwrap_or_default())?,
        prices: prices(&top, file.prices.unwrap_or_default())?,
        sandbox,
        hash: hash(text, &loader.loaded),
    })
}

fn check_version(top: &At<'_>, file: &raw::Plan) -> Result<(), Error> {
    let at = top.key("version");
    match &file.version {
        Some(version) if version.as_u64() == Some(1) => Ok(()),
        Some(version) => {
            let message = format!("`{version}` is no version of the plan format");
            Err(at.value_fault(message, "write `version: 1`"))
        }
        None => Err(at.key_fault("`version` is missing", "start the file with `version: 1`")),
    }
}

fn plan_name(top: &At<'_>, name: Option<&str>) -> Result<Option<String>, Error> {
    let at = top.key("name");
    let Some(name) = name else {
        return Ok(None);
    };
    if name.chars().any(char::is_control) || name.chars().count() > 100 {
        let message = "`name` is no short line of text";
        return Err(at.value_fault(message, "write a name of at most 100 characters"));
    }
    check::text(&at, name).map(Some)
}

/// Every role, and the sandbox of what Wharf itself runs.
fn resolve_roles(
    top: &At<'_>,
    file: &raw::Plan,
    tools: &BTreeMap<String, OwnTool>,
    loader: &mut Loader<'_>,
) -> Result<(BTreeMap<RoleName, Role>, Sandbox), Error> {
    let below = Sandbox::default();
    let sandbox = check::lay_sandbox(&top.key("sandbox"), file.sandbox.as_ref(), &below)?;
    image::load(top, file.sandbox.as_ref(), loader)?;
    let written = file.roles.clone().unwrap_or_default();
    let base = built_in::roles()?;
    let mut layers = Layers::default();
    if !written.alone {
        layers.built_in = base.layers();
    }
    let files = role_files(top, file.role_files.as_ref(), loader)?;
    for file in &files {
        image::load(&file.source.top(), file.role.sandbox.as_ref(), loader)?;
        if layers
            .filed
            .insert(file.name.clone(), file.layer())
            .is_some()
        {
            let at = file.source.top().key("name");
            let message = format!("the role `{}` has two role files", file.name);
            return Err(at.value_fault(message, "rename one of them"));
        }
    }
    for (name, role) in written.by_name {
        let at = top.key("roles").key(&name);
        roles::role_name(&at, &name)?;
        image::load(&at, role.sandbox.as_ref(), loader)?;
        let prompt = own_prompt(&at, &role, loader)?;
        let layer = Layer {
            at,
            filed: false,
            role,
            prompt,
        };
        layers.own.insert(name, layer);
    }
    let ground = Ground {
        top: top.clone(),
        sandbox: file.sandbox.as_ref(),
        agent: file.agent.as_ref(),
        tools,
    };
    Ok((layers.resolve(&ground)?, sandbox))
}

/// The prompt a role gives, in place or by file.
pub(super) fn own_prompt(
    at: &At<'_>,
    role: &raw::Role,
    loader: &mut Loader<'_>,
) -> Result<Option<String>, Error> {
    match (&role.prompt, &role.prompt_file) {
        (Some(_), Some(_)) => {
            let at = at.key("prompt_file");
            let message = "a role has `prompt` or `prompt_file`, not both";
            Err(at.key_fault(message, "remove one of them"))
        }
        (Some(prompt), None) => check::text(&at.key("prompt"), prompt).map(Some),
        (None, Some(file)) => loader.prompt(&at.key("prompt_file"), file).map(Some),
        (None, None) => Ok(None),
    }
}

/// The role files of a plan, each read.
pub(super) fn role_files(
    top: &At<'_>,
    words: Option<&raw::Words>,
    loader: &mut Loader<'_>,
) -> Result<Vec<RoleFile>, Error> {
    let at = top.key("role_files");
    let mut files = Vec::new();
    for (i, pattern) in words
        .map(raw::Words::list)
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        let at = match words {
            Some(raw::Words::Many(_)) => at.item(i),
            _ => at.clone(),
        };
        files.extend(loader.roles(&at, pattern)?);
    }
    Ok(files)
}

fn need_coordinator(top: &At<'_>, roles: &BTreeMap<RoleName, Role>) -> Result<(), Error> {
    let at = top.key("roles").key("extends");
    let has = |kind| roles.values().any(|role| role.kind == kind);
    if !has(Kind::Coordinator) {
        let hint = "add a role `coordinator` with a prompt, or fixed `subtasks`";
        return Err(at.key_fault("no coordinator is left, and no subtasks are given", hint));
    }
    let worker = |role: &Role| role.kind == Kind::Worker && role.name.as_str() != "merger";
    if !roles.values().any(worker) {
        return Err(at.key_fault("no worker is left", "add a role with a prompt"));
    }
    Ok(())
}

fn subtasks(
    top: &At<'_>,
    list: Option<&[raw::Subtask]>,
    limit: usize,
    roles: &BTreeMap<RoleName, Role>,
) -> Result<Vec<Subtask>, Error> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let subtask = |raw: &raw::Subtask| Subtask {
        id: SubtaskId::new(&raw.id),
        role: RoleName::new(&raw.role),
        title: raw.title.clone(),
        brief: raw.brief.clone(),
        needs: raw.needs.iter().flatten().map(SubtaskId::new).collect(),
    };
    let subtasks: Vec<Subtask> = list.iter().map(subtask).collect();
    match Dag::new(subtasks.clone(), limit, roles) {
        Ok(_) => Ok(subtasks),
        Err(error) => Err(graph_fault(top, &error)),
    }
}

/// Shows a fault of the graph at its place in the file.
fn graph_fault(top: &At<'_>, error: &GraphError) -> Error {
    let at = top.key("subtasks");
    let whole = error.to_string();
    let (message, hint) = whole.rsplit_once("; ").unwrap_or((&whole, ""));
    let item = error
        .index()
        .map_or_else(|| at.clone(), |index| at.item(index));
    match error {
        GraphError::Empty => {
            let hint = "write at least one, or remove the key so that the coordinator plans";
            at.key_fault("`subtasks` is empty", hint)
        }
        GraphError::TooMany { .. } => {
            at.key_fault(message, format!("{hint}, or raise `run.subtasks`"))
        }
        GraphError::OddId { .. } | GraphError::Duplicate { .. } => {
            item.key("id").value_fault(message, hint)
        }
        GraphError::UnknownRole { .. } => item.key("role").value_fault(message, hint),
        GraphError::EmptyBrief { .. } => item.key("brief").value_fault(message, hint),
        GraphError::MissingNeed { place, .. }
        | GraphError::NeedTwice { place, .. }
        | GraphError::Cycle { place, .. } => {
            item.key("needs").item(*place).value_fault(message, hint)
        }
    }
}

/// The file's name without folder and ending.
fn stem(name: &str) -> String {
    let base = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let stem = base.split('.').find(|part| !part.is_empty());
    stem.unwrap_or("plan").to_owned()
}

/// SHA-256 over the plan and what it loaded, each with its length.
fn hash(text: &str, loaded: &[(String, String)]) -> String {
    let mut hasher = Sha256::new();
    let mut part = |text: &str| {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    part(text);
    for (name, text) in loaded {
        part(name);
        part(text);
    }
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
