//! Reads the operator's files for a base: measured first, then read one after another into the import.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::disk::{Content, Found, Root, Taken};
use super::globs::Withheld;
use super::listing::{self, Listing};
use super::store::fresh_ref;
use super::{Error, Source, import, own, path};

/// From this on, in bytes or files, reading says how far it is.
const LONG: (u64, usize) = (64 << 20, 20_000);
/// How often it says so in all.
const PARTS: u64 = 10;

/// How much of a workspace there is to take, or is taken already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub files: usize,
    pub bytes: u64,
}

/// How far the base of a large workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taking {
    pub taken: Amount,
    /// What was measured before anything was read.
    pub of: Amount,
}

/// Who is told how far the base is; from the thread that reads.
pub type Tell = Arc<dyn Fn(Taking) + Send + Sync>;

/// What reading came to, paths as bytes.
#[derive(Default)]
pub(super) struct Report {
    pub amount: Amount,
    pub hidden: Vec<Vec<u8>>,
    /// Shown although ignored or hidden, as the operator asked.
    pub included: Vec<Vec<u8>>,
    pub left_out: Vec<(Vec<u8>, String)>,
}

pub(super) struct Reader {
    root: Root,
    withheld: Withheld,
    max_file: u64,
    max_total: u64,
    lines: mpsc::Sender<Bytes>,
    report: Report,
    of: Amount,
    tell: Option<Tell>,
}

impl Reader {
    pub fn new(
        source: &Source,
        lines: mpsc::Sender<Bytes>,
        tell: Option<Tell>,
    ) -> Result<Self, Error> {
        Ok(Self {
            root: Root::open(&source.path)?,
            withheld: Withheld::of(source)?,
            max_file: source.max_file,
            max_total: source.max_total,
            lines,
            report: Report::default(),
            of: Amount::default(),
            tell,
        })
    }

    pub fn run(mut self, listing: &Listing) -> Result<Report, Error> {
        self.of = self.measure(listing)?;
        let from = import::From::Nothing;
        let reference = fresh_ref();
        self.send(import::header(&reference, 1, import::FIXED, "base", &from));
        for (at, why) in &listing.unreadable {
            self.leave_out(at, format!("unreadable folder: {why}"));
        }
        if let Some(own) = &listing.own {
            self.leave_out(own, own::WHY.into());
        }
        for at in &listing.sparse {
            self.leave_out(at, "not checked out here (sparse checkout)".into());
        }
        self.say();
        for at in &listing.paths {
            if self.lines.is_closed() {
                break;
            }
            let before = self.part();
            self.file(at, listing)?;
            if self.part() != before {
                self.say();
            }
        }
        self.send(import::ask_mark(1));
        self.send(import::done());
        Ok(self.report)
    }

    /// Adds up what will be read, so that a workspace past the limit is refused before it is.
    fn measure(&self, listing: &Listing) -> Result<Amount, Error> {
        let mut amount = Amount::default();
        let shown = listing.paths.iter().filter(|at| !self.withheld.holds(at));
        for at in shown {
            if self.lines.is_closed() {
                break;
            }
            let size = self.root.size(at);
            if let Some(size) = size.filter(|size| *size <= self.max_file) {
                amount.files += 1;
                amount.bytes = amount.bytes.saturating_add(size);
            }
        }
        if amount.bytes > self.max_total {
            return Err(self.too_large(amount));
        }
        Ok(amount)
    }

    fn too_large(&self, amount: Amount) -> Error {
        let (bytes, most) = (shown(amount.bytes), shown(self.max_total));
        let files = amount.files;
        listing::too_large(format!("{bytes} in {files} files, more than {most}"))
    }

    fn file(&mut self, at: &[u8], listing: &Listing) -> Result<(), Error> {
        if self.withheld.holds(at) {
            self.report.hidden.push(at.to_vec());
            return Ok(());
        }
        let content = match self.root.take(at, self.max_file) {
            Ok(Taken::Content(content)) => content,
            Ok(Taken::TooLarge(size)) => {
                let (size, limit) = (shown(size), shown(self.max_file));
                self.leave_out(at, format!("{size}, more than the {limit} a file may have"));
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
        if listing.included.contains(at) || self.withheld.shows(at) {
            self.report.included.push(at.to_vec());
        }
        self.keep(at, &content)
    }

    fn keep(&mut self, at: &[u8], content: &Content) -> Result<(), Error> {
        if let Err(why) = path::check(at, Some(content.mode)) {
            self.leave_out(at, why.into());
            return Ok(());
        }
        self.report.amount.files += 1;
        self.report.amount.bytes += content.bytes.len() as u64;
        if self.report.amount.bytes > self.max_total {
            return Err(self.too_large(self.report.amount));
        }
        self.send(import::put(at, content.mode, &content.bytes));
        Ok(())
    }

    fn leave_out(&mut self, at: &[u8], why: String) {
        self.report.left_out.push((at.to_vec(), why));
    }

    /// Which part of the whole is being read; always the same where it is short.
    fn part(&self) -> u64 {
        let (of, taken) = (self.of, self.report.amount);
        if of.bytes < LONG.0 && of.files < LONG.1 {
            return 0;
        }
        let bytes = taken.bytes.saturating_mul(PARTS) / of.bytes.max(1);
        let files = taken.files as u64 * PARTS / (of.files as u64).max(1);
        // What is later in bytes may be first in files: the slower of the two is how far it is.
        bytes.min(files)
    }

    fn say(&self) {
        let long = self.of.bytes >= LONG.0 || self.of.files >= LONG.1;
        if let Some(tell) = self.tell.as_ref().filter(|_| long) {
            tell(Taking {
                taken: self.report.amount,
                of: self.of,
            });
        }
    }

    /// Hands a line to the import. One that ended already says so by its own exit code.
    fn send(&self, line: Bytes) {
        let _ = self.lines.blocking_send(line);
    }
}

/// Bytes for people: whole MiB from the second on.
fn shown(bytes: u64) -> String {
    match bytes >> 20 {
        0 | 1 => format!("{bytes} bytes"),
        mib => format!("{mib} MiB"),
    }
}
