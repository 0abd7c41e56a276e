//! New contents written beside their places, whole and durable, before the first place changes.

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use rustix::fs::{Gid, Mode as Permissions, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::disk::{self, Content, Root};
use super::{Error, Mode};

/// Writes one content beside its place, with everything but its name as it will stand.
pub(super) fn write(
    root: &Root,
    beside: &[u8],
    (at, was): (&[u8], Option<&Content>),
    (mode, bytes): (Mode, &Bytes),
) -> Result<(), Error> {
    let failed = |errno: Errno| disk::failed("write", at, errno);
    let (parent, name) = root
        .parent(beside)
        .map_err(|reached| failed(reached.into_errno()))?;
    if mode == Mode::Link {
        return rustix::fs::symlinkat(&bytes[..], &parent, name).map_err(failed);
    }
    let before = was.filter(|was| was.mode != Mode::Link);
    let owner = match before {
        Some(_) => root.stat(at).map_err(failed)?.ok(),
        None => None,
    };
    fill(&parent, name, before.zip(owner.as_ref()), (mode, bytes)).map_err(failed)
}

fn fill(
    parent: &OwnedFd,
    name: &[u8],
    before: Option<(&Content, &Stat)>,
    (mode, bytes): (Mode, &Bytes),
) -> Result<(), Errno> {
    // A file that others may not read is never readable to them, not even for a moment.
    let first = match (before, mode) {
        (Some(_), _) => 0o600,
        (None, Mode::Executable) => 0o777,
        (None, _) => 0o666,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, name, flags, Permissions::from_raw_mode(first))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).map_err(|error| errno(&error))?;
    if let Some((content, stat)) = before {
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        // Only root may give a file away; for everybody else it is theirs already, or stays so.
        let _ = rustix::fs::fchown(file.as_fd(), Some(user), Some(group));
        let bits = permissions(content, mode);
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
}
