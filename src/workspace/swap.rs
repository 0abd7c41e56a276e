//! One path changes places with the content beside it, and back: never through a link, never over
//! what somebody else put there meanwhile.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::Duration;

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
    let (path, beside) = ((root, &step.path[..]), (root, &step.beside[..]));
    let made = match (&step.old, &step.new) {
        (Some(_), Some(_)) => exchange(path, beside),
        (None, Some(_)) => shift(beside, path),
        (Some(_), None) => shift(path, beside),
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
        Some(_) => exchange(path, beside),
        None => shift(beside, path),
    };
    back.map_err(|errno| disk::failed("put back", &step.path, errno))?;
    Ok(Swapped::Changed)
}

/// What it means that the folder is missing into which something was written beside its place.
pub(super) enum Missing {
    /// Somebody moved it a moment ago, and what lies in it went with it: nothing can be told.
    Fails,
    /// Somebody removed it since, with all that was in it, if it is still missing after so many waits.
    Counts(Cell<u32>),
}

impl Missing {
    /// For what was cut off before: whoever moves a folder to and fro has put it back after that long.
    pub fn counts() -> Self {
        Self::Counts(Cell::new(WAITS))
    }

    /// True when it is worth looking once more.
    fn waits(&self) -> bool {
        let Self::Counts(left) = self else {
            return false;
        };
        let again = left.get() > 0;
        if again {
            left.set(left.get() - 1);
            std::thread::sleep(WAIT);
        }
        again
    }
}

/// How often, and how long, a missing folder is waited for in all.
const WAITS: u32 = 20;
const WAIT: Duration = Duration::from_millis(5);

/// A name in a folder that is held open: it stays this folder, wherever somebody moves it.
struct Spot<'p> {
    folder: Root,
    name: &'p [u8],
}

/// Brings a move back, made or not, and removes what lies beside. What somebody else changed since
/// is left as it is.
pub(super) fn undo(root: &Root, step: &Move, missing: &Missing) -> Result<Swapped, Error> {
    let failed = |errno| disk::failed("put back", &step.path, errno);
    let Some(spot) = spot(root, &step.beside, missing)? else {
        // What was written beside is gone, and so is the folder of the path, which lies below.
        return Ok(match step.old {
            None => Swapped::Changed,
            Some(_) => Swapped::Yes,
        });
    };
    let Spot { folder, name } = &spot;
    mend(folder, name)?;
    let (there, beside) = (held(root, &step.path)?, held(folder, name)?);
    // A move takes what lay beside away, or leaves the old content there.
    let moved = match &step.old {
        None => beside == Held::Nothing,
        Some(_) => beside == Held::of(&step.old),
    };
    let ours = there == Held::of(&step.new);
    let (path, beside) = ((root, &step.path[..]), (folder, *name));
    if moved && ours {
        match (&step.old, &step.new) {
            (Some(_), Some(_)) => exchange(path, beside).map_err(failed)?,
            (None, Some(_)) => shift(path, beside).map_err(failed)?,
            (Some(_), None) => {
                folders::make_parent(root, &step.path).map_err(failed)?;
                shift(beside, path).map_err(failed)?;
            }
            (None, None) => {}
        }
    }
    remove(folder, name).map_err(|errno| disk::failed("remove", &step.beside, errno))?;
    Ok(match moved && !ours {
        true => Swapped::Changed,
        false => Swapped::Yes,
    })
}

/// Removes what lies beside a path.
pub(super) fn clear(root: &Root, beside: &[u8], missing: &Missing) -> Result<(), Error> {
    match spot(root, beside, missing)? {
        Some(Spot { folder, name }) => {
            remove(&folder, name).map_err(|errno| disk::failed("remove", beside, errno))
        }
        None => Ok(()),
    }
}

/// Where something lies beside its place; None where the folder is gone and may be.
fn spot<'p>(root: &Root, beside: &'p [u8], missing: &Missing) -> Result<Option<Spot<'p>>, Error> {
    loop {
        match root.parent(beside) {
            Ok((folder, name)) => {
                let folder = Root::of(folder);
                return Ok(Some(Spot { folder, name }));
            }
            Err(disk::Reached::Missing) if missing.waits() => {}
            Err(disk::Reached::Missing) if matches!(missing, Missing::Counts(_)) => {
                return Ok(None);
            }
            // The folder it was written into has given way to a link or a file, or is away for a moment:
            // what lies in it, wherever that is now, cannot be told.
            Err(reached) => return Err(disk::failed("reach", beside, reached.into_errno())),
        }
    }
}

/// Removes one name of a folder.
fn remove(folder: &Root, name: &[u8]) -> Result<(), Errno> {
    let (parent, name) = parent(folder, name)?;
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
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
fn exchange(one: (&Root, &[u8]), other: (&Root, &[u8])) -> Result<(), Errno> {
    let ((a, a_name), (b, b_name)) = (parent(one.0, one.1)?, parent(other.0, other.1)?);
    match rustix::fs::renameat_with(&a, a_name, &b, b_name, RenameFlags::EXCHANGE) {
        Err(errno) if unsupported(errno) => {
            let third = third(other.1);
            let (c, c_name) = parent(other.0, &third)?;
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
        _ if held(root, beside)? == Held::Nothing => shift((root, &third), (root, beside))
            .map_err(|errno| disk::failed("put back", &third, errno)),
        _ => remove(root, &third).map_err(|errno| disk::failed("remove", &third, errno)),
    }
}

/// A name moves to one that nothing has.
fn shift(from: (&Root, &[u8]), to: (&Root, &[u8])) -> Result<(), Errno> {
    let ((a, a_name), (b, b_name)) = (parent(from.0, from.1)?, parent(to.0, to.1)?);
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
