//! An engine around another one: everything goes through, and a test sees it go by.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{
    Answer, Changes, Command, Engine, Error, Facts, Finished, Image, ImageSpec, Layer, Listing,
    ProcessAction, Progress, Read, Sandbox, Search, Spec, Tree, Vacant,
};

/// What a test does as things go by.
pub trait Look: Send + Sync + 'static {
    /// What stays with a sandbox until it is dropped.
    type Place: Send + Sync + 'static;

    fn started(&self, spec: &Spec) -> Self::Place;

    /// Before files are listed, in the task that asks.
    fn listing(_place: &Self::Place, _pattern: Option<&str>) {}

    fn closed(_place: &Self::Place) {}
}

/// An engine that is looked at.
#[derive(Clone, Default)]
pub struct Around<E, L> {
    pub inner: E,
    pub look: L,
}

impl<E: Engine, L: Look> Engine for Around<E, L> {
    fn prepare<'a>(
        &'a self,
        image: &'a ImageSpec,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Image, Error>> {
        self.inner.prepare(image, progress, cancel)
    }

    fn start<'a>(
        &'a self,
        spec: &'a Spec,
        layer: Option<&'a Layer>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Box<dyn Vacant>, Error>> {
        Box::pin(async move {
            let inner = self.inner.start(spec, layer, cancel).await?;
            let place = self.look.started(spec);
            let vacant: Box<dyn Vacant> = Box::new(Empty::<L> { inner, place });
            Ok(vacant)
        })
    }

    fn layer<'a>(
        &'a self,
        spec: &'a Spec,
        tree: Arc<Tree>,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Layer, Error>> {
        self.inner.layer(spec, tree, progress, cancel)
    }
}

struct Empty<L: Look> {
    inner: Box<dyn Vacant>,
    place: L::Place,
}

impl<L: Look> Vacant for Empty<L> {
    fn furnish<'a>(
        &'a mut self,
        tree: Arc<Tree>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.furnish(tree, cancel)
    }

    fn fill<'a>(
        self: Box<Self>,
        tree: &'a Tree,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, Error>> {
        Box::pin(async move {
            let Empty { inner, place } = *self;
            let inner = inner.fill(tree, cancel).await?;
            let one: Arc<dyn Sandbox> = Arc::new(One::<L> { inner, place });
            Ok(one)
        })
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.inner.close()
    }
}

struct One<L: Look> {
    inner: Arc<dyn Sandbox>,
    place: L::Place,
}

impl<L: Look> Sandbox for One<L> {
    fn run<'a>(
        &'a self,
        command: &'a Command,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Finished, Error>> {
        self.inner.run(command, cancel)
    }

    fn process(
        &self,
        id: u32,
        action: ProcessAction,
    ) -> BoxFuture<'_, Result<Answer<Finished>, Error>> {
        self.inner.process(id, action)
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Answer<Read>, Error>> {
        self.inner.read(path, offset, limit)
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Result<Answer<()>, Error>> {
        self.inner.write(path, content)
    }

    fn list<'a>(
        &'a self,
        pattern: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        L::listing(&self.place, pattern);
        self.inner.list(pattern, limit)
    }

    fn grep<'a>(&'a self, search: &'a Search) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        self.inner.grep(search)
    }

    fn scan(&self) -> BoxFuture<'_, Result<Changes, Error>> {
        self.inner.scan()
    }

    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.close().await;
            L::closed(&self.place);
        })
    }
}
