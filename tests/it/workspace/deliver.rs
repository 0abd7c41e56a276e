//! The branch: on HEAD, only what changed, and nothing else of the repository moves.

use std::path::Path;

use wharf::id::CommitId;
use wharf::workspace::{Error, Mode, Step};

use super::fixture::*;

fn step(commit: &CommitId, message: &str) -> Step {
    Step {
        commit: commit.clone(),
        message: message.into(),
    }
}

fn log(dir: &Path, branch: &str) -> Vec<String> {
    let log = git(
        dir,
        &["log", "--reverse", "--format=%s|%an <%ae>|%cn", branch],
    );
    log.lines().map(str::to_owned).collect()
}

fn names(dir: &Path, range: &str) -> Vec<String> {
    let names = git(
        dir,
        &[
            "-c",
            "core.quotePath=false",
            "diff",
            "--name-status",
            "--no-renames",
            range,
        ],
    );
    names.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_clean_repository_gets_the_steps_on_head() {
    let world = World::new().await;
    let odd = "re:po \"x";
    let dir = world.repository(odd, &[("a", "1\n"), ("d/b", "2\n"), ("old", "o\n")]);
    git(&dir, &["status"]);
    let base = world.base(&dir).await;
    let one = world
        .child(&base.commit, &[put("a", "one\n"), delete("old")])
        .await;
    let two = world
        .child(
            &one,
            &[
                put_as("run", Mode::Executable, b"x"),
                put_as("l", Mode::Link, b"a"),
            ],
        )
        .await;
    let (before, status_before) = (working_state(&dir), status(&dir));
    let steps = [step(&one, "first: a"), step(&two, "second: run")];
    let done = world
        .store
        .deliver_branch(&dir, &base, "wharf/r1", &steps)
        .await
        .unwrap();
    assert_eq!(working_state(&dir), before);
    assert_eq!(status(&dir), status_before);
    assert_eq!(
        git(&dir, &["rev-parse", "wharf/r1"]).trim(),
        done.commit.as_str()
    );
    let tree = git(&dir, &["rev-parse", "wharf/r1^{tree}"]);
    assert_eq!(tree.trim(), world.store.tree(&two).await.unwrap().as_str());
    let log = log(&dir, "main..wharf/r1");
    assert_eq!(
        log,
        [
            "first: a|Wharf <wharf@localhost>|Wharf",
            "second: run|Wharf <wharf@localhost>|Wharf"
        ]
    );
    assert_eq!(
        git(&dir, &["merge-base", "main", "wharf/r1"]),
        git(&dir, &["rev-parse", "main"])
    );
    git(&dir, &["fsck", "--strict", "--full"]);
}

#[tokio::test]
async fn the_same_again_is_no_error_and_anything_else_under_the_name_is_refused() {
    let world = World::new().await;
    let dir = world.repository("repo", &[("a", "1\n")]);
    let base = world.base(&dir).await;
    let one = world.child(&base.commit, &[put("a", "one\n")]).await;
    let two = world.child(&one, &[put("b", "two\n")]).await;
    let steps = [step(&one, "first"), step(&two, "second")];
    let done = world
        .store
        .deliver_branch(&dir, &base, "wharf/r1", &steps)
        .await
        .unwrap();
    // The same again is the same commit; another content under the same name is refused.
    let again = world
        .store
        .deliver_branch(&dir, &base, "wharf/r1", &steps)
        .await
        .unwrap();
    assert_eq!(again, done);
    let error = world
        .store
        .deliver_branch(&dir, &base, "wharf/r1", &steps[..1])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    for bad in ["main", "wharf", "wharf/r1/x", "a..b", "-x", "", "a b"] {
        let error = world
            .store
            .deliver_branch(&dir, &base, bad, &steps)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{bad}: {error}");
    }
    assert_eq!(
        git(&dir, &["rev-parse", "wharf/r1"]).trim(),
        done.commit.as_str()
    );
}

#[tokio::test]
async fn a_nasty_working_tree_is_shown_first_and_what_agents_never_saw_stays() {
    let world = World::new().await;
    let dir = nasty(world.dir.path());
    let base = world.base(&dir).await;
    let one = world
        .child(
            &base.commit,
            &[put("tracked.txt", "agent\n"), put("bad\nname", "x\n")],
        )
        .await;
    let (before, status_before) = (working_state(&dir), status(&dir));
    let steps = [step(&one, "work")];
    world
        .store
        .deliver_branch(&dir, &base, "result", &steps)
        .await
        .unwrap();
    assert_eq!(working_state(&dir), before);
    assert_eq!(status(&dir), status_before);
    let log = log(&dir, "main..result");
    assert_eq!(log.len(), 2);
    assert!(log[0].starts_with("working tree at start|"));
    assert_eq!(
        names(&dir, "result~1..result"),
        ["A\t\"bad\\nname\"", "M\ttracked.txt"]
    );
    let start = names(&dir, "main..result~1");
    assert!(start.contains(&"D\tgone.txt".to_owned()), "{start:?}");
    assert!(start.contains(&"A\tuntracked.txt".to_owned()), "{start:?}");
    assert!(
        !start
            .iter()
            .any(|line| line.contains(".env") || line.contains("secrets")),
        "{start:?}"
    );
    assert!(
        !start
            .iter()
            .any(|line| line.contains("nested") || line.contains("mod")),
        "{start:?}"
    );
    git(&dir, &["fsck", "--full"]);
}

#[tokio::test]
async fn a_sub_directory_is_grafted_at_its_prefix() {
    let world = World::new().await;
    let dir = world.repository(
        "repo",
        &[("top", "t\n"), ("p/q/a", "1\n"), ("p/other", "o\n")],
    );
    write(&dir, b"top", b"dirty outside\n");
    let sub = dir.join("p/q");
    let base = world.base(&sub).await;
    assert!(!base.dirty);
    let before = working_state(&dir);
    let one = world
        .child(&base.commit, &[put("a", "one\n"), put("n/b", "2\n")])
        .await;
    world
        .store
        .deliver_branch(&sub, &base, "sub", &[step(&one, "m")])
        .await
        .unwrap();
    assert_eq!(working_state(&dir), before);
    assert_eq!(names(&dir, "main..sub"), ["M\tp/q/a", "A\tp/q/n/b"]);
}

#[tokio::test]
async fn unborn_linked_and_shallow_repositories_get_their_branch() {
    let world = World::new().await;
    let unborn = world.path("unborn");
    init(&unborn);
    write(&unborn, b"a", b"1\n");
    let base = world.base(&unborn).await;
    let one = world.child(&base.commit, &[put("b", "2\n")]).await;
    world
        .store
        .deliver_branch(&unborn, &base, "new", &[step(&one, "m")])
        .await
        .unwrap();
    assert_eq!(log(&unborn, "new").len(), 2);
    assert_eq!(git(&unborn, &["status", "--porcelain"]), "?? a\n");

    let dir = world.repository("repo", &[("a", "1\n")]);
    write(&dir, b"a", b"2\n");
    git(&dir, &["commit", "-qam", "second"]);
    let linked = world.path("linked");
    git(&dir, &["worktree", "add", "-q", linked.to_str().unwrap()]);
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
    for place in [linked, shallow] {
        let base = world.base(&place).await;
        let one = world.child(&base.commit, &[put("b", "2\n")]).await;
        world
            .store
            .deliver_branch(&place, &base, "r", &[step(&one, "m")])
            .await
            .unwrap();
        assert_eq!(names(&place, "HEAD..r"), ["A\tb"]);
        git(&place, &["fsck", "--full"]);
        assert_eq!(git(&place, &["status", "--porcelain"]), "");
    }
}

#[tokio::test]
async fn head_that_moved_meanwhile_changes_nothing() {
    let world = World::new().await;
    let dir = world.repository("repo", &[("a", "1\n")]);
    let base = world.base(&dir).await;
    write(&dir, b"later", b"l\n");
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "later"]);
    let one = world.child(&base.commit, &[put("b", "2\n")]).await;
    world
        .store
        .deliver_branch(&dir, &base, "r", &[step(&one, "m")])
        .await
        .unwrap();
    assert_eq!(log(&dir, "r").len(), 2);
    assert_eq!(names(&dir, "main~1..r"), ["A\tb"]);
}

#[tokio::test]
async fn what_no_branch_can_show_is_refused() {
    let world = World::new().await;
    let dir = nasty(world.dir.path());
    let base = world.base(&dir).await;
    for path in ["mod/lib.c", "nested/inner.txt"] {
        let one = world.child(&base.commit, &[put(path, "agent\n")]).await;
        let error = world
            .store
            .deliver_branch(&dir, &base, "r", &[step(&one, "m")])
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    let plain = world.path("plain");
    write(&plain, b"a", b"1");
    let base = world.base(&plain).await;
    let error = world
        .store
        .deliver_branch(&plain, &base, "r", &[])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

/// Needs the right to mount, which a suite that does not run as root has not.
#[tokio::test]
async fn a_repository_on_a_full_disk_stays_whole() {
    let world = World::new().await;
    let Some(small) = Small::mount(&world.path("small")) else {
        return;
    };
    let dir = small.0.join("repo");
    init(&dir);
    write(&dir, b"a", b"1\n");
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "first"]);
    let base = world.base(&dir).await;
    // Bytes that no compression makes fit.
    let mut noise = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (noise >> 56) as u8
    })
    .take(3 << 20)
    .collect();
    let one = world
        .child(&base.commit, &[put_as("noise", Mode::File, &noise)])
        .await;
    let before = state(&dir);
    let steps = [step(&one, "m")];
    let made = world.store.deliver_branch(&dir, &base, "r", &steps).await;
    made.unwrap_err();
    let after = state(&dir);
    let new: Vec<_> = after
        .keys()
        .filter(|at| !before.contains_key(*at))
        .collect();
    assert_eq!(new, Vec::<&std::path::PathBuf>::new());
    git(&dir, &["fsck", "--full"]);
    world
        .store
        .deliver_patch(&base.commit, &one, "", &world.path("p"))
        .await
        .unwrap();
}

/// A repository with this `.gitattributes` and `a` as it is checked out by it; a line end of its own.
async fn attributed(world: &World, attributes: &str, a: &str) -> std::path::PathBuf {
    let dir = world.repository("repo", &[(".gitattributes", attributes), ("b.txt", "b\n")]);
    write(&dir, b"a.txt", a.as_bytes());
    git(&dir, &["add", "a.txt"]);
    git(&dir, &["commit", "-q", "-m", "a"]);
    assert!(is_clean(&dir), "{}", status(&dir));
    dir
}

/// True when git sees nothing but the branch.
fn is_clean(dir: &Path) -> bool {
    let status = status(dir);
    status
        .split('\0')
        .all(|line| line.is_empty() || line.starts_with('#'))
}

#[tokio::test]
async fn a_branch_holds_line_ends_as_the_repository_commits_them() {
    const CRLF: &str = "1\r\n2\r\n3\r\n";
    // What `a` is changed to, and how many lines git then sees changed.
    let cases = [
        ("*.txt text eol=crlf\n", CRLF.replace('2', "two"), "1"),
        ("* text=auto eol=crlf\n", CRLF.replace('2', "two"), "1"),
        // An agent that writes LF only changes no other line by that.
        ("*.txt text eol=crlf\n", "1\ntwo\n3\n".to_owned(), "1"),
        // Nothing is said of line ends: they are content.
        ("", CRLF.replace('2', "two"), "1"),
        ("* -text\n", "1\n2\n3\n".to_owned(), "3"),
        // What looks binary stays as it is.
        ("* text=auto\n", "\0\r\n".to_owned(), "-"),
    ];
    for (attributes, changed, lines) in cases {
        let world = World::new().await;
        let dir = attributed(&world, attributes, CRLF).await;
        let base = world.base(&dir).await;
        let there = world.child(&base.commit, &[put("a.txt", &changed)]).await;
        let steps = [step(&there, "a")];
        let store = &world.store;
        store
            .deliver_branch(&dir, &base, "w", &steps)
            .await
            .unwrap();
        let numbers = git(&dir, &["diff", "--text", "--numstat", "main", "w"]);
        let gone = numbers.split_whitespace().nth(1).unwrap();
        assert_eq!(gone, lines, "{attributes:?}: {numbers}");
        git(&dir, &["merge", "-q", "w"]);
        assert!(
            is_clean(&dir),
            "{attributes:?} {changed:?}: {}",
            status(&dir)
        );
    }
}

#[tokio::test]
async fn a_dirty_file_lands_with_the_line_ends_of_the_repository_too() {
    let world = World::new().await;
    let dir = attributed(&world, "*.txt text eol=crlf\n", "1\r\n2\r\n").await;
    write(&dir, b"a.txt", b"1\r\n2\r\nmine\r\n");
    let base = world.base(&dir).await;
    let there = world.child(&base.commit, &[put("b.txt", "b\nb\n")]).await;
    let steps = [step(&there, "b")];
    let store = &world.store;
    store
        .deliver_branch(&dir, &base, "w", &steps)
        .await
        .unwrap();
    assert_eq!(git(&dir, &["show", "w:a.txt"]), "1\n2\nmine\n");
    assert_eq!(git(&dir, &["show", "w:b.txt"]), "b\nb\n");
}

#[tokio::test]
async fn what_only_a_program_of_the_operator_turns_is_on_no_branch() {
    for attributes in [
        "a.txt filter=lfs -text\n",
        "a.txt working-tree-encoding=UTF-16\n",
        "a.txt ident\n",
    ] {
        let world = World::new().await;
        let dir = world.repository("repo", &[("a.txt", "a\n"), ("b.txt", "b\n")]);
        write(&dir, b".gitattributes", attributes.as_bytes());
        let base = world.base(&dir).await;
        let edits = [put("a.txt", "$Id: plain $\n"), put("b.txt", "b\nb\n")];
        let there = world.child(&base.commit, &edits).await;
        let steps = [step(&there, "both")];
        let refused = world.store.deliver_branch(&dir, &base, "w", &steps).await;
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("a.txt (") && !error.contains("b.txt"),
            "{error}"
        );
        assert_eq!(git(&dir, &["branch", "--list", "w"]), "");
        // Beside it, what no attribute names is delivered.
        let other = world.child(&base.commit, &[put("b.txt", "b\nb\n")]).await;
        let steps = [step(&other, "b")];
        let delivered = world.store.deliver_branch(&dir, &base, "w", &steps).await;
        assert!(delivered.is_ok(), "{delivered:?}");
    }
}

/// The attributes at the start, those that an agent wrote, its file, and why there is no branch.
type Said = (
    &'static str,
    &'static str,
    &'static str,
    Option<&'static str>,
);

const CRLF: &str = "1\r\n2\r\n";

const SAID: &[Said] = &[
    (
        "",
        "*.txt filter=lfs -text\n",
        "large\n",
        Some("the filter lfs"),
    ),
    ("", "*.txt filter=known\n", "a\n", Some("the filter known")),
    ("", "*.txt filter=unknown\n", CRLF, None),
    (
        "",
        "*.txt working-tree-encoding=UTF-16\n",
        "a\n",
        Some("the encoding UTF-16"),
    ),
    ("", "*.txt ident\n", "$Id: mine $\n", Some("ident")),
    ("", "*.txt ident\n", "plain\n", None),
    ("", "*.txt text\n", CRLF, Some("line ends")),
    ("", "* text=auto\n", CRLF, Some("line ends")),
    ("", "* text=auto\n", "\0\r\n", None),
    ("", "*.txt text eol=crlf\n", "1\n2\n", None),
    // What the repository itself said holds no more.
    ("*.txt text eol=crlf\n", "", CRLF, None),
    ("*.txt text eol=crlf\n", "*.txt -text\n", CRLF, None),
    // It still says so.
    (
        "*.txt text eol=crlf\n",
        "*.txt text eol=crlf\n*.x ident\n",
        "1\n2\n",
        None,
    ),
];

/// A workspace at `prefix` of a repository with these attributes, whose filters leave a trace.
fn trapped(world: &World, prefix: &str, attributes: &str) -> std::path::PathBuf {
    let top = world.repository("repo", &[("other", "1\n")]);
    let dir = top.join(prefix);
    std::fs::create_dir_all(&dir).unwrap();
    write(&dir, b".gitattributes", attributes.as_bytes());
    write(&dir, b"b.txt", b"b\n");
    git(&top, &["add", "-A"]);
    git(&top, &["commit", "-q", "-m", "second"]);
    for filter in ["known", "lfs"] {
        for side in ["clean", "smudge", "process"] {
            let line = format!("sh -c 'touch {}; cat'", world.path("canary").display());
            git(&top, &["config", &format!("filter.{filter}.{side}"), &line]);
        }
    }
    dir
}

/// Attributes that agents wrote turn nothing: a branch holds their bytes, or there is none.
#[tokio::test]
async fn what_agents_say_of_content_turns_none_of_it() {
    for (prefix, said) in ["", "sub/dir"]
        .iter()
        .flat_map(|at| SAID.iter().map(move |s| (at, s)))
    {
        let (before, after, content, refused) = *said;
        let told = format!("{prefix:?} {said:?}");
        let world = World::new().await;
        let dir = trapped(&world, prefix, before);
        let base = world.base(&dir).await;
        let edit = match after {
            "" => delete(".gitattributes"),
            text => put(".gitattributes", text),
        };
        let there = world
            .child(&base.commit, &[edit, put("in/a.txt", content)])
            .await;
        let steps = [step(&there, "a")];
        let delivered = world.store.deliver_branch(&dir, &base, "w", &steps).await;
        assert!(!world.path("canary").exists(), "{told}");
        match (delivered, refused) {
            (Ok(delivered), None) => {
                let name = format!("w:{}", Path::new(prefix).join("in/a.txt").display());
                assert_eq!(git(&dir, &["cat-file", "blob", &name]), content, "{told}");
                let given = match after.contains("unknown") {
                    true => vec!["in/a.txt (the filter unknown)".to_owned()],
                    false => Vec::new(),
                };
                assert_eq!(delivered.given, given, "{told}");
            }
            (Err(error), Some(why)) => {
                let error = error.to_string();
                assert!(
                    error.contains(&format!("in/a.txt ({why}")),
                    "{told}: {error}"
                );
                assert_eq!(git(&dir, &["branch", "--list", "w"]), "", "{told}");
            }
            (delivered, _) => panic!("{told}: {delivered:?}"),
        }
    }
}

/// What stands above the workspace in its repository goes on to count, beside attributes of an agent's.
#[tokio::test]
async fn attributes_above_the_workspace_count_beside_those_of_agents() {
    let world = World::new().await;
    let top = attributed(&world, "*.txt text eol=crlf\n", "1\r\n").await;
    write(&top, b"sub/a.txt", b"1\r\n2\r\n");
    git(&top, &["add", "-A"]);
    git(&top, &["commit", "-q", "-m", "second"]);
    let dir = top.join("sub");
    let base = world.base(&dir).await;
    let edits = [
        put(".gitattributes", "*.x ident\n"),
        put("a.txt", "1\r\ntwo\r\n"),
    ];
    let there = world.child(&base.commit, &edits).await;
    let steps = [step(&there, "a")];
    let store = &world.store;
    store
        .deliver_branch(&dir, &base, "w", &steps)
        .await
        .unwrap();
    assert_eq!(git(&top, &["show", "w:sub/a.txt"]), "1\ntwo\n");
}
