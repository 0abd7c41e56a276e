//! Folders of the operator's directory: listed, made, and removed when an apply emptied them.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode as Permissions, OFlags};
use rustix::io::Errno;

use super::disk::{self, Found, Root};
use super::{Error, path};

/// The first path below a directory that the change does not remove; None when all of it goes.
pub(super) fn kept(
    root: &Root,
    at: &[u8],
    gone: &BTreeSet<Vec<u8>>,
) -> Result<Option<Vec<u8>>, Error> {
    let mut folders = vec![at.to_vec()];
    while let Some(folder) = folders.pop() {
        let failed = |errno: Errno| disk::failed("list", &folder, errno);
        let names = names(root, &folder).map_err(failed)?;
        if names.is_empty() {
            // An empty directory of the operator's is not the run's to remove.
            return Ok(Some(folder));
        }
        for name in names {
            let full = path::join(&folder, &name);
            match root.find(&full).map_err(failed)? {
                Found::Directory => folders.push(full),
                _ if gone.contains(&full) => {}
                _ => return Ok(Some(full)),
            }
        }
    }
    Ok(None)
}

fn names(root: &Root, folder: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    let (parent, name) = root.parent(folder).map_err(disk::Reached::into_errno)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&parent, name, flags, Permissions::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&fd)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Every folder that is not there yet and that these paths need, upper ones first.
pub(super) fn missing<'p>(
    root: &Root,
    paths: impl Iterator<Item = &'p [u8]>,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut missing = BTreeSet::new();
    for at in paths {
        for folder in path::parents(at) {
            if missing.contains(folder) {
                break;
            }
            let found = root.find(folder);
            match found.map_err(|errno| disk::failed("look at", folder, errno))? {
                Found::Directory => break,
                _ => missing.insert(folder.to_vec()),
            };
        }
    }
    Ok(missing.into_iter().collect())
}

/// Opens the folder a path goes into, making those that are missing.
pub(super) fn make_parent<'p>(root: &Root, at: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Errno> {
    loop {
        match root.parent(at) {
            Ok(found) => return Ok(found),
            Err(disk::Reached::Missing) => {}
            Err(other) => return Err(other.into_errno()),
        }
        let mut folders: Vec<&[u8]> = path::parents(at).collect();
        folders.reverse();
        for folder in folders {
            let (parent, name) = root.parent(folder).map_err(disk::Reached::into_errno)?;
            match rustix::fs::mkdirat(&parent, name, Permissions::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Removes a folder that holds nothing but folders; one with anything else in it stays, and what
/// wants its place is refused there.
pub(super) fn clear(root: &Root, at: &[u8]) -> Result<(), Error> {
    let failed = |errno: Errno| disk::failed("list", at, errno);
    let (mut open, mut found) = (vec![at.to_vec()], Vec::new());
    while let Some(folder) = open.pop() {
        for name in names(root, &folder).map_err(failed)? {
            let full = path::join(&folder, &name);
            if root.find(&full).map_err(failed)? != Found::Directory {
                return Ok(());
            }
            open.push(full);
        }
        found.push(folder);
    }
    for folder in found.iter().rev() {
        remove(root, folder).map_err(failed)?;
    }
    Ok(())
}

/// Removes the folders above a path as far as they are empty.
pub(super) fn remove_empty(root: &Root, at: &[u8]) {
    for folder in path::parents(at) {
        if remove(root, folder).is_err() {
            break;
        }
    }
}

/// Removes one folder; refused by the system while anything is in it.
pub(super) fn remove(root: &Root, folder: &[u8]) -> Result<(), Errno> {
    let (parent, name) = root.parent(folder).map_err(disk::Reached::into_errno)?;
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

/// Makes a folder's names durable; the folder was opened by path only, which cannot be synced.
pub(super) fn sync(folder: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, c".", flags, Permissions::empty()) {
        Ok(open) => rustix::fs::fsync(open),
        // A folder that may be written but not read.
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}
