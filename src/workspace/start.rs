//! How the base differs from HEAD: what a delivered branch shows as "working tree at start", kept in
//! the store beside the base.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use futures::stream;

use super::differences::Entry;
use super::git::{Call, object_id, unreadable};
use super::globs::Withheld;
use super::listing::Listing;
use super::reader::Report;
use super::settled::Settled;
use super::store::{fields, mode_of};
use super::{Error, GitKind, Mode, Source, Store, import, path};
use crate::id::{BlobId, CommitId};

/// How the base differs from HEAD: what a delivered branch must show as "working tree at start".
#[derive(Default)]
pub(super) struct Start {
    pub put: Vec<Vec<u8>>,
    pub delete: Vec<Vec<u8>>,
    /// Folders with a repository of their own, which no branch of this one can change.
    pub foreign: Vec<Vec<u8>>,
}

impl Store {
    /// Compares the base with HEAD's tree, as far as both show the same paths.
    pub(super) async fn start(
        &self,
        source: &Source,
        listing: &Listing,
        commit: &CommitId,
        report: &Report,
    ) -> Result<Start, Error> {
        let mut start = Start {
            foreign: listing.foreign.clone(),
            ..Start::default()
        };
        if listing.git == GitKind::None {
            return Ok(start);
        }
        let mut at_head = match &listing.head {
            Some(head) => self.head_files(&source.path, head).await?,
            None => BTreeMap::new(),
        };
        let settled = match listing.head {
            Some(_) => Some(Settled::read(&self.git, &source.path).await?),
            None => None,
        };
        for file in self.files(commit).await? {
            let entry = Entry {
                mode: file.mode,
                blob: file.blob,
            };
            let there = at_head.remove(&file.path).flatten();
            let same = match (&there, &settled) {
                (Some(there), _) if *there == entry => true,
                (Some(there), Some(settled)) if there.mode == entry.mode => {
                    settled.holds(&file.path, &there.blob)?
                }
                _ => false,
            };
            // What git ignores and the operator asked for is the agents' to see, not a branch's to hold.
            let asked = there.is_none() && listing.included.contains(&file.path);
            if !same && !asked && !start.is_foreign(&file.path) {
                start.put.push(file.path);
            }
        }
        let withheld = Withheld::of(source)?;
        let left_out: BTreeSet<&[u8]> = report
            .left_out
            .iter()
            .map(|(at, _)| at.as_slice())
            .collect();
        for (at, entry) in at_head {
            let gone = entry.is_some()
                && !withheld.holds(&at)
                && !listing.sparse.contains(&at)
                && !covers(&left_out, &at)
                && !start.is_foreign(&at);
            if gone {
                start.delete.push(at);
            }
        }
        Ok(start)
    }

    /// The files of a commit of the operator's below the workspace; None for a submodule.
    async fn head_files(
        &self,
        dir: &Path,
        head: &str,
    ) -> Result<BTreeMap<Vec<u8>, Option<Entry>>, Error> {
        // Without --full-tree the answer is below the directory and relative to it.
        let call = Call::new("ls-tree", dir).args(["-r", "-z", head]);
        let answer = self.git.ask(call, b"").await?;
        fields(&answer)
            .map(|line| head_file(line).ok_or_else(|| unreadable("ls-tree", &path::display(line))))
            .collect()
    }

    /// Keeps what delivery must know later beside the base, in the store itself.
    pub(super) async fn keep_start(&self, base: &CommitId, start: &Start) -> Result<(), Error> {
        let list = |paths: &[Vec<u8>]| paths.join(&0);
        let put = |name: &str, paths| import::put(name.as_bytes(), Mode::File, &list(paths));
        let reference = start_ref(base);
        let from = import::From::Nothing;
        let lines = [
            import::header(&reference, 1, import::FIXED, "start", &from),
            put("put", &start.put),
            put("delete", &start.delete),
            put("foreign", &start.foreign),
            import::done(),
        ];
        self.import(stream::iter(lines)).await?;
        self.sync_refs(&reference).await
    }

    /// What `base` kept for delivery.
    pub(super) async fn load_start(&self, base: &CommitId) -> Result<Start, Error> {
        let call = self
            .call("rev-parse")
            .args(["--verify", "--end-of-options", &start_ref(base)]);
        let commit = CommitId::new(self.git.line(call).await?);
        let list = async |name: &str| {
            let content = self.blob(&commit, name.as_bytes()).await?;
            let content = content.ok_or_else(|| unreadable("ls-tree", name))?;
            Ok::<_, Error>(fields(&content).map(<[u8]>::to_vec).collect())
        };
        Ok(Start {
            put: list("put").await?,
            delete: list("delete").await?,
            foreign: list("foreign").await?,
        })
    }
}

impl Start {
    /// True for a path inside a repository of its own.
    pub(super) fn is_foreign(&self, at: &[u8]) -> bool {
        self.foreign
            .iter()
            .any(|folder| path::is_within(folder, at))
    }
}

fn start_ref(base: &CommitId) -> String {
    format!("refs/wharf/start/{base}")
}

fn covers(set: &BTreeSet<&[u8]>, at: &[u8]) -> bool {
    set.contains(at) || path::parents(at).any(|parent| set.contains(parent))
}

fn head_file(line: &[u8]) -> Option<(Vec<u8>, Option<Entry>)> {
    let tab = line.iter().position(|&byte| byte == b'\t')?;
    let mut words = std::str::from_utf8(&line[..tab]).ok()?.split(' ');
    let mode = words.next()?;
    let kind = words.next()?;
    let blob = object_id("ls-tree", words.next()?).ok()?;
    let entry = match kind {
        "commit" => None,
        _ => Some(Entry {
            mode: mode_of(mode)?,
            blob: BlobId::new(blob),
        }),
    };
    Some((line[tab + 1..].to_vec(), entry))
}
