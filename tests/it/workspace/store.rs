//! Commits, contents, differences and patches of the run's own store.

use bytes::Bytes;
use futures::TryStreamExt;
use wharf::id::{BlobId, CommitId};
use wharf::workspace::{DifferenceStatus, Edit, Error, Mode, Store};

use super::fixture::*;

#[tokio::test]
async fn a_commit_is_one_process_and_equal_input_is_an_equal_commit() {
    let world = World::new().await;
    let base = world.files(&[("a", "1\n"), ("b", "2\n")]).await;
    let before = world.store.processes();
    let edits = [put("a", "x\n"), delete("b"), put("d/e/f", "3\n")];
    let one = world.child(&base, &edits).await;
    assert_eq!(world.store.processes() - before, 1);
    assert_eq!(world.child(&base, &edits).await, one);
    let paths: Vec<Vec<u8>> = world.all(&one).await.into_keys().collect();
    assert_eq!(paths, [&b"a"[..], b"d/e/f"]);
    let empty = world.child(&base, &[]).await;
    assert_ne!(empty, base);
    assert_eq!(
        world.store.tree(&empty).await.unwrap(),
        world.store.tree(&base).await.unwrap()
    );
}

#[tokio::test]
async fn files_become_folders_and_back_and_names_are_bytes() {
    let world = World::new().await;
    let base = world.files(&[("x", "file\n"), ("y/z", "folder\n")]).await;
    let mut edits = vec![
        put("x/inner", "1\n"),
        delete("x"),
        delete("y/z"),
        put("y", "2\n"),
    ];
    for name in NAMES {
        edits.push(Edit::Put {
            path: name.to_vec(),
            mode: Mode::Link,
            content: Bytes::from_static(b"../../etc/passwd"),
        });
    }
    let one = world.child(&base, &edits).await;
    let all = world.all(&one).await;
    assert_eq!(&all[&b"x/inner"[..]].1[..], b"1\n");
    assert_eq!(&all[&b"y"[..]].1[..], b"2\n");
    for name in NAMES {
        assert_eq!(all[*name].0, Mode::Link);
    }
    let differences = world.store.differences(&base, &one).await.unwrap();
    assert_eq!(differences.len(), 4 + NAMES.len());
}

#[tokio::test]
async fn paths_that_mean_more_than_a_file_are_refused() {
    let world = World::new().await;
    let base = world.files(&[("a", "1\n")]).await;
    for path in [
        ".git/config",
        "d/.GIT/x",
        ".git ",
        "git~1",
        "../x",
        "/etc/x",
        "a//b",
        "",
        ".g\u{200c}it/x",
    ] {
        let edits = [put("fine", "1"), put(path, "x")];
        let error = world
            .store
            .commit(std::slice::from_ref(&base), &edits, "m")
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{path:?} {error}");
    }
}

#[tokio::test]
async fn contents_stream_in_order_and_a_missing_one_is_an_error() {
    let world = World::new().await;
    let names: Vec<String> = (0..700).map(|n| format!("f{n:03}")).collect();
    let mut edits: Vec<Edit> = names
        .iter()
        .map(|name| put(name, &format!("{name}\n")))
        .collect();
    edits.push(put("f000", ""));
    edits.push(put("f001", &"big ".repeat(100_000)));
    let commit = world.store.commit(&[], &edits, "m").await.unwrap();
    let files = world.store.files(&commit).await.unwrap();
    let blobs: Vec<BlobId> = files.iter().map(|file| file.blob.clone()).collect();
    let before = world.store.processes();
    let chunks: Vec<Bytes> = world.store.read(blobs).try_collect().await.unwrap();
    assert_eq!(world.store.processes() - before, 1);
    let all = chunks.concat();
    assert_eq!(
        all.len() as u64,
        files.iter().map(|file| file.size).sum::<u64>()
    );
    assert!(all.starts_with(b"big big") && all.ends_with(b"f699\n"));
    assert!(chunks.iter().all(|chunk| chunk.len() <= 64 * 1024));

    let missing = BlobId::new("0123456789012345678901234567890123456789");
    let answer: Result<Vec<Bytes>, _> = world.store.read(vec![missing]).try_collect().await;
    assert_eq!(answer.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn differences_say_what_and_how_much() {
    let world = World::new().await;
    let base = world
        .files(&[("edit", "1\n2\n"), ("mode", "x\n"), ("gone", "g\n")])
        .await;
    let edits = [
        put("edit", "1\n3\n4\n"),
        put_as("mode", Mode::Executable, b"x\n"),
        delete("gone"),
        put_as("bin", Mode::File, b"\0\x01"),
    ];
    let one = world.child(&base, &edits).await;
    let differences = world.store.differences(&base, &one).await.unwrap();
    let told: Vec<_> = differences
        .iter()
        .map(|d| (&d.path[..], d.status, d.added_lines, d.removed_lines))
        .collect();
    assert_eq!(
        told,
        [
            (&b"bin"[..], DifferenceStatus::Added, None, None),
            (b"edit", DifferenceStatus::Changed, Some(2), Some(1)),
            (b"gone", DifferenceStatus::Deleted, Some(0), Some(1)),
            (b"mode", DifferenceStatus::ModeChanged, Some(0), Some(0)),
        ]
    );
    assert!(
        world
            .store
            .differences(&base, &base)
            .await
            .unwrap()
            .is_empty()
    );
    let nothing = CommitId::new("0123456789012345678901234567890123456789");
    assert!(world.store.differences(&base, &nothing).await.is_err());
}

#[tokio::test]
async fn protected_paths_are_existing_ones_less_what_is_taken_out() {
    let world = World::new().await;
    let base = world
        .files(&[
            ("tests/a", "1\n"),
            ("tests/b", "1\n"),
            ("tests/gen/c", "1\n"),
            ("src/x", "1\n"),
        ])
        .await;
    let edits = [
        put("tests/a", "2\n"),
        delete("tests/b"),
        put("tests/gen/c", "2\n"),
        put("tests/new", "1\n"),
        put("src/x", "2\n"),
    ];
    let one = world.child(&base, &edits).await;
    let globs = ["tests/**".to_owned(), "!tests/gen/**".to_owned()];
    let changed = world.store.protected(&base, &one, &globs).await.unwrap();
    assert_eq!(changed, ["tests/a", "tests/b"]);
}

#[tokio::test]
async fn a_patch_applies_and_a_cut_one_says_so() {
    let world = World::new().await;
    let dir = world.repository("repo", &[("p/a", "1\n"), ("p/b", "2\n")]);
    let base = world.base(&dir.join("p")).await;
    let edits = [
        put("a", "one\n"),
        delete("b"),
        put_as("bin", Mode::File, b"\0\xff\x01"),
        put_as("run", Mode::Executable, b"#!/bin/sh\n"),
        put_as("l", Mode::Link, b"a"),
    ];
    let one = world.child(&base.commit, &edits).await;
    let out = world.path("result.patch");
    world
        .store
        .deliver_patch(&base.commit, &one, &base.prefix, &out)
        .await
        .unwrap();
    git(&dir, &["apply", out.to_str().unwrap()]);
    assert_eq!(
        world.base(&dir.join("p")).await.tree,
        world.store.tree(&one).await.unwrap()
    );

    let patch = |limit| world.store.patch(&base.commit, &one, &base.prefix, limit);
    let cut = patch(20).await.unwrap();
    assert!(cut.cut && cut.content.len() == 20);
    let whole = patch(1 << 20).await.unwrap();
    assert!(!whole.cut && whole.content.starts_with(b"diff --git a/p/a b/p/a"));
    assert_eq!(whole.content, std::fs::read(&out).unwrap());
    let nothing = CommitId::new("0123456789012345678901234567890123456789");
    assert!(
        world
            .store
            .patch(&base.commit, &nothing, "", 9)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_store_opens_again_and_what_is_none_does_not() {
    let world = World::new().await;
    let base = world.files(&[("a", "1\n")]).await;
    let again = Store::open(operators_git(), world.store.dir()).unwrap();
    assert_eq!(again.files(&base).await.unwrap().len(), 1);
    assert_eq!(again.blob(&base, b"none").await.unwrap(), None);
    assert!(Store::open(operators_git(), world.path("nothing")).is_err());
    std::fs::remove_dir_all(world.store.dir().join("objects")).unwrap();
    assert!(again.files(&base).await.is_err());
}
