//! Trees on the stream: what an upload sends, and what a scan brings back.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use sha2::{Digest, Sha256};
use wharf_toolbox::message::Reply;
use wharf_toolbox::record::{self, Header, Kind, Manifest, plain};
use wharf_toolbox::wire::{Fault, MAX_DATA};

use super::link_call::Call;
use super::{Changes, Entry, Error, Mode, Put, Tree};

/// Time for a tree on top of a call's own: a second a MiB, a second a thousand files.
pub(super) fn allowance(tree: &Tree) -> Duration {
    let bytes: u64 = tree.entries.values().map(|entry| entry.size).sum();
    Duration::from_secs((bytes >> 20) + tree.entries.len() as u64 / 1000)
}

/// What lies in the workspace before an upload.
#[derive(Clone, Copy)]
pub(super) enum Below<'a> {
    Nothing,
    /// This tree, and the toolbox shall look at every file that stays of it.
    Looked(&'a Tree),
    /// This tree, which the toolbox knows under this name: it need not look at what stays.
    Named(&'a str, &'a Tree),
}

impl<'a> Below<'a> {
    fn tree(self) -> Option<&'a Tree> {
        match self {
            Below::Nothing => None,
            Below::Looked(tree) | Below::Named(_, tree) => Some(tree),
        }
    }

    /// The name under which the toolbox is to find the tree.
    pub(super) fn name(self) -> Option<String> {
        match self {
            Below::Named(name, _) => Some(name.to_owned()),
            Below::Nothing | Below::Looked(_) => None,
        }
    }
}

/// A tree that lies in the workspace now.
pub(super) struct Sent {
    /// The hash that both sides came to; names the tree for an upload above it.
    pub(super) manifest: String,
    /// SHA-256 of every content sent, in order of the paths.
    pub(super) hashes: Vec<[u8; 32]>,
}

/// Sends a tree, with content only where what lies there has none, and compares manifests.
pub(super) async fn upload(call: Call, below: Below<'_>, tree: &Tree) -> Result<Sent, Error> {
    let steps = Step::all(below, tree)?;
    let wanted = steps.iter().filter_map(Step::wanted).collect();
    let mut sender = Sender {
        call,
        out: BytesMut::new(),
        source: tree.contents.read(wanted),
        left: Bytes::new(),
    };
    let mut manifest = below
        .name()
        .map_or_else(Manifest::default, |name| Manifest::above(&name));
    let mut hashes = Vec::new();
    for step in steps {
        match step {
            Step::Delete(path) => {
                sender.header(Kind::Delete, path, 0).await?;
                manifest.gone(path);
            }
            Step::Keep(path, entry) => {
                let mode = wire_mode(entry.mode);
                sender.header(Kind::Keep(mode), path, entry.size).await?;
                manifest.add(path, mode, entry.size, None);
            }
            Step::Put(path, entry) => {
                let mode = wire_mode(entry.mode);
                sender.header(Kind::Put(mode), path, entry.size).await?;
                let hash = sender.content(entry).await?;
                manifest.add(path, mode, entry.size, Some(&hash));
                hashes.push(hash);
            }
        }
    }
    let (theirs, manifest) = (sender.end().await?, manifest.finish());
    if theirs == manifest {
        return Ok(Sent { manifest, hashes });
    }
    Err(Error::Broken {
        reason: "what lies in the workspace is not what was sent".into(),
    })
}

/// One record of an upload.
enum Step<'a> {
    Delete(&'a [u8]),
    Keep(&'a [u8], &'a Entry),
    Put(&'a [u8], &'a Entry),
}

impl<'a> Step<'a> {
    /// Deletions first, then what is put or kept, in order of the paths.
    fn all(below: Below<'a>, tree: &'a Tree) -> Result<Vec<Step<'a>>, Error> {
        let (mut deletes, mut rest) = (Vec::new(), Vec::new());
        let before = below.tree().map(|tree| tree.entries.iter());
        let mut before = before.into_iter().flatten().peekable();
        for (path, entry) in &tree.entries {
            while let Some((gone, _)) = before.next_if(|(old, _)| *old < path) {
                deletes.push(Step::Delete(gone));
            }
            let same = before.next_if(|(old, _)| *old == path);
            let same = same.is_some_and(|(_, old)| old == entry);
            if same && matches!(below, Below::Named(..)) {
                continue;
            }
            if !plain(path) {
                let shown = String::from_utf8_lossy(path);
                return Err(tree_error(format!("path {shown:?} is not allowed")));
            }
            rest.push(if same {
                Step::Keep(path, entry)
            } else {
                Step::Put(path, entry)
            });
        }
        deletes.extend(before.map(|(gone, _)| Step::Delete(gone)));
        deletes.append(&mut rest);
        Ok(deletes)
    }

    /// The content to be sent with it.
    fn wanted(&self) -> Option<String> {
        match self {
            Step::Put(_, entry) => Some(entry.id.clone()),
            Step::Delete(_) | Step::Keep(..) => None,
        }
    }
}

fn tree_error(reason: String) -> Error {
    Error::Engine {
        operation: "send the tree",
        reason,
    }
}

/// A mode as the stream has it.
pub(super) fn wire_mode(mode: Mode) -> record::Mode {
    match mode {
        Mode::File => record::Mode::File,
        Mode::Executable => record::Mode::Executable,
        Mode::Link => record::Mode::Link,
    }
}

struct Sender {
    call: Call,
    out: BytesMut,
    source: BoxStream<'static, std::io::Result<Bytes>>,
    left: Bytes,
}

impl Sender {
    async fn header(&mut self, kind: Kind, path: &[u8], size: u64) -> Result<(), Error> {
        let mut bytes = Vec::new();
        let header = Header {
            kind,
            path: path.to_vec(),
            size,
        };
        header
            .encode(&mut bytes)
            .map_err(|fault: Fault| tree_error(fault.to_string()))?;
        self.put(&bytes).await
    }

    /// Passes the next `size` bytes of the source on.
    async fn content(&mut self, entry: &Entry) -> Result<[u8; 32], Error> {
        let mut hash = Sha256::new();
        let mut wanted = entry.size;
        while wanted > 0 {
            if self.left.is_empty() {
                let next = self.source.next().await;
                self.left = next
                    .ok_or_else(|| tree_error(format!("content {} is cut", entry.id)))?
                    .map_err(|error| tree_error(error.to_string()))?;
                continue;
            }
            let here = self.left.len();
            let part = usize::try_from(wanted).map_or(here, |wanted| here.min(wanted));
            let bytes = self.left.split_to(part);
            hash.update(&bytes);
            self.put(&bytes).await?;
            wanted -= part as u64;
        }
        Ok(hash.finalize().into())
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= MAX_DATA {
            self.call.send(self.out.split().freeze()).await?;
        }
        Ok(())
    }

    async fn end(mut self) -> Result<String, Error> {
        self.call.send(self.out.split().freeze()).await?;
        self.call.finish();
        match self.call.reply(0).await? {
            (Reply::Uploaded { manifest }, _) => Ok(manifest),
            (Reply::Failed { reason }, _) => Err(Error::Broken { reason }),
            _ => Err(Error::Broken {
                reason: "the answer to upload makes no sense".into(),
            }),
        }
    }
}

/// Reads the records of a scan; a path that is not plain is left out, whatever the toolbox says.
pub(super) fn changes(mut body: Bytes) -> Result<Changes, String> {
    let mut changes = Changes::default();
    while !body.is_empty() {
        let Some((header, used)) = Header::decode(&body).map_err(|fault| fault.to_string())? else {
            return Err("a record of the scan is cut".into());
        };
        let _ = body.split_to(used);
        let size = usize::try_from(header.follows()).unwrap_or(usize::MAX);
        if size > body.len() {
            return Err("content of the scan is cut".into());
        }
        let content = body.split_to(size);
        let path = header.path;
        match header.kind {
            Kind::LeftOut => {
                changes
                    .left_out
                    .push((path, String::from_utf8_lossy(&content).into_owned()));
            }
            Kind::Keep(_) => return Err("record out of place".into()),
            _ if !plain(&path) => changes.left_out.push((path, "path not allowed".into())),
            Kind::Delete => changes.deletes.push(path),
            Kind::Put(mode) => changes.puts.push(Put {
                path,
                mode: mode_of(mode),
                content,
            }),
        }
    }
    Ok(changes)
}

fn mode_of(mode: record::Mode) -> Mode {
    match mode {
        record::Mode::File => Mode::File,
        record::Mode::Executable => Mode::Executable,
        record::Mode::Link => Mode::Link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, path: &[u8], content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = Header {
            kind,
            path: path.to_vec(),
            size: content.len() as u64,
        };
        header.encode(&mut bytes).unwrap();
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn a_scan_with_hostile_paths_keeps_only_the_plain_ones() {
        let mut bytes = record(Kind::Put(record::Mode::File), b"../evil", b"x");
        bytes.extend(record(
            Kind::Put(record::Mode::Link),
            b"a/.Git/config",
            b"x",
        ));
        bytes.extend(record(Kind::Delete, b"/etc/passwd", b""));
        bytes.extend(record(Kind::Put(record::Mode::Executable), b"ok\n", b"yes"));
        let changes = changes(bytes.into()).unwrap();
        assert_eq!(changes.puts.len(), 1);
        assert_eq!(
            (changes.puts[0].path.as_slice(), changes.puts[0].mode),
            (b"ok\n".as_slice(), Mode::Executable)
        );
        assert!(changes.deletes.is_empty());
        assert_eq!(changes.left_out.len(), 3);
    }

    #[test]
    fn a_scan_cut_anywhere_is_an_error_or_a_shorter_scan_at_a_record() {
        let first = record(Kind::Delete, b"gone", b"");
        let whole = [
            first.clone(),
            record(Kind::Put(record::Mode::File), b"a", b"abc"),
        ]
        .concat();
        for cut in 0..whole.len() {
            let read = changes(Bytes::copy_from_slice(&whole[..cut]));
            assert_eq!(read.is_ok(), cut == 0 || cut == first.len(), "cut at {cut}");
        }
    }
}
