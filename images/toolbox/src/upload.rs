//! The upload: a tree comes in, whole or as what differs from one that lies there, and is proved.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode as Permissions, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use wharf_toolbox::record::{Header, Kind, Manifest, Mode, plain};
use wharf_toolbox::stamp::Stamp;

use crate::beneath::{self, Missing};
use crate::link::Channel;
use crate::records::{Body, Stop};
use crate::tree::Workspace;
use crate::walk::{Known, Tree};

/// A tree that lies in the workspace now.
pub struct Uploaded {
    /// The hash that proves it, and names it for a later upload above it.
    pub manifest: String,
    /// Something was put or deleted.
    pub changed: bool,
}

/// What the records of an upload came to.
#[derive(Default)]
struct Taken {
    manifest: Manifest,
    /// What is known of each path now, in the order of the records; nothing of a deleted one.
    paths: Vec<(Vec<u8>, Option<Known>)>,
    changed: bool,
}

impl Workspace {
    /// Takes a tree: the whole of it, or what differs from the one named `above`.
    pub fn upload(&mut self, channel: &Channel, above: Option<&str>) -> Result<Uploaded, Stop> {
        let taken = match above {
            None => self.upload_whole(channel)?,
            Some(name) => self.upload_above(channel, name)?,
        };
        let manifest = taken.manifest.finish();
        self.stands_at(manifest.clone());
        Ok(Uploaded {
            manifest,
            changed: taken.changed,
        })
    }

    fn upload_whole(&mut self, channel: &Channel) -> Result<Taken, Stop> {
        let mut taken = self.take(channel, Taken::default())?;
        let paths = std::mem::take(&mut taken.paths).into_iter();
        let tree: Tree = paths
            .filter_map(|(path, known)| Some((path, known?)))
            .collect();
        self.forget(tree);
        self.settle();
        Ok(taken)
    }

    fn upload_above(&mut self, channel: &Channel, name: &str) -> Result<Taken, Stop> {
        self.stand_on(name)?;
        let begun = Taken {
            manifest: Manifest::above(name),
            ..Taken::default()
        };
        let mut taken = self.take(channel, begun)?;
        let paths = std::mem::take(&mut taken.paths);
        // Other rules leave out other files of the image's own.
        let rules = paths
            .iter()
            .any(|(path, _)| path.rsplit(|&byte| byte == b'/').next() == Some(b".gitignore"));
        self.learn(paths);
        if rules {
            self.load()?;
            self.settle();
        }
        Ok(taken)
    }

    fn take(&self, channel: &Channel, mut taken: Taken) -> Result<Taken, Stop> {
        let mut body = Body::new(channel);
        while let Some(header) = body.header()? {
            if !plain(&header.path) {
                return Err(Stop::Failed(format!(
                    "path not allowed: {:?}",
                    lossy(&header.path)
                )));
            }
            match header.kind {
                Kind::Delete => self.take_away(header, &mut taken)?,
                Kind::Put(mode) => {
                    let hash = self.put(&header, mode, &mut body)?;
                    self.enter(header, mode, Some(hash), &mut taken);
                }
                Kind::Keep(mode) => self.enter(header, mode, None, &mut taken),
                Kind::LeftOut => return Err(Stop::Failed("record out of place".into())),
            }
        }
        Ok(taken)
    }

    fn put(&self, header: &Header, mode: Mode, body: &mut Body<'_>) -> Result<[u8; 32], Stop> {
        let (at, name) = beneath::parent(self.root(), &header.path, Missing::Make)
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
    fn enter(&self, header: Header, mode: Mode, hash: Option<[u8; 32]>, taken: &mut Taken) {
        let Header { path, .. } = header;
        taken.changed |= hash.is_some();
        match self.look(&path) {
            Ok(stamp) if stamp.kind() == Some(mode) => {
                taken.manifest.add(&path, mode, stamp.size, hash.as_ref());
                let known = Known {
                    stamp,
                    hash,
                    carried: true,
                    young: stamp.young(),
                };
                taken.paths.push((path, Some(known)));
            }
            _ => taken.manifest.miss(&path),
        }
    }

    /// Removes a path; the manifest says whether it is gone.
    fn take_away(&self, header: Header, taken: &mut Taken) -> Result<(), Stop> {
        self.delete(&header.path)
            .map_err(|e| failed("delete", &header, e))?;
        taken.changed = true;
        match self.look(&header.path) {
            Err(Errno::NOENT | Errno::NOTDIR) => taken.manifest.gone(&header.path),
            _ => taken.manifest.miss(&header.path),
        }
        taken.paths.push((header.path, None));
        Ok(())
    }

    fn look(&self, path: &[u8]) -> rustix::io::Result<Stamp> {
        let (at, name) = beneath::parent(self.root(), path, Missing::Refuse)?;
        Ok(Stamp::of(&statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Removes a path and the folders that are empty without it.
    fn delete(&self, path: &[u8]) -> rustix::io::Result<()> {
        match beneath::parent(self.root(), path, Missing::Refuse) {
            Ok((at, name)) => beneath::clear(at, name)?,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(other) => return Err(other),
        }
        let mut path = path;
        while let Some(slash) = path.iter().rposition(|&byte| byte == b'/') {
            path = &path[..slash];
            let (at, name) = beneath::parent(self.root(), path, Missing::Refuse)?;
            if rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR).is_err() {
                break;
            }
        }
        Ok(())
    }
}

fn failed(verb: &str, header: &Header, error: Errno) -> Stop {
    Stop::Failed(format!("{verb} {:?}: {error}", lossy(&header.path)))
}

fn lossy(path: &[u8]) -> PathBuf {
    Path::new(std::ffi::OsStr::from_bytes(path)).to_owned()
}
