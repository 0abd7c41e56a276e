//! A commit of the store as the tree a sandbox opens at, and a sandbox's changes as edits of the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt};

use crate::id::{BlobId, CommitId};
use crate::run::work::instructions;
use crate::sandbox::{self, Changes, Entry, Tree};
use crate::workspace::{self, Base, Edit, Store};

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

/// What may be committed, and what was left out with the reason.
pub(in crate::run) struct Taken {
    pub edits: Vec<Edit>,
    pub left_out: Vec<(String, String)>,
    /// Of those that a full disk cut, all there are now.
    pub torn: BTreeSet<String>,
}

/// The path of an edit, for display.
pub(in crate::run) fn shown(edit: &Edit) -> String {
    let (Edit::Put { path, .. } | Edit::Delete { path }) = edit;
    workspace::display(path)
}

/// What stands in the workspace without being part of the base: no work of an agent's may take its
/// place. A branch would show that as a change, and what it replaces as gone.
#[derive(Default)]
pub(in crate::run) struct KeptOut {
    /// Each place, as the base spells it, with the reason to refuse a change there.
    places: BTreeMap<String, &'static str>,
}

impl KeptOut {
    pub fn of(base: &Base) -> Self {
        let hidden = base.hidden.iter();
        let hidden = hidden.map(|at| (at.clone(), "a file of this name is withheld from agents"));
        let left_out = base.left_out.iter();
        let left_out =
            left_out.map(|(at, _)| (at.clone(), "something stands there that agents do not see"));
        let own = Some(&base.own).filter(|own| !own.is_empty());
        let own = own.map(|own| (own.clone(), "Wharf's own files stand there"));
        Self {
            places: left_out.chain(hidden).chain(own).collect(),
        }
    }

    /// Why a change at this path is not taken: it is such a place, lies below one, or above one.
    fn refuses(&self, shown: &str) -> Option<&'static str> {
        let above = shown.match_indices('/').map(|(at, _)| &shown[..at]);
        let mut at_or_above = std::iter::once(shown).chain(above);
        if let Some(why) = at_or_above.find_map(|at| self.places.get(at)) {
            return Some(why);
        }
        let folder = format!("{shown}/");
        let below = self.places.range(folder.clone()..).next();
        below
            .filter(|(place, _)| place.starts_with(&folder))
            .map(|_| "it would take the place of what agents do not see")
    }
}

/// Why a removal is not taken.
const STAYS: &str = "its removal, since what took its place is left out";

/// True when a path only made way for something that is not taken: a file in the place of one of its
/// folders, or what lies in a folder in its own place, of which nothing else is taken either.
fn made_way(path: &[u8], refused: &BTreeSet<Vec<u8>>, puts: &[Edit]) -> bool {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut above = slashes.map(|(at, _)| &path[..at]);
    if above.any(|folder| refused.contains(folder)) {
        return true;
    }
    let folder = [path, b"/"].concat();
    let in_it = |other: &[u8]| other.starts_with(&folder);
    let first = refused.range(folder.clone()..).next();
    first.is_some_and(|first| in_it(first))
        && !puts
            .iter()
            .any(|edit| matches!(edit, Edit::Put { path, .. } if in_it(path)))
}

/// Sorts an agent's changes. A path that was withheld from it can be neither replaced nor removed, and
/// one that can be part of no snapshot costs the others nothing.
pub(in crate::run) fn take(changes: Changes, kept_out: &KeptOut) -> Taken {
    // As the base spells the paths that it withheld.
    let shown = workspace::display;
    let torn: BTreeSet<String> = changes.torn.iter().map(|path| shown(path)).collect();
    let mut left_out: Vec<(String, String)> = changes
        .left_out
        .iter()
        .filter(|(path, _)| !changes.torn.contains(path))
        .map(|(path, why)| (shown(path), why.clone()))
        .collect();
    let mut puts = Vec::with_capacity(changes.puts.len());
    let mut refused = BTreeSet::new();
    for put in changes.puts {
        let mode = into_workspace(put.mode);
        let name = shown(&put.path);
        let fits = workspace::check_path(&put.path, Some(mode));
        match fits.err().or_else(|| kept_out.refuses(&name)) {
            Some(why) => {
                left_out.push((name, why.to_owned()));
                refused.insert(put.path);
            }
            None => puts.push(Edit::Put {
                path: put.path,
                mode,
                content: put.content,
            }),
        }
    }
    let mut edits = Vec::with_capacity(puts.len() + changes.deletes.len());
    for path in changes.deletes {
        let name = shown(&path);
        // What could never be part of the start is not gone from it either.
        if workspace::check_path(&path, None).is_err() || kept_out.refuses(&name).is_some() {
            continue;
        }
        if made_way(&path, &refused, &puts) {
            left_out.push((name, STAYS.to_owned()));
        } else {
            edits.push(Edit::Delete { path });
        }
    }
    edits.append(&mut puts);
    Taken {
        edits,
        left_out,
        torn,
    }
}

fn into_sandbox(mode: workspace::Mode) -> sandbox::Mode {
    match mode {
        workspace::Mode::File => sandbox::Mode::File,
        workspace::Mode::Executable => sandbox::Mode::Executable,
        workspace::Mode::Link => sandbox::Mode::Link,
    }
}

fn into_workspace(mode: sandbox::Mode) -> workspace::Mode {
    match mode {
        sandbox::Mode::File => workspace::Mode::File,
        sandbox::Mode::Executable => workspace::Mode::Executable,
        sandbox::Mode::Link => workspace::Mode::Link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Put;

    fn put(path: &[u8]) -> Put {
        Put {
            path: path.to_vec(),
            mode: sandbox::Mode::File,
            content: Bytes::new(),
        }
    }

    /// A withheld file is neither replaced nor removed, however its name has to be spelled for display.
    #[test]
    fn a_withheld_path_is_kept_whatever_its_bytes() {
        let odd: [&[u8]; 3] = [b".env", b"a\nb.pem", b"key\xff.pem"];
        let why = "withheld";
        let kept_out = KeptOut {
            places: odd
                .iter()
                .map(|path| (workspace::display(path), why))
                .collect(),
        };
        let mut changes = Changes {
            puts: odd.iter().map(|path| put(path)).collect(),
            deletes: odd.iter().map(|path| path.to_vec()).collect(),
            ..Changes::default()
        };
        changes.puts.push(put(b"mine.txt"));
        let taken = take(changes, &kept_out);
        assert_eq!(taken.edits.len(), 1);
        assert_eq!(taken.left_out.len(), odd.len());
    }

    /// What makes way for something that is not taken stays, or half of a change would be delivered.
    #[test]
    fn what_is_refused_at_a_path_is_refused_whole() {
        let kept_out = KeptOut {
            places: BTreeMap::from([("pkg/k.pem".to_owned(), "hidden")]),
        };
        let deletes: [&[u8]; 8] = [
            b"pkg/x.py",
            b"pkg/in/y.py",
            b"pkgs/z.py",
            b"pkg.txt",
            b"was",
            b"became",
            b"had/a",
            b"plain",
        ];
        let changes = Changes {
            // `was` and `became` are folders now; of the one nothing is taken, of the other something is.
            puts: [
                &b"pkg"[..],
                b"was/git~1",
                b"became/git~1",
                b"became/b",
                b"had",
            ]
            .iter()
            .map(|path| put(path))
            .collect(),
            deletes: deletes.iter().map(|path| path.to_vec()).collect(),
            ..Changes::default()
        };
        let taken = take(changes, &kept_out);
        let edits: Vec<String> = taken.edits.iter().map(super::shown).collect();
        let expected = [
            "pkgs/z.py",
            "pkg.txt",
            "became",
            "had/a",
            "plain",
            "became/b",
            "had",
        ];
        assert_eq!(edits, expected);
        let left: Vec<&str> = taken.left_out.iter().map(|(path, _)| &path[..]).collect();
        let named = [
            "pkg",
            "was/git~1",
            "became/git~1",
            "pkg/x.py",
            "pkg/in/y.py",
            "was",
        ];
        assert_eq!(left, named);
    }

    /// One bad name costs neither the snapshot nor the other files.
    #[test]
    fn what_no_snapshot_can_hold_is_left_out_and_named() {
        let kept_out = KeptOut {
            places: BTreeMap::from([
                ("home/.wharf".to_owned(), "own"),
                (".env".to_owned(), "hidden"),
            ]),
        };
        let bad: [&[u8]; 7] = [
            b"git~1",
            b"a/.git./hooks/post-checkout",
            ".g\u{200c}it".as_bytes(),
            b"home/.wharf/runs/x",
            b"home/.wharf",
            b"home",
            b".env/x",
        ];
        let mut changes = Changes {
            puts: bad.iter().map(|path| put(path)).collect(),
            deletes: bad.iter().map(|path| path.to_vec()).collect(),
            ..Changes::default()
        };
        changes.puts.push(Put {
            mode: sandbox::Mode::Link,
            ..put(b".gitmodules")
        });
        changes.puts.push(put(b"home/.wharfs"));
        let taken = take(changes, &kept_out);
        let edits: Vec<String> = taken.edits.iter().map(super::shown).collect();
        assert_eq!(edits, ["home/.wharfs"]);
        assert_eq!(taken.left_out.len(), bad.len() + 1);
        assert!(taken.left_out.iter().all(|(_, why)| !why.is_empty()));
    }
}
