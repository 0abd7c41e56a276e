//! What a sandbox in memory holds: its files now, its files at the last scan, and what runs.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::shell::Files;
use crate::sandbox::{Answer, Changes, Finished, Mode, Put};

#[derive(Default)]
pub(super) struct State {
    pub files: Files,
    /// As the last scan left it.
    pub scanned: Files,
    pub background: BTreeMap<u32, Finished>,
    pub closed: bool,
}

impl State {
    pub fn is_folder(&self, path: &[u8]) -> bool {
        let inside = [path, b"/"].concat();
        self.files
            .range(inside.clone()..)
            .next()
            .is_some_and(|(path, _)| path.starts_with(&inside))
    }

    pub fn content(&self, path: &[u8], named: &str) -> Answer<Bytes> {
        match self.files.get(path) {
            Some((Mode::Link, _)) => Err(format!("{named}: a link")),
            Some((_, content)) => Ok(content.clone()),
            None if self.is_folder(path) => Err(format!("{named}: is a directory")),
            None => Err(format!("{named}: no such file")),
        }
    }

    pub fn write(&mut self, path: Vec<u8>, named: &str, content: Bytes) -> Answer<()> {
        if self.is_folder(&path) {
            return Err(format!("{named}: is a directory"));
        }
        let mode = match self.files.get(&path) {
            Some((Mode::Link, _)) => return Err(format!("{named}: a link")),
            Some((mode, _)) => *mode,
            None => Mode::File,
        };
        self.files.insert(path, (mode, content));
        Ok(())
    }

    pub fn scan(&mut self) -> Changes {
        let mut changes = Changes::default();
        for (path, file) in &self.files {
            if self.scanned.get(path) != Some(file) {
                let (mode, content) = file.clone();
                changes.puts.push(Put {
                    path: path.clone(),
                    mode,
                    content,
                });
            }
        }
        let gone = self
            .scanned
            .keys()
            .filter(|path| !self.files.contains_key(*path));
        changes.deletes = gone.cloned().collect();
        self.scanned = self.files.clone();
        changes
    }
}
