//! A sandbox at the other end of a stream: each call of the trait as one call on the toolbox.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wharf_toolbox::held::Held;
use wharf_toolbox::message::{HostHello, Reply, Request};
use wharf_toolbox::wire::VERSION;

use super::claims;
use super::egress::{self, Office};
use super::link::{Link, connect};
use super::remote_run::{finished, outcome, verb};
use super::remote_tree::{Below, changes};
use super::seals;
use super::{
    Answer, Break, Cause, Changes, Command, Doubt, Error, Facts, Finished, Listing, ProcessAction,
    Read, Sandbox, Search, Tree,
};

/// What a command's answer may take on top of its own time: killing it, and saying so.
pub(super) const GRACE: Duration = Duration::from_secs(15);
/// What a call on files may take, besides a second for each `RATE` bytes, and the time that these take to
/// cross a slow line.
pub(super) const FILES: Duration = Duration::from_secs(60);
const RATE: u64 = 1 << 20;
/// Most bytes of a list, of the lines of a search, and of a scan's records.
const LINES: usize = 64 << 20;
pub(super) const RECORDS: usize = 640 << 20;
/// What head, tail and a note of ours may have above what was asked to keep.
const NOTES: usize = 64 << 10;

/// Ends the container and waits until it is gone.
pub type Closer = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send + Sync>;

/// What the engine knows of a container it has started.
pub struct Start {
    /// All but the shell, which the toolbox says.
    pub facts: Facts,
    /// The tree in the image's own layer; taken where `upload` is given none.
    pub tree_base: Option<Tree>,
    /// Make the agent a repository of its own.
    pub git: bool,
    /// Bytes that workspace, home and /tmp may hold together.
    pub disk: u64,
    /// Files and folders that they may hold together.
    pub inodes: u64,
    /// The way out of it, where there is one.
    pub egress: Option<egress::Exit>,
    /// Run once, by `close`.
    pub closer: Closer,
}

/// What `close` waits for: the hub, those who serve ways out, the container.
struct End {
    hub: JoinHandle<()>,
    office: Option<JoinHandle<()>>,
    closer: Closer,
}

/// A sandbox over a stream.
pub struct Remote {
    pub(super) link: Link,
    facts: Facts,
    held: Held,
    layer: Option<Tree>,
    pub(super) git: bool,
    /// One command at a time: the time of each begins when it does.
    turn: Semaphore,
    /// Waited for by whoever closes first; a second closer waits for the first.
    end: Mutex<Option<End>>,
    proxy: Option<u16>,
}

/// Greets the toolbox over the container's streams. `ended` resolves with the reason when the
/// container has ended. The sandbox is empty until `upload`.
pub async fn start(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    start: Start,
    ended: impl Future<Output: Into<Break>> + Send + 'static,
) -> Result<Remote, Error> {
    greet((reader, writer), start, None, ended).await
}

/// As `start`, with the time after which either side takes the other for gone.
pub async fn greet(
    (reader, writer): (
        impl AsyncRead + Send + Unpin + 'static,
        impl AsyncWrite + Send + Unpin + 'static,
    ),
    start: Start,
    lease: Option<Duration>,
    ended: impl Future<Output: Into<Break>> + Send + 'static,
) -> Result<Remote, Error> {
    let hello = HostHello {
        version: VERSION,
        disk: start.disk,
        inodes: start.inodes,
        proxy: start.egress.as_ref().map(|exit| exit.port),
        key: seals::key(),
        lease_ms: lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)),
        ..HostHello::default()
    };
    let (knocks, heard) = unbounded_channel();
    let knocks = start.egress.as_ref().map(|_| knocks);
    let ended = async { ended.await.into() };
    let (link, greeting, hub) = match connect(reader, writer, &hello, ended, knocks).await {
        Ok(connected) => connected,
        Err(error) => {
            (start.closer)().await;
            return Err(error);
        }
    };
    let serve = |exit| tokio::spawn(Office::new(exit).serve(heard));
    Ok(Remote {
        link,
        facts: Facts {
            shell: greeting.shell,
            ..start.facts
        },
        held: greeting.held,
        layer: start.tree_base,
        git: start.git && greeting.git,
        turn: Semaphore::new(1),
        end: Mutex::new(Some(End {
            hub,
            office: start.egress.map(serve),
            closer: start.closer,
        })),
        proxy: greeting.proxy,
    })
}

impl Remote {
    /// The limits that process 1 read when it greeted.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// With what was not seen to hold.
    pub(super) fn doubted(mut self, doubts: Vec<Doubt>) -> Self {
        self.facts.doubts = doubts;
        self
    }

    /// The port of the proxy on the sandbox's loopback, where there is a way out.
    pub fn proxy(&self) -> Option<u16> {
        self.proxy
    }

    /// Makes the workspace exactly `tree`, sending what `layer` does not have, and returns once
    /// the toolbox has proved by a manifest that it lies there.
    pub async fn upload(&self, layer: Option<&Tree>, tree: &Tree) -> Result<(), Error> {
        let layer = layer.or(self.layer.as_ref());
        let below = layer.map_or(Below::Nothing, Below::Looked);
        self.send(below, tree).await.map(drop)
    }

    pub(super) fn late(&self, what: &str, limit: Duration) -> Error {
        let reason = format!("no answer to {what} within {} s", limit.as_secs());
        self.link.break_off(Cause::Silent, reason)
    }

    pub(super) fn odd(&self, what: &str) -> Error {
        let reason = format!("the answer to {what} makes no sense");
        self.link.break_off(Cause::Protocol, reason)
    }

    fn claimed(&self, what: &str) -> Error {
        let reason = format!("the toolbox claims {what}");
        self.link.break_off(Cause::Protocol, reason)
    }

    /// One call on files: its reply and data, or what to tell the agent.
    pub(super) async fn ask(
        &self,
        request: Request,
        body: Bytes,
        most: usize,
    ) -> Result<Answer<(Reply, Bytes)>, Error> {
        let what = verb(&request);
        let bytes = (most.min(RECORDS) + body.len()) as u64;
        let limit = FILES + Duration::from_secs(bytes.min(64 << 20) / RATE);
        let mut call = self.link.open(&request)?;
        let pace = call.pace();
        let talk = async {
            // Nobody waits for the end of a request that is whole in its opening.
            if matches!(request, Request::Write { .. }) {
                let whole = call.send(body).await?;
                call.finish();
                let answer = call.reply(most).await?;
                // Nothing is written before all of it was sent.
                return match answer {
                    (Reply::Written, _) if !whole => Err(self.odd(what)),
                    answer => Ok(answer),
                };
            }
            call.reply(most).await
        };
        match pace.hold(limit, talk).await {
            Err(limit) => Err(self.late(what, limit)),
            Ok(Err(error)) => Err(error),
            Ok(Ok((Reply::Told { text }, _))) => match claims::told(&text) {
                Ok(()) => Ok(Err(text)),
                Err(what) => Err(self.claimed(what)),
            },
            Ok(Ok((Reply::Failed { reason }, _))) => {
                Err(self.link.break_off(Cause::Unable, reason))
            }
            Ok(Ok(answer)) => Ok(Ok(answer)),
        }
    }

    async fn lines(&self, request: Request, limit: usize) -> Result<Answer<Listing>, Error> {
        let what = verb(&request);
        Ok(match self.ask(request, Bytes::new(), LINES).await? {
            Ok((Reply::Listed { cut }, body)) => {
                let text = String::from_utf8_lossy(&body);
                let lines: Vec<String> = text.lines().map(str::to_owned).collect();
                if lines.len() > limit {
                    return Err(self.claimed("more lines than were asked for"));
                }
                Ok(Listing { lines, cut })
            }
            Ok(_) => return Err(self.odd(what)),
            Err(text) => Err(text),
        })
    }

    async fn command(
        &self,
        command: &Command,
        cancel: &CancellationToken,
    ) -> Result<Finished, Error> {
        let _turn = tokio::select! {
            turn = self.turn.acquire() => turn.map_err(|_| self.odd("run"))?,
            () = cancel.cancelled() => return Err(Error::Cancelled),
        };
        let request = Request::Run {
            line: command.line.clone(),
            timeout_ms: u64::try_from(command.timeout.as_millis()).unwrap_or(u64::MAX),
            background: command.background,
            keep: command.keep as u64,
        };
        let mut call = self.link.open(&request)?;
        let most = command.keep.saturating_mul(4).saturating_add(NOTES);
        let limit = command.timeout + GRACE;
        match timeout(limit, outcome(&mut call, most, cancel)).await {
            Err(_) => Err(self.late("run", limit)),
            Ok(Err(error)) => Err(error),
            Ok(Ok((Reply::Ran(ran), body))) => {
                claims::ran(&ran, command.background, cancel.is_cancelled())
                    .and_then(|()| finished(ran, body))
                    .map_err(|what| self.claimed(what))
            }
            Ok(Ok((Reply::Failed { reason }, _))) => {
                Err(self.link.break_off(Cause::Unable, reason))
            }
            Ok(Ok((Reply::Told { .. }, _))) if cancel.is_cancelled() => Err(Error::Cancelled),
            Ok(Ok(_)) => Err(self.odd("run")),
        }
    }
}

impl Sandbox for Remote {
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
            let request = Request::Process {
                id,
                stop: action == ProcessAction::Stop,
            };
            Ok(match self.ask(request, Bytes::new(), LINES).await? {
                Ok((Reply::Ran(ran), body)) => Ok(claims::process(&ran, action)
                    .and_then(|()| finished(ran, body))
                    .map_err(|what| self.claimed(what))?),
                Ok(_) => return Err(self.odd("process")),
                Err(text) => Err(text),
            })
        })
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Answer<Read>, Error>> {
        Box::pin(async move {
            let most = usize::try_from(limit).unwrap_or(usize::MAX);
            let request = Request::Read {
                path: path.to_owned(),
                offset,
                limit,
            };
            Ok(match self.ask(request, Bytes::new(), most).await? {
                Ok((Reply::Read { size }, bytes)) => Ok(Read { bytes, size }),
                Ok(_) => return Err(self.odd("read")),
                Err(text) => Err(text),
            })
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Result<Answer<()>, Error>> {
        Box::pin(async move {
            let request = Request::Write {
                path: path.to_owned(),
            };
            Ok(match self.ask(request, content, 0).await? {
                Ok((Reply::Written, _)) => Ok(()),
                Ok(_) => return Err(self.odd("write")),
                Err(text) => Err(text),
            })
        })
    }

    fn list<'a>(
        &'a self,
        pattern: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        let pattern = pattern.map(str::to_owned);
        let request = Request::List {
            pattern,
            limit: limit as u64,
        };
        Box::pin(self.lines(request, limit))
    }

    fn grep<'a>(&'a self, search: &'a Search) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        let request = Request::Grep {
            pattern: search.pattern.clone(),
            glob: search.glob.clone(),
            limit: search.limit as u64,
        };
        Box::pin(self.lines(request, search.limit))
    }

    fn scan(&self) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(async move {
            match self.ask(Request::Scan, Bytes::new(), RECORDS).await? {
                Ok((Reply::Scanned, body)) => {
                    changes(body).map_err(|fault| self.link.break_off(Cause::Protocol, fault))
                }
                Ok(_) | Err(_) => Err(self.odd("scan")),
            }
        })
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut end = self.end.lock().await;
            if let Some(end) = end.take() {
                self.link.close();
                // A hub that panicked has let go of the stream as well.
                let _ = end.hub.await;
                if let Some(office) = end.office {
                    let _ = office.await;
                }
                (end.closer)().await;
            }
        })
    }
}
