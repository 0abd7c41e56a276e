//! An apply as one step: everything is written beside its place, then all places change, or none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::disk::{self, Content, Found, Root};
use super::swap::{self, Missing, Swapped};
use super::undo::{self, Mark, Move, Moves, Pending, Undo};
use super::{Error, Mode, folders, path, stage};

/// One path to be written, or removed where there is no content.
pub(super) struct Write {
    pub path: Vec<u8>,
    /// What stood there when it was decided; if that changed since, nothing is written at all.
    pub was: Option<Content>,
    pub content: Option<(Mode, Bytes)>,
}

/// A directory that is being changed, and where what is about to be done is written down.
pub(super) struct Place<'a> {
    pub root: &'a Root,
    pub directory: &'a Path,
    pub record: PathBuf,
}

impl Place<'_> {
    /// Writes and removes everything, or nothing. What is refused changed since it was decided; the
    /// paths with the reason. After an error, too, everything stands as it stood, or the record stays.
    pub fn all(&self, writes: &[Write]) -> Result<Vec<(String, String)>, Error> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let writes = in_order(writes);
        let moves = self.plan(&writes)?;
        let mut record = Undo::open(&self.record, &moves)?;
        let staged = self.stage(&writes, &moves).and_then(|()| record.ready());
        if let Err(error) = staged {
            // What cannot be cleared now is cleared by the next apply, by the record that stays.
            if self.clear(&moves, &Missing::Fails).is_ok() {
                record.close()?;
            }
            return Err(error);
        }
        match self.swap(&moves) {
            Ok(None) => {}
            Ok(Some(changed)) => {
                let left = self.undo(&moves, &Missing::Fails)?;
                record.close()?;
                let why = "it changed while the result was being applied";
                let paths = std::iter::once(changed).chain(left);
                return Ok(paths.map(|at| (path::display(&at), why.into())).collect());
            }
            Err(error) => {
                self.undo(&moves, &Missing::Fails)?;
                record.close()?;
                return Err(error);
            }
        }
        record.keep()?;
        self.finish(&moves, &Missing::Fails)?;
        record.close()?;
        Ok(Vec::new())
    }

    /// Ends an apply that was cut off before: undoes it, or finishes it when all was in place. What
    /// was done is said, each path for display.
    pub fn recover(&self) -> Result<Vec<String>, Error> {
        let Some(pending) = undo::pending(&self.record)? else {
            return Ok(Vec::new());
        };
        let directory = pending.moves().directory();
        if directory != self.directory {
            return Err(Error::Refused {
                what: format!("an apply to {} was cut off", directory.display()),
                hint: format!("remove {} to leave it as it is", self.record.display()),
            });
        }
        let missing = Missing::counts();
        let done = match pending {
            Pending::Clear(moves) => {
                self.clear(&moves, &missing)?;
                Vec::new()
            }
            Pending::Undo(moves) => {
                let left: BTreeSet<Vec<u8>> = self.undo(&moves, &missing)?.into_iter().collect();
                let said = |step: &Move| match left.contains(&step.path) {
                    true => format!("{} (left as it is now)", path::display(&step.path)),
                    false => path::display(&step.path),
                };
                moves.moves.iter().map(said).collect()
            }
            Pending::Finish(moves) => {
                self.finish(&moves, &missing)?;
                Vec::new()
            }
        };
        undo::remove(&self.record)?;
        Ok(done)
    }

    fn plan(&self, writes: &[&Write]) -> Result<Moves, Error> {
        let puts: BTreeSet<&[u8]> = writes
            .iter()
            .filter(|write| write.content.is_some())
            .map(|write| &write.path[..])
            .collect();
        let mut moves = Vec::with_capacity(writes.len());
        for write in writes {
            moves.push(Move {
                path: write.path.clone(),
                beside: self.beside(&write.path, &puts)?,
                old: swap::mark(&write.was),
                new: write.content.as_ref().map(|(mode, b)| Mark::of(*mode, b)),
            });
        }
        Ok(Moves {
            directory: self.directory.as_os_str().as_encoded_bytes().to_vec(),
            folders: folders::missing(self.root, puts.into_iter())?,
            moves,
        })
    }

    /// A name in the nearest folder above that is there and stays one.
    fn beside(&self, at: &[u8], puts: &BTreeSet<&[u8]>) -> Result<Vec<u8>, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".wharf-{}-{next}.tmp", std::process::id());
        for folder in path::parents(at) {
            let becomes_file = std::iter::once(folder)
                .chain(path::parents(folder))
                .any(|above| puts.contains(above));
            let found = self.root.find(folder);
            let found = found.map_err(|errno| disk::failed("look at", folder, errno))?;
            if found == Found::Directory && !becomes_file {
                return Ok(path::join(folder, name.as_bytes()));
            }
        }
        Ok(name.into_bytes())
    }

    /// Removes whatever lies beside its place.
    fn clear(&self, moves: &Moves, missing: &Missing) -> Result<(), Error> {
        let mut failed = None;
        for step in &moves.moves {
            if let Err(error) = swap::clear(self.root, &step.beside, missing) {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn stage(&self, writes: &[&Write], moves: &Moves) -> Result<(), Error> {
        for (write, step) in writes.iter().zip(&moves.moves) {
            if let Some((mode, bytes)) = &write.content {
                let place = (&write.path[..], write.was.as_ref());
                stage::write(self.root, &step.beside, place, (*mode, bytes))?;
            }
        }
        Ok(())
    }

    /// Makes every move; the path that stopped it where something else stands by now.
    fn swap(&self, moves: &Moves) -> Result<Option<Vec<u8>>, Error> {
        for step in &moves.moves {
            if step.new.is_some() {
                self.make_way(step)?;
            }
            if swap::swap(self.root, step)? == Swapped::Changed {
                return Ok(Some(step.path.clone()));
            }
        }
        Ok(None)
    }

    /// Makes the folder a new file goes into, or removes the empty ones that stand in its place.
    fn make_way(&self, step: &Move) -> Result<(), Error> {
        let failed = |errno| disk::failed("make way for", &step.path, errno);
        match folders::make_parent(self.root, &step.path) {
            // What stands there instead of a folder stops the move itself.
            Ok(_) | Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let found = self.root.find(&step.path).map_err(failed)?;
        if step.old.is_none() && found == Found::Directory {
            folders::clear(self.root, &step.path)?;
        }
        Ok(())
    }

    /// Brings every move back, the last one first; paths that somebody changed since are left and
    /// named. What could not be brought back is an error, and the record stays for another try.
    fn undo(&self, moves: &Moves, missing: &Missing) -> Result<Vec<Vec<u8>>, Error> {
        let (mut left, mut failed) = (Vec::new(), None);
        let made: BTreeSet<&[u8]> = moves.folders.iter().map(Vec::as_slice).collect();
        for step in moves.moves.iter().rev() {
            match swap::undo(self.root, step, missing) {
                Ok(Swapped::Yes) => {}
                Ok(Swapped::Changed) => left.push(step.path.clone()),
                // The others are brought back all the same.
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
            for folder in path::parents(&step.path).take_while(|at| made.contains(at)) {
                // Somebody may have put something into it meanwhile: then it stays.
                let _ = folders::remove(self.root, folder);
            }
        }
        left.reverse();
        failed.map_or(Ok(left), Err)
    }

    /// Makes the new names durable, then removes what they replaced and folders that got empty.
    fn finish(&self, moves: &Moves, missing: &Missing) -> Result<(), Error> {
        let folders: BTreeSet<&[u8]> = moves
            .moves
            .iter()
            .map(|step| path::parents(&step.path).next().unwrap_or_default())
            .collect();
        for folder in folders {
            let inside = path::join(folder, b"x");
            if let Ok((open, _)) = self.root.parent(&inside) {
                let synced = folders::sync(&open);
                synced.map_err(|errno| disk::failed("sync", folder, errno))?;
            }
        }
        self.clear(moves, missing)?;
        let gone = moves.moves.iter().filter(|step| step.new.is_none());
        gone.for_each(|step| folders::remove_empty(self.root, &step.path));
        Ok(())
    }
}

/// First what needs nothing removed, then the removals, then what stands where something was removed.
fn in_order(writes: &[Write]) -> Vec<&Write> {
    let gone: BTreeSet<&[u8]> = writes
        .iter()
        .filter(|write| write.content.is_none())
        .map(|write| &write.path[..])
        .collect();
    let mut order: Vec<&Write> = writes.iter().collect();
    order.sort_by_key(|write| match &write.content {
        Some(_) if waits(&write.path, &gone) => 2,
        Some(_) => 0,
        None => 1,
    });
    order
}

/// True when the path can only be written after something was removed: above it or below it.
fn waits(at: &[u8], gone: &BTreeSet<&[u8]>) -> bool {
    let folder = [at, b"/"].concat();
    path::parents(at).any(|parent| gone.contains(parent))
        || gone
            .range(&folder[..]..)
            .next()
            .is_some_and(|next| next.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use super::super::disk::Taken;
    use super::*;

    /// Where an apply is cut.
    #[derive(Clone, Copy, Debug)]
    enum Cut {
        /// While contents are written beside their places.
        Staged(usize),
        /// While places change.
        Moved(usize),
        /// When all have changed and the old contents still lie about.
        Kept,
    }

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a", "gone", "d/x", "d/e/y", "l"] {
            let at = dir.path().join("w").join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(&at, format!("{path} old\n")).unwrap();
        }
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(dir.path().join("w/a"), private).unwrap();
        dir
    }

    /// An edit, a new file in a new folder, a removal, a folder that becomes a file, a file that
    /// becomes a folder.
    fn writes(root: &Root) -> Vec<Write> {
        let write = |path: &str, content: Option<(Mode, &str)>| {
            let was = match root.take(path.as_bytes(), 1 << 20).unwrap() {
                Taken::Content(content) => Some(content),
                _ => None,
            };
            Write {
                path: path.into(),
                was,
                content: content.map(|(mode, text)| (mode, Bytes::from(text.to_owned()))),
            }
        };
        vec![
            write("a", Some((Mode::File, "a new\n"))),
            write("n/m/new", Some((Mode::Executable, "new\n"))),
            write("gone", None),
            write("d/x", None),
            write("d/e/y", None),
            write("d", Some((Mode::Link, "a"))),
            write("l", None),
            write("l/in", Some((Mode::File, "in\n"))),
        ]
    }

    fn state(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let (mut seen, mut open) = (BTreeMap::new(), vec![dir.to_owned()]);
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let at = entry.unwrap().path();
                let meta = std::fs::symlink_metadata(&at).unwrap();
                let content = if meta.is_symlink() {
                    std::fs::read_link(&at)
                        .unwrap()
                        .into_os_string()
                        .into_encoded_bytes()
                } else if meta.is_file() {
                    std::fs::read(&at).unwrap()
                } else {
                    open.push(at.clone());
                    Vec::new()
                };
                seen.insert(at, (meta.permissions().mode(), content));
            }
        }
        seen
    }

    /// Applies as far as the cut, as a process that is killed there.
    fn cut(place: &Place<'_>, writes: &[Write], cut: Cut) {
        let writes = in_order(writes);
        let moves = place.plan(&writes).unwrap();
        let mut record = Undo::open(&place.record, &moves).unwrap();
        let staged = match cut {
            Cut::Staged(count) => count,
            _ => writes.len(),
        };
        let some = Moves {
            moves: moves.moves[..staged].to_vec(),
            ..moves.clone()
        };
        place.stage(&writes[..staged], &some).unwrap();
        let moved = match cut {
            Cut::Staged(_) => return,
            Cut::Moved(count) => count,
            Cut::Kept => writes.len(),
        };
        record.ready().unwrap();
        let some = Moves {
            moves: moves.moves[..moved].to_vec(),
            ..moves
        };
        assert_eq!(place.swap(&some).unwrap(), None);
        if matches!(cut, Cut::Kept) {
            record.keep().unwrap();
        }
    }

    #[test]
    fn an_apply_cut_anywhere_is_undone_or_finished() {
        let count = 8;
        let cuts = (0..=count).map(Cut::Staged);
        let cuts = cuts.chain((0..=count).map(Cut::Moved)).chain([Cut::Kept]);
        for cut_at in cuts {
            let dir = folder();
            let work = dir.path().join("w");
            let root = Root::open(&work).unwrap();
            let place = Place {
                root: &root,
                directory: &work,
                record: dir.path().join("undo"),
            };
            let before = state(&work);
            cut(&place, &writes(&root), cut_at);
            let said = place.recover().unwrap();
            assert!(!place.record.exists());
            let after = state(&work);
            match cut_at {
                Cut::Kept => assert_ne!(after, before),
                Cut::Moved(_) => {
                    assert_eq!(said.len(), count, "{cut_at:?}");
                    assert_eq!(after, before, "{cut_at:?}");
                }
                Cut::Staged(_) => assert_eq!((said.len(), after), (0, before), "{cut_at:?}"),
            }
            if !matches!(cut_at, Cut::Kept) {
                assert_eq!(place.all(&writes(&root)).unwrap(), []);
            }
            let names: Vec<String> = state(&work)
                .keys()
                .map(|at| at.strip_prefix(&work).unwrap().display().to_string())
                .collect();
            let expected = ["a", "d", "l", "l/in", "n", "n/m", "n/m/new"];
            assert_eq!(names, expected, "{cut_at:?}");
            assert_eq!(std::fs::read_link(work.join("d")).unwrap(), Path::new("a"));
            assert_eq!(std::fs::read(work.join("a")).unwrap(), b"a new\n");
        }
    }

    /// A folder that is away for a moment is not gone: what lies beside in it is another apply's to
    /// bring back, and the record says so.
    #[test]
    fn a_folder_that_is_away_keeps_the_record() {
        for cut_at in [Cut::Staged(1), Cut::Moved(1), Cut::Kept] {
            let dir = tempfile::tempdir().unwrap();
            let (work, away) = (dir.path().join("w"), dir.path().join("away"));
            std::fs::create_dir_all(work.join("d")).unwrap();
            std::fs::write(work.join("d/x"), "old\n").unwrap();
            let root = Root::open(&work).unwrap();
            let place = Place {
                root: &root,
                directory: &work,
                record: dir.path().join("undo"),
            };
            let was = match root.take(b"d/x", 1 << 20).unwrap() {
                Taken::Content(content) => Some(content),
                _ => None,
            };
            let write = Write {
                path: b"d/x".to_vec(),
                was,
                content: Some((Mode::File, Bytes::from_static(b"new\n"))),
            };
            cut(&place, &[write], cut_at);
            let pending = undo::pending(&place.record).unwrap().unwrap();
            std::fs::rename(work.join("d"), &away).unwrap();
            let live = match &pending {
                Pending::Clear(moves) => place.clear(moves, &Missing::Fails),
                Pending::Undo(moves) => place.undo(moves, &Missing::Fails).map(drop),
                Pending::Finish(moves) => place.finish(moves, &Missing::Fails),
            };
            assert!(live.is_err(), "{cut_at:?}");
            let back = std::thread::spawn({
                let (away, home) = (away.clone(), work.join("d"));
                move || {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    std::fs::rename(away, home).unwrap();
                }
            });
            place.recover().unwrap();
            back.join().unwrap();
            let now = match cut_at {
                Cut::Kept => "new\n",
                _ => "old\n",
            };
            assert_eq!(
                std::fs::read_to_string(work.join("d/x")).unwrap(),
                now,
                "{cut_at:?}"
            );
            assert_eq!(state(&work).len(), 2, "{cut_at:?}: something lies about");
            assert!(!place.record.exists());
        }
    }

    /// One that was removed for good, with all that was in it, keeps nobody waiting for ever.
    #[test]
    fn a_folder_that_was_removed_since_is_gone() {
        let dir = folder();
        let work = dir.path().join("w");
        let root = Root::open(&work).unwrap();
        let place = Place {
            root: &root,
            directory: &work,
            record: dir.path().join("undo"),
        };
        let edit = Write {
            path: b"d/e/y".to_vec(),
            was: match root.take(b"d/e/y", 1 << 20).unwrap() {
                Taken::Content(content) => Some(content),
                _ => None,
            },
            content: Some((Mode::File, Bytes::from_static(b"new\n"))),
        };
        cut(&place, &[edit], Cut::Moved(1));
        std::fs::remove_dir_all(work.join("d")).unwrap();
        place.recover().unwrap();
        assert!(!place.record.exists() && !work.join("d").exists());
    }

    #[test]
    fn what_was_written_after_the_cut_stays() {
        let dir = folder();
        let work = dir.path().join("w");
        let root = Root::open(&work).unwrap();
        let place = Place {
            root: &root,
            directory: &work,
            record: dir.path().join("undo"),
        };
        cut(&place, &writes(&root), Cut::Moved(8));
        std::fs::write(work.join("a"), "mine\n").unwrap();
        std::fs::write(work.join("gone"), "mine too\n").unwrap();
        let elsewhere = Place {
            directory: dir.path(),
            record: place.record.clone(),
            ..place
        };
        assert!(elsewhere.recover().is_err(), "of another directory");
        let said = place.recover().unwrap();
        let left = said.iter().filter(|line| line.contains("left as it is"));
        assert_eq!(left.count(), 2, "{said:?}");
        assert_eq!(std::fs::read(work.join("a")).unwrap(), b"mine\n");
        assert_eq!(std::fs::read(work.join("gone")).unwrap(), b"mine too\n");
        assert_eq!(std::fs::read(work.join("d/e/y")).unwrap(), b"d/e/y old\n");
    }

    #[test]
    fn one_path_that_changed_since_brings_all_back() {
        for changed in ["a", "gone", "n/m/new", "l"] {
            let dir = folder();
            let work = dir.path().join("w");
            let root = Root::open(&work).unwrap();
            let place = Place {
                root: &root,
                directory: &work,
                record: dir.path().join("undo"),
            };
            let decided = writes(&root);
            std::fs::create_dir_all(work.join("n/m")).unwrap();
            std::fs::write(work.join(changed), "mine\n").unwrap();
            let before = state(&work);
            let refused = place.all(&decided).unwrap();
            assert_eq!(refused.len(), 1, "{changed}: {refused:?}");
            assert_eq!(refused[0].0, changed);
            assert_eq!(state(&work), before, "{changed}");
        }
    }

    #[test]
    fn swaps_wait_for_what_is_in_the_way() {
        let gone = BTreeSet::from([&b"d"[..], b"e/x"]);
        assert!(waits(b"d/new", &gone));
        assert!(waits(b"e", &gone));
        assert!(!waits(b"e/y", &gone));
        assert!(!waits(b"ee", &gone));
    }
}
