//! What a merger left undone: markers that still stand, and lines of either side that vanished.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::merge::is_binary;
use super::{Conflict, ConflictFile, Error, Store, path};
use crate::id::CommitId;

/// What one side had added to a file and the resolution does not hold anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The path, for display.
    pub path: String,
    pub side: Side,
    /// The lines, for display; empty when the side's version as a whole is gone (a binary file, a link).
    pub lines: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Theirs,
}

impl Store {
    /// Paths of the merger's snapshot that still hold conflict markers which the conflict brought in;
    /// empty when every marker is gone.
    pub async fn resolved(
        &self,
        conflict: &Conflict,
        snapshot: &CommitId,
    ) -> Result<Vec<String>, Error> {
        let start = self.touched(conflict, &conflict.start).await?;
        let markers = introduced(&start, &conflict.files);
        let result = self.touched(conflict, snapshot).await?;
        Ok(result
            .iter()
            .filter(|(_, content)| lines(content).any(|line| markers.contains(line)))
            .map(|(path, _)| path::display(path))
            .collect())
    }

    /// What either side had added and the snapshot lost, for each file in conflict.
    pub async fn dropped(
        &self,
        conflict: &Conflict,
        snapshot: &CommitId,
    ) -> Result<Vec<Dropped>, Error> {
        let mut result = self.touched(conflict, snapshot).await?;
        for file in &conflict.files {
            // A file taken from one side whole is not touched, yet it is the result.
            if let Some(content) = self.blob(snapshot, &file.path).await? {
                result.insert(file.path.clone(), content);
            }
        }
        let held: BTreeSet<&[u8]> = result.values().flat_map(|content| lines(content)).collect();
        let whole: BTreeSet<&[u8]> = result.values().map(|content| &content[..]).collect();
        let sides = conflict.files.iter().flat_map(|file| {
            [(Side::Ours, &file.ours), (Side::Theirs, &file.theirs)]
                .map(|(side, v)| (file, side, v))
        });
        Ok(sides
            .filter_map(|(file, side, version)| {
                let version = version.as_deref()?;
                lost(file.base.as_deref(), version, &held, &whole).map(|lines| Dropped {
                    path: path::display(&file.path),
                    side,
                    lines,
                })
            })
            .collect())
    }

    /// The files of a commit that equal neither side, with content.
    async fn touched(
        &self,
        conflict: &Conflict,
        commit: &CommitId,
    ) -> Result<BTreeMap<Vec<u8>, Bytes>, Error> {
        let ours = self.changes(&conflict.ours, commit).await?;
        let theirs = self.changes(&conflict.theirs, commit).await?;
        let theirs: BTreeSet<&[u8]> = theirs.iter().map(|change| change.path.as_slice()).collect();
        let mut contents = BTreeMap::new();
        for change in &ours {
            if let (Some(new), true) = (&change.new, theirs.contains(change.path.as_slice())) {
                contents.insert(change.path.clone(), self.content(&new.blob).await?);
            }
        }
        Ok(contents)
    }
}

/// Marker lines of the start that no version of any file in conflict had itself.
fn introduced<'s>(
    start: &'s BTreeMap<Vec<u8>, Bytes>,
    files: &[ConflictFile],
) -> BTreeSet<&'s [u8]> {
    let own: BTreeSet<&[u8]> = files
        .iter()
        .flat_map(|file| [&file.base, &file.ours, &file.theirs])
        .flatten()
        .flat_map(|content| lines(content))
        .collect();
    start
        .values()
        .flat_map(|content| lines(content))
        .filter(|line| is_marker(line) && !own.contains(line))
        .collect()
}

fn is_marker(line: &[u8]) -> bool {
    line == b"=======" || line.starts_with(b"<<<<<<< ") || line.starts_with(b">>>>>>> ")
}

/// Lines without their ends, so that a file's line ends do not hide a marker.
fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// What a version added to its base and the result does not hold; None when all of it is there.
fn lost(
    base: Option<&[u8]>,
    version: &[u8],
    held: &BTreeSet<&[u8]>,
    whole: &BTreeSet<&[u8]>,
) -> Option<Vec<String>> {
    if base == Some(version) || whole.contains(version) {
        return None;
    }
    if is_binary(version) {
        return Some(Vec::new());
    }
    let before: BTreeSet<&[u8]> = base.into_iter().flat_map(lines).collect();
    let gone: Vec<String> = lines(version)
        .filter(|line| !line.trim_ascii().is_empty())
        .filter(|line| !before.contains(line) && !held.contains(line))
        .map(path::display)
        .collect();
    (!gone.is_empty()).then_some(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_vanish_are_named() {
        let result: &[u8] = b"a\nours\n";
        let (held, whole) = (lines(result).collect(), BTreeSet::from([result]));
        let lost = |version: &[u8]| lost(Some(b"a\nb\n"), version, &held, &whole);
        assert_eq!(lost(b"a\nours\nb\n"), None);
        assert_eq!(lost(b"a\ntheirs\r\n \n"), Some(vec!["theirs".to_owned()]));
        assert_eq!(lost(b"a\0b"), Some(vec![]));
        assert_eq!(lost(b"a\nb\n"), None);
    }
}
