//! A channel that the toolbox opened: what the hub knows of it, and the end that serves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc::{
    UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel,
};
use wharf_toolbox::message::{Answer, Reach, Signal};
use wharf_toolbox::wire::{CREDIT, Fault, Frame, Kind, due};

use super::decide::Refusal;
use crate::sandbox::link::Word;

/// Something inside wants out.
pub struct Knock {
    pub reach: Reach,
    pub passage: Passage,
}

/// The hub's end.
pub struct Inlet {
    heard: UnboundedSender<Heard>,
    /// Bytes that the toolbox may still send: it is held to them, so that what waits is bounded.
    allowed: Arc<AtomicUsize>,
    /// Bytes sent inside that the toolbox has given no new credit for.
    lent: Arc<AtomicUsize>,
    ended: bool,
}

/// The end that serves a channel. When it is dropped the channel is over, and broken off unless both
/// directions were ended.
pub struct Passage {
    channel: u32,
    /// Weak: a channel from inside keeps no sandbox alive.
    words: WeakUnboundedSender<Word>,
    heard: UnboundedReceiver<Heard>,
    allowed: Arc<AtomicUsize>,
    lent: Arc<AtomicUsize>,
    /// Bytes that the toolbox takes now.
    credit: usize,
    /// Bytes taken that the toolbox has no new credit for yet.
    owed: u32,
    over: bool,
}

/// What came from inside.
#[derive(Debug)]
pub(super) enum Heard {
    Data(Bytes),
    Credit(u32),
    /// No more data comes.
    End,
    /// The program inside is gone.
    Gone,
}

/// A new channel: one end for the hub, one to be served.
pub fn knock(reach: Reach, channel: u32, words: WeakUnboundedSender<Word>) -> (Inlet, Knock) {
    let (sender, heard) = unbounded_channel();
    let allowed = Arc::new(AtomicUsize::new(CREDIT as usize));
    let lent = Arc::new(AtomicUsize::new(0));
    let inlet = Inlet {
        heard: sender,
        allowed: allowed.clone(),
        lent: lent.clone(),
        ended: false,
    };
    let passage = Passage {
        channel,
        words,
        heard,
        allowed,
        lent,
        credit: CREDIT as usize,
        owed: 0,
        over: false,
    };
    (inlet, Knock { reach, passage })
}

impl Inlet {
    /// Takes a frame of this channel; whatever would let what waits grow without end is a fault.
    pub fn take(&mut self, frame: Frame) -> Result<(), Fault> {
        let heard = match frame.kind {
            Kind::Data if frame.body.is_empty() || self.ended => {
                return Err(Fault::Order("data that is none"));
            }
            Kind::Data => {
                let fault = "more data than the credit allows";
                draw(&self.allowed, frame.body.len(), fault)?;
                Heard::Data(Bytes::from(frame.body))
            }
            Kind::Credit => {
                let amount = frame.amount()?;
                let fault = "credit for what was not sent";
                draw(&self.lent, (amount as usize).max(1), fault)?;
                Heard::Credit(amount)
            }
            Kind::Close if !self.ended => {
                self.ended = true;
                Heard::End
            }
            Kind::Signal if frame.parse::<Signal>()? == Signal::Cancel => Heard::Gone,
            Kind::Signal | Kind::Hello | Kind::Open | Kind::Answer | Kind::Close => {
                return Err(Fault::Order("frame out of place"));
            }
        };
        // Whoever served it may have just let go.
        let _ = self.heard.send(heard);
        Ok(())
    }
}

/// Takes an amount from what there is.
fn draw(from: &AtomicUsize, amount: usize, fault: &'static str) -> Result<(), Fault> {
    let rest = |there: usize| there.checked_sub(amount);
    from.fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest)
        .map(drop)
        .map_err(|_| Fault::Order(fault))
}

impl Passage {
    /// Says that the server is connected.
    pub(super) fn accept(&self) {
        self.answer(&Answer::Accepted);
    }

    /// Says that it is not.
    pub(super) fn refuse(mut self, refusal: &Refusal) {
        self.answer(&Answer::Refused {
            why: refusal.why,
            reason: refusal.reason.clone(),
        });
        self.over = true;
    }

    fn answer(&self, answer: &Answer) {
        if let Ok(frame) = Frame::json(Kind::Answer, self.channel, answer) {
            self.say(frame);
        }
    }

    /// What comes next; nothing once the sandbox is gone. Safe to be dropped while it waits.
    pub(super) async fn hear(&mut self) -> Option<Heard> {
        let heard = self.heard.recv().await?;
        if let Heard::Credit(amount) = heard {
            self.credit = self.credit.saturating_add(amount as usize);
        }
        Some(heard)
    }

    /// Bytes that `send` takes now.
    pub(super) fn credit(&self) -> usize {
        self.credit
    }

    /// Sends bytes inside; the caller keeps within the credit and within a frame.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.credit = self.credit.saturating_sub(bytes.len());
        self.lent.fetch_add(bytes.len(), Ordering::SeqCst);
        self.say(Frame::data(self.channel, bytes.to_vec()));
    }

    /// Lets the toolbox send as much more as was taken.
    pub(super) fn pay(&mut self, taken: usize) {
        self.owed += u32::try_from(taken).unwrap_or(0);
        if let Some(amount) = due(&mut self.owed) {
            self.allowed.fetch_add(amount as usize, Ordering::SeqCst);
            self.say(Frame::credit(self.channel, amount));
        }
    }

    /// Says that no more comes from the server.
    pub(super) fn end(&self) {
        self.say(Frame::end(self.channel));
    }

    /// Says that the server broke off: what came is not the whole.
    pub(super) fn cut(&mut self) {
        self.say(Frame::cut(self.channel));
        self.over = true;
    }

    /// Both directions were ended: nothing is broken off when this is dropped.
    pub(super) fn finish(&mut self) {
        self.over = true;
    }

    /// A hub that is gone shows itself at the next `hear`.
    fn say(&self, frame: Frame) {
        if let Some(words) = self.words.upgrade() {
            let _ = words.send(Word::Send(frame));
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if !self.over
            && let Ok(frame) = Frame::json(Kind::Signal, self.channel, &Signal::Cancel)
        {
            self.say(frame);
        }
        if let Some(words) = self.words.upgrade() {
            let _ = words.send(Word::Forget(self.channel));
        }
    }
}
