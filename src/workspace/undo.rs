//! What an apply is about to do, on disk before it does it, so that one that was cut off can be undone.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::disk::Content;
use super::git::unreadable;
use super::{Error, Mode, path};

/// The line behind the first line when every new content lies beside its place.
const READY: &[u8] = b"ready\n";
/// The last line of a record whose moves were all made.
const KEPT: &[u8] = b"kept\n";

/// Everything one apply moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moves {
    /// The directory it works on.
    pub directory: Vec<u8>,
    pub moves: Vec<Move>,
    /// Folders that it makes, upper ones first.
    pub folders: Vec<Vec<u8>>,
}

/// One path, the name beside it that holds the new content before and the old one after, and both contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Move {
    pub path: Vec<u8>,
    pub beside: Vec<u8>,
    /// None where nothing stood.
    pub old: Option<Mark>,
    /// None where nothing is to stand.
    pub new: Option<Mark>,
}

/// Tells one content from another: kind and SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark(String);

impl Mark {
    pub fn of(mode: Mode, bytes: &[u8]) -> Self {
        let digest = Sha256::digest(bytes);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{mode:?} {hex}"))
    }

    pub fn of_content(content: &Content) -> Self {
        Self::of(content.mode, &content.bytes)
    }
}

/// An apply that was cut off.
pub(super) enum Pending {
    /// No move was made; what lies beside its place goes.
    Clear(Moves),
    /// Some of its moves were made.
    Undo(Moves),
    /// All were made; only what they replaced still lies beside.
    Finish(Moves),
}

impl Pending {
    /// What it was about to move.
    pub fn moves(&self) -> &Moves {
        let (Self::Clear(moves) | Self::Undo(moves) | Self::Finish(moves)) = self;
        moves
    }
}

/// The record of an apply at work.
pub(super) struct Undo {
    path: PathBuf,
    file: File,
}

impl Undo {
    /// Writes down what is about to be done.
    pub fn open(path: &Path, moves: &Moves) -> Result<Self, Error> {
        let io = |source| failed(path, source);
        let mut text = serde_json::to_vec(moves).map_err(|error| io(error.into()))?;
        text.push(b'\n');
        let file = File::create_new(path).map_err(io)?;
        let mut record = Self {
            path: path.to_owned(),
            file,
        };
        let written = record.write(&text).and_then(|()| sync_folder(path));
        if let Err(source) = written {
            // Nothing was moved yet; the first failure is the one to report.
            let _ = std::fs::remove_file(path);
            return Err(io(source));
        }
        Ok(record)
    }

    fn write(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.file.write_all(text)?;
        self.file.sync_all()
    }

    /// Everything lies beside its place: from here on moves are made.
    pub fn ready(&mut self) -> Result<(), Error> {
        self.write(READY)
            .map_err(|source| failed(&self.path, source))
    }

    /// From here on a cut is finished, not undone.
    pub fn keep(&mut self) -> Result<(), Error> {
        self.write(KEPT)
            .map_err(|source| failed(&self.path, source))
    }

    /// Nothing is left to do.
    pub fn close(self) -> Result<(), Error> {
        remove(&self.path)
    }
}

/// Removes a record that has served.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    std::fs::remove_file(path)
        .and_then(|()| sync_folder(path))
        .map_err(|source| failed(path, source))
}

/// The apply that was cut off, if there was one.
pub(super) fn pending(path: &Path) -> Result<Option<Pending>, Error> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(path, source)),
    };
    let Some(end) = text.iter().position(|&byte| byte == b'\n') else {
        // Cut while it was written: nothing had been done.
        remove(path)?;
        return Ok(None);
    };
    let moves: Moves = serde_json::from_slice(&text[..end])
        .map_err(|error| unreadable("apply", &format!("{}: {error}", path.display())))?;
    let rest = &text[end + 1..];
    Ok(Some(match rest.strip_prefix(READY) {
        None => Pending::Clear(moves),
        Some(rest) if rest == KEPT => Pending::Finish(moves),
        Some(_) => Pending::Undo(moves),
    }))
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn failed(at: &Path, source: std::io::Error) -> Error {
    Error::Io {
        operation: "keep the record of an apply in",
        path: at.to_owned(),
        source,
    }
}

impl Moves {
    /// The directory as a path of this system.
    pub fn directory(&self) -> &Path {
        path::as_path(&self.directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undo_record_cut_anywhere_says_what_is_left_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("undo");
        let moves = Moves {
            directory: b"/x\xff".to_vec(),
            moves: vec![Move {
                path: b"a\nb".to_vec(),
                beside: b".t".to_vec(),
                old: None,
                new: Some(Mark::of(Mode::File, b"x")),
            }],
            folders: vec![],
        };
        let mut record = Undo::open(&at, &moves).unwrap();
        assert!(Undo::open(&at, &moves).is_err(), "one apply at a time");
        record.ready().unwrap();
        record.keep().unwrap();
        let whole = std::fs::read(&at).unwrap();
        let second = whole.len() - KEPT.len();
        let first = second - READY.len();
        for length in 0..=whole.len() {
            std::fs::write(&at, &whole[..length]).unwrap();
            match pending(&at).unwrap() {
                None => assert!(length < first, "{length}"),
                Some(Pending::Clear(found)) => {
                    assert!(length >= first && length < second, "{length}");
                    assert_eq!(found, moves);
                }
                Some(Pending::Undo(_)) => {
                    assert!(length >= second && length < whole.len(), "{length}");
                }
                Some(Pending::Finish(_)) => assert_eq!(length, whole.len()),
            }
        }
        std::fs::write(&at, "{\n").unwrap();
        assert!(pending(&at).is_err());
    }
}
