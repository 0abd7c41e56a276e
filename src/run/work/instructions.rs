//! The AGENTS.md files of a tree, the one at its top first, read at once.

use bytes::BytesMut;
use futures::StreamExt as _;

use crate::sandbox::{Entry, Mode, Tree};
use crate::workspace::display;

/// Files that are read; deeper ones are left out first.
const FILES: usize = 20;
/// Bytes of one that are read; the rest of a longer one is not told.
const LARGEST: u64 = 64 << 10;

/// Path and text of each. One that cannot be read is left out: an agent can read it by itself.
pub(in crate::run) async fn of(tree: &Tree) -> Vec<(String, String)> {
    let mut found: Vec<(&Vec<u8>, &Entry)> = tree
        .entries
        .iter()
        .filter(|(path, entry)| is_one(path) && entry.mode != Mode::Link && entry.size <= LARGEST)
        .collect();
    found.sort_by_key(|(path, _)| (path.iter().filter(|&&b| b == b'/').count(), *path));
    found.truncate(FILES);
    if found.is_empty() {
        return Vec::new();
    }
    let ids = found.iter().map(|(_, entry)| entry.id.clone()).collect();
    let mut chunks = tree.contents.read(ids);
    let (mut bytes, mut texts) = (BytesMut::new(), Vec::new());
    for (path, entry) in found {
        let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
        while bytes.len() < size {
            match chunks.next().await {
                Some(Ok(chunk)) => bytes.extend_from_slice(&chunk),
                _ => return texts,
            }
        }
        let text = bytes.split_to(size);
        texts.push((display(path), String::from_utf8_lossy(&text).into_owned()));
    }
    texts
}

fn is_one(path: &[u8]) -> bool {
    path == b"AGENTS.md" || path.ends_with(b"/AGENTS.md")
}
