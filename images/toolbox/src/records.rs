//! The records of an upload, as they come in on a channel.

use wharf_toolbox::record::Header;
use wharf_toolbox::wire::Fault;

use crate::link::{Cancelled, Channel};

/// Why an upload or a scan did not come to its end.
pub enum Stop {
    /// Wharf does not want it any more.
    Cancelled,
    /// The disk, or records that are none.
    Failed(String),
}

impl From<Cancelled> for Stop {
    fn from(_: Cancelled) -> Stop {
        Stop::Cancelled
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Failed(fault.to_string())
    }
}

/// The records of an upload as they come in.
pub struct Body<'a> {
    channel: &'a Channel,
    buffer: Vec<u8>,
    at: usize,
}

impl<'a> Body<'a> {
    /// Those of a channel.
    pub fn new(channel: &'a Channel) -> Body<'a> {
        Body {
            channel,
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// The next record without its content; nothing at the end.
    pub fn header(&mut self) -> Result<Option<Header>, Stop> {
        loop {
            if let Some((header, used)) = Header::decode(&self.buffer[self.at..])? {
                self.at += used;
                return Ok(Some(header));
            }
            if !self.more()? {
                let cut = self.at < self.buffer.len();
                return if cut {
                    Err(Stop::Failed("upload cut".into()))
                } else {
                    Ok(None)
                };
            }
        }
    }

    /// Hands the next `size` bytes of content to `put`.
    pub fn content(
        &mut self,
        size: u64,
        put: &mut dyn FnMut(&[u8]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut left = size;
        while left > 0 {
            let here = self.buffer.len() - self.at;
            let part = usize::try_from(left).map_or(here, |left| here.min(left));
            put(&self.buffer[self.at..self.at + part])?;
            self.at += part;
            left -= part as u64;
            if left > 0 && !self.more()? {
                return Err(Stop::Failed("upload cut".into()));
            }
        }
        Ok(())
    }

    fn more(&mut self) -> Result<bool, Stop> {
        let Some(bytes) = self.channel.read()? else {
            return Ok(false);
        };
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(&bytes);
        Ok(true)
    }
}
