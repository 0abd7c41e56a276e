//! The upload and the scan: a tree comes in whole and is proved, changes go out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode as Permissions, fstat, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use wharf_toolbox::record::{Header, Kind, Manifest, Mode, plain};

use crate::beneath::{self, Missing};
use crate::link::Channel;
use crate::records::{Body, Stop};
use crate::walk::{Found, Known, Stamp, Tree, walk};

/// A larger file is not carried.
const FILE: u64 = 64 << 20;
/// More than this is not carried by one scan.
const SCAN: u64 = 512 << 20;

/// The workspace and what is known of it.
pub struct Workspace {
    root: OwnedFd,
    known: Tree,
    /// What was left out when the tree was uploaded: the image's, not the agent's.
    base: BTreeSet<Vec<u8>>,
}

/// What is known of a file now, and its content if that differs.
type Seen = (Known, Option<Vec<u8>>);

impl Workspace {
    /// The workspace in a folder that exists.
    pub fn open(root: &Path) -> rustix::io::Result<Workspace> {
        let root = beneath::root(root)?;
        Ok(Workspace {
            root,
            known: Tree::new(),
            base: BTreeSet::new(),
        })
    }

    /// Takes a tree and answers the hash of what then lies on disk.
    pub fn upload(&mut self, channel: &Channel) -> Result<String, Stop> {
        let mut body = Body::new(channel);
        let mut manifest = Manifest::default();
        let mut tree = Tree::new();
        while let Some(header) = body.header()? {
            if !plain(&header.path) {
                return Err(Stop::Failed(format!(
                    "path not allowed: {:?}",
                    lossy(&header.path)
                )));
            }
            match header.kind {
                Kind::Delete => self
                    .delete(&header.path)
                    .map_err(|e| failed("delete", &header, e))?,
                Kind::Put(mode) => {
                    let hash = self.put(&header, mode, &mut body)?;
                    self.enter(&header, mode, Some(hash), (&mut manifest, &mut tree));
                }
                Kind::Keep(mode) => self.enter(&header, mode, None, (&mut manifest, &mut tree)),
                Kind::LeftOut => return Err(Stop::Failed("record out of place".into())),
            }
        }
        self.known = tree;
        let found = walk(&self.root, &self.known);
        self.base = found
            .left_out
            .iter()
            .map(|(path, _)| path.clone())
            .collect();
        for (path, stamp, _) in found.entries {
            self.known.entry(path).or_insert_with(|| Known {
                stamp,
                hash: None,
                carried: false,
                young: stamp.young(),
            });
        }
        Ok(manifest.finish())
    }

    fn put(&self, header: &Header, mode: Mode, body: &mut Body<'_>) -> Result<[u8; 32], Stop> {
        let (at, name) = beneath::parent(&self.root, &header.path, Missing::Make)
            .map_err(|e| failed("make the folder of", header, e))?;
        let mut hash = Sha256::new();
        if mode == Mode::Link {
            let mut target = Vec::new();
            body.content(header.size, &mut |part| {
                target.extend_from_slice(part);
                Ok(())
            })?;
            hash.update(&target);
            beneath::clear(&at, name)
                .and_then(|()| rustix::fs::symlinkat(target.as_slice(), &at, name))
                .map_err(|e| failed("link", header, e))?;
        } else {
            let bits = if mode == Mode::Executable {
                0o755
            } else {
                0o644
            };
            let mut file = beneath::create(&at, name, Permissions::from_raw_mode(bits))
                .map_err(|e| failed("create", header, e))?;
            body.content(header.size, &mut |part| {
                hash.update(part);
                file.write_all(part)
                    .map_err(|e| Stop::Failed(format!("write {:?}: {e}", lossy(&header.path))))
            })?;
        }
        Ok(hash.finalize().into())
    }

    /// Looks at what lies on disk and enters it in the manifest and in what is known.
    fn enter(
        &self,
        header: &Header,
        mode: Mode,
        hash: Option<[u8; 32]>,
        (manifest, tree): (&mut Manifest, &mut Tree),
    ) {
        let stat = beneath::parent(&self.root, &header.path, Missing::Refuse)
            .and_then(|(at, name)| statat(at, name, AtFlags::SYMLINK_NOFOLLOW));
        match stat.map(|stat| Stamp::of(&stat)) {
            Ok(stamp) if stamp.kind() == Some(mode) => {
                manifest.add(&header.path, mode, stamp.size, hash.as_ref());
                let known = Known {
                    stamp,
                    hash,
                    carried: true,
                    young: stamp.young(),
                };
                tree.insert(header.path.clone(), known);
            }
            _ => manifest.miss(&header.path),
        }
    }

    /// Removes a path and the folders that are empty without it.
    fn delete(&self, path: &[u8]) -> rustix::io::Result<()> {
        match beneath::parent(&self.root, path, Missing::Refuse) {
            Ok((at, name)) => beneath::clear(at, name)?,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(other) => return Err(other),
        }
        let mut path = path;
        while let Some(slash) = path.iter().rposition(|&byte| byte == b'/') {
            path = &path[..slash];
            let (at, name) = beneath::parent(&self.root, path, Missing::Refuse)?;
            if rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Sends what changed; it is the new state once all of it is sent.
    pub fn scan(&mut self, channel: &Channel) -> Result<(), Stop> {
        let Found {
            entries,
            mut left_out,
            closed,
        } = walk(&self.root, &self.known);
        let mut next = Tree::new();
        let mut sent = 0;
        for (path, stamp, mode) in entries {
            let known = self.known.get(&path);
            if let Some(known) = known.filter(|known| known.stamp == stamp && !known.young) {
                next.insert(path, known.clone());
                continue;
            }
            match self.changed(&path, mode, known, SCAN - sent) {
                Ok(Some((seen, content))) => {
                    if let Some(content) = content {
                        sent += content.len() as u64;
                        put(channel, Kind::Put(mode), &path, &content)?;
                    }
                    next.insert(path, seen);
                }
                // Gone between the look and the read.
                Ok(None) => {}
                Err(why) => {
                    if let Some(known) = known {
                        next.insert(
                            path.clone(),
                            Known {
                                young: true,
                                ..known.clone()
                            },
                        );
                    }
                    left_out.push((path, why));
                }
            }
        }
        self.deletions(channel, &mut next, &closed)?;
        left_out.retain(|(path, _)| !self.base.contains(path));
        for (path, why) in &left_out {
            put(channel, Kind::LeftOut, path, why.as_bytes())?;
        }
        self.known = next;
        Ok(())
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
            Err(error) => return Err(format!("cannot be read: {error}")),
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
        let (at, name) = beneath::parent(&self.root, path, Missing::Refuse)?;
        let stamp = Stamp::of(&statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?);
        Ok((
            stamp,
            rustix::fs::readlinkat(&at, name, Vec::new())?.into_bytes(),
        ))
    }

    fn read_file(
        &self,
        path: &[u8],
        room: u64,
    ) -> Result<rustix::io::Result<(Stamp, Vec<u8>)>, String> {
        let file = match beneath::read(&self.root, path) {
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
        if stamp.size > room {
            return Err(format!("more than {} MiB changed in all", SCAN >> 20));
        }
        let content = content(file, stamp.size)?;
        Ok(Ok((stamp, content)))
    }

    fn deletions(
        &self,
        channel: &Channel,
        next: &mut Tree,
        closed: &[Vec<u8>],
    ) -> Result<(), Stop> {
        for (path, known) in self.known.iter().filter(|(_, known)| known.carried) {
            if next.contains_key(path) {
                continue;
            }
            if closed.iter().any(|folder| beneath_folder(path, folder)) {
                next.insert(path.clone(), known.clone());
            } else {
                put(channel, Kind::Delete, path, b"")?;
            }
        }
        Ok(())
    }

    /// Paths of the workspace, sorted, without what the rules leave out.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        walk(&self.root, &self.known)
            .entries
            .into_iter()
            .map(|(path, ..)| path)
            .collect()
    }

    /// Opens a file of the workspace.
    pub fn read(&self, path: &[u8]) -> Option<File> {
        beneath::read(&self.root, path).ok()
    }

    /// How many files the tree has.
    pub fn size(&self) -> usize {
        self.known.values().filter(|known| known.carried).count()
    }
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
        .map_err(|e| format!("cannot be read: {e}"))?;
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

fn failed(verb: &str, header: &Header, error: Errno) -> Stop {
    Stop::Failed(format!("{verb} {:?}: {error}", lossy(&header.path)))
}

fn lossy(path: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(path))
}
