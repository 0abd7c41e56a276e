//! Journals that are not as they were written: every verb says so, and none takes them for a pass.

use std::path::Path;

use serde_json::json;
use wharf::run::Status;

use crate::again::{Recorded, run_dir};
use crate::cli;
use crate::server::{Answer, Ask, Role};
use crate::world::{passes, report, write};

const PLAN: &str = "version: 1\nname: one\ntask: Do it\nacceptance: {criteria: [It is done]}\n\
                    subtasks: [{id: a, role: coder, brief: BRIEF a.}]\n";

fn script(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => write("made.txt", "made\n"),
        (_, 1) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "made it"),
    }
}

/// A home with the run in it, its journal changed.
fn laid(whole: &Recorded, change: impl FnOnce(&str) -> Vec<u8>) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("state/runs/run");
    std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    let from = run_dir(&whole.world.state);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(from)
        .arg(&dir)
        .status();
    assert!(copied.unwrap().success());
    let path = dir.join("journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, change(&text)).unwrap();
    home
}

/// The text with another `n`th line, from 1.
fn with_line(text: &str, n: usize, other: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, line) in text.split_inclusive('\n').enumerate() {
        match at + 1 == n {
            true => out.extend(other(line)),
            false => out.extend(line.as_bytes()),
        }
    }
    out
}

type Damage = (&'static str, fn(&str) -> Vec<u8>);

fn last(text: &str) -> usize {
    text.lines().count()
}

const DAMAGES: [Damage; 7] = [
    ("an edited line", |text| {
        with_line(text, last(text) / 2, |line| {
            line.replacen("\"at\":\"2", "\"at\":\"3", 1).into()
        })
    }),
    ("an edited last line", |text| {
        with_line(text, last(text), |line| {
            line.replacen("\"exit_code\":0", "\"exit_code\":7", 1)
                .into()
        })
    }),
    ("an edited first line", |text| {
        with_line(text, 1, |line| line.replacen("Do it", "Do is", 1).into())
    }),
    ("a missing line", |text| {
        with_line(text, last(text) / 2, |_| Vec::new())
    }),
    ("a line twice", |text| {
        with_line(text, last(text) / 2, |line| line.repeat(2).into())
    }),
    ("NULs", |text| {
        with_line(text, last(text) / 2, |line| {
            [vec![0; line.len() - 1], b"\n".to_vec()].concat()
        })
    }),
    ("garbage after the end", |text| {
        [text.as_bytes(), b"\xff\xfegarbage\n"].concat()
    }),
];

/// Every verb that reads a run, but those that need an engine.
const VERBS: [&[&str]; 13] = [
    &["show", "run"],
    &["show", "run", "--json"],
    &["show", "run", "--report"],
    &["log", "run"],
    &["log", "run", "--check"],
    &["diff", "run"],
    &["apply", "run"],
    &["apply", "run", "--force"],
    &["replay", "run", "--tools", "recorded"],
    &["resume", "run"],
    &["record", "run"],
    &["trace", "run"],
    &["plan", "draw", "run"],
];

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn no_verb_takes_a_damaged_journal_for_a_pass() {
    let whole = Recorded::of(&[("a.txt", "a\n")], PLAN, script).await;
    assert_eq!(
        whole.summary.status,
        Status::Passed,
        "{}",
        whole.summary.reason
    );
    for (name, damage) in DAMAGES {
        let home = laid(&whole, damage);
        let dir = home.path().join("state/runs/run");
        let (before, workspace) = (files(&dir), files(&whole.world.workspace));
        for verb in VERBS {
            let (code, stdout, stderr) = cli::run(home.path(), verb);
            let at = format!("{name}, {verb:?}: {code}\n{stdout}\n{stderr}");
            assert!([1, 3].contains(&code), "{at}");
            assert!(
                stdout.contains(" line ") || stderr.contains(" line "),
                "{at}"
            );
            assert!(
                !stdout.contains("passed  run") && !stderr.contains("bug"),
                "{at}"
            );
            assert_eq!(files(&dir), before, "{at}");
        }
        assert_eq!(files(&whole.world.workspace), workspace, "{name}");
        let (code, stdout, _) = cli::run(home.path(), &["show", "run"]);
        assert_eq!(code, 3);
        assert!(
            stdout.starts_with("damaged") && stdout.contains("result.json says passed"),
            "{stdout}"
        );
        let (_, stdout, _) = cli::run(home.path(), &["show", "run", "--json"]);
        let shown = cli::object(&stdout);
        assert_eq!(
            (&shown["status"], &shown["claimed"]["status"]),
            (&json!("damaged"), &json!("passed"))
        );
        let (code, stdout, _) = cli::run(home.path(), &["runs", "--json"]);
        let row = cli::object(&stdout)["runs"][0].clone();
        assert_eq!(
            (code, &row["status"], &row["exit_code"]),
            (0, &json!("damaged"), &json!(null)),
            "{name}"
        );
        let (_, stdout, _) = cli::run(home.path(), &["runs"]);
        assert!(stdout.contains("`wharf log run --check`"), "{stdout}");
    }
}

/// Cut off at its end a journal is no damaged one: what is there counts, and the rest is told.
#[tokio::test]
async fn a_torn_tail_is_told_and_what_the_journal_does_not_hold_is_no_end() {
    let whole = Recorded::of(&[("a.txt", "a\n")], PLAN, script).await;
    let home = laid(&whole, |text| [text.as_bytes(), b"{\"seq\":"].concat());
    for verb in ["show", "log"] {
        let (code, _, stderr) = cli::run(home.path(), &[verb, "run"]);
        assert_eq!(code, 0, "{stderr}");
        assert!(
            stderr.contains("7 bytes of an unfinished last line"),
            "{verb}: {stderr}"
        );
    }
    // The end itself is torn: result.json alone does not make it one.
    let home = laid(&whole, |text| text[..text.len() - 20].into());
    let (code, stdout, stderr) = cli::run(home.path(), &["show", "run"]);
    assert_eq!(code, 0);
    assert!(stdout.starts_with("crashed, can be resumed"), "{stdout}");
    assert!(stderr.contains("result.json tells of an end"), "{stderr}");
    let (_, stdout, _) = cli::run(home.path(), &["runs", "--json"]);
    assert_eq!(cli::object(&stdout)["runs"][0]["status"], "stopped");
    let (code, _, _) = cli::run(home.path(), &["apply", "run"]);
    assert_eq!(code, 1);
    // Only the newline is gone: the record is whole.
    let home = laid(&whole, |text| text.trim_end().into());
    let (_, stdout, stderr) = cli::run(home.path(), &["log", "run"]);
    assert_eq!(
        (stdout.lines().count(), stderr.as_str()),
        (whole.lines.len(), "")
    );
    let (code, _, stderr) = cli::run(home.path(), &["show", "run"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
}

/// What result.json says is believed by nobody who has the journal.
#[tokio::test]
async fn an_edited_result_changes_nothing_of_what_the_journal_says() {
    let whole = Recorded::of(&[("a.txt", "a\n")], PLAN, |ask: &Ask| match ask.role {
        Role::Verifier => Answer::text("no verdict"),
        _ => script(ask),
    })
    .await;
    assert_eq!(whole.summary.status, Status::Unverified);
    let home = laid(&whole, |text| text.into());
    let path = home.path().join("state/runs/run/result.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replacen("\"unverified\"", "\"passed\"", 1).replacen(
        "\"status\": \"unknown\"",
        "\"status\": \"pass\"",
        9,
    );
    std::fs::write(&path, text).unwrap();
    let (_, stdout, _) = cli::run(home.path(), &["show", "run"]);
    assert!(stdout.starts_with("unverified"), "{stdout}");
    let (_, stdout, _) = cli::run(home.path(), &["runs", "--json"]);
    assert_eq!(cli::object(&stdout)["runs"][0]["status"], "unverified");
    let (code, _, stderr) = cli::run(home.path(), &["apply", "run"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("has not passed"), "{stderr}");
}
