//! The ignore rules of a run: those of its base. What only rules leave out that agents wrote is no build
//! output that somebody wanted gone, and is told apart.

use std::collections::BTreeMap;
use std::io;

use bytes::BytesMut;
use futures::StreamExt as _;

use crate::run::judge::additions::IGNORED;
use crate::sandbox::{BY_RULES, IgnoreRules, Mode, Tree};

/// Most bytes read of a `.gitignore`, as in a sandbox.
const LARGEST: u64 = 1 << 20;

/// Why a path is left out that no rule of the base names.
pub(in crate::run) const OWN: &str = "ignored only by a .gitignore that was written in this run";

/// The `.gitignore` files of the base, by their folder; the top is empty.
#[derive(Default)]
pub(in crate::run) struct BaseRules(BTreeMap<Vec<u8>, IgnoreRules>);

impl BaseRules {
    /// Reads those of a tree.
    pub async fn of(tree: &Tree) -> io::Result<Self> {
        let files = tree.entries.iter();
        let files = files.filter(|(path, entry)| is_one(path) && entry.mode != Mode::Link);
        let files: Vec<_> = files.filter(|(_, entry)| entry.size <= LARGEST).collect();
        let mut rules = Self::default();
        if files.is_empty() {
            return Ok(rules);
        }
        let ids = files.iter().map(|(_, entry)| entry.id.clone()).collect();
        let (mut chunks, mut bytes) = (tree.contents.read(ids), BytesMut::new());
        for (path, entry) in files {
            let size = usize::try_from(entry.size).map_err(io::Error::other)?;
            while bytes.len() < size {
                let chunk = chunks.next().await;
                let chunk = chunk.ok_or(io::ErrorKind::UnexpectedEof)??;
                bytes.extend_from_slice(&chunk);
            }
            rules.add(folder_of(path), &bytes.split_to(size));
        }
        Ok(rules)
    }

    fn add(&mut self, folder: &[u8], text: &[u8]) {
        let mut rules = IgnoreRules::default();
        rules.add(folder, text);
        self.0.insert(folder.to_vec(), rules);
    }

    /// A reason as it is told: which rules it was says only the base. `path` is a folder's when it ends
    /// with a slash.
    pub fn told(&self, path: &[u8], why: String) -> String {
        if why != BY_RULES {
            return why;
        }
        match self.leave_out(path) {
            true => IGNORED.to_owned(),
            false => OWN.to_owned(),
        }
    }

    /// True when these rules leave the path out, or a folder that it lies in.
    fn leave_out(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut folders = slashes.map(|(at, _)| &path[..at]);
        folders.any(|folder| self.names(folder, true))
            || (!path.ends_with(b"/") && self.names(path, false))
    }

    /// The innermost folder's rules speak first.
    fn names(&self, path: &[u8], folder: bool) -> bool {
        let mut at = path;
        while !at.is_empty() {
            at = folder_of(at);
            if let Some(said) = self.0.get(at).and_then(|rules| rules.judge(path, folder)) {
                return said;
            }
        }
        false
    }
}

fn is_one(path: &[u8]) -> bool {
    path == b".gitignore" || path.ends_with(b"/.gitignore")
}

fn folder_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    &path[..slash.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_of_the_base_make_build_output() {
        let mut rules = BaseRules::default();
        rules.add(b"", b"*.log\n/out/\n");
        rules.add(b"sub", b"!kept.log\n*.tmp\n");
        let told = |path: &str| rules.told(path.as_bytes(), BY_RULES.to_owned());
        for path in [
            "a.log",
            "sub/a.log",
            "out/",
            "out/deep/a",
            "sub/x/a.tmp",
            "x.log/",
        ] {
            assert_eq!(told(path), IGNORED, "{path}");
        }
        for path in [
            "a",
            "sub/kept.log",
            "sub/out/",
            "a.tmp",
            "out",
            ".gitignore",
        ] {
            assert_eq!(told(path), OWN, "{path}");
        }
        assert_eq!(rules.told(b"a.log", "a FIFO".to_owned()), "a FIFO");
    }
}
