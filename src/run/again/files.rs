//! What a run's directory holds of its plan, beside its journal.

use std::collections::BTreeMap;
use std::path::Path;

use crate::journal::RunStarted;
use crate::run::Error;
use crate::run::again::resume::unreadable;
use crate::run::begin::start::PLAN_FILES;

/// The plan's text in a run's directory.
pub(super) const PLAN: &str = "plan.yaml";

/// The plan's text: plan.yaml, and where that is gone what the journal has of it. One that is there and
/// cannot be read was damaged, which is never passed over.
pub(in crate::run) fn plan_text(dir: &Path, started: &RunStarted) -> Result<String, Error> {
    match is_gone(dir, PLAN) && !started.plan.is_empty() {
        true => Ok(started.plan.clone()),
        false => text(dir, PLAN),
    }
}

/// The files that the plan names; as `plan_text`.
pub(in crate::run) fn plan_files(
    dir: &Path,
    started: &RunStarted,
) -> Result<BTreeMap<String, String>, Error> {
    if is_gone(dir, PLAN_FILES) {
        return Ok(started.plan_files.clone());
    }
    let text = text(dir, PLAN_FILES)?;
    serde_json::from_str(&text).map_err(|error| unreadable(dir, &format!("{PLAN_FILES}: {error}")))
}

pub(super) fn is_gone(dir: &Path, name: &str) -> bool {
    matches!(dir.join(name).try_exists(), Ok(false))
}

fn text(dir: &Path, name: &str) -> Result<String, Error> {
    let read = std::fs::read_to_string(dir.join(name));
    let text = read.map_err(|error| unreadable(dir, &format!("{name}: {error}")))?;
    match text.trim().is_empty() {
        true => Err(unreadable(dir, &format!("{name} is empty"))),
        false => Ok(text),
    }
}

/// Removes a file or a folder of the run's own; nothing there is no error.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    let gone = match std::fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match gone {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::Io {
            operation: "remove",
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}
