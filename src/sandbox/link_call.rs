//! The channel of one call: what it sends as credit allows, and what it hears until its reply.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use wharf_toolbox::message::{Reply, Signal};
use wharf_toolbox::wire::{CREDIT, Frame, Kind, MAX_DATA, due};

use super::link::{Event, Word, why_closed};
use super::pace::Pace;
use super::{Break, Cause, Error};

/// One call; when it is dropped before its reply, the toolbox is told to end it.
pub(super) struct Call {
    channel: u32,
    words: UnboundedSender<Word>,
    events: UnboundedReceiver<Event>,
    reason: Arc<OnceLock<Break>>,
    credit: usize,
    /// Bytes taken that the toolbox has no new credit for yet.
    owed: u32,
    body: BytesMut,
    reply: Option<Reply>,
    pace: Pace,
}

impl Call {
    /// A call whose opening is on its way.
    pub(super) fn new(
        channel: u32,
        words: UnboundedSender<Word>,
        events: UnboundedReceiver<Event>,
        reason: Arc<OnceLock<Break>>,
    ) -> Call {
        let (credit, body) = (CREDIT as usize, BytesMut::new());
        Call {
            channel,
            words,
            events,
            reason,
            credit,
            owed: 0,
            body,
            reply: None,
            pace: Pace::default(),
        }
    }

    /// Of the bytes that cross for this call, from now on.
    pub(super) fn pace(&self) -> Pace {
        self.pace.clone()
    }

    /// Sends bytes of the request as credit allows; false when the reply was there before all were
    /// sent. Nobody answers with data before the request is whole.
    pub(super) async fn send(&mut self, mut bytes: Bytes) -> Result<bool, Error> {
        while !bytes.is_empty() && self.reply.is_none() {
            let part = bytes.len().min(MAX_DATA);
            while self.credit < part && self.reply.is_none() {
                self.hear().await?;
                self.within(0)?;
            }
            if self.reply.is_none() {
                self.credit -= part;
                self.say(Frame::data(self.channel, bytes.split_to(part).to_vec()));
            }
        }
        Ok(bytes.is_empty())
    }

    /// Says that the request is whole.
    pub(super) fn finish(&self) {
        self.say(Frame {
            kind: Kind::Close,
            channel: self.channel,
            body: Vec::new(),
        });
    }

    /// Asks the toolbox to end the call; its reply still comes.
    pub(super) fn cancel(&self) {
        if let Ok(frame) = Frame::json(Kind::Signal, self.channel, &Signal::Cancel) {
            self.say(frame);
        }
    }

    /// Waits for the reply; the data before it may be at most `limit` bytes.
    pub(super) async fn reply(&mut self, limit: usize) -> Result<(Reply, Bytes), Error> {
        loop {
            if let Some(reply) = self.reply.clone() {
                return Ok((reply, self.body.split().freeze()));
            }
            self.within(limit)?;
            self.hear().await?;
        }
    }

    /// Breaks the link when more data came than `limit`.
    fn within(&self, limit: usize) -> Result<(), Error> {
        if self.body.len() <= limit {
            return Ok(());
        }
        let reason = "the toolbox sent more than was asked for".to_owned();
        let reason = Break::new(Cause::Protocol, reason);
        let _ = self.words.send(Word::Break(reason.clone()));
        Err(reason.into())
    }

    async fn hear(&mut self) -> Result<(), Error> {
        match self.events.recv().await {
            Some(Event::Data(bytes)) => {
                self.pace.crossed(bytes.len());
                self.body.extend_from_slice(&bytes);
                self.owed += u32::try_from(bytes.len()).unwrap_or(0);
                if let Some(amount) = due(&mut self.owed) {
                    self.say(Frame::credit(self.channel, amount));
                }
            }
            Some(Event::Credit(amount)) => {
                self.pace.crossed(amount as usize);
                self.credit += amount as usize;
            }
            Some(Event::Close(reply)) => self.reply = Some(reply),
            None => {
                return Err(why_closed(&self.reason));
            }
        }
        Ok(())
    }

    /// A hub that is gone shows itself at the next `hear`.
    fn say(&self, frame: Frame) {
        let _ = self.words.send(Word::Send(frame));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.reply.is_none() {
            self.cancel();
            let _ = self.words.send(Word::Forget(self.channel));
        }
    }
}
