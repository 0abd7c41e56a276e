//! A workspace of many files, made up as it is read: its bytes follow from the names of its contents.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use wharf::sandbox::{Contents, Entry, Mode, Tree};

/// Files of one folder.
const FOLDER: usize = 50;

/// Gives `size` bytes that begin with the content's own name.
struct MadeUp {
    size: usize,
}

impl Contents for MadeUp {
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        let size = self.size;
        stream::iter(ids)
            .map(move |id| Ok(Bytes::from(content(&id, size))))
            .boxed()
    }
}

fn content(id: &str, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(id.as_bytes());
    // What compresses to nothing would flatter whoever compresses.
    let mut state = id.bytes().fold(1u64, |state, byte| {
        state.wrapping_mul(6_364_136_223_846_793_005) + u64::from(byte)
    });
    while bytes.len() < size {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// `files` files of `size` bytes each; `changed` of them as an agent before this one left them.
pub fn tree(files: usize, size: usize, changed: usize) -> Arc<Tree> {
    let step = files.checked_div(changed).unwrap_or(usize::MAX).max(1);
    let mut entries = BTreeMap::new();
    for n in 0..files {
        let folder = n / FOLDER;
        let path = format!("part{:03}/unit{folder:05}/file{n:06}.txt", folder / 40);
        let edition = usize::from(changed > 0 && n % step == 0);
        let entry = Entry {
            mode: Mode::File,
            size: size as u64,
            id: format!("{n:06}-{edition}-{size}"),
        };
        entries.insert(path.into_bytes(), entry);
    }
    Arc::new(Tree {
        entries,
        contents: Arc::new(MadeUp { size }),
    })
}
