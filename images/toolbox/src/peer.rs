//! One client of the proxy: what it said, what it is owed, and the channel that serves it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::sockopt::set_socket_linger;
use wharf_toolbox::http::LONGEST;
use wharf_toolbox::message::{Answer, Signal};
use wharf_toolbox::speech::{Heard, Speech, hear};
use wharf_toolbox::wire::{CREDIT, Frame, Kind, MAX_DATA, due};

use crate::link::Link;

/// For saying what is wanted.
const ASKING: Duration = Duration::from_secs(30);
/// For taking a last word.
const PARTING: Duration = Duration::from_secs(5);
/// Without a byte either way; Wharf's own limit is shorter.
const IDLE: Duration = Duration::from_secs(900);

/// A client and its channel.
pub struct Peer {
    socket: TcpStream,
    id: u32,
    stage: Stage,
    /// From the client, not yet sent on.
    heard: Vec<u8>,
    /// For the client, not yet taken.
    owed: VecDeque<u8>,
    /// Bytes that Wharf takes now.
    credit: usize,
    /// Bytes of `owed` that are the proxy's own words and cost Wharf no credit.
    free: usize,
    /// Bytes the client took that Wharf has no new credit for.
    taken: u32,
    /// The last byte either way.
    since: Instant,
    client_end: End,
    server_end: End,
}

/// The end of what one side says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    Heard,
    Told,
    /// It came too early.
    Broken,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It says what it wants.
    Asking {
        greeted: bool,
    },
    /// Wharf decides and dials.
    Deciding(Speech),
    /// Bytes go both ways.
    Through(Speech),
    /// It is told a last word; what it still says is dropped, since closing on it would take the
    /// word away from it.
    Parting,
    /// The server broke off: once the client's kernel has all that came, so does this side.
    Cutting,
    Gone,
}

impl Peer {
    /// A client that has said nothing yet.
    pub fn new(socket: TcpStream, id: u32) -> Peer {
        Peer {
            socket,
            id,
            stage: Stage::Asking { greeted: false },
            heard: Vec::new(),
            owed: VecDeque::new(),
            credit: CREDIT as usize,
            free: 0,
            taken: 0,
            since: Instant::now(),
            client_end: End::NotYet,
            server_end: End::NotYet,
        }
    }

    /// What its socket is to be watched for.
    pub fn wants(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.room() > 0);
        flags.set(PollFlags::OUT, !self.owed.is_empty());
        flags
    }

    /// Bytes that may be read from it now.
    fn room(&self) -> usize {
        match self.stage {
            _ if self.client_end != End::NotYet => 0,
            Stage::Asking { .. } => (LONGEST + 1).saturating_sub(self.heard.len()),
            Stage::Through(_) => self.credit.min(MAX_DATA),
            Stage::Parting => MAX_DATA,
            Stage::Deciding(_) | Stage::Cutting | Stage::Gone => 0,
        }
    }

    /// Reads and writes what can be without waiting.
    pub fn turn(&mut self, link: &Link) {
        if self.room() > 0 {
            self.read(link);
        }
        self.write(link);
    }

    fn read(&mut self, link: &Link) {
        let mut bytes = vec![0; self.room().min(MAX_DATA)];
        match self.socket.read(&mut bytes) {
            Ok(0) => self.client_end = End::Heard,
            Ok(got) => {
                bytes.truncate(got);
                if self.stage != Stage::Parting {
                    self.since = Instant::now();
                    self.heard.extend_from_slice(&bytes);
                }
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return;
            }
            Err(_) => return self.stage = self.lost(link),
        }
        self.advance(link);
    }

    /// Goes on with what was heard.
    fn advance(&mut self, link: &Link) {
        match self.stage {
            Stage::Asking { greeted } => self.listen(greeted, link),
            Stage::Through(_) => self.forward(link),
            Stage::Deciding(_) | Stage::Parting | Stage::Cutting | Stage::Gone => {}
        }
    }

    fn listen(&mut self, greeted: bool, link: &Link) {
        match hear(&self.heard, greeted) {
            Heard::More if self.client_end != End::NotYet => self.stage = Stage::Gone,
            Heard::More => {}
            Heard::Say { used, bytes } => {
                self.heard.drain(..used);
                self.owed.extend(bytes);
                self.stage = Stage::Asking { greeted: true };
                self.listen(true, link);
            }
            Heard::Ask {
                used,
                reach,
                speech,
            } => {
                self.heard.drain(..used);
                link.send(Kind::Open, self.id, &reach);
                self.stage = Stage::Deciding(speech);
            }
            Heard::Part(bytes) => self.part(bytes),
        }
    }

    fn part(&mut self, last: Vec<u8>) {
        self.owed.extend(last);
        self.heard.clear();
        self.since = Instant::now();
        self.stage = Stage::Parting;
    }

    /// Sends on what Wharf takes.
    fn forward(&mut self, link: &Link) {
        while !self.heard.is_empty() && self.credit > 0 {
            let part = self.heard.len().min(self.credit).min(MAX_DATA);
            self.credit -= part;
            let rest = self.heard.split_off(part);
            let bytes = std::mem::replace(&mut self.heard, rest);
            link.push(Frame::data(self.id, bytes));
        }
        if self.client_end == End::Heard && self.heard.is_empty() {
            link.push(Frame::end(self.id));
            self.client_end = End::Told;
        }
    }

    fn write(&mut self, link: &Link) {
        while !self.owed.is_empty() {
            let (first, _) = self.owed.as_slices();
            match self.socket.write(first) {
                Ok(0) => return,
                Ok(took) => {
                    self.owed.drain(..took);
                    self.pay(took, link);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.stage = self.lost(link),
            }
        }
        self.finish();
    }

    /// Gives Wharf credit for what the client took.
    fn pay(&mut self, took: usize, link: &Link) {
        self.since = Instant::now();
        let free = self.free.min(took);
        self.free -= free;
        if matches!(self.stage, Stage::Through(_)) {
            self.taken += u32::try_from(took - free).unwrap_or(0);
            if let Some(amount) = due(&mut self.taken) {
                link.push(Frame::credit(self.id, amount));
            }
        }
    }

    /// Passes the server's end on, once the client has all that came before it.
    fn finish(&mut self) {
        if !self.owed.is_empty() {
            return;
        }
        match (self.stage, self.server_end) {
            (Stage::Through(_), End::Broken) => {
                self.stage = Stage::Cutting;
                self.finish();
            }
            (Stage::Through(speech), End::Heard) => {
                self.server_end = End::Told;
                let _ = self.socket.shutdown(Shutdown::Write);
                // A request has one response: what the client says after it is for nobody.
                if speech == Speech::Request {
                    self.stage = Stage::Parting;
                }
            }
            (Stage::Parting, End::NotYet | End::Heard) => {
                self.server_end = End::Told;
                let _ = self.socket.shutdown(Shutdown::Write);
            }
            (Stage::Cutting, _) if unsent(&self.socket) == 0 => self.cut(),
            _ => {}
        }
    }

    /// Takes a frame of its channel.
    pub fn take(&mut self, frame: Frame, link: &Link) {
        match frame.kind {
            Kind::Answer => self.answered(frame.parse().ok(), link),
            Kind::Data => self.owed.extend(frame.body),
            Kind::Credit => {
                self.credit += frame.amount().unwrap_or(0) as usize;
                self.advance(link);
            }
            Kind::Close if frame.body.is_empty() => self.server_end = End::Heard,
            Kind::Close => self.server_end = End::Broken,
            Kind::Signal if frame.parse() == Ok(Signal::Cancel) => self.cut(),
            Kind::Signal | Kind::Hello | Kind::Open => {}
        }
        self.write(link);
    }

    fn answered(&mut self, answer: Option<Answer>, link: &Link) {
        let Stage::Deciding(speech) = self.stage else {
            return;
        };
        match answer {
            Some(Answer::Accepted) => {
                let word = speech.accepted();
                self.free = word.len();
                self.owed.extend(word);
                self.stage = Stage::Through(speech);
                self.advance(link);
            }
            Some(Answer::Refused { why, reason }) => self.part(speech.refused(why, &reason)),
            None => self.cut(),
        }
    }

    /// Ends so that the client cannot take what it got for the whole.
    pub fn cut(&mut self) {
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
        self.stage = Stage::Gone;
    }

    fn lost(&self, link: &Link) -> Stage {
        if self.knows_wharf() {
            link.send(Kind::Signal, self.id, &Signal::Cancel);
        }
        Stage::Gone
    }

    /// True while Wharf holds its channel.
    pub fn knows_wharf(&self) -> bool {
        let ended = self.client_end == End::Told && self.server_end != End::NotYet;
        matches!(self.stage, Stage::Deciding(_) | Stage::Through(_)) && !ended
    }

    /// Nothing is left to do for it.
    pub fn over(&self) -> bool {
        let quiet = self.owed.is_empty();
        match self.stage {
            Stage::Gone => true,
            Stage::Parting => quiet && self.client_end != End::NotYet,
            Stage::Through(_) => {
                quiet && self.server_end == End::Told && self.client_end == End::Told
            }
            Stage::Asking { .. } | Stage::Deciding(_) | Stage::Cutting => false,
        }
    }

    /// It has taken more time than there is; one that is being cut off is looked at again.
    pub fn late(&mut self, now: Instant) -> bool {
        if self.stage == Stage::Cutting {
            self.finish();
        }
        let limit = match self.stage {
            Stage::Asking { .. } => ASKING,
            Stage::Parting | Stage::Cutting => PARTING,
            Stage::Deciding(_) | Stage::Through(_) | Stage::Gone => IDLE,
        };
        now.duration_since(self.since) > limit
    }
}

/// Bytes that the client's kernel has not taken yet; none where that cannot be told.
#[expect(unsafe_code, reason = "no safe wrapper of this call is at hand")]
fn unsent(socket: &TcpStream) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the call writes one int to the place it is given.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if told == 0 { bytes } else { 0 }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
