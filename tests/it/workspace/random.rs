//! Random trees and edits by two agents: either order gives the same tree, and no line gets lost.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use wharf::workspace::{Edit, Merged};

use super::fixture::*;

#[derive(Clone, Debug)]
enum Change {
    Line(usize, usize),
    Insert(usize, usize),
    Drop(usize, usize),
    Delete(usize),
    Add(usize),
}

const FILES: [&str; 5] = ["a", "b", "d/c", "d/e/f", "g"];
const NEW: [&str; 3] = ["n", "d/n", "h/i"];

type Tree = BTreeMap<String, Vec<String>>;

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..FILES.len(), 0..12_usize).prop_map(|(f, l)| Change::Line(f, l)),
        4 => (0..FILES.len(), 0..12_usize).prop_map(|(f, l)| Change::Insert(f, l)),
        2 => (0..FILES.len(), 0..12_usize).prop_map(|(f, l)| Change::Drop(f, l)),
        1 => (0..FILES.len()).prop_map(Change::Delete),
        1 => (0..NEW.len()).prop_map(Change::Add),
    ]
}

fn base() -> Tree {
    let lines = |file: &str| (0..12).map(|n| format!("{file} {n}")).collect();
    FILES
        .iter()
        .map(|&file| (file.to_owned(), lines(file)))
        .collect()
}

/// The tree after an agent's changes; what it writes carries its name.
fn work(agent: &str, changes: &[Change]) -> Tree {
    let mut tree = base();
    for (n, change) in changes.iter().enumerate() {
        let text = format!("{agent} {n}");
        match change {
            Change::Delete(file) => {
                tree.remove(FILES[*file]);
            }
            Change::Add(file) => {
                tree.insert(NEW[*file].to_owned(), vec![text]);
            }
            Change::Line(file, at) | Change::Insert(file, at) | Change::Drop(file, at) => {
                let Some(lines) = tree.get_mut(FILES[*file]) else {
                    continue;
                };
                let at = (*at).min(lines.len().saturating_sub(1));
                match change {
                    Change::Insert(..) => lines.insert(at, text),
                    Change::Line(..) if at < lines.len() => lines[at] = text,
                    _ if at < lines.len() => drop(lines.remove(at)),
                    _ => {}
                }
            }
        }
    }
    tree
}

fn content(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn edits(from: &Tree, to: &Tree) -> Vec<Edit> {
    let gone = from
        .keys()
        .filter(|path| !to.contains_key(*path))
        .map(|path| delete(path));
    let puts = to.iter().map(|(path, lines)| put(path, &content(lines)));
    gone.chain(puts).collect()
}

fn written(tree: &Tree, agent: &str) -> BTreeSet<String> {
    let all = tree.values().flatten();
    all.filter(|line| line.starts_with(agent))
        .cloned()
        .collect()
}

async fn check(left: Vec<Change>, right: Vec<Change>) {
    let world = World::new().await;
    let (left, right) = (work("left", &left), work("right", &right));
    let start = world
        .store
        .commit(&[], &edits(&Tree::new(), &base()), "base")
        .await
        .unwrap();
    let one = world.child(&start, &edits(&base(), &left)).await;
    let two = world.child(&start, &edits(&base(), &right)).await;
    let forth = world.store.merge(&one, &two).await.unwrap();
    let back = world.store.merge(&two, &one).await.unwrap();
    match (forth, back) {
        (Merged::Clean(forth), Merged::Clean(back)) => {
            let tree = world.store.tree(&forth).await.unwrap();
            assert_eq!(tree, world.store.tree(&back).await.unwrap());
            let all = world.all(&forth).await;
            let text = all
                .values()
                .map(|(_, content)| String::from_utf8_lossy(content));
            let lines: BTreeSet<String> = text
                .flat_map(|t| t.lines().map(str::to_owned).collect::<Vec<_>>())
                .collect();
            for line in written(&left, "left")
                .iter()
                .chain(&written(&right, "right"))
            {
                assert!(lines.contains(line), "{line} vanished");
            }
        }
        (Merged::Conflict(forth), Merged::Conflict(back)) => {
            let paths = |files: &[wharf::workspace::ConflictFile]| -> Vec<Vec<u8>> {
                files.iter().map(|file| file.path.clone()).collect()
            };
            assert_eq!(paths(&forth.files), paths(&back.files));
            assert!(!forth.files.is_empty());
        }
        (forth, back) => panic!("the order decides: {forth:?} {back:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_agents_merge_alike_in_both_orders(
        left in proptest::collection::vec(change(), 0..6),
        right in proptest::collection::vec(change(), 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(left, right));
    }
}
