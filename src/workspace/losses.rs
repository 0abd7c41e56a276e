//! Which lines of two sides a resolution does not hold any more, and which markers it still does: pure.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::merge::is_binary;
use super::path;
use super::resolve::{Dropped, Loss, Side};

/// One path with every version of it; None where that version has no such file.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub path: Vec<u8>,
    /// It is one of the files in conflict, and not only written beside them.
    pub in_conflict: bool,
    pub base: Option<Bytes>,
    pub ours: Option<Bytes>,
    pub theirs: Option<Bytes>,
    /// Where the merger started: the merge with markers.
    pub start: Option<Bytes>,
    pub result: Option<Bytes>,
}

/// How often a line stands in each version of a place.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    base: i64,
    ours: i64,
    theirs: i64,
    start: i64,
    result: i64,
}

/// The figure of one version.
type Slot = fn(&mut Count) -> &mut i64;

impl Count {
    /// How often the line may stand here when both sides are kept.
    fn most(&self) -> i64 {
        let both = self.ours + self.theirs - self.base;
        both.max(self.ours).max(self.theirs)
    }

    /// How often it must stand here for neither side's addition to be lost; what both added is
    /// wanted once, and what the other side removed is not wanted back.
    fn wanted(&self) -> i64 {
        let (ours, theirs) = (self.ours - self.base, self.theirs - self.base);
        let wanted = match (ours > 0, theirs > 0) {
            (true, true) => self.ours.max(self.theirs),
            (true, false) | (false, true) => self.base + ours + theirs,
            (false, false) => 0,
        };
        wanted.max(0)
    }

    /// How often it stands here beyond what has to stand here anyway.
    fn held(&self) -> i64 {
        if self.wanted() > 0 {
            return self.result;
        }
        (self.result - self.ours.min(self.theirs)).max(0)
    }

    fn of(&self, side: Side) -> i64 {
        match side {
            Side::Ours => self.ours,
            Side::Theirs => self.theirs,
            Side::Both => self.ours.min(self.theirs),
        }
    }
}

/// True when the result still holds a conflict marker that is no side's own text.
pub(super) fn marked(place: &Place) -> bool {
    counts(place, |line| line.strip_suffix(b"\r").unwrap_or(line))
        .iter()
        .any(|(line, count)| match kind(line) {
            Some(Marker::Edge) => count.result > count.most(),
            // A line of seven equals signs is also a heading: it counts only where the merge put one.
            Some(Marker::Middle) => count.result > count.most() && count.start > count.most(),
            None => false,
        })
}

enum Marker {
    Edge,
    Middle,
}

fn kind(line: &[u8]) -> Option<Marker> {
    let edges: [&[u8]; 3] = [b"<<<<<<< ", b">>>>>>> ", b"||||||| "];
    match line {
        b"=======" => Some(Marker::Middle),
        line if edges.iter().any(|edge| line.starts_with(edge)) => Some(Marker::Edge),
        _ => None,
    }
}

/// What either side changed, and what both left alone, that no place of the result holds.
pub(super) fn dropped(places: &[Place]) -> Vec<Dropped> {
    let counted: Vec<_> = places.iter().map(|place| counts(place, trimmed)).collect();
    let (mut wanted, mut held) = (HashMap::new(), HashMap::new());
    for (line, count) in counted.iter().flatten() {
        *wanted.entry(*line).or_insert(0) += count.wanted();
        *held.entry(*line).or_insert(0) += count.held();
    }
    let is_gone = |line: &[u8]| {
        let of = |all: &HashMap<&[u8], i64>| all.get(line).copied().unwrap_or(0);
        !line.is_empty() && of(&held) < of(&wanted)
    };
    let stands = |line: &[u8]| {
        let mut all = counted.iter().filter_map(|counts| counts.get(line));
        all.any(|count| count.result > 0)
    };
    let mut dropped = Vec::new();
    for (place, counts) in places.iter().zip(&counted) {
        let common = common(place, counts, &stands);
        if !common.is_empty() {
            dropped.push(Dropped {
                path: path::display(&place.path),
                side: Side::Both,
                loss: Loss::Lines(common),
            });
        }
        for (side, version) in [(Side::Ours, &place.ours), (Side::Theirs, &place.theirs)] {
            if let Some(loss) = loss(place, places, (side, version), counts, &is_gone) {
                dropped.push(Dropped {
                    path: path::display(&place.path),
                    side,
                    loss,
                });
            }
        }
    }
    dropped
}

/// Lines that both sides left as they were and that stand nowhere any more, for display. Of a file that was
/// removed beside the conflict there are none: it is named as that.
fn common(
    place: &Place,
    counts: &HashMap<&[u8], Count>,
    stands: &dyn Fn(&[u8]) -> bool,
) -> Vec<String> {
    let base = match [&place.base, &place.ours, &place.theirs] {
        [Some(base), Some(_), Some(_)]
            if !is_binary(base) && (place.in_conflict || place.result.is_some()) =>
        {
            base
        }
        _ => return Vec::new(),
    };
    let mut seen = HashSet::new();
    base.split(|&byte| byte == b'\n')
        .map(trimmed)
        .filter(|line| !line.is_empty() && seen.insert(*line) && !stands(line))
        .filter(|line| {
            let count = counts.get(line).copied().unwrap_or_default();
            count.ours >= count.base && count.theirs >= count.base
        })
        .map(path::display)
        .collect()
}

/// What is gone of one side's version of one place.
fn loss(
    place: &Place,
    places: &[Place],
    (side, version): (Side, &Option<Bytes>),
    counts: &HashMap<&[u8], Count>,
    is_gone: &dyn Fn(&[u8]) -> bool,
) -> Option<Loss> {
    if *version == place.base {
        return None;
    }
    let Some(version) = version else {
        return place.result.is_some().then_some(Loss::Deletion);
    };
    if places.iter().any(|p| p.result.as_ref() == Some(version)) {
        return None;
    }
    if is_binary(version) {
        return Some(Loss::Version);
    }
    let mut seen = HashSet::new();
    let lines: Vec<String> = version
        .split(|&byte| byte == b'\n')
        .map(trimmed)
        .filter(|line| seen.insert(*line) && is_gone(line))
        .filter(|line| {
            let count = counts.get(line).copied().unwrap_or_default();
            count.of(side) > count.base && count.of(side) > count.result
        })
        .map(path::display)
        .collect();
    match (lines.is_empty(), &place.base, &place.result) {
        (false, ..) => Some(Loss::Lines(lines)),
        (true, Some(_), None) => Some(Loss::Version),
        _ => None,
    }
}

/// Each line that stands in any version, in the form that counts.
fn counts(place: &Place, form: fn(&[u8]) -> &[u8]) -> HashMap<&[u8], Count> {
    let mut counts: HashMap<&[u8], Count> = HashMap::new();
    let versions: [(&Option<Bytes>, Slot); 5] = [
        (&place.base, |count| &mut count.base),
        (&place.ours, |count| &mut count.ours),
        (&place.theirs, |count| &mut count.theirs),
        (&place.start, |count| &mut count.start),
        (&place.result, |count| &mut count.result),
    ];
    for (version, slot) in versions {
        let text = version.as_deref().filter(|text| !is_binary(text));
        for line in text
            .into_iter()
            .flat_map(|text| text.split(|&b| b == b'\n'))
        {
            *slot(counts.entry(form(line)).or_default()) += 1;
        }
    }
    counts
}

/// A line without its indentation and its end: moved into a block it is still the same line.
fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, versions: [Option<&str>; 5]) -> Place {
        let bytes = |text: Option<&str>| text.map(|text| Bytes::from(text.to_owned()));
        let [base, ours, theirs, start, result] = versions.map(bytes);
        Place {
            path: path.into(),
            in_conflict: false,
            base,
            ours,
            theirs,
            start,
            result,
        }
    }

    /// What is dropped of a file with this base and these sides.
    fn lost(base: &str, ours: &str, theirs: &str, result: &str) -> Vec<(Side, Loss)> {
        let texts = [base, ours, theirs, "", result].map(Some);
        let dropped = dropped(&[place("a", texts)]);
        dropped.into_iter().map(|d| (d.side, d.loss)).collect()
    }

    fn lines(lines: &[&str]) -> Loss {
        Loss::Lines(lines.iter().map(|&line| line.to_owned()).collect())
    }

    #[test]
    fn what_both_sides_left_alone_is_missed_unless_some_place_holds_it() {
        let (base, ours, theirs) = ("a\nb\nc\n\n", "a\nours\nc\n\n", "a\ntheirs\nc\n\n");
        let of = |result: Option<&str>, more: &[Place]| {
            let versions = [Some(base), Some(ours), Some(theirs), None, result];
            let mut places = vec![Place {
                in_conflict: true,
                ..place("f", versions)
            }];
            places.extend(more.iter().cloned());
            let dropped = dropped(&places).into_iter();
            let both = dropped.filter(|dropped| dropped.side == Side::Both);
            both.map(|dropped| dropped.loss).collect::<Vec<_>>()
        };
        assert_eq!(of(Some("ours\ntheirs\n"), &[]), [lines(&["a", "c"])]);
        assert_eq!(of(None, &[]), [lines(&["a", "c"])]);
        assert_eq!(of(Some("a\nours\ntheirs\n c\n"), &[]), []);
        let moved = place("g", [None, None, None, None, Some("a\nc\n")]);
        assert_eq!(of(Some("ours\n"), &[moved]), []);
        // One side wanted it gone.
        let one = place(
            "f",
            [
                Some("a\nb\n"),
                Some("b\n"),
                Some("a\nB\n"),
                None,
                Some("B\n"),
            ],
        );
        assert!(
            dropped(&[one])
                .iter()
                .all(|dropped| dropped.side != Side::Both)
        );
    }

    #[test]
    fn a_line_is_lost_only_when_no_place_holds_it() {
        let (base, ours, theirs) = ("a\nb\n", "a\nours\nb\n", "a\ntheirs\r\nb\n");
        assert_eq!(lost(base, ours, theirs, "a\nours\n  theirs\nb\n"), []);
        let theirs_gone = [(Side::Theirs, lines(&["theirs"]))];
        assert_eq!(lost(base, ours, theirs, "a\nours \nb\n"), theirs_gone);
        let moved = [
            place(
                "a",
                [Some(base), Some(ours), Some(theirs), None, Some(ours)],
            ),
            place("new", [None, None, None, None, Some("theirs\n")]),
        ];
        assert_eq!(dropped(&moved), []);
        // What a file holds anyway is not the line that another one lost.
        let elsewhere = [
            place(
                "a",
                [Some(base), Some(ours), Some(theirs), None, Some(ours)],
            ),
            place("c", [Some("theirs\n"); 5]),
        ];
        assert_eq!(dropped(&elsewhere).len(), 1);
    }

    #[test]
    fn a_line_is_counted_as_often_as_it_was_added() {
        // A second call of the same kind is a line of its own.
        let twice = "call()\nx\ncall()\n";
        assert_eq!(
            lost("call()\nx\n", twice, "call()\ny\n", "call()\ny\nx\n"),
            [(Side::Ours, lines(&["call()"]))]
        );
        assert_eq!(
            lost("", "n\n", "n\n", ""),
            [(Side::Ours, lines(&["n"])), (Side::Theirs, lines(&["n"]))]
        );
        assert_eq!(
            lost("", "n\n", "n\n", "n\n"),
            [],
            "added by both, kept once"
        );
        // What one side added and the other removed elsewhere balances.
        assert_eq!(lost("n\n", "n\nn\n", "z\n", "n\nz\n"), []);
        let gone = [(Side::Ours, lines(&["n"]))];
        assert_eq!(lost("n\n", "n\nn\n", "z\n", "z\n"), gone);
    }

    #[test]
    fn deletions_and_whole_versions_are_lost_too() {
        let kept = place("a", [Some("a\n"), Some("b\n"), None, None, Some("b\n")]);
        assert_eq!(dropped(&[kept])[0].loss, Loss::Deletion);
        let gone = place("a", [Some("a\nb\n"), Some("a\n"), None, None, None]);
        let gone = dropped(&[gone]);
        assert_eq!((gone[0].side, &gone[0].loss), (Side::Ours, &Loss::Version));
        let binary = place("a", [None, Some("\0a"), Some("\0b"), None, Some("\0b")]);
        let binary = dropped(&[binary]);
        assert_eq!(
            (binary[0].side, &binary[0].loss),
            (Side::Ours, &Loss::Version)
        );
    }

    #[test]
    fn markers_count_beyond_what_the_text_has_itself() {
        let marks = |own: &str, result: &str| {
            let start = format!("{own}<<<<<<< 1\nx\n=======\ny\n>>>>>>> 2\n");
            let (own, start) = (Some(own), Some(start.as_str()));
            marked(&place("a", [own, own, own, start, Some(result)]))
        };
        let own = "title\n=======\n<<<<<<< here\n";
        assert!(!marks(own, own));
        assert!(marks(own, "title\n=======\n=======\n"));
        assert!(marks(own, "<<<<<<< here\r\n<<<<<<< here\r\n"));
        assert!(
            marks("", ">>>>>>> HEAD\n"),
            "not a line of the start's, and yet"
        );
        assert!(!marks("", "a ======= b\n <<<<<<< x\n"));
        // Both sides add a heading of their own.
        let both = place(
            "a",
            [
                Some(""),
                Some("h\n=======\n"),
                Some("i\n=======\n"),
                Some("======="),
                Some("h\n=======\ni\n=======\n"),
            ],
        );
        assert!(!marked(&both));
        let fresh = place("new.rst", [None, None, None, None, Some("t\n=======\n")]);
        assert!(!marked(&fresh));
    }
}
