//! What the rest of the program asks of a container engine.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Error, Image, ImageSpec, Layer, Progress, Sandbox, Spec, Tree, Vacant};

/// Where sandboxes come from: Docker, or memory for tests and benches.
pub trait Engine: Send + Sync {
    /// Makes the image of a spec ready: base present or built, toolbox and setup baked in.
    /// Called once for each distinct image of a run, before the first `open` of it.
    fn prepare<'a>(
        &'a self,
        image: &'a ImageSpec,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Image, Error>>;

    /// Starts a container that holds what its image does, or the layer's tree; returns once the
    /// toolbox has greeted. A layer of another image than the spec's is an error.
    fn start<'a>(
        &'a self,
        spec: &'a Spec,
        layer: Option<&'a Layer>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Box<dyn Vacant>, Error>>;

    /// Gives the layer that holds `tree` on top of the spec's image, made now unless it is there.
    fn layer<'a>(
        &'a self,
        spec: &'a Spec,
        tree: Arc<Tree>,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Layer, Error>>;

    /// Starts a container at exactly `tree`; returns once the toolbox has confirmed the manifest.
    fn open<'a>(
        &'a self,
        spec: &'a Spec,
        tree: &'a Tree,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, Error>> {
        Box::pin(async move {
            let vacant = self.start(spec, None, cancel).await?;
            vacant.fill(tree, cancel).await
        })
    }
}
