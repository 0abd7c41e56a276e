//! The stream to Wharf: one writer with control before data, and a channel a call. What crosses ways
//! out of the sandbox goes last, so that calls never wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex};

use serde::Serialize;
use wharf_toolbox::message::Reply;
use wharf_toolbox::seal::{self, Seals};
use wharf_toolbox::wire::{CREDIT, Fault, Frame, INSIDE, Kind, MAX_DATA, due};

use crate::bell::{Bell, lock};
use crate::wake::Waker;

/// The writer's queue and the open channels.
pub struct Link {
    queue: Mutex<Queue>,
    filled: Condvar,
    channels: Mutex<BTreeMap<u32, Arc<Channel>>>,
    /// Frames for channels that were opened from inside, until the proxy takes them.
    outward: Mutex<VecDeque<Frame>>,
    waker: Waker,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Queue {
    control: VecDeque<Frame>,
    data: VecDeque<Frame>,
    outward: VecDeque<Frame>,
    /// Nothing more is taken.
    shut: bool,
}

/// One call's two directions.
pub struct Channel {
    id: u32,
    link: Arc<Link>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    inbound: VecDeque<Vec<u8>>,
    /// Bytes the host may still send.
    allowed: usize,
    /// Bytes taken that the host has no new credit for yet.
    owed: u32,
    ended: bool,
    /// Bytes we may still send.
    credit: usize,
    cancelled: bool,
}

/// The call was cancelled while it had something to say.
pub struct Cancelled;

impl Queue {
    /// Control before data, and calls before ways out.
    fn pop(&mut self) -> Option<Frame> {
        self.control
            .pop_front()
            .or_else(|| self.data.pop_front())
            .or_else(|| self.outward.pop_front())
    }
}

impl Link {
    /// A link without channels; `bell` is rung when one is cancelled, `waker` when there is something
    /// for the proxy.
    pub fn new(bell: Arc<Bell>, waker: Waker) -> Arc<Link> {
        Arc::new(Link {
            queue: Mutex::default(),
            filled: Condvar::new(),
            channels: Mutex::default(),
            outward: Mutex::default(),
            waker,
            bell,
        })
    }

    /// Queues a control message; one too long for a frame is a fault of ours and is dropped.
    pub fn send<T: Serialize>(&self, kind: Kind, channel: u32, message: &T) {
        if let Ok(frame) = Frame::json(kind, channel, message) {
            self.push(frame);
        }
    }

    /// Queues a frame.
    pub fn push(&self, frame: Frame) {
        let mut queue = lock(&self.queue);
        if queue.shut {
            return;
        }
        let outward = frame.channel & INSIDE != 0;
        // A short answer waits for the close that follows it: one write, one step through the engine.
        let waits = frame.kind == Kind::Data && frame.body.len() < MAX_DATA && !outward;
        // A close must not overtake the data before it on its channel.
        match frame.kind {
            Kind::Data | Kind::Close if outward => queue.outward.push_back(frame),
            Kind::Data | Kind::Close => queue.data.push_back(frame),
            _ => queue.control.push_back(frame),
        }
        if !waits {
            self.filled.notify_one();
        }
    }

    /// Takes nothing more to say. Process 1 is about to end, and kills what runs: that a command was killed by
    /// this is no answer to whoever asked for it.
    pub fn hush(&self) {
        lock(&self.queue).shut = true;
    }

    /// Writes frames until the stream fails; the greeting, which is the first, is never sealed.
    pub fn write(&self, out: &mut impl Write, mut seals: Option<Seals>) -> io::Error {
        let mut bytes = Vec::new();
        self.next().encode(&mut bytes);
        loop {
            while bytes.len() < MAX_DATA {
                match lock(&self.queue).pop() {
                    Some(frame) => seal::encode(&frame, &mut seals, &mut bytes),
                    None => break,
                }
            }
            if let Err(error) = out.write_all(&bytes).and_then(|()| out.flush()) {
                return error;
            }
            bytes.clear();
            seal::encode(&self.next(), &mut seals, &mut bytes);
        }
    }

    fn next(&self) -> Frame {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(frame) = queue.pop() {
                return frame;
            }
            queue = self
                .filled
                .wait(queue)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// A new channel; its number must be free.
    pub fn open(self: &Arc<Link>, id: u32) -> Result<Arc<Channel>, Fault> {
        let state = State {
            inbound: VecDeque::new(),
            allowed: CREDIT as usize,
            owed: 0,
            ended: false,
            credit: CREDIT as usize,
            cancelled: false,
        };
        let channel = Arc::new(Channel {
            id,
            link: Arc::clone(self),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        match lock(&self.channels).insert(id, Arc::clone(&channel)) {
            None => Ok(channel),
            Some(_) => Err(Fault::Order("channel opened twice")),
        }
    }

    /// The frames that came for ways out since the last time; Wharf bounds them by their credit.
    pub fn outward(&self) -> VecDeque<Frame> {
        std::mem::take(&mut lock(&self.outward))
    }

    /// Gives a frame to its channel; one for a call that is over is late, not wrong.
    pub fn deliver(&self, frame: Frame) -> Result<(), Fault> {
        if frame.channel & INSIDE != 0 {
            lock(&self.outward).push_back(frame);
            self.waker.wake();
            return Ok(());
        }
        let Some(channel) = lock(&self.channels).get(&frame.channel).cloned() else {
            return Ok(());
        };
        let mut state = lock(&channel.state);
        match frame.kind {
            Kind::Data => {
                state.allowed = state
                    .allowed
                    .checked_sub(frame.body.len())
                    .ok_or(Fault::Order("more data than the credit allows"))?;
                state.inbound.push_back(frame.body);
            }
            Kind::Credit => state.credit += frame.amount()? as usize,
            Kind::Close => state.ended = true,
            Kind::Signal => state.cancelled = true,
            Kind::Hello | Kind::Open | Kind::Answer => {
                return Err(Fault::Order("frame out of place"));
            }
        }
        drop(state);
        channel.changed.notify_all();
        self.bell.ring();
        Ok(())
    }
}

impl Channel {
    /// The next bytes of the request; nothing at its end.
    pub fn read(&self) -> Result<Option<Vec<u8>>, Cancelled> {
        let mut state = lock(&self.state);
        loop {
            if state.cancelled {
                return Err(Cancelled);
            }
            if let Some(bytes) = state.inbound.pop_front() {
                state.owed += u32::try_from(bytes.len()).unwrap_or(0);
                if let Some(amount) = due(&mut state.owed) {
                    state.allowed += amount as usize;
                    self.link.push(Frame::credit(self.id, amount));
                }
                return Ok(Some(bytes));
            }
            if state.ended {
                return Ok(None);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Sends bytes of the answer as credit allows.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Cancelled> {
        for part in bytes.chunks(MAX_DATA) {
            let mut state = lock(&self.state);
            while state.credit < part.len() && !state.cancelled {
                // What was held back for a close must go out, or no credit comes back for it.
                self.link.filled.notify_one();
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if state.cancelled {
                return Err(Cancelled);
            }
            state.credit -= part.len();
            drop(state);
            self.link.push(Frame::data(self.id, part.to_vec()));
        }
        Ok(())
    }

    /// Sends bytes if the credit allows it now, also when the call was cancelled.
    pub fn offer(&self, bytes: &[u8]) -> bool {
        let mut state = lock(&self.state);
        if state.credit < bytes.len() {
            return false;
        }
        state.credit -= bytes.len();
        drop(state);
        for part in bytes.chunks(MAX_DATA) {
            self.link.push(Frame::data(self.id, part.to_vec()));
        }
        true
    }

    /// Ends the call.
    pub fn close(&self, reply: &Reply) {
        lock(&self.link.channels).remove(&self.id);
        self.link.send(Kind::Close, self.id, reply);
    }

    /// True once Wharf has asked for the end of the call.
    pub fn cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }
}
