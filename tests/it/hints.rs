//! What somebody is told who knows only the README: early, once, and with what to do next.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::{events, home, object, run, wharf, write_run};
use crate::workspace::fixture::{git, init};
use crate::world::put;

/// A repository with one commit in `home/r`.
fn repository(home: &Path) {
    let top = home.join("r");
    init(&top);
    put(&top.join("a.txt"), "a\n");
    put(&top.join(".gitignore"), "in/\n");
    put(&top.join("in/a.txt"), "a\n");
    git(&top, &["add", "-A"]);
    git(&top, &["commit", "-q", "-m", "first"]);
}

/// `wharf run` in `place` is refused with exit 2 and these words, before an engine is looked for.
fn refused(home: &Path, place: &str, args: &[&str], says: &str) {
    let mut command = wharf(home);
    command.env("DOCKER_HOST", "unix:///nope");
    command.env("OPENAI_API_KEY", "k-123456789");
    let words = ["run", "t", "--json", "-m", "openai/x", "-C", place];
    let out = command.args(words).args(args).output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{args:?}: {told}");
    let error = &object(&String::from_utf8_lossy(&out.stdout))["error"];
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(says), "{args:?}: {message}");
    assert!(!error["hint"].as_str().unwrap().is_empty(), "{error}");
    assert!(!home.join("state/runs").exists(), "a run was begun");
}

#[test]
fn a_branch_that_cannot_be_made_is_refused_before_anything_starts() {
    let home = home();
    repository(home.path());
    git(&home.path().join("r"), &["branch", "there/too"]);
    for name in ["a b..c", "HEAD", "-x", "a.lock"] {
        let flag = format!("--branch={name}");
        refused(home.path(), "r", &[&flag], "cannot be the name");
    }
    for name in ["main", "there", "there/too", "there/too/deep"] {
        refused(home.path(), "r", &["--branch", name], "exists already");
    }
    refused(home.path(), "r/in", &["--branch", "b"], "no git repository");
    init(&home.path().join("unborn"));
    refused(
        home.path(),
        "unborn",
        &["--branch", "main"],
        "exists already",
    );
    let long = ["init", "-q", "--object-format=sha256", "long"];
    git(home.path(), &long);
    refused(home.path(), "long", &["--branch", "b"], "sha256");
}

#[test]
fn a_file_that_cannot_be_made_or_would_be_replaced_is_refused_before_anything_starts() {
    let home = home();
    put(&home.path().join("there.patch"), "mine\n");
    std::os::unix::fs::symlink("nowhere", home.path().join("link.patch")).unwrap();
    std::fs::create_dir(home.path().join("folder")).unwrap();
    let plan = ["--plan-only", "-o"];
    for flag in [&["--patch"][..], &plan] {
        let with = |path: &'static str| [flag, &[path]].concat();
        refused(home.path(), ".", &with("no/such/x.patch"), "no such folder");
        refused(home.path(), ".", &with("folder"), "is a directory");
        refused(home.path(), ".", &with("there.patch"), "there is a file");
        refused(home.path(), ".", &with("link.patch"), "there is a file");
        refused(home.path(), ".", &with("there.patch/x"), "there.patch");
        refused(home.path(), ".", &with("/dev/null"), "there is a file");
        refused(home.path(), ".", &with("/proc/x.patch"), "/proc");
    }
    let mine = std::fs::read_to_string(home.path().join("there.patch")).unwrap();
    assert_eq!(mine, "mine\n");
    // An empty file holds nothing to lose: only the engine is missing.
    put(&home.path().join("empty.patch"), "");
    let mut command = wharf(home.path());
    command.env("DOCKER_HOST", "unix:///nope");
    command.env("OPENAI_API_KEY", "k-123456789");
    let words = ["run", "t", "-m", "openai/x", "--patch", "empty.patch"];
    assert_eq!(command.args(words).output().unwrap().status.code(), Some(3));
}

/// A run whose journal is whole and has its end.
fn ended(home: &Path) -> PathBuf {
    let mut lines = events("r-one");
    lines.push(
        json!({"type": "run_ended", "status": "error", "exit_code": 3,
        "reason": "the store broke", "result": null}),
    );
    write_run(home, "r-one", &lines)
}

#[test]
fn a_run_that_ended_without_a_result_is_shown_as_what_it_is() {
    let home = home();
    ended(home.path());
    let (code, stdout, _) = run(home.path(), &["show", "last"]);
    assert_eq!(code, 0);
    assert!(stdout.starts_with("error  run r-one"), "{stdout}");
    assert!(stdout.contains("the store broke"), "{stdout}");
    let (_, stdout, _) = run(home.path(), &["show", "last", "--json"]);
    assert_eq!(object(&stdout)["status"], "error");
}

#[test]
fn a_run_that_cannot_be_read_is_told_by_what_is_wrong_with_it() {
    let home = home();
    std::fs::create_dir_all(home.path().join("state/runs/r-none")).unwrap();
    let (code, _, stderr) = run(home.path(), &["show", "r-none"]);
    assert_eq!(code, 3);
    assert!(stderr.contains("no run ever began there"), "{stderr}");
    assert!(!stderr.contains("--check"), "{stderr}");

    let dir = ended(home.path());
    let path = dir.join("journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("one step", "two step", 1)).unwrap();
    std::fs::write(dir.join("result.json"), "").unwrap();
    let (code, _, stderr) = run(home.path(), &["show", "r-one"]);
    assert_eq!(code, 3);
    assert!(
        stderr.contains("line 3") && stderr.contains("report.md"),
        "{stderr}"
    );
}
