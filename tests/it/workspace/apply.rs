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

#[tokio::test]
async fn a_second_time_beside_edits_of_ones_own_there_is_nothing_left_to_do() {
    let world = World::new().await;
    let (dir, base) = start(&world).await;
    let edit = [put("a", &TEXT.replace('2', "two"))];
    let result = world.child(&base.commit, &edit).await;
    write(&dir, b"a", TEXT.replace('8', "eight").as_bytes());
    for times in [1, 0] {
        let applied = apply(&world, &dir, &base, &result).await;
        let changed = matches!(&applied, Applied::Done { paths } if paths.len() == times);
        assert!(changed, "{applied:?}");
    }
    let both = TEXT.replace('2', "two").replace('8', "eight");
    assert_eq!(read(&dir, "a"), both);
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

/// Names of temporary files anywhere below a directory.
fn litter(dir: &Path) -> Vec<std::path::PathBuf> {
    let all = state(dir).into_keys();
    let litter = all.filter(|at| at.to_string_lossy().contains(".wharf-"));
    litter.collect()
}

/// Moves `d` away and puts a link in its place, and back, until told to stop.
fn swap_for_a_link(dir: &Path, outside: &Path, stop: &std::sync::atomic::AtomicBool) -> u32 {
    let (real, aside) = (dir.join("d"), dir.join("aside"));
    let mut turns = 0;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        std::fs::rename(&real, &aside).unwrap();
        symlink(outside, &real).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(200));
        std::fs::remove_file(&real).unwrap();
        std::fs::rename(&aside, &real).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(300));
        turns += 1;
    }
    turns
}

#[tokio::test]
async fn a_folder_that_becomes_a_link_meanwhile_leads_nowhere() {
    let world = World::new().await;
    let (dir, base) = start(&world).await;
    let outside = world.path("outside");
    for name in ["x", "y", "new"] {
        write(&outside, name.as_bytes(), b"canary\n");
    }
    let canary = state(&outside);
    let edits = [
        put("d/x", "xx\n"),
        put("d/new", "new\n"),
        delete("d/y"),
        put("b", "bb\n"),
    ];
    let there = world.child(&base.commit, &edits).await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapping = {
        let (dir, outside, stop) = (dir.clone(), outside.clone(), stop.clone());
        std::thread::spawn(move || swap_for_a_link(&dir, &outside, &stop))
    };
    let mut done = 0;
    for round in 0..60 {
        let (from, to) = match round % 2 {
            0 => (&base.commit, &there),
            _ => (&there, &base.commit),
        };
        // Refused, failed or done: whatever it is, it is nothing outside.
        let applied = world.store.apply(&dir, from, to, Force::Overwrite).await;
        done += u32::from(matches!(applied, Ok(Applied::Done { .. })));
        assert_eq!(state(&outside), canary, "round {round}: {applied:?}");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(swapping.join().unwrap() > 0);
    assert!(done < 60, "the link was never in the way");
    world.store.recover(&dir).await.unwrap();
    let last = world
        .store
        .apply(&dir, &base.commit, &there, Force::Overwrite)
        .await;
    assert!(matches!(last, Ok(Applied::Done { .. })), "{last:?}");
    assert_eq!(read(&dir, "d/x"), "xx\n");
    assert_eq!(litter(&dir), Vec::<std::path::PathBuf>::new());
    assert_eq!(state(&outside), canary);
}

#[tokio::test]
async fn one_apply_of_a_run_at_a_time() {
    let world = World::new().await;
    let (dir, base) = start(&world).await;
    let result = world.child(&base.commit, &[put("b", "bb\n")]).await;
    let lock = std::fs::File::create(world.store.dir().join("apply.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let before = state(&dir);
    let refused = world
        .store
        .apply(&dir, &base.commit, &result, Force::No)
        .await;
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("another apply"), "{refused}");
    assert_eq!(state(&dir), before);
    drop(lock);
    assert_eq!(
        apply(&world, &dir, &base, &result).await,
        Applied::Done {
            paths: vec!["b".into()]
        }
    );
}

/// Needs the right to mount, which a suite that does not run as root has not.
#[tokio::test]
async fn on_a_full_disk_nothing_changes() {
    let world = World::new().await;
    let Some(small) = Small::mount(&world.path("small")) else {
        return;
    };
    let dir = small.0.join("repo");
    for (name, size) in [("a", 1_000), ("b", 100_000), ("gone", 50_000)] {
        write(&dir, name.as_bytes(), "x".repeat(size).as_bytes());
    }
    let base = world.base(&dir).await;
    let edits = [
        put("a", "changed\n"),
        put("b", &"y".repeat(300_000)),
        put("n/c", &"z".repeat(900_000)),
        delete("gone"),
    ];
    let result = world.child(&base.commit, &edits).await;
    let before = state(&dir);
    let failed = world
        .store
        .apply(&dir, &base.commit, &result, Force::No)
        .await;
    let failed = failed.unwrap_err().to_string();
    assert!(failed.contains("No space left"), "{failed}");
    let mut after = state(&dir);
    assert_eq!(litter(&dir), Vec::<std::path::PathBuf>::new());
    // Of the folder itself only the times may have moved.
    after.retain(|at, _| before.contains_key(at));
    assert_eq!(after, before);
    assert!(!dir.join("n").exists());
}
