//! The ledger of a layer: what an image's layer holds of the workspace, so that a sandbox on it
//! need not look. Wharf writes it once, beside the toolbox, where the agent may not write.
//!
//! A line with the format, one with the layer's name, one with the number of files carried and one
//! with the number of entries; then each entry: its kind (u8), the length of its path (u16), and
//! but for what is left out its stamp (i64, u32, u64, u64, u32), the SHA-256 of a carried one, all
//! little endian, then the path.

use crate::record::MAX_PATH;
use crate::stamp::Stamp;
use crate::wire::Fault;

/// Where a layer has it.
pub const PATH: &str = "/.wharf/layer";
/// Most bytes of a ledger: more files than a workspace may hold do not need them.
pub const MOST: u64 = 256 << 20;
const FORMAT: &str = "wharf layer 1";
/// Most bytes of the lines in front.
const FRONT: usize = 256;
const STAMP: usize = 32;
const HASH: usize = 32;

/// What stands in front of the entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// Names the tree of the layer; equal names mean equal trees.
    pub name: String,
    /// Files and links of that tree.
    pub files: usize,
    /// Entries that follow.
    pub entries: usize,
}

/// One path of the layer's workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the workspace; of a folder that is left out with a slash at its end.
    pub path: Vec<u8>,
    /// What is known of it.
    pub kind: Kind,
}

/// What a ledger knows of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Part of the tree.
    Carried(Stamp, [u8; HASH]),
    /// The image's own, there before the tree.
    Image(Stamp),
    /// The image's own, and nothing that is carried.
    LeftOut,
}

/// Writes a ledger.
pub fn write(name: &str, entries: &[Entry]) -> Result<Vec<u8>, Fault> {
    let carried = |entry: &&Entry| matches!(entry.kind, Kind::Carried(..));
    let files = entries.iter().filter(carried).count();
    let mut out = format!("{FORMAT}\n{name}\n{files}\n{}\n", entries.len()).into_bytes();
    for entry in entries {
        encode(entry, &mut out)?;
    }
    Ok(out)
}

/// Appends one entry; fails on a path over `MAX_PATH`.
pub fn encode(entry: &Entry, out: &mut Vec<u8>) -> Result<(), Fault> {
    let length = u16::try_from(entry.path.len()).unwrap_or(u16::MAX);
    // A folder that is left out has a slash more.
    if usize::from(length) > MAX_PATH + 1 {
        return Err(Fault::Length(entry.path.len()));
    }
    let (byte, stamp, hash) = match &entry.kind {
        Kind::Carried(stamp, hash) => (b'c', Some(stamp), Some(hash)),
        Kind::Image(stamp) => (b'i', Some(stamp), None),
        Kind::LeftOut => (b'o', None, None),
    };
    out.push(byte);
    out.extend_from_slice(&length.to_le_bytes());
    if let Some(stamp) = stamp {
        out.extend_from_slice(&stamp.changed.0.to_le_bytes());
        let nanos = u32::try_from(stamp.changed.1).unwrap_or(0);
        out.extend_from_slice(&nanos.to_le_bytes());
        out.extend_from_slice(&stamp.inode.to_le_bytes());
        out.extend_from_slice(&stamp.size.to_le_bytes());
        out.extend_from_slice(&stamp.mode.to_le_bytes());
    }
    if let Some(hash) = hash {
        out.extend_from_slice(hash);
    }
    out.extend_from_slice(&entry.path);
    Ok(())
}

/// The lines in front and how long they are; nothing when `bytes` is no ledger of this format.
pub fn front(bytes: &[u8]) -> Option<(Front, usize)> {
    let bytes = bytes.get(..FRONT.min(bytes.len()))?;
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let mut used = 0;
    let mut line = || {
        let line = lines.next()?;
        used += line.len();
        std::str::from_utf8(line.strip_suffix(b"\n")?).ok()
    };
    if line()? != FORMAT {
        return None;
    }
    let front = Front {
        name: line()?.to_owned(),
        files: line()?.parse().ok()?,
        entries: line()?.parse().ok()?,
    };
    Some((front, used))
}

/// All of a ledger; one that is cut or has something behind its end is none.
pub fn read(bytes: &[u8]) -> Option<(Front, Vec<Entry>)> {
    let (front, used) = front(bytes)?;
    let entries = entries(bytes.get(used..)?)?;
    let files = entries
        .iter()
        .filter(|entry| matches!(entry.kind, Kind::Carried(..)));
    let whole = entries.len() == front.entries && files.count() == front.files;
    whole.then_some((front, entries))
}

/// Entries without the lines in front; nothing when one is cut.
pub fn entries(mut bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        entries.push(entry(&mut bytes)?);
    }
    Some(entries)
}

fn entry(bytes: &mut &[u8]) -> Option<Entry> {
    let byte = take(bytes, 1)?[0];
    let length = usize::from(u16::from_le_bytes(take(bytes, 2)?.try_into().ok()?));
    let kind = match byte {
        b'c' => Kind::Carried(stamp(bytes)?, take(bytes, HASH)?.try_into().ok()?),
        b'i' => Kind::Image(stamp(bytes)?),
        b'o' => Kind::LeftOut,
        _ => return None,
    };
    let path = take(bytes, length)?.to_vec();
    Some(Entry { path, kind })
}

fn stamp(bytes: &mut &[u8]) -> Option<Stamp> {
    let mut part = take(bytes, STAMP)?;
    let part = &mut part;
    let nanos = |part: &mut &[u8]| Some(u32::from_le_bytes(take(part, 4)?.try_into().ok()?));
    let long = |part: &mut &[u8]| Some(u64::from_le_bytes(take(part, 8)?.try_into().ok()?));
    let seconds = i64::from_le_bytes(take(part, 8)?.try_into().ok()?);
    Some(Stamp {
        changed: (seconds, u64::from(nanos(part)?)),
        inode: long(part)?,
        size: long(part)?,
        mode: nanos(part)?,
    })
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Entry> {
        let stamp = Stamp {
            changed: (-1, 999_999_999),
            inode: u64::MAX,
            size: 7,
            mode: 0o100_644,
        };
        let kinds = [
            Kind::Carried(stamp, [9; 32]),
            Kind::Image(stamp),
            Kind::LeftOut,
        ];
        let paths: [&[u8]; 3] = [b"a\n/\xff", b"b", b"node_modules/"];
        kinds
            .into_iter()
            .zip(paths)
            .map(|(kind, path)| Entry {
                path: path.to_vec(),
                kind,
            })
            .collect()
    }

    #[test]
    fn a_ledger_reads_back_and_one_cut_anywhere_is_none() {
        let bytes = write("name", &some()).unwrap();
        let (front, entries) = read(&bytes).unwrap();
        assert_eq!((front.name.as_str(), front.files), ("name", 1));
        assert_eq!(entries, some());
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(read(&[bytes.as_slice(), b"o\0\0"].concat()), None);
    }

    #[test]
    fn another_format_is_no_ledger() {
        let bytes = write("name", &[]).unwrap();
        let other = String::from_utf8(bytes).unwrap().replace('1', "2");
        assert_eq!(front(other.as_bytes()), None);
        assert_eq!(front(b""), None);
    }
}
