//! The form in which contents land on a branch: as `git add` would leave them, without a program run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;

use super::attributes::{self, Passage};
use super::branch::refused;
use super::differences::{Change, Entry};
use super::git::Call;
use super::{Base, Error, Mode, Store, laid, path};
use crate::id::{BlobId, CommitId};

/// How many paths a refusal names.
const SHOWN: usize = 5;

/// Contents that land in another form than they have in the working tree.
#[derive(Default)]
pub(super) struct Landing {
    turned: BTreeMap<(Vec<u8>, BlobId), Bytes>,
    /// Files that agents' own attributes give to a filter of which the repository knows nothing, for
    /// display, each with the filter. They land as they are.
    pub given: Vec<String>,
    /// What cannot land, for display, each with the reason.
    foreign: Vec<String>,
}

/// The contents of each path that a delivery puts there.
type Files<'a> = BTreeMap<&'a [u8], BTreeSet<&'a BlobId>>;

/// Where contents are to land.
#[derive(Clone, Copy)]
struct Place<'a> {
    source: &'a Path,
    base: &'a Base,
}

impl Landing {
    /// The content that lands; None when it is the file's own.
    pub fn turned(&self, at: &[u8], entry: &Entry) -> Option<&Bytes> {
        match entry.mode {
            Mode::Link => None,
            _ => self.turned.get(&(at.to_owned(), entry.blob.clone())),
        }
    }

    fn refuse(&mut self, at: &[u8], why: &str) {
        self.foreign.push(format!("{} ({why})", path::display(at)));
    }
}

impl Store {
    /// Turns line ends as the repository's attributes say. A file that only a program of the operator's
    /// could turn (LFS, encryption) is refused: a branch would hold what the repository never should.
    /// Where agents changed attributes, their files land as they made them, or are refused.
    pub(super) async fn landing(
        &self,
        source: &Path,
        base: &Base,
        starting: &[Change],
        steps: &[Vec<Change>],
        last: &CommitId,
    ) -> Result<Landing, Error> {
        let place = Place { source, base };
        let mut landing = Landing::default();
        let agents = steps.iter().flatten();
        if agents.clone().any(|change| laid::is_one(&change.path)) {
            self.land(place, &files(starting.iter()), &mut landing)
                .await?;
            let files = files(agents);
            self.land_brought(place, &files, last, &mut landing).await?;
        } else {
            let files = files(starting.iter().chain(agents));
            self.land(place, &files, &mut landing).await?;
        }
        match landing.foreign.is_empty() {
            true => Ok(landing),
            false => Err(unturned(landing.foreign)),
        }
    }

    /// By the attributes that stand in the working tree.
    async fn land(
        &self,
        place: Place<'_>,
        files: &Files<'_>,
        landing: &mut Landing,
    ) -> Result<(), Error> {
        let paths: BTreeSet<&[u8]> = files.keys().copied().collect();
        let passages = attributes::passages(&self.git, place.source, None, &paths).await?;
        for ((at, blobs), passage) in files.iter().zip(passages) {
            self.turn(place, (*at, blobs), passage, landing).await?;
        }
        Ok(())
    }

    /// By the attributes of the result: what they say anew turns nothing.
    async fn land_brought(
        &self,
        place: Place<'_>,
        files: &Files<'_>,
        last: &CommitId,
        landing: &mut Landing,
    ) -> Result<(), Error> {
        let paths: BTreeSet<&[u8]> = files.keys().copied().collect();
        let laid = self.lay_attributes(place.source, place.base, last).await?;
        let standing = attributes::passages(&self.git, place.source, None, &paths).await?;
        let brought = attributes::passages(&self.git, place.source, Some(&laid), &paths).await?;
        let configured = laid::configured(&self.git, place.source).await?;
        for (((at, blobs), was), is) in files.iter().zip(standing).zip(brought) {
            let at = *at;
            match is {
                is if is == was => self.turn(place, (at, blobs), is, landing).await?,
                Passage::Filter(name) if !configured.contains(&name) => {
                    let (at, name) = (path::display(at), path::display(&name));
                    landing.given.push(format!("{at} (the filter {name})"));
                }
                Passage::Text | Passage::Auto => {
                    if self.holds_crlf(blobs, is == Passage::Auto).await? {
                        let why = "line ends, by a .gitattributes that was written in this run";
                        landing.refuse(at, why);
                    }
                }
                is => self.turn(place, (at, blobs), is, landing).await?,
            }
        }
        Ok(())
    }

    async fn turn(
        &self,
        place: Place<'_>,
        (at, blobs): (&[u8], &BTreeSet<&BlobId>),
        passage: Passage,
        landing: &mut Landing,
    ) -> Result<(), Error> {
        match passage {
            Passage::AsIs => {}
            Passage::Lfs => {
                if !self.are_pointers(blobs).await? {
                    landing.refuse(at, "the filter lfs");
                }
            }
            Passage::Filter(name) => {
                landing.refuse(at, &format!("the filter {}", path::display(&name)));
            }
            Passage::Encoding(name) => {
                landing.refuse(at, &format!("the encoding {}", path::display(&name)));
            }
            Passage::Ident => {
                if self.any_holds(blobs, b"$Id:").await? {
                    landing.refuse(at, "ident");
                }
            }
            Passage::Text | Passage::Auto => {
                let sure = passage == Passage::Text;
                for blob in blobs {
                    let content = self.content(blob).await?;
                    if let Some(turned) = attributes::with_lf(&content)
                        && (sure || self.turns(place, at, &content).await?)
                    {
                        let key = (at.to_owned(), (*blob).clone());
                        landing.turned.insert(key, turned);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether line ends would be turned in any of these; in none that looks binary when git is to tell.
    async fn holds_crlf(&self, blobs: &BTreeSet<&BlobId>, auto: bool) -> Result<bool, Error> {
        for blob in blobs {
            let content = self.content(blob).await?;
            if attributes::has_crlf(&content) && !(auto && attributes::is_binary(&content)) {
                return Ok(true);
            }
        }
        Ok(false)
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
        Place { source, base }: Place<'_>,
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

/// The contents of files, by path; links have none that git would turn.
fn files<'a>(changes: impl Iterator<Item = &'a Change>) -> Files<'a> {
    let mut files = Files::new();
    for change in changes {
        if let Some(Entry { mode, blob }) = &change.new
            && *mode != Mode::Link
        {
            files.entry(&change.path).or_default().insert(blob);
        }
    }
    files
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
