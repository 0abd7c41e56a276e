//! What a pool promises, over sandboxes in memory that say what is done with them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::super::memory::Memory;
use super::super::{Contents, Entry, Image, ImageSpec, Mode, Network, Vacant};
use super::*;

/// An engine that counts.
#[derive(Default)]
struct Counting {
    memory: Memory,
    /// Subtask of each start, and whether it stood on a layer.
    starts: Mutex<Vec<(String, bool)>>,
    /// Vacant containers that are neither handed out nor closed.
    vacant: Arc<AtomicUsize>,
    /// Waiting ones are known to have ended.
    gone: Arc<AtomicBool>,
    /// Waiting ones have ended and nobody knows yet.
    ended: Arc<AtomicBool>,
    no_layer: bool,
    lost_layer: AtomicBool,
}

struct Counted {
    inner: Box<dyn Vacant>,
    vacant: Arc<AtomicUsize>,
    gone: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    warm: bool,
}

fn broken() -> Error {
    Error::Broken {
        cause: crate::sandbox::Cause::Gone,
        reason: "it has ended".into(),
    }
}

impl Engine for Counting {
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
            if layer.is_some() && self.lost_layer.load(Ordering::SeqCst) {
                return Err(Error::Engine {
                    operation: "creating a container",
                    reason: "no such image".into(),
                });
            }
            let subtask = spec.labels.subtask.clone();
            self.starts
                .lock()
                .unwrap()
                .push((subtask.clone(), layer.is_some()));
            self.vacant.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(Counted {
                inner: self.memory.start(spec, layer, cancel).await?,
                vacant: self.vacant.clone(),
                gone: self.gone.clone(),
                ended: self.ended.clone(),
                warm: subtask == "warm",
            }) as Box<dyn Vacant>)
        })
    }

    fn layer<'a>(
        &'a self,
        spec: &'a Spec,
        tree: Arc<Tree>,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Layer, Error>> {
        match self.no_layer {
            true => Box::pin(async { Err(broken()) }),
            false => self.memory.layer(spec, tree, progress, cancel),
        }
    }
}

impl Vacant for Counted {
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
        self.vacant.fetch_sub(1, Ordering::SeqCst);
        match self.warm && self.ended.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(broken()) }),
            false => self.inner.fill(tree, cancel),
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.vacant.fetch_sub(1, Ordering::SeqCst);
        self.inner.close()
    }
}

struct Same;

impl Contents for Same {
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        futures::stream::iter(ids.into_iter().map(|id| Ok(Bytes::from(id)))).boxed()
    }
}

fn tree() -> Arc<Tree> {
    let entry = Entry {
        mode: Mode::File,
        size: 1,
        id: "x".into(),
    };
    Arc::new(Tree {
        entries: [(b"a".to_vec(), entry)].into(),
        contents: Arc::new(Same),
    })
}

fn spec(subtask: &str, pids: u64) -> Spec {
    Spec {
        image: Image {
            id: "sha256:1".into(),
            name: "x".into(),
            describes: String::new(),
        },
        env: BTreeMap::new(),
        cpus: 1.0,
        memory: 1 << 30,
        pids,
        disk: 1 << 30,
        files: crate::sandbox::FileLimits::default(),
        strict: false,
        history: None,
        network: Network::None,
        runtime: None,
        labels: Labels {
            machine: "m".into(),
            state: "s".into(),
            run: "r".into(),
            subtask: subtask.into(),
        },
    }
}

struct World {
    engine: Arc<Counting>,
    pool: Pool,
    cancel: CancellationToken,
}

impl World {
    fn new(engine: Counting) -> World {
        let (engine, cancel) = (Arc::new(engine), CancellationToken::new());
        let pool = Pool::new(engine.clone(), &cancel);
        World {
            engine,
            pool,
            cancel,
        }
    }

    async fn open(&self, spec: &Spec, warm: usize) {
        let tree = tree();
        let wanted = Wanted {
            spec,
            tree: &tree,
            warm,
        };
        let sandbox = self.pool.open(wanted, &CancellationToken::new()).await;
        let read = sandbox.unwrap().read("a", 0, 9).await.unwrap().unwrap();
        assert_eq!(read.bytes, "x");
        settle().await;
    }

    fn starts(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.engine.starts.lock().unwrap())
    }

    fn vacant(&self) -> usize {
        self.engine.vacant.load(Ordering::SeqCst)
    }
}

/// Lets the pool's task do what it was told; nothing in memory takes time.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn plain(names: &[&str]) -> Vec<(String, bool)> {
    names.iter().map(|name| ((*name).into(), false)).collect()
}

#[tokio::test]
async fn the_next_of_the_same_spec_is_ready_and_replaced() {
    let world = World::new(Counting::default());
    world.open(&spec("one", 64), 2).await;
    assert_eq!(world.starts(), plain(&["one", "warm", "warm"]));
    world.open(&spec("two", 64), 2).await;
    assert_eq!(world.starts(), plain(&["warm"]));
    assert_eq!(
        (world.vacant(), world.pool.ready(&spec("any", 64)).await),
        (2, 2)
    );
    // Nobody gets what was made for somebody with other limits.
    world.open(&spec("three", 65), 0).await;
    assert_eq!(world.starts(), plain(&["three"]));
    world.pool.close().await;
    assert_eq!(world.vacant(), 0);
}

#[tokio::test]
async fn one_that_has_ended_is_never_handed_out() {
    let world = World::new(Counting::default());
    world.open(&spec("one", 64), 2).await;
    world.starts();
    world.engine.gone.store(true, Ordering::SeqCst);
    world.open(&spec("two", 64), 0).await;
    assert_eq!(world.starts(), plain(&["two"]));
    assert_eq!(world.vacant(), 0, "both were let go");

    world.engine.gone.store(false, Ordering::SeqCst);
    world.open(&spec("three", 64), 2).await;
    world.starts();
    world.engine.ended.store(true, Ordering::SeqCst);
    world.open(&spec("four", 64), 2).await;
    assert_eq!(world.starts(), plain(&["four", "warm", "warm"]));
    world.pool.close().await;
    assert_eq!(world.vacant(), 0);
}

#[tokio::test]
async fn a_cancel_and_an_end_leave_nothing_warm() {
    let world = World::new(Counting::default());
    world.open(&spec("one", 64), 3).await;
    assert_eq!(world.vacant(), 3);
    world.cancel.cancel();
    world.pool.close().await;
    assert_eq!(world.vacant(), 0);
    // A pool that is closed still opens, without keeping anything.
    world.open(&spec("two", 64), 3).await;
    assert_eq!(world.vacant(), 0);

    let world = World::new(Counting::default());
    world.open(&spec("one", 64), 3).await;
    let World { engine, pool, .. } = world;
    drop(pool);
    settle().await;
    assert_eq!(engine.vacant.load(Ordering::SeqCst), 0);
}

struct Quiet;

impl Progress for Quiet {
    fn say(&self, _: &str) {}
}

#[tokio::test]
async fn a_layer_serves_from_when_it_stands_to_when_it_is_lost() {
    let world = World::new(Counting::default());
    let one = spec("one", 64);
    world.open(&one, 0).await;
    world.pool.layer(&one, tree(), Arc::new(Quiet));
    settle().await;
    world.open(&one, 1).await;
    let on_layer = |name: &str| (name.to_owned(), true);
    let mut wanted = plain(&["one"]);
    wanted.extend([on_layer("one"), on_layer("warm")]);
    assert_eq!(world.starts(), wanted);
    // An image of its own has no layer.
    let mut other = spec("other", 64);
    other.image.id = "sha256:2".into();
    world.open(&other, 0).await;
    assert_eq!(world.starts(), plain(&["other"]));
    world.engine.lost_layer.store(true, Ordering::SeqCst);
    world.open(&spec("two", 65), 0).await;
    world.engine.lost_layer.store(false, Ordering::SeqCst);
    world.open(&spec("three", 65), 0).await;
    assert_eq!(world.starts(), plain(&["two", "three"]));
    world.pool.close().await;
    assert_eq!(world.vacant(), 0);
}

#[tokio::test]
async fn what_was_warm_before_the_layer_stood_gives_way_to_what_stands_on_it() {
    let world = World::new(Counting::default());
    let one = spec("one", 64);
    world.open(&one, 1).await;
    world.pool.layer(&one, tree(), Arc::new(Quiet));
    settle().await;
    world.starts();
    world.open(&spec("two", 64), 1).await;
    let on_layer = [("two".to_owned(), true), ("warm".to_owned(), true)];
    assert_eq!(world.starts(), on_layer);
    assert_eq!(world.vacant(), 1, "the one without the layer was closed");
}

#[tokio::test]
async fn a_layer_that_cannot_be_made_is_not_asked_for_again() {
    let world = World::new(Counting {
        no_layer: true,
        ..Counting::default()
    });
    let one = spec("one", 64);
    world.pool.layer(&one, tree(), Arc::new(Quiet));
    settle().await;
    world.pool.layer(&one, tree(), Arc::new(Quiet));
    world.open(&one, 0).await;
    assert_eq!(world.starts(), plain(&["one"]));
}
