//! A sandbox in memory that nobody works in yet.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::state::State;
use super::{Held, load};
use crate::sandbox::{Error, Facts, Sandbox, Tree, Vacant};

/// A sandbox without files yet. There is nothing to save by knowing some of them ahead of time.
pub(super) struct Waiting {
    pub facts: Facts,
    pub break_after: Option<u32>,
}

impl Vacant for Waiting {
    fn furnish<'a>(
        &'a mut self,
        _tree: Arc<Tree>,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn fill<'a>(
        self: Box<Self>,
        tree: &'a Tree,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, Error>> {
        Box::pin(async move {
            let files = tokio::select! {
                files = load(tree) => files?,
                () = cancel.cancelled() => return Err(Error::Cancelled),
            };
            let state = State {
                scanned: files.clone(),
                files,
                ..State::default()
            };
            let sandbox = Held::new(self.facts, state, self.break_after);
            Ok(Arc::new(sandbox) as Arc<dyn Sandbox>)
        })
    }

    fn is_gone(&self) -> bool {
        false
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}
