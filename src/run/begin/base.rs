//! The base of a run: taken from the workspace within limits, told while it takes long, journaled.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::journal::{Event, Writer};
use crate::plan;
use crate::run::begin::history;
use crate::run::board::Notice;
use crate::run::work::ignored::BaseRules;
use crate::run::work::trees;
use crate::run::{Delivery, Error, Order};
use crate::sandbox::{self, Tree};
use crate::workspace::{Base, Source, Store, Taking, Tell, branch_free};

/// Bytes of one file, of all files, and the number of files that a base snapshot takes.
const MAX_FILE: u64 = 256 << 20;
const MAX_TOTAL: u64 = 4 << 30;
const MAX_FILES: usize = 250_000;

/// The status of a run that a signal ended.
const INTERRUPTED: &str = "interrupted";

/// Takes the base and journals it; a run that is told to stop meanwhile ends.
pub(in crate::run) async fn taken(
    order: &Order,
    dir: &Path,
    writer: &Writer,
) -> Result<Based, Error> {
    let based = tokio::select! {
        based = take_base(order, dir) => based,
        () = order.stop.cancel.cancelled() => Err(stopped_early(order)),
    };
    let based = match based {
        Ok(based) => based,
        Err(error) => {
            // Where this cannot be written either, the first failure is the one to tell.
            drop(writer.append(never_started(&error)).await);
            return Err(error);
        }
    };
    let taken = Event::BaseTaken {
        commit: based.base.commit.clone(),
        tree: based.base.tree.clone(),
        files: based.base.files,
        bytes: based.base.bytes,
        details: serde_json::to_value(&based.base).unwrap_or_default(),
    };
    writer.append(taken).await?;
    Ok(based)
}

/// The run's store with the base in it.
pub(in crate::run) struct Based {
    pub store: Store,
    pub base: Base,
    pub tree: Tree,
    pub rules: BaseRules,
    pub history: Option<Arc<sandbox::History>>,
    /// What the operator is to be told once the run is open.
    pub told: Option<String>,
}

async fn take_base(order: &Order, dir: &Path) -> Result<Based, Error> {
    named(&order.workspace)?;
    let store = Store::create(order.options.git.clone(), dir.join("store.git"))
        .await
        .map_err(failed)?
        .keeping_out(&order.options.state);
    let source = source(&order.workspace, &order.plan);
    if let Delivery::Branch(name) = &order.options.delivery {
        let free = branch_free(&order.options.git, &order.workspace, name).await;
        free.map_err(failed)?;
    }
    let mut base = store
        .base_told(&source, Some(progress(order)))
        .await
        .map_err(failed)?;
    let tree = trees::tree(&store, &base.commit).await.map_err(failed)?;
    order.watch.notice(&Notice::Base {
        files: base.files,
        bytes: base.bytes,
        dirty: base.dirty,
        hidden: base.hidden.clone(),
        included: base.included.clone(),
        left_out: base.left_out.clone(),
    });
    let rules = rules(&tree).await?;
    let missed = history::take(order, &store, &source, &mut base).await;
    let (history, lost) = history::load(&store, &base);
    Ok(Based {
        store,
        base,
        tree,
        rules,
        history,
        told: missed.or(lost),
    })
}

/// The run's store as it stands; it must hold the base.
pub(in crate::run) async fn stored(order: &Order, dir: &Path, base: Base) -> Result<Based, Error> {
    let lacks = |what: String| Error::Start {
        code: 3,
        kind: "store",
        message: format!("the run's store cannot be used: {what}"),
        hint: "its journal can still be read: wharf log; start the task again for a new run"
            .to_owned(),
    };
    let path = dir.join("store.git");
    let store = Store::open(order.options.git.clone(), path).map_err(|e| lacks(e.to_string()))?;
    store.take_over().await.map_err(|e| lacks(e.to_string()))?;
    let store = store.keeping_out(&order.options.state);
    let tree = store.tree(&base.commit).await;
    if tree.map_err(|e| lacks(e.to_string()))? != base.tree {
        return Err(lacks("its base is not the one that was taken".to_owned()));
    }
    let tree = trees::tree(&store, &base.commit).await;
    let tree = tree.map_err(failed)?;
    let rules = rules(&tree).await?;
    let (history, told) = history::load(&store, &base);
    Ok(Based {
        store,
        base,
        tree,
        rules,
        history,
        told,
    })
}

/// The ignore rules of the base; they cannot be unknown, or what they hide would be.
async fn rules(tree: &Tree) -> Result<BaseRules, Error> {
    let rules = BaseRules::of(tree).await;
    rules.map_err(|error| Error::Start {
        code: 3,
        kind: "store",
        message: format!("the base's .gitignore files cannot be read: {error}"),
        hint: "see wharf doctor".to_owned(),
    })
}

/// Records are text: a directory that they cannot name would be another one, or none, when the run
/// is resumed or applied.
fn named(workspace: &Path) -> Result<(), Error> {
    if workspace.to_str().is_some() {
        return Ok(());
    }
    let shown = crate::workspace::display(workspace.as_os_str().as_encoded_bytes());
    Err(failed(crate::workspace::Error::Refused {
        what: format!("the path of the workspace {shown} is no UTF-8"),
        hint: "rename the directory, or work on it under another path".to_owned(),
    }))
}

/// What of a workspace becomes its base.
pub(in crate::run) fn source(workspace: &Path, plan: &plan::Plan) -> Source {
    Source {
        path: workspace.to_owned(),
        hide: plan.workspace.hide.clone(),
        include: plan.workspace.include.clone(),
        max_file: MAX_FILE,
        max_total: MAX_TOTAL,
        max_files: MAX_FILES,
    }
}

/// Says how far the base of a large workspace is.
fn progress(order: &Order) -> Tell {
    let watch = Arc::clone(&order.watch);
    Arc::new(move |taking: Taking| {
        let (taken, of) = (taking.taken, taking.of);
        watch.notice(&Notice::Preparing {
            line: format!(
                "workspace: {} of {} files read, {} of {} MiB",
                taken.files,
                of.files,
                taken.bytes >> 20,
                of.bytes >> 20
            ),
        });
    })
}

fn stopped_early(order: &Order) -> Error {
    Error::Start {
        code: order.stop.exit_code.load(Ordering::SeqCst),
        kind: INTERRUPTED,
        message: "stopped by a signal before the workspace was read".to_owned(),
        hint: "nothing was changed; start it again".to_owned(),
    }
}

/// The last line of a run whose base could not be taken.
fn never_started(error: &Error) -> Event {
    let (exit_code, status) = match error {
        Error::Start {
            code,
            kind: INTERRUPTED,
            ..
        } => (*code, INTERRUPTED),
        Error::Start { code, .. } => (*code, "error"),
        _ => (3, "error"),
    };
    Event::RunEnded {
        status: status.to_owned(),
        exit_code,
        reason: error.to_string(),
        result: serde_json::Value::Null,
    }
}

pub(in crate::run) fn failed(error: crate::workspace::Error) -> Error {
    let (code, hint) = match &error {
        crate::workspace::Error::Refused { hint, .. } => (2, hint.clone()),
        _ => (3, "see wharf doctor".to_owned()),
    };
    Error::Start {
        code,
        kind: "workspace",
        message: error.to_string(),
        hint,
    }
}
