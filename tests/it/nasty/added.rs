//! What a result adds without anybody having looked for it, and what it lacks: said in time.

use serde_json::json;
use wharf::run::{Status, apply};
use wharf::workspace::{Applied, Force};

use super::runs::PLAN;
use crate::server::{Answer, Ask, Role};
use crate::workspace::fixture::{self, git, operators_git, read, write as lay};
use crate::world::{Ran, World, passes, report, write};

/// A coder that writes these files, and a verifier that passes.
pub fn writes(
    files: &'static [(&'static str, &'static str)],
) -> impl Fn(&Ask) -> Answer + Send + Sync {
    move |ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, at) if at < files.len() => write(files[at].0, files[at].1),
        (_, at) if at == files.len() => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "wrote them"),
    }
}

fn hiding() -> String {
    format!("{PLAN}workspace: {{hide: [\"*.hid\", \"**/secrets/**\"]}}\n")
}

/// The first message of the verifier.
fn told_verifier(ran: &Ran) -> String {
    let requests = ran.server.requests();
    let texts = requests
        .iter()
        .map(|body| body["messages"][1]["content"].to_string());
    let mut texts = texts.filter(|text| text.contains("Task that was worked"));
    texts.next().unwrap_or_default()
}

fn repository(files: &[(&str, &str)]) -> World {
    let world = World::new(files);
    fixture::init(&world.workspace);
    git(&world.workspace, &["add", "-A"]);
    git(&world.workspace, &["commit", "-q", "-m", "first"]);
    world
}

#[tokio::test]
async fn a_new_file_of_a_withheld_name_is_in_the_result_and_said_to_all() {
    let world = repository(&[("a", "1\n")]);
    let plan = format!("{PLAN}workspace: {{hide: [\"*.hid\"], include: [\"shown.hid\"]}}\n");
    let files = &[("new.hid", "KEY=\n"), ("shown.hid", "x\n"), ("b", "b\n")];
    let ran = world.run(&plan, writes(files)).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let branch = ran.summary.branch.as_ref().unwrap();
    let names = git(&world.workspace, &["diff", "--name-only", "HEAD", branch]);
    assert_eq!(names, "b\nnew.hid\nshown.hid\n");
    let warnings = ran.summary.warnings.join("\n");
    assert!(
        warnings.contains("the result adds new.hid, whose name `workspace.hide`"),
        "{warnings}"
    );
    assert!(!warnings.contains("shown.hid"), "{warnings}");
    let told = told_verifier(&ran);
    assert!(told.contains("names that are withheld"), "{told}");
    let report = std::fs::read_to_string(world.state.join("runs/run/report.md")).unwrap();
    assert!(
        report.contains("Warning: the result adds new.hid"),
        "{report}"
    );
    let result = std::fs::read_to_string(world.state.join("runs/run/result.json")).unwrap();
    assert!(result.contains("the result adds new.hid"), "{result}");
}

#[tokio::test]
async fn a_file_in_the_place_of_a_withheld_one_is_left_out_and_said_to_all() {
    let world = repository(&[("a", "1\n")]);
    lay(&world.workspace, b"own.hid", b"KEY=canary\n");
    let ran = world
        .run(&hiding(), writes(&[("own.hid", "KEY=x\n"), ("b", "b\n")]))
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let branch = ran.summary.branch.as_ref().unwrap();
    let names = git(&world.workspace, &["diff", "--name-only", "HEAD", branch]);
    assert_eq!(names, "b\n");
    let left = &ran.summary.left_out;
    assert!(
        left.iter()
            .any(|left| left.path == "own.hid" && left.reason.contains("withheld")),
        "{left:?}"
    );
    let warnings = ran.summary.warnings.join("\n");
    assert!(
        warnings.contains("own.hid (a file of this name is withheld"),
        "{warnings}"
    );
    let told = told_verifier(&ran);
    assert!(
        told.contains("- own.hid: a file of this name is withheld"),
        "{told}"
    );
    assert_eq!(read(&world.workspace, "own.hid"), "KEY=canary\n");
}

/// Neither a file in the place of a folder with withheld files nor a folder in the place of a withheld
/// file makes a branch without them; nor does a file in the place of one that is not checked out.
#[tokio::test]
async fn nothing_takes_the_place_of_what_agents_do_not_see() {
    let world = repository(&[
        ("a", "1\n"),
        ("own.hid", "KEY=canary\n"),
        ("conf/secrets/key", "canary\n"),
        ("in/x", "1\n"),
        ("out/y", "2\n"),
    ]);
    git(&world.workspace, &["sparse-checkout", "set", "in", "conf"]);
    let files = &[
        ("own.hid/x", "x\n"),
        ("conf/secrets", "x\n"),
        ("out/y", "theirs\n"),
        ("out/z", "new\n"),
        ("b", "b\n"),
    ];
    let ran = world.run(&hiding(), writes(files)).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let branch = ran.summary.branch.as_ref().unwrap();
    let changed = git(&world.workspace, &["diff", "--name-status", "HEAD", branch]);
    assert_eq!(changed, "A\tb\nA\tout/z\n");
    let left: Vec<&str> = ran
        .summary
        .left_out
        .iter()
        .filter(|left| left.subtask.is_some())
        .map(|left| &left.path[..])
        .collect();
    assert_eq!(left, ["conf/secrets", "out/y", "own.hid/x"]);
}

/// A file in the place of a folder that holds something withheld: what was removed to make way for it
/// stays as well, and both are named.
#[tokio::test]
async fn what_made_way_for_a_refused_file_stays() {
    let world = repository(&[
        ("a", "1\n"),
        ("pkg/k.hid", "KEY=canary\n"),
        ("pkg/x.py", "x\n"),
        ("pkgs/y.py", "y\n"),
    ]);
    let script = |ask: &Ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => Answer::call(
            "bash",
            json!({"command": "rm pkg/x.py; rm pkgs/y.py; echo file > pkg; echo b > b"}),
        ),
        _ => report("done", "made pkg a file"),
    };
    let ran = world.run(&hiding(), script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let branch = ran.summary.branch.as_ref().unwrap();
    let changed = git(&world.workspace, &["diff", "--name-status", "HEAD", branch]);
    assert_eq!(changed, "A\tb\nD\tpkgs/y.py\n");
    let warnings = ran.summary.warnings.join("\n");
    assert!(
        warnings.contains("pkg (it would take the place")
            && warnings.contains("pkg/x.py (its removal"),
        "{warnings}"
    );
}

/// What only the operator's own machine ignores is unknown in a sandbox: git would replace it without
/// asking where the branch is merged, so it is said before.
#[tokio::test]
async fn a_new_file_where_an_ignored_one_stands_is_warned_of() {
    let world = repository(&[("a", "1\n")]);
    let exclude = world.workspace.join(".git/info/exclude");
    std::fs::create_dir_all(exclude.parent().unwrap()).unwrap();
    std::fs::write(&exclude, "local.toml\nbuild/\nlog\n").unwrap();
    for mine in ["local.toml", "build/out", "log"] {
        lay(&world.workspace, mine.as_bytes(), b"mine\n");
    }
    let ran = world
        .run(
            PLAN,
            writes(&[
                ("build", "a file\n"),
                ("log/x", "in a folder\n"),
                ("local.toml", "theirs\n"),
                ("a", "2\n"),
                ("b", "b\n"),
            ]),
        )
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let branch = ran.summary.branch.as_ref().unwrap();
    let names = git(&world.workspace, &["diff", "--name-only", "HEAD", branch]);
    assert_eq!(names, "a\nb\nbuild\nlocal.toml\nlog/x\n");
    let warnings = ran.summary.warnings.join("\n");
    assert!(
        warnings.contains("the result adds build, local.toml, log/x, where something stands"),
        "{warnings}"
    );
    let put = apply(operators_git(), &world.state.join("runs/run"), Force::No)
        .await
        .unwrap();
    assert!(matches!(put.applied, Applied::Refused { .. }), "{put:?}");
    for mine in ["local.toml", "build/out", "log"] {
        assert_eq!(read(&world.workspace, mine), "mine\n");
    }
}

const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
const OTHER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:5d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 54321\n";

/// A repository under LFS whose driver would leave a trace, as `git lfs install` sets one up.
fn large_files(content: &str) -> World {
    let world = repository(&[("image.bin", content), ("a", "1\n")]);
    lay(
        &world.workspace,
        b".gitattributes",
        b"*.bin filter=lfs diff=lfs merge=lfs -text\n",
    );
    git(&world.workspace, &["add", ".gitattributes"]);
    git(&world.workspace, &["commit", "-q", "-m", "attributes"]);
    let canary = world.state.parent().unwrap().join("canary");
    for side in ["clean", "smudge", "process"] {
        let line = format!("sh -c 'touch {}; cat'", canary.display());
        git(
            &world.workspace,
            &["config", &format!("filter.lfs.{side}"), &line],
        );
    }
    git(&world.workspace, &["config", "filter.lfs.required", "true"]);
    world
}

/// A pointer that stays a pointer is what the repository holds anyway.
#[tokio::test]
async fn an_edited_pointer_of_lfs_lands_on_a_branch() {
    let world = large_files(POINTER);
    let ran = world
        .run(
            PLAN,
            writes(&[("image.bin", OTHER), ("new.bin", POINTER), ("b", "b\n")]),
        )
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let branch = ran
        .summary
        .branch
        .clone()
        .unwrap_or_else(|| panic!("{:?}", ran.summary.warnings));
    let shown = |path: &str| {
        git(
            &world.workspace,
            &["cat-file", "blob", &format!("{branch}:{path}")],
        )
    };
    assert_eq!(
        (shown("image.bin"), shown("new.bin")),
        (OTHER.to_owned(), POINTER.to_owned())
    );
    assert!(!world.state.parent().unwrap().join("canary").exists());
}

/// Content under the attribute is on no branch; it is said what to do, and the patch and `wharf apply` hold all of it.
#[tokio::test]
async fn content_under_lfs_is_a_patch_that_applies_and_an_apply_has_it_all() {
    let world = large_files("content\n");
    let files = &[
        ("image.bin", "other content\n"),
        ("new.bin", "new content\n"),
        ("b", "b\n"),
    ];
    let ran = world.run(PLAN, writes(files)).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.branch, None);
    let warnings = ran.summary.warnings.join("\n");
    for part in [
        "image.bin (the filter lfs)",
        "new.bin (the filter lfs)",
        "`wharf apply`",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    assert!(!world.state.parent().unwrap().join("canary").exists());
    let patch = ran.summary.patch.as_ref().unwrap();
    // On a machine without LFS git takes the patch as it is.
    let plain = world.state.parent().unwrap().join("plain");
    fixture::init(&plain);
    for (path, content) in [("image.bin", "content\n"), ("a", "1\n")] {
        lay(&plain, path.as_bytes(), content.as_bytes());
    }
    git(&plain, &["apply", patch]);
    let put = apply(operators_git(), &world.state.join("runs/run"), Force::No)
        .await
        .unwrap();
    assert!(matches!(put.applied, Applied::Done { .. }), "{put:?}");
    for dir in [&plain, &world.workspace] {
        for (path, content) in files {
            assert_eq!(read(dir, path), *content);
        }
    }
    assert!(!world.state.parent().unwrap().join("canary").exists());
}

/// Work inside a submodule and beside it comes back together, in a form that git takes.
#[tokio::test]
async fn work_in_submodules_and_beside_them_is_a_patch_that_applies() {
    let mut world = World::new(&[]);
    let top = tempfile::tempdir().unwrap();
    world.workspace = super::repositories::submodules(top.path());
    let files = &[
        ("inside/a", "changed inside\n"),
        ("inside/made", "made inside\n"),
        ("away/made", "made where nothing is checked out\n"),
        ("a", "changed\n"),
    ];
    let ran = world.run(PLAN, writes(files)).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.branch, None);
    let warnings = ran.summary.warnings.join("\n");
    assert!(warnings.contains("a repository of its own"), "{warnings}");
    let patch = ran.summary.patch.as_ref().unwrap();
    git(&world.workspace, &["apply", patch]);
    for (path, content) in files {
        assert_eq!(read(&world.workspace, path), *content, "{path}");
    }
    let put = apply(operators_git(), &world.state.join("runs/run"), Force::No)
        .await
        .unwrap();
    assert_eq!(
        put.applied,
        Applied::Done { paths: Vec::new() },
        "it is all there already"
    );
}
