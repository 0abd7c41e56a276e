//! Apply: three-way against what the operator did meanwhile, all or nothing, through no link.

use std::os::unix::fs::symlink;
use std::path::Path;

use wharf::id::CommitId;
use wharf::workspace::{Applied, Base, Force, Mode};

use super::fixture::*;

const TEXT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

async fn start(world: &World) -> (std::path::PathBuf, Base) {
    let dir = world.repository(
        "repo",
        &[("a", TEXT), ("b", "b\n"), ("d/x", "x\n"), ("d/y", "y\n")],
    );
    let base = world.base(&dir).await;
    (dir, base)
}

async fn apply(world: &World, dir: &Path, base: &Base, result: &CommitId) -> Applied {
    world
        .store
        .apply(dir, &base.commit, result, Force::No)
        .await
        .unwrap()
}

fn refused(applied: &Applied) -> Vec<&str> {
    match applied {
        Applied::Refused { paths } => paths.iter().map(|(path, _)| path.as_str()).collect(),
        Applied::Done { paths } => panic!("done: {paths:?}"),
    }
}

#[tokio::test]
async fn the_result_lands_and_the_index_stays() {
    let world = World::new().await;
    let (dir, base) = start(&world).await;
    chmod(&dir, "b", 0o600);
    let index = std::fs::read(dir.join(".git/index")).unwrap();
    let result = world
        .child(
            &base.commit,
            &[
                put("a", &TEXT.replace('5', "five")),
                put("b", "bb\n"),
                delete("d/x"),
                delete("d/y"),
                put_as("run", Mode::Executable, b"#!/bin/sh\n"),
                put_as("n/m/l", Mode::Link, b"/etc/passwd"),
                put("bad\nname", "x\n"),
            ],
        )
        .await;
    let applied = apply(&world, &dir, &base, &result).await;
    assert!(
        matches!(&applied, Applied::Done { paths } if paths.len() == 7),
        "{applied:?}"
    );
    assert_eq!(std::fs::read(dir.join(".git/index")).unwrap(), index);
    assert_eq!(permissions(&dir, "b"), 0o600);
    assert_eq!(permissions(&dir, "run") & 0o100, 0o100);
    assert!(!dir.join("d").exists());
    assert_eq!(
        std::fs::read_link(dir.join("n/m/l")).unwrap(),
        Path::new("/etc/passwd")
    );
    assert_eq!(
        world.base(&dir).await.tree,
        world.store.tree(&result).await.unwrap()
    );
    // A second time there is nothing left to do.
    assert_eq!(
        apply(&world, &dir, &base, &result).await,
        Applied::Done { paths: vec![] }
    );
}

#[tokio::test]
async fn the_operators_own_edits_are_merged_or_refuse_the_whole() {
    let world = World::new().await;
    let (dir, base) = start(&world).await;
    let edits = [
        put("a", &TEXT.replace('5', "five")),
        put("b", "bb\n"),
        delete("d/x"),
    ];
    let result = world.child(&base.commit, &edits).await;
    write(&dir, b"a", TEXT.replace('1', "one").as_bytes());
    write(&dir, b"other", b"mine\n");
    apply(&world, &dir, &base, &result).await;
    assert_eq!(
        read(&dir, "a"),
        TEXT.replace('1', "one").replace('5', "five")
    );
    assert_eq!(read(&dir, "other"), "mine\n");

    let (dir, base) = (
        world.repository("two", &[("a", TEXT), ("b", "b\n"), ("d/x", "x\n")]),
        base,
    );
    write(&dir, b"a", TEXT.replace('5', "mine").as_bytes());
    std::fs::remove_file(dir.join("b")).unwrap();
    write(&dir, b"d/x", b"mine\n");
    let before = state(&dir);
    let applied = apply(&world, &dir, &base, &result).await;
    assert_eq!(refused(&applied), ["a", "b", "d/x"]);
    assert_eq!(state(&dir), before);
    let forced = world
        .store
        .apply(&dir, &base.commit, &result, Force::Overwrite)
        .await
        .unwrap();
    let Applied::Done { paths } = forced else {
        panic!("{forced:?}")
    };
    assert!(
        paths.len() == 3 && paths.iter().all(|path| path.contains("overwritten")),
        "{paths:?}"
    );
    assert_eq!(read(&dir, "a"), TEXT.replace('5', "five"));
    assert!(!dir.join("d").exists());
}

#[tokio::test]
async fn files_that_agents_never_saw_are_not_overwritten() {
    let world = World::new().await;
    let (dir, base) = start(&world).await;
    write(&dir, b".env", b"SECRET\n");
    let result = world
        .child(&base.commit, &[put(".env", "agent\n"), put("b", "bb\n")])
        .await;
    assert_eq!(
        refused(&apply(&world, &dir, &base, &result).await),
        [".env"]
    );
    assert_eq!(read(&dir, ".env"), "SECRET\n");
    assert_eq!(read(&dir, "b"), "b\n");
}

#[tokio::test]
async fn no_link_is_written_through() {
    let world = World::new().await;
    let (dir, base) = start(&world).await;
    let outside = world.path("outside");
    write(&outside, b"x", b"canary\n");
    let canary = state(&outside);

    // The agent makes a link and another agent writes below the same name: two results in a row.
    let link = [
        delete("d/x"),
        delete("d/y"),
        put_as("d", Mode::Link, outside.to_str().unwrap().as_bytes()),
    ];
    let linked = world.child(&base.commit, &link).await;
    assert!(matches!(
        apply(&world, &dir, &base, &linked).await,
        Applied::Done { .. }
    ));
    let below = world
        .child(&base.commit, &[put("d/x", "pwn\n"), put("d/new", "pwn\n")])
        .await;
    assert_eq!(
        refused(&apply(&world, &dir, &base, &below).await),
        ["d/new", "d/x"]
    );
    let forced = world
        .store
        .apply(&dir, &base.commit, &below, Force::Overwrite)
        .await
        .unwrap();
    assert_eq!(refused(&forced), ["d/new", "d/x"]);

    // A dangling link in place of a file is replaced, never created through.
    let target = world.path("not-yet");
    std::fs::remove_file(dir.join("b")).unwrap();
    symlink(&target, dir.join("b")).unwrap();
    let edit = world.child(&base.commit, &[put("b", "pwn\n")]).await;
    assert_eq!(refused(&apply(&world, &dir, &base, &edit).await), ["b"]);
    world
        .store
        .apply(&dir, &base.commit, &edit, Force::Overwrite)
        .await
        .unwrap();
    assert!(!target.exists());
    assert_eq!(read(&dir, "b"), "pwn\n");
    assert_eq!(state(&outside), canary);

    // The way back: a link becomes a folder with a file.
    let back = world
        .child(&linked, &[delete("d"), put("d/x", "x2\n")])
        .await;
    let applied = world
        .store
        .apply(&dir, &linked, &back, Force::No)
        .await
        .unwrap();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    assert_eq!(read(&dir, "d/x"), "x2\n");
    assert_eq!(state(&outside), canary);
}

#[tokio::test]
async fn folders_give_way_only_when_nothing_of_the_operators_is_in_them() {
    let world = World::new().await;
    let (dir, base) = start(&world).await;
    let swap = world
        .child(
            &base.commit,
            &[delete("d/x"), delete("d/y"), put("d", "file\n")],
        )
        .await;
    write(&dir, b"d/mine", b"m\n");
    assert_eq!(refused(&apply(&world, &dir, &base, &swap).await), ["d"]);
    std::fs::remove_file(dir.join("d/mine")).unwrap();
    std::fs::create_dir(dir.join("d/empty")).unwrap();
    assert_eq!(refused(&apply(&world, &dir, &base, &swap).await), ["d"]);
    std::fs::remove_dir(dir.join("d/empty")).unwrap();
    apply(&world, &dir, &base, &swap).await;
    assert_eq!(read(&dir, "d"), "file\n");
}
