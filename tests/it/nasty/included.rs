//! `workspace.include`: what agents see although git ignores it or `hide` withholds it.

use wharf::workspace::{GitKind, Step};

use crate::workspace::fixture::*;

fn asks(dir: &std::path::Path, globs: &[&str]) -> wharf::workspace::Source {
    let mut source = source(dir);
    source.include = globs.iter().map(|&glob| glob.to_owned()).collect();
    source
}

fn ignoring(world: &World) -> std::path::PathBuf {
    let dir = world.repository(
        "repo",
        &[("a", "1\n"), (".gitignore", "gen/\n*.log\n.env*\n")],
    );
    for (path, content) in [
        ("gen/code.rs", "fn x() {}\n"),
        ("gen/deep/more.rs", "y\n"),
        ("gen/inner/z.rs", "z\n"),
        ("gen/huge.bin", "b\n"),
        ("x.log", "log\n"),
        (".env", "canary\n"),
        (".env.test", "fine\n"),
    ] {
        write(&dir, path.as_bytes(), content.as_bytes());
    }
    init(&dir.join("gen/inner"));
    dir
}

#[tokio::test]
async fn only_what_is_asked_for_is_shown() {
    let world = World::new().await;
    let dir = ignoring(&world);
    let before = state(&dir);
    let none = world.base(&dir).await;
    assert_eq!((none.files, none.included.len(), none.dirty), (2, 0, false));

    let source = asks(&dir, &["gen/**/*.rs", ".env.test"]);
    let base = world.store.base(&source).await.unwrap();
    let asked = [
        ".env.test",
        "gen/code.rs",
        "gen/deep/more.rs",
        "gen/inner/z.rs",
    ];
    assert_eq!(base.included, asked);
    let all = world.all(&base.commit).await;
    assert_eq!(all.len(), 6);
    assert!(!all.contains_key(&b".env"[..]) && !all.contains_key(&b"x.log"[..]));
    assert_eq!((base.git, base.dirty), (GitKind::Repository, false));
    assert_eq!(state(&dir), before);
}

/// What git ignores stays out of a branch until agents change it.
#[tokio::test]
async fn a_branch_holds_of_it_what_agents_changed() {
    let world = World::new().await;
    let dir = ignoring(&world);
    let base = world
        .store
        .base(&asks(&dir, &["gen/*.rs", "gen/deep"]))
        .await
        .unwrap();
    let edits = [put("gen/code.rs", "fn y() {}\n"), put("a", "2\n")];
    let one = world.child(&base.commit, &edits).await;
    let two = world.child(&one, &[delete("gen/deep/more.rs")]).await;
    let step = |commit: &wharf::id::CommitId| Step {
        commit: commit.clone(),
        message: "m".into(),
    };
    let steps = [step(&one), step(&two)];
    world
        .store
        .deliver_branch(&dir, &base, "r", &steps)
        .await
        .unwrap();
    let names = git(&dir, &["ls-tree", "-r", "--name-only", "r"]);
    assert_eq!(names, ".gitignore\na\ngen/code.rs\n");
    assert_eq!(
        git(&dir, &["rev-list", "--count", "main..r"]),
        "2\n",
        "none for the start"
    );
}

/// In a directory without git nothing is ignored, and a hidden file is shown all the same.
#[tokio::test]
async fn a_hidden_file_is_shown_where_there_is_no_git() {
    let world = World::new().await;
    let dir = world.path("plain");
    write(&dir, b".env", b"1\n");
    write(&dir, b".env.test", b"2\n");
    let base = world.store.base(&asks(&dir, &[".env.test"])).await.unwrap();
    assert_eq!(
        (base.hidden, base.included),
        (vec![".env".to_owned()], vec![".env.test".to_owned()])
    );
}
