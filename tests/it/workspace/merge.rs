//! Merges of two agents' work: the same in both orders, or a conflict that holds both texts.

use wharf::id::CommitId;
use wharf::workspace::{Conflict, Edit, Merged, Mode, Side};

use super::fixture::*;

enum Both {
    Clean(CommitId),
    Conflict(Conflict),
}

/// Merges two children of one base in both orders, which must agree.
async fn both(world: &World, base: &CommitId, left: &[Edit], right: &[Edit]) -> Both {
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
            let versions = |conflict: &Conflict, swap: bool| -> Vec<_> {
                let files = conflict
                    .files
                    .iter()
                    .filter(|file| !file.path.contains(&b'~'));
                files
                    .map(|file| match swap {
                        false => (file.path.clone(), file.ours.clone(), file.theirs.clone()),
                        true => (file.path.clone(), file.theirs.clone(), file.ours.clone()),
                    })
                    .collect()
            };
            assert_eq!(versions(&one, false), versions(&two, true));
            Both::Conflict(one)
        }
        (one, two) => panic!("the order decides: {one:?} {two:?}"),
    }
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

const TEXT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

fn text(from: &str, to: &str) -> String {
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
    let dropped = world.store.dropped(&found, &found.start).await.unwrap();
    assert_eq!(
        dropped.len(),
        1,
        "one side's file is not in the start: {dropped:?}"
    );

    let left = [put_as("l", Mode::Link, b"left")];
    let right = [put_as("l", Mode::Link, b"right")];
    let found = conflict(&world, &base, &left, &right).await;
    assert_eq!(found.files[0].path, b"l");
    assert_eq!(
        world
            .store
            .dropped(&found, &found.start)
            .await
            .unwrap()
            .len(),
        1
    );
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
    assert_eq!(
        world.store.resolved(&found, &found.start).await.unwrap(),
        ["a"]
    );

    let good = own.replace("5\n", "left\nright\n");
    let good = world.child(&found.start, &[put("a", &good)]).await;
    assert!(
        world
            .store
            .resolved(&found, &good)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(world.store.dropped(&found, &good).await.unwrap().is_empty());

    let one_sided = world.child(&found.start, &[put("a", &left)]).await;
    assert!(
        world
            .store
            .resolved(&found, &one_sided)
            .await
            .unwrap()
            .is_empty()
    );
    let dropped = world.store.dropped(&found, &one_sided).await.unwrap();
    assert_eq!(
        (dropped[0].side, &dropped[0].lines[..]),
        (Side::Theirs, &["right".to_owned()][..])
    );

    let start = world.text(&found.start, "a").await.unwrap();
    let halves: String = start
        .lines()
        .filter(|l| !l.starts_with("<<<<<<< "))
        .map(|l| format!("{l}\r\n"))
        .collect();
    let half = world.child(&found.start, &[put("a", &halves)]).await;
    assert_eq!(world.store.resolved(&found, &half).await.unwrap(), ["a"]);
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
