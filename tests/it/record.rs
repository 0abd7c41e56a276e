//! What a journal alone gives: result and report, a recording that can be given away; and what none of
//! its files may hold.

use std::path::Path;

use serde_json::{Value, json};
use wharf::journal::{self, State};
use wharf::model::Recording;
use wharf::run;

use crate::again::{Recorded, run_dir};
use crate::server::{Answer, Role};
use crate::world::{World, connect, passes, report, write};
use crate::{cli, crash, server};

const PLAN: &str = "version: 1
name: one
task: Do the work
run: {rounds: 1}
acceptance: {commands: [\"test -f made.txt\"], criteria: [\"It is done\"]}
subtasks:
  - {id: fix, role: coder, brief: \"BRIEF fix.\", needs: []}
";

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

/// With its figures to nine decimals, as a result is written.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let exact = number.as_f64().unwrap();
            ((exact * 1e9).round() / 1e9).into()
        }
        Value::Array(items) => items.iter().map(rounded).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.clone(), rounded(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

#[tokio::test]
async fn result_and_report_are_made_again_from_the_journal_alone() {
    let passed = crash::recorded().await;
    let failed = Recorded::of(&[], PLAN, |ask| match ask.ordinal {
        0 => write("other.txt", "made\n"),
        _ => report("failed", "it cannot be made"),
    })
    .await;
    for whole in [passed, failed] {
        let dir = run_dir(&whole.world.state);
        let lines = journal::read(&dir.join("journal.jsonl")).unwrap().lines;
        let remade = run::remade(&lines, &dir).unwrap();
        assert_eq!(remade.result, read(&dir, "result.json"));
        assert_eq!(remade.report, read(&dir, "report.md"));
        // What the last line does not repeat but sums up follows from the lines before it.
        let state = State::of(&lines[..lines.len() - 1]);
        let summed = serde_json::to_value(run::result_of(&state, &dir)).unwrap();
        let written: Value = serde_json::from_str(&remade.result).unwrap();
        for (key, value) in written.as_object().unwrap() {
            let of_the_end = [
                "status",
                "exit_code",
                "reason",
                "next",
                "seconds",
                "snapshot",
            ];
            if !of_the_end.contains(&key.as_str()) {
                assert_eq!(rounded(&summed[key]), rounded(value), "{key}");
            }
        }
        let home = whole.world.state.parent().unwrap();
        for name in ["result.json", "report.md"] {
            std::fs::rename(dir.join(name), dir.join(format!("{name}.away"))).unwrap();
        }
        let (code, stdout, _) = cli::run(home, &["show", "last", "--report"]);
        assert_eq!((code, stdout), (0, read(&dir, "report.md.away")));
        let (_, stdout, _) = cli::run(home, &["show", "last", "--json"]);
        let written: Value = serde_json::from_str(&read(&dir, "result.json.away")).unwrap();
        assert_eq!(cli::object(&stdout), written);
    }
}

/// `wharf log last --check` on a run whose directory was changed; exit code and what it says.
fn check(whole: &Recorded, change: impl FnOnce(&Path)) -> (i32, String) {
    let home = tempfile::tempdir().unwrap();
    let state = whole.killed(&whole.journal);
    let dir = home.path().join("state/runs/run");
    std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(run_dir(state.path()))
        .arg(&dir)
        .status();
    assert!(copied.unwrap().success());
    for name in ["result.json", "report.md"] {
        std::fs::copy(run_dir(&whole.world.state).join(name), dir.join(name)).unwrap();
    }
    change(&dir);
    let (code, stdout, _) = cli::run(home.path(), &["log", "last", "--check"]);
    (code, stdout)
}

fn edit(dir: &Path, name: &str, change: impl FnOnce(String) -> String) {
    let text = change(read(dir, name));
    std::fs::write(dir.join(name), text).unwrap();
}

#[tokio::test]
async fn every_change_of_what_was_recorded_is_found() {
    let whole = crash::recorded().await;
    let lines = whole.lines.len();
    let (code, said) = check(&whole, |_| {});
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with(&format!("ok: {lines} events, ")), "{said}");

    let journal =
        |change: &dyn Fn(String) -> String| check(&whole, |dir| edit(dir, "journal.jsonl", change));
    let without = |n: usize| {
        move |text: String| {
            let kept = text.split_inclusive('\n').enumerate();
            kept.filter(|(at, _)| *at + 1 != n)
                .map(|(_, l)| l)
                .collect()
        }
    };
    for n in [1, 2, lines / 2, lines - 1] {
        let (code, said) = journal(&without(n));
        assert_eq!(code, 1, "line {n} is missing: {said}");
        assert!(said.contains(&format!("line {n}")), "{said}");
    }
    // The last one leaves no gap; result.json tells of the end that is missing.
    let (code, said) = journal(&without(lines));
    assert_eq!(code, 4, "{said}");
    let (code, said) = journal(&|text| {
        let at = text.rfind("\"exit_code\":0").unwrap();
        format!("{}\"exit_code\":7{}", &text[..at], &text[at + 13..])
    });
    assert_eq!(code, 1);
    assert!(said.contains(&format!("line {lines}")), "{said}");
    for garbage in ["\0\0\0\0\n", "nonsense\n", "{}\n"] {
        let (code, said) = journal(&|text| text + garbage);
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains(&format!("lines 1 to {lines} are whole")),
            "{said}"
        );
    }
    let (code, said) = journal(&|text| text + "{\"seq\":");
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("7 bytes of an unfinished last line"),
        "{said}"
    );

    let (code, said) = check(&whole, |dir| {
        let mut outputs = std::fs::read_dir(dir.join("calls")).unwrap();
        let output = outputs.next().unwrap().unwrap().path();
        std::fs::write(output, "another output").unwrap();
    });
    assert_eq!(code, 1);
    assert!(
        said.contains("not what it was when it was written"),
        "{said}"
    );
    for name in ["result.json", "report.md"] {
        let (code, said) = check(&whole, |dir| {
            edit(dir, name, |text| text.replacen("passed", "failed", 1));
        });
        assert_eq!(code, 1);
        assert!(said.contains(&format!("{name} is not")), "{said}");
    }
}

#[tokio::test]
async fn a_secret_of_any_name_is_in_no_file_that_a_run_writes() {
    let secret = "tvly-canary-\"quoted\"-1";
    let big = format!("{secret}\n").repeat(1000);
    let plan = PLAN.replace(
        "name: one",
        "name: one\nsandbox: {env: {NOTE: 'tvly-canary-\"quoted\"-1'}}",
    );
    let world = World::new(&[("big", &big)]);
    let said = secret.to_owned();
    let server = server::FakeModel::start(move |ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => Answer::call("read_file", json!({"path": "big"})),
        (_, 1) => Answer::call("bash", json!({"command": format!("echo '{said}'; exit 3")})),
        (_, 2) => write("made.txt", "made\n"),
        (_, 3) => Answer::call("bash", json!({"command": "true"})),
        (_, _) => report("done", &format!("the key is {said}")),
    })
    .await;
    let mut order = world.order(&plan, connect(&server));
    order.keep.secrets = vec![secret.to_owned()];
    let summary = run::start(order).await.unwrap();
    assert!(!format!("{summary:?}").contains("tvly"), "{summary:?}");
    let dir = run_dir(&world.state);
    let mut seen = 0;
    for folder in [dir.clone(), dir.join("calls")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // The plan is the operator's own text, word for word.
            if path.is_file() && name != "plan.yaml" {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                assert!(!text.contains("tvly-canary"), "{name}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 4, "journal, result, report and an output: {seen}");
}

#[tokio::test]
async fn a_recording_answers_as_the_run_did_and_tells_nothing_of_the_machine() {
    let whole = Recorded::of(&[], PLAN, |ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => write("made.txt", "made\n"),
        (_, 1) => Answer::call(
            "bash",
            json!({"command": "echo sk-canary-of-now /srv/mira/x"}),
        ),
        (_, _) => report("done", "made it in /srv/mira, with sk-canary-of-now"),
    })
    .await;
    let home = whole.world.state.parent().unwrap();
    let out = cli::wharf(home)
        .env("HOME", "/srv/mira")
        .env("OPENAI_API_KEY", "sk-canary-of-now")
        .args(["record", "last"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0));
    let cassette = cli::text(&out.stdout);
    for canary in ["sk-canary", "/srv/mira", &home.display().to_string()] {
        assert!(!cassette.contains(canary), "{canary} in {cassette}");
    }
    assert!(cassette.contains("/home/user, with [secret]"), "{cassette}");
    let recording = Recording::parse("demo", &cassette).unwrap();
    assert_eq!(recording.len(), whole.requests);

    let again = World::new(&[]);
    let model = wharf::model::Replay::new(recording);
    let order = again.order(PLAN, std::sync::Arc::new(model));
    let summary = run::start(order).await.unwrap();
    assert_eq!(summary.status, whole.summary.status, "{}", summary.reason);
    assert_eq!(summary.snapshot, whole.summary.snapshot);
}
