//! Random trees and edits by two agents: either order gives the same tree, and no line gets lost.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use wharf::id::CommitId;
use wharf::workspace::{Conflict, Edit, Merged, Mode};

use super::fixture::*;

#[derive(Clone, Debug)]
enum Change {
    Line(usize, usize),
    Insert(usize, usize),
    Drop(usize, usize),
    Delete(usize),
    Add(usize),
    Rename(usize, usize),
    Executable(usize),
    /// The file becomes a link, a folder with a file, binary.
    Link(usize),
    Folder(usize),
    Binary(usize),
}

const FILES: [&str; 6] = ["a", "b", "d/c", "d/e/f", "g", "odd\n\u{e9} name"];
const NEW: [&str; 4] = ["n", "d/n", "h/i", "g.d/x"];

#[derive(Clone, Debug, PartialEq)]
struct Node {
    mode: Mode,
    lines: Vec<String>,
}

type Tree = BTreeMap<String, Node>;

fn change() -> impl Strategy<Value = Change> {
    let file = || 0..FILES.len();
    prop_oneof![
        6 => (file(), 0..12_usize).prop_map(|(f, l)| Change::Line(f, l)),
        6 => (file(), 0..12_usize).prop_map(|(f, l)| Change::Insert(f, l)),
        3 => (file(), 0..12_usize).prop_map(|(f, l)| Change::Drop(f, l)),
        1 => file().prop_map(Change::Delete),
        2 => (0..NEW.len()).prop_map(Change::Add),
        2 => (file(), 0..NEW.len()).prop_map(|(f, n)| Change::Rename(f, n)),
        1 => file().prop_map(Change::Executable),
        1 => file().prop_map(Change::Link),
        1 => file().prop_map(Change::Folder),
        1 => file().prop_map(Change::Binary),
    ]
}

fn plain(lines: Vec<String>) -> Node {
    Node {
        mode: Mode::File,
        lines,
    }
}

fn base() -> Tree {
    let lines = |file: &str| {
        (0..12)
            .map(|n| format!("{} {n}", file.escape_debug()))
            .collect()
    };
    FILES
        .iter()
        .map(|&file| (file.to_owned(), plain(lines(file))))
        .collect()
}

/// The tree after an agent's changes; what it writes carries its name.
fn work(agent: &str, changes: &[Change]) -> Tree {
    let mut tree = base();
    for (n, change) in changes.iter().enumerate() {
        apply(&mut tree, change, format!("{agent} {n}"));
    }
    tree
}

fn apply(tree: &mut Tree, change: &Change, text: String) {
    match *change {
        Change::Add(file) => {
            tree.insert(NEW[file].to_owned(), plain(vec![text]));
        }
        Change::Line(file, at) => edit(tree, file, |lines| {
            if let Some(line) = lines.get_mut(at) {
                *line = text;
            }
        }),
        Change::Insert(file, at) => {
            edit(tree, file, |lines| lines.insert(at.min(lines.len()), text));
        }
        Change::Drop(file, at) => edit(tree, file, |lines| {
            if at < lines.len() {
                lines.remove(at);
            }
        }),
        Change::Executable(file) => {
            if let Some(node) = tree.get_mut(FILES[file]).filter(|n| n.mode == Mode::File) {
                node.mode = Mode::Executable;
            }
        }
        Change::Delete(file)
        | Change::Rename(file, _)
        | Change::Link(file)
        | Change::Folder(file)
        | Change::Binary(file) => replace(tree, change, FILES[file], text),
    }
}

fn edit(tree: &mut Tree, file: usize, with: impl FnOnce(&mut Vec<String>)) {
    if let Some(node) = tree.get_mut(FILES[file]).filter(|n| n.mode != Mode::Link) {
        with(&mut node.lines);
    }
}

/// Takes a file away and puts something else in its stead.
fn replace(tree: &mut Tree, change: &Change, file: &str, text: String) {
    let Some(old) = tree.remove(file) else { return };
    match change {
        Change::Rename(_, to) => tree.insert(NEW[*to].to_owned(), old),
        Change::Link(_) => tree.insert(
            file.to_owned(),
            Node {
                mode: Mode::Link,
                lines: vec![text],
            },
        ),
        Change::Folder(_) => tree.insert(format!("{file}/in"), plain(vec![text])),
        Change::Binary(_) => tree.insert(file.to_owned(), plain(vec![format!("{text}\0")])),
        _ => None,
    };
}

fn content(node: &Node) -> Vec<u8> {
    match node.mode {
        Mode::Link => node.lines.concat().into_bytes(),
        _ => node
            .lines
            .iter()
            .flat_map(|line| format!("{line}\n").into_bytes())
            .collect(),
    }
}

fn edits(from: &Tree, to: &Tree) -> Vec<Edit> {
    let gone = from
        .keys()
        .filter(|path| !to.contains_key(*path))
        .map(|path| delete(path));
    let puts = to
        .iter()
        .filter(|(path, node)| from.get(*path) != Some(node));
    let puts = puts.map(|(path, node)| put_as(path, node.mode, &content(node)));
    gone.chain(puts).collect()
}

fn lines<'a>(contents: impl Iterator<Item = &'a [u8]>) -> BTreeSet<Vec<u8>> {
    contents
        .flat_map(|content| content.split(|&byte| byte == b'\n').map(<[u8]>::to_vec))
        .filter(|line| !line.is_empty())
        .collect()
}

fn of(tree: &Tree) -> BTreeSet<Vec<u8>> {
    let contents: Vec<Vec<u8>> = tree.values().map(content).collect();
    lines(contents.iter().map(Vec::as_slice))
}

async fn check(left: Vec<Change>, right: Vec<Change>) {
    let world = World::new().await;
    let (left, right) = (work("left", &left), work("right", &right));
    let start = edits(&Tree::new(), &base());
    let start = world.store.commit(&[], &start, "base").await.unwrap();
    let one = world.child(&start, &edits(&base(), &left)).await;
    let two = world.child(&start, &edits(&base(), &right)).await;
    let forth = world.store.merge(&one, &two).await.unwrap();
    let back = world.store.merge(&two, &one).await.unwrap();
    match (forth, back) {
        (Merged::Clean(forth), Merged::Clean(back)) => {
            let tree = world.store.tree(&forth).await.unwrap();
            assert_eq!(tree, world.store.tree(&back).await.unwrap());
            let all = world.all(&forth).await;
            let merged = lines(all.values().map(|(_, content)| &content[..]));
            let (left, right, base) = (of(&left), of(&right), of(&base()));
            for line in left.union(&right) {
                let kept = left.contains(line) && right.contains(line);
                let shown = String::from_utf8_lossy(line);
                // Nobody removed it, or somebody wrote it; what somebody removed stays away.
                assert_eq!(
                    merged.contains(line),
                    kept || !base.contains(line),
                    "{shown}"
                );
            }
        }
        (Merged::Conflict(forth), Merged::Conflict(back)) => {
            assert!(!forth.files.is_empty());
            assert_eq!(places(&forth), places(&back));
            for conflict in [&forth, &back] {
                nothing_is_lost(&world, conflict, &[&left, &right]).await;
                idle_is_no_resolution(&world, conflict).await;
            }
        }
        (forth, back) => panic!("the order decides: {forth:?} {back:?}"),
    }
}

/// The paths in conflict, those set aside by the name that they want.
fn places(conflict: &Conflict) -> BTreeSet<Vec<u8>> {
    let wanted = |path: &[u8]| {
        let end = path.iter().rposition(|&byte| byte == b'~');
        path[..end.unwrap_or(path.len())].to_vec()
    };
    conflict
        .files
        .iter()
        .map(|file| wanted(&file.path))
        .collect()
}

/// Whatever either side wrote stands in the start or in a version that the merger is shown.
async fn nothing_is_lost(world: &World, conflict: &Conflict, sides: &[&Tree; 2]) {
    let all = world.all(&conflict.start).await;
    let shown = conflict
        .files
        .iter()
        .flat_map(|file| [&file.ours, &file.theirs]);
    let shown = shown.flatten().map(|content| &content[..]);
    let held = lines(all.values().map(|(_, content)| &content[..]).chain(shown));
    let base = of(&base());
    for line in sides.iter().flat_map(|side| of(side)) {
        let shown = String::from_utf8_lossy(&line);
        assert!(
            base.contains(&line) || held.contains(&line),
            "{shown} vanished"
        );
    }
}

/// Left as it is, a conflict is unresolved, or what it drops is named, or it drops nothing.
async fn idle_is_no_resolution(world: &World, conflict: &Conflict) {
    let idle = resolution(world, conflict, &conflict.start).await;
    let unresolved = !(idle.markers.is_empty() && idle.aside.is_empty());
    if unresolved || !idle.dropped.is_empty() {
        return;
    }
    let all = world.all(&conflict.start).await;
    let held = lines(all.values().map(|(_, content)| &content[..]));
    let sides = conflict
        .files
        .iter()
        .flat_map(|f| [&f.ours, &f.theirs].map(|side| (f.base.clone(), side.clone())));
    for (base, side) in sides {
        let base = lines(base.iter().map(|content| &content[..]));
        let side = lines(side.iter().map(|content| &content[..]));
        let lost: Vec<_> = side
            .difference(&base)
            .filter(|line| !held.contains(*line))
            .collect();
        assert_eq!(lost, Vec::<&Vec<u8>>::new());
    }
}

async fn resolution(
    world: &World,
    conflict: &Conflict,
    at: &CommitId,
) -> wharf::workspace::Resolution {
    world.store.resolution(conflict, at).await.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_agents_merge_alike_in_both_orders(
        left in proptest::collection::vec(change(), 0..6),
        right in proptest::collection::vec(change(), 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(left, right));
    }
}
