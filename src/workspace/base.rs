//! The base snapshot: the operator's working tree as it is, read by Wharf itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use futures::stream;
use tokio::sync::mpsc;

use super::around;
use super::differences::Entry;
use super::disk::{Content, Found, Root, Taken};
use super::git::{Call, object_id, unreadable};
use super::globs::Globs;
use super::listing::{self, Listing};
use super::settled::Settled;
use super::store::{fields, fresh_ref, mode_of};
use super::{Base, Error, GitKind, Mode, Source, Store, import, path};
use crate::id::{BlobId, CommitId};

/// Chunks of the import that may wait in memory.
const AHEAD: usize = 16;

/// What reading came to, paths as bytes.
#[derive(Default)]
struct Report {
    files: usize,
    bytes: u64,
    hidden: Vec<Vec<u8>>,
    left_out: Vec<(Vec<u8>, String)>,
}

struct Reader {
    root: Root,
    hide: Globs,
    max_file: u64,
    max_total: u64,
    lines: mpsc::Sender<Bytes>,
    report: Report,
}

/// How the base differs from HEAD: what a delivered branch must show as "working tree at start".
#[derive(Default)]
pub(super) struct Start {
    pub put: Vec<Vec<u8>>,
    pub delete: Vec<Vec<u8>>,
    /// Folders with a repository of their own, which no branch of this one can change.
    pub foreign: Vec<Vec<u8>>,
}

impl Store {
    /// Takes the base: tracked and untracked-not-ignored files as they stand, less what is hidden.
    /// Equal files give an equal commit. The operator's files, index and HEAD are only read.
    pub async fn base(&self, source: &Source) -> Result<Base, Error> {
        let listing = listing::list(&self.git, source).await?;
        let (sender, receiver) = mpsc::channel(AHEAD);
        let reader = Reader {
            root: Root::open(&source.path)?,
            hide: Globs::new(&source.hide)?,
            max_file: source.max_file,
            max_total: source.max_total,
            lines: sender,
            report: Report::default(),
        };
        let (listing, commit, report) = self.take(listing, reader, receiver).await?;
        let start = self.start(source, &listing, &commit, &report).await?;
        self.keep_start(&commit, &start).await?;
        let shown = |paths: &[Vec<u8>]| paths.iter().map(|path| path::display(path)).collect();
        let left_out = report.left_out.iter();
        Ok(Base {
            tree: self.tree(&commit).await?,
            commit,
            head: listing.head,
            git: listing.git,
            dirty: !(start.put.is_empty() && start.delete.is_empty()),
            files: report.files,
            bytes: report.bytes,
            hidden: shown(&report.hidden),
            left_out: left_out
                .map(|(at, why)| (path::display(at), why.clone()))
                .collect(),
            outer: around::outer(&self.git, &source.path, listing.git).await?,
            prefix: listing.prefix,
        })
    }

    /// Reads on a thread of its own while the import writes.
    async fn take(
        &self,
        listing: Listing,
        reader: Reader,
        receiver: mpsc::Receiver<Bytes>,
    ) -> Result<(Listing, CommitId, Report), Error> {
        let reading = tokio::task::spawn_blocking(move || {
            let report = reader.run(&listing);
            (listing, report)
        });
        let lines = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|line| (line, receiver))
        });
        let written = import::run(&self.git, import::call(&self.dir), lines).await;
        let (listing, report) = reading.await.map_err(|error| Error::Io {
            operation: "read the workspace for",
            path: self.dir.clone(),
            source: std::io::Error::other(error),
        })?;
        // A reader that gave up ends the import too: its reason is the one that counts.
        let report = report?;
        Ok((listing, import::only(written?)?, report))
    }

    /// Compares the base with HEAD's tree, as far as both show the same paths.
    async fn start(
        &self,
        source: &Source,
        listing: &Listing,
        commit: &CommitId,
        report: &Report,
    ) -> Result<Start, Error> {
        let mut start = Start {
            foreign: listing.foreign.clone(),
            ..Start::default()
        };
        if listing.git == GitKind::None {
            return Ok(start);
        }
        let mut at_head = match &listing.head {
            Some(head) => self.head_files(&source.path, head).await?,
            None => BTreeMap::new(),
        };
        let settled = match listing.head {
            Some(_) => Some(Settled::read(&self.git, &source.path).await?),
            None => None,
        };
        for file in self.files(commit).await? {
            let entry = Entry {
                mode: file.mode,
                blob: file.blob,
            };
            let there = at_head.remove(&file.path).flatten();
            let same = match (&there, &settled) {
                (Some(there), _) if *there == entry => true,
                (Some(there), Some(settled)) if there.mode == entry.mode => {
                    settled.holds(&file.path, &there.blob)?
                }
                _ => false,
            };
            if !same && !start.is_foreign(&file.path) {
                start.put.push(file.path);
            }
        }
        let hide = Globs::new(&source.hide)?;
        let left_out: BTreeSet<&[u8]> = report
            .left_out
            .iter()
            .map(|(at, _)| at.as_slice())
            .collect();
        for (at, entry) in at_head {
            let gone = entry.is_some()
                && !hide.matches(&at)
                && !listing.sparse.contains(&at)
                && !covers(&left_out, &at)
                && !start.is_foreign(&at);
            if gone {
                start.delete.push(at);
            }
        }
        Ok(start)
    }

    /// The files of a commit of the operator's below the workspace; None for a submodule.
    async fn head_files(
        &self,
        dir: &Path,
        head: &str,
    ) -> Result<BTreeMap<Vec<u8>, Option<Entry>>, Error> {
        // Without --full-tree the answer is below the directory and relative to it.
        let call = Call::new("ls-tree", dir).args(["-r", "-z", head]);
        let answer = self.git.ask(call, b"").await?;
        fields(&answer)
            .map(|line| head_file(line).ok_or_else(|| unreadable("ls-tree", &path::display(line))))
            .collect()
    }

    /// Keeps what delivery must know later beside the base, in the store itself.
    async fn keep_start(&self, base: &CommitId, start: &Start) -> Result<(), Error> {
        let list = |paths: &[Vec<u8>]| paths.join(&0);
        let put = |name: &str, paths| import::put(name.as_bytes(), Mode::File, &list(paths));
        let reference = start_ref(base);
        let from = import::From::Nothing;
        let lines = [
            import::header(&reference, 1, import::FIXED, "start", &from),
            put("put", &start.put),
            put("delete", &start.delete),
            put("foreign", &start.foreign),
            import::done(),
        ];
        import::run(&self.git, import::call(&self.dir), stream::iter(lines)).await?;
        Ok(())
    }

    /// What `base` kept for delivery.
    pub(super) async fn load_start(&self, base: &CommitId) -> Result<Start, Error> {
        let call = self
            .call("rev-parse")
            .args(["--verify", "--end-of-options", &start_ref(base)]);
        let commit = CommitId::new(self.git.line(call).await?);
        let list = async |name: &str| {
            let content = self.blob(&commit, name.as_bytes()).await?;
            let content = content.ok_or_else(|| unreadable("ls-tree", name))?;
            Ok::<_, Error>(fields(&content).map(<[u8]>::to_vec).collect())
        };
        Ok(Start {
            put: list("put").await?,
            delete: list("delete").await?,
            foreign: list("foreign").await?,
        })
    }
}

impl Start {
    /// True for a path inside a repository of its own.
    pub(super) fn is_foreign(&self, at: &[u8]) -> bool {
        self.foreign.iter().any(|folder| is_below(folder, at))
    }
}

fn start_ref(base: &CommitId) -> String {
    format!("refs/wharf/start/{base}")
}

fn is_below(folder: &[u8], at: &[u8]) -> bool {
    at.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn covers(set: &BTreeSet<&[u8]>, at: &[u8]) -> bool {
    set.contains(at) || path::parents(at).any(|parent| set.contains(parent))
}

fn head_file(line: &[u8]) -> Option<(Vec<u8>, Option<Entry>)> {
    let tab = line.iter().position(|&byte| byte == b'\t')?;
    let mut words = std::str::from_utf8(&line[..tab]).ok()?.split(' ');
    let mode = words.next()?;
    let kind = words.next()?;
    let blob = object_id("ls-tree", words.next()?).ok()?;
    let entry = match kind {
        "commit" => None,
        _ => Some(Entry {
            mode: mode_of(mode)?,
            blob: BlobId::new(blob),
        }),
    };
    Some((line[tab + 1..].to_vec(), entry))
}

impl Reader {
    fn run(mut self, listing: &Listing) -> Result<Report, Error> {
        let from = import::From::Nothing;
        let reference = fresh_ref();
        self.send(import::header(&reference, 1, import::FIXED, "base", &from));
        for (at, why) in &listing.unreadable {
            self.leave_out(at, format!("unreadable folder: {why}"));
        }
        for at in &listing.sparse {
            self.leave_out(at, "not checked out here (sparse checkout)".into());
        }
        for at in &listing.paths {
            if self.lines.is_closed() {
                break;
            }
            self.file(at)?;
        }
        self.send(import::ask_mark(1));
        self.send(import::done());
        Ok(self.report)
    }

    fn file(&mut self, at: &[u8]) -> Result<(), Error> {
        if self.hide.matches(at) {
            self.report.hidden.push(at.to_vec());
            return Ok(());
        }
        let content = match self.root.take(at, self.max_file) {
            Ok(Taken::Content(content)) => content,
            Ok(Taken::TooLarge(size)) => {
                let limit = self.max_file;
                self.leave_out(
                    at,
                    format!("{size} bytes, more than the {limit} a file may have"),
                );
                return Ok(());
            }
            // Listed but gone: deleted by the operator. Below what is now a link or a file: gone too.
            Ok(Taken::Is(Found::Absent | Found::Blocked(_))) => return Ok(()),
            Ok(Taken::Is(Found::Other(kind))) => {
                self.leave_out(at, format!("a {kind} holds no content"));
                return Ok(());
            }
            Ok(Taken::Is(_)) => {
                self.leave_out(at, "it changed while it was read".into());
                return Ok(());
            }
            Err(error) => {
                self.leave_out(at, format!("unreadable: {}", error.kind()));
                return Ok(());
            }
        };
        self.keep(at, &content)
    }

    fn keep(&mut self, at: &[u8], content: &Content) -> Result<(), Error> {
        if let Err(why) = path::check(at, Some(content.mode)) {
            self.leave_out(at, why.into());
            return Ok(());
        }
        self.report.files += 1;
        self.report.bytes += content.bytes.len() as u64;
        if self.report.bytes > self.max_total {
            return Err(listing::too_large(format!(
                "more than {} bytes",
                self.max_total
            )));
        }
        self.send(import::put(at, content.mode, &content.bytes));
        Ok(())
    }

    fn leave_out(&mut self, at: &[u8], why: String) {
        self.report.left_out.push((at.to_vec(), why));
    }

    /// Hands a line to the import. One that ended already says so by its own exit code.
    fn send(&self, line: Bytes) {
        let _ = self.lines.blocking_send(line);
    }
}
