//! What git's listing passes by in silence: FIFOs, sockets and devices, and folders that may not be read.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::git::{Call, Git};
use super::listing::Listing;
use super::store::fields;
use super::{Error, path};

/// Adds it to a listing. Looked at are the folders above listed files, and those that git names
/// although it lists nothing in them; what it ignores is not looked into.
pub(super) async fn add(
    git: &Git,
    dir: &Path,
    most: usize,
    listing: &mut Listing,
) -> Result<(), Error> {
    let mut folders = BTreeSet::from([Vec::new()]);
    for at in &listing.paths {
        for parent in path::parents(at) {
            if !folders.insert(parent.to_vec()) {
                break;
            }
        }
    }
    for folder in &folders {
        look(dir, folder, listing);
    }
    let call =
        Call::new("ls-files", dir).args(["-z", "--others", "--directory", "--exclude-standard"]);
    let answer = git.ask(call, b"").await?;
    let mut silent: Vec<Vec<u8>> = fields(&answer)
        .filter_map(|name| name.strip_suffix(b"/"))
        .map(<[u8]>::to_vec)
        .collect();
    let mut looked = 0;
    while let Some(folder) = silent.pop() {
        looked += 1;
        let own = std::fs::symlink_metadata(dir.join(path::as_path(&folder)).join(".git"));
        if own.is_ok() || looked > most || listing.is_own(&folder) {
            continue;
        }
        let inner = match folders.insert(folder.clone()) {
            true => look(dir, &folder, listing),
            false => inner(dir, &folder),
        };
        silent.extend(inner);
    }
    Ok(())
}

/// Looks into one folder; the folders in it.
fn look(dir: &Path, folder: &[u8], listing: &mut Listing) -> Vec<Vec<u8>> {
    let mut inner = Vec::new();
    for entry in entries(dir, folder) {
        let at = path::join(folder, entry.file_name().as_bytes());
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if listing.is_own(&at) {
            continue;
        }
        if kind.is_dir() {
            match std::fs::read_dir(entry.path()) {
                Ok(_) => inner.push(at),
                Err(error) => {
                    let why = error.kind().to_string();
                    if !listing.unreadable.iter().any(|(said, _)| *said == at) {
                        listing.unreadable.push((at, why));
                    }
                }
            }
        } else if kind.is_fifo()
            || kind.is_socket()
            || kind.is_char_device()
            || kind.is_block_device()
        {
            listing.paths.insert(at);
        }
    }
    inner
}

fn inner(dir: &Path, folder: &[u8]) -> Vec<Vec<u8>> {
    let folders =
        entries(dir, folder).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .map(|entry| path::join(folder, entry.file_name().as_bytes()))
        .collect()
}

/// A folder that is a link by now holds nothing of the workspace's.
fn entries(dir: &Path, folder: &[u8]) -> impl Iterator<Item = std::fs::DirEntry> {
    let full = dir.join(path::as_path(folder));
    let real = std::fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_dir());
    let read = real.then(|| std::fs::read_dir(&full).ok()).flatten();
    read.into_iter().flatten().filter_map(Result::ok)
}
