//! The sandboxes of a run: opened on the layer of a large workspace once that stands, and kept warm
//! where the plan asks for it. One task owns what is warm and which layers there are.

mod keeper;

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::keeper::{Keeper, Taken, Word};
use super::{Engine, Error, Labels, Layer, Network, Progress, Sandbox, Spec, Tree};

/// Bytes and files of a tree from which a layer of its own is worth making.
const LARGE_BYTES: u64 = 64 << 20;
const LARGE_FILES: usize = 5000;

/// What an agent asks for.
pub struct Wanted<'a> {
    pub spec: &'a Spec,
    pub tree: &'a Arc<Tree>,
    /// Containers of this spec that are kept ready for those who ask next.
    pub warm: usize,
}

/// Opens sandboxes over an engine; clones share it.
#[derive(Clone)]
pub struct Pool {
    engine: Arc<dyn Engine>,
    words: UnboundedSender<Word>,
}

impl Tree {
    /// True when sending it to every agent would keep them waiting.
    pub fn is_large(&self) -> bool {
        let bytes = || self.entries.values().map(|entry| entry.size).sum::<u64>();
        self.entries.len() > LARGE_FILES || bytes() > LARGE_BYTES
    }
}

impl Pool {
    /// Begins with nothing warm. Its task ends by `close`, by the cancel, or with its last clone.
    pub fn new(engine: Arc<dyn Engine>, cancel: &CancellationToken) -> Pool {
        let (words, heard) = unbounded_channel();
        let keeper = Keeper::new(engine.clone(), cancel.child_token());
        tokio::spawn(keeper.run(heard));
        Pool { engine, words }
    }

    /// Makes the layer of a tree in the background, once for each image; until it stands, and when
    /// it cannot be made, sandboxes are sent the whole tree.
    pub fn layer(&self, spec: &Spec, tree: Arc<Tree>, progress: Arc<dyn Progress>) {
        let spec = spec.clone();
        self.say(Word::Layer {
            spec,
            tree,
            progress,
        });
    }

    /// Opens a sandbox at exactly the tree: a warm one if there is, else a new one.
    pub async fn open(
        &self,
        wanted: Wanted<'_>,
        cancel: &CancellationToken,
    ) -> Result<Arc<dyn Sandbox>, Error> {
        let Wanted { spec, tree, warm } = wanted;
        let key = key(spec);
        let mut layer = None;
        // One that ended unseen is replaced by the next; the last look finds none.
        for _ in 0..=warm {
            let taken = self.take(&key, spec).await;
            layer = taken.layer;
            let Some(vacant) = taken.vacant else { break };
            match vacant.fill(tree, cancel).await {
                Ok(sandbox) => return Ok(self.opened(sandbox, key, &wanted)),
                Err(Error::Broken { reason }) => {
                    tracing::debug!(reason, "a warm sandbox had ended and is replaced");
                }
                Err(error) => return Err(error),
            }
        }
        let sandbox = self.cold(spec, layer, tree, cancel).await?;
        Ok(self.opened(sandbox, key, &wanted))
    }

    /// How many containers of this spec are ready at this moment.
    pub async fn ready(&self, spec: &Spec) -> usize {
        let (reply, count) = oneshot::channel();
        self.say(Word::Count {
            key: key(spec),
            reply,
        });
        count.await.unwrap_or_default()
    }

    /// Ends what is warm and what is being made, and waits until it is gone (each end is bounded).
    pub async fn close(&self) {
        let (reply, done) = oneshot::channel();
        self.say(Word::Close(reply));
        // A task that is gone has nothing left.
        let _ = done.await;
    }

    async fn take(&self, key: &str, spec: &Spec) -> Taken {
        let (reply, taken) = oneshot::channel();
        self.say(Word::Take {
            key: key.to_owned(),
            base: spec.image.id.clone(),
            reply,
        });
        taken.await.unwrap_or_default()
    }

    async fn cold(
        &self,
        spec: &Spec,
        layer: Option<Arc<Layer>>,
        tree: &Tree,
        cancel: &CancellationToken,
    ) -> Result<Arc<dyn Sandbox>, Error> {
        if let Some(layer) = layer {
            match self.start(spec, Some(&layer), tree, cancel).await {
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                // Somebody may have removed the image; without it an agent only waits longer.
                Err(error) => {
                    tracing::warn!(%error, "the layer of the workspace is of no use any more");
                    self.say(Word::Lost(layer.base.clone()));
                }
                opened => return opened,
            }
        }
        self.start(spec, None, tree, cancel).await
    }

    async fn start(
        &self,
        spec: &Spec,
        layer: Option<&Layer>,
        tree: &Tree,
        cancel: &CancellationToken,
    ) -> Result<Arc<dyn Sandbox>, Error> {
        let vacant = self.engine.start(spec, layer, cancel).await?;
        vacant.fill(tree, cancel).await
    }

    fn opened(
        &self,
        sandbox: Arc<dyn Sandbox>,
        key: String,
        wanted: &Wanted<'_>,
    ) -> Arc<dyn Sandbox> {
        // Whoever hears of a way out is one agent's; a container with one cannot be another's.
        let owned = matches!(wanted.spec.network, Network::Allow(_));
        if wanted.warm > 0 && !owned {
            self.say(Word::Keep {
                key,
                spec: unowned(wanted.spec),
                tree: wanted.tree.clone(),
                warm: wanted.warm,
            });
        }
        sandbox
    }

    /// After the task's end there is nothing warm and nobody to tell.
    fn say(&self, word: Word) {
        let _ = self.words.send(word);
    }
}

/// The spec of a container that is nobody's yet.
fn unowned(spec: &Spec) -> Spec {
    Spec {
        labels: Labels {
            subtask: "warm".to_owned(),
            ..spec.labels.clone()
        },
        ..spec.clone()
    }
}

/// Equal for specs whose containers could stand for each other: all of the spec but the owner's name.
fn key(spec: &Spec) -> String {
    format!("{:?}", unowned(spec))
}

#[cfg(test)]
mod tests;
