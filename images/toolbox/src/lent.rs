//! Files and folders that their owner, our own user, shut against itself: the right to look at one is
//! taken for as long as it is looked at, and what it was is put back.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, chmod, fchmod, fstat, openat, statat,
};
use rustix::io::{Errno, Result};
use wharf_toolbox::stamp::Stamp;

use crate::beneath::{self, Missing};

/// The permissions in a mode.
const RIGHTS: u32 = 0o7777;
/// What the owner needs to read a file.
const READ: u32 = 0o400;
/// What the owner needs to list a folder and to look at what is in it.
const ENTER: u32 = 0o500;

/// A folder, or a file, with the right that it has until this is dropped.
pub struct Lent {
    fd: OwnedFd,
    /// Its permissions before and meanwhile; nothing where they were enough.
    rights: Option<(u32, u32)>,
}

impl Lent {
    /// Its descriptor, as long as the right is held.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Its descriptor for longer than the right.
    fn into_file(self) -> Result<File> {
        let file = self.fd.try_clone().map_err(|_| Errno::MFILE)?;
        drop(self);
        Ok(File::from(file))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some((was, given)) = self.rights else {
            return;
        };
        // Whoever changed it meanwhile meant that.
        if fstat(&self.fd).is_ok_and(|stat| stat.st_mode & RIGHTS == given) {
            // It stays readable to its owner where that fails, which takes nothing from anybody.
            let _ = fchmod(&self.fd, Mode::from_raw_mode(was));
        }
    }
}

/// The folder a walk begins at, whose own rights may have been taken away since it was opened.
pub fn root(root: &OwnedFd) -> Result<Lent> {
    lend(root.try_clone().map_err(|_| Errno::MFILE)?)
}

/// A folder in a folder, which may be listed and looked into as long as it is held.
pub fn folder(at: impl AsFd, name: &[u8]) -> Result<Lent> {
    match beneath::folder(&at, name) {
        Ok(open) => lend(open),
        Err(Errno::ACCESS) => take(at, OsStr::from_bytes(name), FileType::Directory, ENTER),
        Err(other) => Err(other),
    }
}

/// Opens for reading, as `beneath::read` does, through whatever of our own is shut on the way.
pub fn read(root: &OwnedFd, path: &[u8]) -> Result<File> {
    match beneath::read(root, path) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let (at, name) = parent(root, path)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(at.fd(), name, flags, Mode::empty()) {
        Ok(open) => Ok(File::from(open)),
        Err(Errno::ACCESS) => take(at.fd(), name, FileType::RegularFile, READ)?.into_file(),
        Err(other) => Err(other),
    }
}

/// How a path lies there.
pub fn stamp(root: &OwnedFd, path: &[u8]) -> Result<Stamp> {
    let look = |at: &OwnedFd, name: &OsStr| statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    let plain = beneath::parent(root, path, Missing::Refuse);
    let stat = match plain.and_then(|(at, name)| look(&at, name)) {
        Err(Errno::ACCESS) => {
            let (at, name) = parent(root, path)?;
            look(at.fd(), name)?
        }
        other => other?,
    };
    Ok(Stamp::of(&stat))
}

/// Where a link leads.
pub fn link(root: &OwnedFd, path: &[u8]) -> Result<Vec<u8>> {
    let look = |at: &OwnedFd, name: &OsStr| rustix::fs::readlinkat(at, name, Vec::new());
    let plain = beneath::parent(root, path, Missing::Refuse);
    let target = match plain.and_then(|(at, name)| look(&at, name)) {
        Err(Errno::ACCESS) => {
            let (at, name) = parent(root, path)?;
            look(at.fd(), name)?
        }
        other => other?,
    };
    Ok(target.into_bytes())
}

/// The folder of `path`'s last component, held open, and that component.
fn parent<'a>(top: &OwnedFd, path: &'a [u8]) -> Result<(Lent, &'a OsStr)> {
    let mut at = root(top)?;
    let mut parts = path.split(|&byte| byte == b'/').peekable();
    while let Some(part) = parts.next() {
        if matches!(part, b"" | b"." | b"..") {
            return Err(Errno::INVAL);
        }
        if parts.peek().is_none() {
            return Ok((at, OsStr::from_bytes(part)));
        }
        at = folder(at.fd(), part)?;
    }
    Err(Errno::INVAL)
}

/// An open folder, which may have been opened by others' rights and not be looked into.
fn lend(open: OwnedFd) -> Result<Lent> {
    let stat = fstat(&open)?;
    let was = stat.st_mode & RIGHTS;
    let given = was | ENTER;
    // Where the right cannot be given, the walk says what it could not look into.
    let gave = given != was && is_ours(&stat) && fchmod(&open, Mode::from_raw_mode(given)).is_ok();
    Ok(Lent {
        fd: open,
        rights: gave.then_some((was, given)),
    })
}

/// Gives the owner, who must be our own user, the right, and opens it. Names change hands while that is
/// done, so all of it is done to the one thing that was found first, by its descriptor.
fn take(at: impl AsFd, name: &OsStr, kind: FileType, right: u32) -> Result<Lent> {
    let nothing = Mode::empty();
    let found = openat(
        at,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        nothing,
    )?;
    let stat = fstat(&found)?;
    if !is_ours(&stat) || FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(Errno::ACCESS);
    }
    // A descriptor that may do nothing is changed and opened by this name alone, which leads to the very
    // same file whatever is at its path by now.
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    let was = stat.st_mode & RIGHTS;
    let given = was | right;
    chmod(same.as_str(), Mode::from_raw_mode(given))?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(CWD, same.as_str(), flags, nothing) {
        Ok(fd) => Ok(Lent {
            fd,
            rights: Some((was, given)),
        }),
        Err(error) => {
            // The reason it could not be opened is what counts.
            let _ = chmod(same.as_str(), Mode::from_raw_mode(was));
            Err(error)
        }
    }
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}
