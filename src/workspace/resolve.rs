//! What a merger made of a conflict: every version of every place it could have lost something from.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::differences::{Change, Entry};
use super::losses::{self, Place};
use super::{Conflict, Error, Store, path};
use crate::id::{BlobId, CommitId};

/// What a resolution leaves undone, and what it left behind of either side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// Paths that still hold conflict markers, for display.
    pub markers: Vec<String>,
    /// Paths that still stand under the name the merge gave one of two things, for display.
    pub aside: Vec<String>,
    pub dropped: Vec<Dropped>,
    /// Paths changed beyond those in conflict, for display.
    pub beyond: Vec<String>,
    /// Those of them that are gone, but for what the merge itself had set aside.
    pub removed: Vec<String>,
}

/// What one side had changed, or both had left alone, and the resolution does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The path, for display.
    pub path: String,
    pub side: Side,
    pub loss: Loss,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Lines that the side had added, or that both had left alone, for display.
    Lines(Vec<String>),
    /// The side's version as a whole: a binary file, or a file that it only shortened.
    Version,
    /// The side had removed the file, and it stands there again.
    Deletion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Ours,
    Theirs,
    Both,
}

/// The changes from one commit to the resolution, by path.
type Changes = BTreeMap<Vec<u8>, Change>;

impl Store {
    /// Compares a merger's snapshot with both sides of its conflict.
    pub async fn resolution(
        &self,
        conflict: &Conflict,
        snapshot: &CommitId,
    ) -> Result<Resolution, Error> {
        let places = self.places(conflict, snapshot).await?;
        let standing = |place: &&Place| place.result.is_some();
        let shown = |place: &Place| path::display(&place.path);
        let in_conflict: BTreeSet<&[u8]> = conflict.files.iter().map(|f| &f.path[..]).collect();
        let is_beyond = |place: &&Place| !in_conflict.contains(&place.path[..]);
        let beyond = places.iter().filter(is_beyond);
        Ok(Resolution {
            markers: places
                .iter()
                .filter(|p| losses::marked(p))
                .map(shown)
                .collect(),
            aside: places
                .iter()
                .filter(standing)
                .filter(|place| is_aside(&place.path, conflict))
                .map(shown)
                .collect(),
            dropped: losses::dropped(&places),
            removed: beyond
                .clone()
                .filter(|place| place.result.is_none() && !is_aside(&place.path, conflict))
                .map(shown)
                .collect(),
            beyond: beyond.map(shown).collect(),
        })
    }

    /// The places in conflict, then whatever else the merger wrote.
    async fn places(&self, conflict: &Conflict, to: &CommitId) -> Result<Vec<Place>, Error> {
        let wrote = self.by_path(&conflict.start, to).await?;
        let from_ours = self.by_path(&conflict.ours, to).await?;
        let from_theirs = self.by_path(&conflict.theirs, to).await?;
        let mut gathered = Gathered::default();
        for file in &conflict.files {
            let changes = [&wrote, &from_ours, &from_theirs];
            let known = changes.iter().find_map(|all| all.get(&file.path));
            // In no change: equal in all of them, or in none.
            let there = match known {
                Some(_) => None,
                None => self.blob(to, &file.path).await?,
            };
            gathered.places.push(Place {
                path: file.path.clone(),
                in_conflict: true,
                base: file.base.clone(),
                ours: file.ours.clone(),
                theirs: file.theirs.clone(),
                start: there.clone(),
                result: there,
            });
            let result = known.and_then(|change| change.new.as_ref());
            // What the merger did not write stands as it stood at the start.
            let start = wrote.get(&file.path).map_or(result, |c| c.old.as_ref());
            gathered.want(result, |place| &mut place.result);
            gathered.want(start, |place| &mut place.start);
        }
        let own: BTreeSet<&[u8]> = conflict.files.iter().map(|f| &f.path[..]).collect();
        let beyond = wrote.iter().filter(|(at, _)| !own.contains(&at[..]));
        let beyond: Vec<(&Vec<u8>, &Change)> = beyond.collect();
        let from_base = match beyond.is_empty() {
            true => Changes::new(),
            false => self.since_base(conflict, to).await?,
        };
        for (at, change) in beyond {
            gathered.places.push(Place {
                path: at.clone(),
                ..Place::default()
            });
            let result = change.new.as_ref();
            let of = |all: &'_ Changes| all.get(at).map_or(result, |c| c.old.as_ref()).cloned();
            gathered.want(result, |place| &mut place.result);
            gathered.want(change.old.as_ref(), |place| &mut place.start);
            gathered.want(of(&from_base).as_ref(), |place| &mut place.base);
            gathered.want(of(&from_ours).as_ref(), |place| &mut place.ours);
            gathered.want(of(&from_theirs).as_ref(), |place| &mut place.theirs);
        }
        gathered.read(self).await
    }

    /// The changes from where both sides come from; of several such commits any serves.
    async fn since_base(&self, conflict: &Conflict, to: &CommitId) -> Result<Changes, Error> {
        let sides = [conflict.ours.as_str(), conflict.theirs.as_str()];
        let call = self.call("merge-base").args(sides);
        let base = CommitId::new(self.git.line(call).await?);
        self.by_path(&base, to).await
    }

    async fn by_path(&self, from: &CommitId, to: &CommitId) -> Result<Changes, Error> {
        let changes = self.changes(from, to).await?.into_iter();
        Ok(changes.map(|c| (c.path.clone(), c)).collect())
    }
}

/// Which version of a place a content is.
type Slot = fn(&mut Place) -> &mut Option<Bytes>;

/// Places, and contents to be read for them by one process.
#[derive(Default)]
struct Gathered {
    places: Vec<Place>,
    wanted: Vec<(BlobId, Slot, usize)>,
}

impl Gathered {
    /// Wants an entry's content for the place that was added last.
    fn want(&mut self, entry: Option<&Entry>, slot: Slot) {
        if let Some(entry) = entry {
            let last = self.places.len().saturating_sub(1);
            self.wanted.push((entry.blob.clone(), slot, last));
        }
    }

    async fn read(mut self, store: &Store) -> Result<Vec<Place>, Error> {
        let blobs = self.wanted.iter().map(|(blob, ..)| blob.clone());
        let contents = store.read_all(blobs.collect()).await?;
        for ((_, slot, at), content) in self.wanted.into_iter().zip(contents) {
            *slot(&mut self.places[at]) = Some(content);
        }
        Ok(self.places)
    }
}

/// Where two things want one name, git sets one of them aside as `name~COMMIT`.
fn is_aside(at: &[u8], conflict: &Conflict) -> bool {
    [&conflict.ours, &conflict.theirs].into_iter().any(|side| {
        let mark = format!("~{side}");
        at.windows(mark.len()).any(|part| part == mark.as_bytes())
    })
}
