//! The engine as the rest of the program holds it.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::connect::{Info, Options};
use super::{Engine, Error, Image, ImageSpec, Progress, Sandbox, Spec, Tree};
use super::{image, open};

/// A connected engine; clones share it.
#[derive(Clone)]
pub struct Docker {
    pub(super) api: bollard::Docker,
    pub(super) options: Arc<Options>,
    pub(super) info: Arc<Info>,
    /// Starts cost processor time at the engine; past about two a core they only queue there.
    pub(super) starts: Arc<Semaphore>,
    /// Two preparations at once would build the same thing twice.
    pub(super) builds: Arc<Semaphore>,
}

impl Docker {
    pub(super) fn new(api: bollard::Docker, options: Options, info: Info) -> Self {
        let starts = usize::try_from(info.facts.cores * 2).unwrap_or(2);
        Docker {
            api,
            options: Arc::new(options),
            info: Arc::new(info),
            starts: Arc::new(Semaphore::new(starts)),
            builds: Arc::new(Semaphore::new(1)),
        }
    }

    /// What the engine said of itself when it was connected.
    pub fn info(&self) -> &Info {
        &self.info
    }
}

impl Engine for Docker {
    fn prepare<'a>(
        &'a self,
        image: &'a ImageSpec,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Image, Error>> {
        Box::pin(image::prepare(self, image, progress, cancel))
    }

    fn open<'a>(
        &'a self,
        spec: &'a Spec,
        tree: &'a Tree,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, Error>> {
        Box::pin(open::open(self, spec, tree, cancel))
    }

    fn memory(&self) -> Option<u64> {
        self.info.facts.memory
    }
}
