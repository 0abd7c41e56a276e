//! What an operator should know before a run goes on: what is no longer as it was when it began.

use crate::run::begin::base::source;
use crate::run::shared::Shared;
use crate::workspace::{Git, Store};

/// Bytes of a base up to which the workspace is read again to be compared with it.
const COMPARED: u64 = 64 << 20;

/// Says when the workspace is not the one that the base was taken from. The run goes on with the
/// base it has: what it delivers is made for that one.
pub(in crate::run) async fn workspace(shared: &Shared) -> Option<String> {
    let at = shared.workspace.display();
    let goes_on = "the run goes on with the files it began with";
    if shared.base.bytes > COMPARED {
        return Some(format!(
            "whether {at} changed since the run began was not looked at, it is larger than {} MiB; {goes_on}",
            COMPARED >> 20
        ));
    }
    match tree_now(shared).await {
        Ok(tree) if tree == shared.base.tree.as_str() => None,
        Ok(_) => Some(format!("{at} changed since the run began; {goes_on}")),
        Err(reason) => Some(format!(
            "whether {at} changed since the run began could not be told: {reason}; {goes_on}"
        )),
    }
}

/// The workspace's tree, made in a store of its own: the run's own store keeps what it knows of the base.
async fn tree_now(shared: &Shared) -> Result<String, String> {
    let place = tempfile::Builder::new()
        .prefix("compare-")
        .tempdir_in(&shared.dir)
        .map_err(|error| error.to_string())?;
    let git: Git = shared.options.git.clone();
    let said = |error: crate::workspace::Error| error.to_string();
    let store = Store::create(git, place.path().join("store.git"))
        .await
        .map_err(said)?
        .keeping_out(&shared.options.state);
    let source = source(&shared.workspace, &shared.plan);
    Ok(store.base(&source).await.map_err(said)?.tree.to_string())
}
