//! A hundred subtasks merged over 50,000 files against bare `git merge-tree` on the same pairs, as
//! one JSON object: `cargo bench --bench merge`. `--files N` and `--subtasks N` change the sizes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench stops at its first surprise, and prints"
)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use wharf::id::CommitId;
use wharf::workspace::{Edit, Git, Merged, Mode, Store};

/// Times the whole is measured. The quickest counts: other work on the machine only ever adds.
const ROUNDS: usize = 5;

fn main() {
    let number = |flag: &str, default: usize| {
        let given = std::env::args().skip_while(|arg| arg != flag).nth(1);
        given.map_or(default, |text| text.parse().expect("a number"))
    };
    let (files, subtasks) = (number("--files", 50_000), number("--subtasks", 100));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let figures = runtime.block_on(measure(files, subtasks));
    println!("{}", serde_json::to_string_pretty(&figures).unwrap());
}

async fn measure(files: usize, subtasks: usize) -> serde_json::Value {
    let dir = tempfile::tempdir().unwrap();
    let prepared = dir.path().join("prepared.git");
    let git = Git::at(env!("PATH"));
    let store = Store::create(git, &prepared).await.unwrap();
    let base = store.commit(&[], &tree(files), "base").await.unwrap();
    let mut work = Vec::new();
    let before = store.processes();
    for subtask in 0..subtasks {
        let edits = edits(subtask, files);
        let parents = [base.clone()];
        work.push(store.commit(&parents, &edits, "work").await.unwrap());
    }
    let snapshots = store.processes() - before;
    let (mut ours, mut bare, mut processes) = (Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS {
        let copy = dir.path().join(format!("ours-{round}.git"));
        copy_store(&prepared, &copy);
        let store = Store::open(Git::at(env!("PATH")), &copy).unwrap();
        let since = Instant::now();
        let folded = store.merge_all(&work).await.unwrap();
        ours.push(since.elapsed());
        processes = store.processes();
        let Merged::Clean(merged) = folded.merged else {
            panic!("the bench's own edits conflict");
        };
        let copy = dir.path().join(format!("bare-{round}.git"));
        copy_store(&prepared, &copy);
        let (took, tree) = bare_merges(&copy, &work);
        bare.push(took);
        assert_eq!(store.tree(&merged).await.unwrap().as_str(), tree);
    }
    let figures = |times: &[Duration]| {
        let mut ms: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        json!({"least": ms[0], "median": ms[ms.len() / 2]})
    };
    let (ours, bare) = (figures(&ours), figures(&bare));
    let ratio = |key: &str| {
        let of = |figure: &serde_json::Value| figure[key].as_f64().unwrap_or(f64::NAN);
        of(&ours) / of(&bare)
    };
    json!({
        "files": files,
        "subtasks": subtasks,
        "git_processes_a_snapshot": snapshots as f64 / subtasks as f64,
        "git_processes_a_merge": processes as f64 / (subtasks - 1) as f64,
        "ratio": {"least": ratio("least"), "median": ratio("median")},
        "merged_ms": ours,
        "bare_merge_tree_ms": bare,
    })
}

/// A hundred files a folder, ten lines a file.
fn tree(files: usize) -> Vec<Edit> {
    (0..files).map(|n| put(n, &text(n, None))).collect()
}

/// Two files of its own, a new one, and a line of one that all share.
fn edits(subtask: usize, files: usize) -> Vec<Edit> {
    let own = |n: usize| (subtask * 131 + n * 17) % files.max(1);
    let mut edits: Vec<Edit> = (0..2)
        .map(|n| put(own(n), &text(own(n), Some(subtask % 10))))
        .collect();
    edits.push(Edit::Put {
        path: format!("new/{subtask}").into(),
        mode: Mode::File,
        content: Bytes::from("new\n"),
    });
    edits
}

fn put(n: usize, text: &str) -> Edit {
    Edit::Put {
        path: format!("d{}/s{}/f{n}.txt", n / 10_000, n / 100).into(),
        mode: Mode::File,
        content: Bytes::from(text.to_owned()),
    }
}

fn text(n: usize, changed: Option<usize>) -> String {
    let line = |at| match changed == Some(at) {
        true => format!("changed {n} {at}\n"),
        false => format!("line {n} {at}\n"),
    };
    (0..10).map(line).collect()
}

fn copy_store(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(done.unwrap().success());
    // What the copy left to be written is nobody's to wait for.
    let done = Command::new("sync").arg("-f").arg(to).status();
    assert!(done.unwrap().success());
}

/// The same merges by git alone; only `merge-tree` is timed, not the commits that tie them together.
fn bare_merges(store: &Path, work: &[CommitId]) -> (Duration, String) {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .arg(format!("--git-dir={}", store.display()))
            .args([
                "-c",
                "merge.directoryRenames=false",
                "-c",
                "user.name=b",
                "-c",
                "user.email=b",
            ])
            .args(args)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let mut merged = work[0].to_string();
    let (mut took, mut tree) = (Duration::ZERO, String::new());
    for next in &work[1..] {
        let since = Instant::now();
        tree = git(&["merge-tree", "--write-tree", &merged, next.as_str()]);
        took += since.elapsed();
        merged = git(&[
            "commit-tree",
            &tree,
            "-m",
            "m",
            "-p",
            &merged,
            "-p",
            next.as_str(),
        ]);
    }
    (took, tree)
}
