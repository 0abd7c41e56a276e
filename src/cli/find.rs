//! Runs in the state directory: all of them, or the one a person means.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::fault::Fault;
use super::text;
use crate::journal::{Event, Line, RunStarted, State};

/// A run's directory.
#[derive(Clone, Debug)]
pub struct Found {
    pub id: String,
    pub dir: PathBuf,
    pub started: Timestamp,
    /// It only repeats another run, so that `last` never means it.
    pub is_replay: bool,
}

impl Found {
    /// Where its facts are.
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal.jsonl")
    }

    /// What its result.json says; only a journal that bears it out makes that a fact.
    pub fn claimed(&self) -> Option<crate::run::Summary> {
        let file = std::fs::read(self.dir.join("result.json")).ok();
        file.and_then(|bytes| serde_json::from_slice(&bytes).ok())
    }
}

/// The result that a journal holds; None for a run without an end, or whose end has none.
pub fn result(lines: &[Line]) -> Option<crate::run::Summary> {
    let ended = State::of(lines).ended?;
    serde_json::from_value(ended.result).ok()
}

/// Every run under the state directory, newest first.
pub fn all(state: &Path) -> Result<Vec<Found>, Fault> {
    let runs = state.join("runs");
    let entries = match std::fs::read_dir(&runs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Fault::io("read", &runs, &error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Fault::io("read", &runs, &error))?;
        let dir = entry.path();
        if let (Ok(id), true) = (entry.file_name().into_string(), dir.is_dir()) {
            let first = first_line(&dir.join("journal.jsonl"));
            let is_replay = first
                .as_ref()
                .is_some_and(|(_, started)| started.replay_of.is_some());
            let started = first.map_or_else(|| made(&dir), |(line, _)| line.at);
            found.push(Found {
                id,
                dir,
                started,
                is_replay,
            });
        }
    }
    found.sort_by(|a, b| (b.started, &b.id).cmp(&(a.started, &a.id)));
    Ok(found)
}

/// The run a person means: a whole id, a prefix that only one run has, or `last`.
pub fn one(state: &Path, wanted: &str) -> Result<Found, Fault> {
    let runs = all(state)?;
    if runs.is_empty() {
        return Err(Fault::usage(format!(
            "no run named {wanted}: there are no runs in {}",
            state.display()
        ))
        .hint("`wharf run \"TASK\"` starts one"));
    }
    if wanted == "last" {
        return runs
            .into_iter()
            .find(|run| !run.is_replay)
            .ok_or_else(|| Fault::usage("there are no runs but replays"));
    }
    if let Some(exact) = runs.iter().find(|run| run.id == wanted) {
        return Ok(exact.clone());
    }
    let mut matching = runs.iter().filter(|run| run.id.starts_with(wanted));
    match (matching.next(), matching.next()) {
        (Some(run), None) if !wanted.is_empty() => Ok(run.clone()),
        (Some(_), Some(_)) => {
            let ids = listed(runs.iter().filter(|run| run.id.starts_with(wanted)));
            Err(
                Fault::usage(format!("more than one run begins with {wanted:?}"))
                    .hint(format!("give more of the id; there are {ids}")),
            )
        }
        _ => Err(unknown(wanted, &runs)),
    }
}

fn unknown(wanted: &str, runs: &[Found]) -> Fault {
    let near = text::nearest(wanted, runs.iter().map(|run| run.id.as_str()));
    let hint = if near.is_empty() {
        format!(
            "the newest are {}; `wharf runs` lists all",
            listed(runs.iter())
        )
    } else {
        let near: Vec<&str> = near.into_iter().take(5).collect();
        format!("did you mean {}?", near.join(", "))
    };
    Fault::usage(format!("no run named {wanted:?}")).hint(hint)
}

fn listed<'a>(runs: impl Iterator<Item = &'a Found>) -> String {
    let ids: Vec<&str> = runs.take(5).map(|run| run.id.as_str()).collect();
    ids.join(", ")
}

/// When a run's directory was made, for one whose journal does not say.
fn made(dir: &Path) -> Timestamp {
    let time = dir.metadata().and_then(|meta| meta.modified()).ok();
    time.and_then(|time| Timestamp::try_from(time).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The first record of a journal without reading the rest.
fn first_line(path: &Path) -> Option<(Line, RunStarted)> {
    use std::io::BufRead as _;
    let file = std::fs::File::open(path).ok()?;
    let mut text = Vec::new();
    std::io::BufReader::new(file)
        .read_until(b'\n', &mut text)
        .ok()?;
    let line: Line = serde_json::from_slice(&text).ok()?;
    match &line.event {
        Event::RunStarted(started) => Some((line.clone(), started.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_by_id_prefix_or_last_and_else_named_with_its_neighbours() {
        let state = tempfile::tempdir().unwrap();
        assert!(
            one(state.path(), "last")
                .unwrap_err()
                .message
                .contains("no runs")
        );
        for id in ["alpha-1", "alpha-2", "beta"] {
            std::fs::create_dir_all(state.path().join("runs").join(id)).unwrap();
        }
        assert_eq!(one(state.path(), "be").unwrap().id, "beta");
        assert_eq!(one(state.path(), "alpha-1").unwrap().id, "alpha-1");
        let ambiguous = one(state.path(), "alpha").unwrap_err();
        assert!(ambiguous.hint.contains("alpha-1") && ambiguous.hint.contains("alpha-2"));
        let unknown = one(state.path(), "btea").unwrap_err();
        assert_eq!(unknown.code, 2);
        assert!(one(state.path(), "../runs/beta").is_err());
        assert!(one(state.path(), "").is_err());
    }
}
