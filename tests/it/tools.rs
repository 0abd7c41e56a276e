//! The tool contract at its door: what a call is understood as, what may run, and the words of results.

#![expect(clippy::unwrap_used, reason = "test code fails loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{
    Answer, Changes, Command, Error, Exit, Facts, Finished, Listing, ProcessAction, Read, Sandbox,
    Search, Spooled, Stream,
};
use wharf::tools::{Action, Call, Ending, Kind, Mode, Options, Output, OwnTool, Rule, Ruling, Set};

/// What a command line comes to in a scripted sandbox.
pub type Script = dyn Fn(&Command) -> Result<Finished, Error> + Send + Sync;

/// A sandbox of plain memory whose commands are scripted.
pub struct Scripted {
    pub files: Mutex<BTreeMap<String, Vec<u8>>>,
    pub lines: Mutex<Vec<String>>,
    script: Box<Script>,
    facts: Facts,
}

impl Scripted {
    pub fn new(
        script: impl Fn(&Command) -> Result<Finished, Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            files: Mutex::default(),
            lines: Mutex::default(),
            script: Box::new(script),
            facts: Facts::default(),
        }
    }

    pub fn with(self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files
            .lock()
            .unwrap()
            .insert(path.into(), content.into());
        self
    }

    pub fn file(&self, path: &str) -> Option<String> {
        let files = self.files.lock().unwrap();
        files
            .get(path)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    pub fn ran(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

/// A finished command with all of its output at hand.
pub fn finished(exit: Exit, stdout: &str, stderr: &str) -> Finished {
    let stream = |text: &str| Stream {
        head: Bytes::from(text.to_string()),
        tail: Bytes::new(),
        total: text.len() as u64,
        spool: None,
    };
    Finished {
        exit,
        stdout: stream(stdout),
        stderr: stream(stderr),
        elapsed: Duration::from_millis(1),
        background: None,
    }
}

impl Sandbox for Scripted {
    fn run<'a>(
        &'a self,
        command: &'a Command,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Finished, Error>> {
        self.lines.lock().unwrap().push(command.line.clone());
        async move {
            if command.line.starts_with("sleep") {
                cancel.cancelled().await;
                return Ok(finished(Exit::Cancelled, "", ""));
            }
            (self.script)(command)
        }
        .boxed()
    }

    fn process(
        &self,
        id: u32,
        action: ProcessAction,
    ) -> BoxFuture<'_, Result<Answer<Finished>, Error>> {
        async move {
            if id != 3 {
                return Ok(Err("there is no such process".to_string()));
            }
            let exit = match action {
                ProcessAction::Output => Exit::Running,
                ProcessAction::Stop => Exit::Code(143),
            };
            Ok(Ok(finished(exit, "listening\n", "")))
        }
        .boxed()
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Answer<Read>, Error>> {
        async move {
            let files = self.files.lock().unwrap();
            let Some(bytes) = files.get(path) else {
                return Ok(Err("no such file".to_string()));
            };
            let from = (offset as usize).min(bytes.len());
            let to = (from + limit as usize).min(bytes.len());
            Ok(Ok(Read {
                bytes: Bytes::copy_from_slice(&bytes[from..to]),
                size: bytes.len() as u64,
            }))
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Result<Answer<()>, Error>> {
        async move {
            self.files
                .lock()
                .unwrap()
                .insert(path.to_string(), content.to_vec());
            Ok(Ok(()))
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        _: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        async move {
            let files = self.files.lock().unwrap();
            Ok(Ok(Listing {
                lines: files.keys().take(limit).cloned().collect(),
                cut: files.len() > limit,
            }))
        }
        .boxed()
    }

    fn grep<'a>(&'a self, search: &'a Search) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        async move {
            let files = self.files.lock().unwrap();
            let mut lines = Vec::new();
            for (path, bytes) in files.iter() {
                let text = String::from_utf8_lossy(bytes);
                for (index, line) in text
                    .lines()
                    .enumerate()
                    .filter(|(_, l)| l.contains(&search.pattern))
                {
                    lines.push(format!("{path}:{}:{line}", index + 1));
                }
            }
            let cut = lines.len() > search.limit;
            lines.truncate(search.limit);
            Ok(Ok(Listing { lines, cut }))
        }
        .boxed()
    }

    fn scan(&self) -> BoxFuture<'_, Result<Changes, Error>> {
        async { Ok(Changes::default()) }.boxed()
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
}

/// All tools, everything allowed.
pub fn options() -> Options {
    let names = [
        "bash",
        "process",
        "read_file",
        "write_file",
        "edit_file",
        "list_files",
        "grep",
        "run_acceptance",
    ];
    Options {
        names: names.map(String::from).to_vec(),
        ending: Ending::Report,
        own: Vec::new(),
        mode: Mode::Auto,
        rules: Vec::new(),
        protect: Vec::new(),
        protected_paths: Arc::new(BTreeSet::new()),
        output: 8_000,
        timeout: Duration::from_secs(30),
        memory: 2 << 30,
        acceptance: Vec::new(),
    }
}

fn set() -> Set {
    Set::new(options()).unwrap()
}

fn rule(tool: &str, command: Option<&str>, path: Option<&str>, action: Action) -> Rule {
    Rule {
        tool: tool.into(),
        command: command.map(String::from),
        path: path.map(String::from),
        action,
    }
}

async fn run(set: &Set, name: &str, arguments: Value, sandbox: &Scripted) -> Output {
    match set.check(name, &arguments.to_string()) {
        Ok(call) => set
            .run(&call, 7, sandbox, &CancellationToken::new())
            .await
            .unwrap(),
        Err(output) => output.numbered(7),
    }
}

fn quiet() -> Scripted {
    Scripted::new(|_| Ok(finished(Exit::Code(0), "", "")))
}

#[test]
fn descriptions_name_the_caps_that_hold() {
    use wharf::tools::*;
    let set = set();
    let of = |name: &str| {
        set.specs()
            .iter()
            .find(|s| s.name == name)
            .unwrap()
            .description
            .clone()
    };
    let comma = |n: usize| clip::thousands(n as u64);
    assert!(of("bash").contains(&comma(8_000)));
    assert!(
        of("bash").contains("default 30") && of("bash").contains(&format!("at most {TIMEOUT_MAX}"))
    );
    assert!(of("read_file").contains(&comma(READ_BYTES)) && READ_BYTES == 32_000);
    assert!(
        of("read_file").contains(&comma(READ_LINES))
            && of("read_file").contains(&comma(LINE_CHARS))
    );
    assert!(
        of("write_file").contains(&comma(WRITE_BYTES))
            && of("edit_file").contains(&comma(WRITE_BYTES))
    );
    assert!(of("list_files").contains(&comma(LIST_MAX)));
    assert!(
        of("grep").contains(&format!("{GREP_DEFAULT} matches"))
            && of("grep").contains(&GREP_MAX.to_string())
            && of("grep").contains(&FOUND_CHARS.to_string())
    );
    assert_eq!(set.specs().last().unwrap().name, "submit_report");
}

#[test]
fn a_set_that_could_not_hold_its_word_is_not_made() {
    let unknown = Options {
        names: vec!["bsh".into()],
        ..options()
    };
    assert!(Set::new(unknown).unwrap_err().to_string().contains("bsh"));
    let own = OwnTool {
        name: "lint".into(),
        description: "d".into(),
        schema: json!({"type": "object", "properties": {"a": {"anyOf": []}}}),
        command: "ruff".into(),
    };
    let schema = Options {
        names: vec!["lint".into()],
        own: vec![own],
        ..options()
    };
    assert!(Set::new(schema).unwrap_err().to_string().contains("anyOf"));
    let pattern = Options {
        protect: vec!["a[".into()],
        ..options()
    };
    assert!(
        Set::new(pattern)
            .unwrap_err()
            .to_string()
            .contains("protect")
    );
}

#[test]
fn what_cannot_be_taken_is_answered_and_never_guessed() {
    let set = set();
    let cases = [
        ("bash", "", "invalid_arguments", "command is missing"),
        ("bash", "null", "invalid_arguments", "command is missing"),
        ("bash", "[]", "invalid_arguments", "must be a JSON object"),
        (
            "bash",
            "{\"command\":\"rm -rf build",
            "invalid_arguments",
            "column",
        ),
        (
            "bash",
            "{\"command\":\"a\",\"command\":\"b\"}",
            "invalid_arguments",
            "stands twice",
        ),
        (
            "bash",
            "{\"command\":\"a\",\"why\":1}",
            "invalid_arguments",
            "why is not known",
        ),
        (
            "bash",
            "{\"command\":5}",
            "invalid_arguments",
            "must be a string",
        ),
        (
            "frobnicate",
            "{}",
            "tool_not_found",
            "your tools are bash, process",
        ),
        (
            "process",
            "{\"id\":1,\"action\":\"kill\"}",
            "invalid_arguments",
            "one of \"output\", \"stop\"",
        ),
        (
            "submit_report",
            "{\"status\":\"ok\",\"summary\":\"\"}",
            "invalid_arguments",
            "one of \"done\", \"failed\"",
        ),
    ];
    for (name, arguments, word, part) in cases {
        let refused = set.check(name, arguments).unwrap_err();
        assert_eq!(refused.error_type, Some(word), "{name} {arguments}");
        assert!(
            refused.failed && refused.text.contains(part),
            "{name} {arguments}: {}",
            refused.text
        );
    }
}

#[test]
fn no_arguments_have_many_spellings() {
    let set = set();
    for arguments in ["", "null", " ", "{}"] {
        assert!(
            set.check("run_acceptance", arguments).is_ok(),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_plan_and_a_verdict_have_the_shape_of_the_contract() {
    let plan = Set::new(Options {
        ending: Ending::Plan,
        ..options()
    })
    .unwrap();
    let good = json!({"summary": "s", "criteria": ["c"], "subtasks": [{"id": "a", "role": "coder", "brief": "b", "needs": "x"}]});
    let call = plan.check("submit_plan", &good.to_string()).unwrap();
    assert_eq!(
        (call.kind, &call.arguments["subtasks"][0]["needs"]),
        (Kind::Meta, &json!(["x"]))
    );
    let bad = json!({"summary": "s", "subtasks": [{"id": "a", "role": "coder"}]});
    let refused = plan.check("submit_plan", &bad.to_string()).unwrap_err();
    assert!(
        refused.text.contains("subtasks[0].brief is missing"),
        "{}",
        refused.text
    );

    let verdict = Set::new(Options {
        ending: Ending::Verdict,
        ..options()
    })
    .unwrap();
    let good = json!({"verdict": "pass", "summary": "s", "criteria": [{"criterion": "c", "status": "unknown", "evidence": ""}]});
    assert!(verdict.check("submit_verdict", &good.to_string()).is_ok());
    assert!(
        verdict
            .check("submit_report", r#"{"status":"done","summary":""}"#)
            .is_err()
    );
}

#[test]
fn rules_decide_by_every_part_of_a_command_and_deny_wins() {
    let set = Set::new(Options {
        rules: vec![
            rule("bash", Some("git *"), None, Action::Allow),
            rule("bash", Some("git push*"), None, Action::Deny),
            rule("bash", Some("make deploy"), None, Action::Ask),
            rule("write_file", None, Some("docs/**"), Action::Deny),
        ],
        ..options()
    })
    .unwrap();
    let bash = |line: &str| set.check("bash", &json!({"command": line}).to_string());
    assert!(bash("git status && ls").is_ok());
    for line in [
        "git push",
        "ls; git push origin",
        "cd x && A=1 git push",
        "echo \"$(git push)\"",
    ] {
        let refused = bash(line).unwrap_err();
        assert_eq!(refused.error_type, Some("denied"), "{line}");
        assert!(refused.text.contains("git push*"), "{}", refused.text);
    }
    let deploy = set.ruling(&bash("make deploy").unwrap());
    assert!(
        matches!(&deploy, Ruling::Asked(need) if need.reason().contains("make deploy")),
        "{deploy:?}"
    );
    let write = |path: &str| {
        set.check(
            "write_file",
            &json!({"path": path, "content": ""}).to_string(),
        )
    };
    assert!(write("/workspace/src/../docs/a.md").is_err());
    assert!(write("src/docs.md").is_ok());
}

#[test]
fn protected_files_may_not_be_written_but_new_ones_may() {
    let set = Set::new(Options {
        protect: vec!["tests/**".into()],
        protected_paths: Arc::new(["tests/a.py".to_string(), "src/a.py".to_string()].into()),
        ..options()
    })
    .unwrap();
    let write = |path: &str| {
        set.check(
            "write_file",
            &json!({"path": path, "content": ""}).to_string(),
        )
    };
    let refused = write("./tests/a.py").unwrap_err();
    assert!(
        refused.text.contains("tests/a.py is protected"),
        "{}",
        refused.text
    );
    assert!(
        set.check(
            "Edit",
            r#"{"file_path":"/workspace/tests/a.py","old":"a","new":"b"}"#
        )
        .is_err()
    );
    let insert = r#"{"command":"insert","path":"tests/a.py","insert_line":0,"insert_text":"x"}"#;
    assert!(set.check("str_replace_based_edit_tool", insert).is_err());
    assert!(write("tests/new.py").is_ok() && write("src/a.py").is_ok());
}

#[tokio::test]
async fn a_command_s_result_begins_with_its_number_and_exit_code() {
    let sandbox = Scripted::new(|command| {
        Ok(match command.line.as_str() {
            "true" => finished(Exit::Code(0), "", ""),
            "fails" => finished(Exit::Code(3), "out\n", "err\x1b[31m\n"),
            "slow" => finished(Exit::TimedOut, "partial", ""),
            _ => finished(Exit::OutOfMemory(137), "", ""),
        })
    });
    let set = set();
    let bash = async |line: &str| run(&set, "bash", json!({"command": line}), &sandbox).await;
    assert_eq!(bash("true").await.text, "#7 exit code: 0\n(no output)\n");
    let fails = bash("fails").await;
    assert_eq!(
        fails.text,
        "#7 exit code: 3\nstdout:\nout\nstderr:\nerr\u{241b}[31m\n"
    );
    assert_eq!(
        (fails.exit_code, fails.error_type),
        (Some(3), Some("nonzero_exit"))
    );
    let slow = bash("slow").await;
    assert!(slow.text.starts_with(
        "#7 exit code: 124 (timed out after 30 s; everything it started was killed)\n"
    ));
    assert_eq!(
        (slow.exit_code, slow.error_type),
        (Some(124), Some("timeout"))
    );
    let killed = bash("greedy").await;
    assert!(
        killed
            .text
            .contains("137 (out of memory: the sandbox's limit of 2.0 GiB"),
        "{}",
        killed.text
    );
}

/// A command that printed more than is kept, with this many bytes of it in a file.
fn noisy(spooled: u64) -> Scripted {
    Scripted::new(move |command| {
        let mut finished = finished(Exit::Code(3), "", "");
        finished.stdout = Stream {
            head: Bytes::from(vec![b'x'; command.keep]),
            tail: Bytes::from(
                vec![b'y'; command.keep - 13]
                    .into_iter()
                    .chain(*b"FATAL-AT-END\n")
                    .collect::<Vec<u8>>(),
            ),
            total: 300_013,
            spool: Some(Spooled {
                path: "/tmp/.wharf/7.out".into(),
                bytes: spooled,
            }),
        };
        Ok(finished)
    })
}

#[tokio::test]
async fn long_output_keeps_its_end_and_names_the_full_text() {
    let ask = json!({"command": "noise"});
    let out = run(&set(), "bash", ask.clone(), &noisy(300_013)).await;
    assert!(out.text.starts_with("#7 exit code: 3\n") && out.text.contains("FATAL-AT-END"));
    let place = "292,013 bytes cut here; the full text is in /tmp/.wharf/7.out";
    assert!(out.text.contains(place), "{}", out.text);
    assert!(out.text.chars().count() < 8_000 + 200);
    // A file that holds less is not called the whole.
    let out = run(&set(), "bash", ask, &noisy(299_000)).await;
    let place = "292,013 bytes cut here; its first 299,000 bytes are in /tmp/.wharf/7.out";
    assert!(out.text.contains(place), "{}", out.text);
}

#[tokio::test]
async fn timeouts_are_held_within_their_bounds() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sandbox = {
        let seen = seen.clone();
        Scripted::new(move |command| {
            seen.lock().unwrap().push(command.timeout.as_secs());
            Ok(finished(Exit::Code(0), "", ""))
        })
    };
    for seconds in [json!(null), json!(-5), json!("90"), json!(99_999)] {
        run(
            &set(),
            "bash",
            json!({"command": "x", "timeout_seconds": seconds}),
            &sandbox,
        )
        .await;
    }
    assert_eq!(*seen.lock().unwrap(), [30, 1, 90, 600]);
}

#[tokio::test]
async fn background_processes_are_named_and_looked_at() {
    let sandbox = Scripted::new(|command| {
        assert!(command.background);
        let mut started = finished(Exit::Running, "", "");
        started.background = Some(3);
        Ok(started)
    });
    let set = set();
    let started = run(
        &set,
        "bash",
        json!({"command": "serve", "background": "yes"}),
        &sandbox,
    )
    .await;
    assert!(started.text.contains("as process 3"), "{}", started.text);
    let seen = run(
        &set,
        "process",
        json!({"id": 3, "action": "output"}),
        &sandbox,
    )
    .await;
    assert_eq!(
        seen.text,
        "#7 process 3 is still running\nstdout:\nlistening\n"
    );
    let stopped = run(
        &set,
        "process",
        json!({"id": 3, "action": "stop"}),
        &sandbox,
    )
    .await;
    assert!(!stopped.failed && stopped.text.contains("was stopped"));
    assert!(
        run(
            &set,
            "process",
            json!({"id": 4, "action": "stop"}),
            &sandbox
        )
        .await
        .failed
    );
}

#[tokio::test]
async fn files_are_read_written_and_edited_within_the_workspace() {
    let sandbox = quiet()
        .with("src/a.rs", "one\r\ntwo\r\n")
        .with("bin", vec![0, 1, 2])
        .with("bad", vec![b'o', b'k', 0xff, b'\n'])
        .with("empty", "");
    let set = set();
    let read = async |arguments| run(&set, "read_file", arguments, &sandbox).await.text;
    assert_eq!(
        read(json!({"path": "/workspace/src/a.rs"})).await,
        "#7 src/a.rs: lines 1-2 of 2\none\ntwo\n"
    );
    assert_eq!(
        read(json!({"path": "src/a.rs", "offset": 2, "limit": 1})).await,
        "#7 src/a.rs: lines 2-2 of 2\ntwo\n"
    );
    assert_eq!(read(json!({"path": "gone"})).await, "#7 gone: no such file");
    assert!(
        read(json!({"path": "bin"}))
            .await
            .contains("a binary file of 3 bytes")
    );
    assert!(read(json!({"path": "bad"})).await.contains("ok\u{fffd}"));
    assert!(
        read(json!({"path": "empty"}))
            .await
            .contains("an empty file")
    );

    let edit = json!({"path": "src/a.rs", "old_string": "one\ntwo", "new_string": "1\n2"});
    assert_eq!(
        run(&set, "edit_file", edit.clone(), &sandbox).await.text,
        "#7 edited src/a.rs: 1 place replaced"
    );
    assert_eq!(sandbox.file("src/a.rs").unwrap(), "1\r\n2\r\n");
    assert!(run(&set, "edit_file", edit, &sandbox).await.failed);

    let wrote = run(
        &set,
        "write_file",
        json!({"path": "new/b", "content": "б"}),
        &sandbox,
    )
    .await;
    assert_eq!(wrote.text, "#7 wrote 2 bytes to new/b");
    let found = run(&set, "grep", json!({"pattern": "б"}), &sandbox).await;
    assert_eq!(found.text, "#7 1 line matches б\nnew/b:1:б\n");
    let none = run(&set, "grep", json!({"pattern": "zzz"}), &sandbox).await;
    assert!(!none.failed && none.text.contains("no line matches zzz"));
    let listed = run(&set, "list_files", json!({}), &sandbox).await;
    assert!(
        listed.text.starts_with("#7 5 files match **\nbad\n"),
        "{}",
        listed.text
    );
}

#[tokio::test]
async fn acceptance_runs_every_command_whatever_came_before() {
    let set = Set::new(Options {
        acceptance: ["fails", "works"]
            .map(|c| (c.to_string(), Duration::from_secs(600)))
            .to_vec(),
        ..options()
    })
    .unwrap();
    let sandbox = Scripted::new(|command| {
        Ok(match command.line.as_str() {
            "fails" => finished(Exit::Code(2), &("x".repeat(5_000) + "end\n"), ""),
            _ => finished(Exit::Code(0), "", ""),
        })
    });
    let out = run(&set, "run_acceptance", json!({}), &sandbox).await;
    assert_eq!((out.failed, out.exit_code), (true, Some(2)));
    assert!(
        out.text
            .starts_with("#7 1 of 2 acceptance commands passed\n$ fails\nexit code: 2\n"),
        "{}",
        &out.text[..100]
    );
    assert!(out.text.contains("end\n") && out.text.contains("$ works\nexit code: 0\n(no output)"));
    assert!(out.text.chars().count() < 2_300);
    assert_eq!(sandbox.ran(), ["fails", "works"]);
}

#[tokio::test]
async fn an_own_tool_gets_its_arguments_on_standard_input() {
    let own = OwnTool {
        name: "lint".into(),
        description: "d".into(),
        schema: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
        command: "ruff check . # all".into(),
    };
    let set = Set::new(Options {
        names: vec!["lint".into()],
        own: vec![own],
        ..options()
    })
    .unwrap();
    let sandbox = quiet();
    run(&set, "lint", json!({"path": "a\n'b"}), &sandbox).await;
    let expected = "export WHARF_ARG_PATH='a\n'\\''b'\n{\nruff check . # all\n} <<'WHARF_ARGUMENTS'\n\
                    {\"path\":\"a\\n'b\"}\nWHARF_ARGUMENTS";
    assert_eq!(sandbox.ran(), [expected]);
    assert!(
        run(&set, "lint", json!({"path": "a", "x": 1}), &sandbox)
            .await
            .failed
    );
}

/// The line that an own tool's call becomes, given to a real shell.
fn in_a_shell(arguments: &Value) -> String {
    let own = OwnTool {
        name: "show".into(),
        description: "d".into(),
        schema: json!({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"},
                       "list": {"type": "array"}, "TEXT": {"type": "string"}}}),
        command: "printf '%s|' \"$WHARF_ARG_TEXT\" \"$WHARF_ARG_N\" \"$WHARF_ARG_LIST\"; cat"
            .into(),
    };
    let set = Set::new(Options {
        names: vec!["show".into()],
        own: vec![own],
        ..options()
    })
    .unwrap();
    let sandbox = quiet();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(run(&set, "show", arguments.clone(), &sandbox));
    let out = std::process::Command::new("sh")
        .args(["-c", &sandbox.ran()[0]])
        .output()
        .unwrap();
    String::from_utf8(out.stdout).unwrap()
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn no_argument_of_an_own_tool_is_ever_read_as_shell_text(
        text in "[ -~\n\t'\"$`;|&(){}<>äß]{0,40}",
        n in proptest::prelude::any::<i32>(),
    ) {
        let arguments = json!({"text": text, "n": n, "list": [text]});
        let said = in_a_shell(&arguments);
        let list = json!([text]).to_string();
        let head = format!("{text}|{n}|{list}|");
        proptest::prop_assert!(said.starts_with(&head), "{said:?} {head:?}");
        let read: Value = serde_json::from_str(&said[head.len()..]).unwrap();
        proptest::prop_assert_eq!(read, arguments);
    }
}

#[test]
fn what_no_variable_can_hold_is_in_the_json_alone() {
    let long = "x".repeat(20_000);
    for text in ["a\0b", long.as_str()] {
        let said = in_a_shell(&json!({"text": text}));
        assert!(said.starts_with("|||"), "{}", &said[..40]);
        let read: Value = serde_json::from_str(&said[3..]).unwrap();
        assert_eq!(read["text"], text);
    }
    let said = in_a_shell(&json!({"TEXT": "second", "text": "first"}));
    assert!(said.starts_with("|||"), "two of one name are none: {said}");
}

#[tokio::test]
async fn a_broken_sandbox_is_no_result() {
    let sandbox = Scripted::new(|_| {
        Err(Error::Broken {
            cause: wharf::sandbox::Cause::Gone,
            reason: "gone".into(),
        })
    });
    let call = Call {
        tool: "bash".into(),
        kind: Kind::Execute,
        arguments: json!({"command": "x"}),
    };
    let ran = set()
        .run(&call, 1, &sandbox, &CancellationToken::new())
        .await;
    assert!(matches!(ran, Err(Error::Broken { .. })));
}
