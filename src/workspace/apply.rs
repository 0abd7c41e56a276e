//! Putting the result into the operator's directory: each file three-way, all of them or none.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::differences::{Change, Entry};
use super::disk::{self, Content, Found, Root, Taken};
use super::git::Call;
use super::merge::is_binary;
use super::place::{Place, Write};
use super::{Applied, Error, Mode, Store, path};
use super::{folders, own};
use crate::id::CommitId;

/// How often, and after which pauses, the lock of an apply is tried.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Whether the result may overwrite what the operator changed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// A conflict refuses the whole.
    No,
    /// The result wins, and the paths say so.
    Overwrite,
}

/// One version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    mode: Mode,
    bytes: Bytes,
}

/// What is to happen at one path.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Nothing,
    Write(Version),
    Delete,
    /// Text on both sides: lines decide.
    Merge,
    Conflict(&'static str),
}

/// One path on its way into the directory.
struct Item {
    path: Vec<u8>,
    old: Option<Version>,
    new: Option<Version>,
    now: Option<Content>,
}

#[derive(Default)]
struct Outcome {
    writes: Vec<Write>,
    shown: Vec<String>,
    refused: Vec<(String, String)>,
}

impl Store {
    /// Applies base → result to what is in the directory now. Git's index is not touched.
    pub async fn apply(
        &self,
        dir: &Path,
        base: &CommitId,
        result: &CommitId,
        force: Force,
    ) -> Result<Applied, Error> {
        let _lock = self.lock_apply().await?;
        let root = Root::open(dir)?;
        self.place(&root, dir).recover()?;
        let changes = self.changes(base, result).await?;
        let mut outcome = Outcome::default();
        let own = self.own_place(dir)?;
        let items = self
            .items((&root, own.as_deref()), changes, &mut outcome)
            .await?;
        for item in items {
            self.decide(item, force, &mut outcome).await?;
        }
        if !outcome.refused.is_empty() {
            return Ok(Applied::Refused {
                paths: outcome.refused,
            });
        }
        let place = self.place(&root, dir);
        let refused = place.all(&outcome.writes)?;
        Ok(match refused.is_empty() {
            true => Applied::Done {
                paths: outcome.shown,
            },
            false => Applied::Refused { paths: refused },
        })
    }

    /// Ends an apply into this directory that was cut off before; what it undid, for display.
    pub async fn recover(&self, dir: &Path) -> Result<Vec<String>, Error> {
        let _lock = self.lock_apply().await?;
        let root = Root::open(dir)?;
        self.place(&root, dir).recover()
    }

    fn place<'a>(&self, root: &'a Root, directory: &'a Path) -> Place<'a> {
        let record = self.dir.join("apply.json");
        Place {
            root,
            directory,
            record,
        }
    }

    /// One apply of a run at a time; waits a moment for one that is about to end.
    async fn lock_apply(&self) -> Result<std::fs::File, Error> {
        let at = self.dir.join("apply.lock");
        let io = |source| Error::Io {
            operation: "lock",
            path: at.clone(),
            source,
        };
        let file = std::fs::File::create(&at).map_err(io)?;
        for _ in 0..LOCK_TRIES {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                // A child that was forked a moment ago holds it, too, until it runs its program.
                Err(Errno::WOULDBLOCK) => tokio::time::sleep(LOCK_PAUSE).await,
                Err(errno) => return Err(io(errno.into())),
            }
        }
        Err(Error::Refused {
            what: "another apply of this run is at work".into(),
            hint: "wait until it has ended".into(),
        })
    }

    /// Reads every version of every changed path; what stands in the way is refused.
    async fn items(
        &self,
        (root, own): (&Root, Option<&[u8]>),
        changes: Vec<Change>,
        outcome: &mut Outcome,
    ) -> Result<Vec<Item>, Error> {
        let entries = changes.iter().flat_map(|change| [&change.old, &change.new]);
        let blobs = entries.flatten().map(|entry| entry.blob.clone()).collect();
        let mut contents = self.read_all(blobs).await?.into_iter();
        let mut version = |entry: Option<Entry>| {
            let Entry { mode, .. } = entry?;
            let bytes = contents.next()?;
            Some(Version { mode, bytes })
        };
        let gone: BTreeSet<Vec<u8>> = changes
            .iter()
            .filter(|change| change.new.is_none())
            .map(|change| change.path.clone())
            .collect();
        let mut items = Vec::with_capacity(changes.len());
        for change in changes {
            let (old, new) = (version(change.old), version(change.new));
            let mode = new.as_ref().map(|new| new.mode);
            let seen = match path::check(&change.path, mode) {
                Err(why) => Err(why.to_owned()),
                Ok(()) if own::touches(own, &change.path) => {
                    Err(format!("{} stand there", own::WHY))
                }
                Ok(()) => look(root, &change.path, &gone)?,
            };
            match seen {
                Ok(now) => items.push(Item {
                    path: change.path,
                    old,
                    new,
                    now,
                }),
                Err(why) => outcome.refused.push((path::display(&change.path), why)),
            }
        }
        Ok(items)
    }

    async fn decide(&self, item: Item, force: Force, outcome: &mut Outcome) -> Result<(), Error> {
        let mut decision = decide(&item);
        if decision == Decision::Merge {
            decision = match self.merge_file(&item).await? {
                // Both sides' changes stand there already, as after an apply that came before.
                Some(merged) if item.now.as_ref().is_some_and(|now| stands(now, &merged)) => {
                    Decision::Nothing
                }
                Some(merged) => Decision::Write(merged),
                None => Decision::Conflict("it was changed here in the same lines"),
            };
        }
        let shown = path::display(&item.path);
        let (version, note) = match (decision, force) {
            (Decision::Nothing, _) => return Ok(()),
            (Decision::Write(version), _) => (Some(version), None),
            (Decision::Delete, _) => (None, None),
            (Decision::Merge, _) => return Ok(()),
            (Decision::Conflict(why), Force::No) => {
                outcome.refused.push((shown, why.to_owned()));
                return Ok(());
            }
            (Decision::Conflict(why), Force::Overwrite) => (item.new, Some(why)),
        };
        outcome.shown.push(match note {
            Some(why) => format!("{shown} (overwritten: {why})"),
            None => shown,
        });
        outcome.writes.push(Write {
            path: item.path,
            was: item.now,
            content: version.map(|version| (version.mode, version.bytes)),
        });
        Ok(())
    }

    /// Merges text line by line; None when both sides changed the same lines.
    async fn merge_file(&self, item: &Item) -> Result<Option<Version>, Error> {
        let (Some(old), Some(new), Some(now)) = (&item.old, &item.new, &item.now) else {
            return Ok(None);
        };
        let io = |source| Error::Io {
            operation: "merge a file in",
            path: self.dir.clone(),
            source,
        };
        let dir = tempfile::Builder::new()
            .prefix("apply-")
            .tempdir_in(&self.dir)
            .map_err(io)?;
        for (name, bytes) in [
            ("now", &now.bytes[..]),
            ("old", &old.bytes),
            ("new", &new.bytes),
        ] {
            std::fs::write(dir.path().join(name), bytes).map_err(io)?;
        }
        let call = Call::new("merge-file", dir.path()).args(["-p", "-q", "now", "old", "new"]);
        let output = self.git.try_ask(call, b"").await?;
        match output.code {
            0 => Ok(Some(Version {
                mode: if new.mode == old.mode {
                    now.mode
                } else {
                    new.mode
                },
                bytes: output.stdout.into(),
            })),
            1..=127 => Ok(None),
            _ => Err(output.into_error("merge-file")),
        }
    }
}

/// What stands at a path now, or why the path cannot be written whatever stands there.
fn look(
    root: &Root,
    at: &[u8],
    gone: &BTreeSet<Vec<u8>>,
) -> Result<Result<Option<Content>, String>, Error> {
    let failed = |source| disk::failed("read", at, source);
    Ok(match root.take(at, u64::MAX - 1).map_err(failed)? {
        Taken::Content(content) => Ok(Some(content)),
        Taken::Is(Found::Absent) => Ok(None),
        // What stands above is removed by this very change.
        Taken::Is(Found::Blocked(above)) if gone.contains(&above) => Ok(None),
        Taken::Is(Found::Blocked(above)) => {
            Err(format!("{} is no directory here", path::display(&above)))
        }
        Taken::Is(Found::Directory) => match folders::kept(root, at, gone)? {
            None => Ok(None),
            Some(other) => Err(format!(
                "it is a directory here and {} in it would be lost",
                path::display(&other)
            )),
        },
        Taken::Is(Found::Other(kind)) => Err(format!("it is a {kind} here")),
        Taken::Is(Found::File | Found::Link) | Taken::TooLarge(_) => {
            Err("it changed while it was read".into())
        }
    })
}

/// The three-way rule for one path.
fn stands(now: &Content, version: &Version) -> bool {
    (now.mode, &now.bytes[..]) == (version.mode, &version.bytes[..])
}

fn decide(item: &Item) -> Decision {
    let now = item.now.as_ref().map(|now| (now.mode, &now.bytes[..]));
    let old = item.old.as_ref().map(|old| (old.mode, &old.bytes[..]));
    let new = item.new.as_ref().map(|new| (new.mode, &new.bytes[..]));
    if now == new {
        return Decision::Nothing;
    }
    if now == old {
        return item.new.clone().map_or(Decision::Delete, Decision::Write);
    }
    match (old, now, new) {
        (None, ..) => Decision::Conflict("another file was put here meanwhile"),
        (_, None, _) => Decision::Conflict("it was deleted here and changed by the run"),
        (.., None) => Decision::Conflict("it was changed here and deleted by the run"),
        (Some(old), Some(now), Some(new)) => {
            let link = [old.0, now.0, new.0].contains(&Mode::Link);
            let binary = [old.1, now.1, new.1].into_iter().any(is_binary);
            if link || binary {
                Decision::Conflict("it was changed here too and is no text")
            } else {
                Decision::Merge
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(old: Option<&str>, now: Option<&str>, new: Option<&str>) -> Item {
        let version = |text: Option<&str>| {
            text.map(|text| Version {
                mode: Mode::File,
                bytes: text.to_owned().into(),
            })
        };
        Item {
            path: b"a".to_vec(),
            old: version(old),
            new: version(new),
            now: now.map(|text| Content {
                mode: Mode::File,
                bytes: text.into(),
                permissions: 0o644,
            }),
        }
    }

    #[test]
    fn every_triple_has_its_answer() {
        let decide = |old, now, new| decide(&item(old, now, new));
        let (a, b, c) = (Some("a"), Some("b"), Some("c"));
        assert!(matches!(decide(a, a, b), Decision::Write(_)));
        assert_eq!(decide(a, b, b), Decision::Nothing);
        assert_eq!(decide(a, a, None), Decision::Delete);
        assert_eq!(decide(a, None, None), Decision::Nothing);
        assert!(matches!(decide(None, None, a), Decision::Write(_)));
        assert_eq!(decide(a, b, c), Decision::Merge);
        for (old, now, new) in [(None, a, b), (a, None, b), (a, b, None), (a, Some("\0"), b)] {
            assert!(
                matches!(decide(old, now, new), Decision::Conflict(_)),
                "{old:?} {now:?} {new:?}"
            );
        }
    }
}
