//! Programs that run on this machine for a plan or for the user: whose word they stand on, and what they
//! see of the environment.

use std::io::Write as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::file::File;
use super::layer::Source;
use super::{Config, Env, Error};
use crate::plan::{Approver, By, Hook, Image, Misfit, PermissionMode, Plan};
use crate::run::Consent;

/// The variables that hooks and approvers get; none of them holds a key.
const PASSED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
];
/// Where the state directory remembers what the operator trusts.
const TRUSTED: &str = "trusted";
/// Bytes of it that are read.
const LARGEST: u64 = 1 << 20;

/// The user's own hooks and approver.
pub(super) fn of_file(file: &File, path: &Path, env: &Env) -> Result<Consent, Error> {
    let unfit = |key: &str, misfit: &Misfit| Error::Value {
        name: format!("`{key}` in {}", path.display()),
        value: misfit.place(),
        why: format!("{}; {}", misfit.message, misfit.hint),
    };
    let hooks = file.hooks.as_ref().map(|form| form.check(None));
    let hooks = hooks
        .transpose()
        .map_err(|misfit| unfit("hooks", &misfit))?;
    let approver = file.approver.as_ref().map(crate::plan::ApproverForm::check);
    let approver = approver
        .transpose()
        .map_err(|misfit| unfit("approver", &misfit))?;
    let passed = PASSED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), env.text(name)?)));
    Ok(Consent {
        hooks: hooks.unwrap_or_default(),
        approver,
        dir: path.parent().unwrap_or(path).to_owned(),
        env: passed.collect(),
    })
}

impl Config {
    /// What the run room is told of consent. `workspace` is the operator's directory.
    pub fn consent(&self, workspace: &Path) -> Consent {
        let mut consent = self.consent.clone();
        let workspace = workspace.display().to_string();
        for name in ["WHARF_WORKSPACE", "CLAUDE_PROJECT_DIR"] {
            consent.env.push((name.to_owned(), workspace.clone()));
        }
        consent
    }

    /// What the operator should know before a run: what runs on this machine, and that nobody can consent.
    pub fn told(&self, plan: &Plan, person: bool) -> Vec<String> {
        let users = self.consent.hooks.iter();
        let users = users.map(|hook| format!("{} `{}`", hook.moment.word(), hook.command));
        let all: Vec<String> = users.chain(runs_here(plan)).collect();
        let mut lines = Vec::new();
        if !all.is_empty() {
            lines.push(format!("runs on this machine: {}", all.join(", ")));
        }
        let approver = plan
            .permissions
            .approver
            .as_ref()
            .or(self.consent.approver.as_ref());
        let terminal = approver.is_none_or(|approver| approver.by == By::Terminal);
        if plan.permissions.mode == PermissionMode::Ask && terminal && !person {
            lines.push(
                "warning: the mode is ask, and there is no terminal to ask at: what no rule allows is refused"
                    .to_owned(),
            );
        }
        lines
    }

    /// A plan that lets something run on this machine, or reads folders outside of its own, must have been named by the operator, now or before
    /// with the same words: one that only lies where he stands may be the work of an agent.
    ///
    /// # Errors
    /// It was not; or what is trusted cannot be read or written.
    pub fn trust(&self, plan: &Plan, path: Option<&Path>) -> Result<(), Error> {
        let Some(path) = path else {
            return Ok(());
        };
        let reads = reads_outside(plan, path);
        let what: Vec<String> = runs_here(plan).chain(reads.iter().cloned()).collect();
        if what.is_empty() {
            return Ok(());
        }
        let mark = mark(plan, &reads, path);
        let known = self.trusted()?;
        if known.lines().any(|line| line == mark) {
            return Ok(());
        }
        if self.plan_source == Source::CurrentDirectory {
            return Err(Error::Untrusted {
                path: path.to_owned(),
                what: what.join(", "),
            });
        }
        self.remember(&mark)
    }

    fn trusted(&self) -> Result<String, Error> {
        let path = self.state.join(TRUSTED);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
            // Nobody trusts so many plans; what is not read is not trusted.
            Ok(about) if about.len() > LARGEST => return Ok(String::new()),
            _ => {}
        }
        std::fs::read_to_string(&path).map_err(|source| Error::Io {
            operation: "read which plans are trusted in",
            path,
            source,
        })
    }

    fn remember(&self, mark: &str) -> Result<(), Error> {
        let path = self.state.join(TRUSTED);
        let written = std::fs::create_dir_all(&self.state).and_then(|()| {
            let mut file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)?;
            file.write_all(format!("{mark}\n").as_bytes())
        });
        written.map_err(|source| Error::Io {
            operation: "write which plans are trusted to",
            path,
            source,
        })
    }
}

/// What a plan lets run on this machine or ask an address for consent, in words.
fn runs_here(plan: &Plan) -> impl Iterator<Item = String> {
    let hooks = plan.hooks.iter();
    let hooks = hooks.map(|hook| format!("{} `{}`", hook.moment.word(), hook.command));
    let approver = plan
        .permissions
        .approver
        .iter()
        .filter_map(|approver| match &approver.by {
            By::Terminal => None,
            By::Command(line) => Some(format!("approver `{line}`")),
            By::Url(url) => Some(format!("approver {url}")),
        });
    hooks.chain(approver)
}

/// The folders outside of the plan's own whose files it puts into images, where agents read them.
fn reads_outside(plan: &Plan, path: &Path) -> Vec<String> {
    // A folder that cannot be looked up is not known to lie within; building from it fails anyway.
    let real = |path: &Path| path.canonicalize().ok();
    let own = path.parent().and_then(real);
    let within = |context: &Path| match (&own, real(context)) {
        (Some(own), Some(context)) => context.starts_with(own),
        _ => false,
    };
    let roles = plan.roles.values().map(|role| &role.sandbox);
    let contexts = roles
        .chain([&plan.sandbox])
        .filter_map(|sandbox| match &sandbox.image {
            Image::Built { context, .. } if !within(context) => Some(context),
            Image::Built { .. } | Image::Named(_) => None,
        });
    let mut outside: Vec<String> = contexts
        .map(|context| format!("an image from the files of {}", context.display()))
        .collect();
    outside.sort();
    outside.dedup();
    outside
}

/// The plan's place, the words it lets run and the folders it reads.
fn mark(plan: &Plan, reads: &[String], path: &Path) -> String {
    let words: (&[Hook], &Option<Approver>) = (&plan.hooks, &plan.permissions.approver);
    let mut hasher = Sha256::new();
    hasher.update(path.as_os_str().as_encoded_bytes());
    hasher.update([0]);
    hasher.update(serde_json::to_vec(&words).unwrap_or_default());
    // Without any, as before there were such: what was trusted stays so.
    for folder in reads {
        hasher.update([0]);
        hasher.update(folder);
    }
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
