//! Flags, environment and files become one set of options for each room.
//!
//! Owns: the environment (nobody else reads it), the user's config file, which of several sources wins.
//! Takes: `Flags` as typed, the current directory; later a parsed plan and its text.
//! Gives: a `Config`: directories, models with keys, Docker's address, trace options, values to mask.
//! Never: used by any room but `cli`; a connection; a secret in `Debug` or in `settings`.
//!
//! Precedence: flag, environment (`WHARF_…`), plan, user config, built-in.

mod again;
mod apply;
mod consent;
mod docker;
mod env;
mod file;
mod layer;
mod number;
mod open;
mod providers;
mod settings;
mod state;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::id::{self, RunId};
use crate::{run, trace};

pub use again::raised;
pub use docker::Docker;
pub use env::Env;
pub use layer::Source;
pub use providers::{Price, Provider, Secret, Wire};
pub use settings::Setting;

use layer::Layer;

/// Bytes of cached images unless somebody says otherwise.
const CACHE: u64 = 20 << 30;

/// What the command line said, as typed; numbers are read here so that flag and variable say the same.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub plan: Option<PathBuf>,
    pub workspace: Option<PathBuf>,
    /// `provider/model`, several in order of fall-back with commas, or `replay:FILE`.
    pub model: Option<String>,
    /// `ROLE=MODEL`, one each.
    pub role_models: Vec<String>,
    pub parallel: Option<String>,
    pub budget_tokens: Option<String>,
    pub budget_usd: Option<String>,
    pub timeout: Option<String>,
    pub mode: Option<String>,
    pub no_verify: bool,
    pub apply: bool,
    pub branch: Option<String>,
    pub patch: Option<PathBuf>,
    pub run_id: Option<String>,
    pub plan_only: bool,
    pub no_bootstrap: bool,
}

/// Everything that is decided outside of the plan. Complete once `apply` has seen the plan.
#[derive(Clone)]
pub struct Config {
    /// `WHARF_HOME`, `$XDG_STATE_HOME/wharf` or `~/.local/state/wharf`, absolute.
    pub state: PathBuf,
    /// Names this machine in container labels.
    pub machine: String,
    pub cwd: PathBuf,
    /// None: the built-in plan.
    pub plan: Option<PathBuf>,
    /// From flag or environment, absolute; None: the plan's, else the current directory.
    pub workspace: Option<PathBuf>,
    pub delivery: run::Delivery,
    pub run_id: Option<RunId>,
    pub apply: bool,
    pub verify: bool,
    pub plan_only: bool,
    pub bootstrap: bool,
    pub docker: Docker,
    /// Bytes that cached images may have together; `cache_source` says who said so.
    pub cache: u64,
    cache_source: Source,
    /// By name: `openai`, `anthropic`, the user's, and after `apply` the plan's.
    pub providers: BTreeMap<String, Provider>,
    /// By `provider/model`: the user's, and after `apply` the plan's.
    pub prices: BTreeMap<String, Price>,
    pub trace: trace::Options,
    /// After `apply`: what the plan lets Wharf add to requests, by the variable that holds it.
    pub credentials: BTreeMap<String, String>,
    /// The user's own hooks and approver, and what such programs see.
    consent: run::Consent,
    /// Values that must not reach a model, a journal, a span, a sandbox or a screen.
    pub secrets: Vec<String>,
    /// NO_COLOR is set.
    pub no_color: bool,
    /// What was not understood and could be passed over; for the operator, once.
    pub warnings: Vec<String>,
    plan_source: Source,
    over: Layer,
    under: Layer,
    shown: Vec<Setting>,
    env: Env,
}

/// Why the options make no sense.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `name` is the flag, variable or key as the operator knows it.
    #[error("{name} is `{value}`: {why}")]
    Value {
        name: String,
        value: String,
        why: String,
    },
    #[error("{}:{line}:{column}: {message}", path.display())]
    File {
        path: PathBuf,
        line: u64,
        column: u64,
        message: String,
    },
    #[error("could not {operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A plan that was found and not named lets something run on this machine.
    #[error("{} lets this run on your machine, or takes from it, outside of any sandbox: {what}", path.display())]
    Untrusted { path: PathBuf, what: String },
    #[error(
        "there is no place for the state of runs: WHARF_HOME, XDG_STATE_HOME and HOME are unset"
    )]
    NoHome,
}

impl Error {
    /// The exit code: 2 for what was written wrong, 3 for what the machine refused.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Value { .. } | Self::File { .. } | Self::Untrusted { .. } => 2,
            Self::Io { .. } | Self::NoHome => 3,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Value { name, .. } => {
                format!("correct {name}; `wharf config show` lists every value and its source")
            }
            Self::File { path, .. } => format!("correct {}", path.display()),
            Self::Io { path, .. } => format!(
                "make {} readable and writable for this user",
                path.display()
            ),
            Self::Untrusted { path, .. } => format!(
                "it was found here and not named by you, and an agent may have written it; read it, then say \
                 once that you trust these words: wharf run --plan {}",
                path.display()
            ),
            Self::NoHome => "set WHARF_HOME to a directory".to_owned(),
        }
    }
}

/// Reads the environment and the user's config file under the flags.
///
/// # Errors
/// A value that makes no sense, an unreadable file, no place for state.
pub fn load(flags: &Flags, cwd: &Path) -> Result<Config, Error> {
    load_with(flags, cwd, Env::of_process())
}

/// `load` with an environment of the caller's.
///
/// # Errors
/// As `load`.
pub fn load_with(flags: &Flags, cwd: &Path, env: Env) -> Result<Config, Error> {
    let state = state::directory(&env, cwd)?;
    let (file, path) = file::read(&env)?;
    let (trace, warnings) = trace::Options::read(&|name| env.text(name));
    let docker = docker::find(&env);
    let (plan, plan_source) = plan_file(flags, &env, cwd);
    let (cache, cache_source) =
        layer::cache(&env, &file, &path)?.unwrap_or((CACHE, Source::BuiltIn));
    let mut config = Config {
        machine: state::machine(Path::new("/etc/machine-id"), &state)?,
        plan,
        plan_source,
        cache,
        cache_source,
        workspace: either(flags.workspace.clone(), env.path("WHARF_WORKSPACE"))
            .map(|p| cwd.join(p)),
        delivery: delivery(flags, &env, cwd)?,
        run_id: run_id(flags, &env)?,
        apply: flags.apply || env.is_on("WHARF_APPLY")?,
        verify: !(flags.no_verify || env.is_on("WHARF_NO_VERIFY")?),
        plan_only: flags.plan_only,
        bootstrap: !(flags.no_bootstrap || env.is_on("WHARF_NO_BOOTSTRAP")?),
        over: Layer::of_flags(flags, &env, cwd, &state)?,
        under: Layer::of_file(&file, &path)?,
        providers: providers::known(&file.providers, &env)?,
        prices: providers::prices(&file.prices)?,
        credentials: BTreeMap::new(),
        consent: consent::of_file(&file, &path, &env)?,
        secrets: env.secrets(),
        no_color: env.text("NO_COLOR").is_some(),
        cwd: cwd.to_owned(),
        shown: Vec::new(),
        state,
        docker,
        trace,
        warnings,
        env,
    };
    config.collect_secrets();
    Ok(config)
}

impl Config {
    /// What the run room is started with.
    pub fn run_options(&self) -> run::Options {
        run::Options {
            state: self.state.clone(),
            machine: self.machine.clone(),
            run_id: self.run_id.clone(),
            delivery: self.delivery.clone(),
            apply: self.apply,
            verify: self.verify,
            plan_only: self.plan_only,
            bootstrap: self.bootstrap,
            git: self.git(),
        }
    }

    /// Every key known by now is masked, in spans too.
    fn collect_secrets(&mut self) {
        let keys = self.providers.values().filter_map(|p| p.key.as_ref());
        self.secrets.extend(keys.map(|key| key.expose().to_owned()));
        self.secrets.extend(self.trace.secrets.iter().cloned());
        self.secrets.extend(self.credentials.values().cloned());
        self.secrets
            .retain(|secret| secret.len() >= env::SECRET_MIN);
        self.secrets.sort();
        self.secrets.dedup();
        self.trace.secrets.clone_from(&self.secrets);
    }
}

fn either<T>(flag: Option<T>, env: Option<T>) -> Option<T> {
    flag.or(env)
}

/// The plan as said, else `wharf.yaml` beside the operator, else the built-in one.
fn plan_file(flags: &Flags, env: &Env, cwd: &Path) -> (Option<PathBuf>, Source) {
    if let Some(path) = &flags.plan {
        return (Some(cwd.join(path)), Source::Flag("--plan"));
    }
    if let Some(path) = env.path("WHARF_PLAN") {
        return (Some(cwd.join(path)), Source::Environment("WHARF_PLAN"));
    }
    let here = cwd.join("wharf.yaml");
    if here.is_file() {
        return (Some(here), Source::CurrentDirectory);
    }
    (None, Source::BuiltIn)
}

/// A flag of one form beats a variable of the other.
fn delivery(flags: &Flags, env: &Env, cwd: &Path) -> Result<run::Delivery, Error> {
    let pairs = [
        ("--branch", flags.branch.clone(), flags.patch.clone()),
        (
            "WHARF_BRANCH",
            env.text("WHARF_BRANCH"),
            env.path("WHARF_PATCH"),
        ),
    ];
    for (name, branch, patch) in pairs {
        match (branch, patch) {
            (None, None) => {}
            (Some(branch), None) => return Ok(run::Delivery::Branch(branch)),
            (None, Some(patch)) => return Ok(run::Delivery::Patch(cwd.join(patch))),
            (Some(branch), Some(_)) => {
                return Err(Error::Value {
                    name: name.to_owned(),
                    value: branch,
                    why: "the result goes to a branch or to a patch, not to both".to_owned(),
                });
            }
        }
    }
    Ok(run::Delivery::Default)
}

/// The id becomes a directory's name, so its form is checked.
fn run_id(flags: &Flags, env: &Env) -> Result<Option<RunId>, Error> {
    let said = flags.run_id.clone().map(|id| ("--run-id", id));
    let said = either(
        said,
        env.text("WHARF_RUN_ID").map(|id| ("WHARF_RUN_ID", id)),
    );
    match said {
        None => Ok(None),
        Some((_, id)) if id::is_valid(&id) => Ok(Some(RunId::new(id))),
        Some((name, value)) => Err(Error::Value {
            name: name.to_owned(),
            value,
            why: "an id is a-z, 0-9, _ and -, begins with a letter or digit and has at most 40 characters".to_owned(),
        }),
    }
}
