//! Recent commits of the operator's repository, made anew for the agents' own: without a withheld path,
//! and without any content that a withheld path has or had.
//!
//! The operator's objects are only read. The new commits form one line, each on the one before, so
//! their names are others than the operator's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::commits::{self, Told};
use super::differences::Entry;
use super::disk::{Root, Taken};
use super::git::{Call, Git, object_id, one_line, unreadable};
use super::globs::Withheld;
use super::quarantine::Quarantine;
use super::store::{fields, mode_of};
use super::{Base, Error, Mode, Source, Store, import, path};
use crate::id::{BlobId, CommitId};

/// How much of it may be taken.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Commits, by first parents from HEAD.
    pub commits: usize,
    /// Bytes of the pack they become.
    pub bytes: u64,
}

/// The commits as they lie in the run's store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The last of them.
    pub tip: CommitId,
    pub commits: usize,
    /// Bytes of their pack.
    pub bytes: u64,
}

/// One path at one commit; None where it is gone, or nothing that a tree of ours holds.
type At = (Vec<u8>, Option<Entry>);

/// A commit with what it changed.
struct Step {
    told: Told,
    changes: Vec<At>,
}

/// What no commit may hold.
struct Kept {
    withheld: Withheld,
    contents: BTreeSet<BlobId>,
    /// The place of Wharf's own files.
    own: Option<Vec<u8>>,
}

impl Store {
    /// Takes the history of a base; None where its repository has no commit. Where the commits take
    /// more room than they may, fewer are taken, and in the end none: that is an error.
    pub async fn history(
        &self,
        source: &Source,
        base: &Base,
        reach: Reach,
    ) -> Result<Option<History>, Error> {
        let Some(head) = &base.head else {
            return Ok(None);
        };
        let dir = Path::new(&source.path);
        let ids = line(&self.git, dir, head, base, reach.commits).await?;
        if ids.is_empty() {
            return Ok(None);
        }
        let quarantine = Quarantine::new(self, dir).await?;
        let mut steps = steps(&self.git, quarantine.dir(), &ids, &base.prefix).await?;
        let kept = Kept::of(source, base, &steps, self.own_place(dir)?).await?;
        let mut bytes = 0;
        for most in [ids.len(), ids.len() / 8, 1] {
            if most == 0 {
                continue;
            }
            fold(&mut steps, most);
            let lines = lines(&steps, &kept);
            let tip = quarantine.import(&self.git, steps.len(), lines).await?;
            let pack = quarantine.pack(&self.git, &tip).await?;
            bytes = length(&pack)?;
            if bytes <= reach.bytes {
                let history = History {
                    tip,
                    commits: steps.len(),
                    bytes,
                };
                quarantine.index(&self.git, &pack).await?;
                return self.put(&history, &pack).map(|()| Some(history));
            }
        }
        Err(Error::Refused {
            what: format!(
                "even one commit takes {} MiB, more than the {} MiB a history may have",
                bytes.div_ceil(1 << 20),
                reach.bytes >> 20
            ),
            hint: "agents begin with one commit of the files as they are".into(),
        })
    }

    /// The pack and its index, whole; an error where they are not what was kept.
    pub fn load_history(&self, history: &History) -> Result<(Bytes, Bytes), Error> {
        let read = |end: &str| {
            let at = self.history_file(history, end);
            let read = std::fs::read(&at);
            read.map(Bytes::from)
                .map_err(|source| failed("read the history in", &at, source))
        };
        let (pack, index) = (read("pack")?, read("idx")?);
        for bytes in [&pack, &index] {
            let whole = bytes.len().checked_sub(20).map(|end| bytes.split_at(end));
            if whole.is_none_or(|(body, sum)| Sha1::digest(body).as_slice() != sum) {
                let at = self.history_file(history, "pack");
                let cut = std::io::Error::from(std::io::ErrorKind::InvalidData);
                return Err(failed("read the history in", &at, cut));
            }
        }
        Ok((pack, index))
    }

    /// Beside the run's own objects, so that nothing of it can be taken for one of them.
    fn history_file(&self, history: &History, end: &str) -> PathBuf {
        self.dir
            .join("history")
            .join(format!("{}.{end}", history.tip))
    }

    fn put(&self, history: &History, pack: &Path) -> Result<(), Error> {
        let folder = self.dir.join("history");
        let io = |source| failed("keep the history in", &folder, source);
        std::fs::create_dir_all(&folder).map_err(io)?;
        for end in ["pack", "idx"] {
            let from = pack.with_extension(end);
            std::fs::rename(from, self.history_file(history, end)).map_err(io)?;
        }
        Ok(())
    }
}

impl Kept {
    /// Everything that a withheld path holds in the workspace or held in one of the commits.
    async fn of(
        source: &Source,
        base: &Base,
        steps: &[Step],
        own: Option<Vec<u8>>,
    ) -> Result<Self, Error> {
        let withheld = Withheld::of(source)?;
        let base_dir = source.path.clone();
        let mut contents = BTreeSet::new();
        for (at, entry) in steps.iter().flat_map(|step| &step.changes) {
            if withheld.hides(at) {
                contents.extend(entry.as_ref().map(|entry| entry.blob.clone()));
            }
        }
        let (root, paths) = (Root::open(&source.path)?, base.withheld.clone());
        let reading = tokio::task::spawn_blocking(move || {
            // What the operator may not read here is in no commit by their hand either.
            let blobs = paths.iter().filter_map(|at| blob(&root, at).ok().flatten());
            blobs.collect::<Vec<_>>()
        });
        let read = reading.await.map_err(|error| {
            let source = std::io::Error::other(error);
            failed("read what is withheld in", &base_dir, source)
        })?;
        contents.extend(read);
        // A file without content holds no secret, and is often all there is in a folder.
        contents.remove(&BlobId::new(EMPTY));
        Ok(Self {
            withheld,
            contents,
            own,
        })
    }

    fn shows<'a>(&self, at: &[u8], entry: &'a Option<Entry>) -> Option<&'a Entry> {
        let entry = entry.as_ref()?;
        let own = self.own.as_deref();
        let kept = self.withheld.hides(at)
            || own.is_some_and(|own| path::is_within(own, at))
            || self.contents.contains(&entry.blob)
            || path::check(at, Some(entry.mode)).is_err();
        (!kept).then_some(entry)
    }
}

/// The blob of no bytes.
const EMPTY: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";

/// The blob that a file or link of the workspace would be; None for what holds no content.
fn blob(root: &Root, at: &[u8]) -> std::io::Result<Option<BlobId>> {
    let mut hash = Sha1::new();
    let Some((mut file, size)) = root.stream(at)? else {
        return Ok(match root.take(at, 0)? {
            Taken::Content(link) => {
                hash.update(format!("blob {}\0", link.bytes.len()));
                hash.update(&link.bytes);
                Some(named(hash))
            }
            _ => None,
        });
    };
    hash.update(format!("blob {size}\0"));
    let mut part = vec![0; 64 << 10];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(Some(named(hash))),
            got => hash.update(&part[..got]),
        }
    }
}

fn named(hash: Sha1) -> BlobId {
    let digest = hash.finalize();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    BlobId::new(hex)
}

/// The newest commits by first parents that touch the workspace, newest first.
async fn line(
    git: &Git,
    dir: &Path,
    head: &str,
    base: &Base,
    most: usize,
) -> Result<Vec<String>, Error> {
    let mut call = Call::new("rev-list", dir)
        .arg("--first-parent")
        .arg(format!("--max-count={most}"))
        .args([head, "--"]);
    if !base.prefix.is_empty() {
        call = call.arg(".");
    }
    let answer = git.ask(call, b"").await?;
    let text = one_line("rev-list", &answer)?;
    text.lines()
        .map(|id| object_id("rev-list", id).map(str::to_owned))
        .collect()
}

/// Every commit with what it changed against the one before, oldest first; the oldest with all it holds.
async fn steps(git: &Git, dir: &Path, ids: &[String], prefix: &str) -> Result<Vec<Step>, Error> {
    let Some((oldest, newer)) = ids.split_last() else {
        return Ok(Vec::new());
    };
    let told = commits::read(git, dir, ids).await?;
    let below = match prefix {
        "" => Vec::new(),
        _ => vec![prefix],
    };
    let call = Call::bare("ls-tree", dir)
        .args(["-r", "-z", "--full-tree", oldest.as_str(), "--"])
        .args(&below);
    let all = git.ask(call, b"").await?;
    let pairs: String = newer
        .iter()
        .zip(&ids[1..])
        .map(|(commit, before)| format!("{commit} {before}\n"))
        .collect();
    let call = Call::bare("diff-tree", dir)
        .args(["--stdin", "-r", "-z", "--raw", "--no-renames"])
        .args(["--no-ext-diff", "--no-textconv", "--"])
        .args(&below);
    let mut changed = changed(&git.ask(call, pairs.as_bytes()).await?, prefix)?;
    let mut held = Vec::new();
    for field in fields(&all) {
        held.extend(inside(listed(field)?, prefix));
    }
    changed.insert(oldest.clone(), held);
    Ok(told
        .into_iter()
        .rev()
        .map(|told| Step {
            changes: changed.remove(&told.id).unwrap_or_default(),
            told,
        })
        .collect())
}

/// Makes the oldest commits one, so that `most` are left: it holds all that they led to.
fn fold(steps: &mut Vec<Step>, most: usize) {
    let gone = steps.len().saturating_sub(most);
    let mut held = BTreeMap::new();
    for step in steps.iter_mut().take(gone + 1) {
        held.extend(std::mem::take(&mut step.changes));
    }
    steps.drain(..gone);
    if let Some(first) = steps.first_mut() {
        first.changes = held.into_iter().collect();
    }
}

fn lines(steps: &[Step], kept: &Kept) -> Vec<Bytes> {
    let mut lines = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        lines.push(step.told.opening(at));
        let shown = step.changes.iter();
        let shown = shown.map(|(path, entry)| (path, kept.shows(path, entry)));
        let gone = shown.clone().filter(|(_, entry)| entry.is_none());
        if at > 0 {
            lines.extend(gone.map(|(path, _)| import::delete(path)));
        }
        let puts = shown.filter_map(|(path, entry)| Some((path, entry?)));
        lines.extend(puts.map(|(path, entry)| import::link_to(path, entry.mode, &entry.blob)));
    }
    lines
}

/// `MODE KIND ID<tab>path`; a submodule is nothing that a tree of ours holds.
fn listed(field: &[u8]) -> Result<At, Error> {
    let bad = || unreadable("ls-tree", &path::display(field));
    let tab = field
        .iter()
        .position(|&byte| byte == b'\t')
        .ok_or_else(bad)?;
    let head = std::str::from_utf8(&field[..tab]).map_err(|_| bad())?;
    let words: Vec<&str> = head.split(' ').collect();
    let &[mode, _, id] = words.as_slice() else {
        return Err(bad());
    };
    Ok((field[tab + 1..].to_vec(), entry("ls-tree", mode, id)?))
}

/// Changes by commit: its id, then `:MODE MODE ID ID STATUS` and a path for each.
fn changed(answer: &[u8], prefix: &str) -> Result<BTreeMap<String, Vec<At>>, Error> {
    let bad = |field: &[u8]| unreadable("diff-tree", &path::display(field));
    let mut all: BTreeMap<String, Vec<At>> = BTreeMap::new();
    let mut id = None;
    let mut fields = fields(answer);
    while let Some(field) = fields.next() {
        let text = std::str::from_utf8(field).map_err(|_| bad(field))?;
        let Some(raw) = text.strip_prefix(':') else {
            id = Some(object_id("diff-tree", text.trim_end())?.to_owned());
            continue;
        };
        let words: Vec<&str> = raw.split(' ').collect();
        let &[_, mode, _, blob, _] = words.as_slice() else {
            return Err(bad(field));
        };
        let at = fields.next().ok_or_else(|| bad(field))?;
        let entry = entry("diff-tree", mode, blob)?;
        let list = all
            .entry(id.clone().ok_or_else(|| bad(field))?)
            .or_default();
        list.extend(inside((at.to_vec(), entry), prefix));
    }
    Ok(all)
}

fn entry(operation: &'static str, mode: &str, id: &str) -> Result<Option<Entry>, Error> {
    let blob = BlobId::new(object_id(operation, id)?);
    Ok(mode_of(mode).map(|mode: Mode| Entry { mode, blob }))
}

/// The same path as the workspace has it; None outside.
fn inside((at, entry): At, prefix: &str) -> Option<At> {
    if prefix.is_empty() {
        return Some((at, entry));
    }
    let rest = at.strip_prefix(prefix.as_bytes())?.strip_prefix(b"/")?;
    Some((rest.to_vec(), entry))
}

fn length(at: &Path) -> Result<u64, Error> {
    let about = std::fs::metadata(at);
    about
        .map(|about| about.len())
        .map_err(|source| failed("look at the history in", at, source))
}

fn failed(operation: &'static str, at: &Path, source: std::io::Error) -> Error {
    Error::Io {
        operation,
        path: at.to_owned(),
        source,
    }
}
