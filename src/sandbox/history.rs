//! Commits that an agent's own repository begins with: given to the toolbox before the tree.

use std::time::Duration;

use bytes::Bytes;
use wharf_toolbox::message::{Reply, Request};

use super::remote::{FILES, Remote};
use super::{Cause, Error};

/// Commits as one pack, complete in itself.
#[derive(Clone, PartialEq, Eq)]
pub struct History {
    /// The last of them, in hex; the agent's start stands on it.
    pub tip: String,
    pub pack: Bytes,
    /// Of the pack, as git writes it.
    pub index: Bytes,
}

/// Its name says all that matters, and its bytes would fill the page.
impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "History({}, {} bytes)", self.tip, self.bytes())
    }
}

impl History {
    /// Bytes that it takes in a sandbox.
    pub fn bytes(&self) -> u64 {
        (self.pack.len() + self.index.len()) as u64
    }
}

impl Remote {
    /// Gives the toolbox the commits that the agent's repository begins with. An image that has a
    /// repository of its own in the workspace keeps that, and where there is no git nothing is given.
    pub async fn give(&self, history: &History) -> Result<(), Error> {
        if !self.git {
            return Ok(());
        }
        let request = Request::History {
            tip: history.tip.clone(),
            pack: history.pack.len() as u64,
            index: history.index.len() as u64,
        };
        let limit = FILES + Duration::from_secs(history.bytes() >> 20);
        let mut call = self.link.open(&request)?;
        let pace = call.pace();
        let talk = async {
            // An answer that came too early says why.
            let _ =
                call.send(history.pack.clone()).await? && call.send(history.index.clone()).await?;
            call.finish();
            call.reply(0).await
        };
        match pace.hold(limit, talk).await {
            Err(limit) => Err(self.late("history", limit)),
            Ok(Err(error)) => Err(error),
            // What it could not write it has removed again: the agent has one commit then.
            Ok(Ok((Reply::Written | Reply::Told { .. }, _))) => Ok(()),
            Ok(Ok((Reply::Failed { reason }, _))) => {
                Err(self.link.break_off(Cause::Unable, reason))
            }
            Ok(Ok(_)) => Err(self.odd("history")),
        }
    }
}
