//! A sandbox's tree and what it stands on: uploads above a tree that lies there, and the ledger of
//! what the toolbox knows.

use bytes::Bytes;
use tokio::time::timeout;
use wharf_toolbox::ledger;
use wharf_toolbox::message::{Reply, Request};

use super::remote::{FILES, RECORDS, Remote};
use super::remote_tree::{self, Below, Sent};
use super::{Error, Tree};

impl Remote {
    /// Makes the workspace exactly `tree`, sending what does not lie there.
    pub(super) async fn send(&self, below: Below<'_>, tree: &Tree) -> Result<Sent, Error> {
        let request = Request::Upload {
            git: self.git,
            above: below.name(),
        };
        let call = self.link.open(&request)?;
        let limit = FILES + remote_tree::allowance(tree);
        match timeout(limit, remote_tree::upload(call, below, tree)).await {
            Ok(Ok(sent)) => Ok(sent),
            Ok(Err(Error::Broken { reason })) => Err(self.link.break_off(reason)),
            Ok(Err(error)) => {
                self.link.break_off("its tree was not sent whole".into());
                Err(error)
            }
            Err(_) => Err(self.late("upload", limit)),
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
