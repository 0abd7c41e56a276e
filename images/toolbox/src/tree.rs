//! The workspace and its scan: what changed since the upload goes out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use sha2::{Digest, Sha256};
use wharf_toolbox::memo::TORN;
use wharf_toolbox::record::{Header, Kind, Mode};
use wharf_toolbox::stamp::Stamp;

use crate::beneath;
use crate::lent;
use crate::link::Channel;
use crate::records::Stop;
use crate::standing::Unread;
use crate::torn::Torn;
use crate::walk::{Found, Known, Tree, walk};

/// A larger file is not carried.
const FILE: u64 = 64 << 20;
/// More than this is not carried by one scan.
const SCAN: u64 = 512 << 20;

/// The workspace and what is known of it.
pub struct Workspace {
    root: OwnedFd,
    /// Empty as long as `unread` holds a layer.
    pub(crate) known: Tree,
    /// What was part of the tree and was taken away: no rule leaves it out where it comes again.
    pub(crate) gone: BTreeSet<Vec<u8>>,
    /// What was left out when the tree was uploaded: the image's, not the agent's.
    pub(crate) base: BTreeSet<Vec<u8>>,
    /// Bytes at which the limit on a file's size cuts it: a changed file of exactly so many is not whole.
    cut: Option<u64>,
    /// Where a layer of the image has its ledger.
    pub(crate) ledger: PathBuf,
    pub(crate) unread: Option<Unread>,
    /// The name of the tree that was uploaded last.
    pub(crate) standing: Option<String>,
}

/// What is known of a file now, and its content if that differs.
type Seen = (Known, Option<Vec<u8>>);
/// What is to be known of single paths; nothing of one that is gone.
type News = Vec<(Vec<u8>, Option<Known>)>;

impl Workspace {
    /// The workspace in a folder that exists, and where a layer's ledger would be.
    pub fn open(root: &Path, ledger: PathBuf) -> rustix::io::Result<Workspace> {
        let root = beneath::root(root)?;
        Ok(Workspace {
            root,
            known: Tree::new(),
            gone: BTreeSet::new(),
            base: BTreeSet::new(),
            cut: getrlimit(Resource::Fsize).current,
            ledger,
            unread: None,
            standing: None,
        })
    }

    /// The workspace's folder.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Sends what changed; it is the new state once all of it is sent.
    pub fn scan(&mut self, channel: &Channel, torn: &Torn) -> Result<(), Stop> {
        self.load()?;
        let found = walk(&self.root, &self.known, &self.gone);
        let owed = torn.left(|path| self.stamp(path));
        let news = self.compare(channel, found, &owed)?;
        for (path, known) in news {
            match known {
                Some(known) => drop(self.known.insert(path, known)),
                None => match self.known.remove(&path) {
                    Some(was) if was.carried => drop(self.gone.insert(path)),
                    _ => {}
                },
            }
        }
        Ok(())
    }

    /// Sends what differs from what is known, and gives what is to be known instead. Both lists are
    /// in order of their paths, so that one pass over them is enough. What is `owed` is not carried.
    fn compare(
        &self,
        channel: &Channel,
        found: Found,
        owed: &BTreeSet<Vec<u8>>,
    ) -> Result<News, Stop> {
        let mut news = News::new();
        let mut gone = Vec::new();
        let (mut left_out, mut sent) = (found.left_out, 0);
        left_out.extend(owed.iter().map(|path| (path.clone(), TORN.to_owned())));
        let mut known = self.known.iter().peekable();
        for (path, stamp, mode) in found.entries {
            while let Some((before, was)) = known.next_if(|(before, _)| **before < path) {
                gone.push((before, was));
            }
            let was = known
                .next_if(|(same, _)| **same == path)
                .map(|(_, was)| was);
            if was.is_some_and(|was| was.stamp == stamp && !was.young) {
                continue;
            }
            if owed.contains(&path) {
                news.extend(kept(path, was));
                continue;
            }
            match self.changed(&path, mode, was, SCAN - sent) {
                Ok(Some((seen, content))) => {
                    if let Some(content) = content {
                        sent += content.len() as u64;
                        put(channel, Kind::Put(mode), &path, &content)?;
                    }
                    news.push((path, Some(seen)));
                }
                // Gone between the look and the read.
                Ok(None) => gone.extend(self.known.get_key_value(&path)),
                Err(why) => {
                    news.extend(kept(path.clone(), was));
                    left_out.push((path, why));
                }
            }
        }
        gone.extend(known);
        self.deletions(channel, gone, &found.closed, &mut news)?;
        left_out.retain(|(path, _)| !self.base.contains(path));
        for (path, why) in &left_out {
            put(channel, Kind::LeftOut, path, why.as_bytes())?;
        }
        Ok(news)
    }

    /// Reads a candidate: what is known of it now, with its content if that differs; nothing when
    /// it is gone, `Err` with the reason when it cannot be carried.
    fn changed(
        &self,
        path: &[u8],
        mode: Mode,
        known: Option<&Known>,
        room: u64,
    ) -> Result<Option<Seen>, String> {
        let read = match mode {
            Mode::Link => self.read_link(path),
            Mode::File | Mode::Executable => self.read_file(path, room)?,
        };
        let (stamp, content) = match read {
            Ok(read) => read,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(format!("cannot be read ({error})")),
        };
        if stamp.kind() != Some(mode) {
            return Err("changed while it was read".into());
        }
        let hash: [u8; 32] = Sha256::digest(&content).into();
        // Without a known content (the layer's, the image's) only the stamp can say that it is the same.
        let same = known.is_some_and(|known| {
            known.stamp.kind() == Some(mode)
                && known
                    .hash
                    .map_or(known.stamp == stamp, |before| before == hash)
        });
        let carried = !same || known.is_some_and(|known| known.carried);
        let seen = Known {
            stamp,
            hash: Some(hash),
            carried,
            young: stamp.young(),
        };
        Ok(Some((seen, (!same).then_some(content))))
    }

    fn read_link(&self, path: &[u8]) -> rustix::io::Result<(Stamp, Vec<u8>)> {
        let stamp = lent::stamp(&self.root, path)?;
        Ok((stamp, lent::link(&self.root, path)?))
    }

    fn read_file(
        &self,
        path: &[u8],
        room: u64,
    ) -> Result<rustix::io::Result<(Stamp, Vec<u8>)>, String> {
        let file = match lent::read(&self.root, path) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        let stamp = match fstat(file.as_fd()) {
            Ok(stat) => Stamp::of(&stat),
            Err(error) => return Ok(Err(error)),
        };
        if stamp.size > FILE {
            let (size, most) = (stamp.size.div_ceil(1 << 20), FILE >> 20);
            return Err(format!(
                "{size} MiB, more than the {most} MiB a file may have"
            ));
        }
        if Some(stamp.size) == self.cut {
            return Err(TORN.to_owned());
        }
        if stamp.size > room {
            return Err(format!("more than {} MiB changed in all", SCAN >> 20));
        }
        let content = content(file, stamp.size)?;
        Ok(Ok((stamp, content)))
    }

    /// Says what of the tree is gone; beneath a folder that could not be looked into nothing is.
    fn deletions(
        &self,
        channel: &Channel,
        gone: Vec<(&Vec<u8>, &Known)>,
        closed: &[Vec<u8>],
        news: &mut News,
    ) -> Result<(), Stop> {
        for (path, known) in gone {
            if known.carried && closed.iter().any(|folder| beneath_folder(path, folder)) {
                continue;
            }
            if known.carried {
                put(channel, Kind::Delete, path, b"")?;
            }
            news.push((path.clone(), None));
        }
        Ok(())
    }

    /// Paths of the workspace, sorted, without what the rules leave out.
    pub fn paths(&mut self) -> Result<Vec<Vec<u8>>, Stop> {
        self.load()?;
        let found = walk(&self.root, &self.known, &self.gone);
        Ok(found.entries.into_iter().map(|(path, ..)| path).collect())
    }

    /// How a path lies there now.
    pub fn stamp(&self, path: &[u8]) -> Option<Stamp> {
        lent::stamp(&self.root, path).ok()
    }

    /// Enters what a kill over a full disk has cut.
    pub fn after_kill(&mut self, torn: &Torn) {
        if torn.is_pending() {
            // A ledger that cannot be read fails the scan, which is what counts.
            let _ = self.load();
            let entries = walk(&self.root, &self.known, &self.gone).entries;
            torn.after_kill(entries.iter().map(|(path, stamp, _)| (&path[..], *stamp)));
        }
    }

    /// Opens a file of the workspace.
    pub fn read(&self, path: &[u8]) -> Option<File> {
        beneath::read(&self.root, path).ok()
    }
}

/// What cannot be carried now stays as it was known, and is looked at again.
fn kept(path: Vec<u8>, was: Option<&Known>) -> Option<(Vec<u8>, Option<Known>)> {
    let known = Known {
        young: true,
        ..was?.clone()
    };
    Some((path, Some(known)))
}

fn beneath_folder(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty()
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// A file may grow while it is read; what is above the size seen waits for the next scan.
fn content(file: File, size: u64) -> Result<Vec<u8>, String> {
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(FILE)
        .read_to_end(&mut content)
        .map_err(|e| format!("cannot be read ({e})"))?;
    Ok(content)
}

fn put(channel: &Channel, kind: Kind, path: &[u8], content: &[u8]) -> Result<(), Stop> {
    let header = Header {
        kind,
        path: path.to_vec(),
        size: content.len() as u64,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes)?;
    bytes.extend_from_slice(content);
    Ok(channel.write(&bytes)?)
}
