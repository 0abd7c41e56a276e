//! Sandboxes without containers, for tests and benches: real files in a map, and a shell of few words.
//!
//! The shell knows `true`, `false`, `exit N`, `echo TEXT`, `cat F`, `rm F`, `sleep N` (in tokio's
//! time), `test -f F`, `grep -q TEXT F`, `> F` and `>> F` after `echo`, joined by `&&`, `;` and line
//! ends; anything else is exit code 127. There is no network whatever a spec says: a policy of hosts is
//! taken, no command could use it, and its listener hears nothing.
//!
//! Owns: the files of each sandbox and their last scan.
//! Takes: a tree.
//! Gives: the `Engine` and `Sandbox` traits, and faults on demand.
//! Never: a process.

mod shell;
mod state;
mod waiting;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wharf_toolbox::pattern::{Glob, regex, search, shown};
use wharf_toolbox::record::plain;

use self::shell::{Files, Shell};
use self::state::State;
use self::waiting::Waiting;
use super::{
    Answer, Changes, Command, Engine, Error, Exit, Facts, Finished, Image, ImageSpec, Layer,
    Listing, Mode, ProcessAction, Progress, Read, Sandbox, Search, Spec, Stream, Tree, Vacant,
};

/// An engine whose sandboxes are maps.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Each sandbox breaks at the call after so many.
    pub break_after: Option<u32>,
}

/// One sandbox in memory.
pub struct Held {
    facts: Facts,
    /// Held for a moment between awaits, never across one.
    state: Mutex<State>,
    calls: AtomicU32,
    break_after: Option<u32>,
}

impl Engine for Memory {
    fn prepare<'a>(
        &'a self,
        image: &'a ImageSpec,
        _progress: &'a dyn Progress,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Image, Error>> {
        let name = image.image.clone();
        Box::pin(async {
            Ok(Image {
                id: "sha256:memory".into(),
                name,
                describes: String::new(),
            })
        })
    }

    fn start<'a>(
        &'a self,
        spec: &'a Spec,
        layer: Option<&'a Layer>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Box<dyn Vacant>, Error>> {
        Box::pin(async move {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            layer.map(|layer| layer.standing(spec)).transpose()?;
            let vacant: Box<dyn Vacant> = Box::new(Waiting {
                facts: Facts {
                    container: "memory".into(),
                    image: spec.image.name.clone(),
                    runtime: "memory".into(),
                    shell: Some("sh".into()),
                },
                break_after: self.break_after,
            });
            Ok(vacant)
        })
    }

    fn layer<'a>(
        &'a self,
        spec: &'a Spec,
        tree: Arc<Tree>,
        _progress: &'a dyn Progress,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Layer, Error>> {
        let base = spec.image.id.clone();
        Box::pin(async {
            Ok(Layer {
                image: "memory".into(),
                base,
                name: "memory".into(),
                tree,
            })
        })
    }
}

/// The files of a tree with their bytes.
async fn load(tree: &Tree) -> Result<Files, Error> {
    let fault = |reason: String| Error::Engine {
        operation: "read the tree",
        reason,
    };
    let ids = tree
        .entries
        .values()
        .map(|entry| entry.id.clone())
        .collect();
    let mut source = tree.contents.read(ids);
    let mut buffer = BytesMut::new();
    let mut files = Files::new();
    for (path, entry) in &tree.entries {
        let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
        while buffer.len() < size {
            let next = source
                .next()
                .await
                .ok_or_else(|| fault("content is cut".into()))?;
            buffer.extend_from_slice(&next.map_err(|error| fault(error.to_string()))?);
        }
        files.insert(path.clone(), (entry.mode, buffer.split_to(size).freeze()));
    }
    Ok(files)
}

/// A path of the agent's as one in the map.
pub(super) fn relative(path: &str) -> Result<Vec<u8>, String> {
    let inner = path.strip_prefix("/workspace/").unwrap_or(path);
    let inner = inner.strip_prefix("./").unwrap_or(inner);
    if plain(inner.as_bytes()) {
        Ok(inner.as_bytes().to_vec())
    } else {
        Err(format!("{path}: leads outside of /workspace"))
    }
}

impl Held {
    fn new(facts: Facts, state: State, break_after: Option<u32>) -> Held {
        Held {
            facts,
            state: Mutex::new(state),
            calls: AtomicU32::new(0),
            break_after,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call; fails once the sandbox is closed or has broken.
    fn call(&self) -> Result<u32, Error> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let broken = |reason: &str| {
            Err(Error::Broken {
                reason: reason.into(),
            })
        };
        if self.state().closed {
            return broken("it is closed");
        }
        match self.break_after {
            Some(after) if number > after => broken("it broke as it was told to"),
            _ => Ok(number),
        }
    }

    async fn command(
        &self,
        command: &Command,
        cancel: &CancellationToken,
    ) -> Result<Finished, Error> {
        let id = self.call()?;
        let begun = Instant::now();
        let mut shell = Shell::new(&command.line);
        let exit = loop {
            let pause = shell.step(&mut self.state().files);
            match pause {
                Some(_) if command.background => {}
                Some(pause) => {
                    let left = command.timeout.saturating_sub(begun.elapsed());
                    tokio::select! {
                        () = cancel.cancelled() => break Exit::Cancelled,
                        () = tokio::time::sleep(pause.min(left)) => {}
                    }
                    if pause >= left {
                        break Exit::TimedOut;
                    }
                }
                None => break Exit::Code(shell.status),
            }
        };
        let mut finished = Finished {
            exit,
            stdout: clipped(shell.stdout, command.keep),
            stderr: clipped(shell.stderr, command.keep),
            elapsed: begun.elapsed(),
            background: None,
        };
        if command.background {
            finished.exit = Exit::Running;
            finished.background = Some(id);
            self.state().background.insert(id, finished.clone());
        }
        Ok(finished)
    }

    fn lines(
        &self,
        limit: usize,
        each: impl FnOnce(&Files, &mut dyn FnMut(String) -> bool),
    ) -> Listing {
        let mut listing = Listing::default();
        each(&self.state().files, &mut |line| {
            listing.cut = listing.lines.len() == limit;
            if !listing.cut {
                listing.lines.push(line);
            }
            !listing.cut
        });
        listing
    }

    fn found(&self, asked: &Search) -> Answer<Listing> {
        let regex = regex(&asked.pattern)?;
        let glob = asked.glob.as_deref().map(Glob::name).transpose()?;
        Ok(self.lines(asked.limit, |files, put| {
            for (path, (mode, content)) in files {
                let meant = *mode != Mode::Link && glob.as_ref().is_none_or(|g| g.matches(path));
                if meant && !search(&regex, path, content, put) {
                    return;
                }
            }
        }))
    }
}

fn clipped(text: Vec<u8>, keep: usize) -> Stream {
    let text = Bytes::from(text);
    let head = text.slice(..text.len().min(keep));
    let tail = text.slice(text.len().saturating_sub(keep).max(head.len())..);
    Stream {
        head,
        tail,
        total: text.len() as u64,
        spool: None,
    }
}

impl Sandbox for Held {
    fn run<'a>(
        &'a self,
        command: &'a Command,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Finished, Error>> {
        Box::pin(self.command(command, cancel))
    }

    fn process(
        &self,
        id: u32,
        action: ProcessAction,
    ) -> BoxFuture<'_, Result<Answer<Finished>, Error>> {
        Box::pin(async move {
            self.call()?;
            let mut state = self.state();
            let Some(finished) = state.background.get_mut(&id) else {
                return Ok(Err(format!("there is no background process {id}")));
            };
            if action == ProcessAction::Stop {
                finished.exit = Exit::Code(137);
                finished.background = None;
            }
            Ok(Ok(finished.clone()))
        })
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Answer<Read>, Error>> {
        Box::pin(async move {
            self.call()?;
            let content = relative(path).and_then(|inner| self.state().content(&inner, path));
            Ok(content.map(|content| {
                let at = |from: u64| {
                    usize::try_from(from)
                        .unwrap_or(usize::MAX)
                        .min(content.len())
                };
                let bytes = content.slice(at(offset)..at(offset.saturating_add(limit)));
                Read {
                    bytes,
                    size: content.len() as u64,
                }
            }))
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Result<Answer<()>, Error>> {
        Box::pin(async move {
            self.call()?;
            Ok(relative(path).and_then(|inner| self.state().write(inner, path, content)))
        })
    }

    fn list<'a>(
        &'a self,
        pattern: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        Box::pin(async move {
            self.call()?;
            Ok(pattern.map(Glob::path).transpose().map(|glob| {
                self.lines(limit, |files, put| {
                    let _ = files
                        .keys()
                        .filter(|path| glob.as_ref().is_none_or(|glob| glob.matches(path)))
                        .all(|path| put(shown(path)));
                })
            }))
        })
    }

    fn grep<'a>(&'a self, search: &'a Search) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        Box::pin(async move {
            self.call()?;
            Ok(self.found(search))
        })
    }

    fn scan(&self) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(async move {
            self.call()?;
            Ok(self.state().scan())
        })
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.state().closed = true })
    }
}

#[cfg(test)]
mod tests;
