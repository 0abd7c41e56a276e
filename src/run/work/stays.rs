//! What of an agent's start stays since what stands in its place is not taken. Held over all its turns:
//! a removal may be taken in one turn, and what replaces the file be refused in a later one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::id::BlobId;
use crate::run::work::changes::{self, Taken};
use crate::sandbox::{Entry, Tree};
use crate::workspace::{Edit, display};

/// Why a removal is not taken.
const STAYS: &str = "its removal, since what took its place is left out";
/// Most removals that are named one by one below a path.
const NAMED: usize = 100;

/// An agent's changes since its start, as they stand in its sandbox.
pub(in crate::run) struct Stays {
    start: Arc<Tree>,
    /// What it put, and what of the start it took away.
    made: BTreeSet<Vec<u8>>,
    gone: BTreeSet<Vec<u8>>,
    /// What it put and what is not taken, with the reason; it came once and stands until it goes.
    refused: BTreeMap<Vec<u8>, String>,
    /// What the sandbox itself left out at the last look, a folder with a slash at its end.
    told: Vec<(Vec<u8>, String)>,
    /// What an earlier sandbox left out, for display: nobody can look any more.
    lost: Vec<(String, String)>,
}

impl Stays {
    /// For an agent that began at `start` and whose sandbox stands at `at`.
    pub fn new(start: &Arc<Tree>, at: &Arc<Tree>) -> Self {
        let (mut made, mut gone) = (BTreeSet::new(), BTreeSet::new());
        if !Arc::ptr_eq(start, at) {
            let differs = |path: &&Vec<u8>| start.entries.get(*path) != at.entries.get(*path);
            made.extend(at.entries.keys().filter(differs).cloned());
            let is_gone = |path: &&Vec<u8>| !at.entries.contains_key(*path);
            gone.extend(start.entries.keys().filter(is_gone).cloned());
        }
        Self {
            made,
            gone,
            start: start.clone(),
            refused: BTreeMap::new(),
            told: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Takes up one look at the sandbox; false when it saw nothing new.
    pub fn enter(&mut self, taken: &Taken) -> bool {
        if taken.edits.is_empty()
            && taken.gone.is_empty()
            && taken.refused.is_empty()
            && taken.left_out == self.told
        {
            return false;
        }
        for path in &taken.gone {
            self.refused.remove(path);
        }
        for edit in &taken.edits {
            let (Edit::Put { path, .. } | Edit::Keep { path, .. } | Edit::Delete { path }) = edit;
            let shown = display(path);
            self.lost.retain(|(lost, _)| *lost != shown);
            self.refused.remove(path);
            let put = !matches!(edit, Edit::Delete { .. });
            let (here, there) = match put {
                true => (&mut self.made, &mut self.gone),
                false => (&mut self.gone, &mut self.made),
            };
            there.remove(path);
            if put || self.start.entries.contains_key(path) {
                here.insert(path.clone());
            }
        }
        let refused = taken.refused.iter();
        self.refused.extend(refused.cloned());
        self.told.clone_from(&taken.left_out);
        true
    }

    /// Goes on in another sandbox, at the snapshot that holds what stays.
    pub fn move_on(&mut self) {
        let lost = self.left_out();
        let stays = self.stays();
        let paths = stays.back.keys().chain(&stays.stale);
        let paths: Vec<Vec<u8>> = paths.map(|path| path.to_vec()).collect();
        for path in paths {
            self.gone.remove(&path);
            self.made.remove(&path);
        }
        self.lost = lost;
        self.refused.clear();
        self.told.clear();
    }

    /// What an earlier process left out.
    pub fn recall(&mut self, lost: &[(String, String)]) {
        self.lost = lost.to_vec();
    }

    /// What leads from all that the agent changed to what is kept of it; nothing where that is the same.
    pub fn edits(&self) -> Vec<Edit> {
        let stays = self.stays();
        let stale = stays.stale.iter().map(|path| Edit::Delete {
            path: path.to_vec(),
        });
        let back = stays.back.iter().map(|(path, entry)| Edit::Keep {
            path: path.to_vec(),
            mode: changes::into_workspace(entry.mode),
            blob: BlobId::new(entry.id.clone()),
        });
        stale.chain(back).collect()
    }

    /// Everything of the agent's that is not taken, for display, each with the reason.
    pub fn left_out(&self) -> Vec<(String, String)> {
        let told = self.told.iter().map(|(path, why)| (path, why));
        let now = told.chain(&self.refused);
        let mut left_out: Vec<_> = now
            .map(|(path, why)| (display(path), why.clone()))
            .collect();
        left_out.extend(self.removals());
        let known: BTreeSet<String> = left_out.iter().map(|(path, _)| path.clone()).collect();
        let lost = self.lost.iter().filter(|(path, _)| !known.contains(path));
        left_out.extend(lost.cloned());
        left_out.sort();
        left_out.dedup();
        left_out
    }

    /// The removals that are not taken; of many in one place their number.
    fn removals(&self) -> Vec<(String, String)> {
        let mut by_place: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for (path, place) in self.stays().removed {
            by_place.entry(place).or_default().push(path);
        }
        let mut lines = Vec::new();
        for (place, paths) in by_place {
            if paths.len() > NAMED {
                let (folder, files) = (format!("{}/", display(place)), paths.len());
                lines.push((folder, format!("{STAYS}; {files} files")));
                continue;
            }
            let removals = paths.into_iter().filter(|path| *path != place);
            lines.extend(removals.map(|path| (display(path), STAYS.to_owned())));
        }
        lines
    }

    fn stays(&self) -> Kept<'_> {
        let mut kept = Kept::default();
        let refused = self.refused.keys().map(Vec::as_slice);
        let told = self.told.iter().map(|(path, _)| path.as_slice());
        let single = |path: &&[u8]| !path.ends_with(b"/");
        for place in refused.chain(told.clone()).filter(single) {
            for path in at_or_below(&self.made, place) {
                kept.bring_back(self, path, place);
            }
            for path in at_or_below(&self.gone, place) {
                kept.bring_back(self, path, place);
            }
        }
        // A folder in the place of a file, where nothing of what is in it is taken.
        let refused = self.refused.keys().map(Vec::as_slice);
        for place in refused.chain(told) {
            let slashes = place.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            let mut above = slashes.map(|(at, _)| &place[..at]);
            let file = above.find(|folder| self.gone.contains(*folder));
            if let Some(file) = file
                && at_or_below(&self.made, file).all(|path| kept.is_settled(path))
            {
                kept.bring_back(self, file, place);
            }
        }
        kept
    }
}

/// What is kept of the start against the agent's changes.
#[derive(Default)]
struct Kept<'a> {
    /// What comes back as it was at the start.
    back: BTreeMap<&'a [u8], &'a Entry>,
    /// What the agent made before, at a place where something stands now that is not taken.
    stale: BTreeSet<&'a [u8]>,
    /// Of what comes back what had been removed, and the place that it is about.
    removed: BTreeMap<&'a [u8], &'a [u8]>,
}

impl<'a> Kept<'a> {
    fn bring_back(&mut self, of: &'a Stays, path: &'a [u8], place: &'a [u8]) {
        let Some((path, entry)) = of.start.entries.get_key_value(path) else {
            self.stale.insert(path);
            return;
        };
        self.back.insert(path, entry);
        if of.gone.contains(path) {
            self.removed.insert(path, place);
        }
    }

    fn is_settled(&self, path: &[u8]) -> bool {
        self.stale.contains(path) || self.back.contains_key(path)
    }
}

/// The path itself, and every one that it is a folder of.
fn at_or_below<'a>(all: &'a BTreeSet<Vec<u8>>, place: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let folder = [place, b"/"].concat();
    let own = all.get(place).map(Vec::as_slice);
    let from = (Bound::Included(folder.clone()), Bound::Unbounded);
    let below = all.range::<Vec<u8>, _>(from).map(Vec::as_slice);
    own.into_iter()
        .chain(below.take_while(move |path| path.starts_with(&folder)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::run::work::changes::{KeptOut, take};
    use crate::run::work::ignored::BaseRules;
    use crate::sandbox::{Changes, Contents, Mode, Put};

    struct NoContents;

    impl Contents for NoContents {
        fn read(
            &self,
            _: Vec<String>,
        ) -> futures::stream::BoxStream<'static, std::io::Result<Bytes>> {
            Box::pin(futures::stream::empty())
        }
    }

    /// What stands at a path of the sandbox.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Thing {
        File(u8),
        Fifo,
        /// A file that is too large.
        Large,
    }

    type Standing = BTreeMap<Vec<u8>, Thing>;

    fn id(number: u8) -> String {
        format!("{number:040}")
    }

    fn tree(files: &[(&str, u8)]) -> Arc<Tree> {
        let entry = |number| Entry {
            mode: Mode::File,
            size: 1,
            id: id(number),
        };
        let entries = files
            .iter()
            .map(|(path, n)| (path.as_bytes().to_vec(), entry(*n)));
        Arc::new(Tree {
            entries: entries.collect(),
            contents: Arc::new(NoContents),
        })
    }

    fn standing(things: &[(&str, Thing)]) -> Standing {
        let things = things.iter();
        things
            .map(|(path, thing)| (path.as_bytes().to_vec(), *thing))
            .collect()
    }

    /// An agent as the run sees it: looks at a sandbox, and what they come to.
    struct Seen {
        stays: Stays,
        /// What the toolbox knows.
        known: BTreeMap<Vec<u8>, u8>,
        /// Everything that was committed.
        made: BTreeMap<Vec<u8>, String>,
    }

    impl Seen {
        fn new(start: &[(&str, u8)]) -> Self {
            let tree = tree(start);
            let bytes = |(path, n): &(&str, u8)| (path.as_bytes().to_vec(), *n);
            Self {
                made: tree
                    .entries
                    .iter()
                    .map(|(p, e)| (p.clone(), e.id.clone()))
                    .collect(),
                known: start.iter().map(bytes).collect(),
                stays: Stays::new(&tree, &tree),
            }
        }

        fn look(&mut self, at: &Standing) {
            let mut changes = Changes::default();
            for (path, thing) in at {
                match thing {
                    Thing::File(n) if self.known.get(path) != Some(n) => {
                        self.known.insert(path.clone(), *n);
                        changes.puts.push(Put {
                            path: path.clone(),
                            mode: Mode::File,
                            content: id(*n).into(),
                        });
                    }
                    Thing::File(_) => {}
                    Thing::Fifo | Thing::Large => {
                        changes.left_out.push((path.clone(), format!("{thing:?}")));
                    }
                }
            }
            let stays = |path: &Vec<u8>| !matches!(at.get(path), None | Some(Thing::Fifo));
            let gone = self.known.keys().filter(|path| !stays(path));
            changes.deletes = gone.cloned().collect();
            self.known.retain(|path, _| stays(path));
            let taken = take(changes, &KeptOut::default(), &BaseRules::default());
            self.stays.enter(&taken);
            apply(&mut self.made, &taken.edits);
        }

        fn kept(&self) -> BTreeMap<Vec<u8>, String> {
            let mut kept = self.made.clone();
            apply(&mut kept, &self.stays.edits());
            kept
        }

        fn left_out(&self) -> Vec<String> {
            self.stays
                .left_out()
                .into_iter()
                .map(|(path, _)| path)
                .collect()
        }
    }

    fn apply(files: &mut BTreeMap<Vec<u8>, String>, edits: &[Edit]) {
        for edit in edits {
            match edit {
                Edit::Delete { path } => drop(files.remove(path)),
                Edit::Put { path, content, .. } => {
                    let id = String::from_utf8(content.to_vec()).unwrap();
                    files.insert(path.clone(), id);
                }
                Edit::Keep { path, blob, .. } => {
                    files.insert(path.clone(), blob.as_str().to_owned());
                }
            }
        }
    }

    fn shown(files: &BTreeMap<Vec<u8>, String>) -> Vec<String> {
        let line = |(path, id): (&Vec<u8>, &String)| {
            format!("{}={}", display(path), id.trim_start_matches('0'))
        };
        files.iter().map(line).collect()
    }

    const FIFO: Thing = Thing::Fifo;
    const LARGE: Thing = Thing::Large;

    #[test]
    fn a_replacement_that_is_refused_in_a_later_turn_brings_the_start_back() {
        let start = [("a", 1), ("d/x", 2), ("d/y", 3), ("e", 4)];
        for refused in [FIFO, LARGE] {
            let mut seen = Seen::new(&start);
            let f = Thing::File;
            seen.look(&standing(&[("e", f(4))]));
            assert_eq!(shown(&seen.kept()), ["e=4"], "three are removed");
            assert_eq!(seen.left_out(), [""; 0]);
            seen.look(&standing(&[("a", refused), ("d", refused), ("e", f(4))]));
            assert_eq!(shown(&seen.kept()), ["a=1", "d/x=2", "d/y=3", "e=4"]);
            assert_eq!(seen.left_out(), ["a", "d", "d/x", "d/y"]);
            // Taken away in a third turn, all of it is a plain removal again, and nothing is left out.
            seen.look(&standing(&[("e", f(4))]));
            assert_eq!(shown(&seen.kept()), ["e=4"]);
            assert_eq!(seen.left_out(), [""; 0]);
        }
    }

    #[test]
    fn a_name_that_is_refused_is_named_until_it_goes() {
        let mut seen = Seen::new(&[("pkg", 1), ("e", 4)]);
        let e = ("e", Thing::File(4));
        seen.look(&standing(&[e]));
        seen.look(&standing(&[e, ("pkg/git~1", Thing::File(2))]));
        assert_eq!(shown(&seen.kept()), ["e=4", "pkg=1"]);
        assert_eq!(seen.left_out(), ["pkg", "pkg/git~1"]);
        // Something beside it is taken: then the folder is what the agent wanted.
        let beside = [e, ("pkg/b", Thing::File(3)), ("pkg/git~1", Thing::File(2))];
        seen.look(&standing(&beside));
        assert_eq!(shown(&seen.kept()), ["e=4", "pkg/b=3"]);
        assert_eq!(seen.left_out(), ["pkg/git~1"]);
        seen.look(&standing(&[e]));
        assert_eq!(seen.left_out(), [""; 0]);
        assert_eq!(shown(&seen.kept()), ["e=4"]);
    }

    #[test]
    fn what_another_sandbox_left_out_is_named_until_it_is_written() {
        let mut seen = Seen::new(&[("a", 1)]);
        seen.look(&standing(&[("a", FIFO), ("new", LARGE)]));
        seen.stays.move_on();
        assert_eq!(seen.left_out(), ["a", "new"]);
        assert_eq!(
            shown(&seen.kept()),
            [""; 0],
            "nothing leads away from the snapshot"
        );
        assert!(seen.stays.edits().is_empty());
        (seen.made, seen.known) = (
            BTreeMap::from([(b"a".to_vec(), id(1))]),
            BTreeMap::from([(b"a".to_vec(), 1)]),
        );
        seen.look(&standing(&[("a", Thing::File(2)), ("new", Thing::File(3))]));
        assert_eq!(seen.left_out(), [""; 0]);
        assert_eq!(shown(&seen.kept()), ["a=2", "new=3"]);
    }

    #[test]
    fn many_removals_in_one_place_are_one_line() {
        let names: Vec<String> = (0..=NAMED).map(|n| format!("d/{n}")).collect();
        let start: Vec<(&str, u8)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let mut seen = Seen::new(&start);
        seen.look(&standing(&[("d", FIFO)]));
        assert_eq!(seen.left_out(), ["d", "d/"]);
        assert_eq!(seen.kept().len(), NAMED + 1);
    }

    const PATHS: [&str; 8] = ["a", "a/b", "a/b/c", "a/d", "a/git~1", "e", "e/f", "git~1"];

    /// Some of the paths, none of which is a folder above another.
    fn any_standing() -> impl Strategy<Value = Standing> {
        let thing = prop_oneof![
            4 => (1..4_u8).prop_map(Thing::File),
            1 => Just(FIFO),
            1 => Just(LARGE),
        ];
        let one = prop_oneof![3 => Just(None), 2 => thing.prop_map(Some)];
        proptest::collection::vec(one, PATHS.len()).prop_map(|things| {
            let mut all = Standing::new();
            for (path, thing) in PATHS.iter().zip(things) {
                let slashes = path.match_indices('/').map(|(at, _)| &path[..at]);
                let mut above = slashes.map(|folder| all.contains_key(folder.as_bytes()));
                if let (Some(thing), false) = (thing, above.any(|there| there)) {
                    all.insert(path.as_bytes().to_vec(), thing);
                }
            }
            all
        })
    }

    /// What is to be kept of the last state alone, path by path.
    fn rule(start: &BTreeMap<Vec<u8>, String>, at: &Standing) -> BTreeMap<Vec<u8>, String> {
        let refused = |path: &[u8], thing: &Thing| {
            !matches!(thing, Thing::File(_)) || path.ends_with(b"git~1")
        };
        let within = |folder: &[u8], path: &[u8]| {
            path == folder || path.starts_with(&[folder, b"/"].concat())
        };
        let bad: Vec<&[u8]> = at
            .iter()
            .filter(|(path, thing)| refused(path, thing))
            .map(|(path, _)| path.as_slice())
            .collect();
        let mut kept = BTreeMap::new();
        for path in PATHS.map(str::as_bytes) {
            let taken_below = |folder: &[u8]| {
                at.iter()
                    .any(|(path, thing)| within(folder, path) && !refused(path, thing))
            };
            let made_way = bad.iter().any(|bad| within(path, bad) && *bad != path)
                && !taken_below(path)
                && start.contains_key(path);
            let own = at.get(path).filter(|thing| !refused(path, thing));
            let value = match own {
                _ if bad.iter().any(|bad| within(bad, path)) || made_way => {
                    start.get(path).cloned()
                }
                Some(Thing::File(n)) => Some(id(*n)),
                _ => None,
            };
            kept.extend(value.map(|value| (path.to_vec(), value)));
        }
        kept
    }

    proptest! {
        /// However an agent came to what stands there in the end: what is kept follows from that alone.
        #[test]
        fn what_is_kept_follows_from_the_start_and_the_end(
            start in any_standing(),
            turns in proptest::collection::vec(any_standing(), 1..4),
        ) {
            let plain = start.iter().filter(|(path, _)| !path.ends_with(b"git~1"));
            let names: Vec<(String, u8)> = plain
                .map(|(path, thing)| {
                    let number = if let Thing::File(n) = thing { *n } else { 9 };
                    (String::from_utf8(path.clone()).unwrap(), number)
                })
                .collect();
            let start: Vec<(&str, u8)> = names.iter().map(|(path, n)| (path.as_str(), *n)).collect();
            let mut seen = Seen::new(&start);
            let first = seen.made.clone();
            for turn in &turns {
                seen.look(turn);
                prop_assert_eq!(shown(&seen.kept()), shown(&rule(&first, turn)));
            }
        }
    }
}
