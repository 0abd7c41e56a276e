//! New objects on their way into the operator's repository: all of them arrive, or nothing does.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use bytes::Bytes;

use super::git::{Call, Git};
use super::{Error, Store, branch, import, path};
use crate::id::CommitId;

/// A repository of no one's, which sees the store and the operator's objects and keeps what is new
/// until all of it is there.
pub(super) struct Quarantine {
    dir: tempfile::TempDir,
    /// Where the operator's repository keeps its objects.
    objects: PathBuf,
}

impl Quarantine {
    pub async fn new(store: &Store, source: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            operation: "prepare the branch in",
            path: store.dir.clone(),
            source,
        };
        branch::object_format(&store.git, source).await?;
        let call = Call::new("rev-parse", source).args([
            "--path-format=absolute",
            "--git-path",
            "objects",
        ]);
        let answer = store.git.ask(call, b"").await?;
        let objects = answer.strip_suffix(b"\n").unwrap_or(&answer);
        let dir = tempfile::Builder::new()
            .prefix("delivery-")
            .tempdir_in(&store.dir)
            .map_err(io)?;
        let call = Call::new("init", dir.path()).args(["--quiet", "--bare", "--template=", "."]);
        store.git.ask(call, b"").await?;
        let own = store.dir.join("objects");
        let mut alternates = path::quoted(own.as_os_str().as_encoded_bytes());
        alternates.push(b'\n');
        alternates.extend(path::quoted(objects));
        alternates.push(b'\n');
        let info = dir.path().join("objects/info");
        std::fs::create_dir_all(&info).map_err(io)?;
        std::fs::write(info.join("alternates"), alternates).map_err(io)?;
        let objects = path::as_path(objects).to_owned();
        Ok(Self { dir, objects })
    }

    /// Its repository.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes all that a commit holds and came from as one pack, complete in itself; where it lies.
    pub async fn pack(&self, git: &Git, commit: &CommitId) -> Result<PathBuf, Error> {
        let (pack, list) = (self.dir().join("all.pack"), self.dir().join("all.list"));
        self.write(git, (&pack, &list), &format!("{commit}\n"), &[])
            .await?;
        Ok(pack)
    }

    /// Writes a pack's index beside it.
    pub async fn index(&self, git: &Git, pack: &Path) -> Result<(), Error> {
        let call = Call::bare("index-pack", self.dir())
            .arg("-o")
            .arg(pack.with_extension("idx"))
            .arg(pack);
        git.ask(call, b"").await.map(drop)
    }

    /// Packs what a list of revisions names.
    async fn write(
        &self,
        git: &Git,
        (pack, list): (&Path, &Path),
        revisions: &str,
        more: &[&str],
    ) -> Result<(), Error> {
        let io = |source| Error::Io {
            operation: "write a pack in",
            path: pack.to_owned(),
            source,
        };
        std::fs::write(list, revisions).map_err(io)?;
        let input = std::fs::File::open(list).map_err(io)?;
        let out = std::fs::File::create(pack).map_err(io)?;
        let call = Call::bare("pack-objects", self.dir())
            .args(["--revs", "--stdout", "-q"])
            .args(more);
        git.through(call, Stdio::from(input), Some(out))
            .await
            .map(drop)
    }

    /// Makes the commits; the last one.
    pub async fn import(
        &self,
        git: &Git,
        commits: usize,
        lines: Vec<Bytes>,
    ) -> Result<CommitId, Error> {
        let end = [import::ask_mark(commits), import::done()];
        let lines = futures::stream::iter(lines.into_iter().chain(end));
        // Kept as a pack: writing them one by one, git renews the times of those that the operator's
        // repository has already.
        let call = import::call(self.dir.path()).set("fastimport.unpackLimit=0");
        let ids = import::run(git, call, lines).await?;
        import::only(ids)
    }

    /// Adds what the operator's repository lacks, as one pack.
    pub async fn hand_over(
        &self,
        git: &Git,
        source: &Path,
        commit: &CommitId,
        head: Option<&str>,
    ) -> Result<(), Error> {
        let pack = self.dir.path().join("new.pack");
        let list = self.dir.path().join("new.list");
        let io = |source| Error::Io {
            operation: "pack the branch in",
            path: pack.clone(),
            source,
        };
        let less = head.map(|head| format!("^{head}\n")).unwrap_or_default();
        let revisions = format!("{commit}\n{less}");
        self.write(git, (&pack, &list), &revisions, &["--no-reuse-delta"])
            .await?;
        let objects = path::quoted(self.objects.as_os_str().as_encoded_bytes());
        // In a directory of its own: what a failure leaves there goes with it, and can be told from
        // what somebody else is writing at the same time. git itself prunes one of this name.
        let incoming = tempfile::Builder::new()
            .prefix("tmp_objdir-wharf-")
            .tempdir_in(&self.objects)
            .map_err(io)?;
        // From a sub-directory index-pack would write beside the workspace instead of into the
        // repository (seen with 2.47), so it is told the repository.
        let call = Call::new("rev-parse", source).arg("--absolute-git-dir");
        let answer = git.ask(call, b"").await?;
        let repository = path::as_path(answer.strip_suffix(b"\n").unwrap_or(&answer));
        let call = Call::bare("index-pack", repository)
            .arg("--stdin")
            .env("GIT_OBJECT_DIRECTORY", incoming.path())
            // A list with colons, where quotes keep one that is part of a path.
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", path::as_path(&objects));
        let packed = std::fs::File::open(&pack).map_err(io)?;
        git.through(call, Stdio::from(packed), None).await?;
        take_in(&incoming.path().join("pack"), &self.objects.join("pack")).map_err(io)
    }
}

/// Moves a pack's files; its index last, for that is what makes the pack one.
fn take_in(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(from)? {
        names.push(entry?.file_name());
    }
    names.sort_by_key(|name| Path::new(name).extension().is_some_and(|end| end == "idx"));
    for name in names {
        std::fs::rename(from.join(&name), to.join(&name))?;
    }
    std::fs::File::open(to)?.sync_all()
}
