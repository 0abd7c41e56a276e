//! What a journal's line may rely on is on disk before it: git syncs the files it writes and never the
//! folders that their names stand in.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::Stream;

use super::git::Call;
use super::{Error, Store, import, path, store};
use crate::id::CommitId;

impl Store {
    /// Runs an import; what it made is on disk when this returns. Its objects stay the one pack that they
    /// came as: two files and a folder to wait for, whatever their number.
    pub(super) async fn import(
        &self,
        lines: impl Stream<Item = Bytes> + Send,
    ) -> Result<Vec<CommitId>, Error> {
        let call = import::call(&self.dir).set("fastimport.unpackLimit=0");
        let ids = import::run(&self.git, call, lines).await?;
        self.packed().await?;
        Ok(ids)
    }

    /// Everything in a store that was just made, its own name included.
    pub(super) async fn sync_new(&self) -> Result<(), Error> {
        let mut all = vec![self.dir.clone()];
        let mut at = 0;
        while at < all.len() {
            let below = std::fs::read_dir(&all[at]).map_err(|error| self.unsynced(error))?;
            for entry in below {
                let entry = entry.map_err(|error| self.unsynced(error))?;
                let kind = entry.file_type().map_err(|error| self.unsynced(error))?;
                match kind.is_dir() {
                    true => all.push(entry.path()),
                    false => self.sync(entry.path()).await?,
                }
            }
            at += 1;
        }
        all.extend(self.dir.parent().map(Path::to_owned));
        for folder in all {
            self.sync(folder).await?;
        }
        Ok(())
    }

    /// The names of refs below `refs/wharf`, and of the folders that they stand in.
    pub(super) async fn sync_refs(&self, reference: &str) -> Result<(), Error> {
        let mut folder = self.dir.join(reference);
        while folder.pop() && folder != self.dir {
            self.sync(folder.clone()).await?;
        }
        Ok(())
    }

    /// A file or a folder. What it takes is waited for beside everything else that goes on.
    pub(super) async fn sync(&self, path: PathBuf) -> Result<(), Error> {
        let synced = tokio::task::spawn_blocking(move || File::open(path)?.sync_all());
        let synced = synced.await.map_err(std::io::Error::other);
        synced
            .and_then(|done| done)
            .map_err(|error| self.unsynced(error))
    }

    fn unsynced(&self, source: std::io::Error) -> Error {
        Error::Io {
            operation: "bring to disk what is new in",
            path: self.dir.clone(),
            source,
        }
    }

    /// Where merges lie until `flush`, beside the store's own objects: none of them is waited for one by
    /// one, and a power loss may leave half of one. So they lie in a folder that goes with this process:
    /// git takes an object for written when a file of its name is there, whatever is in it.
    pub(super) fn merging(&self) -> Result<&Path, Error> {
        if let Some(dir) = self.merging.get() {
            return Ok(dir.path());
        }
        let dir = tempfile::Builder::new()
            .prefix(MERGING)
            .tempdir_in(&self.dir)
            .map_err(|source| Error::Io {
                operation: "make room for merges in",
                path: self.dir.clone(),
                source,
            })?;
        Ok(self.merging.get_or_init(|| dir).path())
    }

    /// A command that writes among the merges of this process.
    pub(super) fn among_merges(&self, operation: &'static str) -> Result<Call, Error> {
        let own = path::quoted(self.dir.join("objects").as_os_str().as_encoded_bytes());
        Ok(Call::bare(operation, &self.dir)
            .env("GIT_OBJECT_DIRECTORY", self.merging()?)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", path::as_path(&own)))
    }

    /// Makes the store of an earlier process fit to go on with: without the merges that it had under way,
    /// and with the attributes that keep those of any tree from deciding. Only for whoever holds the
    /// run's lock.
    ///
    /// # Errors
    /// What cannot be read, removed or written.
    pub async fn take_over(&self) -> Result<(), Error> {
        self.drop_merges()?;
        self.index_again().await?;
        let path = self.dir.join("info/attributes");
        if std::fs::read(&path).is_ok_and(|text| text == store::ATTRIBUTES.as_bytes()) {
            return Ok(());
        }
        let written = std::fs::create_dir_all(self.dir.join("info"))
            .and_then(|()| std::fs::write(&path, store::ATTRIBUTES));
        written.map_err(|error| self.unsynced(error))?;
        for path in [path, self.dir.join("info"), self.dir.clone()] {
            self.sync(path).await?;
        }
        Ok(())
    }

    fn drop_merges(&self) -> Result<(), Error> {
        let io = |source| Error::Io {
            operation: "remove old merges in",
            path: self.dir.clone(),
            source,
        };
        for entry in std::fs::read_dir(&self.dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(MERGING.as_bytes())
            {
                std::fs::remove_dir_all(entry.path()).map_err(io)?;
            }
        }
        Ok(())
    }
}

/// A folder of the operator's, in which a name is new. One that may only be written into, and a file
/// system that syncs no folders, keep names in their own way.
pub(super) fn sync_theirs(folder: &Path) -> std::io::Result<()> {
    use std::io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

/// Begins the name of a folder of merges.
const MERGING: &str = "merging-";

#[cfg(test)]
mod tests {
    use super::super::git::Git;
    use super::super::{Edit, Merged, Mode};
    use super::*;

    fn put(path: &str, content: &str) -> Edit {
        Edit::Put {
            path: path.into(),
            mode: Mode::File,
            content: Bytes::copy_from_slice(content.as_bytes()),
        }
    }

    fn loose(dir: &Path) -> usize {
        let folders = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap());
        let hex = |name: &[u8]| name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit);
        folders
            .filter(|f| hex(f.file_name().as_encoded_bytes()))
            .count()
    }

    /// Half of a merge must never stand among the objects that a later process takes for written.
    #[tokio::test]
    async fn a_merge_that_a_power_loss_cut_is_made_again_whole() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::at("/usr/local/bin:/usr/bin:/bin");
        let store = Store::create(git.clone(), dir.path().join("s"))
            .await
            .unwrap();
        let made = async |parents: &[CommitId], edits: &[Edit]| {
            store.commit(parents, edits, "made").await.unwrap()
        };
        let base = made(&[], &[put("a", "1\n"), put("b", "1\n")]).await;
        let one = made(std::slice::from_ref(&base), &[put("a", "2\n")]).await;
        let two = made(std::slice::from_ref(&base), &[put("b", "2\n")]).await;
        let Merged::Clean(merged) = store.merge(&one, &two).await.unwrap() else {
            panic!("a conflict");
        };
        // It can be read, and nothing of it stands among what lasts.
        let tree = store.tree(&merged).await.unwrap();
        assert_eq!(loose(&dir.path().join("s/objects")), 0);
        let written = store.merging().unwrap().to_owned();
        assert!(loose(&written) > 0);
        // What a power loss leaves: the names, and files without content.
        let kept = dir.path().join("s/merging-cut");
        std::fs::create_dir(&kept).unwrap();
        for folder in std::fs::read_dir(&written).unwrap() {
            let from = folder.unwrap();
            let to = kept.join(from.file_name());
            std::fs::create_dir(&to).unwrap();
            for file in std::fs::read_dir(from.path()).unwrap() {
                std::fs::write(to.join(file.unwrap().file_name()), "").unwrap();
            }
        }
        drop(store);
        assert!(!written.exists());

        let store = Store::open(git, dir.path().join("s")).unwrap();
        let attributes = dir.path().join("s/info/attributes");
        let written = std::fs::read(&attributes).unwrap();
        std::fs::write(&attributes, "").unwrap();
        store.take_over().await.unwrap();
        assert!(!kept.exists());
        assert_eq!(std::fs::read(&attributes).unwrap(), written);
        assert!(store.tree(&merged).await.is_err(), "it was never on disk");
        let Merged::Clean(again) = store.merge(&one, &two).await.unwrap() else {
            panic!("a conflict");
        };
        assert_eq!(again, merged);
        store.flush(&[again], &[one, two]).await.unwrap();
        drop(store);
        let git = Git::at("/usr/local/bin:/usr/bin:/bin");
        let store = Store::open(git, dir.path().join("s")).unwrap();
        assert_eq!(store.tree(&merged).await.unwrap(), tree);
        let checked = store
            .git
            .ask(store.call("fsck").args(["--strict", "--full"]), b"");
        checked.await.unwrap();
    }
}
