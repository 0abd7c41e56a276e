//! A commit written into a store without a process of its own: as git would write it, byte for byte.

use std::io::Write as _;
use std::path::Path;

use sha1::{Digest, Sha1};

use super::git::{AUTHOR, DATE};
use super::{Error, Store};
use crate::id::{CommitId, TreeId};

/// The most that one stored block of a deflate stream holds, in bytes.
const BLOCK: usize = 0xffff;
/// The modulus of Adler-32 (RFC 1950).
const ADLER: u32 = 65_521;

impl Store {
    /// A commit of a tree the store holds, among this process's merges. Before anything that lasts names
    /// it, it has to be flushed.
    pub(super) fn write_commit(
        &self,
        tree: &TreeId,
        parents: &[CommitId],
        message: &str,
    ) -> Result<CommitId, Error> {
        let object = text(tree, parents, message);
        let name = hex(&Sha1::digest(&object));
        let (folder, rest) = name.split_at(2);
        let folder = self.merging()?.join(folder);
        let written = put(&folder, rest, &object);
        written.map_err(|source| Error::Io {
            operation: "write a commit into",
            path: folder,
            source,
        })?;
        Ok(CommitId::new(name))
    }

    /// Brings merges to disk, by one process whatever their number: as a pack of what they hold beyond
    /// the commits that are there already, which git flushes. Waiting for each of their objects would
    /// take longer than the merges.
    pub async fn flush(&self, made: &[CommitId], there: &[CommitId]) -> Result<(), Error> {
        if made.is_empty() {
            return Ok(());
        }
        let mut list = String::new();
        for commit in made {
            list.push_str(&format!("{commit}\n"));
        }
        for commit in there.iter().filter(|commit| !made.contains(commit)) {
            list.push_str(&format!("^{commit}\n"));
        }
        let call = self
            .among_merges("pack-objects")?
            .args(["--revs", "--quiet", "--window=0"])
            .arg(self.dir.join("objects/pack/pack"));
        self.git.ask(call, list.as_bytes()).await?;
        self.packed().await
    }
}

/// The object as git names it: kind, length, NUL, content.
fn text(tree: &TreeId, parents: &[CommitId], message: &str) -> Vec<u8> {
    let mut body = format!("tree {tree}\n");
    for parent in parents {
        body.push_str(&format!("parent {parent}\n"));
    }
    body.push_str(&format!(
        "author {AUTHOR} {DATE} +0000\ncommitter {AUTHOR} {DATE} +0000\n\n{message}\n"
    ));
    format!("commit {}\0{body}", body.len()).into_bytes()
}

fn put(folder: &Path, name: &str, object: &[u8]) -> std::io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut file = tempfile::Builder::new()
        .prefix("tmp_obj_")
        .tempfile_in(folder)?;
    file.write_all(&stored(object))?;
    // Under this name there can only be this content.
    file.persist(folder.join(name))
        .map_err(|error| error.error)?;
    Ok(())
}

/// A zlib stream that holds its content as it is (RFC 1950 and 1951, stored blocks).
fn stored(content: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks = content.chunks(BLOCK);
    let last = blocks.len().saturating_sub(1);
    for (at, block) in blocks.enumerate() {
        let length = block.len() as u16;
        stream.push(u8::from(at == last));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in content {
        a = (a + u32::from(byte)) % ADLER;
        b = (b + a) % ADLER;
    }
    stream.extend((b << 16 | a).to_be_bytes());
    stream
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::git::Git;
    use super::*;

    /// git reads it, finds nothing wrong with it, and would have given it the same name.
    #[tokio::test]
    async fn a_commit_is_the_one_that_git_would_write() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::at("/usr/local/bin:/usr/bin:/bin");
        let store = Store::create(git, dir.path().join("s")).await.unwrap();
        let base = store.commit(&[], &[], "base").await.unwrap();
        let tree = store.tree(&base).await.unwrap();
        let long = "x".repeat(3 * BLOCK + 7);
        let both = [base.clone(), base.clone()];
        for (parents, message) in [
            (&both[..0], "none"),
            (&both[..1], "m\u{e9}\n\nmore"),
            (&both, &long),
        ] {
            let ours = store.write_commit(&tree, parents, message).unwrap();
            let shown = store
                .git
                .ask(store.call("cat-file").args(["commit", ours.as_str()]), b"");
            let shown = shown.await.unwrap();
            let call = store.call("hash-object").args(["-t", "commit", "--stdin"]);
            let again = store.git.try_ask(call, &shown).await.unwrap().stdout;
            assert_eq!(String::from_utf8(again).unwrap().trim(), ours.as_str());
            let header = format!("commit {}\0", shown.len());
            assert_eq!(
                [header.as_bytes(), &shown].concat(),
                text(&tree, parents, message)
            );
            assert_eq!(store.write_commit(&tree, parents, message).unwrap(), ours);
        }
        let checked = store
            .git
            .ask(store.call("fsck").args(["--strict", "--full"]), b"");
        checked.await.unwrap();
    }
}
