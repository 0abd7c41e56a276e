//! The history that agents see: recent, of the workspace alone, and without what is withheld.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{self, Engine as _, Exit, Mode, Sandbox as _};
use wharf::workspace::{Base, History, Reach, Source};

use crate::container::{Said, engine, python, run, spec};
use crate::toolbox::{self, PLAIN, Setting};
use crate::workspace::fixture::*;

const REACH: Reach = Reach {
    commits: 50,
    bytes: 8 << 20,
};

/// A repository whose past is full of what nobody may see.
fn past(top: &Path) -> PathBuf {
    let dir = repository(
        &top.join("past"),
        &[
            (".env", "TOKEN=canary-tracked\n"),
            ("settings.txt", "TOKEN=canary-moved\n"),
            ("a", "1\n"),
            ("sub/b", "1\n"),
            ("empty", ""),
        ],
    );
    // What is withheld now once lay under a name that is not.
    git(&dir, &["mv", "settings.txt", ".env.local"]);
    write(&dir, b"sub/secrets/key", b"canary-deep\n");
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "moves the settings"]);
    write(&dir, b".env", b"TOKEN=canary-changed\n");
    write(&dir, b"a", b"2\n");
    git(&dir, &["commit", "-qam", "second\n\nwith a body"]);
    // Never tracked under its own name, and its bytes were committed under another.
    write(&dir, b"copy.txt", b"canary-untracked\n");
    git(&dir, &["add", "copy.txt"]);
    git(&dir, &["commit", "-q", "-m", "copy"]);
    git(&dir, &["rm", "-q", "copy.txt"]);
    write(&dir, b".env.new", b"canary-untracked\n");
    git(&dir, &["checkout", "-q", "-b", "side", "HEAD~1"]);
    write(&dir, b"sub/b", b"side\n");
    git(&dir, &["commit", "-qam", "side"]);
    git(&dir, &["checkout", "-q", "-f", "main"]);
    git(&dir, &["rm", "-q", "--ignore-unmatch", "copy.txt"]);
    git(&dir, &["commit", "-q", "-m", "copy is gone"]);
    git(
        &dir,
        &["merge", "-q", "--no-ff", "-m", "merges side", "side"],
    );
    chmod(&dir, "a", 0o755);
    git(&dir, &["add", "a"]);
    git(
        &dir,
        &["commit", "-q", "-m", "mode", "--author", "W\u{f6}rf <w@x>"],
    );
    dir
}

async fn taken(world: &World, source: &Source, reach: Reach) -> (Base, History, Bytes, Bytes) {
    let base = world.store.base(source).await.unwrap();
    let history = world
        .store
        .history(source, &base, reach)
        .await
        .unwrap()
        .unwrap();
    let (pack, index) = world.store.load_history(&history).unwrap();
    (base, history, pack, index)
}

/// A repository of what agents are given.
fn unpacked(
    world: &World,
    name: &str,
    (history, pack, index): (&History, &Bytes, &Bytes),
) -> PathBuf {
    let dir = world.path(name);
    init(&dir);
    let at = dir.join(format!(".git/objects/pack/pack-{}", history.tip));
    std::fs::write(at.with_extension("pack"), pack).unwrap();
    std::fs::write(at.with_extension("idx"), index).unwrap();
    git(
        &dir,
        &["update-ref", "refs/heads/main", history.tip.as_str()],
    );
    git(&dir, &["fsck", "--strict"]);
    dir
}

/// Everything that lies in a repository, as text.
fn objects(dir: &Path) -> String {
    git(
        dir,
        &["cat-file", "--batch-all-objects", "--batch", "--unordered"],
    )
}

#[tokio::test]
async fn nothing_withheld_is_in_any_object() {
    let world = World::new().await;
    let dir = past(world.dir.path());
    let (before, status_before) = (state(&dir), status(&dir));
    let (_, history, pack, index) = taken(&world, &source(&dir), REACH).await;
    assert_eq!(state(&dir), before);
    assert_eq!(status(&dir), status_before);
    let seen = unpacked(&world, "seen", (&history, &pack, &index));
    let all = objects(&seen);
    assert!(!all.contains("canary"), "{all}");
    assert!(objects(&dir).contains("canary-moved"), "the trap works");
    let log = git(&seen, &["log", "--format=%s|%an|%ad", "--date=raw"]);
    let subjects: Vec<&str> = log
        .lines()
        .map(|line| line.split('|').next().unwrap())
        .collect();
    let own = git(&dir, &["log", "--first-parent", "--format=%s"]);
    assert_eq!(subjects, own.lines().collect::<Vec<_>>());
    assert!(log.starts_with("mode|W\u{f6}rf|"), "{log}");
    assert_eq!(history.commits, subjects.len());
    // Apart from what is withheld, the last commit is the operator's.
    assert_eq!(
        git(&seen, &["ls-tree", "-r", "--name-only", "main"]),
        "a\nempty\nsub/b\n"
    );
    assert_eq!(
        git(&seen, &["rev-parse", "main:a"]),
        git(&dir, &["rev-parse", "main:a"])
    );
    assert!(git(&seen, &["show", "--summary", "main"]).contains("mode change 100644 => 100755 a"));
}

#[tokio::test]
async fn what_is_asked_for_is_shown_now_and_not_in_the_past() {
    let world = World::new().await;
    let dir = past(world.dir.path());
    let mut source = source(&dir);
    source.include = vec![".env".into()];
    let (base, history, pack, index) = taken(&world, &source, REACH).await;
    assert_eq!(base.included, [".env"]);
    let seen = unpacked(&world, "seen", (&history, &pack, &index));
    assert!(!objects(&seen).contains("canary"));
}

#[tokio::test]
async fn it_ends_where_the_workspace_and_the_limits_end() {
    let world = World::new().await;
    let dir = past(world.dir.path());
    let (base, history, pack, index) = taken(&world, &source(&dir.join("sub")), REACH).await;
    assert_eq!(base.prefix, "sub");
    let seen = unpacked(&world, "below", (&history, &pack, &index));
    assert_eq!(
        git(&seen, &["log", "--format=%s"]),
        "merges side\nmoves the settings\nfirst\n"
    );
    assert_eq!(git(&seen, &["ls-tree", "-r", "--name-only", "main"]), "b\n");
    assert!(!objects(&seen).contains("canary"));

    let two = Reach {
        commits: 2,
        ..REACH
    };
    let (_, history, pack, index) = taken(&world, &source(&dir), two).await;
    assert_eq!(history.commits, 2);
    let seen = unpacked(&world, "two", (&history, &pack, &index));
    assert_eq!(git(&seen, &["log", "--format=%s"]), "mode\nmerges side\n");

    let none = Reach { bytes: 10, ..REACH };
    let base = world.base(&dir).await;
    let error = world
        .store
        .history(&source(&dir), &base, none)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("even one commit"), "{error}");
    // A commit as large as all of them are not leaves fewer.
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    let noise: Vec<u8> = (0..300_000).map(|_| next()).collect();
    write(&dir, b"noise", &noise);
    git(&dir, &["add", "noise"]);
    git(&dir, &["commit", "-q", "-m", "noise"]);
    git(&dir, &["rm", "-q", "noise"]);
    git(&dir, &["commit", "-q", "-m", "no noise"]);
    let small = Reach {
        bytes: 20_000,
        ..REACH
    };
    let (_, history, pack, index) = taken(&world, &source(&dir), small).await;
    assert_eq!(history.commits, 1);
    unpacked(&world, "one", (&history, &pack, &index));
}

#[tokio::test]
async fn a_cut_or_missing_pack_is_an_error_and_no_shorter_history() {
    let world = World::new().await;
    let dir = past(world.dir.path());
    let (_, history, pack, _) = taken(&world, &source(&dir), REACH).await;
    let at = world
        .store
        .dir()
        .join(format!("history/{}.pack", history.tip));
    for length in [0, 10, pack.len() - 1] {
        std::fs::write(&at, &pack[..length]).unwrap();
        assert!(world.store.load_history(&history).is_err(), "{length}");
    }
    std::fs::remove_file(&at).unwrap();
    assert!(world.store.load_history(&history).is_err());
    let plain = world.path("plain");
    write(&plain, b"a", b"1");
    let base = world.base(&plain).await;
    assert_eq!(
        world
            .store
            .history(&source(&plain), &base, REACH)
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn odd_repositories_have_one_too_or_say_why_not() {
    let dir = tempfile::tempdir().unwrap();
    for nasty in super::repositories::all(dir.path()) {
        let world = World::new().await;
        let Ok(base) = world.store.base(&source(&nasty.work)).await else {
            continue;
        };
        let history = world
            .store
            .history(&source(&nasty.work), &base, REACH)
            .await;
        let expected = match nasty.name {
            "sha256" => history.is_err(),
            "empty" | "plain" | "unborn" | "ignored-whole" => matches!(history, Ok(None)),
            _ => matches!(&history, Ok(Some(history)) if history.commits > 0),
        };
        assert!(expected, "{}: {history:?}", nasty.name);
    }
}

/// What a sandbox makes of it: the agent's own repository stands on these commits.
#[tokio::test]
async fn log_diff_and_status_work_in_a_sandbox() {
    let world = World::new().await;
    let dir = past(world.dir.path());
    let (_, history, pack, index) = taken(&world, &source(&dir), REACH).await;
    let given = sandbox::History {
        tip: history.tip.to_string(),
        pack,
        index,
    };
    let inside = toolbox::World::with(Setting { git: true, ..PLAIN }).await;
    inside.remote.give(&given).await.unwrap();
    let files: &[(&[u8], Mode, &str)] = &[
        (b"a", Mode::Executable, "2\n"),
        (b"empty", Mode::File, ""),
        (b"sub/b", Mode::File, "dirty\n"),
    ];
    inside
        .remote
        .upload(None, &toolbox::tree(files))
        .await
        .unwrap();
    let said = async |line: &str| {
        let finished = inside.run(line).await;
        assert_eq!(finished.exit, Exit::Code(0), "{line}: {finished:?}");
        String::from_utf8_lossy(&finished.stdout.head).into_owned()
    };
    assert_eq!(said("git status --short").await, "");
    let log = said("git log --format=%s").await;
    assert!(log.starts_with("start\nmode\nmerges side\n"), "{log}");
    assert_eq!(
        said("git diff --stat HEAD~1 | head -1").await,
        " sub/b | 2 +-\n"
    );
    assert_eq!(said("git fsck --strict && git show HEAD~1:empty").await, "");
    said("echo 3 > a").await;
    assert_eq!(said("git diff --name-only").await, "a\n");
    // Nothing done to it is believed.
    said("git update-index --assume-unchanged sub/b && echo new > sub/b && rm -rf .git").await;
    let changes = inside.scan().await;
    let paths: Vec<_> = changes.puts.iter().map(|put| put.path.clone()).collect();
    assert_eq!(paths, [b"a".to_vec(), b"sub/b".to_vec()]);
    inside.remote.close().await;
}

/// A history that cannot be one costs the agent its commits, not its sandbox.
#[tokio::test]
async fn a_history_without_a_name_is_not_taken() {
    let inside = toolbox::World::with(Setting { git: true, ..PLAIN }).await;
    let given = sandbox::History {
        tip: "../x".into(),
        pack: Bytes::from_static(b"p"),
        index: Bytes::new(),
    };
    inside.remote.give(&given).await.unwrap();
    let files: &[(&[u8], Mode, &str)] = &[(b"a", Mode::File, "1\n")];
    inside
        .remote
        .upload(None, &toolbox::tree(files))
        .await
        .unwrap();
    let log = inside.run("git log --format=%s").await;
    assert_eq!(String::from_utf8_lossy(&log.stdout.head), "start\n");
    inside.remote.close().await;
}

/// In a real container, and in one on a layer, whose history lies in the layer.
#[tokio::test]
async fn a_container_begins_with_it_with_and_without_a_layer() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let world = World::new().await;
    let dir = past(world.dir.path());
    let (_, history, pack, index) = taken(&world, &source(&dir), REACH).await;
    let given = sandbox::History {
        tip: history.tip.to_string(),
        pack,
        index,
    };
    let mut wanted = spec(python(&docker).await, "past");
    wanted.history = Some(Arc::new(given));
    let files: &[(&[u8], Mode, &str)] = &[(b"a", Mode::File, "2\n"), (b"sub/b", Mode::File, "b\n")];
    let later: &[(&[u8], Mode, &str)] = &[(b"a", Mode::File, "3\n"), (b"sub/b", Mode::File, "b\n")];
    let (files, later) = (Arc::new(toolbox::tree(files)), toolbox::tree(later));
    let cancel = CancellationToken::new();
    let layer = docker
        .layer(&wanted, files.clone(), &Said, &cancel)
        .await
        .unwrap();
    for (layer, tree) in [
        (None, &*files),
        (Some(&layer), &*files),
        (Some(&layer), &later),
    ] {
        let vacant = docker.start(&wanted, layer, &cancel).await.unwrap();
        let opened = vacant.fill(tree, &cancel).await.unwrap();
        let line = "git status --short; git log --format=%s | head -3; stat -c %U .git/HEAD";
        let (exit, seen) = run(opened.as_ref(), line).await;
        assert_eq!(exit, Exit::Code(0));
        assert_eq!(seen, "start\nmode\nmerges side\nagent\n");
        opened.close().await;
    }
}
