//! A sandbox's changes as edits of the store: what may be taken, and what is left out with the reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::run::work::ignored::BaseRules;
use crate::sandbox::{self, Changes};
use crate::workspace::{self, Base, Edit};

/// What may be committed, and what was left out with the reason.
#[derive(Default)]
pub(in crate::run) struct Taken {
    pub edits: Vec<Edit>,
    /// Every path that was taken away, whether or not that may be committed.
    pub gone: Vec<Vec<u8>>,
    /// What was put and may not be committed; it is not told again as long as it stands.
    pub refused: Vec<(Vec<u8>, String)>,
    /// What the sandbox left out, all there is now; a folder with a slash at its end.
    pub left_out: Vec<(Vec<u8>, String)>,
    /// What a full disk cut, all there is now, for display.
    pub torn: BTreeSet<String>,
}

/// The path of an edit, for display.
pub(in crate::run) fn shown(edit: &Edit) -> String {
    let (Edit::Put { path, .. } | Edit::Keep { path, .. } | Edit::Delete { path }) = edit;
    workspace::display(path)
}

/// What stands in the workspace without being part of the base: no work of an agent's may take its
/// place. A branch would show that as a change, and what it replaces as gone.
#[derive(Default)]
pub(in crate::run) struct KeptOut {
    /// Each place, as the base spells it, with the reason to refuse a change there.
    places: BTreeMap<String, &'static str>,
}

impl KeptOut {
    pub fn of(base: &Base) -> Self {
        let hidden = base.hidden.iter();
        let hidden = hidden.map(|at| (at.clone(), "a file of this name is withheld from agents"));
        let left_out = base.left_out.iter();
        let left_out =
            left_out.map(|(at, _)| (at.clone(), "something stands there that agents do not see"));
        let own = Some(&base.own).filter(|own| !own.is_empty());
        let own = own.map(|own| (own.clone(), "Wharf's own files stand there"));
        Self {
            places: left_out.chain(hidden).chain(own).collect(),
        }
    }

    /// Why a change at this path is not taken: it is such a place, lies below one, or above one.
    fn refuses(&self, shown: &str) -> Option<&'static str> {
        let above = shown.match_indices('/').map(|(at, _)| &shown[..at]);
        let mut at_or_above = std::iter::once(shown).chain(above);
        if let Some(why) = at_or_above.find_map(|at| self.places.get(at)) {
            return Some(why);
        }
        let folder = format!("{shown}/");
        let below = self.places.range(folder.clone()..).next();
        below
            .filter(|(place, _)| place.starts_with(&folder))
            .map(|_| "it would take the place of what agents do not see")
    }
}

/// Sorts an agent's changes. A path that was withheld from it can be neither replaced nor removed, and
/// one that can be part of no snapshot costs the others nothing.
pub(in crate::run) fn take(changes: Changes, kept_out: &KeptOut, rules: &BaseRules) -> Taken {
    // As the base spells the paths that it withheld.
    let shown = workspace::display;
    let mut taken = Taken {
        torn: changes.torn.iter().map(|path| shown(path)).collect(),
        ..Taken::default()
    };
    let left_out = changes.left_out.into_iter();
    taken.left_out = left_out
        .filter(|(path, _)| !changes.torn.contains(path))
        .map(|(path, why)| {
            let why = rules.told(&path, why);
            (path, why)
        })
        .collect();
    let mut puts = Vec::with_capacity(changes.puts.len());
    for put in changes.puts {
        let mode = into_workspace(put.mode);
        let fits = workspace::check_path(&put.path, Some(mode));
        match fits.err().or_else(|| kept_out.refuses(&shown(&put.path))) {
            Some(why) => taken.refused.push((put.path, why.to_owned())),
            None => puts.push(Edit::Put {
                path: put.path,
                mode,
                content: put.content,
            }),
        }
    }
    // What could never be part of the start is not gone from it either.
    let deletes = changes.deletes.iter().filter(|path| {
        workspace::check_path(path, None).is_ok() && kept_out.refuses(&shown(path)).is_none()
    });
    taken.edits = deletes
        .map(|path| Edit::Delete { path: path.clone() })
        .collect();
    taken.edits.append(&mut puts);
    taken.gone = changes.deletes;
    taken
}

pub(super) fn into_workspace(mode: sandbox::Mode) -> workspace::Mode {
    match mode {
        sandbox::Mode::File => workspace::Mode::File,
        sandbox::Mode::Executable => workspace::Mode::Executable,
        sandbox::Mode::Link => workspace::Mode::Link,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sandbox::Put;

    fn put(path: &[u8]) -> Put {
        Put {
            path: path.to_vec(),
            mode: sandbox::Mode::File,
            content: Bytes::new(),
        }
    }

    /// A withheld file is neither replaced nor removed, however its name has to be spelled for display.
    #[test]
    fn a_withheld_path_is_kept_whatever_its_bytes() {
        let odd: [&[u8]; 3] = [b".env", b"a\nb.pem", b"key\xff.pem"];
        let why = "withheld";
        let kept_out = KeptOut {
            places: odd
                .iter()
                .map(|path| (workspace::display(path), why))
                .collect(),
        };
        let mut changes = Changes {
            puts: odd.iter().map(|path| put(path)).collect(),
            deletes: odd.iter().map(|path| path.to_vec()).collect(),
            ..Changes::default()
        };
        changes.puts.push(put(b"mine.txt"));
        let taken = take(changes, &kept_out, &BaseRules::default());
        assert_eq!(taken.edits.len(), 1);
        assert_eq!(taken.refused.len(), odd.len());
    }

    /// One bad name costs neither the snapshot nor the other files.
    #[test]
    fn what_no_snapshot_can_hold_is_left_out_and_named() {
        let kept_out = KeptOut {
            places: BTreeMap::from([
                ("home/.wharf".to_owned(), "own"),
                (".env".to_owned(), "hidden"),
            ]),
        };
        let bad: [&[u8]; 7] = [
            b"git~1",
            b"a/.git./hooks/post-checkout",
            ".g\u{200c}it".as_bytes(),
            b"home/.wharf/runs/x",
            b"home/.wharf",
            b"home",
            b".env/x",
        ];
        let mut changes = Changes {
            puts: bad.iter().map(|path| put(path)).collect(),
            deletes: bad.iter().map(|path| path.to_vec()).collect(),
            ..Changes::default()
        };
        changes.puts.push(Put {
            mode: sandbox::Mode::Link,
            ..put(b".gitmodules")
        });
        changes.puts.push(put(b"home/.wharfs"));
        let taken = take(changes, &kept_out, &BaseRules::default());
        let edits: Vec<String> = taken.edits.iter().map(super::shown).collect();
        assert_eq!(edits, ["home/.wharfs"]);
        assert_eq!(taken.refused.len(), bad.len() + 1);
        assert!(taken.refused.iter().all(|(_, why)| !why.is_empty()));
        assert_eq!(taken.gone.len(), bad.len());
    }
}
