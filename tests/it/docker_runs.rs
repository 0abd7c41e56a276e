//! Whole runs through the real program, in real containers, asked of a scripted model.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::operator::{CANARIES, LINES, Operator, skipped};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::world::{passes, put, report, write};

/// Five subtasks, `d` at the foot of a diamond, `e` alone.
const FIVE: &str = r#"version: 1
name: five
task: Do the work
model: openai/fake
run: {parallel: 4}
sandbox: {setup: ["touch ~/marker"]}
acceptance:
  commands: ["test -f ~/marker && grep -q ONE list.txt && grep -q NINE list.txt && cat a.txt e.txt"]
  criteria: ["It is done"]
subtasks:
  - {id: a, role: coder, brief: "BRIEF a."}
  - {id: b, role: coder, brief: "BRIEF b.", needs: [a]}
  - {id: c, role: coder, brief: "BRIEF c.", needs: [a]}
  - {id: d, role: reviewer, brief: "BRIEF d.", needs: [b, c]}
  - {id: e, role: coder, brief: "BRIEF e."}
"#;

/// One subtask; `extra` goes before it.
fn one(extra: &str) -> String {
    format!(
        "version: 1\nname: one\ntask: Do the work\nmodel: openai/fake\n{extra}\n\
         subtasks: [{{id: a, role: coder, brief: \"BRIEF a.\"}}]\n"
    )
}

/// What an agent looks at to see what it should not.
const LOOK: &str = "ls -la; ls ~/marker; env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'";

fn bash(command: &str) -> Answer {
    Answer::call("bash", json!({"command": command}))
}

fn edit(old: &str, new: &str) -> Answer {
    Answer::call(
        "edit_file",
        json!({"path": "list.txt", "old_string": old, "new_string": new}),
    )
}

fn id_of(ask: &Ask) -> String {
    let from = ask.first.find("BRIEF ").map_or(0, |at| at + 6);
    ask.first[from..]
        .chars()
        .take_while(|c| *c != '.')
        .collect()
}

/// Each agent looks, does its part, checks it, and reports.
fn five(ask: &Ask) -> Answer {
    if ask.role == Role::Verifier {
        return match ask.ordinal {
            0 => bash(LOOK),
            _ => passes(&["It is done"], "#1"),
        };
    }
    let id = id_of(ask);
    match (ask.ordinal, id.as_str()) {
        (0, _) => bash(LOOK),
        (1, "b") => edit("one\n", "ONE\n"),
        (1, "c") => edit("nine\n", "NINE\n"),
        (1, "d") => bash("cat list.txt && chmod +x a.txt"),
        (1, id) => write(&format!("{id}.txt"), &format!("made by {id}\n")),
        (2, _) => bash("true"),
        _ => report("done", &format!("did {id}")),
    }
}

/// The texts of all tool results that the model was ever shown.
fn results(server: &FakeModel) -> Vec<String> {
    let requests = server.requests();
    let messages = requests
        .iter()
        .flat_map(|body| body["messages"].as_array().unwrap());
    messages
        .filter(|m| m["role"] == "tool")
        .filter_map(|m| m["content"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn a_diamond_in_a_dirty_repository_ends_on_a_branch_and_touches_nothing_else() {
    if skipped() {
        return;
    }
    let mut operator = Operator::new();
    // Other runs beside this one have keys of their own, of which nothing is known here.
    let key = format!("{}-{}", CANARIES[0], std::process::id());
    operator.env = vec![("OPENAI_API_KEY".to_owned(), key.clone())];
    operator.dirty_repository();
    let status = operator.git(&["status", "--porcelain=v2"]);
    let before = operator.photograph();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let seen = shown.clone();
    let server = FakeModel::start(move |ask| {
        seen.lock().unwrap().extend(command_lines(&key));
        five(ask)
    })
    .await;
    let said = operator.run(&server, FIVE, &[]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(*shown.lock().unwrap(), Vec::<String>::new());
    assert_eq!(operator.photograph(), before);
    assert_eq!(operator.git(&["status", "--porcelain=v2"]), status);

    let result = said.object();
    assert_eq!(result["status"], "passed", "{result}");
    assert_eq!(result["branch"], "wharf/run");
    branch_holds_all(&operator);
    nothing_leaked(&operator, &server, &said.stderr, &said.stdout);
    verbs_say_sane_things(&operator).await;
    apply_refuses_then_applies(&operator).await;
}

/// The command lines of this machine, which every user can read, that hold this word.
fn command_lines(word: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(word)).collect()
}

fn branch_holds_all(operator: &Operator) {
    let tree = operator.git(&["ls-tree", "-r", "wharf/run"]);
    let mut names: Vec<&str> = tree.lines().filter_map(|l| l.split('\t').nth(1)).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            ".gitignore",
            "a.txt",
            "bin/tool.sh",
            "e.txt",
            "half.txt",
            "list.txt",
            "staged.txt",
            "tracked.txt",
            "untracked/new.txt",
        ]
    );
    for name in ["a.txt", "bin/tool.sh"] {
        let line = tree.lines().find(|l| l.ends_with(name)).unwrap();
        assert!(line.starts_with("100755"), "{line}");
    }
    let wanted = LINES.replace("one", "ONE").replace("nine", "NINE");
    assert_eq!(operator.git(&["show", "wharf/run:list.txt"]), wanted);
    let half = operator.git(&["show", "wharf/run:half.txt"]);
    assert_eq!(half, "staged half\nand the other\n");
    let log = operator.git(&["log", "--format=%s%n%b%n--", "main..wharf/run"]);
    for (id, role) in [
        ("a", "coder"),
        ("b", "coder"),
        ("d", "reviewer"),
        ("e", "coder"),
    ] {
        let wanted = format!("Wharf-Subtask: {id}\nWharf-Role: {role}\n");
        assert!(log.contains(&wanted), "{wanted} in {log}");
    }
    assert!(log.contains("working tree at start"), "{log}");
    assert_eq!(
        operator.git(&["merge-base", "main", "wharf/run"]),
        operator.git(&["rev-parse", "main"])
    );
}

fn nothing_leaked(operator: &Operator, server: &FakeModel, stderr: &str, stdout: &str) {
    let results = results(server);
    let looks: Vec<&String> = results.iter().filter(|r| r.contains("HOSTNAME")).collect();
    assert!(looks.len() >= 6, "every agent looked: {results:?}");
    for text in &looks {
        assert!(
            text.contains("list.txt") && text.contains("/home/agent/marker"),
            "{text}"
        );
        assert!(!text.contains(".env\n"), "{text}");
    }
    let bodies: Vec<String> = server.requests().iter().map(Value::to_string).collect();
    let files =
        ["journal.jsonl", "result.json", "report.md", "plan.yaml"].map(|f| operator.of_run(f));
    let texts = bodies.iter().chain(&files).map(String::as_str);
    for text in texts.chain([stderr, stdout]) {
        for canary in CANARIES.iter().chain(&["canary-789"]) {
            assert!(!text.contains(canary), "{canary} in {text}");
        }
    }
}

async fn verbs_say_sane_things(operator: &Operator) {
    let say = async |args: &[&str]| {
        let said = operator.wharf(None, args).await;
        assert_eq!(said.code, Some(0), "{args:?}: {said:?}");
        said.stdout
    };
    let diff = say(&["diff", "last"]).await;
    for part in ["+ONE", "-nine", "+NINE", "+made by e"] {
        assert!(diff.contains(part), "{part} in {diff}");
    }
    assert!(!diff.contains("changed, not staged"), "{diff}");
    let diff = say(&["diff", "run", "b"]).await;
    assert!(
        diff.contains("+ONE") && !diff.contains("NINE") && !diff.contains("made by"),
        "{diff}"
    );
    let show = say(&["show", "last"]).await;
    for part in ["passed", "wharf/run", "did b", "It is done", "acceptance"] {
        assert!(show.contains(part), "{part} in {show}");
    }
    let runs = say(&["runs"]).await;
    assert!(
        runs.contains("run ") && runs.contains("passed") && runs.contains("Do the work"),
        "{runs}"
    );
}

async fn apply_refuses_then_applies(operator: &Operator) {
    let list = operator.work().join("list.txt");
    put(&list, &LINES.replace("one", "mine"));
    let before = operator.photograph();
    let said = operator.wharf(None, &["apply", "last"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("list.txt"), "{said:?}");
    assert_eq!(operator.photograph(), before);

    put(&list, &LINES.replace("five", "mine"));
    let said = operator.wharf(None, &["apply", "last"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let wanted = LINES.replace("one", "ONE").replace("nine", "NINE");
    let merged = std::fs::read_to_string(&list).unwrap();
    assert_eq!(merged, wanted.replace("five", "mine"));
    let env = std::fs::read_to_string(operator.work().join(".env")).unwrap();
    assert_eq!(env, "TOKEN=canary-789\n");
    assert!(operator.work().join("ignored.log").exists());
    assert!(!operator.work().join("gone.txt").exists());
}

/// A verifier that looks, changes what it judges and passes it; with `bash` as its only hand.
fn vandal(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => {
            bash("echo junk > junk.txt; echo bad > a.txt; rm -f keep.txt; cat a.txt")
        }
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => Answer::calls(vec![
            ("write_file", json!({"path": "a.txt", "content": "made\n"})),
            ("bash", json!({"command": "cat a.txt"})),
        ]),
        _ => report("done", "made it"),
    }
}

#[tokio::test]
async fn what_a_verifier_changes_reaches_nothing_and_apply_puts_the_rest_in_place() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let server = FakeModel::start(vandal).await;
    let plan = one("acceptance: {commands: [\"cat a.txt keep.txt\"], criteria: [\"It is done\"]}");
    let said = operator.run(&server, &plan, &["--apply"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
    // The vandal did its work, or this test tests nothing.
    assert!(results(&server).iter().any(|r| r.contains("bad")));
    let result = said.object();
    assert_eq!(result["next"], "wharf show run", "nothing is left to merge");
    let patch = std::fs::read_to_string(result["patch"].as_str().unwrap()).unwrap();
    assert!(
        patch.contains("+made") && !patch.contains("junk") && !patch.contains("keep"),
        "{patch}"
    );
    let read = |name: &str| std::fs::read_to_string(operator.work().join(name));
    assert_eq!(read("a.txt").unwrap(), "made\n");
    assert_eq!(read("keep.txt").unwrap(), "keep\n");
    assert!(read("junk.txt").is_err());
}

#[tokio::test]
async fn a_command_that_fails_in_the_fresh_container_fails_the_run() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    // The worker leaves the file where its own container has it and no other does.
    let server = FakeModel::start(|ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, _) => vandal(ask),
        (_, 0) => bash("touch /tmp/here ~/here && echo made > a.txt && ls /tmp/here ~/here"),
        _ => report("done", "it works here"),
    })
    .await;
    let plan = one(
        "acceptance: {commands: [\"ls a.txt && ls /tmp/here ~/here\"], criteria: [\"It is done\"]}",
    );
    let said = operator.run(&server, &plan, &["--apply"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    let result = said.object();
    assert_eq!(result["status"], "failed", "{result}");
    let command = &result["verdict"]["commands"][0];
    assert_eq!(command["exit_code"], 2, "{result}");
    assert!(
        command["output_tail"].as_str().unwrap().contains("a.txt"),
        "{result}"
    );
    assert!(
        result["patch"].is_string(),
        "what merged is delivered: {result}"
    );
    assert!(!operator.work().join("a.txt").exists());
}

#[tokio::test]
async fn a_plan_that_works_on_a_copy_leaves_the_repository_alone() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    operator.dirty_repository();
    let (before, refs) = (operator.photograph(), operator.git(&["for-each-ref"]));
    let server = FakeModel::start(vandal).await;
    let plan = one("workspace: {copy: true}\nacceptance: {criteria: [\"It is done\"]}");
    let said = operator.run(&server, &plan, &["--apply"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let result = said.object();
    assert_eq!(result["branch"], Value::Null);
    let patch = std::fs::read_to_string(result["patch"].as_str().unwrap()).unwrap();
    assert!(patch.contains("+made"), "{patch}");
    assert_eq!(operator.photograph(), before);
    assert_eq!(operator.git(&["for-each-ref"]), refs);
}

#[tokio::test]
async fn a_plan_that_was_only_made_can_be_run() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let server = FakeModel::start(|ask| match (ask.role, ask.ordinal) {
        (Role::Coordinator, 0) => Answer::call("list_files", json!({})),
        (Role::Coordinator, _) => Answer::call(
            "submit_plan",
            json!({"summary": "one step", "criteria": ["It is done"], "subtasks": [
                {"id": "a", "role": "coder", "title": "Make: \"a\" #1", "brief": "BRIEF a.\n\nTwo: lines", "needs": []}]}),
        ),
        _ => vandal(ask),
    })
    .await;
    // Written elsewhere, it still means the directory that the first one named from its own place.
    let plan = operator.beside("plan.yaml", "version: 1\nworkspace: {path: work}\n");
    let file = operator.beside("plans/README", "") + ".yaml";
    let task = "Make a # file";
    let args = [
        "run",
        task,
        "-f",
        &plan,
        "-m",
        "openai/fake",
        "--plan-only",
        "-o",
        &file,
    ];
    let said = operator.wharf(Some(&server), &args).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains(&file), "{said:?}");
    let asked = server.requests().len();
    assert_eq!(asked, 2, "the coordinator alone was asked");
    let again = operator.wharf(Some(&server), &args).await;
    assert_eq!(
        again.code,
        Some(2),
        "a file is never written over: {again:?}"
    );
    assert_eq!(server.requests().len(), asked, "and that is known before");

    let said = operator
        .wharf(
            Some(&server),
            &["run", "-f", &file, "-m", "openai/fake", "--json"],
        )
        .await;
    let result = said.object();
    assert_eq!(result["task"], "Make a # file");
    assert_eq!(result["subtasks"][0]["id"], "a");
    assert_eq!(result["subtasks"][0]["status"], "done");
    assert_eq!(said.code, Some(0), "{result}");
}

#[tokio::test]
async fn without_an_engine_nothing_is_asked_of_a_model() {
    let mut operator = Operator::new();
    operator
        .env
        .push(("DOCKER_HOST".into(), "unix:///nope".into()));
    let server = FakeModel::start(vandal).await;
    let said = operator.run(&server, &one(""), &[]).await;
    assert_eq!(said.code, Some(3), "{said:?}");
    let error = &said.object()["error"];
    assert_eq!(error["code"], 3);
    for text in [said.stderr.as_str(), &error.to_string()] {
        assert!(text.contains("/nope"), "the address: {text}");
        assert!(
            text.contains("DOCKER_HOST") || text.contains("doctor"),
            "what to do: {text}"
        );
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn with_a_bad_plan_nothing_is_asked_of_anyone() {
    let mut operator = Operator::new();
    operator
        .env
        .push(("DOCKER_HOST".into(), "unix:///nope".into()));
    let server = FakeModel::start(vandal).await;
    let bad = one("").replace("role: coder", "role: nobody");
    let said = operator.run(&server, &bad, &[]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(said.object()["error"]["code"], 2);
    assert!(said.stderr.contains("nobody"), "{said:?}");
    assert!(server.requests().is_empty());
    assert!(!operator.state().join("runs").exists());
}

/// The README's first command, from a copy of the shipped folder: recorded answers, real containers.
#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_passes_from_its_recording_and_leaves_its_folder_alone() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    let plans = operator.work().join("plans");
    copy(std::path::Path::new("plans"), &plans);
    let before = operator.photograph();
    let said = operator
        .wharf(
            None,
            &[
                "run",
                "--plan",
                "plans/quickstart.yaml",
                "--run-id",
                "run",
                "--json",
            ],
        )
        .await;
    let result = said.object();
    assert_eq!(said.code, Some(0), "{result:#}");
    assert_eq!(result["status"], "passed");
    assert_eq!(result["warnings"], json!([]));
    assert_eq!(result["verdict"]["criteria"].as_array().unwrap().len(), 4);
    assert!(
        said.stderr.contains("recorded answers, no model is asked"),
        "{}",
        said.stderr
    );
    let patch = operator.of_run("result.patch");
    assert!(
        patch.contains("prices/money.py") && patch.contains("ValueError"),
        "{patch}"
    );
    assert_eq!(operator.photograph(), before);
    let said = operator.wharf(None, &["apply", "run"]).await;
    assert_eq!(
        said.code,
        Some(2),
        "a copy's folder is changed only by force: {}",
        said.stderr
    );
    applies_as_it_says(&operator, &result, &patch).await;
}

/// `diff` prints the patch, the refusal names the command that applies it, and that command does.
async fn applies_as_it_says(operator: &Operator, result: &Value, patch: &str) {
    let said = operator.wharf(None, &["diff", "run"]).await;
    assert_eq!(said.stdout, patch);
    let command = result["apply"].as_str().unwrap();
    let refused = operator.wharf(None, &["apply", "run"]).await;
    assert!(refused.stderr.contains(command), "{}", refused.stderr);
    let status = std::process::Command::new("sh")
        .args(["-c", command])
        .status()
        .unwrap();
    assert!(status.success(), "{command}");
    let said = operator.wharf(None, &["apply", "run", "--force"]).await;
    let already = format!(
        "already there: nothing to change in {}",
        operator.work().join("plans/quickstart").display()
    );
    assert!(said.stdout.contains(&already), "{said:?}");
    let asked = ["show", "run", "summary", "--request", "1"];
    let asked = operator.wharf(None, &asked).await.stdout;
    assert!(
        asked.contains("# Report of fix-rounding") && asked.contains("sent once"),
        "{asked}"
    );
    let shown = operator.wharf(None, &["show", "run"]).await.stdout;
    for line in [
        "tokens recorded",
        "replay:",
        "coordinator",
        "verifier",
        "summary",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let recording = operator.work().join("plans");
    assert!(
        !shown.contains(&format!("replay:{}", recording.display())),
        "{shown}"
    );
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

/// What agents install stands in their own containers alone, and nothing of Wharf's own environment
/// stands in any.
#[tokio::test]
async fn what_an_agent_installs_is_missing_where_it_is_judged_and_the_reason_is_told() {
    if skipped() {
        return;
    }
    let install =
        "site=$(python3 -m site --user-site) && mkdir -p $site && echo 'x = 1' > $site/extra.py";
    let server = FakeModel::start(move |ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => bash("python3 use.py"),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => bash(install),
        (_, 1) => write("use.py", "import extra\n"),
        (_, 2) => bash("python3 use.py && echo it works here"),
        _ => report("done", "uses extra"),
    })
    .await;
    let mut operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    operator.env = [("CI", "1"), ("PYTHONPATH", "/x"), ("WHARF_PARALLEL", "1")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    let clean = "test -z \\\"$CI$PYTHONPATH$WHARF_PARALLEL$WHARF_HOME$OPENAI_API_KEY\\\"";
    let plan = one(&format!(
        "run: {{rounds: 1}}\nacceptance: {{commands: [\"{clean}\", \"python3 use.py\"], criteria: [\"It is done\"]}}"
    ));
    let said = operator.run(&server, &plan, &[]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    let result = said.object();
    let commands = &result["verdict"]["commands"];
    assert_eq!(commands[0]["exit_code"], 0, "{commands}");
    assert_eq!(commands[1]["exit_code"], 1, "{commands}");
    let tail = commands[1]["output_tail"].as_str().unwrap();
    assert!(tail.contains("No module named 'extra'"), "{tail}");
    assert!(
        result["reason"]
            .as_str()
            .unwrap()
            .contains("python3 use.py"),
        "{result}"
    );
    let asked = server.requests();
    let worked = asked
        .iter()
        .any(|body| body.to_string().contains("it works here"));
    assert!(worked, "it was there in the agent's own container");
}
