//! The base snapshot: the operator's working tree as it is, read by Wharf itself.

use bytes::Bytes;
use futures::stream;
use tokio::sync::mpsc;

use super::around;
use super::listing::{self, Listing};
use super::reader::{Reader, Report, Tell};
use super::{Base, Error, Source, Store, import, path};
use crate::id::CommitId;

/// Chunks of the import that may wait in memory.
const AHEAD: usize = 16;

impl Store {
    /// Takes the base: tracked and untracked-not-ignored files as they stand, less what is hidden.
    /// Equal files give an equal commit. The operator's files, index and HEAD are only read.
    pub async fn base(&self, source: &Source) -> Result<Base, Error> {
        self.base_told(source, None).await
    }

    /// `base` that says how far it is where that takes long.
    pub async fn base_told(&self, source: &Source, tell: Option<Tell>) -> Result<Base, Error> {
        let listing = listing::list(&self.git, source, self.own_place(&source.path)?).await?;
        let (sender, receiver) = mpsc::channel(AHEAD);
        let reader = Reader::new(source, sender, tell)?;
        let (listing, commit, report) = self.take(listing, reader, receiver).await?;
        let start = self.start(source, &listing, &commit, &report).await?;
        self.keep_start(&commit, &start).await?;
        let shown = |paths: &[Vec<u8>]| paths.iter().map(|path| path::display(path)).collect();
        let left_out = report.left_out.iter();
        Ok(Base {
            tree: self.tree(&commit).await?,
            commit,
            head: listing.head,
            git: listing.git,
            dirty: !(start.put.is_empty() && start.delete.is_empty()),
            files: report.amount.files,
            bytes: report.amount.bytes,
            hidden: shown(&report.hidden),
            included: shown(&report.included),
            left_out: left_out
                .map(|(at, why)| (path::display(at), why.clone()))
                .collect(),
            outer: around::outer(&self.git, &source.path, listing.git).await?,
            prefix: listing.prefix,
            own: listing
                .own
                .as_deref()
                .map(path::display)
                .unwrap_or_default(),
            history: None,
            withheld: report.hidden,
        })
    }

    /// Reads on a thread of its own while the import writes.
    async fn take(
        &self,
        listing: Listing,
        reader: Reader,
        receiver: mpsc::Receiver<Bytes>,
    ) -> Result<(Listing, CommitId, Report), Error> {
        let reading = tokio::task::spawn_blocking(move || {
            let report = reader.run(&listing);
            (listing, report)
        });
        let lines = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|line| (line, receiver))
        });
        let written = self.import(lines).await;
        let (listing, report) = reading.await.map_err(|error| Error::Io {
            operation: "read the workspace for",
            path: self.dir.clone(),
            source: std::io::Error::other(error),
        })?;
        // A reader that gave up ends the import too: its reason is the one that counts.
        let report = report?;
        Ok((listing, import::only(written?)?, report))
    }
}
