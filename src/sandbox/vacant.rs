//! A container that runs and in which nobody works yet, and the layer it may stand on.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::call;
use super::remote::Remote;
use super::remote_tree::Below;
use super::{Error, Sandbox, Spec, Tree};

/// A container that was started and greeted. It becomes a sandbox by `fill`, once.
pub trait Vacant: Send + Sync {
    /// Puts a tree in ahead of time, so that a later `fill` sends only what differs from it.
    fn furnish<'a>(
        &'a mut self,
        tree: Arc<Tree>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Makes it a sandbox at exactly `tree`; one that does not take the tree is closed again.
    fn fill<'a>(
        self: Box<Self>,
        tree: &'a Tree,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, Error>>;

    /// True when its end is known already; false may also mean that nobody has noticed yet.
    fn is_gone(&self) -> bool;

    /// Ends it and waits until it is gone (bounded).
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// An image's layer that holds a whole tree, so that a sandbox on it is sent only the difference.
#[derive(Clone)]
pub struct Layer {
    /// The name the engine has it under. Whoever makes the same layer again takes this name over.
    pub image: String,
    /// The id of the image it was made on.
    pub base: String,
    /// Names the tree; equal names mean equal trees.
    pub name: String,
    pub tree: Arc<Tree>,
}

impl Layer {
    /// Its tree as what a container of the spec stands on.
    pub(super) fn standing(&self, spec: &Spec) -> Result<Standing, Error> {
        if self.base != spec.image.id {
            return Err(Error::Engine {
                operation: "starting on a layer",
                reason: format!("it was made on another image than {}", spec.image.name),
            });
        }
        Ok(Standing {
            name: self.name.clone(),
            tree: self.tree.clone(),
        })
    }
}

/// A tree that lies in a workspace, under the name that the toolbox knows it by.
pub(super) struct Standing {
    name: String,
    tree: Arc<Tree>,
}

/// A container at the engine.
pub(super) struct Vacancy {
    remote: Remote,
    standing: Option<Standing>,
}

impl Vacancy {
    pub(super) fn new(remote: Remote, standing: Option<Standing>) -> Vacancy {
        Vacancy { remote, standing }
    }

    /// The other end.
    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The engine's id of the container.
    pub(super) fn container(&self) -> &str {
        &self.remote.facts().container
    }

    /// No repository is made in it.
    pub(super) fn without_git(&mut self) {
        self.remote.git = false;
    }

    /// Ends the container and waits until it is gone (bounded).
    pub(super) async fn end(self) {
        self.remote.close().await;
    }

    async fn send(&self, tree: &Tree) -> Result<String, Error> {
        let below = match &self.standing {
            None => Below::Nothing,
            Some(Standing { name, tree }) => Below::Named(name, tree),
        };
        Ok(self.remote.send(below, tree).await?.manifest)
    }
}

impl Vacant for Vacancy {
    fn furnish<'a>(
        &'a mut self,
        tree: Arc<Tree>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let name = call::unless(cancel, self.send(&tree)).await?;
            self.standing = Some(Standing { name, tree });
            Ok(())
        })
    }

    fn fill<'a>(
        self: Box<Self>,
        tree: &'a Tree,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, Error>> {
        Box::pin(async move {
            match call::unless(cancel, self.send(tree)).await {
                Ok(_) => Ok(Arc::new(self.remote) as Arc<dyn Sandbox>),
                Err(error) => {
                    self.remote.close().await;
                    Err(error)
                }
            }
        })
    }

    fn is_gone(&self) -> bool {
        self.remote.is_gone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.remote.close().await })
    }
}
