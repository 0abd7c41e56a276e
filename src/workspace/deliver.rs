//! The branch in the operator's repository: objects are added, one ref is created, nothing else moves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use bytes::Bytes;

use super::base::Start;
use super::branch::{self, exists, refused};
use super::differences::{Change, Entry};
use super::git::{Call, Git, object_id, one_line};
use super::{Base, Error, GitKind, Step, Store, import, path};
use crate::id::CommitId;

/// The branch that now exists in the operator's repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its name below `refs/heads/`.
    pub branch: String,
    pub commit: CommitId,
}

/// A repository of no one's, which sees the store and the operator's objects and keeps what is new
/// until all of it is there.
struct Quarantine {
    dir: tempfile::TempDir,
}

/// Commits to be made, each from the one before.
struct Plan {
    date: u64,
    lines: Vec<Bytes>,
    commits: usize,
}

impl Store {
    /// Creates a branch: on the HEAD of the base, "working tree at start" where that differed, then
    /// the steps. Refuses a name that exists; making the same branch twice is no error.
    pub async fn deliver_branch(
        &self,
        source: &Path,
        base: &Base,
        name: &str,
        steps: &[Step],
    ) -> Result<Delivered, Error> {
        if base.git == GitKind::None {
            return Err(branch::none());
        }
        let reference = branch::reference(&self.git, source, name).await?;
        let existing = existing(&self.git, source, &reference).await?;
        let start = self.load_start(&base.commit).await?;
        let plan = self.plan(source, base, &start, steps).await?;
        let commit =
            if plan.commits == 0 {
                let head = base.head.as_deref();
                CommitId::new(head.ok_or_else(|| {
                    refused("there is nothing to deliver", "the run changed no file")
                })?)
            } else {
                let quarantine = Quarantine::new(self, source).await?;
                let commit = quarantine.import(&self.git, plan).await?;
                if existing.as_ref() != Some(&commit) {
                    let head = base.head.as_deref();
                    quarantine
                        .hand_over(&self.git, source, &commit, head)
                        .await?;
                }
                commit
            };
        match existing {
            Some(there) if there == commit => {}
            Some(_) => return Err(exists(name)),
            None => create(&self.git, source, &reference, name, &commit).await?,
        }
        Ok(Delivered {
            branch: name.to_owned(),
            commit,
        })
    }

    async fn plan(
        &self,
        source: &Path,
        base: &Base,
        start: &Start,
        steps: &[Step],
    ) -> Result<Plan, Error> {
        let mut plan = Plan {
            date: date(&self.git, source, base.head.as_deref()).await?,
            lines: Vec::new(),
            commits: 0,
        };
        let prefix = base.prefix.as_bytes();
        if !(start.put.is_empty() && start.delete.is_empty()) {
            plan.open(base, "working tree at start");
            let lines = self.start_lines(base, start, prefix).await?;
            plan.lines.extend(lines);
        }
        let mut before = &base.commit;
        for step in steps {
            let changes = self.changes(before, &step.commit).await?;
            if let Some(change) = changes.iter().find(|change| start.is_foreign(&change.path)) {
                let at = path::display(&change.path);
                let what = format!(
                    "{at} belongs to a repository of its own, which a branch cannot change"
                );
                return Err(refused(&what, "use --patch FILE or --apply"));
            }
            plan.open(base, &step.message);
            plan.lines.extend(change_lines(&changes, prefix));
            before = &step.commit;
        }
        Ok(plan)
    }

    async fn start_lines(
        &self,
        base: &Base,
        start: &Start,
        prefix: &[u8],
    ) -> Result<Vec<Bytes>, Error> {
        let files = self.files(&base.commit).await?;
        let files: BTreeMap<&[u8], _> = files.iter().map(|file| (&file.path[..], file)).collect();
        let deletes = start
            .delete
            .iter()
            .map(|at| import::delete(&path::join(prefix, at)));
        let puts = start.put.iter().filter_map(|at| {
            let file = files.get(&at[..])?;
            Some(import::link_to(
                &path::join(prefix, at),
                file.mode,
                &file.blob,
            ))
        });
        Ok(deletes.chain(puts).collect())
    }
}

impl Plan {
    /// Begins the next commit, on the one before or on the operator's HEAD.
    fn open(&mut self, base: &Base, message: &str) {
        let head: Vec<CommitId> = base.head.iter().map(CommitId::new).collect();
        let from = match (self.commits, head.is_empty()) {
            (0, true) => import::From::Nothing,
            (0, false) => import::From::Commits(&head),
            (before, _) => import::From::Mark(before),
        };
        self.commits += 1;
        let line = import::header(
            "refs/heads/delivery",
            self.commits,
            self.date,
            message,
            &from,
        );
        self.lines.push(line);
    }
}

impl Quarantine {
    async fn new(store: &Store, source: &Path) -> Result<Self, Error> {
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
        Ok(Self { dir })
    }

    /// Makes the commits; the last one.
    async fn import(&self, git: &Git, plan: Plan) -> Result<CommitId, Error> {
        let end = [import::ask_mark(plan.commits), import::done()];
        let lines = futures::stream::iter(plan.lines.into_iter().chain(end));
        let ids = import::run(git, import::call(self.dir.path()), lines).await?;
        import::only(ids)
    }

    /// Adds what the operator's repository lacks, as one pack.
    async fn hand_over(
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
        std::fs::write(&list, format!("{commit}\n{less}")).map_err(io)?;
        let open = |at: &PathBuf| std::fs::File::open(at).map(Stdio::from).map_err(io);
        let call = Call::bare("pack-objects", self.dir.path()).args([
            "--revs",
            "--stdout",
            "-q",
            "--no-reuse-delta",
        ]);
        let out = std::fs::File::create(&pack).map_err(io)?;
        git.through(call, open(&list)?, Some(out)).await?;
        // From a sub-directory index-pack would write beside the workspace instead of into the
        // repository (seen with 2.47), so it is told the repository.
        let call = Call::new("rev-parse", source).arg("--absolute-git-dir");
        let answer = git.ask(call, b"").await?;
        let repository = path::as_path(answer.strip_suffix(b"\n").unwrap_or(&answer));
        let call = Call::bare("index-pack", repository).arg("--stdin");
        git.through(call, open(&pack)?, None).await?;
        Ok(())
    }
}

fn change_lines(changes: &[Change], prefix: &[u8]) -> Vec<Bytes> {
    let full = |change: &Change| path::join(prefix, &change.path);
    let gone = changes.iter().filter(|change| change.new.is_none());
    let deletes = gone.map(|change| import::delete(&full(change)));
    let puts = changes.iter().filter_map(|change| {
        let Entry { mode, blob } = change.new.as_ref()?;
        Some(import::link_to(&full(change), *mode, blob))
    });
    deletes.chain(puts).collect()
}

/// The date of the new commits: HEAD's own, so that the same delivery is the same commit.
async fn date(git: &Git, source: &Path, head: Option<&str>) -> Result<u64, Error> {
    let Some(head) = head else {
        return Ok(import::FIXED);
    };
    let call = Call::new("cat-file", source).args(["commit", head]);
    let commit = git.ask(call, b"").await?;
    Ok(committed(&commit).unwrap_or(import::FIXED))
}

fn committed(commit: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(commit);
    let line = text.lines().find(|line| line.starts_with("committer "))?;
    line.rsplit(' ').nth(1)?.parse().ok()
}

/// The commit a ref names; None only when git says that there is no such ref.
async fn existing(git: &Git, source: &Path, reference: &str) -> Result<Option<CommitId>, Error> {
    let call =
        Call::new("for-each-ref", source).args(["--format=%(objectname) %(refname)", reference]);
    let answer = git.ask(call, b"").await?;
    let text = one_line("for-each-ref", &answer)?;
    // The pattern also lists refs below a folder of that name.
    for line in text.lines() {
        if let Some((id, name)) = line.split_once(' ')
            && name == reference
        {
            return object_id("for-each-ref", id).map(|id| Some(CommitId::new(id)));
        }
    }
    Ok(None)
}

/// Creates the ref; the all-zero old value makes git refuse one that exists by now.
async fn create(
    git: &Git,
    source: &Path,
    reference: &str,
    name: &str,
    commit: &CommitId,
) -> Result<(), Error> {
    let zero = "0".repeat(40);
    let call = Call::new("update-ref", source).args([reference, commit.as_str(), &zero]);
    let output = git.try_ask(call, b"").await?;
    match output.code {
        0 => Ok(()),
        _ if output.stderr.contains("exists") => Err(exists(name)),
        _ => Err(output.into_error("update-ref")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_the_committers() {
        let commit =
            b"tree x\nauthor A B <a@b> 1 +0000\ncommitter C D <c@d> 1700000000 +0200\n\nm\n";
        assert_eq!(committed(commit), Some(1_700_000_000));
        assert_eq!(committed(b"tree x\n"), None);
    }
}
