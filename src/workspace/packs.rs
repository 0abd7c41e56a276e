//! The packs of a store: one an import and one a fold of merges, so a large run has thousands. Every git
//! command would look into each of them; one index over all spares that.

use std::sync::atomic::Ordering::Relaxed;

use super::{Error, Store};

/// Packs until they are indexed together again. Below that the index costs more than it spares: with
/// 1,500 packs and none, a command took 200 ms instead of 4 (2026-11-30, two cores, git 2.47).
const EACH: usize = 64;

/// Its name beside the packs.
const INDEX: &str = "objects/pack/multi-pack-index";

impl Store {
    /// A pack came into the store: it is on disk when this returns.
    pub(super) async fn packed(&self) -> Result<(), Error> {
        self.sync(self.dir.join("objects/pack")).await?;
        let before = self.packs.fetch_add(1, Relaxed);
        if before % EACH == EACH - 1 {
            self.index_packs().await;
        }
        Ok(())
    }

    /// An index that an earlier process left is made again where it pays: whatever became of it, the packs
    /// alone count.
    pub(super) async fn index_again(&self) -> Result<(), Error> {
        let io = |source| Error::Io {
            operation: "look over the packs of",
            path: self.dir.clone(),
            source,
        };
        match std::fs::remove_file(self.dir.join(INDEX)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let mut packs = 0;
        for entry in std::fs::read_dir(self.dir.join("objects/pack")).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            packs += usize::from(name.as_encoded_bytes().ends_with(b".pack"));
        }
        if packs >= EACH {
            self.index_packs().await;
        }
        Ok(())
    }

    async fn index_packs(&self) {
        let call = self.call("multi-pack-index");
        let call = call.args(["write", "--no-progress"]);
        // Without it commands are slower and none is wrong; a full disk is told by what needs the room.
        drop(self.git.ask(call, b"").await);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::git::Git;
    use super::super::{Edit, Mode};
    use super::*;
    use crate::id::CommitId;

    async fn commit(store: &Store, n: usize) -> CommitId {
        let edit = Edit::Put {
            path: format!("f{n}").into(),
            mode: Mode::File,
            content: Bytes::from(format!("{n}\n")),
        };
        store.commit(&[], &[edit], "one").await.unwrap()
    }

    #[tokio::test]
    async fn many_packs_have_one_index_and_are_read_without_it_too() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::at("/usr/local/bin:/usr/bin:/bin");
        let path = dir.path().join("s");
        let store = Store::create(git.clone(), &path).await.unwrap();
        let index = path.join(INDEX);
        let mut made = Vec::new();
        for n in 0..EACH - 1 {
            made.push(commit(&store, n).await);
        }
        assert!(!index.exists());
        let started = git.started();
        made.push(commit(&store, EACH).await);
        assert_eq!(git.started() - started, 2, "the import, and the index");
        let call = store.call("multi-pack-index").arg("verify");
        store.git.ask(call, b"").await.unwrap();
        let count = std::fs::read(&index).unwrap();
        // The number of packs stands in its head.
        assert_eq!(count[8..12], u32::try_from(EACH).unwrap().to_be_bytes());
        drop(store);

        for damage in [&b""[..], b"MIDX", &count[..count.len() / 2]] {
            std::fs::write(&index, damage).unwrap();
            let store = Store::open(git.clone(), &path).unwrap();
            store.take_over().await.unwrap();
            assert_eq!(std::fs::read(&index).unwrap(), count);
            for commit in &made {
                store.tree(commit).await.unwrap();
            }
        }
    }
}
