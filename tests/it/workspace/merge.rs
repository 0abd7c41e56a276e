//! Merges of two agents' work: the same in both orders, or a conflict that holds both texts.

use bytes::Bytes;
use wharf::id::CommitId;
use wharf::workspace::{Conflict, Edit, Git, Loss, Merged, Mode, Resolution, Side, Store};

use super::fixture::*;

pub enum Both {
    Clean(CommitId),
    Conflict(Conflict),
}

/// Merges two children of one base in both orders, which must agree.
pub async fn both(world: &World, base: &CommitId, left: &[Edit], right: &[Edit]) -> Both {
    let left = world.child(base, left).await;
    let right = world.child(base, right).await;
    let one = world.store.merge(&left, &right).await.unwrap();
    let two = world.store.merge(&right, &left).await.unwrap();
    match (one, two) {
        (Merged::Clean(one), Merged::Clean(two)) => {
            let tree = world.store.tree(&one).await.unwrap();
            assert_eq!(tree, world.store.tree(&two).await.unwrap());
            Both::Clean(one)
        }
        (Merged::Conflict(one), Merged::Conflict(two)) => {
            assert_eq!(versions(&one, Turn::No), versions(&two, Turn::Yes));
            // A merger works on top of it.
            let sides = [one.ours.clone(), one.theirs.clone()];
            let flushed = world.store.flush(std::slice::from_ref(&one.start), &sides);
            flushed.await.unwrap();
            Both::Conflict(one)
        }
        (one, two) => panic!("the order decides: {one:?} {two:?}"),
    }
}

enum Turn {
    No,
    Yes,
}

/// Every version of every path in conflict, as if one order had been taken. Of two things that want
/// one name, the order decides which is set aside.
fn versions(conflict: &Conflict, turn: Turn) -> Vec<(Vec<u8>, Option<Bytes>, Option<Bytes>)> {
    let mut all = Vec::new();
    for file in &conflict.files {
        let path =
            [&conflict.ours, &conflict.theirs]
                .iter()
                .fold(file.path.clone(), |path, side| {
                    let aside = format!("~{side}");
                    path.strip_suffix(aside.as_bytes())
                        .map_or(path.clone(), <[u8]>::to_vec)
                });
        let (ours, theirs) = (file.ours.clone(), file.theirs.clone());
        match turn {
            Turn::No => all.push((path, ours, theirs)),
            Turn::Yes => all.push((path, theirs, ours)),
        }
    }
    all.sort();
    all
}

async fn clean(world: &World, base: &CommitId, left: &[Edit], right: &[Edit]) -> CommitId {
    match both(world, base, left, right).await {
        Both::Clean(commit) => commit,
        Both::Conflict(conflict) => panic!("{conflict:?}"),
    }
}

async fn conflict(world: &World, base: &CommitId, left: &[Edit], right: &[Edit]) -> Conflict {
    match both(world, base, left, right).await {
        Both::Conflict(conflict) => conflict,
        Both::Clean(commit) => panic!("merged to {commit}"),
    }
}

pub const TEXT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

pub fn text(from: &str, to: &str) -> String {
    TEXT.replace(&format!("{from}\n"), &format!("{to}\n"))
}

#[tokio::test]
async fn edits_apart_merge_and_identical_edits_are_one() {
    let world = World::new().await;
    let base = world.files(&[("a", TEXT), ("b", "b\n")]).await;
    let far = clean(
        &world,
        &base,
        &[put("a", &text("1", "one"))],
        &[put("a", &text("9", "nine"))],
    )
    .await;
    let merged = world.text(&far, "a").await.unwrap();
    assert!(merged.starts_with("one\n") && merged.ends_with("nine\n"));
    let same = [put("a", &text("5", "five")), put("new", "n\n")];
    let same = clean(&world, &base, &same, &same).await;
    assert_eq!(world.text(&same, "a").await.unwrap(), text("5", "five"));
    let mode = [put_as("a", Mode::Executable, TEXT.as_bytes())];
    let both = clean(&world, &base, &mode, &[put("a", &text("5", "five"))]).await;
    assert_eq!(world.all(&both).await[&b"a"[..]].0, Mode::Executable);
    assert_eq!(world.text(&both, "a").await.unwrap(), text("5", "five"));
}

#[tokio::test]
async fn edits_near_each_other_conflict_with_both_texts() {
    let world = World::new().await;
    let base = world.files(&[("a", TEXT)]).await;
    for (left, right) in [
        (text("5", "left"), text("5", "right")),
        (text("5", "left"), text("6", "right")),
        (format!("{TEXT}left\n"), format!("{TEXT}right\n")),
        (format!("left\n{TEXT}"), format!("right\n{TEXT}")),
        (text("5", "left"), TEXT.replace('\n', " right\n")),
    ] {
        let found = conflict(&world, &base, &[put("a", &left)], &[put("a", &right)]).await;
        let file = &found.files[0];
        assert_eq!((&file.path[..], file.kind.as_str()), (&b"a"[..], "content"));
        assert_eq!(file.base.as_deref(), Some(TEXT.as_bytes()));
        assert_eq!(file.ours.as_deref(), Some(left.as_bytes()));
        assert_eq!(file.theirs.as_deref(), Some(right.as_bytes()));
        let start = world.text(&found.start, "a").await.unwrap();
        assert!(start.contains("left") && start.contains("right") && start.contains("<<<<<<< "));
    }
}

#[tokio::test]
async fn deletions_renames_and_additions_against_edits() {
    let world = World::new().await;
    let base = world.files(&[("a", TEXT), ("keep", "k\n")]).await;
    let edit = [put("a", &text("5", "five"))];

    let found = conflict(&world, &base, &edit, &[delete("a")]).await;
    assert_eq!(found.files[0].kind, "modify/delete");
    assert!(found.files[0].ours.is_some() && found.files[0].theirs.is_none());

    let rename = [delete("a"), put("renamed", TEXT)];
    let followed = clean(&world, &base, &edit, &rename).await;
    assert_eq!(
        world.text(&followed, "renamed").await.unwrap(),
        text("5", "five")
    );
    assert_eq!(world.text(&followed, "a").await, None);

    let other = [delete("a"), put("elsewhere", TEXT)];
    let found = conflict(&world, &base, &rename, &other).await;
    assert!(
        found
            .files
            .iter()
            .any(|file| file.kind.starts_with("rename/rename")),
        "{found:?}"
    );

    let found = conflict(&world, &base, &[put("n", "left\n")], &[put("n", "right\n")]).await;
    assert_eq!(found.files[0].kind, "add/add");
    assert_eq!(found.files[0].base, None);

    let swap = [delete("a"), put("a/inner", "i\n")];
    let found = conflict(&world, &base, &swap, &edit).await;
    assert!(
        found
            .files
            .iter()
            .any(|file| file.theirs.as_deref() == Some(text("5", "five").as_bytes()))
    );
    let inner = world.text(&found.start, "a/inner").await;
    assert_eq!(inner.as_deref(), Some("i\n"));
}

#[tokio::test]
async fn binaries_and_links_never_pick_a_side_silently() {
    let world = World::new().await;
    let base = world
        .store
        .commit(
            &[],
            &[
                put_as("bin", Mode::File, b"\0base"),
                put_as("l", Mode::Link, b"x"),
            ],
            "b",
        )
        .await
        .unwrap();
    let left = [put_as("bin", Mode::File, b"\0left")];
    let right = [put_as("bin", Mode::File, b"\0right")];
    let found = conflict(&world, &base, &left, &right).await;
    assert_eq!(found.files[0].kind, "binary");
    assert_eq!(found.files[0].theirs.as_deref(), Some(&b"\0right"[..]));
    let dropped = judged(&world, &found, &found.start).await.dropped;
    assert_eq!(
        dropped.len(),
        1,
        "one side's file is not in the start: {dropped:?}"
    );

    let left = [put_as("l", Mode::Link, b"left")];
    let right = [put_as("l", Mode::Link, b"right")];
    let found = conflict(&world, &base, &left, &right).await;
    assert_eq!(found.files[0].path, b"l");
    let dropped = judged(&world, &found, &found.start).await.dropped;
    assert_eq!(dropped.len(), 1);
}

#[tokio::test]
async fn a_resolution_is_judged_by_markers_and_by_what_it_lost() {
    let world = World::new().await;
    // The word of a marker in the file's own text is no marker of the conflict.
    let own = format!("{TEXT}=======\n<<<<<<< not ours\n");
    let base = world.files(&[("a", &own)]).await;
    let left = own.replace("5\n", "left\n");
    let right = own.replace("5\n", "right\n");
    let found = conflict(&world, &base, &[put("a", &left)], &[put("a", &right)]).await;
    let start = judged(&world, &found, &found.start).await;
    assert_eq!(start.markers, ["a"]);

    let good = own.replace("5\n", "left\nright\n");
    let good = world.child(&found.start, &[put("a", &good)]).await;
    assert_eq!(judged(&world, &found, &good).await, Resolution::default());

    let one_sided = world.child(&found.start, &[put("a", &left)]).await;
    let one_sided = judged(&world, &found, &one_sided).await;
    assert_eq!(one_sided.markers, Vec::<String>::new());
    let dropped = &one_sided.dropped[0];
    assert_eq!(dropped.side, Side::Theirs);
    assert_eq!(dropped.loss, Loss::Lines(vec!["right".to_owned()]));

    let start = world.text(&found.start, "a").await.unwrap();
    let halves: String = start
        .lines()
        .filter(|l| !l.starts_with("<<<<<<< "))
        .map(|l| format!("{l}\r\n"))
        .collect();
    let half = world.child(&found.start, &[put("a", &halves)]).await;
    assert_eq!(judged(&world, &found, &half).await.markers, ["a"]);
}

async fn judged(world: &World, conflict: &Conflict, snapshot: &CommitId) -> Resolution {
    let resolution = world.store.resolution(conflict, snapshot).await;
    resolution.unwrap()
}

#[tokio::test]
async fn a_resolution_that_does_nothing_is_seen_for_what_it_drops() {
    let world = World::new().await;
    let base = world
        .files(&[("a", TEXT), ("b", "b\n"), ("d/x", "x\n")])
        .await;

    // The edited file stands at the start: leaving it there drops the removal.
    let edit = [put("a", &text("5", "five"))];
    let found = conflict(&world, &base, &edit, &[delete("a")]).await;
    let idle = judged(&world, &found, &found.start).await;
    assert_eq!(idle.markers, Vec::<String>::new());
    assert_eq!(
        (idle.dropped[0].side, &idle.dropped[0].loss),
        (Side::Theirs, &Loss::Deletion)
    );
    let gone = world.child(&found.start, &[delete("a")]).await;
    let gone = judged(&world, &found, &gone).await;
    assert_eq!(gone.dropped[0].loss, Loss::Lines(vec!["five".to_owned()]));
    let moved = [delete("a"), put("new", &text("5", "five"))];
    let moved = world.child(&found.start, &moved).await;
    let moved = judged(&world, &found, &moved).await;
    assert_eq!(
        (moved.dropped, moved.beyond),
        (vec![], vec!["new".to_owned()])
    );

    // What was set aside must not stay under the name that the merge invented.
    let swap = [delete("d/x"), put("d", "flat\n")];
    let found = conflict(&world, &base, &swap, &[put("d/x", "edited\n")]).await;
    let idle = judged(&world, &found, &found.start).await;
    assert_eq!(idle.aside.len(), 1, "{idle:?}");
    assert!(idle.aside[0].starts_with("d~"));
    // To take away what the merge itself had set aside is no removal.
    let cleared = world.child(&found.start, &[delete(&idle.aside[0])]).await;
    assert_eq!(judged(&world, &found, &cleared).await.removed, [""; 0]);
}

#[tokio::test]
async fn a_merger_that_touches_more_is_seen_and_what_it_removes_there_counts() {
    let world = World::new().await;
    let base = world.files(&[("a", TEXT), ("b", TEXT), ("c", "c\n")]).await;
    let left = [put("a", &text("5", "left")), put("b", &text("1", "one"))];
    let right = [put("a", &text("5", "right")), put("b", &text("9", "nine"))];
    let found = conflict(&world, &base, &left, &right).await;
    let resolved = put("a", &text("5", "left\nright"));
    let wild = [resolved.clone(), put("b", &text("9", "nine")), delete("c")];
    let wild = world.child(&found.start, &wild).await;
    let wild = judged(&world, &found, &wild).await;
    assert_eq!(wild.beyond, ["b", "c"]);
    assert_eq!(wild.removed, ["c"]);
    assert_eq!(wild.dropped.len(), 1, "{wild:?}");
    assert_eq!(
        (wild.dropped[0].path.as_str(), wild.dropped[0].side),
        ("b", Side::Ours)
    );
    assert_eq!(wild.dropped[0].loss, Loss::Lines(vec!["one".to_owned()]));
}

#[tokio::test]
async fn a_list_folds_from_the_left_and_stops_at_a_conflict() {
    let world = World::new().await;
    let base = world.files(&[("a", TEXT)]).await;
    let one = world.child(&base, &[put("a", &text("1", "one"))]).await;
    let two = world.child(&base, &[put("a", &text("5", "five"))]).await;
    let three = world.child(&base, &[put("a", &text("1", "uno"))]).await;
    let four = world.child(&base, &[put("d", "d\n")]).await;
    let folded = world
        .store
        .merge_all(&[one.clone(), two.clone(), four.clone()])
        .await
        .unwrap();
    let Merged::Clean(all) = folded.merged else {
        panic!("{folded:?}")
    };
    assert_eq!(folded.inputs, 3);
    assert!(world.text(&all, "d").await.is_some());

    let folded = world
        .store
        .merge_all(&[one.clone(), two.clone(), three.clone(), four])
        .await
        .unwrap();
    let Merged::Conflict(found) = folded.merged else {
        panic!("{folded:?}")
    };
    assert_eq!(folded.inputs, 3);
    // Resolved once, its commit merges with either input again without a conflict.
    let resolved = world
        .child(&found.start, &[put("a", &text("1", "one uno"))])
        .await;
    for input in [&one, &two, &three] {
        let again = world.store.merge(&resolved, input).await.unwrap();
        assert!(matches!(again, Merged::Clean(_)), "{again:?}");
    }
    let inputs = [
        one.clone(),
        resolved.clone(),
        base.clone(),
        resolved.clone(),
        two,
    ];
    assert_eq!(world.store.independent(&inputs).await.unwrap(), [resolved]);
    assert!(world.store.merge_all(&[]).await.is_err());
    let nothing = CommitId::new("0123456789012345678901234567890123456789");
    assert!(world.store.merge(&one, &nothing).await.is_err());
    assert!(world.store.independent(&[one, nothing]).await.is_err());
}

#[tokio::test]
async fn attributes_of_an_agent_decide_nothing() {
    let world = World::new().await;
    let base = world
        .files(&[
            ("a", TEXT),
            (
                ".gitattributes",
                "* merge=ours\n* conflict-marker-size=20 text eol=crlf\n",
            ),
        ])
        .await;
    let found = conflict(
        &world,
        &base,
        &[put("a", &text("5", "l"))],
        &[put("a", &text("5", "r"))],
    )
    .await;
    assert!(
        world
            .text(&found.start, "a")
            .await
            .unwrap()
            .contains("\n=======\n")
    );
    let union = world
        .files(&[("a", TEXT), (".gitattributes", "* merge=union\n")])
        .await;
    conflict(
        &world,
        &union,
        &[put("a", &text("5", "l"))],
        &[put("a", &text("5", "r"))],
    )
    .await;
}

#[tokio::test]
async fn a_merge_is_one_git_process_and_a_conflict_two() {
    let world = World::new().await;
    let base = world.files(&[("a", TEXT), ("b", TEXT)]).await;
    let before = world.store.processes();
    let one = world.child(&base, &[put("a", &text("5", "one"))]).await;
    let two = world.child(&base, &[put("b", &text("5", "two"))]).await;
    let three = world.child(&base, &[put("a", &text("5", "three"))]).await;
    assert_eq!(world.store.processes() - before, 3, "a snapshot is one");
    let before = world.store.processes();
    let merged = world.store.merge(&one, &two).await.unwrap();
    assert!(matches!(merged, Merged::Clean(_)));
    assert_eq!(world.store.processes() - before, 1);
    let before = world.store.processes();
    let merged = world.store.merge(&one, &three).await.unwrap();
    assert!(matches!(merged, Merged::Conflict(_)));
    assert_eq!(
        world.store.processes() - before,
        2,
        "its versions are read by one more"
    );
}

/// The files of objects that stand alone.
fn loose(world: &World) -> std::collections::BTreeSet<std::path::PathBuf> {
    let objects = world.store.dir().join("objects");
    let folders = std::fs::read_dir(objects)
        .unwrap()
        .map(|e| e.unwrap().path());
    let folders = folders.filter(|at| at.file_name().is_some_and(|name| name.len() == 2));
    let files = folders.flat_map(|at| std::fs::read_dir(at).unwrap());
    files.map(|e| e.unwrap().path()).collect()
}

/// What is flushed stands in a pack, whole; what is not is gone with the process that merged, and nothing
/// of it stands where a later one would take it for written.
#[tokio::test]
async fn flushed_merges_need_nothing_that_a_crash_could_cut() {
    let world = World::new().await;
    let base = world.files(&[("a", TEXT), ("d/b", TEXT)]).await;
    let edits = [
        put("a", &text("1", "one")),
        put("d/b", &text("5", "five")),
        put("a", &text("9", "nine")),
        put("n/c", "c\n"),
    ];
    let mut work = Vec::new();
    for edit in edits {
        work.push(world.child(&base, &[edit]).await);
    }
    let (before, snapshots) = (world.store.processes(), loose(&world));
    let folded = world.store.merge_all(&work).await.unwrap();
    assert_eq!(
        world.store.processes() - before,
        4,
        "three merges, one flush"
    );
    let Merged::Clean(merged) = folded.merged else {
        panic!("{folded:?}")
    };
    assert_eq!(loose(&world), snapshots);
    let expected = world.store.files(&merged).await.unwrap();
    let later = Store::open(Git::at(env!("PATH")), world.store.dir()).unwrap();
    let found = later.files(&merged).await.unwrap();
    let told = |files: &[wharf::workspace::File]| format!("{files:?}");
    assert_eq!(told(&found), told(&expected));
    for input in &work {
        let again = later.merge(&merged, input).await.unwrap();
        assert!(matches!(again, Merged::Clean(_)), "{again:?}");
    }
}
