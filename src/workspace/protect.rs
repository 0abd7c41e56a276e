//! The operator's protected files: which of them a result changed, and a result with them put back.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::differences::Entry;
use super::globs::Globs;
use super::store::fresh_ref;
use super::{Error, Store, import, path};
use crate::id::CommitId;

impl Store {
    /// Paths of the base that the result changed or removed although a glob protects them; a later
    /// `!glob` takes out.
    pub async fn protected(
        &self,
        base: &CommitId,
        result: &CommitId,
        globs: &[String],
    ) -> Result<Vec<String>, Error> {
        let globs = Globs::new(globs)?;
        let changes = self.changes(base, result).await?;
        Ok(changes
            .iter()
            .filter(|change| change.old.is_some() && globs.matches(&change.path))
            .map(|change| path::display(&change.path))
            .collect())
    }
    /// Paths of the base that the result changed or removed and that a `!glob` takes out of protection.
    pub async fn released(
        &self,
        base: &CommitId,
        result: &CommitId,
        globs: &[String],
    ) -> Result<Vec<Vec<u8>>, Error> {
        let globs = Globs::new(globs)?;
        let changes = self.changes(base, result).await?.into_iter();
        let released = changes.filter(|c| c.old.is_some() && globs.takes_out(&c.path));
        Ok(released.map(|change| change.path).collect())
    }

    /// The result's tree with these paths as the base has them; those it does not have are taken out.
    pub async fn put_back(
        &self,
        result: &CommitId,
        base: &CommitId,
        paths: &[Vec<u8>],
    ) -> Result<CommitId, Error> {
        let wanted: BTreeSet<&[u8]> = paths.iter().map(Vec::as_slice).collect();
        let changes = self.changes(base, result).await?;
        let old = changes.iter().filter(|c| wanted.contains(&c.path[..]));
        let (old, new): (Vec<_>, Vec<_>) = old.partition(|change| change.old.is_some());
        let gone = new.into_iter().map(|change| import::delete(&change.path));
        let back = old.into_iter().filter_map(|change| {
            let Entry { mode, blob } = change.old.as_ref()?;
            Some(import::link_to(&change.path, *mode, blob))
        });
        // What is taken out first cannot take a file with it that is put back at or below its place.
        let puts = gone.chain(back);
        let from = [result.clone()];
        let (reference, from) = (fresh_ref(), import::From::Commits(&from));
        let header = import::header(&reference, 1, import::FIXED, "with the base's files", &from);
        let lines = std::iter::once(header).chain(puts);
        let lines: Vec<Bytes> = lines.chain([import::ask_mark(1), import::done()]).collect();
        let lines = futures::stream::iter(lines);
        import::only(self.import(lines).await?)
    }
}
