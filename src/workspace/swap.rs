//! One path changes places with the content beside it, and back: never through a link, never over
//! what somebody else put there meanwhile.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::disk::{self, Content, Found, Root, Taken};
use super::undo::{Mark, Move};
use super::{Error, folders};

/// Whether a move was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swapped {
    Yes,
    /// Something else stands at the path than what was decided on; it was left there.
    Changed,
}

/// What a name holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    Content(Mark),
    /// A folder, a pipe, or a place that cannot be reached without following a link.
    Other,
}

/// Makes a move. What stood at the path stands beside it afterwards.
pub(super) fn swap(root: &Root, step: &Move) -> Result<Swapped, Error> {
    let made = match (&step.old, &step.new) {
        (Some(_), Some(_)) => exchange(root, &step.path, &step.beside),
        (None, Some(_)) => shift(root, &step.beside, &step.path),
        (Some(_), None) => shift(root, &step.path, &step.beside),
        (None, None) => Ok(()),
    };
    match made {
        Ok(()) => {}
        Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ISDIR) => {
            return Ok(Swapped::Changed);
        }
        Err(errno) => return Err(disk::failed("place", &step.path, errno)),
    }
    if step.old.is_none() || held(root, &step.beside)? == Held::of(&step.old) {
        return Ok(Swapped::Yes);
    }
    // Somebody wrote between the decision and the move: what they wrote goes back where it was.
    let back = match step.new {
        Some(_) => exchange(root, &step.path, &step.beside),
        None => shift(root, &step.beside, &step.path),
    };
    back.map_err(|errno| disk::failed("put back", &step.path, errno))?;
    Ok(Swapped::Changed)
}

/// Brings a move back, made or not, and removes what lies beside. What somebody else changed since
/// is left as it is.
pub(super) fn undo(root: &Root, step: &Move) -> Result<Swapped, Error> {
    let failed = |errno| disk::failed("put back", &step.path, errno);
    mend(root, &step.beside)?;
    let (there, beside) = (held(root, &step.path)?, held(root, &step.beside)?);
    // A move takes what lay beside away, or leaves the old content there.
    let moved = match &step.old {
        None => beside == Held::Nothing,
        Some(_) => beside == Held::of(&step.old),
    };
    let ours = there == Held::of(&step.new);
    if moved && ours {
        match (&step.old, &step.new) {
            (Some(_), Some(_)) => exchange(root, &step.path, &step.beside).map_err(failed)?,
            (None, Some(_)) => shift(root, &step.path, &step.beside).map_err(failed)?,
            (Some(_), None) => {
                folders::make_parent(root, &step.path).map_err(failed)?;
                shift(root, &step.beside, &step.path).map_err(failed)?;
            }
            (None, None) => {}
        }
    }
    clear(root, &step.beside)?;
    Ok(match moved && !ours {
        true => Swapped::Changed,
        false => Swapped::Yes,
    })
}

/// Removes what lies beside a path.
pub(super) fn clear(root: &Root, beside: &[u8]) -> Result<(), Error> {
    let (parent, name) = match root.parent(beside) {
        Ok(found) => found,
        Err(disk::Reached::Missing) => return Ok(()),
        // The folder it was written into has given way to a link or a file: what lies in the folder,
        // wherever that is now, cannot be told.
        Err(reached) => return Err(disk::failed("reach", beside, reached.into_errno())),
    };
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(disk::failed("remove", beside, errno)),
    }
}

impl Held {
    fn of(mark: &Option<Mark>) -> Self {
        mark.clone().map_or(Self::Nothing, Self::Content)
    }
}

fn held(root: &Root, at: &[u8]) -> Result<Held, Error> {
    let taken = root.take(at, u64::MAX - 1);
    Ok(
        match taken.map_err(|source| disk::failed("read", at, source))? {
            Taken::Content(content) => Held::Content(Mark::of_content(&content)),
            Taken::Is(Found::Absent) => Held::Nothing,
            Taken::Is(_) | Taken::TooLarge(_) => Held::Other,
        },
    )
}

/// Both names change places at once.
fn exchange(root: &Root, one: &[u8], other: &[u8]) -> Result<(), Errno> {
    let ((a, a_name), (b, b_name)) = (parent(root, one)?, parent(root, other)?);
    match rustix::fs::renameat_with(&a, a_name, &b, b_name, RenameFlags::EXCHANGE) {
        Err(errno) if unsupported(errno) => {
            let third = third(other);
            let (c, c_name) = parent(root, &third)?;
            match rustix::fs::linkat(&a, a_name, &c, c_name, AtFlags::empty()) {
                // Without hard links the name is gone for a moment.
                Err(errno) if linkless(errno) => rustix::fs::renameat(&a, a_name, &c, c_name)?,
                linked => linked?,
            }
            rustix::fs::renameat(&b, b_name, &a, a_name)?;
            rustix::fs::renameat(&c, c_name, &b, b_name)
        }
        done => done,
    }
}

/// Where the old content stands for a moment on a file system that cannot exchange names.
fn third(beside: &[u8]) -> Vec<u8> {
    [beside, b"-"].concat()
}

/// Ends an exchange that was cut between its steps.
fn mend(root: &Root, beside: &[u8]) -> Result<(), Error> {
    let third = third(beside);
    match held(root, &third)? {
        Held::Nothing => Ok(()),
        _ if held(root, beside)? == Held::Nothing => {
            shift(root, &third, beside).map_err(|errno| disk::failed("put back", &third, errno))
        }
        _ => clear(root, &third),
    }
}

/// A name moves to one that nothing has.
fn shift(root: &Root, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    let ((a, a_name), (b, b_name)) = (parent(root, from)?, parent(root, to)?);
    match rustix::fs::renameat_with(&a, a_name, &b, b_name, RenameFlags::NOREPLACE) {
        Err(errno) if unsupported(errno) => {
            match rustix::fs::linkat(&a, a_name, &b, b_name, AtFlags::empty()) {
                Err(errno) if linkless(errno) => {
                    let there = rustix::fs::statat(&b, b_name, AtFlags::SYMLINK_NOFOLLOW);
                    match there {
                        Err(Errno::NOENT) => rustix::fs::renameat(&a, a_name, &b, b_name),
                        Err(errno) => Err(errno),
                        Ok(_) => Err(Errno::EXIST),
                    }
                }
                Err(errno) => Err(errno),
                Ok(()) => rustix::fs::unlinkat(&a, a_name, AtFlags::empty()),
            }
        }
        done => done,
    }
}

fn parent<'p>(root: &Root, at: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Errno> {
    root.parent(at).map_err(disk::Reached::into_errno)
}

fn unsupported(errno: Errno) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP].contains(&errno)
}

fn linkless(errno: Errno) -> bool {
    [Errno::PERM, Errno::NOSYS, Errno::NOTSUP].contains(&errno)
}

/// The mark of what stood at a path when it was decided.
pub(super) fn mark(content: &Option<Content>) -> Option<Mark> {
    content.as_ref().map(Mark::of_content)
}
