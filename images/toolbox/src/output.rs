//! What commands print: head and tail in memory, the full text in the spool; one thread reads the
//! pipes of all, so that what a finished command left behind can go on printing.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use wharf_toolbox::message::Printed;

use crate::bell::{Bell, lock};
use crate::reaper::Said;
use crate::spool::{Budget, Spool, Text};

/// One stream of one command.
pub struct Capture(Mutex<State>);

struct State {
    head: Vec<u8>,
    tail: Vec<u8>,
    keep: usize,
    total: u64,
    ended: bool,
    /// All that was in the pipe when `settle` was last asked has been read.
    settled: bool,
    spool: Option<Text>,
    place: String,
    budget: Arc<Budget>,
}

impl Capture {
    /// An empty one that keeps `keep` bytes of head and tail; `place` is for the full text.
    pub fn new(keep: usize, place: String, budget: Arc<Budget>) -> Arc<Capture> {
        let (head, tail) = (Vec::new(), Vec::new());
        let state = State {
            head,
            tail,
            keep,
            total: 0,
            ended: false,
            settled: false,
            spool: None,
            place,
            budget,
        };
        Arc::new(Capture(Mutex::new(state)))
    }

    /// True when no process holds the stream any more.
    pub fn ended(&self) -> bool {
        lock(&self.0).ended
    }

    /// True when nothing that was printed before the last `settle` is missing.
    pub fn settled(&self) -> bool {
        let state = lock(&self.0);
        state.settled || state.ended
    }

    /// Head, tail and the figures so far.
    pub fn so_far(&self, spool: &Spool) -> (Vec<u8>, Vec<u8>, Printed) {
        let state = lock(&self.0);
        let tail = state.tail[state.tail.len().saturating_sub(state.keep)..].to_vec();
        let figures = Printed {
            head: state.head.len() as u64,
            tail: tail.len() as u64,
            total: state.total,
            spool: state.spool.as_ref().and_then(|text| spool.told(text)),
        };
        (state.head.clone(), tail, figures)
    }
}

impl State {
    fn take(&mut self, bytes: &[u8], spool: &Spool) {
        if self.spool.is_none() && self.total + bytes.len() as u64 > 2 * self.keep as u64 {
            // Nothing has been dropped yet, so head and tail are the text so far.
            self.spool = spool.create(&self.place, &self.budget);
            let so_far = [self.head.as_slice(), self.tail.as_slice()].concat();
            self.spill(&so_far, spool);
        }
        self.spill(bytes, spool);
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.keep - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * self.keep {
            self.tail.drain(..self.tail.len() - self.keep);
        }
    }

    fn spill(&mut self, bytes: &[u8], spool: &Spool) {
        if let Some(text) = &mut self.spool {
            spool.add(text, bytes);
        }
    }
}

/// Where the bytes of a pipe go.
pub enum Sink {
    /// A command's stream.
    Output(Arc<Capture>),
    /// What a reaper says.
    Status(Arc<Mutex<Status>>),
}

/// Whether the reaper has spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not yet.
    Open,
    /// It has.
    Said(Said),
    /// It ended without a word: killed from inside.
    Silent,
}

/// The thread that reads all pipes, as the others see it.
pub struct Collector {
    fresh: Mutex<Vec<(OwnedFd, Sink)>>,
    /// Streams that somebody waits to be read empty.
    asked: Mutex<Vec<Arc<Capture>>>,
    wake: OwnedFd,
    bell: Arc<Bell>,
    spool: Arc<Spool>,
}

impl Collector {
    /// Starts the thread.
    pub fn start(bell: Arc<Bell>, spool: Arc<Spool>) -> std::io::Result<Arc<Collector>> {
        let (woken, wake) = rustix::pipe::pipe_with(
            rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK,
        )?;
        let collector = Arc::new(Collector {
            fresh: Mutex::default(),
            asked: Mutex::default(),
            wake,
            bell,
            spool,
        });
        let mine = Arc::clone(&collector);
        std::thread::Builder::new()
            .name("collect".into())
            .spawn(move || mine.collect(&woken))?;
        Ok(collector)
    }

    /// Reads these pipes, which never make a reader wait, until they end.
    pub fn add(&self, pipes: Vec<(OwnedFd, Sink)>) {
        lock(&self.fresh).extend(pipes);
        self.nudge();
    }

    /// Has all read that lies in the pipes of these streams now; they say so by `settled`.
    pub fn settle(&self, streams: [&Arc<Capture>; 2]) {
        for stream in streams {
            lock(&stream.0).settled = false;
        }
        lock(&self.asked).extend(streams.map(Arc::clone));
        self.nudge();
    }

    /// The texts of what was printed.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    fn nudge(&self) {
        let _ = rustix::io::write(&self.wake, &[0]);
    }

    fn collect(&self, woken: &OwnedFd) {
        let mut pipes: Vec<(OwnedFd, Sink)> = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let ready = ready(woken, &pipes);
            let mut at = 0;
            pipes.retain(|(pipe, sink)| {
                at += 1;
                !ready[at] || self.pour(pipe, sink, &mut buffer) != Poured::End
            });
            if ready[0] {
                let _ = rustix::io::read(woken, &mut buffer[..64]);
                pipes.append(&mut lock(&self.fresh));
                for stream in std::mem::take(&mut *lock(&self.asked)) {
                    self.empty(&stream, &mut pipes, &mut buffer);
                }
            }
        }
    }

    /// Reads what a pipe can hold, or all there is: what was printed before this began is then read,
    /// whoever goes on printing.
    fn empty(&self, stream: &Arc<Capture>, pipes: &mut Vec<(OwnedFd, Sink)>, buffer: &mut [u8]) {
        let of = |sink: &Sink| matches!(sink, Sink::Output(one) if Arc::ptr_eq(one, stream));
        if let Some(at) = pipes.iter().position(|(_, sink)| of(sink)) {
            let (pipe, sink) = &pipes[at];
            let mut left = PIPE;
            loop {
                match self.pour(pipe, sink, buffer) {
                    Poured::Bytes(more) if more < left => left -= more,
                    Poured::End => {
                        pipes.remove(at);
                        break;
                    }
                    Poured::Bytes(_) | Poured::Nothing => break,
                }
            }
        }
        lock(&stream.0).settled = true;
        self.bell.ring();
    }

    /// One read.
    fn pour(&self, pipe: &OwnedFd, sink: &Sink, buffer: &mut [u8]) -> Poured {
        let got = match rustix::io::read(pipe, &mut *buffer) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Poured::Nothing,
            Err(_) => 0,
            Ok(got) => got,
        };
        match sink {
            Sink::Output(capture) if got > 0 => lock(&capture.0).take(&buffer[..got], &self.spool),
            Sink::Output(capture) => lock(&capture.0).ended = true,
            Sink::Status(status) => {
                let mut status = lock(status);
                if *status == Status::Open {
                    *status = Said::of(&buffer[..got]).map_or(Status::Silent, Status::Said);
                }
            }
        }
        if got == 0 || matches!(sink, Sink::Status(_)) {
            self.bell.ring();
        }
        if got > 0 {
            Poured::Bytes(got)
        } else {
            Poured::End
        }
    }
}

/// What one read of a pipe came to.
#[derive(PartialEq, Eq)]
enum Poured {
    Bytes(usize),
    Nothing,
    End,
}

/// Most that a pipe of this kernel's default limit can hold.
const PIPE: usize = 1 << 20;

/// Which of the wake pipe and the others have something to read, in this order.
fn ready(woken: &OwnedFd, pipes: &[(OwnedFd, Sink)]) -> Vec<bool> {
    let mut polled: Vec<PollFd<'_>> = std::iter::once(woken)
        .chain(pipes.iter().map(|(pipe, _)| pipe))
        .map(|pipe| PollFd::new(pipe, PollFlags::IN))
        .collect();
    if poll(&mut polled, None).is_ok() {
        return polled.iter().map(|one| !one.revents().is_empty()).collect();
    }
    // A limit on open files that was lowered from inside: each is tried, since none makes us wait.
    std::thread::sleep(BLIND);
    vec![true; polled.len()]
}

/// How often pipes are tried when the kernel does not say which have something.
const BLIND: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(keep: usize, parts: &[&[u8]]) -> (Vec<u8>, Vec<u8>, Printed, Option<Vec<u8>>) {
        let folder =
            std::env::temp_dir().join(format!("wharf-output-{}-{keep}", std::process::id()));
        let spool = Spool::new(folder.clone());
        let capture = Capture::new(keep, "1-stdout".into(), Arc::default());
        for part in parts {
            lock(&capture.0).take(part, &spool);
        }
        let (head, tail, figures) = capture.so_far(&spool);
        let full = figures
            .spool
            .as_ref()
            .map(|text| std::fs::read(&text.path).unwrap());
        let _ = std::fs::remove_dir_all(folder);
        (head, tail, figures, full)
    }

    #[test]
    fn what_fits_is_not_spooled() {
        let (head, tail, figures, full) = captured(4, &[b"ab", b"cdef", b"gh"]);
        assert_eq!(
            (head.as_slice(), tail.as_slice()),
            (b"abcd".as_slice(), b"efgh".as_slice())
        );
        assert_eq!((figures.total, full), (8, None));
    }

    #[test]
    fn what_does_not_fit_is_clipped_and_spooled_whole() {
        let (head, tail, figures, full) = captured(3, &[b"abc", b"def", b"g", b"hijklmnop"]);
        assert_eq!(
            (head.as_slice(), tail.as_slice()),
            (b"abc".as_slice(), b"nop".as_slice())
        );
        assert_eq!(figures.total, 16);
        assert_eq!(full.as_deref(), Some(b"abcdefghijklmnop".as_slice()));
    }
}
