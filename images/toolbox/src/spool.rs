//! The full text of long outputs, as files in /tmp that the agent can read.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bell::lock;

/// Most bytes kept of one command, both streams together.
const CALL: usize = 16 * 1024 * 1024;
/// Most bytes kept in all; the oldest texts go first.
const SANDBOX: usize = 64 * 1024 * 1024;

/// Bytes spooled of one command.
pub type Budget = AtomicUsize;

/// The folder and what lies in it.
pub struct Spool {
    folder: PathBuf,
    /// Texts in order of their age.
    texts: Mutex<Texts>,
}

#[derive(Default)]
struct Texts {
    files: VecDeque<PathBuf>,
    total: usize,
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
    pub fn create(&self, name: &str) -> Option<(String, File)> {
        std::fs::create_dir_all(&self.folder).ok()?;
        let path = self.folder.join(name);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)
            .ok()?;
        let shown = path.to_str()?.to_owned();
        lock(&self.texts).files.push_back(path);
        Some((shown, file))
    }

    /// How many of `wanted` bytes may be written for a command; makes room by removing old texts.
    pub fn reserve(&self, budget: &Budget, wanted: usize) -> usize {
        let used = budget.fetch_add(wanted, Ordering::Relaxed);
        let allowed = wanted.min(CALL.saturating_sub(used));
        let mut texts = lock(&self.texts);
        texts.total += allowed;
        while texts.total > SANDBOX && texts.files.len() > 2 {
            let Some(oldest) = texts.files.pop_front() else {
                break;
            };
            let size = std::fs::symlink_metadata(&oldest).map_or(0, |meta| meta.len());
            let _ = std::fs::remove_file(&oldest);
            texts.total = texts
                .total
                .saturating_sub(usize::try_from(size).unwrap_or(0));
        }
        allowed
    }
}
