//! A sandbox's tree and what it stands on: uploads above a tree that lies there, and the ledger of
//! what the toolbox knows.

use bytes::Bytes;
use wharf_toolbox::ledger;
use wharf_toolbox::message::{Reply, Request};

use super::remote::{FILES, RECORDS, Remote};
use super::remote_tree::{self, Below, Sent};
use super::{Cause, Error, Tree};

impl Remote {
    /// Makes the workspace exactly `tree`, sending what does not lie there.
    pub(super) async fn send(&self, below: Below<'_>, tree: &Tree) -> Result<Sent, Error> {
        let request = Request::Upload {
            git: self.git,
            above: below.name(),
        };
        let call = self.link.open(&request)?;
        let limit = FILES + remote_tree::allowance(tree);
        let pace = call.pace();
        match pace
            .hold(limit, remote_tree::upload(call, below, tree))
            .await
        {
            Ok(Ok(sent)) => Ok(sent),
            Ok(Err(Error::Broken { cause, reason })) => Err(self.link.break_off(cause, reason)),
            Ok(Err(error)) => {
                let reason = "its tree was not sent whole".to_owned();
                self.link.break_off(Cause::Unable, reason);
                Err(error)
            }
            Err(limit) => Err(self.late("upload", limit)),
        }
    }

    /// What the toolbox knows of the workspace; hashes it has not seen are zeros.
    pub(super) async fn ledger(&self) -> Result<Vec<ledger::Entry>, Error> {
        match self.ask(Request::Ledger, Bytes::new(), RECORDS).await? {
            Ok((Reply::Known, body)) => ledger::entries(&body).ok_or_else(|| self.odd("ledger")),
            Ok(_) | Err(_) => Err(self.odd("ledger")),
        }
    }

    /// True once no call is answered any more.
    pub(super) fn is_gone(&self) -> bool {
        self.link.ended().is_some()
    }
}
