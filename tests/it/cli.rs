//! The command line from outside: help, refusals, exit codes, and what is printed where.

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// `wharf` in an empty world: its own state directory, no keys, nothing of the machine's settings.
pub fn wharf(home: &Path) -> Command {
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

pub fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs it and gives exit code, standard output and standard error.
pub fn run(home: &Path, args: &[&str]) -> (i32, String, String) {
    let out = wharf(home).args(args).output().unwrap();
    (
        out.status.code().unwrap(),
        text(&out.stdout),
        text(&out.stderr),
    )
}

/// The one object on standard output; more or less than one is a failure.
pub fn object(stdout: &str) -> Value {
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    serde_json::from_str(stdout).unwrap()
}

/// A journal of whole lines with their chain, as a run writes it.
pub fn write_run(home: &Path, id: &str, events: &[Value]) -> std::path::PathBuf {
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

pub fn events(id: &str) -> Vec<Value> {
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

const VERBS: [&str; 25] = [
    "run",
    "resume",
    "init",
    "plan",
    "plan check",
    "plan draw",
    "plan schema",
    "images",
    "images build",
    "images list",
    "runs",
    "show",
    "diff",
    "log",
    "trace",
    "shell",
    "apply",
    "replay",
    "record",
    "clean",
    "config",
    "config show",
    "doctor",
    "models",
    "completions",
];

#[test]
fn every_verb_explains_itself() {
    let home = home();
    let (code, root, _) = run(home.path(), &["--help"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!("help", root);
    for verb in VERBS {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let (code, help, stderr) = run(home.path(), &words);
        assert_eq!((code, stderr.as_str()), (0, ""), "{verb}");
        insta::assert_snapshot!(format!("help_{}", verb.replace(' ', "_")), help);
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
    assert!(
        stderr.contains("no runs in") && stderr.contains("wharf run"),
        "{stderr}"
    );
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

/// Refused before anything is connected: exit 2, one error object, the flag or the place named.
fn refused(args: &[&str], says: &str) {
    let home = home();
    let mut words = vec!["run", "--json", "--model", "openai/x"];
    words.extend(args);
    let (code, stdout, stderr) = run(home.path(), &words);
    assert_eq!(code, 2, "{args:?}: {stderr}");
    let error = &object(&stdout)["error"];
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(says), "{args:?}: {message}");
    assert!(error["hint"].is_string());
    assert!(!home.path().join("state/runs").exists(), "a run was begun");
}

#[test]
fn numbers_that_make_no_sense_are_refused_before_anything_starts() {
    refused(&["t", "--budget-usd", "-1"], "--budget-usd");
    refused(&["t", "--budget-usd", "nan"], "--budget-usd");
    refused(&["t", "--budget-tokens", "abc"], "--budget-tokens");
    refused(&["t", "--budget-tokens", "-5"], "--budget-tokens");
    refused(&["t", "--parallel", "0"], "--parallel");
    refused(&["t", "--timeout", "-3m"], "--timeout");
    refused(&["t", "--timeout", "soon"], "--timeout");
    refused(&["t", "--mode", "yolo"], "--mode");
    refused(&["t", "--run-id", "../x"], "--run-id");
    refused(&["t", "--run-id", "last"], "last");
}

#[test]
fn a_task_that_is_missing_empty_or_double_is_refused() {
    refused(&[], "no task");
    refused(&["  "], "task is empty");
    refused(&["t", "--task-file", "f"], "--task-file");
    refused(&["--task-file", "absent"], "absent");
    refused(&["t", "-C", "absent"], "absent");
    refused(&["t", "--branch", "b"], "no git repository");
    refused(&["t", "--branch", "b", "--patch", "p"], "--patch");
    refused(&["t", "-f", "absent.yaml"], "absent.yaml");
}

#[test]
fn the_task_of_a_plan_and_of_the_command_line_exclude_each_other() {
    let home = home();
    let plan = "version: 1\ntask: fix it\n";
    std::fs::write(home.path().join("wharf.yaml"), plan).unwrap();
    let (code, stdout, _) = run(home.path(), &["run", "another", "--json"]);
    assert_eq!(code, 2);
    let object = object(&stdout);
    let message = object["error"]["message"].as_str().unwrap();
    assert!(message.contains("the plan has one of its own"), "{message}");
}

#[test]
fn a_task_is_read_from_standard_input_for_a_dash() {
    let home = home();
    let mut command = wharf(home.path());
    command.args(["run", "--task-file", "-", "--model", "openai/x"]);
    let out = command.write_stdin("   \n").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("task is empty"));
}

#[test]
fn a_plan_error_has_its_place_for_people_and_programs() {
    let home = home();
    let bad = home.path().join("bad.yaml");
    std::fs::write(&bad, "version: 1\nrolls: {}\n").unwrap();
    std::fs::write(home.path().join("good.yaml"), "version: 1\n").unwrap();
    let files = ["good.yaml", "bad.yaml"];
    let (code, stdout, stderr) = run(home.path(), &[&["plan", "check"], &files[..]].concat());
    assert_eq!(code, 2);
    assert!(stdout.starts_with("good.yaml: ok: "), "{stdout}");
    assert!(stderr.contains("bad.yaml:2:1"), "{stderr}");
    assert_eq!(stderr.matches("hint:").count(), 1, "{stderr}");
    let (code, stdout, _) = run(
        home.path(),
        &[&["plan", "check", "--json"], &files[..]].concat(),
    );
    assert_eq!(code, 2);
    let object = object(&stdout);
    assert_eq!(object["plans"][0]["ok"], true);
    let hint = object["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("roles"), "{object}");
    refused(&["t", "-f", bad.to_str().unwrap()], "bad.yaml:2:1");
}

#[test]
fn checking_a_run_instead_of_a_file_names_the_plan_of_that_run() {
    let home = home();
    let dir = write_run(home.path(), "r-one", &events("r-one"));
    let (code, _, stderr) = run(home.path(), &["plan", "check", "last"]);
    assert_eq!(code, 2);
    let plan = dir.join("plan.yaml").display().to_string();
    assert!(stderr.contains(&plan), "{stderr}");
}

#[test]
fn a_plan_and_a_run_are_drawn() {
    let home = home();
    let plan = "version: 1\nsubtasks:\n- {id: a, role: coder, brief: x}\n\
                - {id: b, role: coder, brief: y, needs: [a]}\n";
    std::fs::write(home.path().join("p.yaml"), plan).unwrap();
    let (code, stdout, stderr) = run(home.path(), &["plan", "draw", "p.yaml"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("flowchart") && stdout.contains("n0 --> n1"));
    write_run(home.path(), "r-one", &events("r-one"));
    let (code, stdout, _) = run(home.path(), &["plan", "draw", "last", "--format", "dot"]);
    assert_eq!(code, 0);
    assert!(stdout.starts_with("digraph") && stdout.contains("look"));
    let mut lines = events("r-two");
    lines.push(
        serde_json::json!({"type": "conflict_found", "id": "merge-abcdef123456", "ours": "c1",
        "theirs": "c2", "files": ["a.txt"], "ours_by": ["fix"], "theirs_by": ["look"]}),
    );
    write_run(home.path(), "r-two", &lines);
    let (_, stdout, _) = run(home.path(), &["plan", "draw", "r-two", "--format", "dot"]);
    assert!(
        stdout.contains("merge-abcdef123456") && stdout.contains("conflict in a.txt"),
        "{stdout}"
    );
    assert!(
        stdout.contains("n0 -> n2;") && stdout.contains("n1 -> n2;"),
        "{stdout}"
    );
    let (code, stdout, _) = run(home.path(), &["plan", "schema"]);
    assert_eq!(code, 0);
    let schema: Value = serde_json::from_str(&stdout).unwrap();
    assert!(schema["properties"]["roles"].is_object());
}

#[test]
fn init_writes_a_plan_that_checks() {
    for file in [
        "requirements.txt",
        "Cargo.toml",
        "package.json",
        "go.mod",
        "pom.xml",
        "build.gradle",
        "Makefile",
        "nothing",
    ] {
        let home = home();
        std::fs::write(home.path().join(file), "").unwrap();
        assert_eq!(run(home.path(), &["init"]).0, 0);
        let (code, _, stderr) = run(home.path(), &["plan", "check", "wharf.yaml"]);
        assert_eq!(code, 0, "{file}: {stderr}");
    }
}

#[test]
fn an_engine_that_is_not_there_is_exit_3_and_named() {
    let home = home();
    let begun = ["run", "t", "--json", "--model", "openai/x"];
    for args in [&begun[..], &["images", "list", "--json"]] {
        let mut command = wharf(home.path());
        command
            .env("DOCKER_HOST", "unix:///nope")
            .env("OPENAI_API_KEY", "k-123456789");
        let out = command.args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
        let error = &object(&text(&out.stdout))["error"];
        assert!(error["message"].as_str().unwrap().contains("/nope"));
        assert!(error["hint"].as_str().unwrap().contains("DOCKER_HOST"));
        assert_eq!(error["code"], 3);
    }
}

#[test]
fn events_end_with_a_result_line_also_when_nothing_started() {
    let home = home();
    let mut command = wharf(home.path());
    command
        .env("DOCKER_HOST", "tcp://127.0.0.1:1")
        .env("OPENAI_API_KEY", "k-123456789");
    let args = ["run", "t", "--events", "-m", "openai/x"];
    let out = command.args(args).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    let stdout = text(&out.stdout);
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["type"], "result");
    assert_eq!(last["exit_code"], 3);
    let message = last["error"]["message"].as_str().unwrap();
    assert!(message.contains("127.0.0.1:1"), "{message}");
}

#[test]
fn a_missing_model_is_exit_2_and_a_missing_key_exit_3() {
    let home = home();
    let code = |model: &[&str], says: &str| {
        let words = [&["run", "t", "--json"], model].concat();
        let (code, stdout, _) = run(home.path(), &words);
        let error = object(&stdout)["error"].take();
        let told = format!("{} {}", error["message"], error["hint"]);
        assert!(told.contains(says), "{told}");
        code
    };
    assert_eq!(code(&[], "no model"), 2);
    assert_eq!(code(&["-m", "opnai/x"], "opnai"), 2);
    assert_eq!(code(&["-m", "replay:absent.jsonl"], "absent.jsonl"), 2);
    assert_eq!(code(&["-m", "openai/x"], "OPENAI_API_KEY"), 3);
}

#[test]
fn doctor_names_each_fault_and_the_next_step() {
    let home = home();
    let mut command = wharf(home.path());
    command.env("DOCKER_HOST", "unix:///nope");
    let out = command.args(["doctor", "--json"]).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    let object = object(&text(&out.stdout));
    assert_eq!(object["ok"], false);
    let checks = object["checks"].as_array().unwrap();
    let state = |name: &str| {
        let check = checks.iter().find(|check| check["name"] == name);
        check.unwrap()["state"].clone()
    };
    assert_eq!(state("container engine"), "failed");
    assert_eq!(state("git"), "ok");
    assert_eq!(state("state directory"), "ok");
    assert_eq!(state("model"), "failed");
    for check in checks.iter().filter(|check| check["state"] == "failed") {
        assert!(!check["next"].as_str().unwrap().is_empty(), "{check}");
    }
}

#[test]
fn config_show_says_where_a_value_comes_from_and_masks_keys() {
    let home = home();
    let mut command = wharf(home.path());
    command
        .env("WHARF_PARALLEL", "3")
        .env("OPENAI_API_KEY", "sk-very-secret-1");
    let out = command.args(["config", "show"]).output().unwrap();
    let stdout = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(stdout.contains("WHARF_PARALLEL"), "{stdout}");
    assert!(!stdout.contains("sk-very-secret-1"), "{stdout}");
}

#[test]
fn clean_removes_old_runs_without_an_engine_and_then_says_that_there_is_none() {
    let home = home();
    let dir = write_run(home.path(), "r-one", &events("r-one"));
    let clean = |more: &[&str]| {
        let mut command = wharf(home.path());
        command.env("DOCKER_HOST", "unix:///nope");
        command.args(["clean", "--runs", "--older-than", "0"]);
        command.args(more).output().unwrap()
    };
    let out = clean(&["--dry-run"]);
    assert!(text(&out.stdout).contains("would remove run r-one"));
    assert!(dir.exists());
    let out = clean(&[]);
    assert_eq!(out.status.code(), Some(3));
    assert!(text(&out.stderr).contains("/nope"));
    assert!(!dir.exists());
}

#[test]
fn apply_wants_a_passed_run() {
    let home = home();
    write_run(home.path(), "r-one", &events("r-one"));
    let (code, stdout, _) = run(home.path(), &["apply", "last", "--json"]);
    assert_eq!(code, 1);
    let hint = object(&stdout)["error"]["hint"].clone();
    assert!(hint.as_str().unwrap().contains("--force"), "{hint}");
}
