//! What was typed becomes what is meant: the plan, the task, the workspace, and the order for `run`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::fault::Fault;
use super::live::Teller;
use super::plan_file::{self, PlanFile};
use super::run::Args;
use super::{plan, state, target};
use crate::config::{Config, Flags};
use crate::journal::{self, Event};
use crate::plan::Plan;
use crate::run::{Keep, Models, Order, Stopper, Summary};
use crate::{ops, trace};

/// Bytes of a task.
const TASK_LIMIT: u64 = 256 << 10;
/// How long the last spans may take.
pub const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// What is known before anything is connected.
pub struct Placed {
    config: Config,
    file: PlanFile,
    task: String,
    workspace: PathBuf,
}

/// Checks everything that can be wrong with what was typed.
pub async fn place(args: &Args) -> Result<Placed, Fault> {
    let mut config = state::settings(&flags(args))?;
    if config
        .run_id
        .as_ref()
        .is_some_and(|id| id.as_str() == "last")
    {
        return Err(
            Fault::usage("--run-id last: `last` already means the newest run")
                .hint("choose another id"),
        );
    }
    let mut file = plan_file::find(config.plan.as_deref())?;
    let text = file.text.clone();
    let path = file.path.clone();
    config.apply(&mut file.plan, &text, path.as_deref())?;
    config.trust(&file.plan, file.path.as_deref())?;
    let task = task(args, &file)?;
    let workspace = workspace(&config, &file)?;
    // A plan that is written elsewhere must name the same directory.
    if let (Some(path), Some(whole)) = (&mut file.plan.workspace.path, workspace.to_str()) {
        whole.clone_into(path);
    }
    if let Some(path) = &args.output {
        // Before anything is asked of a model; the file is also written only where none is.
        target::new_file("--output", path, target::Room::Nothing)?;
    }
    target::check(&config, &workspace).await?;
    Ok(Placed {
        config,
        file,
        task,
        workspace,
    })
}

/// What to do, and the engine it is done with.
pub struct Ready {
    pub order: Order,
    pub engine: ops::Engine,
    /// Bytes that cached images may have together.
    pub cache: u64,
}

/// Removes cached images past their size. The run is over by then, so a failure is only told.
pub async fn trim(engine: &ops::Engine, cache: u64, teller: &Teller) {
    match engine.trim(cache).await {
        Ok(gone) => gone
            .iter()
            .for_each(|line| teller.text(&format!("removed {line}"))),
        Err(error) => teller.text(&format!("warning: {error}")),
    }
}

/// Connects to what the run needs.
pub async fn ready(placed: Placed, teller: &Teller, stop: &Stopper) -> Result<Ready, Fault> {
    let Placed {
        config,
        file,
        task,
        workspace,
    } = placed;
    for warning in &config.warnings {
        teller.text(&format!("warning: {warning}"));
    }
    for line in config.told(&file.plan, teller.can_ask()) {
        teller.text(&line);
    }
    let models = models(&config, &file.plan, Some(&file))?;
    let engine = state::engine(&config).await?;
    bury(&engine, &config, teller).await;
    let tracer = tracer(&config.trace, teller);
    let order = Order {
        keep: Keep {
            plan_path: file.path,
            plan_files: file.files,
            secrets: config.secrets.clone(),
        },
        options: config.run_options(),
        consent: config.consent(&workspace),
        plan: file.plan,
        plan_text: file.text,
        task,
        workspace,
        models,
        engine: engine.to_run(),
        tracer,
        watch: Arc::new(teller.clone()),
        stop: stop.clone(),
    };
    Ok(Ready {
        order,
        engine,
        cache: config.cache,
    })
}

/// The tracer of these options; where they cannot be used, spans go nowhere.
pub fn tracer(options: &trace::Options, teller: &Teller) -> trace::Tracer {
    trace::Tracer::open(options).unwrap_or_else(|error| {
        teller.text(&format!("warning: {error}"));
        trace::Tracer::unsent(options)
    })
}

/// Removes what dead runs left. It must not keep a new run from starting, so a failure is only told.
pub async fn bury(engine: &ops::Engine, config: &Config, teller: &Teller) {
    match engine.bury(&config.state).await {
        Ok(gone) => gone
            .iter()
            .for_each(|line| teller.text(&format!("removed {line}"))),
        Err(error) => teller.text(&format!("warning: {error}")),
    }
}

/// The plan that `--plan-only` ended with, its subtasks fixed, as a plan file's text.
pub fn plan_text(plan: &Plan, summary: &Summary) -> Result<Option<String>, Fault> {
    let read = journal::read(&Path::new(&summary.run_dir).join("journal.jsonl"))?;
    let accepted = read
        .lines
        .into_iter()
        .rev()
        .find_map(|line| match line.event {
            Event::PlanAccepted {
                subtasks, criteria, ..
            } => Some((subtasks, criteria)),
            _ => None,
        });
    let Some((subtasks, criteria)) = accepted else {
        return Ok(None);
    };
    let subtasks: Vec<_> = subtasks.into_iter().map(plan::planned).collect();
    let mut plan = plan.clone();
    plan.task = Some(summary.task.clone());
    // A fixed DAG has no coordinator to say again how one would know that the task is done.
    for criterion in criteria {
        if !plan.acceptance.criteria.contains(&criterion) {
            plan.acceptance.criteria.push(criterion);
        }
    }
    let text = plan
        .to_yaml(&subtasks)
        .map_err(|error| Fault::new(3, "bug", error.to_string()))?;
    Ok(Some(text))
}

/// Opens the models of every role; none at all is a fault of its own. One that `file` names and that
/// cannot be opened is told at its place there.
pub fn models(config: &Config, plan: &Plan, file: Option<&PlanFile>) -> Result<Models, Fault> {
    let providers = config.model_providers();
    let open = |names: &[String]| {
        let opened = ops::open_models(names, &providers, &config.secrets);
        opened.map_err(|error| plan_file::unopened(file, error))
    };
    let mut roles = BTreeMap::new();
    for (name, role) in plan.roles.iter().filter(|(_, role)| !role.model.is_empty()) {
        let opened = open(&role.model)?;
        roles.insert(name.to_string(), config.priced(opened));
    }
    let all_have_one = plan.roles.values().all(|role| !role.model.is_empty());
    if plan.model.is_empty() && !all_have_one {
        return Err(Fault::new(2, "model", "no model is named").hint(
            "give --model provider/model, or `model:` in the plan; such as \
             anthropic/claude-sonnet-5 or openai/gpt-4.1",
        ));
    }
    let default = config.priced(open(&plan.model)?);
    let summary = config.priced(open(&plan.compaction.model)?);
    Ok(Models {
        default,
        roles,
        summary,
    })
}

fn flags(args: &Args) -> Flags {
    Flags {
        plan: args.plan.clone(),
        workspace: args.workspace.clone(),
        model: args.model.clone(),
        role_models: args.role_model.clone(),
        parallel: args.parallel.clone(),
        budget_tokens: args.budget_tokens.clone(),
        budget_usd: args.budget_usd.clone(),
        timeout: args.timeout.clone(),
        mode: args.mode.clone(),
        no_verify: args.no_verify,
        apply: args.apply,
        branch: args.branch.clone(),
        patch: args.patch.clone(),
        run_id: args.run_id.clone(),
        plan_only: args.plan_only,
        no_bootstrap: args.no_bootstrap,
    }
}

/// The one task: from the command line, a file, standard input, or the plan.
fn task(args: &Args, file: &PlanFile) -> Result<String, Fault> {
    let typed = match (&args.task, &args.task_file) {
        (Some(task), _) => Some(task.clone()),
        (None, Some(path)) => Some(read_task(path)?),
        (None, None) => None,
    };
    let task = match (typed, &file.plan.task) {
        (Some(_), Some(_)) => {
            return Err(
                Fault::usage("a task is given, and the plan has one of its own")
                    .hint("leave out one of them"),
            );
        }
        (Some(task), None) => task,
        (None, Some(task)) => task.clone(),
        (None, None) => {
            return Err(Fault::usage("no task is given, and the plan has none")
                .hint("wharf run \"TASK\", --task-file FILE, or `task:` in the plan"));
        }
    };
    if task.trim().is_empty() {
        return Err(Fault::usage("the task is empty").hint("say what is to be done"));
    }
    Ok(task.trim().to_owned())
}

fn read_task(path: &Path) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(TASK_LIMIT + 1)
            .read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(TASK_LIMIT + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| Fault::usage(format!("read the task from {}: {error}", path.display())))?;
    if bytes.len() as u64 > TASK_LIMIT {
        return Err(
            Fault::usage(format!("the task is larger than {} KiB", TASK_LIMIT >> 10))
                .hint("put the long part into a file of the workspace and name that file"),
        );
    }
    String::from_utf8(bytes).map_err(|_| Fault::usage("the task is no UTF-8 text"))
}

/// The directory to work on, absolute and without links.
fn workspace(config: &Config, file: &PlanFile) -> Result<PathBuf, Fault> {
    let path = config.workspace.clone().or_else(|| named(file));
    whole(&path.unwrap_or_else(|| config.cwd.clone()))
}

/// The directory that a plan names.
pub fn named(file: &PlanFile) -> Option<PathBuf> {
    Some(file.directory()?.join(file.plan.workspace.path.as_ref()?))
}

/// A directory that is there, absolute and without links.
pub fn whole(path: &Path) -> Result<PathBuf, Fault> {
    let whole = path.canonicalize().map_err(|error| {
        Fault::usage(format!("workspace {}: {error}", path.display()))
            .hint("-C DIR names the directory to work on")
    })?;
    if !whole.is_dir() {
        return Err(Fault::usage(format!(
            "workspace {} is no directory",
            whole.display()
        )));
    }
    Ok(whole)
}
