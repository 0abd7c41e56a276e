//! The command line from outside: help, refusals, exit codes, and what is printed where.

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// `wharf` in an empty world: its own state directory, no keys, nothing of the machine's settings.
fn wharf(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home)
        .env("WHARF_HOME", home.join("state"))
        .current_dir(home)
        .timeout(std::time::Duration::from_secs(60));
    command
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs it and gives exit code, standard output and standard error.
fn run(home: &Path, args: &[&str]) -> (i32, String, String) {
    let out = wharf(home).args(args).output().unwrap();
    (
        out.status.code().unwrap(),
        text(&out.stdout),
        text(&out.stderr),
    )
}

/// The one object on standard output; more or less than one is a failure.
fn object(stdout: &str) -> Value {
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    serde_json::from_str(stdout).unwrap()
}

/// A journal of whole lines with their chain, as a run writes it.
fn write_run(home: &Path, id: &str, events: &[Value]) -> std::path::PathBuf {
    let dir = home.join("state/runs").join(id);
    std::fs::create_dir_all(&dir).unwrap();
    let mut journal = String::new();
    let mut prev = String::new();
    for (n, event) in events.iter().enumerate() {
        let mut line = serde_json::json!({
            "seq": n + 1, "at": format!("2026-01-01T00:00:{n:02}Z"), "prev": prev,
        });
        let fields = event.as_object().unwrap().clone();
        line.as_object_mut().unwrap().extend(fields);
        let line = line.to_string();
        prev = chain(&line);
        journal.push_str(&line);
        journal.push('\n');
    }
    std::fs::write(dir.join("journal.jsonl"), journal).unwrap();
    dir
}

fn chain(line: &str) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(line.as_bytes());
    digest.iter().take(8).map(|b| format!("{b:02x}")).collect()
}

fn events(id: &str) -> Vec<Value> {
    let agent = serde_json::json!({"round": 1, "subtask": "fix", "role": "coder"});
    serde_json::from_value(serde_json::json!([
        {"type": "run_started", "wharf_version": "0", "run": id, "task": "Fix\u{1b}[2J it",
         "plan_name": "p", "plan_hash": "h", "workspace": "/w", "models": ["replay:x"],
         "options": {}, "trace_id": null},
        {"type": "plan_accepted", "round": 1, "summary": "one step", "criteria": [], "subtasks": [
            {"id": "fix", "role": "coder", "title": "Fix it", "brief": "b", "needs": []},
            {"id": "look", "role": "reviewer", "title": null, "brief": "b", "needs": ["fix"]}]},
        {"type": "agent_started", "agent": agent, "kind": "worker", "model": "replay:x", "start": "c0"},
        {"type": "model_asked", "agent": agent, "call": 1, "attempt": 1, "messages": 2,
         "reserved_tokens": 100, "request_hash": "abc"},
        {"type": "model_answered", "agent": agent, "call": 1, "reply": {"text": "", "calls":
            [{"id": "1", "name": "bash", "arguments": "{\"command\":\"ls\"}"}]},
         "usage": {"input_tokens": 1200, "output_tokens": 34, "cached_tokens": 0, "estimated": false},
         "cost_usd": 0.5, "seconds": 1.5},
    ]))
    .unwrap()
}

#[test]
fn every_verb_explains_itself() {
    let home = home();
    let (code, root, _) = run(home.path(), &["--help"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!("help", root);
    for verb in ["init", "runs", "show", "log", "record", "completions"] {
        let (code, help, stderr) = run(home.path(), &[verb, "--help"]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{verb}");
        insta::assert_snapshot!(format!("help_{verb}"), help);
    }
}

#[test]
fn an_unknown_flag_is_exit_2_with_a_suggestion_in_both_forms() {
    let home = home();
    let (code, stdout, stderr) = run(home.path(), &["runs", "--limt", "3"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("--limit"), "{stderr}");
    let (code, stdout, _) = run(home.path(), &["runs", "--json", "--limt", "3"]);
    assert_eq!(code, 2);
    let error = &object(&stdout)["error"];
    assert_eq!(error["code"], 2);
    assert!(error["message"].as_str().unwrap().contains("--limt"));
    assert!(error["hint"].is_string());
}

#[test]
fn version_names_the_program() {
    let home = home();
    let (code, stdout, _) = run(home.path(), &["--version"]);
    assert_eq!(code, 0);
    assert!(stdout.starts_with("wharf 0."), "{stdout}");
}

#[test]
fn an_empty_state_directory_has_no_runs_and_says_so() {
    let home = home();
    let (code, stdout, stderr) = run(home.path(), &["runs"]);
    assert_eq!((code, stdout.as_str()), (0, ""));
    assert!(stderr.contains("no runs in"), "{stderr}");
    let (code, stdout, _) = run(home.path(), &["runs", "--json"]);
    assert_eq!(
        (code, &object(&stdout)["runs"]),
        (0, &serde_json::json!([]))
    );
    let (code, stdout, _) = run(home.path(), &["show", "last", "--json"]);
    assert_eq!(code, 2);
    assert!(
        object(&stdout)["error"]["message"]
            .as_str()
            .unwrap()
            .contains("no runs")
    );
    assert!(
        !home.path().join("state").exists(),
        "looking made a directory"
    );
}

#[test]
fn a_crashed_run_is_shown_from_its_journal_alone() {
    let home = home();
    write_run(home.path(), "r-one", &events("r-one"));
    let (code, stdout, stderr) = run(home.path(), &["show", "r-"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        !stdout.contains('\u{1b}'),
        "an escape came through: {stdout:?}"
    );
    insta::assert_snapshot!("show_crashed", stdout);
    let (_, stdout, _) = run(home.path(), &["show", "last", "--json"]);
    let shown = object(&stdout);
    assert_eq!(shown["status"], "stopped");
    assert_eq!(shown["nodes"][0]["state"], "stopped");
    let (_, stdout, _) = run(home.path(), &["runs"]);
    assert!(
        stdout.contains("r-one") && stdout.contains("stopped"),
        "{stdout}"
    );
}

#[test]
fn the_log_reads_a_line_an_event_and_ends_with_a_run_nobody_works_on() {
    let home = home();
    let dir = write_run(home.path(), "r-one", &events("r-one"));
    let (code, stdout, _) = run(home.path(), &["log", "r-one"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!("log", stdout);
    let (code, _, stderr) = run(home.path(), &["log", "r-one", "-f"]);
    assert_eq!(code, 0);
    assert!(stderr.contains("nobody works on it"), "{stderr}");
    let (_, stdout, _) = run(home.path(), &["log", "r-one", "--json"]);
    let raw = std::fs::read_to_string(dir.join("journal.jsonl")).unwrap();
    assert_eq!(stdout, raw);
}

#[test]
fn a_changed_line_of_a_journal_is_found_by_check() {
    let home = home();
    let dir = write_run(home.path(), "r-one", &events("r-one"));
    assert_eq!(run(home.path(), &["log", "last", "--check"]).0, 0);
    let path = dir.join("journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("one step", "two step", 1)).unwrap();
    let (code, stdout, _) = run(home.path(), &["log", "last", "--check"]);
    assert_eq!(code, 1);
    assert!(stdout.contains("line 3"), "{stdout}");
}

#[test]
fn record_writes_the_answers_and_never_over_a_file() {
    let home = home();
    write_run(home.path(), "r-one", &events("r-one"));
    let (code, stdout, _) = run(home.path(), &["record", "last", "-o", "c.jsonl", "--json"]);
    assert_eq!(code, 0);
    assert_eq!(object(&stdout)["answers"], 1);
    let line = object(&std::fs::read_to_string(home.path().join("c.jsonl")).unwrap());
    assert_eq!(line["key"]["subtask"], "fix");
    assert_eq!(line["request_hash"], "abc");
    assert_eq!(line["reply"]["calls"][0]["name"], "bash");
    let (code, _, stderr) = run(home.path(), &["record", "last", "-o", "c.jsonl"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("exists already"), "{stderr}");
}

#[test]
fn init_suggests_a_plan_and_keeps_an_existing_one() {
    let home = home();
    std::fs::write(home.path().join("requirements.txt"), "pytest\n").unwrap();
    assert_eq!(run(home.path(), &["init"]).0, 0);
    let path = home.path().join("wharf.yaml");
    let plan = std::fs::read_to_string(&path).unwrap();
    assert!(plan.contains("pip install -r requirements.txt"), "{plan}");
    std::fs::write(&path, "mine").unwrap();
    let (code, stdout, _) = run(home.path(), &["init", "--json"]);
    assert_eq!(code, 2);
    assert!(
        object(&stdout)["error"]["message"]
            .as_str()
            .unwrap()
            .contains("exists already")
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_closed_pipe_on_standard_output_is_no_error() {
    let home = home();
    write_run(home.path(), "r-one", &events("r-one"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_wharf"))
        .args(["show", "last"])
        .env("WHARF_HOME", home.path().join("state"))
        .stdout(writer)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_full_disk_behind_standard_output_is_told() {
    let home = home();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_wharf"))
        .arg("--help")
        .env("WHARF_HOME", home.path())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(3));
    assert!(text(&out.stderr).contains("standard output"));
}

#[test]
fn completions_know_the_verbs() {
    let home = home();
    let (code, stdout, _) = run(home.path(), &["completions", "bash"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("completions") && stdout.contains("show"));
}
