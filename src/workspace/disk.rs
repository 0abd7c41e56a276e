//! A directory of the operator's, entered component by component so that no link is ever followed.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode as Permissions, OFlags, Stat};
use rustix::io::Errno;

use super::{Error, Mode, path};

/// An open directory; every path below is relative to it.
pub(super) struct Root(OwnedFd);

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Absent,
    /// Something above the path is no directory: a link or a file, at this path.
    Blocked(Vec<u8>),
    File,
    Link,
    Directory,
    /// FIFO, socket or device, by its name.
    Other(&'static str),
}

/// Content of a file or link, as git would keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub mode: Mode,
    pub bytes: Vec<u8>,
    /// Permission bits; 0 for a link.
    pub permissions: u32,
}

/// What `take` came to.
pub(super) enum Taken {
    Content(Content),
    TooLarge(u64),
    Is(Found),
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Permissions::empty())
            .map(Self)
            .map_err(|errno| Error::Io {
                operation: "open the workspace",
                path: path.to_owned(),
                source: errno.into(),
            })
    }

    /// A folder that is open already.
    pub(super) fn of(folder: OwnedFd) -> Self {
        Self(folder)
    }

    /// The open parent of a path, and the path's last component.
    pub(super) fn parent<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Reached> {
        let mut at = self
            .0
            .try_clone()
            .map_err(|_| Reached::Failed(Errno::MFILE))?;
        let mut start = 0;
        while let Some(length) = path[start..].iter().position(|&byte| byte == b'/') {
            let end = start + length;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            at = match rustix::fs::openat(&at, &path[start..end], flags, Permissions::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT) => return Err(Reached::Missing),
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(Reached::Blocked(path[..end].to_vec()));
                }
                Err(errno) => return Err(Reached::Failed(errno)),
            };
            start = end + 1;
        }
        Ok((at, &path[start..]))
    }

    /// What stands at a path, without following anything.
    pub(super) fn find(&self, path: &[u8]) -> Result<Found, Errno> {
        Ok(self
            .stat(path)?
            .map_or_else(|found| found, |stat| kind(&stat)))
    }

    /// The status of what stands at a path, or why there is none.
    pub(super) fn stat(&self, path: &[u8]) -> Result<Result<Stat, Found>, Errno> {
        let (parent, name) = match self.parent(path) {
            Ok(found) => found,
            Err(Reached::Missing) => return Ok(Err(Found::Absent)),
            Err(Reached::Blocked(at)) => return Ok(Err(Found::Blocked(at))),
            Err(Reached::Failed(errno)) => return Err(errno),
        };
        match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Ok(stat)),
            Err(Errno::NOENT) => Ok(Err(Found::Absent)),
            Err(errno) => Err(errno),
        }
    }

    /// Bytes of a file or link; none for whatever is not there, holds no content or cannot be looked at.
    pub(super) fn size(&self, path: &[u8]) -> Option<u64> {
        let stat = self.stat(path).ok()?.ok()?;
        match kind(&stat) {
            Found::File | Found::Link => u64::try_from(stat.st_size).ok(),
            _ => None,
        }
    }

    /// Reads a file or link of at most `limit` bytes.
    pub(super) fn take(&self, path: &[u8], limit: u64) -> Result<Taken, std::io::Error> {
        match self.find(path)? {
            Found::Link => self.link(path),
            Found::File => self.file(path, limit),
            other => Ok(Taken::Is(other)),
        }
    }

    fn link(&self, path: &[u8]) -> Result<Taken, std::io::Error> {
        let (parent, name) = self.parent(path).map_err(Reached::into_errno)?;
        let target = rustix::fs::readlinkat(&parent, name, Vec::new())?;
        Ok(Taken::Content(Content {
            mode: Mode::Link,
            bytes: target.into_bytes(),
            permissions: 0,
        }))
    }

    /// A file of any size for reading, and its size in bytes; None for what is no file.
    pub(super) fn stream(&self, path: &[u8]) -> std::io::Result<Option<(std::fs::File, u64)>> {
        if self.find(path)? != Found::File {
            return Ok(None);
        }
        let (file, stat) = self.open_file(path)?;
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        Ok((kind(&stat) == Found::File).then_some((file, size)))
    }

    fn open_file(&self, path: &[u8]) -> std::io::Result<(std::fs::File, Stat)> {
        let (parent, name) = self.parent(path).map_err(Reached::into_errno)?;
        // Without NONBLOCK a FIFO put there meanwhile would hold the open for ever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&parent, name, flags, Permissions::empty())?;
        let stat = rustix::fs::fstat(fd.as_fd())?;
        Ok((fd.into(), stat))
    }

    fn file(&self, path: &[u8], limit: u64) -> Result<Taken, std::io::Error> {
        let (file, stat) = self.open_file(path)?;
        match kind(&stat) {
            Found::File => {}
            other => return Ok(Taken::Is(other)),
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > limit {
            return Ok(Taken::TooLarge(size));
        }
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            // It grew while it was read.
            return Ok(Taken::TooLarge(bytes.len() as u64));
        }
        let executable = stat.st_mode & 0o100 != 0;
        Ok(Taken::Content(Content {
            mode: if executable {
                Mode::Executable
            } else {
                Mode::File
            },
            bytes,
            permissions: stat.st_mode & 0o7777,
        }))
    }
}

/// Why a parent could not be opened.
pub(super) enum Reached {
    Missing,
    Blocked(Vec<u8>),
    Failed(Errno),
}

impl Reached {
    pub(super) fn into_errno(self) -> Errno {
        match self {
            Self::Missing => Errno::NOENT,
            Self::Blocked(_) => Errno::NOTDIR,
            Self::Failed(errno) => errno,
        }
    }
}

/// The error of an operation on one path of the workspace.
pub(super) fn failed(
    operation: &'static str,
    at: &[u8],
    source: impl Into<std::io::Error>,
) -> Error {
    Error::Io {
        operation,
        path: path::as_path(at).to_owned(),
        source: source.into(),
    }
}

fn kind(stat: &Stat) -> Found {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Found::File,
        FileType::Symlink => Found::Link,
        FileType::Directory => Found::Directory,
        FileType::Fifo => Found::Other("FIFO"),
        FileType::Socket => Found::Other("socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Found::Other("device"),
        FileType::Unknown => Found::Other("file of unknown kind"),
    }
}
