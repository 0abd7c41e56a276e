//! The stream to one toolbox: who reads it, who writes it, and the channel of one call.
//!
//! The hub reads frames and hands them to the calls, without ever waiting for one: what a call has
//! not taken yet is bounded by the credit it gave. The writer puts control before data, and calls
//! before ways out, which are channels that the toolbox opens. Both end when the link is closed or breaks, and from then on every call is told the reason.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{
    UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::codec::{Decoder, FramedRead};
use wharf_toolbox::message::{HostHello, Reply, Request, Signal, ToolboxHello};
use wharf_toolbox::seal::{self, Seals};
use wharf_toolbox::wire::{Fault, Frame, INSIDE, Kind, MAX_DATA, VERSION};

use super::broken::broken;
use super::claims;
use super::credits::Credits;
use super::egress::{Inlet, Knock, knock};
use super::link_call::Call;
use super::outbox::{Outbox, write};
use super::seals;
use super::{Break, Cause, Error};

/// A toolbox that says nothing for so long, pings included, is gone; it holds the same of Wharf.
const SILENCE: Duration = Duration::from_secs(60);
/// Pings in that time, and the least time between two.
const PINGS: u32 = 12;
const SHORTEST: Duration = Duration::from_millis(10);
/// From start to the toolbox's hello.
const GREETING: Duration = Duration::from_secs(30);
/// How long the end of the stream waits for what it is owed: the writer's rest, the engine's word.
const GRACE: Duration = Duration::from_secs(2);

/// One toolbox, as calls see it.
pub(super) struct Link {
    words: UnboundedSender<Word>,
    reason: Arc<OnceLock<Break>>,
    next: AtomicU32,
}

/// What calls tell the hub.
pub(super) enum Word {
    Open(Frame, UnboundedSender<Event>),
    Send(Frame),
    Forget(u32),
    Break(Break),
    Close,
}

/// What the hub tells a call.
pub(super) enum Event {
    Data(Bytes),
    Credit(u32),
    Close(Reply),
}

#[derive(Default)]
struct Frames {
    /// Of the frames after the greeting, where they are sealed.
    seals: Option<Seals>,
}

impl Decoder for Frames {
    type Item = Frame;
    type Error = std::io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Frame>, std::io::Error> {
        match seal::decode(bytes, &mut self.seals) {
            Ok(Some((frame, used))) => {
                bytes.advance(used);
                Ok(Some(frame))
            }
            Ok(None) => Ok(None),
            Err(fault) => Err(std::io::Error::other(fault)),
        }
    }
}

/// Greets the toolbox and starts the hub, whose handle ends with the link. Who wants out knocks at
/// `knocks`; without it nobody may.
pub(super) async fn connect<R, W, E>(
    reader: R,
    mut writer: W,
    hello: &HostHello,
    ended: E,
    knocks: Option<UnboundedSender<Knock>>,
) -> Result<(Link, ToolboxHello, JoinHandle<()>), Error>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
    E: Future<Output = Break> + Send + 'static,
{
    let mut frames = FramedRead::with_capacity(reader, Frames::default(), MAX_DATA);
    let (outbox, rest) = Outbox::new();
    let (words, heard) = unbounded_channel();
    let reason = Arc::new(OnceLock::new());
    let mut first = Vec::new();
    Frame::json(Kind::Hello, 0, hello)
        .map_err(protocol)?
        .encode(&mut first);
    let mut ended: Ended = Box::pin(ended);
    let greeting = tokio::select! {
        frame = asked(&mut writer, &first, &mut frames) => greeted(frame),
        why = &mut ended => Err(why.into()),
        () = tokio::time::sleep(GREETING) => Err(broken(Cause::Silent, "the toolbox did not greet")),
    };
    let greeting = greeting?;
    let (mine, theirs) = seals::of(hello, &greeting).map_err(protocol)?;
    frames.decoder_mut().seals = theirs;
    let writing = tokio::spawn(write(writer, rest, mine, words.downgrade()));
    let lease = hello.lease_ms.map(Duration::from_millis);
    let hub = Hub {
        silence: lease.unwrap_or(SILENCE).min(SILENCE),
        outbox,
        calls: HashMap::new(),
        credits: Credits::default(),
        inlets: HashMap::new(),
        knocks,
        words: words.downgrade(),
        last: Instant::now(),
        reason: reason.clone(),
    };
    let handle = tokio::spawn(hub.run(frames, heard, ended, writing));
    Ok((
        Link {
            words,
            reason,
            next: AtomicU32::new(1),
        },
        greeting,
        handle,
    ))
}

type Ended = Pin<Box<dyn Future<Output = Break> + Send>>;

fn protocol(reason: impl std::fmt::Display) -> Error {
    broken(Cause::Protocol, reason)
}

/// Says the first frame and gives what comes back; a stream that cannot be written ends, and then says so.
async fn asked<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    writer: &mut W,
    first: &[u8],
    frames: &mut FramedRead<R, Frames>,
) -> Option<std::io::Result<Frame>> {
    if let Ok(()) = writer.write_all(first).await {
        let _ = writer.flush().await;
    }
    frames.next().await
}

fn greeted(frame: Option<std::io::Result<Frame>>) -> Result<ToolboxHello, Error> {
    let frame = frame
        .ok_or_else(|| broken(Cause::Gone, "the stream ended before the toolbox greeted"))?
        .map_err(protocol)?;
    if frame.kind != Kind::Hello {
        return Err(protocol("the toolbox began without a greeting"));
    }
    let hello: ToolboxHello = frame.parse().map_err(protocol)?;
    if hello.version != VERSION {
        return Err(protocol(format!(
            "toolbox of version {}, not {VERSION}",
            hello.version
        )));
    }
    claims::greeting(&hello)
        .map_err(|what| broken(Cause::Protocol, format!("the toolbox claims {what}")))?;
    Ok(hello)
}

struct Hub {
    /// A toolbox that said nothing for so long is gone.
    silence: Duration,
    outbox: Outbox,
    calls: HashMap<u32, UnboundedSender<Event>>,
    credits: Credits,
    /// Channels that were opened from inside.
    inlets: HashMap<u32, Inlet>,
    knocks: Option<UnboundedSender<Knock>>,
    words: WeakUnboundedSender<Word>,
    last: Instant,
    reason: Arc<OnceLock<Break>>,
}

impl Hub {
    async fn run<R: AsyncRead + Unpin>(
        mut self,
        mut frames: FramedRead<R, Frames>,
        mut words: UnboundedReceiver<Word>,
        mut ended: Ended,
        mut writing: JoinHandle<()>,
    ) {
        let mut ping = tokio::time::interval((self.silence / PINGS).max(SHORTEST));
        let reason = loop {
            let step = tokio::select! {
                frame = frames.next() => match frame {
                    Some(Ok(frame)) => self.deliver(frame).map_err(|fault| Break::new(Cause::Protocol, fault)),
                    Some(Err(error)) => Err(Break::new(read(&error), error)),
                    None => Err(why(&mut ended).await),
                },
                word = words.recv() => self.obey(word),
                _ = ping.tick() => self.ping(),
                why = &mut ended => Err(why),
            };
            if let Err(reason) = step {
                break reason;
            }
        };
        // Before the calls' channels fall, so that each finds the reason.
        let _ = self.reason.set(reason);
        drop(self);
        if timeout(GRACE, &mut writing).await.is_err() {
            writing.abort();
        }
    }

    fn deliver(&mut self, frame: Frame) -> Result<(), Fault> {
        self.last = Instant::now();
        let channel = frame.channel;
        if channel & INSIDE == 0 {
            self.credits.received(&frame)?;
        }
        if channel == 0 {
            return match frame.parse::<Signal>()? {
                Signal::Pong if frame.kind == Kind::Signal => Ok(()),
                _ => Err(Fault::Order("frame out of place")),
            };
        }
        if channel & INSIDE != 0 {
            return self.inward(frame);
        }
        let event = match frame.kind {
            Kind::Data => Event::Data(Bytes::from(frame.body)),
            Kind::Credit => Event::Credit(frame.amount()?),
            Kind::Close => Event::Close(frame.parse()?),
            Kind::Hello | Kind::Open | Kind::Signal | Kind::Answer => {
                return Err(Fault::Order("frame out of place"));
            }
        };
        let over = matches!(event, Event::Close(_));
        if let Some(call) = self.calls.get(&channel) {
            // A call that was dropped needs nothing any more.
            let _ = call.send(event);
        }
        if over {
            self.calls.remove(&channel);
        }
        Ok(())
    }

    /// Takes a frame of a channel that was opened from inside; one for a channel that is over is late.
    fn inward(&mut self, frame: Frame) -> Result<(), Fault> {
        let (channel, kind) = (frame.channel, frame.kind);
        match (kind, self.inlets.get_mut(&channel), &self.knocks) {
            (Kind::Open, None, Some(knocks)) => {
                let (inlet, knock) = knock(frame.parse()?, channel, self.words.clone());
                self.inlets.insert(channel, inlet);
                // Only a hub that is ending finds nobody there.
                let _ = knocks.send(knock);
            }
            (Kind::Open, _, _) => return Err(Fault::Order("a way out that nobody may open")),
            (_, Some(inlet), _) => inlet.take(frame)?,
            (_, None, None) => return Err(Fault::Order("frame on a channel that is not open")),
            (_, None, Some(_)) => {}
        }
        if kind == Kind::Signal {
            self.inlets.remove(&channel);
        }
        Ok(())
    }

    fn obey(&mut self, word: Option<Word>) -> Result<(), Break> {
        match word {
            Some(Word::Open(frame, events)) => {
                self.calls.insert(frame.channel, events);
                self.credits.opened(frame.channel);
                self.outbox.push(frame);
            }
            Some(Word::Send(frame)) => {
                self.credits.sent(&frame);
                self.outbox.push(frame);
            }
            Some(Word::Forget(channel)) => {
                self.calls.remove(&channel);
                self.inlets.remove(&channel);
            }
            Some(Word::Break(reason)) => return Err(reason),
            Some(Word::Close) | None => return Err(Break::new(Cause::Closed, "it was closed")),
        }
        Ok(())
    }

    fn ping(&mut self) -> Result<(), Break> {
        if self.last.elapsed() > self.silence {
            let reason = format!("no sign of life for {:?}", self.silence);
            return Err(Break::new(Cause::Silent, reason));
        }
        let frame = Frame::json(Kind::Signal, 0, &Signal::Ping)
            .map_err(|fault| Break::new(Cause::Protocol, fault))?;
        self.credits.pinged();
        self.outbox.push(frame);
        Ok(())
    }
}

/// Why the stream ended, as the engine knows it a moment later.
async fn why(ended: &mut Ended) -> Break {
    timeout(GRACE, ended)
        .await
        .unwrap_or_else(|_| Break::new(Cause::Engine, "the stream ended"))
}

/// Bytes that are no frame are the toolbox's fault, all else the stream's.
fn read(error: &std::io::Error) -> Cause {
    match error.get_ref().is_some_and(|inner| inner.is::<Fault>()) {
        true => Cause::Protocol,
        false => Cause::Engine,
    }
}

impl Link {
    /// Opens a channel for a request.
    pub(super) fn open(&self, request: &Request) -> Result<Call, Error> {
        let channel = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = unbounded_channel();
        let frame = Frame::json(Kind::Open, channel, request).map_err(protocol)?;
        if self.words.send(Word::Open(frame, sender)).is_err() {
            return Err(self.why());
        }
        Ok(Call::new(
            channel,
            self.words.clone(),
            events,
            self.reason.clone(),
        ))
    }

    /// Makes every call fail from now on; the error to give.
    pub(super) fn break_off(&self, cause: Cause, reason: String) -> Error {
        let _ = self
            .words
            .send(Word::Break(Break::new(cause, reason.clone())));
        broken(cause, reason)
    }

    /// Lets the hub and the writer end.
    pub(super) fn close(&self) {
        let _ = self.words.send(Word::Close);
    }

    /// Why no call is answered any more, once the link has ended.
    pub(super) fn ended(&self) -> Option<&str> {
        self.reason.get().map(|why| why.reason.as_str())
    }

    fn why(&self) -> Error {
        why_closed(&self.reason)
    }
}

/// The error of calls after the end.
pub(super) fn why_closed(reason: &OnceLock<Break>) -> Error {
    let closed = || Break::new(Cause::Closed, "it is closed");
    reason.get().cloned().unwrap_or_else(closed).into()
}
