//! The values that a plan also has, from above it (flag, environment) and from below it (user config).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::{File, Scalar, Words};
use super::{Env, Error, Flags, number};
use crate::plan::{self, PermissionMode};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Flag(&'static str),
    Environment(&'static str),
    Plan,
    File(PathBuf),
    /// `wharf.yaml` where the operator stands.
    CurrentDirectory,
    BuiltIn,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Plan => f.write_str("plan"),
            Self::File(path) => write!(f, "config {}", path.display()),
            Self::CurrentDirectory => f.write_str("current directory"),
            Self::BuiltIn => f.write_str("built-in"),
        }
    }
}

pub(super) type Sourced<T> = Option<(T, Source)>;

/// One layer's values.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    pub model: Sourced<Vec<String>>,
    pub role_models: BTreeMap<String, (Vec<String>, Source)>,
    pub parallel: Sourced<usize>,
    pub tokens: Sourced<u64>,
    pub cost_usd: Sourced<f64>,
    pub time: Sourced<Duration>,
    pub mode: Sourced<PermissionMode>,
}

impl Layer {
    /// Flags over the environment.
    pub(super) fn of_flags(
        flags: &Flags,
        env: &Env,
        cwd: &Path,
        state: &Path,
    ) -> Result<Self, Error> {
        let pick = |flag: (&'static str, &Option<String>), variable: &'static str| {
            let typed = flag.1.clone().map(|text| (text, Source::Flag(flag.0)));
            typed.or_else(|| Some((env.text(variable)?, Source::Environment(variable))))
        };
        let models = |(text, source): (String, Source)| {
            let list = named(models(&text, cwd, state), &name(&source))?;
            Ok::<_, Error>((list, source))
        };
        let mut layer = Self {
            model: pick(("--model", &flags.model), "WHARF_MODEL")
                .map(models)
                .transpose()?,
            parallel: read(
                pick(("--parallel", &flags.parallel), "WHARF_PARALLEL"),
                number::parallel,
            )?,
            tokens: read(
                pick(
                    ("--budget-tokens", &flags.budget_tokens),
                    "WHARF_BUDGET_TOKENS",
                ),
                number::tokens,
            )?,
            cost_usd: read(
                pick(("--budget-usd", &flags.budget_usd), "WHARF_BUDGET_USD"),
                number::dollars,
            )?,
            time: read(
                pick(("--timeout", &flags.timeout), "WHARF_TIMEOUT"),
                number::duration,
            )?,
            mode: read(pick(("--mode", &flags.mode), "WHARF_MODE"), mode)?,
            ..Self::default()
        };
        let variable = env.text("WHARF_ROLE_MODEL").unwrap_or_default();
        let pairs = variable.split(',').filter(|pair| !pair.trim().is_empty());
        layer.add_roles(
            pairs,
            &Source::Environment("WHARF_ROLE_MODEL"),
            (cwd, state),
        )?;
        let pairs = flags.role_models.iter().map(String::as_str);
        layer.add_roles(pairs, &Source::Flag("--role-model"), (cwd, state))?;
        Ok(layer)
    }

    /// The user's file.
    pub(super) fn of_file(file: &File, path: &Path) -> Result<Self, Error> {
        let base = path.parent().unwrap_or(path);
        let source = || Source::File(path.to_owned());
        let words = |key: &str, words: &Words| {
            let list = words.list();
            let list = list.iter().map(|model| absolute_replay(model, base, None));
            let key = format!("`{key}` in {}", path.display());
            Ok::<_, Error>((named(list.collect(), &key)?, source()))
        };
        let model = file.model.as_ref().map(|models| words("model", models));
        let roles = file.role_models.iter();
        let roles = roles.map(|(role, models)| {
            Ok::<_, Error>((role.clone(), words(&format!("role_models.{role}"), models)?))
        });
        Ok(Self {
            model: model.transpose()?,
            role_models: roles.collect::<Result<_, _>>()?,
            parallel: entry(path, "parallel", &file.parallel, number::parallel)?,
            tokens: entry(path, "budget_tokens", &file.budget_tokens, number::tokens)?,
            cost_usd: entry(path, "budget_usd", &file.budget_usd, number::dollars)?,
            time: entry(path, "timeout", &file.timeout, number::duration)?,
            mode: entry(path, "mode", &file.mode, mode)?,
        })
    }

    fn add_roles<'a>(
        &mut self,
        pairs: impl Iterator<Item = &'a str>,
        source: &Source,
        (cwd, state): (&Path, &Path),
    ) -> Result<(), Error> {
        for pair in pairs {
            let halves = pair
                .split_once('=')
                .map(|(role, model)| (role.trim(), model.trim()));
            match halves {
                Some((role, model)) if !role.is_empty() && !model.is_empty() => {
                    let models = named(models(model, cwd, state), &name(source))?;
                    self.role_models
                        .insert(role.to_owned(), (models, source.clone()));
                }
                _ => {
                    return Err(Error::Value {
                        name: name(source),
                        value: pair.to_owned(),
                        why: "write ROLE=MODEL".to_owned(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// The flag's or the variable's own name.
pub(super) fn name(source: &Source) -> String {
    match source {
        Source::Flag(name) | Source::Environment(name) => (*name).to_owned(),
        other => other.to_string(),
    }
}

/// How many bytes cached images may have: the environment over the user's file.
pub(super) fn cache(env: &Env, file: &File, path: &Path) -> Result<Sourced<u64>, Error> {
    const NAME: &str = "WHARF_CACHE";
    let said = env.text(NAME).map(|text| (text, Source::Environment(NAME)));
    match read(said, plan::size)? {
        Some(said) => Ok(Some(said)),
        None => entry(path, "cache", &file.cache, plan::size),
    }
}

fn read<T>(
    text: Sourced<String>,
    reader: impl Fn(&str) -> Result<T, String>,
) -> Result<Sourced<T>, Error> {
    let Some((text, source)) = text else {
        return Ok(None);
    };
    match reader(text.trim()) {
        Ok(value) => Ok(Some((value, source))),
        Err(why) => Err(Error::Value {
            name: name(&source),
            value: text,
            why,
        }),
    }
}

/// A key of the user's file.
fn entry<T>(
    path: &Path,
    key: &str,
    value: &Option<Scalar>,
    reader: impl Fn(&str) -> Result<T, String>,
) -> Result<Sourced<T>, Error> {
    let Some(value) = value.as_ref().map(Scalar::text) else {
        return Ok(None);
    };
    match reader(&value) {
        Ok(read) => Ok(Some((read, Source::File(path.to_owned())))),
        Err(why) => Err(Error::Value {
            name: format!("`{key}` in {}", path.display()),
            value,
            why,
        }),
    }
}

fn mode(text: &str) -> Result<PermissionMode, String> {
    match text {
        "auto" => Ok(PermissionMode::Auto),
        "ask" => Ok(PermissionMode::Ask),
        "plan" => Ok(PermissionMode::Plan),
        "deny" => Ok(PermissionMode::Deny),
        _ => Err("the modes are auto, ask, plan and deny".to_owned()),
    }
}

/// Several models in order of fall-back; a recording's path may hold commas.
fn models(text: &str, cwd: &Path, state: &Path) -> Vec<String> {
    if text.starts_with(REPLAY) {
        return vec![absolute_replay(text, cwd, Some(state))];
    }
    let words = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    words
        .map(|word| absolute_replay(word, cwd, Some(state)))
        .collect()
}

/// Refuses what can be the name of no model, under the name it was given by.
fn named(models: Vec<String>, name: &str) -> Result<Vec<String>, Error> {
    let whole = |model: &String| {
        let file = model.strip_prefix(REPLAY);
        let pair = model.split_once('/');
        file.is_some() || pair.is_some_and(|(left, right)| !left.is_empty() && !right.is_empty())
    };
    match models.iter().find(|model| !whole(model)) {
        None => Ok(models),
        Some(model) => Err(Error::Value {
            name: name.to_owned(),
            value: model.clone(),
            why: "write provider/model, such as anthropic/claude-sonnet-5, or replay:FILE"
                .to_owned(),
        }),
    }
}

const REPLAY: &str = "replay:";

/// `replay:FILE` with FILE absolute; a name that is no file but a run of ours means its journal.
pub(super) fn absolute_replay(model: &str, base: &Path, state: Option<&Path>) -> String {
    let Some(name) = model.strip_prefix(REPLAY) else {
        return model.to_owned();
    };
    let file = base.join(name);
    let journal = state
        .filter(|_| !name.is_empty() && !name.contains(['/', '.']))
        .map(|state| state.join("runs").join(name).join("journal.jsonl"))
        .filter(|journal| journal.is_file());
    match journal {
        Some(journal) if !file.exists() => format!("{REPLAY}{}", journal.display()),
        _ => format!("{REPLAY}{}", file.display()),
    }
}
