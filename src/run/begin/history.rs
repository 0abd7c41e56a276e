//! The commits that agents' own repositories begin with: taken once, kept in the run's store, and given
//! to every sandbox. A run goes on without them, and says why.

use std::sync::Arc;
use std::time::Duration;

use crate::plan::History as Asked;
use crate::run::Order;
use crate::sandbox;
use crate::workspace::{self, Base, Reach, Source, Store};

/// With more files than this, agents get a history only when the plan asks for the `full` one.
const FILES: usize = 20_000;
/// Bytes of a base up to which its history is looked at at all.
const BASE: u64 = 1 << 30;
/// What agents see without being asked, and what they see at most.
const RECENT: Reach = Reach {
    commits: 100,
    bytes: 32 << 20,
};
const FULL: Reach = Reach {
    commits: 10_000,
    bytes: 256 << 20,
};
/// Taking it may not hold up the run longer than this.
const PATIENCE: Duration = Duration::from_secs(60);
/// A history may take this part of what a sandbox may hold on its disk.
const SHARE: u64 = 4;

/// Takes what the plan asks for, and enters it in the base; what to tell where that failed.
pub(in crate::run) async fn take(
    order: &Order,
    store: &Store,
    source: &Source,
    base: &mut Base,
) -> Option<String> {
    let reach = reach(order.plan.workspace.history, base)?;
    let taken = tokio::time::timeout(PATIENCE, store.history(source, base, reach)).await;
    let why = match taken {
        Ok(Ok(history)) => {
            base.history = history;
            return None;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it took longer than {} s", PATIENCE.as_secs()),
    };
    Some(format!(
        "agents see no history of the repository: {why}; `workspace.history: none` asks for none"
    ))
}

fn reach(asked: Asked, base: &Base) -> Option<Reach> {
    match asked {
        Asked::None => None,
        Asked::Recent if base.files > FILES || base.bytes > BASE => None,
        Asked::Recent => Some(RECENT),
        Asked::Full => Some(FULL),
    }
}

/// What was taken, for sandboxes; what to tell where it cannot be read any more.
pub(in crate::run) fn load(
    store: &Store,
    base: &Base,
) -> (Option<Arc<sandbox::History>>, Option<String>) {
    let Some(history) = &base.history else {
        return (None, None);
    };
    match store.load_history(history) {
        Ok((pack, index)) => {
            let history = sandbox::History {
                tip: history.tip.to_string(),
                pack,
                index,
            };
            (Some(Arc::new(history)), None)
        }
        Err(error) => (None, Some(lost(&error))),
    }
}

fn lost(error: &workspace::Error) -> String {
    format!("agents see no history of the repository any more: {error}")
}

/// The history as a sandbox with this much disk, in bytes, can hold it.
pub(in crate::run) fn within(
    history: Option<&Arc<sandbox::History>>,
    disk: u64,
) -> Option<Arc<sandbox::History>> {
    history
        .filter(|history| history.bytes().saturating_mul(SHARE) <= disk)
        .cloned()
}
