//! The branch in the operator's repository: objects are added, one ref is created, nothing else moves.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;

use super::branch::{self, exists, refused};
use super::differences::{Change, Entry};
use super::durable::sync_theirs;
use super::git::{Call, Git, object_id, one_line};
use super::landing::Landing;
use super::quarantine::Quarantine;
use super::start::Start;
use super::{Base, Error, GitKind, Step, Store, import, path};
use crate::id::CommitId;

/// The branch that now exists in the operator's repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its name below `refs/heads/`.
    pub branch: String,
    pub commit: CommitId,
    /// Files on it that agents' own attributes give to a filter, for display, each with the filter.
    pub given: Vec<String>,
}

/// Commits to be made, each from the one before.
struct Plan {
    date: u64,
    lines: Vec<Bytes>,
    commits: usize,
    given: Vec<String>,
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
        let mut plan = self.plan(source, base, &start, steps).await?;
        let given = std::mem::take(&mut plan.given);
        let commit =
            if plan.commits == 0 {
                let head = base.head.as_deref();
                CommitId::new(head.ok_or_else(|| {
                    refused("there is nothing to deliver", "the run changed no file")
                })?)
            } else {
                let quarantine = Quarantine::new(self, source).await?;
                let commit = quarantine
                    .import(&self.git, plan.commits, plan.lines)
                    .await?;
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
        settle(&self.git, source, &reference).await?;
        Ok(Delivered {
            branch: name.to_owned(),
            commit,
            given,
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
            given: Vec::new(),
        };
        let prefix = base.prefix.as_bytes();
        let starting = self.start_changes(base, start).await?;
        let (mut before, mut of_steps) = (&base.commit, Vec::with_capacity(steps.len()));
        for step in steps {
            of_steps.push(self.changes(before, &step.commit).await?);
            before = &step.commit;
        }
        let landing = self.landing(source, base, &starting, &of_steps, before);
        let landing = landing.await?;
        if !starting.is_empty() {
            plan.open(base, "working tree at start");
            plan.lines.extend(change_lines(&starting, prefix, &landing));
        }
        for (step, changes) in steps.iter().zip(of_steps) {
            if let Some(change) = changes.iter().find(|change| start.is_foreign(&change.path)) {
                let at = path::display(&change.path);
                let what = format!(
                    "{at} belongs to a repository of its own, which a branch cannot change"
                );
                return Err(refused(&what, "use --patch FILE or --apply"));
            }
            plan.open(base, &step.message);
            plan.lines.extend(change_lines(&changes, prefix, &landing));
        }
        plan.given = landing.given;
        Ok(plan)
    }

    /// What differs between HEAD and the base.
    async fn start_changes(&self, base: &Base, start: &Start) -> Result<Vec<Change>, Error> {
        if start.put.is_empty() && start.delete.is_empty() {
            return Ok(Vec::new());
        }
        let files = self.files(&base.commit).await?;
        let files: BTreeMap<&[u8], _> = files.iter().map(|file| (&file.path[..], file)).collect();
        let deletes = start.delete.iter().map(|at| Change {
            path: at.clone(),
            old: None,
            new: None,
        });
        let puts = start.put.iter().filter_map(|at| {
            let file = files.get(&at[..])?;
            Some(Change {
                path: at.clone(),
                old: None,
                new: Some(Entry {
                    mode: file.mode,
                    blob: file.blob.clone(),
                }),
            })
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

fn change_lines(changes: &[Change], prefix: &[u8], landing: &Landing) -> Vec<Bytes> {
    let full = |change: &Change| path::join(prefix, &change.path);
    let gone = changes.iter().filter(|change| change.new.is_none());
    let deletes = gone.map(|change| import::delete(&full(change)));
    let puts = changes.iter().filter_map(|change| {
        let entry = change.new.as_ref()?;
        Some(match landing.turned(&change.path, entry) {
            Some(content) => import::put(&full(change), entry.mode, content),
            None => import::link_to(&full(change), entry.mode, &entry.blob),
        })
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

/// The ref's name is on disk, as its file is, before a journal says that the branch is there. A repository
/// that keeps refs otherwise has no such folder.
async fn settle(git: &Git, source: &Path, reference: &str) -> Result<(), Error> {
    let call = Call::new("rev-parse", source);
    let call = call.args(["--path-format=absolute", "--git-path", reference]);
    let answer = git.ask(call, b"").await?;
    let at = path::as_path(answer.strip_suffix(b"\n").unwrap_or(&answer));
    let folders = at.ancestors().skip(1).take(reference.matches('/').count());
    for folder in folders.filter(|folder| folder.is_dir()) {
        sync_theirs(folder).map_err(|source| Error::Io {
            operation: "bring the branch to disk in",
            path: folder.to_owned(),
            source,
        })?;
    }
    Ok(())
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
