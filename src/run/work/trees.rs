//! A commit of the store as the tree a sandbox opens at, and what leads from one commit to another.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt};

use crate::id::{BlobId, CommitId};
use crate::run::work::instructions;
use crate::sandbox::{self, Changes, Entry, Tree};
use crate::workspace::{self, Store};

/// Bytes of a whole tree up to which it is held in memory for all agents that start from it.
const LOADED: u64 = 8 << 20;

/// A commit as agents start from it.
pub(in crate::run) struct Standing {
    pub commit: CommitId,
    pub tree: Arc<Tree>,
    /// Its AGENTS.md files, the one at its top first.
    pub instructions: Vec<(String, String)>,
}

impl Standing {
    /// Reads a commit's list of files; their bytes stay in the store.
    pub async fn of(store: &Store, commit: &CommitId) -> Result<Self, workspace::Error> {
        let mut tree = tree(store, commit).await?;
        if tree.entries.values().map(|entry| entry.size).sum::<u64>() <= LOADED {
            tree.contents = Arc::new(Loaded::of(store, &tree).await?);
        }
        Ok(Self {
            commit: commit.clone(),
            instructions: instructions::of(&tree).await,
            tree: Arc::new(tree),
        })
    }
}

/// The tree of a commit; its bytes stay in the store until they are asked for.
pub(in crate::run) async fn tree(
    store: &Store,
    commit: &CommitId,
) -> Result<Tree, workspace::Error> {
    let files = store.files(commit).await?;
    let entries = files
        .into_iter()
        .map(|file| {
            let id = file.blob.as_str().to_owned();
            (
                file.path,
                Entry {
                    mode: into_sandbox(file.mode),
                    size: file.size,
                    id,
                },
            )
        })
        .collect();
    Ok(Tree {
        entries,
        contents: Arc::new(Blobs(store.clone())),
    })
}

/// The bytes of a small tree, read once.
struct Loaded(HashMap<String, Bytes>);

impl Loaded {
    async fn of(store: &Store, tree: &Tree) -> Result<Self, workspace::Error> {
        let sizes: BTreeMap<&str, u64> = tree
            .entries
            .values()
            .map(|entry| (entry.id.as_str(), entry.size))
            .collect();
        let mut chunks = store.read(sizes.keys().map(|id| BlobId::new(*id)).collect());
        let unread = |what: String| workspace::Error::Unreadable {
            operation: "cat-file",
            what,
        };
        let mut bytes = BytesMut::new();
        let mut loaded = HashMap::with_capacity(sizes.len());
        for (id, size) in sizes {
            let size = usize::try_from(size).map_err(|error| unread(error.to_string()))?;
            while bytes.len() < size {
                match chunks.next().await {
                    Some(chunk) => {
                        bytes.extend_from_slice(&chunk.map_err(|error| unread(error.to_string()))?)
                    }
                    None => return Err(unread(format!("{id} ends too soon"))),
                }
            }
            loaded.insert(id.to_owned(), bytes.split_to(size).freeze());
        }
        Ok(Self(loaded))
    }
}

impl sandbox::Contents for Loaded {
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        let missing = |id: &str| std::io::Error::other(format!("{id} is not of this tree"));
        let found: Vec<_> = ids
            .iter()
            .map(|id| self.0.get(id).cloned().ok_or_else(|| missing(id)))
            .collect();
        futures::stream::iter(found).boxed()
    }
}

struct Blobs(Store);

impl sandbox::Contents for Blobs {
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        self.0.read(ids.into_iter().map(BlobId::new).collect())
    }
}

/// What leads from one commit's files to another's.
pub(in crate::run) async fn between(
    store: &Store,
    from: &CommitId,
    to: &CommitId,
) -> Result<Changes, workspace::Error> {
    let mut changes = Changes::default();
    if from == to {
        return Ok(changes);
    }
    let before = tree(store, from).await?.entries;
    let mut after = tree(store, to).await?;
    let gone = before.keys().filter(|p| !after.entries.contains_key(*p));
    changes.deletes = gone.cloned().collect();
    after
        .entries
        .retain(|path, entry| before.get(path) != Some(entry));
    let Loaded(contents) = Loaded::of(store, &after).await?;
    for (path, entry) in after.entries {
        changes.puts.push(sandbox::Put {
            content: contents.get(&entry.id).cloned().unwrap_or_default(),
            mode: entry.mode,
            path,
        });
    }
    Ok(changes)
}

fn into_sandbox(mode: workspace::Mode) -> sandbox::Mode {
    match mode {
        workspace::Mode::File => sandbox::Mode::File,
        workspace::Mode::Executable => sandbox::Mode::Executable,
        workspace::Mode::Link => sandbox::Mode::Link,
    }
}
