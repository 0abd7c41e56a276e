//! The run's own bare repository: commits written by content, trees and files read back.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::git::{Call, Git, object_id, unreadable};
use super::{Edit, Error, File, Mode, import, path};
use crate::id::{BlobId, CommitId, TreeId};

/// No attribute in any tree may change how content is stored, merged or compared.
pub(super) const ATTRIBUTES: &str = "* -text !merge !diff !eol !crlf !filter !ident !working-tree-encoding \
                          !conflict-marker-size !whitespace !export-subst !export-ignore\n";

/// A bare repository that only Wharf writes.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) dir: PathBuf,
    pub(super) git: Git,
    /// Where Wharf keeps its own files.
    pub(super) own: Option<PathBuf>,
    /// Where this process merges; made by the first one.
    pub(super) merging: Arc<OnceLock<tempfile::TempDir>>,
    /// Packs that this process added.
    pub(super) packs: Arc<AtomicUsize>,
}

impl Store {
    /// Makes the store at a path that does not exist yet; parents are made as needed. It is on disk when
    /// this returns.
    pub async fn create(git: Git, dir: impl Into<PathBuf>) -> Result<Self, Error> {
        let dir = dir.into();
        let io = |operation| {
            let path = dir.clone();
            move |source| Error::Io {
                operation,
                path,
                source,
            }
        };
        std::fs::create_dir_all(&dir).map_err(io("make the store"))?;
        let init = Call::new("init", &dir).args([
            "--quiet",
            "--bare",
            "--template=",
            "--object-format=sha1",
            ".",
        ]);
        git.ask(init, b"").await?;
        std::fs::create_dir_all(dir.join("info")).map_err(io("make the store"))?;
        std::fs::write(dir.join("info/attributes"), ATTRIBUTES).map_err(io("set up the store"))?;
        let store = Self::open(git, dir)?;
        store.sync_new().await?;
        Ok(store)
    }

    /// Opens a store made earlier.
    pub fn open(git: Git, dir: impl Into<PathBuf>) -> Result<Self, Error> {
        let dir = dir.into();
        let dir = std::fs::canonicalize(&dir).map_err(|source| Error::Io {
            operation: "open the store",
            path: dir.clone(),
            source,
        })?;
        std::fs::metadata(dir.join("objects")).map_err(|source| Error::Io {
            operation: "open the store",
            path: dir.join("objects"),
            source,
        })?;
        Ok(Self {
            dir,
            git,
            own: None,
            merging: Arc::default(),
            packs: Arc::default(),
        })
    }

    /// Where the store is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How many git processes this store has started.
    pub fn processes(&self) -> u64 {
        self.git.started()
    }

    /// A command that reads, the merges of this process included, or that names what it is told. None
    /// that writes objects: git would not write those that it sees.
    pub(super) fn call(&self, operation: &'static str) -> Call {
        let call = Call::bare(operation, &self.dir);
        match self.merging.get() {
            Some(dir) => {
                let dir = path::quoted(dir.path().as_os_str().as_encoded_bytes());
                call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", path::as_path(&dir))
            }
            None => call,
        }
    }

    /// Commits edits on top of the first parent's tree; one process. The commit is on disk when this
    /// returns. Equal content, parents and
    /// message give an equal id. Paths that git or a file system could take for more are refused.
    pub async fn commit(
        &self,
        parents: &[CommitId],
        edits: &[Edit],
        message: &str,
    ) -> Result<CommitId, Error> {
        let from = match parents {
            [] => import::From::Nothing,
            _ => import::From::Commits(parents),
        };
        let mut lines = vec![import::header(
            &fresh_ref(),
            1,
            import::FIXED,
            message,
            &from,
        )];
        lines.extend(import::edits(edits)?);
        lines.extend([import::ask_mark(1), import::done()]);
        let lines = futures::stream::iter(lines);
        import::only(self.import(lines).await?)
    }

    /// The tree a commit shows.
    pub async fn tree(&self, commit: &CommitId) -> Result<TreeId, Error> {
        let call = self
            .call("rev-parse")
            .args(["--verify", "--end-of-options"])
            .arg(format!("{commit}^{{tree}}"));
        let line = self.git.line(call).await?;
        object_id("rev-parse", &line).map(TreeId::new)
    }

    /// Every file of a commit, sorted by path as git sorts.
    pub async fn files(&self, commit: &CommitId) -> Result<Vec<File>, Error> {
        let call = self
            .call("ls-tree")
            .args(["-r", "-z", "-l", "--full-tree"])
            .arg(commit.as_str());
        parse_files(&self.git.ask(call, b"").await?)
    }

    /// The content of one file of a commit; None where the commit has no such file.
    pub async fn blob(&self, commit: &CommitId, path: &[u8]) -> Result<Option<Bytes>, Error> {
        let call = self
            .call("ls-tree")
            .args(["-z", "-l", "--full-tree"])
            .args([commit.as_str(), "--"])
            .arg(path::as_path(path));
        let answer = self.git.ask(call, b"").await?;
        if answer.starts_with(b"040000 ") {
            return Ok(None);
        }
        match parse_files(&answer)?.first() {
            Some(file) if file.path == path => Ok(Some(self.content(&file.blob).await?)),
            _ => Ok(None),
        }
    }

    pub(super) async fn content(&self, blob: &BlobId) -> Result<Bytes, Error> {
        let call = self.call("cat-file").args(["blob", blob.as_str()]);
        Ok(self.git.ask(call, b"").await?.into())
    }
}

/// A ref of its own for each import, so that imports beside each other never share a lock.
pub(super) fn fresh_ref() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "refs/wharf/{}-{}-{}",
        now.as_nanos(),
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// The fields of a NUL-separated answer, without the empty one after the last.
pub(super) fn fields(answer: &[u8]) -> impl Iterator<Item = &[u8]> {
    let body = answer.strip_suffix(&[0]).unwrap_or(answer);
    let some = if answer.is_empty() { None } else { Some(body) };
    some.into_iter()
        .flat_map(|body| body.split(|&byte| byte == 0))
}

/// A file's kind by git's mode; None for folders, submodules and what git does not write.
pub(super) fn mode_of(octal: &str) -> Option<Mode> {
    match octal {
        "100644" | "100664" => Some(Mode::File),
        "100755" => Some(Mode::Executable),
        "120000" => Some(Mode::Link),
        _ => None,
    }
}

fn parse_files(answer: &[u8]) -> Result<Vec<File>, Error> {
    fields(answer)
        .map(|line| parse_file(line).ok_or_else(|| unreadable("ls-tree", &path::display(line))))
        .collect()
}

fn parse_file(line: &[u8]) -> Option<File> {
    let tab = line.iter().position(|&byte| byte == b'\t')?;
    let mut words = std::str::from_utf8(&line[..tab])
        .ok()?
        .split_ascii_whitespace();
    let mode = mode_of(words.next()?)?;
    (words.next()? == "blob").then_some(())?;
    Some(File {
        path: line[tab + 1..].to_vec(),
        mode,
        blob: BlobId::new(object_id("ls-tree", words.next()?).ok()?),
        size: words.next()?.parse().ok()?,
    })
}
