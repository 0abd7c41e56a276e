//! The sandbox in memory with a count of what is open, as an engine would count containers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::memory::Memory;
use wharf::sandbox::{
    Answer, Changes, Command, Engine, Error, Facts, Finished, Image, ImageSpec, Layer, Listing,
    ProcessAction, Progress, Read, Sandbox, Search, Spec, Tree, Vacant,
};

/// How many sandboxes are open, by the subtask they were opened for.
#[derive(Clone, Default)]
pub struct Counted {
    memory: Memory,
    open: Arc<Mutex<BTreeMap<String, usize>>>,
    /// Subtasks that had two at a time.
    twice: Arc<Mutex<Vec<String>>>,
}

impl Counted {
    /// How many are open now.
    pub fn open(&self) -> usize {
        self.open.lock().unwrap().values().sum()
    }

    /// Who had two at a time.
    pub fn twice(&self) -> Vec<String> {
        self.twice.lock().unwrap().clone()
    }
}

impl Engine for Counted {
    fn prepare<'a>(
        &'a self,
        image: &'a ImageSpec,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Image, Error>> {
        self.memory.prepare(image, progress, cancel)
    }

    fn start<'a>(
        &'a self,
        spec: &'a Spec,
        layer: Option<&'a Layer>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Box<dyn Vacant>, Error>> {
        Box::pin(async move {
            let inner = self.memory.start(spec, layer, cancel).await?;
            let subtask = spec.labels.subtask.clone();
            let mut open = self.open.lock().unwrap();
            let count = open.entry(subtask.clone()).or_default();
            *count += 1;
            if *count > 1 {
                self.twice.lock().unwrap().push(subtask.clone());
            }
            let place = Place {
                open: self.open.clone(),
                subtask: Mutex::new(Some(subtask)),
            };
            let vacant: Box<dyn Vacant> = Box::new(Empty { inner, place });
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
        self.memory.layer(spec, tree, progress, cancel)
    }
}

/// One that is counted, until it is counted out.
struct Place {
    open: Arc<Mutex<BTreeMap<String, usize>>>,
    subtask: Mutex<Option<String>>,
}

impl Place {
    fn gone(&self) {
        if let Some(subtask) = self.subtask.lock().unwrap().take() {
            *self.open.lock().unwrap().get_mut(&subtask).unwrap() -= 1;
        }
    }
}

/// A lost connection ends a container as well as a closed one.
impl Drop for Place {
    fn drop(&mut self) {
        self.gone();
    }
}

struct Empty {
    inner: Box<dyn Vacant>,
    place: Place,
}

impl Vacant for Empty {
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
            let one: Arc<dyn Sandbox> = Arc::new(One { inner, place });
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

struct One {
    inner: Arc<dyn Sandbox>,
    place: Place,
}

impl Sandbox for One {
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
            self.place.gone();
        })
    }
}
