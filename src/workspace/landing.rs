//! The form in which contents land on a branch: as `git add` would leave them, without a program run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;

use super::attributes::{self, Passage};
use super::branch::refused;
use super::differences::{Change, Entry};
use super::git::Call;
use super::{Base, Error, Mode, Store, path};
use crate::id::BlobId;

/// How many paths a refusal names.
const SHOWN: usize = 5;

/// Contents that land in another form than they have in the working tree.
#[derive(Default)]
pub(super) struct Landing(BTreeMap<(Vec<u8>, BlobId), Bytes>);

impl Landing {
    /// The content that lands; None when it is the file's own.
    pub fn turned(&self, at: &[u8], entry: &Entry) -> Option<&Bytes> {
        match entry.mode {
            Mode::Link => None,
            _ => self.0.get(&(at.to_owned(), entry.blob.clone())),
        }
    }
}

impl Store {
    /// Turns line ends as the repository's attributes say. A file that only a program of the operator's
    /// could turn (LFS, encryption) is refused: a branch would hold what the repository never should.
    pub(super) async fn landing(
        &self,
        source: &Path,
        base: &Base,
        changes: &[&Change],
    ) -> Result<Landing, Error> {
        let mut files: BTreeMap<&[u8], BTreeSet<&BlobId>> = BTreeMap::new();
        for change in changes {
            if let Some(Entry { mode, blob }) = &change.new
                && *mode != Mode::Link
            {
                files.entry(&change.path).or_default().insert(blob);
            }
        }
        let paths: BTreeSet<&[u8]> = files.keys().copied().collect();
        let passages = attributes::passages(&self.git, source, &paths).await?;
        let (mut landing, mut foreign) = (Landing::default(), Vec::new());
        for ((at, blobs), passage) in files.into_iter().zip(passages) {
            match passage {
                Passage::AsIs => {}
                Passage::Lfs => {
                    if !self.are_pointers(&blobs).await? {
                        foreign.push(format!("{} (the filter lfs)", path::display(at)));
                    }
                }
                Passage::Foreign(why) => foreign.push(format!("{} ({why})", path::display(at))),
                Passage::Ident => {
                    if self.any_holds(&blobs, b"$Id:").await? {
                        foreign.push(format!("{} (ident)", path::display(at)));
                    }
                }
                Passage::Text | Passage::Auto => {
                    let sure = passage == Passage::Text;
                    for blob in blobs {
                        let content = self.content(blob).await?;
                        if let Some(turned) = attributes::with_lf(&content)
                            && (sure || self.turns(source, base, at, &content).await?)
                        {
                            landing.0.insert((at.to_owned(), blob.clone()), turned);
                        }
                    }
                }
            }
        }
        match foreign.is_empty() {
            true => Ok(landing),
            false => Err(unturned(foreign)),
        }
    }

    async fn are_pointers(&self, blobs: &BTreeSet<&BlobId>) -> Result<bool, Error> {
        for blob in blobs {
            if !attributes::is_pointer(&self.content(blob).await?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn any_holds(&self, blobs: &BTreeSet<&BlobId>, word: &[u8]) -> Result<bool, Error> {
        for blob in blobs {
            let content = self.content(blob).await?;
            if content.windows(word.len()).any(|part| part == word) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether `text=auto` turns a content: not what looks binary, nor what HEAD holds with CRLF.
    async fn turns(
        &self,
        source: &Path,
        base: &Base,
        at: &[u8],
        content: &[u8],
    ) -> Result<bool, Error> {
        if attributes::is_binary(content) {
            return Ok(false);
        }
        let Some(head) = &base.head else {
            return Ok(true);
        };
        let mut name = format!("{head}:").into_bytes();
        name.extend(path::join(base.prefix.as_bytes(), at));
        let call = Call::new("cat-file", source)
            .arg("blob")
            .arg(path::as_path(&name));
        let output = self.git.try_ask(call, b"").await?;
        match output.code {
            0 => Ok(!attributes::has_crlf(&output.stdout)),
            // HEAD has no such file.
            128 if output.stderr.contains("exist") => Ok(true),
            _ => Err(output.into_error("cat-file")),
        }
    }
}

fn unturned(mut files: Vec<String>) -> Error {
    let more = files.len().saturating_sub(SHOWN);
    files.truncate(SHOWN);
    let mut named = files.join(", ");
    if more > 0 {
        named.push_str(&format!(" and {more} more"));
    }
    refused(
        &format!("git turns these as they are committed, by what Wharf does not run: {named}"),
        "put the result into the working tree with `wharf apply`, then commit it with git",
    )
}
