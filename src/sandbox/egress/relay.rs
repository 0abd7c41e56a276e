//! Bytes both ways between a channel and a server, within the limits of both and of the sandbox.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use wharf_toolbox::speech::http_reply;
use wharf_toolbox::wire::MAX_DATA;

use super::decide::Grant;
use super::dial::Stream;
use super::first::{Look, is_harmless, look};
use super::office::Office;
use super::passage::{Heard, Passage};
use super::request::Request;

/// What lies between the channel and the server.
pub(super) enum Filter {
    /// The first bytes of a tunnel, until it is told what they are.
    First(Vec<u8>),
    /// A request that is written anew.
    Request(Request),
    Open,
}

/// How a connection came to its end.
pub(super) struct Ended {
    pub sent: u64,
    pub received: u64,
    pub how: String,
}

/// One connection at work.
pub(super) struct Relay<'a> {
    office: &'a Office,
    grant: &'a Grant,
    passage: Passage,
    filter: Filter,
    /// For the server, each with the bytes from inside that it stands for.
    pending: VecDeque<(Bytes, usize)>,
    /// Bytes from inside that the filter holds.
    held: usize,
    flushed: bool,
    inside: Side,
    server: Side,
    /// The server takes nothing more; what it says still counts.
    deaf: bool,
    last: Instant,
    sent: u64,
    received: u64,
}

/// How far one side is with what it says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Speaking,
    /// It said its last byte; the other side has not all of it yet.
    Done,
    /// And the other side knows.
    Passed,
}

/// Writes the next bytes, or makes sure that those before are on their way. Safe to be dropped.
async fn write(to: &mut WriteHalf<Box<dyn Stream>>, next: Option<Bytes>) -> std::io::Result<usize> {
    match next {
        Some(bytes) => to.write(&bytes).await,
        None => to.flush().await.map(|()| 0),
    }
}

/// What a turn of the relay came to: an end, or nothing yet.
type Turn = Result<(), String>;

impl<'a> Relay<'a> {
    pub fn new(office: &'a Office, grant: &'a Grant, passage: Passage, filter: Filter) -> Self {
        Relay {
            office,
            grant,
            passage,
            filter,
            pending: VecDeque::new(),
            held: 0,
            flushed: true,
            inside: Side::Speaking,
            server: Side::Speaking,
            deaf: false,
            last: Instant::now(),
            sent: 0,
            received: 0,
        }
    }

    /// Works until the end, whichever it is.
    pub async fn run(mut self, stream: Box<dyn Stream>, over: &CancellationToken) -> Ended {
        let (mut from, mut to) = tokio::io::split(stream);
        let mut buffer = vec![0; MAX_DATA];
        let how = loop {
            self.pass_end(&mut to).await;
            if self.is_over() {
                self.passage.finish();
                break "both sides were done".to_owned();
            }
            if let Err(how) = self.turn(&mut from, &mut to, &mut buffer, over).await {
                break how;
            }
        };
        Ended {
            sent: self.sent,
            received: self.received,
            how,
        }
    }

    fn is_over(&self) -> bool {
        // A request is over with its response, whatever the program still says.
        let heard_out = matches!(self.filter, Filter::Request(_)) || self.inside == Side::Passed;
        self.server == Side::Passed && heard_out
    }

    /// Waits for the next thing that happens.
    async fn turn(
        &mut self,
        from: &mut ReadHalf<Box<dyn Stream>>,
        to: &mut WriteHalf<Box<dyn Stream>>,
        buffer: &mut [u8],
        over: &CancellationToken,
    ) -> Turn {
        let idle = self.last + self.office.way.patience.idle;
        let room = match self.server {
            Side::Speaking => self.passage.credit().min(buffer.len()),
            Side::Done | Side::Passed => 0,
        };
        let first = self.pending.front().map(|(bytes, _)| bytes.clone());
        let writing = first.is_some() || !self.flushed;
        tokio::select! {
            heard = self.passage.hear() => self.heard(heard),
            wrote = write(to, first), if writing => {
                self.wrote(wrote);
                Ok(())
            }
            read = from.read(&mut buffer[..room]), if room > 0 => self.read(read, buffer),
            () = sleep_until(idle) => Err(format!("no byte for {} s", self.office.way.patience.idle.as_secs())),
            () = over.cancelled() => Err("the sandbox was closed".to_owned()),
        }
    }

    /// Tells the server that the program said all, once it has all of it. The end of a request shows in
    /// the request: servers take an end of the stream for a client that gave up.
    async fn pass_end(&mut self, to: &mut WriteHalf<Box<dyn Stream>>) {
        if self.inside != Side::Done || !self.pending.is_empty() {
            return;
        }
        self.inside = Side::Passed;
        let tunnel = !matches!(self.filter, Filter::Request(_));
        if tunnel && !self.deaf {
            let limit = self.office.way.patience.connect;
            self.deaf |= !matches!(timeout(limit, to.shutdown()).await, Ok(Ok(())));
        }
    }

    fn heard(&mut self, heard: Option<Heard>) -> Turn {
        match heard {
            None => return Err("the sandbox ended".to_owned()),
            Some(Heard::Gone) => return Err("the program inside broke off".to_owned()),
            Some(Heard::Credit(_)) => {}
            Some(Heard::End) => {
                if self.inside == Side::Speaking {
                    self.inside = Side::Done;
                }
                return self.rest();
            }
            Some(Heard::Data(bytes)) => {
                self.last = Instant::now();
                return self.take(&bytes);
            }
        }
        Ok(())
    }

    /// Takes bytes from inside through the filter.
    fn take(&mut self, bytes: &Bytes) -> Turn {
        let length = bytes.len();
        let out = match &mut self.filter {
            Filter::Open => bytes.clone(),
            Filter::First(held) => {
                held.extend_from_slice(bytes);
                match look(held, &self.grant.host, self.grant.port) {
                    Look::More => {
                        self.held += length;
                        return Ok(());
                    }
                    Look::Shut(reason) => return Err(format!("refused: {reason}")),
                    Look::Open => {
                        let held = std::mem::take(held);
                        self.filter = Filter::Open;
                        Bytes::from(held)
                    }
                }
            }
            Filter::Request(request) => match request.push(bytes) {
                Ok(out) => Bytes::from(out),
                Err(reason) => return self.object(&reason),
            },
        };
        let cost = std::mem::take(&mut self.held) + length;
        if out.is_empty() || self.deaf {
            self.passage.pay(cost);
            return Ok(());
        }
        self.put(out, cost)
    }

    /// What the filter holds when the program ends: too short to mean another server.
    fn rest(&mut self) -> Turn {
        let Filter::First(held) = &mut self.filter else {
            return Ok(());
        };
        let (held, cost) = (std::mem::take(held), std::mem::take(&mut self.held));
        self.filter = Filter::Open;
        match (held.is_empty(), is_harmless(&held)) {
            (true, _) => Ok(()),
            (false, true) => self.put(Bytes::from(held), cost),
            (false, false) => Err(format!("refused: it cannot be told what {cost} bytes mean")),
        }
    }

    /// Queues bytes for the server as far as the sandbox's limit goes.
    fn put(&mut self, bytes: Bytes, cost: usize) -> Turn {
        if self.office.spend(bytes.len()) < bytes.len() {
            return Err(self.spent());
        }
        self.pending.push_back((bytes, cost));
        Ok(())
    }

    fn spent(&self) -> String {
        format!(
            "cut: the {} bytes that the plan allows are used up",
            self.office.policy.bytes
        )
    }

    /// Answers a request that cannot be sent on.
    fn object(&mut self, reason: &str) -> Turn {
        if self.received == 0 {
            self.passage.send(&http_reply("403 Forbidden", reason));
            self.passage.end();
            self.passage.finish();
        }
        Err(format!("refused: {reason}"))
    }

    fn wrote(&mut self, wrote: std::io::Result<usize>) {
        let Some((mut bytes, cost)) = self.pending.pop_front() else {
            self.flushed = true;
            self.deaf |= wrote.is_err();
            return;
        };
        match wrote {
            Ok(took) if took > 0 => {
                self.last = Instant::now();
                self.sent += took as u64;
                self.flushed = false;
                let rest = bytes.split_off(took.min(bytes.len()));
                match rest.is_empty() {
                    true => self.passage.pay(cost),
                    false => self.pending.push_front((rest, cost)),
                }
            }
            _ => {
                // Its answer may say why it does not listen.
                self.deaf = true;
                self.flushed = true;
                let costs = self.pending.drain(..).map(|(_, cost)| cost).sum::<usize>();
                self.passage.pay(cost + costs);
            }
        }
    }

    fn read(&mut self, read: std::io::Result<usize>, buffer: &[u8]) -> Turn {
        match read {
            Ok(0) => {
                self.server = Side::Passed;
                self.passage.end();
                Ok(())
            }
            Ok(got) => {
                self.last = Instant::now();
                let allowed = self.office.spend(got);
                self.received += allowed as u64;
                self.passage.send(&buffer[..allowed]);
                match allowed == got {
                    true => Ok(()),
                    false => Err(self.spent()),
                }
            }
            Err(error) => {
                self.passage.cut();
                Err(format!("the server broke off: {error}"))
            }
        }
    }
}
