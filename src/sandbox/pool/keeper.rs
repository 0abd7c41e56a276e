//! The task that owns a pool's warm containers and layers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::super::{Engine, Error, Layer, Progress, Spec, Tree, Vacant};

/// What a pool tells its task.
pub(super) enum Word {
    /// A container is wanted now.
    Take {
        key: String,
        /// The id of the image it is of.
        base: String,
        reply: oneshot::Sender<Taken>,
    },
    /// Up to `warm` containers of this spec are to be ready.
    Keep {
        key: String,
        spec: Spec,
        tree: Arc<Tree>,
        warm: usize,
    },
    Layer {
        spec: Spec,
        tree: Arc<Tree>,
        progress: Arc<dyn Progress>,
    },
    Count {
        key: String,
        reply: oneshot::Sender<usize>,
    },
    /// The layer on this image cannot be used.
    Lost(String),
    Close(oneshot::Sender<()>),
}

/// What there is for somebody who wants a container.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) vacant: Option<Box<dyn Vacant>>,
    pub(super) layer: Option<Arc<Layer>>,
}

/// A container that waits.
struct Warm {
    vacant: Box<dyn Vacant>,
    /// The id of the image it is of, and whether it stands on that image's layer.
    base: String,
    layered: bool,
}

/// What a job in the background came to.
enum Done {
    Warm(String, Result<Warm, Error>),
    Layer(String, Result<Layer, Error>),
    Closed,
}

pub(super) struct Keeper {
    engine: Arc<dyn Engine>,
    stop: CancellationToken,
    idle: HashMap<String, VecDeque<Warm>>,
    /// How many are being started.
    starting: HashMap<String, usize>,
    /// By the id of the image they stand on; none while one is made, or when it failed.
    layers: HashMap<String, Option<Arc<Layer>>>,
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
}

impl Keeper {
    pub(super) fn new(engine: Arc<dyn Engine>, stop: CancellationToken) -> Keeper {
        Keeper {
            engine,
            stop,
            idle: HashMap::new(),
            starting: HashMap::new(),
            layers: HashMap::new(),
            jobs: FuturesUnordered::new(),
        }
    }

    pub(super) async fn run(mut self, mut words: UnboundedReceiver<Word>) {
        let mut closers = Vec::new();
        loop {
            tokio::select! {
                word = words.recv() => match word {
                    Some(Word::Close(reply)) => {
                        closers.push(reply);
                        break;
                    }
                    Some(word) => self.obey(word),
                    None => break,
                },
                Some(done) = self.jobs.next() => self.done(done),
                () = self.stop.cancelled() => break,
            }
        }
        self.end().await;
        words.close();
        // Whoever asks from now on finds nothing; whoever asked meanwhile is told.
        while let Some(word) = words.recv().await {
            if let Word::Close(reply) = word {
                closers.push(reply);
            }
        }
        for reply in closers {
            let _ = reply.send(());
        }
    }

    fn obey(&mut self, word: Word) {
        match word {
            Word::Take { key, base, reply } => self.give(key, &base, reply),
            Word::Keep {
                key,
                spec,
                tree,
                warm,
            } => self.keep(key, &spec, &tree, warm),
            Word::Layer {
                spec,
                tree,
                progress,
            } => self.make(spec, tree, progress),
            Word::Count { key, reply } => {
                self.bury(&key);
                // Whoever asked may have been cancelled meanwhile.
                let _ = reply.send(self.idle.get(&key).map_or(0, VecDeque::len));
            }
            Word::Lost(base) => drop(self.layers.insert(base, None)),
            // The loop has seen to it.
            Word::Close(_) => {}
        }
    }

    fn give(&mut self, key: String, base: &str, reply: oneshot::Sender<Taken>) {
        self.bury(&key);
        let layer = self.layers.get(base).cloned().flatten();
        let layered = layer.is_some();
        let warm = self.idle.get_mut(&key).and_then(VecDeque::pop_front);
        let vacant = warm.map(|warm| warm.vacant);
        // Whoever asked may have been cancelled meanwhile.
        if let Err(Taken {
            vacant: Some(vacant),
            ..
        }) = reply.send(Taken { vacant, layer })
        {
            let base = base.to_owned();
            let warm = Warm {
                vacant,
                base,
                layered,
            };
            self.idle.entry(key).or_default().push_front(warm);
        }
    }

    fn keep(&mut self, key: String, spec: &Spec, tree: &Arc<Tree>, warm: usize) {
        self.bury(&key);
        let idle = self.idle.get(&key).map_or(0, VecDeque::len);
        let starting = self.starting.entry(key.clone()).or_default();
        let missing = warm.saturating_sub(idle + *starting);
        *starting += missing;
        let layer = self.layers.get(&spec.image.id).cloned().flatten();
        for _ in 0..missing {
            let (engine, stop) = (self.engine.clone(), self.stop.clone());
            let (spec, layer, tree) = (spec.clone(), layer.clone(), tree.clone());
            let key = key.clone();
            self.jobs.push(Box::pin(async move {
                let started = warm_up(engine.as_ref(), &spec, layer, tree, &stop).await;
                Done::Warm(key, started)
            }));
        }
    }

    fn make(&mut self, spec: Spec, tree: Arc<Tree>, progress: Arc<dyn Progress>) {
        let base = spec.image.id.clone();
        if self.layers.contains_key(&base) {
            return;
        }
        self.layers.insert(base.clone(), None);
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.jobs.push(Box::pin(async move {
            let made = engine.layer(&spec, tree, progress.as_ref(), &stop).await;
            match &made {
                Ok(_) => progress.say("layer: ready, agents are sent only what differs"),
                Err(Error::Cancelled) => {}
                Err(error) => progress.say(&format!(
                    "layer: {error}; agents are sent the whole workspace"
                )),
            }
            Done::Layer(base, made)
        }));
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Warm(key, started) => {
                if let Some(starting) = self.starting.get_mut(&key) {
                    *starting = starting.saturating_sub(1);
                }
                match started {
                    Ok(warm) => self.idle.entry(key).or_default().push_back(warm),
                    Err(Error::Cancelled) => {}
                    // The next opening asks for it again.
                    Err(error) => tracing::warn!(%error, "no warm sandbox"),
                }
            }
            Done::Layer(base, made) => {
                self.layers.insert(base, made.ok().map(Arc::new));
            }
            Done::Closed => {}
        }
    }

    /// Lets go of those whose end is known, and of those that a layer made or lost since makes a
    /// worse choice than a new one.
    fn bury(&mut self, key: &str) {
        let Some(idle) = self.idle.get_mut(key) else {
            return;
        };
        let stands = |base: &String| self.layers.get(base).is_some_and(Option::is_some);
        let (gone, alive) = std::mem::take(idle)
            .into_iter()
            .partition::<VecDeque<_>, _>(|warm| {
                warm.vacant.is_gone() || warm.layered != stands(&warm.base)
            });
        *idle = alive;
        for warm in gone {
            self.jobs.push(Box::pin(async move {
                warm.vacant.close().await;
                Done::Closed
            }));
        }
    }

    /// Every job hears the stop and cleans up behind itself; what is ready is closed at once.
    async fn end(&mut self) {
        self.stop.cancel();
        let idle = std::mem::take(&mut self.idle).into_values().flatten();
        join_all(idle.map(|warm| warm.vacant.close())).await;
        while let Some(done) = self.jobs.next().await {
            if let Done::Warm(_, Ok(warm)) = done {
                warm.vacant.close().await;
            }
        }
    }
}

/// A container with as much of the tree as is worth sending ahead.
async fn warm_up(
    engine: &dyn Engine,
    spec: &Spec,
    layer: Option<Arc<Layer>>,
    tree: Arc<Tree>,
    stop: &CancellationToken,
) -> Result<Warm, Error> {
    let mut warm = Warm {
        vacant: engine.start(spec, layer.as_deref(), stop).await?,
        base: spec.image.id.clone(),
        layered: layer.is_some(),
    };
    if !warm.layered && tree.is_large() {
        return Ok(warm);
    }
    match warm.vacant.furnish(tree, stop).await {
        Ok(()) => Ok(warm),
        Err(error) => {
            warm.vacant.close().await;
            Err(error)
        }
    }
}
