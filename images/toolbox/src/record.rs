//! Files on the stream: a header, a path, content; and the manifest that proves a tree arrived.
//!
//! A record is its kind (u8), the length of the path (u16), the size of the content (u64), both
//! little endian, then the path and the content. Kept entries and deletions have no content.

use sha2::{Digest, Sha256};

use crate::wire::Fault;

/// Longest path on the stream, as the kernel has it.
pub const MAX_PATH: usize = 4096;
const HEADER: usize = 11;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The entry and its content (for a link its target).
    Put(Mode),
    /// The entry lies there already, from the image's layer.
    Keep(Mode),
    /// The entry is no more.
    Delete,
    /// The entry is not carried; the content is the reason.
    LeftOut,
}

/// As git tells modes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// 644.
    File,
    /// 755.
    Executable,
    /// A symbolic link.
    Link,
}

/// Everything of a record but its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it says.
    pub kind: Kind,
    /// Relative to the workspace.
    pub path: Vec<u8>,
    /// Bytes of the entry; those of a kept one do not follow.
    pub size: u64,
}

impl Header {
    /// Bytes of content that follow on the stream.
    pub fn follows(&self) -> u64 {
        match self.kind {
            Kind::Put(_) | Kind::LeftOut => self.size,
            Kind::Keep(_) | Kind::Delete => 0,
        }
    }

    /// Appends the header as it crosses the stream; fails on a path over `MAX_PATH`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let length = u16::try_from(self.path.len()).unwrap_or(u16::MAX);
        if usize::from(length) > MAX_PATH {
            return Err(Fault::Length(self.path.len()));
        }
        out.push(self.kind.byte());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.path);
        Ok(())
    }

    /// The first header of `bytes` and its length, or nothing when more are needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Header, usize)>, Fault> {
        let Some(fixed) = bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let kind = Kind::of(fixed[0])?;
        let length = usize::from(u16::from_le_bytes([fixed[1], fixed[2]]));
        if length == 0 || length > MAX_PATH {
            return Err(Fault::Length(length));
        }
        let mut size = [0; 8];
        size.copy_from_slice(&fixed[3..]);
        let Some(path) = bytes.get(HEADER..HEADER + length) else {
            return Ok(None);
        };
        let header = Header {
            kind,
            path: path.to_vec(),
            size: u64::from_le_bytes(size),
        };
        Ok(Some((header, HEADER + length)))
    }
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Kind::Put(mode) => mode.letter(),
            Kind::Keep(mode) => mode.letter().to_ascii_uppercase(),
            Kind::Delete => b'd',
            Kind::LeftOut => b'o',
        }
    }

    fn of(byte: u8) -> Result<Kind, Fault> {
        let mode = |letter| match letter {
            b'f' => Some(Mode::File),
            b'x' => Some(Mode::Executable),
            b'l' => Some(Mode::Link),
            _ => None,
        };
        match (byte, mode(byte), mode(byte.to_ascii_lowercase())) {
            (b'd', ..) => Ok(Kind::Delete),
            (b'o', ..) => Ok(Kind::LeftOut),
            (_, Some(mode), _) => Ok(Kind::Put(mode)),
            (_, None, Some(mode)) => Ok(Kind::Keep(mode)),
            _ => Err(Fault::Kind(byte)),
        }
    }
}

impl Mode {
    fn letter(self) -> u8 {
        match self {
            Mode::File => b'f',
            Mode::Executable => b'x',
            Mode::Link => b'l',
        }
    }
}

/// SHA-256 over one line an entry, in order of the paths as bytes:
/// path NUL letter NUL size NUL content LF, where the letter is `f`, `x` or `l`, the size is
/// decimal and the content its SHA-256 in hex, or `-` for an entry that lay there already. Deleted
/// paths stand before them: path NUL `gone` LF.
#[derive(Default)]
pub struct Manifest(Sha256);

impl Manifest {
    /// Over what differs from a tree that lies there under a name.
    pub fn above(name: &str) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.0.update(b"above\0");
        manifest.0.update(name);
        manifest.0.update([b'\n']);
        manifest
    }

    /// A path that was deleted and is gone.
    pub fn gone(&mut self, path: &[u8]) {
        self.0.update(path);
        self.0.update(b"\0gone\n");
    }

    /// One entry; callers add them in order.
    pub fn add(&mut self, path: &[u8], mode: Mode, size: u64, content: Option<&[u8; 32]>) {
        self.0.update(path);
        self.0.update([0, mode.letter(), 0]);
        self.0.update(size.to_string());
        self.0.update([0]);
        self.0.update(content.map_or_else(|| "-".to_owned(), hex));
        self.0.update([b'\n']);
    }

    /// An entry that ought to be there and is not, or is something else.
    pub fn miss(&mut self, path: &[u8]) {
        self.0.update(path);
        self.0.update(b"\0missing\n");
    }

    /// The hash in hex.
    pub fn finish(self) -> String {
        hex(&self.0.finalize().into())
    }
}

fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// True for a path of plain components: none empty, `.`, `..`, or `.git` in any case.
pub fn plain(path: &[u8]) -> bool {
    path.len() <= MAX_PATH
        && !path.contains(&0)
        && path
            .split(|&byte| byte == b'/')
            .all(|part| !matches!(part, b"" | b"." | b"..") && !part.eq_ignore_ascii_case(b".git"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_waits_for_its_last_byte() {
        for kind in [
            Kind::Put(Mode::File),
            Kind::Put(Mode::Executable),
            Kind::Put(Mode::Link),
            Kind::Keep(Mode::File),
            Kind::Keep(Mode::Executable),
            Kind::Keep(Mode::Link),
            Kind::Delete,
            Kind::LeftOut,
        ] {
            let header = Header {
                kind,
                path: b"a\n/\xff".to_vec(),
                size: u64::MAX,
            };
            let mut bytes = Vec::new();
            header.encode(&mut bytes).unwrap();
            for cut in 0..bytes.len() {
                assert_eq!(Header::decode(&bytes[..cut]), Ok(None), "cut at {cut}");
            }
            bytes.push(b'!');
            assert_eq!(Header::decode(&bytes), Ok(Some((header, bytes.len() - 1))));
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_not_plain() {
        for bad in [
            "", "/a", "a/", "a//b", "./a", "a/..", ".git", "a/.GIT/x", "a\0b",
        ] {
            assert!(!plain(bad.as_bytes()), "{bad:?}");
        }
        for good in ["a", "-rf", "a/b\n", ".gitignore", "..a", "a/.github/x"] {
            assert!(plain(good.as_bytes()), "{good:?}");
        }
    }

    #[test]
    fn a_manifest_tells_content_mode_and_absence_apart() {
        let of = |f: &dyn Fn(&mut Manifest)| {
            let mut manifest = Manifest::default();
            f(&mut manifest);
            manifest.finish()
        };
        let all = [
            of(&|_| ()),
            of(&|m| m.add(b"a", Mode::File, 1, None)),
            of(&|m| m.add(b"a", Mode::Executable, 1, None)),
            of(&|m| m.add(b"a", Mode::File, 1, Some(&[0; 32]))),
            of(&|m| m.miss(b"a")),
            of(&|m| m.gone(b"a")),
            of(&|m| *m = Manifest::above("a")),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|other| other != one));
        }
    }
}
