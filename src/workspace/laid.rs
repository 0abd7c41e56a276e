//! The attributes of a tree that is not checked out: its `.gitattributes` files alone, laid where git reads
//! them, for the operator's repository to be asked by.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::attributes::FILE;
use super::git::{Call, Git};
use super::store::fields;
use super::{Base, Error, Mode, Store, path};
use crate::id::CommitId;

/// A larger file of attributes is ignored, as git does. Bytes.
const LARGEST: u64 = 100 << 20;

/// A folder that stands for a working tree with nothing but its attributes.
pub(super) struct Laid {
    dir: tempfile::TempDir,
    git_dir: PathBuf,
    prefix: PathBuf,
}

impl Laid {
    /// A command in the operator's repository, as if this were its working tree. What the index holds is
    /// not asked: a file of attributes that is gone must not speak from there.
    pub fn call(&self, operation: &'static str) -> Call {
        Call::new(operation, &self.tree().join(&self.prefix))
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_WORK_TREE", self.tree())
            .env("GIT_INDEX_FILE", self.dir.path().join("no-index"))
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }
}

impl Store {
    /// Lays out the attributes of a commit, at the workspace's place in the operator's repository.
    pub(super) async fn lay_attributes(
        &self,
        source: &Path,
        base: &Base,
        commit: &CommitId,
    ) -> Result<Laid, Error> {
        let call = Call::new("rev-parse", source).arg("--absolute-git-dir");
        let answer = self.git.ask(call, b"").await?;
        let git_dir = path::as_path(answer.strip_suffix(b"\n").unwrap_or(&answer)).to_owned();
        let dir = tempfile::Builder::new()
            .prefix("attributes-")
            .tempdir_in(&self.dir)
            .map_err(|error| self.unlaid(error))?;
        let prefix = path::as_path(base.prefix.as_bytes()).to_owned();
        let laid = Laid {
            dir,
            git_dir,
            prefix,
        };
        let place = laid.tree().join(&laid.prefix);
        std::fs::create_dir_all(&place).map_err(|error| self.unlaid(error))?;
        self.lay_outer(source, &laid)?;
        let files = self.files(commit).await?;
        let files = files
            .into_iter()
            .filter(|file| is_one(&file.path) && file.mode != Mode::Link && file.size <= LARGEST);
        for file in files {
            let content = self.content(&file.blob).await?;
            let at = place.join(path::as_path(&file.path));
            put(&at, &content).map_err(|error| self.unlaid(error))?;
        }
        Ok(laid)
    }

    /// What stands above the workspace in its repository is nobody's but the operator's.
    fn lay_outer(&self, source: &Path, laid: &Laid) -> Result<(), Error> {
        // The way that leads there may be a link into the repository.
        let source = std::fs::canonicalize(source).map_err(|error| self.unlaid(error))?;
        let above = laid.prefix.ancestors().skip(1);
        let name = path::as_path(FILE);
        for (inner, from) in above.zip(source.ancestors().skip(1)) {
            let content = read(&from.join(name)).map_err(|error| self.unlaid(error))?;
            if let Some(content) = content {
                let at = laid.tree().join(inner).join(name);
                put(&at, &content).map_err(|error| self.unlaid(error))?;
            }
        }
        Ok(())
    }

    fn unlaid(&self, source: std::io::Error) -> Error {
        Error::Io {
            operation: "lay out attributes in",
            path: self.dir.clone(),
            source,
        }
    }
}

/// True for the path of a file of attributes.
pub(super) fn is_one(at: &[u8]) -> bool {
    at.rsplit(|&byte| byte == b'/').next() == Some(FILE)
}

/// Of these filters those that the operator's repository itself says how to run.
pub(super) async fn configured(git: &Git, source: &Path) -> Result<BTreeSet<Vec<u8>>, Error> {
    let call = Call::new("config", source).args([
        "--includes",
        "--name-only",
        "-z",
        "--get-regexp",
        "^filter\\.",
    ]);
    let output = git.try_ask(call, b"").await?;
    let name = |key: &[u8]| {
        let rest = key.strip_prefix(b"filter.")?;
        let dot = rest.iter().rposition(|&byte| byte == b'.')?;
        Some(rest[..dot].to_vec())
    };
    match output.code {
        0 => Ok(fields(&output.stdout).filter_map(name).collect()),
        1 => Ok(BTreeSet::new()),
        _ => Err(output.into_error("config")),
    }
}

fn put(at: &Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = at.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(at, content)
}

/// A plain file's content; None where there is none. A link is followed by git as little as here.
fn read(at: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = match std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(at)
    {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.take(LARGEST).read_to_end(&mut content)?;
    Ok(Some(content))
}

fn is_absent(error: &std::io::Error) -> bool {
    let raw = error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error);
    matches!(
        raw,
        Some(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP)
    )
}
