//! A plan's words for a role as the rooms below want them.

use bytes::Bytes;

use crate::run::begin::history;
use crate::run::shared::Shared;
use crate::sandbox::{FileLimits, Image, ImageSpec, Labels, Network, Pull, Recipe, Spec};
use crate::workspace::{self, Store};
use crate::{plan, tools};

/// Everything that decides how a role's container is made.
pub(in crate::run) fn spec(
    shared: &Shared,
    sandbox: &plan::Sandbox,
    image: Image,
    subtask: &str,
    network: Network,
) -> Spec {
    let labels = Labels {
        machine: shared.options.machine.clone(),
        state: shared.options.state.display().to_string(),
        run: shared.id.to_string(),
        subtask: subtask.to_owned(),
    };
    Spec {
        history: history::within(shared.history.as_ref(), sandbox.disk),
        ..spec_of(sandbox, image, labels, network)
    }
}

/// `spec` for whoever stands outside of a run, without recent history.
pub(in crate::run) fn spec_of(
    sandbox: &plan::Sandbox,
    image: Image,
    labels: Labels,
    network: Network,
) -> Spec {
    Spec {
        image,
        env: sandbox.env.clone(),
        cpus: sandbox.cpus,
        memory: sandbox.memory,
        pids: sandbox.pids,
        disk: sandbox.disk,
        files: FileLimits {
            inodes: sandbox.inodes,
            size: sandbox.fsize.unwrap_or(sandbox.disk),
            open: (sandbox.nofile.soft, sandbox.nofile.hard),
        },
        strict: sandbox.strict,
        history: None,
        network,
        runtime: sandbox.runtime.clone(),
        labels,
    }
}

/// Files at the top of a workspace that package managers read beside what a command names.
const MANIFESTS: [&str; 13] = [
    "package.json",
    "package-lock.json",
    "pyproject.toml",
    "poetry.lock",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
    "Cargo.toml",
    "Cargo.lock",
    "go.mod",
    "go.sum",
    "Gemfile",
    "Gemfile.lock",
];

/// The image of a sandbox, with the files of the base that its setup commands may read.
pub(in crate::run) async fn image(
    shared: &Shared,
    sandbox: &plan::Sandbox,
) -> Result<ImageSpec, workspace::Error> {
    let (store, base) = (&shared.store, &shared.base.commit);
    Ok(ImageSpec {
        run: Some(shared.id.to_string()),
        ..image_of(store, base, sandbox, shared.options.bootstrap).await?
    })
}

/// `image` for whoever stands outside of a run.
pub(in crate::run) async fn image_of(
    store: &Store,
    base: &crate::id::CommitId,
    sandbox: &plan::Sandbox,
    bootstrap: bool,
) -> Result<ImageSpec, workspace::Error> {
    let mut setup_files = Vec::new();
    if !sandbox.setup.is_empty() {
        let words = sandbox
            .setup
            .iter()
            .flat_map(|line| line.split(|c: char| c.is_whitespace() || "\"'=;&|()".contains(c)));
        let mut names: Vec<&str> = MANIFESTS.into_iter().chain(words).collect();
        names.sort_unstable();
        names.dedup();
        for name in names
            .into_iter()
            .map(|n| n.trim_start_matches("./"))
            .filter(|n| !n.is_empty())
        {
            if let Some(bytes) = file(store, base, name).await? {
                setup_files.push((name.to_owned(), bytes));
            }
        }
    }
    Ok(ImageSpec {
        image: sandbox.image.to_string(),
        recipe: match &sandbox.image {
            plan::Image::Named(_) => None,
            plan::Image::Built {
                dockerfile,
                context,
            } => Some(Recipe {
                dockerfile: dockerfile.clone(),
                context: context.clone(),
            }),
        },
        pull: match sandbox.pull {
            plan::Pull::Missing => Pull::Missing,
            plan::Pull::Always => Pull::Always,
            plan::Pull::Never => Pull::Never,
        },
        setup: sandbox.setup.clone(),
        setup_files,
        bootstrap,
        run: None,
    })
}

async fn file(
    store: &Store,
    base: &crate::id::CommitId,
    name: &str,
) -> Result<Option<Bytes>, workspace::Error> {
    let is_path = !name.starts_with(['/', '-']) && !name.split('/').any(|part| part == "..");
    if is_path {
        store.blob(base, name.as_bytes()).await
    } else {
        Ok(None)
    }
}

/// The tools of a role with the plan's rules and the role's limits.
pub(in crate::run) fn tools(
    shared: &Shared,
    role: &plan::Role,
    ending: tools::Ending,
) -> tools::Options {
    let plan = &shared.plan;
    let own = plan
        .tools
        .iter()
        .filter(|(name, _)| role.tools.contains(name));
    tools::Options {
        names: role.tools.clone(),
        ending,
        own: own
            .map(|(name, tool)| tools::OwnTool {
                name: name.clone(),
                description: tool.description.clone(),
                schema: tool.schema.clone(),
                command: tool.command.clone(),
            })
            .collect(),
        mode: mode(plan.permissions.mode),
        rules: plan.permissions.rules.iter().map(rule).collect(),
        protect: plan.protect.clone(),
        protected_paths: shared.base_paths.clone(),
        memory: role.sandbox.memory,
        output: role.limits.output,
        timeout: role.limits.tool_timeout,
        acceptance: plan
            .acceptance
            .commands
            .iter()
            .map(|c| (c.run.clone(), c.timeout))
            .collect(),
    }
}

fn mode(mode: plan::PermissionMode) -> tools::Mode {
    match mode {
        plan::PermissionMode::Auto => tools::Mode::Auto,
        plan::PermissionMode::Ask => tools::Mode::Ask,
        plan::PermissionMode::Plan => tools::Mode::Plan,
        plan::PermissionMode::Deny => tools::Mode::Deny,
    }
}

fn rule(rule: &plan::Rule) -> tools::Rule {
    tools::Rule {
        tool: rule.tool.clone(),
        command: rule.command.clone(),
        path: rule.path.clone(),
        action: match rule.action {
            plan::Action::Allow => tools::Action::Allow,
            plan::Action::Ask => tools::Action::Ask,
            plan::Action::Deny => tools::Action::Deny,
        },
    }
}
