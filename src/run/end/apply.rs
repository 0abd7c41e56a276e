//! `wharf apply`: a finished run's result put into the operator's directory.

use std::path::Path;

use crate::id::CommitId;
use crate::journal::{self, Event, State, Writer};
use crate::run::Error;
use crate::run::end::patch::Root;
use crate::workspace::{Applied, Base, Force, Git, Store};

/// A finished run as its directory holds it.
struct Finished {
    state: State,
    base: Base,
    /// What merged, a commit of the run's store.
    merged: CommitId,
    store: Store,
}

impl Finished {
    /// Refused while the run has taken no base snapshot.
    async fn open(git: Git, dir: &Path) -> Result<Self, Error> {
        let path = dir.join("journal.jsonl");
        let state = State::of(&journal::read(&path)?.lines);
        let nothing = |what: &str| Error::Start {
            code: 2,
            kind: "run",
            message: format!("the run in {} {what}", dir.display()),
            hint: "wharf runs lists the runs".to_owned(),
        };
        let Some(found) = &state.base else {
            return Err(nothing("has no base snapshot"));
        };
        let base: Base = serde_json::from_value(found.details.clone())
            .map_err(|error| nothing(&format!("has a base that cannot be read: {error}")))?;
        let result = state.ended.as_ref().map(|ended| &ended.result["snapshot"]);
        let merged = match result.and_then(serde_json::Value::as_str) {
            Some(commit) => CommitId::new(commit),
            // Cut off: the last merge that was made, else nothing beyond the base.
            None => state
                .merges
                .last()
                .map_or_else(|| base.commit.clone(), |(_, commit)| commit.clone()),
        };
        let store = Store::open(git, dir.join("store.git"))
            .map_err(|source| Error::Workspace { source })?;
        // A run's directory is `runs/ID` of where Wharf keeps its files.
        let store = match dir.ancestors().nth(2) {
            Some(state) => store.keeping_out(state),
            None => store,
        };
        Ok(Self {
            state,
            base,
            merged,
            store,
        })
    }
}

/// What was done to which directory.
#[derive(Debug)]
pub struct Put {
    pub directory: String,
    /// What an earlier apply that was cut off had done and was undone first, for display.
    pub recovered: Vec<String>,
    pub applied: Applied,
}

/// Applies a run's result to the directory it was started on, by three-way merge against what is there now.
pub async fn apply(git: Git, dir: &Path, force: Force) -> Result<Put, Error> {
    let run = Finished::open(git, dir).await?;
    let Some((_, started)) = &run.state.started else {
        return Err(Error::Start {
            code: 2,
            kind: "run",
            message: "the run has no beginning".to_owned(),
            hint: String::new(),
        });
    };
    if started.options["copy"] == true && force == Force::No {
        return Err(Error::Start {
            code: 2,
            kind: "copy",
            message: format!("the run worked on a copy of {}", started.workspace),
            hint: instead(&run.state),
        });
    }
    let directory = started.workspace.clone();
    let workspace = Path::new(&directory);
    let source = |source| Error::Workspace { source };
    let recovered = run.store.recover(workspace).await.map_err(source)?;
    let applied = run
        .store
        .apply(workspace, &run.base.commit, &run.merged, force)
        .await;
    let applied = applied.map_err(source)?;
    let event = match &applied {
        Applied::Done { paths } => Event::Applied {
            paths: paths.clone(),
            refused: Vec::new(),
        },
        Applied::Refused { paths } => Event::Applied {
            paths: Vec::new(),
            refused: paths
                .iter()
                .map(|(path, why)| format!("{path}: {why}"))
                .collect(),
        },
    };
    let (writer, handle, _) = Writer::open(&dir.join("journal.jsonl"))?;
    writer.append(event).await?;
    drop(writer);
    handle.close().await;
    Ok(Put {
        directory,
        recovered,
        applied,
    })
}

/// What puts a copy's result into the directory that was copied.
fn instead(state: &State) -> String {
    let patch = state.delivered.as_ref().and_then(|d| d.patch.as_deref());
    let command = patch.and_then(|patch| Some(Root::of(state)?.command(patch)));
    let force = "--force changes that directory itself, merged with what you did meanwhile";
    match command {
        Some(command) => format!("`{command}` applies its patch there; {force}"),
        None => force.to_owned(),
    }
}
