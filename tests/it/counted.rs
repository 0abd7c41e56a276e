//! The sandbox in memory with a count of what is open, as an engine would count containers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::memory::Memory;
use wharf::sandbox::{
    Answer, Changes, Command, Engine, Error, Facts, Finished, Image, ImageSpec, Listing,
    ProcessAction, Progress, Read, Sandbox, Search, Spec, Tree,
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

    fn open<'a>(
        &'a self,
        spec: &'a Spec,
        tree: &'a Tree,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, Error>> {
        Box::pin(async move {
            let inner = self.memory.open(spec, tree, cancel).await?;
            let subtask = spec.labels.subtask.clone();
            let mut open = self.open.lock().unwrap();
            let count = open.entry(subtask.clone()).or_default();
            *count += 1;
            if *count > 1 {
                self.twice.lock().unwrap().push(subtask.clone());
            }
            let one: Arc<dyn Sandbox> = Arc::new(One {
                inner,
                open: self.open.clone(),
                subtask: Mutex::new(Some(subtask)),
            });
            Ok(one)
        })
    }
}

struct One {
    inner: Arc<dyn Sandbox>,
    open: Arc<Mutex<BTreeMap<String, usize>>>,
    /// None once it is counted out.
    subtask: Mutex<Option<String>>,
}

impl One {
    fn gone(&self) {
        if let Some(subtask) = self.subtask.lock().unwrap().take() {
            *self.open.lock().unwrap().get_mut(&subtask).unwrap() -= 1;
        }
    }
}

/// A lost connection ends a container as well as a closed one.
impl Drop for One {
    fn drop(&mut self) {
        self.gone();
    }
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
            self.gone();
        })
    }
}
