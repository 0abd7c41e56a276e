//! The `write` call: a file is replaced whole or stays as it is.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode as Permissions, OFlags, openat, renameat, statat};
use rustix::io::Errno;
use wharf_toolbox::message::Reply;

use crate::bell::lock;
use crate::beneath::{self, Missing, words};
use crate::files::{Files, told};
use crate::link::{Cancelled, Channel};
use crate::room::on_disk;

/// Lies beside the file while its bytes come in; only one is written at a time.
const BESIDE: &str = ".wharf-write.tmp";

/// A file on its way.
struct Draft {
    at: OwnedFd,
    name: OsString,
    file: File,
    size: u64,
    /// Bytes on the disk of what it takes the place of.
    freed: u64,
}

/// Why a write came to nothing.
struct Refusal {
    text: String,
    /// There was no room for it.
    full: bool,
}

impl Files {
    /// Replaces a file by the bytes that come in.
    pub fn write(&self, channel: &Channel, path: &str) -> Result<Reply, Cancelled> {
        let mut draft = self.draft(path);
        loop {
            let bytes = match channel.read() {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(cancelled) => {
                    draft.iter().for_each(Draft::discard);
                    return Err(cancelled);
                }
            };
            if let Ok(open) = &mut draft
                && let Err(error) = open.file.write_all(&bytes)
            {
                open.discard();
                draft = Err(refusal(path, &error));
                continue;
            }
            draft
                .iter_mut()
                .for_each(|open| open.size += bytes.len() as u64);
        }
        let written = draft.and_then(|draft| self.place(path, draft));
        self.remember(path, &written);
        Ok(written.map_or_else(|refusal| told(refusal.text), |()| Reply::Written))
    }

    /// A new file beside the one that is meant, with its mode.
    fn draft(&self, path: &str) -> Result<Draft, Refusal> {
        let say = |error: Errno| refusal(path, &error.into());
        let place = self.allowed.place(path).map_err(Refusal::of)?;
        if place.path.is_empty() {
            return Err(Refusal::of(format!("{path}: is a directory")));
        }
        let (at, name) = beneath::parent(&place.root, &place.path, Missing::Make).map_err(say)?;
        let (mode, freed) = standing(path, &at, name)?;
        let file = beneath::create(&at, OsStr::new(BESIDE), mode).map_err(say)?;
        Ok(Draft {
            name: name.to_owned(),
            at,
            file,
            size: 0,
            freed,
        })
    }

    /// Puts the draft in the place of the file once all of it is on the disk.
    fn place(&self, path: &str, draft: Draft) -> Result<(), Refusal> {
        let placed = draft
            .file
            .sync_all()
            .map_err(|error| refusal(path, &error))
            .and_then(|()| {
                self.room
                    .spend(draft.size, draft.freed)
                    .map_err(|limit| Refusal {
                        text: format!("{path}: no space left: {limit}"),
                        full: true,
                    })
            })
            .and_then(|()| {
                renameat(&draft.at, BESIDE, &draft.at, &draft.name)
                    .map_err(|error| refusal(path, &error.into()))
            });
        if placed.is_err() {
            draft.discard();
        }
        placed
    }

    /// A file of the workspace that had no room is owed until it is written.
    fn remember(&self, path: &str, written: &Result<(), Refusal>) {
        let Some(inner) = self.allowed.in_workspace(path) else {
            return;
        };
        match written {
            Ok(()) => self.torn.written(&inner),
            Err(Refusal { full: true, .. }) => {
                let stamp = lock(&self.workspace).stamp(&inner);
                self.torn.failed(&inner, stamp);
            }
            Err(_) => {}
        }
    }
}

/// The mode of what stands at a name, and the bytes it takes; `Err` when it may not be replaced.
fn standing(path: &str, at: &OwnedFd, name: &OsStr) -> Result<(Permissions, u64), Refusal> {
    let Ok(stat) = statat(at, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return Ok((Permissions::from_raw_mode(0o644), 0));
    };
    if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
        return Err(Refusal::of(format!("{path}: is a directory")));
    }
    if !beneath::regular(stat.st_mode) {
        return Err(Refusal::of(format!("{path}: not a regular file")));
    }
    // Only who may write the file may replace it.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(at, name, flags, Permissions::empty()).map_err(|error| refusal(path, &error.into()))?;
    let mode = Permissions::from_raw_mode(stat.st_mode & 0o7777);
    Ok((mode, on_disk(at.as_fd(), name, &stat)))
}

impl Draft {
    /// Nothing is left of it.
    fn discard(&self) {
        // What cannot be removed was never there, or is found by the agent.
        let _ = beneath::clear(&self.at, OsStr::new(BESIDE));
    }
}

impl Refusal {
    fn of(text: String) -> Refusal {
        Refusal { text, full: false }
    }
}

fn refusal(path: &str, error: &std::io::Error) -> Refusal {
    use std::io::ErrorKind as Kind;
    Refusal {
        text: format!("{path}: {}", words(error)),
        full: matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded),
    }
}
