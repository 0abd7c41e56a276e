//! The base is the working tree as it is, and taking it changes nothing.

use std::os::unix::fs::symlink;
use std::path::Path;

use wharf::workspace::{Error, GitKind, Mode};

use super::fixture::*;

#[tokio::test]
async fn a_nasty_repository_is_taken_whole_and_left_alone() {
    let world = World::new().await;
    let dir = nasty(world.dir.path());
    let (before, status_before) = (state(&dir), status(&dir));
    let base = world.base(&dir).await;
    assert_eq!(state(&dir), before);
    assert_eq!(status(&dir), status_before);

    let all = world.all(&base.commit).await;
    for name in NAMES {
        assert_eq!(&all[*name].1[..], b"nasty\n", "{}", name.escape_ascii());
    }
    assert_eq!(&all[&[b'l'; 255][..]].1[..], b"long\n");
    assert_eq!(&all[&b"bin"[..]].1[..], b"\0\x01\xff\r\n");
    assert_eq!(&all[&b"crlf.txt"[..]].1[..], b"a\r\nb\r\n");
    assert_eq!(all[&b"run.sh"[..]].0, Mode::Executable);
    assert_eq!(all[&b"absolute"[..]], (Mode::Link, "/etc/passwd".into()));
    assert_eq!(all[&b"up"[..]], (Mode::Link, "..".into()));
    assert_eq!(all[&b"dangling"[..]], (Mode::Link, "nowhere".into()));
    assert_eq!(&all[&b"tracked.txt"[..]].1[..], b"one\ndirty\n");
    assert_eq!(&all[&b"staged.txt"[..]].1[..], b"staged and more\n");
    assert_eq!(&all[&b"mod/lib.c"[..]].1[..], b"int y;\n");
    assert_eq!(&all[&b"nested/inner.txt"[..]].1[..], b"inner\n");
    assert!(all.contains_key(&b"untracked.txt"[..]));
    for absent in [
        "gone.txt",
        "ignored/junk",
        "debug.log",
        ".env",
        "sub/secrets/key",
        "mod/.git",
        "pipe",
    ] {
        assert!(!all.contains_key(absent.as_bytes()), "{absent}");
    }
    assert_eq!(base.hidden, [".env", "sub/secrets/key"]);
    assert_eq!(
        base.left_out,
        [("pipe".to_owned(), "a FIFO holds no content".to_owned())]
    );
    assert_eq!(base.files, all.len());
    assert!(base.dirty);
    assert_eq!(base.git, GitKind::Repository);
    assert_eq!(
        world.base(&dir).await.commit,
        base.commit,
        "equal trees, equal ids"
    );
}

#[tokio::test]
async fn a_clean_repository_is_not_dirty() {
    let world = World::new().await;
    let dir = world.repository("clean", &[("a", "1\n"), ("d/b", "2\n")]);
    let base = world.base(&dir).await;
    assert!(!base.dirty);
    assert_eq!(base.head.unwrap(), git(&dir, &["rev-parse", "HEAD"]).trim());
    let tree = git(&dir, &["rev-parse", "HEAD^{tree}"]);
    assert_eq!(base.tree.as_str(), tree.trim());
}

#[tokio::test]
async fn odd_heads_are_all_fine() {
    let world = World::new().await;
    let unborn = world.path("unborn");
    init(&unborn);
    write(&unborn, b"a", b"1");
    let base = world.base(&unborn).await;
    assert_eq!(
        (base.git, base.head.as_deref(), base.files),
        (GitKind::Unborn, None, 1)
    );

    let dir = world.repository("repo", &[("a", "1\n"), ("sub/dir/b", "2\n")]);
    write(&dir, b"sub/dir/c", b"3");
    let sub = world.base(&dir.join("sub/dir")).await;
    assert_eq!(
        (sub.prefix.as_str(), sub.files, sub.dirty),
        ("sub/dir", 2, true)
    );

    git(&dir, &["checkout", "-q", "--detach"]);
    assert_eq!(world.base(&dir).await.files, 3);
    let linked = world.path("linked");
    git(&dir, &["worktree", "add", "-q", linked.to_str().unwrap()]);
    let base = world.base(&linked).await;
    assert_eq!((base.files, base.dirty), (2, false));
    let shallow = world.path("shallow");
    let url = format!("file://{}", dir.display());
    git(
        world.dir.path(),
        &[
            "clone",
            "-q",
            "--depth",
            "1",
            &url,
            shallow.to_str().unwrap(),
        ],
    );
    assert_eq!(world.base(&shallow).await.git, GitKind::Repository);
}

#[tokio::test]
async fn a_merge_in_progress_gives_each_path_once() {
    let world = World::new().await;
    let dir = world.repository("repo", &[("a", "1\n")]);
    git(&dir, &["checkout", "-q", "-b", "other"]);
    write(&dir, b"a", b"2\n");
    git(&dir, &["commit", "-qam", "other"]);
    git(&dir, &["checkout", "-q", "main"]);
    write(&dir, b"a", b"3\n");
    git(&dir, &["commit", "-qam", "main"]);
    let merge = std::process::Command::new("git")
        .args(["merge", "-q", "other"])
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(!merge.status.success());
    let base = world.base(&dir).await;
    assert_eq!(base.files, 1);
    assert!(
        world
            .text(&base.commit, "a")
            .await
            .unwrap()
            .contains("<<<<<<<")
    );
}

#[tokio::test]
async fn a_plain_directory_is_walked_and_git_folders_passed_by() {
    let world = World::new().await;
    let dir = world.path("plain");
    write(&dir, b"a", b"1");
    write(&dir, b"d/e/f", b"2");
    write(&dir, b".env", b"x");
    init(&dir.join("repo"));
    write(&dir, b"repo/x", b"3");
    write(&dir, b"repo/out.log", b"4");
    write(&dir, b"repo/.gitignore", b"*.log\n");
    let base = world.base(&dir).await;
    let paths: Vec<Vec<u8>> = world.all(&base.commit).await.into_keys().collect();
    assert_eq!(paths, [&b"a"[..], b"d/e/f", b"repo/.gitignore", b"repo/x"]);
    assert_eq!((base.git, base.dirty), (GitKind::None, false));
    assert_eq!(base.hidden, [".env"]);
}

#[tokio::test]
async fn links_in_place_of_folders_are_never_walked_through() {
    let world = World::new().await;
    let outside = world.path("outside");
    write(&outside, b"f", b"secret");
    let dir = world.repository(
        "repo",
        &[("d/f", "1\n"), ("was/a/file", "2\n"), ("t", "3\n")],
    );
    std::fs::remove_dir_all(dir.join("d")).unwrap();
    symlink(&outside, dir.join("d")).unwrap();
    std::fs::remove_file(dir.join("t")).unwrap();
    write(&dir, b"t/inner", b"4\n");
    let base = world.base(&dir).await;
    let all = world.all(&base.commit).await;
    assert_eq!(all[&b"d"[..]].0, Mode::Link);
    assert!(!all.contains_key(&b"d/f"[..]));
    assert_eq!(&all[&b"t/inner"[..]].1[..], b"4\n");
    assert!(base.dirty);
}

#[tokio::test]
async fn limits_and_what_cannot_be_kept_are_named() {
    let world = World::new().await;
    let dir = world.repository("repo", &[("a", "1\n")]);
    write(&dir, b"big", &vec![b'x'; 2 << 20]);
    write(&dir, b".git /x", b"lookalike");
    let base = world.base(&dir).await;
    let left: Vec<&str> = base
        .left_out
        .iter()
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(left, [".git /x", "big"]);
    assert_eq!(base.files, 1);

    let mut small = source(&dir);
    small.max_files = 1;
    let error = world.store.base(&small).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let mut small = source(&dir);
    small.max_total = 1;
    let error = world.store.base(&small).await.unwrap_err();
    assert!(error.to_string().contains("more than 1 bytes"), "{error}");
}

#[tokio::test]
async fn could_not_tell_is_never_an_empty_base() {
    let world = World::new().await;
    let dir = world.repository("repo", &[("a", "1\n")]);
    let head = dir.join(".git/HEAD");
    let kept = std::fs::read(&head).unwrap();
    std::fs::write(&head, "garbage").unwrap();
    assert!(world.store.base(&source(&dir)).await.is_err());
    std::fs::write(&head, &kept).unwrap();
    std::fs::write(dir.join(".git/refs/heads/main"), "garbage\n").unwrap();
    assert!(world.store.base(&source(&dir)).await.is_err());
    assert!(
        world
            .store
            .base(&source(Path::new("/nonexistent")))
            .await
            .is_err()
    );
    let bare = world.path("bare.git");
    git(
        world.dir.path(),
        &["init", "-q", "--bare", bare.to_str().unwrap()],
    );
    let error = world.store.base(&source(&bare)).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_directory_that_its_repository_ignores_is_a_plain_one() {
    let world = World::new().await;
    let dir = world.repository("repo", &[(".gitignore", "tmp/\n")]);
    write(&dir, b"tmp/work/a", b"1");
    let base = world.base(&dir.join("tmp/work")).await;
    assert_eq!((base.git, base.files), (GitKind::None, 1));
}

#[tokio::test]
async fn sparse_and_hidden_files_are_no_deletions() {
    let world = World::new().await;
    let dir = world.repository(
        "repo",
        &[("in/a", "1\n"), ("out/b", "2\n"), (".env", "x\n")],
    );
    git(&dir, &["sparse-checkout", "set", "in"]);
    let base = world.base(&dir).await;
    assert!(!base.dirty);
    assert_eq!(base.left_out[0].0, "out/b");
}

#[tokio::test]
async fn what_a_checkout_converted_is_not_dirty() {
    let world = World::new().await;
    let files = [
        ("a.txt", "1\n2\n"),
        (".gitattributes", "*.txt text eol=crlf\n"),
    ];
    let dir = world.repository("repo", &files);
    std::fs::remove_file(dir.join("a.txt")).unwrap();
    git(&dir, &["checkout", "-q", "a.txt"]);
    // As long ago as any real checkout: the index is younger than its files.
    git(&dir, &["update-index", "--refresh", "-q"]);
    let old = std::fs::File::options()
        .write(true)
        .open(dir.join("a.txt"))
        .unwrap();
    old.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
        .unwrap();
    git(&dir, &["update-index", "--refresh", "-q"]);
    assert_eq!(read(&dir, "a.txt"), "1\r\n2\r\n");
    let base = world.base(&dir).await;
    assert!(!base.dirty);
    assert_eq!(
        world.text(&base.commit, "a.txt").await.unwrap(),
        "1\r\n2\r\n"
    );
    write(&dir, b"a.txt", b"1\r\n3\r\n");
    assert!(world.base(&dir).await.dirty);
}
