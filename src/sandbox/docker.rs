//! The engine as the rest of the program holds it.

use std::collections::HashSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use super::connect::Options;
use super::dial::Line;
use super::egress::Way;
use super::facts::Info;
use super::tunnel::Tunnel;
use super::{Engine, Error, Image, ImageSpec, Layer, Progress, Spec, Tree, Vacant};
use super::{image, open, workspace_layer};

/// A connected engine; clones share it.
#[derive(Clone)]
pub struct Docker {
    pub(super) api: bollard::Docker,
    /// What its calls go through, where the engine is on another machine; held for its life.
    _tunnel: Option<Arc<Tunnel>>,
    pub(super) options: Arc<Options>,
    pub(super) info: Arc<Info>,
    /// Starts cost processor time at the engine; past about two a core they only queue there.
    pub(super) starts: Arc<Semaphore>,
    /// Two preparations at once would build the same thing twice. Holds what registries were asked for
    /// although it was there, which is done once.
    pub(super) builds: Arc<Mutex<HashSet<String>>>,
    /// How sandboxes with an allow-list reach servers.
    pub(super) way: Way,
    /// Nor does it help to fill two layers at a time.
    pub(super) layers: Arc<Semaphore>,
}

impl Docker {
    pub(super) fn new(line: Line, options: Options, info: Info) -> Self {
        let way = Way {
            authorities: options.ca_bundle.clone(),
            credentials: options.credentials.clone(),
            ..Way::default()
        };
        let starts = usize::try_from(info.facts.cores * 2).unwrap_or(2);
        Docker {
            api: line.api,
            _tunnel: line.tunnel,
            options: Arc::new(options),
            info: Arc::new(info),
            starts: Arc::new(Semaphore::new(starts)),
            builds: Arc::default(),
            way,
            layers: Arc::new(Semaphore::new(1)),
        }
    }

    /// The same engine, whose sandboxes reach servers in another way.
    pub fn reaching(self, way: Way) -> Self {
        Docker { way, ..self }
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

    fn start<'a>(
        &'a self,
        spec: &'a Spec,
        layer: Option<&'a Layer>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Box<dyn Vacant>, Error>> {
        Box::pin(async move {
            let vacancy = open::start(self, spec, layer, cancel).await?;
            Ok(Box::new(vacancy) as Box<dyn Vacant>)
        })
    }

    fn layer<'a>(
        &'a self,
        spec: &'a Spec,
        tree: Arc<Tree>,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Layer, Error>> {
        Box::pin(workspace_layer::make(self, spec, tree, progress, cancel))
    }

    fn memory(&self) -> Option<u64> {
        self.info.facts.memory
    }
}
