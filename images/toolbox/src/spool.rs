//! The full text of long outputs, as files in /tmp that the agent can read.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use wharf_toolbox::message::Spooled;

use crate::bell::lock;

/// Most bytes kept of one command, both streams together.
const CALL: usize = 16 * 1024 * 1024;
/// Most bytes kept in all; the oldest texts go first.
const SANDBOX: usize = 64 * 1024 * 1024;
/// Texts that are never removed: the two streams of the newest command.
const NEWEST: usize = 2;

/// Bytes spooled of one command.
pub type Budget = AtomicUsize;

/// The folder and what lies in it.
pub struct Spool {
    folder: PathBuf,
    texts: Mutex<Texts>,
}

/// Texts in order of their age, by our own count: what lies in the folder is the agent's to change.
#[derive(Default)]
struct Texts {
    all: VecDeque<(PathBuf, usize)>,
    total: usize,
}

/// One stream's text on its way into the spool.
pub struct Text {
    path: PathBuf,
    file: File,
    budget: Arc<Budget>,
    written: usize,
    /// Nothing more is written: the call's share is used up, the disk is full, or the text is gone.
    closed: bool,
}

impl Spool {
    /// A spool in `folder`, which is made when first needed.
    pub fn new(folder: PathBuf) -> Spool {
        Spool {
            folder,
            texts: Mutex::default(),
        }
    }

    /// A new text; nothing when the disk or the agent does not let us.
    pub fn create(&self, name: &str, budget: &Arc<Budget>) -> Option<Text> {
        std::fs::create_dir_all(&self.folder).ok()?;
        let path = self.folder.join(name);
        path.to_str()?;
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)
            .ok()?;
        lock(&self.texts).all.push_back((path.clone(), 0));
        Some(Text {
            path,
            file,
            budget: Arc::clone(budget),
            written: 0,
            closed: false,
        })
    }

    /// Adds to a text what its command may still have; removes old texts when that is too much in
    /// all. A text that misses bytes gets no more: it is the beginning of the output, without holes.
    pub fn add(&self, text: &mut Text, bytes: &[u8]) {
        if text.closed {
            return;
        }
        let used = text.budget.fetch_add(bytes.len(), Ordering::Relaxed);
        let allowed = bytes.len().min(CALL.saturating_sub(used));
        let written = write(&mut text.file, &bytes[..allowed]);
        text.written += written;
        text.closed = written < bytes.len() || !self.count(&text.path, written);
    }

    /// False when the text was removed before.
    fn count(&self, path: &PathBuf, written: usize) -> bool {
        let mut texts = lock(&self.texts);
        let Some((_, size)) = texts.all.iter_mut().find(|(one, _)| one == path) else {
            return false;
        };
        *size += written;
        texts.total += written;
        while texts.total > SANDBOX && texts.all.len() > NEWEST {
            let Some((oldest, size)) = texts.all.pop_front() else {
                break;
            };
            let _ = std::fs::remove_file(&oldest);
            texts.total = texts.total.saturating_sub(size);
        }
        true
    }

    /// Where a text is and how much of it; nothing when it was removed to make room.
    pub fn told(&self, text: &Text) -> Option<Spooled> {
        let path = text.path.to_str()?.to_owned();
        let kept = lock(&self.texts)
            .all
            .iter()
            .any(|(one, _)| *one == text.path);
        kept.then_some(Spooled {
            path,
            bytes: text.written as u64,
        })
    }
}

/// How many bytes went in before the first that did not.
fn write(file: &mut File, bytes: &[u8]) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        match file.write(&bytes[done..]) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(name: &str) -> (Spool, PathBuf) {
        let folder =
            std::env::temp_dir().join(format!("wharf-spool-{name}-{}", std::process::id()));
        (Spool::new(folder.clone()), folder)
    }

    #[test]
    fn a_command_has_its_share_and_its_text_is_a_beginning() {
        let (spool, folder) = spool("share");
        let budget = Arc::default();
        let mut out = spool.create("1-stdout", &budget).unwrap();
        let mut err = spool.create("1-stderr", &budget).unwrap();
        spool.add(&mut out, &vec![b'x'; CALL - 3]);
        spool.add(&mut err, b"12345");
        spool.add(&mut err, b"6");
        assert_eq!(spool.told(&out).unwrap().bytes, CALL as u64 - 3);
        let told = spool.told(&err).unwrap();
        assert_eq!(told.bytes, 3);
        assert_eq!(std::fs::read(told.path).unwrap(), b"123");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_oldest_go_first_whatever_the_agent_did_to_them() {
        let (spool, folder) = spool("oldest");
        let mut texts: Vec<Text> = (0..4)
            .map(|n| {
                let mut text = spool.create(&format!("{n}"), &Arc::default()).unwrap();
                spool.add(&mut text, &vec![b'x'; CALL]);
                text
            })
            .collect();
        // Emptied by the agent, it still counts for what we wrote.
        std::fs::write(folder.join("0"), b"").unwrap();
        let mut fifth = spool.create("5", &Arc::default()).unwrap();
        spool.add(&mut fifth, &vec![b'x'; CALL]);
        assert_eq!(spool.told(&texts[0]), None);
        assert!(!folder.join("0").exists());
        assert_eq!(spool.told(&texts[1]).unwrap().bytes, CALL as u64);
        // A removed text takes nothing more, so it counts no more.
        texts[0].budget.store(0, Ordering::Relaxed);
        spool.add(&mut texts[0], b"late");
        assert_eq!(lock(&spool.texts).total, SANDBOX);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
