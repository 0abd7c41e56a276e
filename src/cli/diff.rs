//! `wharf diff`: what a run, or one of its subtasks, changed.

use super::fault::Fault;
use super::find::{self, Found};
use super::{out, state, text};
use crate::config::Flags;
use crate::id::CommitId;
use crate::journal::{self, Event, Line, State};
use crate::run;
use crate::workspace::Store;

/// Bytes of a printed patch.
const LIMIT: usize = 64 << 20;

/// Print what a run changed as a patch, or what one subtask did
///
/// Its paths begin at the top of the repository, as those of the run's own patch do; a run that
/// worked on a copy has them begin at the copied directory. Into a file or a pipe it goes as it is,
/// with binary content; on a terminal control characters are replaced.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf diff last | less")]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// A subtask of the run
    subtask: Option<String>,
}

/// Prints the patch.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let config = state::settings(&Flags::default())?;
    let found = find::one(&config.state, &args.run)?;
    let lines = journal::read(&found.journal())?.lines;
    let (from, to) = match &args.subtask {
        None => whole(&found, &lines)?,
        Some(id) => one(&found, &lines, id)?,
    };
    let store = Store::open(config.git(), found.dir.join("store.git")).map_err(fault)?;
    let root = run::Root::of(&State::of(&lines));
    let prefix = root.as_ref().map_or("", run::Root::prefix);
    let patch = store
        .patch(&from, &to, prefix, LIMIT)
        .await
        .map_err(fault)?;
    if patch.cut {
        return Err(
            Fault::usage(format!("the patch is larger than {} MiB", LIMIT >> 20)).hint(format!(
                "git --git-dir {} diff {from} {to}",
                store.dir().display()
            )),
        );
    }
    out::foreign(&patch.content)?;
    Ok(0)
}

/// The base and the run's last merged state.
pub fn whole(found: &Found, lines: &[Line]) -> Result<(CommitId, CommitId), Fault> {
    let base = lines.iter().find_map(|line| match &line.event {
        Event::BaseTaken { commit, .. } => Some(commit.clone()),
        _ => None,
    });
    let base = base.ok_or_else(|| nothing(found, "took no base snapshot"))?;
    let result = find::result(lines).and_then(|summary| summary.snapshot);
    let last = lines.iter().rev().find_map(|line| match &line.event {
        Event::Merged { commit, .. } => Some(commit.clone()),
        _ => None,
    });
    let to = result.map(CommitId::new).or(last);
    let to = to.ok_or_else(|| nothing(found, "has merged nothing yet"))?;
    Ok((base, to))
}

/// Where a subtask's last agent started and what it left.
fn one(found: &Found, lines: &[Line], id: &str) -> Result<(CommitId, CommitId), Fault> {
    let mut start = None;
    let mut end = None;
    let mut known = Vec::new();
    for line in lines {
        match &line.event {
            Event::AgentStarted {
                agent, start: from, ..
            } if agent.subtask.as_str() == id => {
                start = Some(from.clone());
                end = None;
            }
            Event::TurnDone {
                agent,
                snapshot: Some(to),
                ..
            } if agent.subtask.as_str() == id => {
                end = Some(to.clone());
            }
            Event::SubtaskEnded {
                id: ended,
                snapshot,
                ..
            } => {
                known.push(ended.as_str());
                if ended.as_str() == id {
                    end = snapshot.clone().or(end);
                }
            }
            _ => {}
        }
    }
    match (start, end) {
        (Some(start), Some(end)) => Ok((start, end)),
        (Some(_), None) => Err(nothing(found, &format!("has no change of subtask {id}"))),
        (None, _) => Err(Fault::usage(format!(
            "run {} has no subtask {}",
            found.id,
            text::line(id, 40)
        ))
        .hint(format!("it has {}", known.join(", ")))),
    }
}

fn nothing(found: &Found, what: &str) -> Fault {
    Fault::usage(format!("run {} {what}", found.id)).hint(format!("`wharf show {}`", found.id))
}

/// A fault of the store.
pub fn fault(error: crate::workspace::Error) -> Fault {
    Fault::new(3, "workspace", error.to_string())
}
