//! What differs between two commits: as paths, as a patch, and where a plan forbids it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::durable::sync_theirs;
use super::git::{LIMIT, object_id, said, unreadable};
use super::store::{fields, mode_of};
use super::{Difference, DifferenceStatus, Error, Mode, Store, path};
use crate::id::{BlobId, CommitId};

/// A change as text, whole or cut at a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    pub content: Bytes,
    /// True when the limit cut it: then it cannot be applied.
    pub cut: bool,
}

/// How many of a commit's files another lacks, and of how many; a file that was moved is not lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    pub gone: usize,
    /// 0 when none is gone.
    pub of: usize,
}

/// One path with what stood and what stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub path: Vec<u8>,
    pub old: Option<Entry>,
    pub new: Option<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub mode: Mode,
    pub blob: BlobId,
}

impl Store {
    /// Every path that differs, with line counts where both sides are text; renames are not guessed.
    pub async fn differences(&self, a: &CommitId, b: &CommitId) -> Result<Vec<Difference>, Error> {
        let answer = self.diff_tree(a, b, &["--raw", "--numstat"]).await?;
        let (changes, mut counts) = parse(&answer)?;
        Ok(changes
            .into_iter()
            .map(|change| {
                let (added_lines, removed_lines) = counts.remove(&change.path).unwrap_or_default();
                Difference {
                    status: change.status(),
                    path: change.path,
                    added_lines,
                    removed_lines,
                }
            })
            .collect())
    }

    /// What of the first commit's files the second holds under no name.
    pub async fn removed(&self, from: &CommitId, to: &CommitId) -> Result<Removed, Error> {
        let changes = self.changes(from, to).await?;
        let held: HashSet<&BlobId> = changes
            .iter()
            .filter_map(|change| change.new.as_ref())
            .map(|entry| &entry.blob)
            .collect();
        let gone = changes
            .iter()
            .filter(|change| change.new.is_none())
            .filter_map(|change| change.old.as_ref());
        let gone = gone.filter(|entry| !held.contains(&entry.blob)).count();
        let of = match gone {
            0 => 0,
            _ => self.files(from).await?.len(),
        };
        Ok(Removed { gone, of })
    }

    pub(super) async fn changes(&self, a: &CommitId, b: &CommitId) -> Result<Vec<Change>, Error> {
        let answer = self.diff_tree(a, b, &["--raw"]).await?;
        Ok(parse(&answer)?.0)
    }

    async fn diff_tree(&self, a: &CommitId, b: &CommitId, form: &[&str]) -> Result<Vec<u8>, Error> {
        let call = self
            .call("diff-tree")
            .args(["-r", "-z", "--no-renames", "--full-index"])
            .args(["--no-ext-diff", "--no-textconv"])
            .args(form)
            .args([a.as_str(), b.as_str(), "--"]);
        self.git.ask(call, b"").await
    }

    /// The change as a binary-safe patch of at most `limit` bytes, `prefix` before every path.
    pub async fn patch(
        &self,
        a: &CommitId,
        b: &CommitId,
        prefix: &str,
        limit: usize,
    ) -> Result<Patch, Error> {
        let io = |source| Error::Io {
            operation: "read a patch from",
            path: self.dir.clone(),
            source,
        };
        let call = self.patch_call(a, b, prefix);
        let (null, pipe) = (std::process::Stdio::null(), std::process::Stdio::piped());
        let mut child = self.git.spawn(&call, null, pipe)?;
        let mut content = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let mut limited = stdout.take(limit as u64 + 1);
            let reading = limited.read_to_end(&mut content);
            let read = tokio::time::timeout(LIMIT, reading).await;
            read.map_err(|_| io(std::io::ErrorKind::TimedOut.into()))?
                .map_err(io)?;
        }
        if content.len() > limit {
            // Dropping the child kills what is left of it.
            content.truncate(limit);
            return Ok(Patch {
                content: content.into(),
                cut: true,
            });
        }
        let output = child.wait_with_output().await.map_err(io)?;
        match output.status.code() {
            Some(0) => Ok(Patch {
                content: content.into(),
                cut: false,
            }),
            code => Err(Error::Git {
                operation: "diff-tree",
                code: code.unwrap_or(-1),
                stderr: said(&output.stderr),
            }),
        }
    }

    fn patch_call(&self, a: &CommitId, b: &CommitId, prefix: &str) -> super::git::Call {
        let inside = |side: &str| match prefix {
            "" => format!("{side}/"),
            _ => format!("{side}/{prefix}/"),
        };
        self.call("diff-tree")
            .args(["-r", "-p", "--binary", "--full-index", "--no-renames"])
            .args(["--no-ext-diff", "--no-textconv", "--no-color"])
            .arg(format!("--src-prefix={}", inside("a")))
            .arg(format!("--dst-prefix={}", inside("b")))
            .args([a.as_str(), b.as_str(), "--"])
    }

    /// Writes the change to a file, whole or not at all, `prefix` before every path.
    pub async fn deliver_patch(
        &self,
        base: &CommitId,
        result: &CommitId,
        prefix: &str,
        out: &Path,
    ) -> Result<(), Error> {
        let file = self.patch_file(base, result, prefix, out).await?;
        replace(file, out)
    }

    /// `deliver_patch` that never takes the place of a file with anything else in it.
    pub async fn deliver_new_patch(
        &self,
        base: &CommitId,
        result: &CommitId,
        prefix: &str,
        out: &Path,
    ) -> Result<(), Error> {
        let file = self.patch_file(base, result, prefix, out).await?;
        settle(file, out)
    }

    /// The patch in a synced file of no name yet, beside where it is to go.
    async fn patch_file(
        &self,
        base: &CommitId,
        result: &CommitId,
        prefix: &str,
        out: &Path,
    ) -> Result<tempfile::NamedTempFile, Error> {
        let io = wrote(out);
        let folder = folder_of(out);
        let file = tempfile::Builder::new()
            .prefix(".wharf-patch-")
            .tempfile_in(folder)
            .map_err(&io)?;
        let target = file.as_file().try_clone().map_err(&io)?;
        let call = self.patch_call(base, result, prefix);
        self.git
            .through(call, std::process::Stdio::null(), Some(target))
            .await?;
        file.as_file().sync_all().map_err(&io)?;
        Ok(file)
    }
}

fn replace(file: tempfile::NamedTempFile, out: &Path) -> Result<(), Error> {
    let done = file.persist(out);
    done.map_err(|error| wrote(out)(error.error))?;
    sync_name(out)
}

/// The name of a patch is on disk too, before a journal says that it is there.
fn sync_name(out: &Path) -> Result<(), Error> {
    sync_theirs(folder_of(out)).map_err(wrote(out))
}

fn folder_of(out: &Path) -> &Path {
    match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Puts the patch where nothing is yet, or an empty file, or the same patch.
fn settle(file: tempfile::NamedTempFile, out: &Path) -> Result<(), Error> {
    if std::fs::symlink_metadata(out).is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
        return replace(file, out);
    }
    let Err(error) = file.persist_noclobber(out) else {
        return sync_name(out);
    };
    if error.error.kind() != std::io::ErrorKind::AlreadyExists {
        return Err(wrote(out)(error.error));
    }
    // The same patch written twice is no error.
    let ours = std::fs::read(error.file.path()).map_err(wrote(out))?;
    if std::fs::read(out).is_ok_and(|there| there == ours) {
        return sync_name(out);
    }
    Err(Error::Refused {
        what: format!("there is a file {} by now", out.display()),
        hint: "remove it, or name another one".to_owned(),
    })
}

/// The error of writing a patch.
fn wrote(out: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Io {
        operation: "write the patch",
        path: out.to_owned(),
        source,
    }
}

impl Change {
    fn status(&self) -> DifferenceStatus {
        match (&self.old, &self.new) {
            (None, _) => DifferenceStatus::Added,
            (_, None) => DifferenceStatus::Deleted,
            (Some(old), Some(new))
                if old.blob == new.blob && old.mode != Mode::Link && new.mode != Mode::Link =>
            {
                DifferenceStatus::ModeChanged
            }
            _ => DifferenceStatus::Changed,
        }
    }
}

/// Lines added and removed; None where git counts none because the file is binary.
type Count = (Option<u64>, Option<u64>);
type Counts = BTreeMap<Vec<u8>, Count>;

/// Reads `--raw -z`, with or without `--numstat` after it.
fn parse(answer: &[u8]) -> Result<(Vec<Change>, Counts), Error> {
    let bad = |field: &[u8]| unreadable("diff-tree", &path::display(field));
    let (mut changes, mut counts) = (Vec::new(), Counts::new());
    let mut fields = fields(answer);
    while let Some(field) = fields.next() {
        if field.starts_with(b":") {
            let path = fields.next().ok_or_else(|| bad(field))?;
            changes.push(raw(field, path).ok_or_else(|| bad(field))?);
        } else {
            let (path, count) = numbers(field).ok_or_else(|| bad(field))?;
            counts.insert(path, count);
        }
    }
    Ok((changes, counts))
}

fn raw(field: &[u8], path: &[u8]) -> Option<Change> {
    let mut words = std::str::from_utf8(field)
        .ok()?
        .strip_prefix(':')?
        .split(' ');
    let (old_mode, new_mode) = (words.next()?, words.next()?);
    let (old_blob, new_blob) = (words.next()?, words.next()?);
    let entry = |mode: &str, blob: &str| match mode {
        "000000" => Some(None),
        _ => Some(Some(Entry {
            mode: mode_of(mode)?,
            blob: BlobId::new(object_id("diff-tree", blob).ok()?),
        })),
    };
    Some(Change {
        path: path.to_vec(),
        old: entry(old_mode, old_blob)?,
        new: entry(new_mode, new_blob)?,
    })
}

fn numbers(field: &[u8]) -> Option<(Vec<u8>, Count)> {
    let mut parts = field.splitn(3, |&byte| byte == b'\t');
    let mut number = || std::str::from_utf8(parts.next()?).ok().map(str::to_owned);
    let (added, removed) = (number()?, number()?);
    let path = parts.next()?;
    Some((path.to_vec(), (added.parse().ok(), removed.parse().ok())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_answer_is_an_error() {
        let id = "0123456789012345678901234567890123456789";
        let whole = format!(":000000 100644 {id} {id} A\0a\tb\n\0-\t-\ta\tb\n\0");
        let (changes, counts) = parse(whole.as_bytes()).unwrap();
        assert_eq!(changes[0].path, b"a\tb\n");
        assert_eq!(changes[0].status(), DifferenceStatus::Added);
        assert_eq!(counts[&b"a\tb\n".to_vec()], (None, None));
        assert!(parse(&whole.as_bytes()[..60]).is_err());
        assert!(parse(format!(":100644 160000 {id} {id} T\0x\0").as_bytes()).is_err());
    }
}
