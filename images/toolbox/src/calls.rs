//! Calls: from an opened channel to its reply, on threads that exist from the start, so that a
//! full process table stops no call.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use wharf_toolbox::message::{Reply, Request};

use crate::bell::lock;
use crate::files::Files;
use crate::git::{self, Given, History};
use crate::link::{Cancelled, Channel};
use crate::records::{Body, Stop};
use crate::run::{Asked, Shell};
use crate::surroundings;

/// Threads for calls that run beside a command.
const BESIDE: usize = 3;

/// What calls work on.
pub struct Calls {
    /// Commands.
    pub shell: Shell,
    /// Files.
    pub files: Files,
    /// Path of the image's git, if it has one.
    pub git: Option<String>,
    /// What commands need in order to start: workspace, home and /tmp.
    pub floor: Vec<PathBuf>,
    /// The agent's repository begins with commits that Wharf gave.
    pub given: AtomicBool,
}

/// A queue and the threads that empty it.
#[derive(Default)]
pub struct Queue {
    jobs: Mutex<VecDeque<(Request, Arc<Channel>)>>,
    filled: Condvar,
}

/// The two queues: what changes the sandbox, one after another; what looks, beside it.
pub struct Dispatch {
    changing: Arc<Queue>,
    looking: Arc<Queue>,
}

impl Dispatch {
    /// Starts the threads.
    pub fn start(calls: &Arc<Calls>) -> std::io::Result<Dispatch> {
        let dispatch = Dispatch {
            changing: Arc::default(),
            looking: Arc::default(),
        };
        serve("change", &dispatch.changing, calls)?;
        for _ in 0..BESIDE {
            serve("look", &dispatch.looking, calls)?;
        }
        Ok(dispatch)
    }

    /// Queues a call.
    pub fn take(&self, request: Request, channel: Arc<Channel>) {
        let queue = match request {
            Request::Run { .. }
            | Request::Write { .. }
            | Request::History { .. }
            | Request::Upload { .. }
            | Request::Ledger
            | Request::Scan => &self.changing,
            Request::Read { .. }
            | Request::List { .. }
            | Request::Grep { .. }
            | Request::Process { .. } => &self.looking,
        };
        lock(&queue.jobs).push_back((request, channel));
        queue.filled.notify_one();
    }
}

fn serve(name: &str, queue: &Arc<Queue>, calls: &Arc<Calls>) -> std::io::Result<()> {
    let (queue, calls) = (Arc::clone(queue), Arc::clone(calls));
    let work = move || {
        loop {
            let (request, channel) = queue.next();
            let reply = calls.answer(request, &channel);
            let cancelled = || Reply::Told {
                text: "cancelled".into(),
            };
            channel.close(&reply.unwrap_or_else(|Cancelled| cancelled()));
        }
    };
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map(drop)
}

impl Queue {
    fn next(&self) -> (Request, Arc<Channel>) {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.pop_front() {
                return job;
            }
            jobs = self
                .filled
                .wait(jobs)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Calls {
    fn answer(&self, request: Request, channel: &Channel) -> Result<Reply, Cancelled> {
        // The agent can change them from inside at any time, and without descriptors a walk is blind.
        if let Err(reason) = self.shell.limits.restore() {
            return Ok(Reply::Failed { reason });
        }
        let files = &self.files;
        surroundings::mend(&self.floor);
        match request {
            Request::Run {
                line,
                timeout_ms,
                background,
                keep,
            } => {
                let timeout = Duration::from_millis(timeout_ms);
                let keep = usize::try_from(keep).unwrap_or(usize::MAX).min(1 << 20);
                let asked = Asked {
                    line,
                    timeout,
                    background,
                    keep,
                };
                // Before the next command can change what a kill has cut.
                lock(&files.workspace).after_kill(&files.torn);
                let reply = self.shell.run(channel, &asked);
                lock(&files.workspace).after_kill(&files.torn);
                reply
            }
            Request::Process { id, stop } => self.shell.process(channel, id, stop),
            Request::Read {
                path,
                offset,
                limit,
            } => files.read(channel, &path, offset, limit),
            Request::Write { path } => files.write(channel, &path),
            Request::List { pattern, limit } => files.list(channel, pattern.as_deref(), limit),
            Request::Grep {
                pattern,
                glob,
                limit,
            } => files.grep(channel, &pattern, glob.as_deref(), limit),
            Request::History { tip, pack, index } => {
                self.history(channel, &Given { tip, pack, index })
            }
            Request::Upload { git, above } => self.upload(channel, git, above.as_deref()),
            Request::Ledger => match lock(&files.workspace).tell(channel) {
                Ok(()) => Ok(Reply::Known),
                Err(stop) => stopped(stop),
            },
            Request::Scan => {
                let mut workspace = lock(&files.workspace);
                workspace.after_kill(&files.torn);
                match workspace.scan(channel, &files.torn) {
                    Ok(()) => Ok(Reply::Scanned),
                    Err(stop) => stopped(stop),
                }
            }
        }
    }

    fn history(&self, channel: &Channel, given: &Given) -> Result<Reply, Cancelled> {
        match git::receive(self.shell.commands.root(), given, &mut Body::new(channel)) {
            Ok(taken) => {
                self.given.store(taken, Ordering::Release);
                Ok(Reply::Written)
            }
            Err(Stop::Failed(text)) => Ok(Reply::Told { text }),
            Err(stop) => stopped(stop),
        }
    }

    fn upload(
        &self,
        channel: &Channel,
        git: bool,
        above: Option<&str>,
    ) -> Result<Reply, Cancelled> {
        let mut workspace = lock(&self.files.workspace);
        let uploaded = match workspace.upload(channel, above) {
            Ok(uploaded) => uploaded,
            Err(stop) => return stopped(stop),
        };
        let small = workspace.size() <= git::FILES;
        drop(workspace);
        // Whoever gives a history wants it whatever the size; so did whoever made a layer with one.
        let wanted = small
            || self.given.load(Ordering::Acquire)
            || (above.is_some() && self.shell.commands.root().join(".git").exists());
        if let Some(program) = self.git.as_ref().filter(|_| git && wanted) {
            let history = match (above, uploaded.changed) {
                (None, _) => History::Images,
                (Some(_), changed) => History::Ours { changed },
            };
            git::make(program, &self.shell.commands, &self.shell.bell, history);
        }
        let manifest = uploaded.manifest;
        Ok(Reply::Uploaded { manifest })
    }
}

/// The reply to a call that did not come to its end.
pub fn stopped(stop: Stop) -> Result<Reply, Cancelled> {
    match stop {
        Stop::Cancelled => Err(Cancelled),
        Stop::Failed(reason) => Ok(Reply::Failed { reason }),
    }
}
