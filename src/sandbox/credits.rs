//! What each side may still send on the channels of calls, kept on our side: a process 1 that
//! ignores its credit, or speaks where nobody asked, is found out by its first such frame, and what
//! waits for a call that does not listen stays within one credit.

use std::collections::HashMap;

use wharf_toolbox::wire::{CREDIT, Fault, Frame, Kind};

/// The open channels, those of dropped calls included until their close, and the pings under way.
#[derive(Default)]
pub(super) struct Credits {
    open: HashMap<u32, Account>,
    pings: u32,
}

/// Bytes of data on one channel.
struct Account {
    /// That the toolbox may still send.
    theirs: usize,
    /// That we may still send.
    ours: usize,
}

impl Credits {
    /// A call has begun.
    pub(super) fn opened(&mut self, channel: u32) {
        let account = Account {
            theirs: CREDIT as usize,
            ours: CREDIT as usize,
        };
        self.open.insert(channel, account);
    }

    /// A ping goes out.
    pub(super) fn pinged(&mut self) {
        self.pings += 1;
    }

    /// A frame of a call goes out; it is ours, and right.
    pub(super) fn sent(&mut self, frame: &Frame) {
        let Some(account) = self.open.get_mut(&frame.channel) else {
            return;
        };
        match frame.kind {
            Kind::Data => account.ours = account.ours.saturating_sub(frame.body.len()),
            Kind::Credit => account.theirs += frame.amount().unwrap_or(0) as usize,
            _ => {}
        }
    }

    /// A frame came in; the fault that it is.
    pub(super) fn received(&mut self, frame: &Frame) -> Result<(), Fault> {
        if frame.channel == 0 {
            return self.ponged();
        }
        let Some(account) = self.open.get_mut(&frame.channel) else {
            return Err(Fault::Order("frame on a channel that is not open"));
        };
        match frame.kind {
            Kind::Data => account.take(frame.body.len()),
            Kind::Credit => account.give(frame.amount()? as usize),
            Kind::Close => {
                self.open.remove(&frame.channel);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn ponged(&mut self) -> Result<(), Fault> {
        let left = self.pings.checked_sub(1);
        self.pings = left.ok_or(Fault::Order("answer to a ping that was not sent"))?;
        Ok(())
    }
}

impl Account {
    fn take(&mut self, bytes: usize) -> Result<(), Fault> {
        if bytes == 0 {
            return Err(Fault::Order("data frame without data"));
        }
        let left = self.theirs.checked_sub(bytes);
        self.theirs = left.ok_or(Fault::Order("more data than the credit allows"))?;
        Ok(())
    }

    /// Credit comes back for what was taken, so there is never more than at the beginning.
    fn give(&mut self, bytes: usize) -> Result<(), Fault> {
        let now = self.ours + bytes;
        if bytes == 0 || now > CREDIT as usize {
            return Err(Fault::Order("credit for what was never sent"));
        }
        self.ours = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = CREDIT as usize;

    fn data(bytes: usize) -> Frame {
        Frame::data(7, vec![0; bytes])
    }

    #[test]
    fn data_is_held_to_the_credit_that_was_given() {
        let mut credits = Credits::default();
        assert!(credits.received(&data(1)).is_err(), "not open yet");
        credits.opened(7);
        credits.received(&data(MOST)).unwrap();
        assert!(credits.received(&data(1)).is_err());
        credits.sent(&Frame::credit(7, 10));
        credits.received(&data(10)).unwrap();
        assert!(credits.received(&data(1)).is_err());
        assert!(credits.received(&data(0)).is_err());
    }

    #[test]
    fn credit_is_held_to_what_was_sent() {
        let mut credits = Credits::default();
        credits.opened(7);
        assert!(credits.received(&Frame::credit(7, 1)).is_err());
        credits.sent(&data(100));
        credits.received(&Frame::credit(7, 100)).unwrap();
        assert!(credits.received(&Frame::credit(7, 0)).is_err());
        assert!(credits.received(&Frame::credit(7, u32::MAX)).is_err());
    }

    #[test]
    fn a_closed_channel_is_not_open_and_a_pong_needs_its_ping() {
        let mut credits = Credits::default();
        credits.opened(7);
        let close = Frame {
            kind: Kind::Close,
            channel: 7,
            body: Vec::new(),
        };
        credits.received(&close).unwrap();
        assert!(credits.received(&close).is_err());
        let pong = Frame {
            kind: Kind::Signal,
            channel: 0,
            body: Vec::new(),
        };
        assert!(credits.received(&pong).is_err());
        credits.pinged();
        credits.received(&pong).unwrap();
        assert!(credits.received(&pong).is_err());
    }
}
