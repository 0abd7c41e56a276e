//! A store that sees all of another one and writes nothing into it.

use std::path::PathBuf;

use super::{Error, Git, Store, path};

impl Store {
    /// Makes a store at a path that does not exist yet, which knows every commit of `below` besides its
    /// own. It is worth nothing any more once `below` is gone.
    pub async fn over(git: Git, dir: impl Into<PathBuf>, below: &Self) -> Result<Self, Error> {
        let store = Self::create(git, dir).await?;
        let objects = below.dir.join("objects");
        let mut alternates = path::quoted(objects.as_os_str().as_encoded_bytes());
        alternates.push(b'\n');
        let info = store.dir.join("objects/info");
        let written = std::fs::create_dir_all(&info)
            .and_then(|()| std::fs::write(info.join("alternates"), alternates));
        written.map_err(|source| Error::Io {
            operation: "make a store over another one",
            path: info,
            source,
        })?;
        Ok(store)
    }
}
