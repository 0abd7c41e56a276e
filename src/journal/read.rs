//! Lines on disk become events again; a torn tail is told apart from damage.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Error, Event, VERSION};

/// One record: its place, its time, the hash of the line before it, and the fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// From 1.
    pub seq: u64,
    /// RFC 3339, UTC.
    pub at: jiff::Timestamp,
    /// The first 16 hex digits of the SHA-256 of the line before, empty on the first.
    pub prev: String,
    #[serde(flatten)]
    pub event: Event,
}

/// A journal as far as it can be read.
#[derive(Clone, Debug, Default)]
pub struct Read {
    pub lines: Vec<Line>,
    /// Bytes of the file that hold whole lines; what follows is a torn tail.
    pub whole: u64,
    /// Bytes after the last whole line.
    pub torn: u64,
    /// What the next line's `prev` must be.
    pub chain: String,
}

/// Lines held against each other, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Lines taken so far.
    count: u64,
    /// What the next line's `prev` must be.
    hash: String,
    /// The first line carries a seal, so every line must.
    sealed: bool,
}

/// Reads a journal. An incomplete last line is counted in `torn`; any other fault is `Error::Damaged`.
pub fn read(path: &Path) -> Result<Read, Error> {
    match salvage(path)? {
        (read, None) => Ok(read),
        (_, Some(damage)) => Err(damage),
    }
}

/// `read`, with the whole lines before the damage where there is some.
pub fn salvage(path: &Path) -> Result<(Read, Option<Error>), Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Io {
        operation: "read",
        path: path.to_owned(),
        source,
    })?;
    let (read, fault) = whole(&bytes);
    let damage = fault.map(|(line, what)| match newer(&bytes) {
        Some(version) => Error::Newer {
            path: path.to_owned(),
            version,
        },
        None => Error::Damaged {
            path: path.to_owned(),
            line,
            what,
        },
    });
    Ok((read, damage))
}

/// The version that the first line names, when it is one that this program does not know.
fn newer(bytes: &[u8]) -> Option<u64> {
    let first = bytes.split(|&b| b == b'\n').next()?;
    let line: serde_json::Value = serde_json::from_slice(first).ok()?;
    let version = line.get("journal")?.as_u64()?;
    (version > u64::from(VERSION)).then_some(version)
}

/// The whole lines up to the first fault, and that line's number with what is wrong with it.
fn whole(bytes: &[u8]) -> (Read, Option<(usize, String)>) {
    let (mut out, mut chain) = (Read::default(), Chain::default());
    let mut rest = bytes;
    let mut fault = None;
    while !rest.is_empty() {
        let Some(end) = rest.iter().position(|&b| b == b'\n') else {
            // A whole record without its newline is a record: only the newline was lost.
            match chain.take(rest) {
                Ok(line) => {
                    out.lines.push(line);
                    out.whole += rest.len() as u64;
                }
                Err(_) => out.torn = rest.len() as u64,
            }
            break;
        };
        match chain.take(&rest[..end]) {
            Ok(line) => out.lines.push(line),
            Err(what) => {
                fault = Some((out.lines.len() + 1, what));
                break;
            }
        }
        out.whole += end as u64 + 1;
        rest = &rest[end + 1..];
    }
    out.chain = chain.hash;
    (out, fault)
}

impl Chain {
    /// The next line as a record, or what is wrong with it; after a fault no further line is asked for.
    pub fn take(&mut self, text: &[u8]) -> Result<Line, String> {
        let number = self.count + 1;
        let line: Line = serde_json::from_slice(text).map_err(|error| {
            if text.iter().all(|&b| b == 0) {
                format!("holds {} NUL bytes and no record", text.len())
            } else {
                error.to_string()
            }
        })?;
        if line.seq != number {
            return Err(format!(
                "is numbered {}, a line is missing or was added",
                line.seq
            ));
        }
        if line.prev != self.hash {
            return Err(
                "does not follow from the line before it: one of them was changed".to_owned(),
            );
        }
        match &line.event {
            Event::RunStarted(started) if started.journal > VERSION => {
                return Err(format!("is of version {}", started.journal));
            }
            _ => {}
        }
        match seal(text) {
            Some((body, hash)) if chain(body).as_bytes() != hash => {
                return Err("was changed: it is not what its own hash says".to_owned());
            }
            None if self.sealed => {
                return Err("was changed: its own hash is missing".to_owned());
            }
            found => self.sealed |= number == 1 && found.is_some(),
        }
        (self.count, self.hash) = (number, chain(text));
        Ok(line)
    }
}

/// What stands between a line's record and its own hash.
const SEAL: &[u8] = b",\"sum\":\"";
/// Hex digits of a hash in a line.
const DIGITS: usize = 16;

/// A record with the hash of its own text as its last key: the chain tells a change of every line but
/// the last, which nothing follows.
pub(super) fn sealed(record: &str) -> String {
    let body = record.strip_suffix('}').unwrap_or(record);
    format!(
        "{body}{}{}\"}}",
        String::from_utf8_lossy(SEAL),
        chain(body.as_bytes())
    )
}

/// The text that a line's own hash is of, and the hash; None for a line of an earlier wharf, which
/// has none.
fn seal(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = text.strip_suffix(b"\"}")?;
    let at = rest.len().checked_sub(DIGITS)?;
    let (body, hash) = rest.split_at(at);
    Some((body.strip_suffix(SEAL)?, hash))
}

/// What the line after `text` must carry as `prev`.
pub(super) fn chain(text: &[u8]) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(8).map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Read, (usize, String)> {
        match whole(bytes) {
            (read, None) => Ok(read),
            (_, Some(fault)) => Err(fault),
        }
    }

    fn journal(count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut prev = String::new();
        for seq in 1..=count {
            let line = Line {
                seq,
                at: jiff::Timestamp::UNIX_EPOCH,
                prev,
                event: Event::Warned {
                    text: format!("ünï {seq}"),
                },
            };
            let text = sealed(&serde_json::to_string(&line).unwrap());
            prev = chain(text.as_bytes());
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(b'\n');
        }
        bytes
    }

    #[test]
    fn a_journal_cut_at_any_byte_gives_the_whole_lines_before_the_cut() {
        let bytes = journal(3);
        for cut in 0..=bytes.len() {
            let read = parse(&bytes[..cut]).unwrap();
            assert_eq!(read.whole + read.torn, cut as u64, "cut at {cut}");
            let newlines = bytes[..cut].iter().filter(|&&b| b == b'\n').count();
            let without_newline = usize::from(bytes.get(cut) == Some(&b'\n'));
            assert_eq!(read.lines.len(), newlines + without_newline, "cut at {cut}");
        }
    }

    #[test]
    fn an_edited_or_missing_line_is_damage() {
        let text = String::from_utf8(journal(3)).unwrap();
        for n in 1..=3 {
            let edited = text.replacen(&format!("ünï {n}"), "ünï 9", 1);
            assert_eq!(parse(edited.as_bytes()).unwrap_err().0, n);
        }
        // Whoever gives a changed line another hash is told by the next one.
        let first = text.lines().next().unwrap();
        let body = first.rsplit_once(",\"sum\"").unwrap().0;
        let forged = sealed(&format!("{}}}", body.replacen("ünï 1", "ünï 9", 1)));
        let forged = text.replacen(first, &forged, 1);
        assert_eq!(parse(forged.as_bytes()).unwrap_err().0, 2);
        let last = text.lines().last().unwrap();
        let bare = format!("{}}}", last.rsplit_once(",\"sum\"").unwrap().0);
        let unsealed = text.replacen(last, &bare, 1);
        assert_eq!(parse(unsealed.as_bytes()).unwrap_err().0, 3);
        let missing: String = text.lines().skip(1).map(|l| format!("{l}\n")).collect();
        assert_eq!(parse(missing.as_bytes()).unwrap_err().0, 1);
        let nul = text.replacen("seq", "\0\0\0", 1);
        assert_eq!(parse(nul.as_bytes()).unwrap_err().0, 1);
        // Blocks that a crash left empty, with or without a line after them.
        for tail in ["\0\0\0\0\n", "\0\0\n{\"seq\":4}\n", "\u{1}garbage\n", "\n"] {
            let damaged = format!("{text}{tail}");
            assert_eq!(parse(damaged.as_bytes()).unwrap_err().0, 4, "{tail:?}");
        }
        let torn = parse(format!("{text}\0\0\0\0").as_bytes()).unwrap();
        assert_eq!((torn.lines.len(), torn.torn), (3, 4));
    }

    #[test]
    fn lines_of_an_earlier_wharf_have_no_hash_of_their_own() {
        let text = String::from_utf8(journal(1)).unwrap();
        let bare = format!("{}}}\n", text.rsplit_once(",\"sum\"").unwrap().0);
        assert_eq!(parse(bare.as_bytes()).unwrap().lines.len(), 1);
    }
}
