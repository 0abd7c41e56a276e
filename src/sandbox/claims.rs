//! What a toolbox claims, checked before anybody believes it: an answer that the true toolbox could
//! not have given means that process 1 is not what it was, and that the sandbox is broken.

use std::collections::BTreeSet;

use wharf_toolbox::message::{Ended, Printed, Ran, ToolboxHello};
use wharf_toolbox::record::{Header, Kind, MAX_PATH, Mode, plain};

use super::ProcessAction;

/// Most bytes of a sentence for the agent: a path and some words.
const TOLD: usize = 4 * MAX_PATH;
/// Most records of one scan: each file that a sandbox may hold, gone and come again.
const RECORDS: usize = 1_000_000;

/// Shells that the toolbox looks for.
const SHELLS: [&str; 2] = ["bash", "sh"];

/// The greeting names a shell that there can be, and seals what has to be sealed.
pub(super) fn greeting(hello: &ToolboxHello) -> Result<(), &'static str> {
    match hello.shell.as_deref() {
        Some(shell) if !SHELLS.contains(&shell) => Err("a shell that nobody looked for"),
        _ if hello.held.streams == Some(1) && !hello.sealed => {
            Err("streams that commands share, and no seals")
        }
        _ => Ok(()),
    }
}

/// The end of a command that was to run in the `background` or not, `cancelled` by us or not.
pub(super) fn ran(ran: &Ran, background: bool, cancelled: bool) -> Result<(), &'static str> {
    match (ran.exit, ran.background) {
        (Ended::Running, Some(_)) if background => {}
        (Ended::Running, _) => return Err("a command that runs on, though nobody asked for it"),
        (Ended::Cancelled, _) if !cancelled => return Err("a cancel that was not asked for"),
        (_, Some(_)) => return Err("a background process that has ended"),
        _ => {}
    }
    streams(ran)
}

/// The state of a background process.
pub(super) fn process(ran: &Ran, action: ProcessAction) -> Result<(), &'static str> {
    match (ran.exit, action) {
        (Ended::TimedOut | Ended::Cancelled, _) => {
            Err("a limit that background processes have not")
        }
        (Ended::Running, ProcessAction::Stop) => Err("a stopped process that runs on"),
        _ => streams(ran),
    }
}

fn streams(ran: &Ran) -> Result<(), &'static str> {
    printed(&ran.stdout)?;
    printed(&ran.stderr)
}

fn printed(printed: &Printed) -> Result<(), &'static str> {
    let kept = printed.head.checked_add(printed.tail);
    if kept.is_none_or(|kept| kept > printed.total) {
        return Err("more output than was printed");
    }
    match &printed.spool {
        Some(text) if text.bytes > printed.total => Err("a text longer than the output"),
        Some(text) if !path_of_ours(&text.path) => Err("a text at a place that is none"),
        _ => Ok(()),
    }
}

fn path_of_ours(path: &str) -> bool {
    path.len() <= MAX_PATH && path.starts_with('/') && !path.chars().any(char::is_control)
}

/// A sentence for the agent.
pub(super) fn told(text: &str) -> Result<(), &'static str> {
    if text.len() > TOLD {
        return Err("a sentence without end");
    }
    Ok(())
}

/// The records of a scan, one after another.
#[derive(Default)]
pub(super) struct Scan {
    records: usize,
    puts: BTreeSet<Vec<u8>>,
    deletes: BTreeSet<Vec<u8>>,
}

impl Scan {
    /// The next record; `content` is a link's target, among others.
    pub(super) fn record(&mut self, header: &Header, content: &[u8]) -> Result<(), String> {
        self.records += 1;
        if self.records > RECORDS {
            return Err(format!("a scan of more than {RECORDS} records"));
        }
        let path = &header.path;
        let refuse = |why: &str| Err(format!("{why}: {:?}", String::from_utf8_lossy(path)));
        let new = match header.kind {
            Kind::Keep(_) => return refuse("record out of place"),
            // Only ever shown, and a folder has a slash at its end.
            Kind::LeftOut => return Ok(()),
            _ if !plain(path) => return refuse("path not allowed"),
            Kind::Delete if header.size != 0 => return refuse("a deletion with content"),
            Kind::Put(Mode::Link) if !target(content) => return refuse("a link to nowhere"),
            Kind::Delete => self.deletes.insert(path.clone()),
            Kind::Put(_) => self.puts.insert(path.clone()),
        };
        if new { Ok(()) } else { refuse("a path twice") }
    }

    /// All records have come: nothing is put and deleted, and nothing lies beneath a file or a link.
    pub(super) fn end(self) -> Result<(), String> {
        for path in &self.puts {
            let shown = String::from_utf8_lossy(path);
            if self.deletes.contains(path) {
                return Err(format!("put and deleted: {shown:?}"));
            }
            let mut above = path.as_slice();
            while let Some(slash) = above.iter().rposition(|&byte| byte == b'/') {
                above = &above[..slash];
                if self.puts.contains(above) {
                    return Err(format!("a path through a file: {shown:?}"));
                }
            }
        }
        Ok(())
    }
}

/// What the kernel takes as the target of a link.
fn target(content: &[u8]) -> bool {
    !content.is_empty() && content.len() <= MAX_PATH && !content.contains(&0)
}
