//! What somebody is told who knows only the README: early, once, and with what to do next.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
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
        stderr.contains("line 3") && stderr.contains("what the run came to cannot be told"),
        "{stderr}"
    );
}

#[test]
fn a_socket_of_another_s_is_told_with_the_group_to_join() {
    let home = home();
    let socket = home.path().join("docker.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    open(&socket, 0o000);
    open(home.path(), 0o755);
    let address = format!("unix://{}", socket.display());
    for args in [&["doctor", "--json"][..], &["images", "list", "--json"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_wharf"));
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", home.path())
            .env("DOCKER_HOST", &address)
            .args(args)
            .current_dir("/");
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        let out = command.output().unwrap();
        let told = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(out.status.code(), Some(3), "{told}");
        let may_not = format!("you may not use {}", socket.display());
        assert!(told.contains(&may_not), "{told}");
        assert!(told.contains("sudo usermod -aG docker $USER"), "{told}");
        assert!(!told.contains("hyper"), "{told}");
        let points = told.contains("wharf doctor");
        assert_eq!(points, args[0] != "doctor", "{told}");
    }
}

#[test]
fn a_dead_engine_is_told_without_the_layers_between() {
    let home = home();
    let mut command = wharf(home.path());
    command.env("DOCKER_HOST", "tcp://127.0.0.1:1");
    let out = command.args(["images", "list"]).output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("Connection refused"), "{told}");
    assert!(
        !told.contains("hyper") && !told.contains("client"),
        "{told}"
    );
}

/// `plan check` of this text: exit code and what it told, the place of the file left out.
fn checked(home: &Path, plan: &str) -> (i32, String) {
    put(&home.join("p.yaml"), plan);
    let (code, stdout, stderr) = run(home, &["plan", "check", "p.yaml"]);
    (code, stdout + &stderr)
}

#[test]
fn plan_check_refuses_what_run_refuses_and_all_of_it_at_once() {
    let home = home();
    let plan = "version: 1\nworkspace: {path: nowhere}\nmodel: [replay:none.jsonl, foo/bar]\n\
                roles: {coder: {model: baz/x}}\n";
    let (code, told) = checked(home.path(), plan);
    assert_eq!(code, 2, "{told}");
    for part in ["nowhere", "none.jsonl", "\"foo\"", "\"baz\""] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let (code, stdout, _) = run(home.path(), &["plan", "check", "p.yaml", "--json"]);
    assert_eq!(code, 2);
    assert_eq!(
        object(&stdout)["plans"][0]["errors"]
            .as_array()
            .unwrap()
            .len(),
        4
    );

    let price = "version: 1\nmodel: local/x\nrun: {cost_usd: 1}\n\
                 providers: {local: {kind: openai, base_url: \"http://127.0.0.1:1/v1\"}}\n";
    let (code, told) = checked(home.path(), price);
    assert!(code == 2 && told.contains("price of local/x"), "{told}");

    let (code, told) = checked(
        home.path(),
        "version: 1\nrun: {parallel: 0}\nprotect: [\"/x\"]\n",
    );
    assert!(
        code == 2 && told.contains("parallel") && told.contains("/x"),
        "{told}"
    );
    // A key that is missing here may be where the plan is run, and a model may come by flag.
    assert_eq!(
        checked(home.path(), "version: 1\nmodel: openai/gpt-4.1\n").0,
        0
    );
    assert_eq!(
        checked(home.path(), "version: 1\nworkspace: {path: .}\n").0,
        0
    );
}

#[test]
fn no_runs_shown_is_not_no_runs() {
    let home = home();
    ended(home.path());
    let (code, stdout, stderr) = run(home.path(), &["runs", "-n", "0"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("1 older"), "{stdout}");
}

#[test]
fn init_writes_elsewhere_when_told_and_names_that_way_out() {
    let home = home();
    put(&home.path().join("wharf.yaml"), "mine");
    let (code, _, stderr) = run(home.path(), &["init"]);
    assert!(code == 2 && stderr.contains("--output"), "{stderr}");
    let (code, stdout, _) = run(home.path(), &["init", "-o", "other.yaml"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("wharf run -f other.yaml"), "{stdout}");
    assert_eq!(run(home.path(), &["plan", "check", "other.yaml"]).0, 0);
}

#[test]
fn a_verb_without_its_verb_prints_what_there_is_and_exits_with_2() {
    let home = home();
    for (args, verb) in [
        (&["config"][..], "show"),
        (&["plan"], "check"),
        (&["images"], "build"),
        (&[], "doctor"),
    ] {
        let (code, stdout, stderr) = run(home.path(), args);
        assert_eq!((code, stdout.as_str()), (2, ""));
        assert!(!stderr.contains("error"), "{stderr}");
        assert!(
            stderr.contains("Usage:") && stderr.contains(verb),
            "{stderr}"
        );
    }
    let (code, stdout, _) = run(home.path(), &["run", "--jsn", "--json"]);
    assert_eq!(code, 2);
    let error = &object(&stdout)["error"];
    assert_eq!(error["message"], "unexpected argument '--jsn' found");
    let hint = error["hint"].as_str().unwrap();
    assert!(
        hint.contains("'--json' exists") || hint.contains("exists: '--json'"),
        "{hint}"
    );
    let (_, stdout, _) = run(home.path(), &["plan", "check", "--json"]);
    let error = &object(&stdout)["error"];
    assert!(
        error["message"].as_str().unwrap().contains("<FILE>"),
        "{error}"
    );
}

#[test]
fn a_model_that_can_be_none_is_refused_where_it_is_named_and_once() {
    let home = home();
    let mut command = wharf(home.path());
    command.env("WHARF_MODEL", "foo").args(["config", "show"]);
    let out = command.output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{told}");
    assert!(told.contains("WHARF_MODEL is `foo`"), "{told}");
    let (code, _, stderr) = run(home.path(), &["run", "t", "-m", "foo"]);
    assert_eq!(code, 2);
    assert_eq!(stderr.matches("foo").count(), 1, "{stderr}");
    let (_, stdout, _) = run(home.path(), &["config", "show"]);
    assert!(stdout.contains("none: give --model"), "{stdout}");
    assert!(
        stdout.contains(" 1h ") && !stdout.contains("3600"),
        "{stdout}"
    );
}

#[test]
fn clean_prints_no_empty_line_and_names_the_branches_that_stay() {
    let home = home();
    let clean = |more: &[&str]| {
        let mut command = wharf(home.path());
        command.env("DOCKER_HOST", "unix:///nope").arg("clean");
        let out = command.args(more).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert_eq!(clean(&[]), "");
    let dir = ended(home.path());
    put(&dir.join("result.json"), &passed(&dir).to_string());
    let told = clean(&["--runs", "--older-than", "0"]);
    assert!(told.contains("removed run r-one"), "{told}");
    assert!(
        told.contains("git branch -D") && told.contains("wharf/r-one"),
        "{told}"
    );
}

/// The result of a run that passed.
fn passed(dir: &Path) -> serde_json::Value {
    json!({"schema": wharf::run::SCHEMA, "wharf_version": "0", "run": "r-one",
        "run_dir": dir, "status": "passed", "exit_code": 0, "reason": "", "next": "", "task": "t",
        "plan_hash": "h", "models": [], "started_at": "2026-01-01T00:00:00Z", "seconds": 1.0,
        "rounds": 1, "subtasks": [], "conflicts": [], "left_out": [], "warnings": [],
        "verdict": null, "base": null, "snapshot": null, "branch": "wharf/r-one", "patch": null,
        "usage": {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "calls": 0,
            "estimated": false}, "cost_usd": null, "trace_id": null, "summary": ""})
}

#[test]
fn a_result_is_found_in_either_of_its_two_places() {
    let home = home();
    let mut lines = events("r-one");
    let dir = home.path().join("state/runs/r-one");
    lines.push(
        json!({"type": "run_ended", "status": "passed", "exit_code": 0, "reason": "",
        "result": passed(&dir)}),
    );
    write_run(home.path(), "r-one", &lines);
    put(&dir.join("result.json"), "");
    let (code, stdout, _) = run(home.path(), &["show", "last", "--json"]);
    assert_eq!(
        (code, &object(&stdout)["branch"]),
        (0, &json!("wharf/r-one"))
    );

    let journal = dir.join("journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    put(&journal, &text.replacen("one step", "two step", 1));
    put(&dir.join("result.json"), &passed(&dir).to_string());
    // Of a journal that was changed nobody knows what the run came to, whatever result.json says.
    let (code, stdout, stderr) = run(home.path(), &["show", "last"]);
    assert_eq!(code, 3);
    assert!(stdout.starts_with("damaged"), "{stdout}");
    assert!(stdout.contains("result.json says passed"), "{stdout}");
    assert!(stderr.contains("line 3"), "{stderr}");
    assert!(
        stderr.contains("what the run came to cannot be told") && !stderr.contains("report.md"),
        "{stderr}"
    );
}

/// `wharf plan check` and `wharf run` say the same of a plan: where, what, and what to do.
fn misread(home: &Path, file: &str, place: &str, says: &str, hint: &str) {
    let check = ["plan", "check", file, "--json"];
    let begin = ["run", "t", "--json", "-f", file];
    for args in [&check[..], &begin[..]] {
        let mut command = wharf(home);
        command.env("DOCKER_HOST", "unix:///nope");
        let out = command.args(args).output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {told}");
        let object = object(&String::from_utf8_lossy(&out.stdout));
        let error = match &object["plans"] {
            serde_json::Value::Array(plans) => {
                assert_eq!(plans[0]["errors"].as_array().unwrap().len(), 1, "{object}");
                plans[0]["errors"][0].clone()
            }
            _ => object["error"].clone(),
        };
        let message = error["message"].as_str().unwrap();
        let line = message.lines().next().unwrap();
        let (at, _) = line.split_once(": ").unwrap();
        assert!(
            at.ends_with(&format!("{file}:{place}")),
            "{args:?}: {message}"
        );
        assert!(message.contains(says), "{args:?}: {message}");
        assert!(
            error["hint"].as_str().unwrap().contains(hint),
            "{args:?}: {error}"
        );
    }
    assert!(!home.join("state/runs").exists(), "a run was begun");
}

#[test]
fn a_plan_that_is_no_text_is_refused_at_its_first_byte_that_is_none() {
    let home = home();
    let at = |name: &str| home.path().join(name);
    std::fs::write(at("latin.yaml"), b"version: 1\nname: caf\xe9\n").unwrap();
    misread(home.path(), "latin.yaml", "2:10", "byte 0xe9", "LATIN1");
    std::fs::write(at("wide.yaml"), b"\xff\xfev\0e\0").unwrap();
    misread(home.path(), "wide.yaml", "1:1", "byte 0xff", "UTF-16");
    std::fs::write(at("prompt.md"), b"ok\nbad \xff\n").unwrap();
    put(
        &at("names.yaml"),
        "version: 1\nroles:\n  coder: {prompt_file: prompt.md}\n",
    );
    let says = "byte 0xff at line 2, column 5";
    misread(home.path(), "names.yaml", "3:24", says, "UTF-8");
}

#[test]
fn a_model_of_a_provider_that_nobody_knows_is_refused_where_it_is_named() {
    let home = home();
    let at = |name: &str| home.path().join(name);
    let says = "there is no provider";
    put(&at("top.yaml"), "version: 1\nmodel: opnai/gpt\n");
    misread(home.path(), "top.yaml", "2:8", says, "openai");
    put(
        &at("role.yaml"),
        "version: 1\nmodel: local/m\nproviders:\n  local: {kind: openai, base_url: \"http://127.0.0.1:1/v1\"}\nroles:\n  coder:\n    model: [local/m, nowhere/m]\n",
    );
    misread(home.path(), "role.yaml", "7:22", says, "providers.nowhere");
    // A name that the plan does not hold has no place in it.
    put(&at("none.yaml"), "version: 1\n");
    let (code, out, _) = run(
        home.path(),
        &["run", "t", "--json", "-f", "none.yaml", "-m", "opnai/gpt"],
    );
    assert_eq!(code, 2);
    let message = object(&out)["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.starts_with("model "), "{message}");
}
