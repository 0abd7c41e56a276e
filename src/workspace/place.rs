//! Writing into the operator's directory: each file whole by rename, no link ever followed.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rustix::fs::{AtFlags, Dir, Mode as Permissions, OFlags};
use rustix::io::Errno;

use super::disk::{self, Content, Found, Root, Taken};
use super::{Error, Mode, path};

/// One path to be written, or removed where there is no content.
pub(super) struct Write {
    pub path: Vec<u8>,
    /// What stood there when it was decided; if that changed since, nothing is written there.
    pub was: Option<Content>,
    pub content: Option<(Mode, Bytes)>,
}

/// Places everything. What needs nothing removed first goes first, so that a full disk shows before
/// anything is gone; a second call after a failure completes the first.
pub(super) fn all(root: &Root, dir: &Path, writes: Vec<Write>) -> Result<(), Error> {
    let gone: BTreeSet<Vec<u8>> = writes
        .iter()
        .filter(|write| write.content.is_none())
        .map(|write| write.path.clone())
        .collect();
    let (deletes, puts): (Vec<_>, Vec<_>) = writes
        .into_iter()
        .partition(|write| write.content.is_none());
    let (later, first): (Vec<_>, Vec<_>) = puts
        .into_iter()
        .partition(|write| waits(&write.path, &gone));
    for write in first.iter().chain(&deletes).chain(&later) {
        unchanged(root, dir, write)?;
        match &write.content {
            Some((mode, bytes)) => put(root, write, *mode, bytes),
            None => remove(root, &write.path),
        }
        .map_err(|errno| disk::failed("write", &write.path, errno))?;
    }
    Ok(())
}

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

/// True when the path can only be written after something was removed: above it or below it.
fn waits(at: &[u8], gone: &BTreeSet<Vec<u8>>) -> bool {
    let folder = [at, b"/"].concat();
    path::parents(at).any(|parent| gone.contains(parent))
        || gone
            .range(folder.clone()..)
            .next()
            .is_some_and(|next| next.starts_with(&folder))
}

/// Refuses when the operator wrote here since the decision.
fn unchanged(root: &Root, dir: &Path, write: &Write) -> Result<(), Error> {
    let failed = |source| disk::failed("read", &write.path, source);
    let same = match root.take(&write.path, u64::MAX - 1).map_err(failed)? {
        Taken::Content(content) => Some(&content) == write.was.as_ref(),
        Taken::Is(Found::Absent) => write.was.is_none(),
        _ => false,
    };
    if same {
        return Ok(());
    }
    Err(Error::Refused {
        what: format!(
            "{} in {} changed while the result was being applied",
            path::display(&write.path),
            dir.display()
        ),
        hint: "apply again: what is in place already is left as it is".into(),
    })
}

fn put(root: &Root, write: &Write, mode: Mode, bytes: &Bytes) -> Result<(), Errno> {
    let (parent, name) = make_parent(root, &write.path)?;
    let temporary = temporary();
    let placed = fill(&parent, &temporary, write, mode, bytes)
        .and_then(|()| rustix::fs::renameat(&parent, &temporary[..], &parent, name));
    if placed.is_err() {
        // The first failure is the one to report.
        let _ = rustix::fs::unlinkat(&parent, &temporary[..], AtFlags::empty());
    }
    placed?;
    sync(&parent)
}

/// Makes the temporary file or link, with everything but its name as it will stand.
fn fill(
    parent: &OwnedFd,
    temporary: &[u8],
    write: &Write,
    mode: Mode,
    bytes: &Bytes,
) -> Result<(), Errno> {
    if mode == Mode::Link {
        return rustix::fs::symlinkat(&bytes[..], parent, temporary);
    }
    let before = write.was.as_ref().filter(|was| was.mode != Mode::Link);
    // A file that others may not read is never readable to them, not even for a moment.
    let first = match (before, mode) {
        (Some(_), _) => 0o600,
        (None, Mode::Executable) => 0o777,
        (None, _) => 0o666,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, temporary, flags, Permissions::from_raw_mode(first))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).map_err(|error| errno(&error))?;
    if let Some(before) = before {
        let bits = permissions(before, mode);
        rustix::fs::fchmod(file.as_fd(), Permissions::from_raw_mode(bits))?;
    }
    file.sync_all().map_err(|error| errno(&error))
}

/// The permissions that stood there; the executable bits change only when the mode does.
fn permissions(before: &Content, mode: Mode) -> u32 {
    match (before.mode, mode) {
        (Mode::Executable, Mode::File) => before.permissions & !0o111,
        (Mode::File, Mode::Executable) => before.permissions | ((before.permissions & 0o444) >> 2),
        _ => before.permissions,
    }
}

/// Opens the folder a path goes into, making those that are missing.
fn make_parent<'p>(root: &Root, at: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Errno> {
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

/// Removes a file and the folders that this made empty.
fn remove(root: &Root, at: &[u8]) -> Result<(), Errno> {
    let (parent, name) = root.parent(at).map_err(disk::Reached::into_errno)?;
    rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
    sync(&parent)?;
    for folder in path::parents(at) {
        let Ok((parent, name)) = root.parent(folder) else {
            break;
        };
        if rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).is_err() {
            break;
        }
    }
    Ok(())
}

/// Makes a folder's names durable; the folder was opened by path only, which cannot be synced.
fn sync(folder: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, c".", flags, Permissions::empty()) {
        Ok(open) => rustix::fs::fsync(open),
        // A folder that may be written but not read.
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn temporary() -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".wharf-{}-{next}.tmp", std::process::id()).into_bytes()
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_bits_follow_the_readable_ones() {
        let before = |mode, permissions| Content {
            mode,
            bytes: Vec::new(),
            permissions,
        };
        let private = before(Mode::File, 0o600);
        assert_eq!(permissions(&private, Mode::Executable), 0o700);
        assert_eq!(permissions(&private, Mode::File), 0o600);
        assert_eq!(
            permissions(&before(Mode::Executable, 0o751), Mode::File),
            0o640
        );
    }

    #[test]
    fn swaps_wait_for_what_is_in_the_way() {
        let gone = BTreeSet::from([b"d".to_vec(), b"e/x".to_vec()]);
        assert!(waits(b"d/new", &gone));
        assert!(waits(b"e", &gone));
        assert!(!waits(b"e/y", &gone));
        assert!(!waits(b"ee", &gone));
    }
}
