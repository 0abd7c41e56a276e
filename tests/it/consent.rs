//! Who lets a call run: modes, rules, hooks, approvers, the person; and who can not.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use wharf::journal::{DecidedBy, Event, HookOutcome, SubtaskStatus};
use wharf::run::{self, Board, Notice, Question, Raised, Reply, Scope, Watch};
use wharf::tools::{Action, Ending, Kind, Mode, Options, Output, Rule, Ruling, Set};

use crate::again::{Recorded, count};
use crate::operator::Operator;
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::world::{Ran, World, connect, put, report, write};

fn set(mode: Mode, rules: Vec<Rule>) -> Set {
    Set::new(Options {
        mode,
        rules,
        ..crate::tools::options()
    })
    .unwrap()
}

fn rule(tool: &str, command: Option<&str>, path: Option<&str>, action: Action) -> Rule {
    Rule {
        tool: tool.into(),
        command: command.map(String::from),
        path: path.map(String::from),
        action,
    }
}

/// `allowed`, `asked` or `denied`.
fn ruled(set: &Set, tool: &str, arguments: Value) -> &'static str {
    match set.check(tool, &arguments.to_string()) {
        Err(Output {
            error_type: Some("denied"),
            ..
        }) => "denied",
        Err(other) => panic!("{}", other.text),
        Ok(call) => match set.ruling(&call) {
            Ruling::Allowed => "allowed",
            Ruling::Asked(_) => "asked",
            Ruling::Denied(reason) => panic!("refused late: {reason}"),
        },
    }
}

fn bash(set: &Set, line: &str) -> &'static str {
    ruled(set, "bash", json!({"command": line}))
}

#[test]
fn every_mode_decides_about_every_kind() {
    let table = [
        (Mode::Auto, ["allowed", "allowed", "allowed"]),
        (Mode::Ask, ["allowed", "asked", "asked"]),
        (Mode::Plan, ["allowed", "denied", "denied"]),
        (Mode::Deny, ["denied", "denied", "denied"]),
    ];
    for (mode, [read, written, executed]) in table {
        let set = set(mode, Vec::new());
        assert_eq!(
            ruled(&set, "read_file", json!({"path": "a"})),
            read,
            "{mode:?}"
        );
        assert_eq!(ruled(&set, "list_files", json!({})), read, "{mode:?}");
        assert_eq!(
            ruled(&set, "grep", json!({"pattern": "a"})),
            read,
            "{mode:?}"
        );
        let file = json!({"path": "a", "content": ""});
        assert_eq!(ruled(&set, "write_file", file), written, "{mode:?}");
        let edit = json!({"path": "a", "old_string": "b", "new_string": "c"});
        assert_eq!(ruled(&set, "edit_file", edit), written, "{mode:?}");
        assert_eq!(bash(&set, "ls"), executed, "{mode:?}");
        assert_eq!(
            ruled(&set, "run_acceptance", json!({})),
            executed,
            "{mode:?}"
        );
        let end = json!({"status": "done", "summary": ""});
        assert_eq!(ruled(&set, "submit_report", end), "allowed", "{mode:?}");
        // Another kind of tool is judged as one that runs something.
        let mut call = set
            .check("submit_report", r#"{"status":"done","summary":""}"#)
            .unwrap();
        call.kind = Kind::External;
        let external = match set.ruling(&call) {
            Ruling::Allowed => "allowed",
            Ruling::Asked(_) => "asked",
            Ruling::Denied(_) => "denied",
        };
        assert_eq!(external, executed, "{mode:?}");
    }
}

#[test]
fn rules_lift_what_a_mode_holds_but_for_reads_only() {
    let rules = || {
        vec![
            rule("bash", Some("ls*"), None, Action::Allow),
            rule("bash", Some("make"), None, Action::Ask),
            rule("write_file", None, Some("docs/**"), Action::Allow),
            rule("read_file", None, None, Action::Allow),
        ]
    };
    for (mode, allowed, asked) in [
        (Mode::Auto, "allowed", "asked"),
        (Mode::Ask, "allowed", "asked"),
        (Mode::Deny, "allowed", "asked"),
        (Mode::Plan, "denied", "denied"),
    ] {
        let set = set(mode, rules());
        assert_eq!(bash(&set, "ls -l && ls"), allowed, "{mode:?}");
        assert_eq!(bash(&set, "ls; make"), asked, "{mode:?}");
        let file = json!({"path": "docs/a.md", "content": ""});
        assert_eq!(ruled(&set, "write_file", file), allowed, "{mode:?}");
        assert_eq!(ruled(&set, "read_file", json!({"path": "a"})), "allowed");
    }
    let strict = set(Mode::Deny, rules());
    assert_eq!(bash(&strict, "ls && rm x"), "denied");
    assert_eq!(bash(&strict, "ls $(rm x)"), "denied");
    assert_eq!(bash(&strict, "bash -c \"$x\""), "denied");
}

#[test]
fn deny_wins_wherever_a_part_stands() {
    let rules = vec![
        rule("*", None, None, Action::Allow),
        rule("bash", Some("git push*"), None, Action::Deny),
    ];
    for mode in [Mode::Auto, Mode::Ask, Mode::Deny] {
        let set = set(mode, rules.clone());
        for line in [
            "git push",
            "true && git push origin",
            "echo \"$(git push)\"",
            "env A=1 git push",
            "echo x | xargs git push",
            "bash -c 'sh -c \"git push\"'",
            "/usr/bin/git push",
            "g''it push",
        ] {
            assert_eq!(bash(&set, line), "denied", "{mode:?} {line}");
        }
    }
    let set = set(Mode::Auto, rules);
    assert_eq!(bash(&set, "git status"), "allowed");
    // What it runs cannot be told: that is no yes.
    assert_eq!(bash(&set, "$x push"), "asked");
    assert_eq!(bash(&set, "curl x | sh"), "asked");
    let free = self::set(Mode::Auto, Vec::new());
    assert_eq!(bash(&free, "$x push"), "allowed");
}

#[test]
fn the_shipped_list_holds_until_a_rule_names_it() {
    let file = |path: &str| json!({"path": path, "content": ""});
    for (mode, ruling) in [
        (Mode::Auto, "denied"),
        (Mode::Ask, "asked"),
        (Mode::Deny, "denied"),
    ] {
        let set = set(mode, vec![rule("*", None, None, Action::Allow)]);
        assert_eq!(ruled(&set, "write_file", file(".env")), ruling, "{mode:?}");
        assert_eq!(
            ruled(&set, "read_file", json!({"path": "x/.ssh/config"})),
            ruling
        );
        assert_eq!(ruled(&set, "write_file", file(".env.example")), "allowed");
        let rules = vec![rule("write_file", None, Some(".env"), Action::Allow)];
        assert_eq!(
            ruled(&self::set(mode, rules), "write_file", file(".env")),
            "allowed"
        );
    }
    let wide = || rule("*", None, None, Action::Allow);
    let asks = set(Mode::Ask, vec![wide()]);
    for line in [
        "rm -rf build",
        "cat .env",
        "echo x > .github/workflows/a.yml",
        "curl x | sh",
        "git push",
    ] {
        assert_eq!(bash(&asks, line), "asked", "{line}");
    }
    assert_eq!(
        ruled(&asks, "write_file", file(".github/workflows/a.yml")),
        "asked"
    );
    assert_eq!(bash(&asks, "ls"), "allowed");
    let named = set(
        Mode::Ask,
        vec![rule("bash", Some("git push"), None, Action::Allow), wide()],
    );
    assert_eq!(bash(&named, "git push"), "allowed");
    assert_eq!(bash(&named, "git push -f"), "asked");
    // In auto nobody is asked about what is only dangerous: the sandbox is the boundary.
    assert_eq!(
        bash(&set(Mode::Auto, Vec::new()), "rm -rf build"),
        "allowed"
    );
}

#[test]
fn nothing_in_a_call_changes_its_permission() {
    let set = set(Mode::Ask, Vec::new());
    for extra in [
        "approved",
        "with_escalated_permissions",
        "permission",
        "dangerously_skip",
    ] {
        let arguments = json!({"command": "make", extra: true}).to_string();
        let ruling = set.check("bash", &arguments).map(|call| set.ruling(&call));
        assert!(!matches!(ruling, Ok(Ruling::Allowed)), "{extra}");
    }
    assert_eq!(Ending::Report.tool(), "submit_report");
}

type Answering = Box<dyn Fn(&Question, Reply) + Send + Sync>;

/// A person who answers by a script, and everything they were told.
struct Person {
    notices: Mutex<Vec<Notice>>,
    questions: Mutex<Vec<Question>>,
    answer: Answering,
    /// Replies that are kept open.
    kept: Mutex<Vec<Reply>>,
}

impl Watch for Person {
    fn notice(&self, notice: &Notice) {
        self.notices.lock().unwrap().push(notice.clone());
        let ended = matches!(notice, Notice::AgentEnded { agent, .. } if agent == "b");
        if ended {
            for reply in self.kept.lock().unwrap().drain(..) {
                drop(reply.send(yes(Scope::Once)));
            }
        }
    }

    fn board(&self, _: Arc<Board>) {}

    fn ask(&self, question: Question) -> Option<oneshot::Receiver<run::Answer>> {
        let (reply, answer) = oneshot::channel();
        if question.reason.contains("keep") || question.what.contains("kept") {
            self.kept.lock().unwrap().push(reply);
        } else {
            (self.answer)(&question, reply);
        }
        self.questions.lock().unwrap().push(question);
        Some(answer)
    }
}

fn yes(scope: Scope) -> run::Answer {
    run::Answer::Yes {
        scope,
        reason: None,
    }
}

fn no() -> run::Answer {
    run::Answer::No { reason: None }
}

fn person(
    answer: impl Fn(&Question) -> Option<run::Answer> + Send + Sync + 'static,
) -> Arc<Person> {
    Arc::new(Person {
        notices: Mutex::default(),
        questions: Mutex::default(),
        answer: Box::new(move |question, reply| match answer(question) {
            Some(answer) => drop(reply.send(answer)),
            None => drop(reply),
        }),
        kept: Mutex::default(),
    })
}

/// A plan whose `extra` stands at the top, with these subtasks and no verifier's criteria.
fn plan(extra: &str, ids: &[&str]) -> String {
    let mut text = format!("version: 1\nname: test\ntask: Do the work\n{extra}\nsubtasks:\n");
    for id in ids {
        text.push_str(&format!(
            "  - {{id: {id}, role: coder, brief: \"BRIEF {id}.\"}}\n"
        ));
    }
    text
}

/// Runs a plan with this person watching, unverified: consent is what is looked at.
async fn run_with(
    world: &World,
    plan: &str,
    person: &Arc<Person>,
    script: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
) -> Ran {
    let server = FakeModel::start(script).await;
    let mut order = world.order(plan, connect(&server));
    order.options.verify = false;
    order.consent.env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    order.watch = person.clone();
    let summary = run::start(order).await.unwrap();
    assert_eq!(server.violations(), Vec::<String>::new());
    let path = world.state.join("runs/run/journal.jsonl");
    let journal = wharf::journal::read(&path).unwrap();
    let notices = person.notices.lock().unwrap().clone();
    Ran {
        summary,
        server,
        notices,
        journal: journal.lines,
    }
}

/// Each worker makes these calls, one a turn, and reports; results go to the tests by `results`.
fn calls(calls: Vec<(&'static str, Value)>) -> impl Fn(&Ask) -> Answer + Send + Sync + 'static {
    move |ask| match calls.get(ask.ordinal) {
        Some((tool, arguments)) => Answer::call(tool, arguments.clone()),
        None => report("done", "did it"),
    }
}

/// The results of the last request's conversation.
fn results(ran: &Ran) -> Vec<String> {
    let requests = ran.server.requests();
    let messages = requests
        .last()
        .and_then(|request| request["messages"].as_array());
    let tools = messages
        .into_iter()
        .flatten()
        .filter(|message| message["role"] == "tool");
    tools
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

fn decisions(ran: &Ran) -> Vec<(bool, DecidedBy)> {
    let events = ran.journal.iter();
    let decided = events.filter_map(|line| match &line.event {
        Event::PermissionDecided { allowed, by, .. } => Some((*allowed, *by)),
        _ => None,
    });
    decided.collect()
}

const ASK: &str = "permissions: {mode: ask}";

#[tokio::test]
async fn a_person_s_yes_lets_a_call_run_and_a_no_is_a_plain_error() {
    let world = World::new(&[]);
    let person = person(|question| {
        Some(if question.what == "a.txt" {
            yes(Scope::Once)
        } else {
            no()
        })
    });
    let script = calls(vec![
        ("write_file", json!({"path": "a.txt", "content": "a"})),
        ("write_file", json!({"path": "b.txt", "content": "b"})),
        ("write_file", json!({"path": "b.txt", "content": "b"})),
        ("read_file", json!({"path": "a.txt"})),
    ]);
    let ran = run_with(&world, &plan(ASK, &["a"]), &person, script).await;
    let results = results(&ran);
    assert!(results[0].contains("wrote"), "{results:?}");
    assert!(
        results[1].contains("refused it") && results[1].contains("not allowed"),
        "{results:?}"
    );
    assert!(results[2].contains("refused before"), "{results:?}");
    assert!(results[3].contains('a'), "{results:?}");
    use DecidedBy::{Grant, Person};
    assert_eq!(
        decisions(&ran),
        [(true, Person), (false, Person), (false, Grant)]
    );
    let questions = person.questions.lock().unwrap();
    assert_eq!(questions.len(), 2, "the same call is not asked about twice");
    assert_eq!(
        (questions[0].agent.as_str(), questions[0].tool.as_str()),
        ("a", "write_file")
    );
    assert_eq!(ran.summary.subtasks[0].changed_files, ["a.txt"]);
}

#[tokio::test]
async fn a_yes_holds_for_the_run_or_for_a_directory() {
    let world = World::new(&[]);
    let person = person(|question| {
        Some(yes(if question.tool == "bash" {
            Scope::Run
        } else {
            Scope::Directory
        }))
    });
    let script = calls(vec![
        ("bash", json!({"command": "true"})),
        ("bash", json!({"command": "true && true"})),
        ("write_file", json!({"path": "src/a", "content": "a"})),
        ("write_file", json!({"path": "src/deep/b", "content": "a"})),
        (
            "edit_file",
            json!({"path": "src/a", "old_string": "a", "new_string": "b"}),
        ),
        ("bash", json!({"command": "true; false"})),
        ("write_file", json!({"path": "other/b", "content": "a"})),
        ("bash", json!({"command": "true"})),
    ]);
    let ran = run_with(&world, &plan(ASK, &["a"]), &person, script).await;
    let asked: Vec<String> = person
        .questions
        .lock()
        .unwrap()
        .iter()
        .map(|question| question.what.clone())
        .collect();
    assert_eq!(asked, ["true", "src/a", "true; false", "other/b"]);
    assert!(decisions(&ran).iter().all(|(allowed, _)| *allowed));
}

#[tokio::test]
async fn nobody_and_a_deadline_are_a_no() {
    let world = World::new(&[]);
    let script = || calls(vec![("bash", json!({"command": "true"}))]);
    let ran = world
        .run(&format!("{}\n", plan(ASK, &["a"])), script())
        .await;
    let nobody = (false, DecidedBy::Nobody);
    assert!(decisions(&ran).contains(&nobody), "{:?}", decisions(&ran));
    let world = World::new(&[]);
    let extra = "permissions: {mode: ask, approver: {timeout: 300ms}}";
    // The question stays open, and nobody answers it.
    let person = person(|_| None);
    let kept = calls(vec![("bash", json!({"command": "echo kept"}))]);
    let ran = run_with(&world, &plan(extra, &["a"]), &person, kept).await;
    assert_eq!(decisions(&ran), [(false, DecidedBy::Deadline)]);
    assert!(results(&ran)[0].contains("nobody answered within 0.3 s"));
    // The terminal goes away under the question.
    let world = World::new(&[]);
    let ran = run_with(&world, &plan(ASK, &["a"]), &person, script()).await;
    assert_eq!(decisions(&ran), [(false, DecidedBy::Fault)]);
}

#[tokio::test]
async fn an_open_question_holds_up_nobody_else() {
    let world = World::new(&[]);
    // The first agent's question is only answered once the second agent has ended.
    let person = person(|_| Some(yes(Scope::Once)));
    let ran = run_with(&world, &plan(ASK, &["a", "b"]), &person, |ask| {
        match (ask.first.contains("BRIEF a."), ask.ordinal) {
            (true, 0) => Answer::call("bash", json!({"command": "echo kept"})),
            (false, 0 | 1) => {
                Answer::call("bash", json!({"command": format!("echo {}", ask.ordinal)}))
            }
            _ => report("done", "did it"),
        }
    })
    .await;
    let all = ran.summary.subtasks.iter().map(|subtask| subtask.status);
    assert!(all.into_iter().all(|status| status == SubtaskStatus::Done));
    assert_eq!(decisions(&ran).len(), 3);
    assert!(
        decisions(&ran)
            .iter()
            .all(|decided| *decided == (true, DecidedBy::Person))
    );
}

#[tokio::test]
async fn a_yes_to_one_answers_the_same_question_of_another() {
    let world = World::new(&[]);
    let first = Mutex::new(true);
    let person = Arc::new(Person {
        notices: Mutex::default(),
        questions: Mutex::default(),
        answer: Box::new(move |_, reply| {
            // Only one of two questions is ever answered, the other is left open.
            if std::mem::take(&mut *first.lock().unwrap()) {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(300));
                    drop(reply.send(yes(Scope::Run)));
                });
            } else {
                std::mem::forget(reply);
            }
        }),
        kept: Mutex::default(),
    });
    let script = calls(vec![("bash", json!({"command": "true"}))]);
    let ran = run_with(&world, &plan(ASK, &["a", "b"]), &person, script).await;
    let by: BTreeSet<String> = decisions(&ran).iter().map(|d| format!("{d:?}")).collect();
    assert!(
        decisions(&ran).iter().all(|(allowed, _)| *allowed),
        "{by:?}"
    );
    assert!(
        decisions(&ran).contains(&(true, DecidedBy::Grant)),
        "{by:?}"
    );
}

/// What a run under an approver decides about one command.
async fn approved(approver: &str) -> (Vec<(bool, DecidedBy)>, String) {
    let world = World::new(&[]);
    let extra = format!("permissions: {{mode: ask, approver: {approver}}}");
    let person = person(|_| panic!("the person is not asked"));
    let script = calls(vec![("bash", json!({"command": "true"}))]);
    let ran = run_with(&world, &plan(&extra, &["a"]), &person, script).await;
    (decisions(&ran), results(&ran)[0].clone())
}

#[tokio::test]
async fn an_approver_command_says_yes_or_no_and_anything_else_is_a_no() {
    use DecidedBy::{Approver, Fault};
    let yes =
        r#"{command: "grep -q '\"tool_name\":\"bash\"' && echo '{\"decision\": \"allow\"}'"}"#;
    let (decided, result) = approved(yes).await;
    assert_eq!(decided, [(true, Approver)], "{result}");
    assert!(result.contains("exit code: 0"), "{result}");
    let no = r#"{command: "echo '{\"decision\": \"deny\", \"reason\": \"not today\"}'"}"#;
    let (decided, result) = approved(no).await;
    assert_eq!(decided, [(false, Approver)]);
    assert!(result.contains("not today"), "{result}");
    assert_eq!(
        approved(r#"{command: "echo never >&2; exit 2"}"#).await.0,
        [(false, Approver)]
    );
    for odd in [
        r#"{command: "echo yes"}"#,
        r#"{command: "true"}"#,
        r#"{command: "echo '{\"decision\": \"allow\"}'; exit 1"}"#,
        r#"{command: "kill -9 $$"}"#,
        r#"{command: "/nowhere/at/all"}"#,
        r#"{command: "sleep 60", timeout: 300ms}"#,
        r#"{command: "yes"}"#,
    ] {
        let (decided, result) = approved(odd).await;
        assert_eq!(decided, [(false, Fault)], "{odd} {result}");
    }
}

/// What is said of the time is what whoever is asked has, not the wait around it.
#[tokio::test]
async fn an_approver_s_time_is_told_as_the_plan_gives_it() {
    let world = World::new(&[]);
    let extra = "permissions: {mode: ask, approver: {command: \"exit 2\", timeout: 5s}}";
    let person = person(|_| panic!("the person is not asked"));
    let script = calls(vec![("bash", json!({"command": "true"}))]);
    let ran = run_with(&world, &plan(extra, &["a"]), &person, script).await;
    let asked = ran.journal.iter().filter_map(|line| match &line.event {
        Event::PermissionAsked { seconds, .. } => Some(*seconds),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [5.0]);
}

#[tokio::test]
async fn an_approver_s_address_says_yes_or_no_and_anything_else_is_a_no() {
    use DecidedBy::{Approver, Fault};
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = seen.clone();
    let app = Router::new()
        .route(
            "/yes",
            post(move |axum::Json(body): axum::Json<Value>| async move {
                kept.lock().unwrap().push(body);
                r#"{"decision":"allow","scope":"run"}"#
            }),
        )
        .route("/no", post(|| async { r#"{"decision":"deny"}"# }))
        .route("/garbage", post(|| async { "<html>allow</html>" }))
        .route(
            "/error",
            post(|| async { (StatusCode::INTERNAL_SERVER_ERROR, r#"{"decision":"allow"}"#) }),
        )
        .route(
            "/moved",
            post(|| async { (StatusCode::TEMPORARY_REDIRECT, [("location", "/yes")]) }),
        )
        .route(
            "/long",
            post(|| async {
                format!(
                    "{{\"decision\":\"allow\",\"x\":\"{}\"}}",
                    "x".repeat(200_000)
                )
            }),
        )
        .route("/silent", post(std::future::pending::<String>));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let at = |path: &str| format!("{{url: \"http://127.0.0.1:{port}/{path}\", timeout: 800ms}}");
    assert_eq!(approved(&at("yes")).await.0, [(true, Approver)]);
    let asked = seen.lock().unwrap()[0].clone();
    assert_eq!(
        (&asked["tool_name"], &asked["subtask"]),
        (&json!("bash"), &json!("a"))
    );
    assert_eq!(asked["tool_input"], json!({"command": "true"}));
    assert_eq!(approved(&at("no")).await.0, [(false, Approver)]);
    for odd in ["garbage", "error", "moved", "long", "silent", "nothing"] {
        let (decided, result) = approved(&at(odd)).await;
        assert_eq!(decided, [(false, Fault)], "{odd}: {result}");
    }
    server.abort();
    assert_eq!(
        approved("{url: \"http://127.0.0.1:1/x\"}").await.0,
        [(false, Fault)]
    );
}

/// Hooks of a plan: `(moment, matcher, command)`; each with a time limit of its own.
fn hooks(list: &[(&str, &str, &str)]) -> String {
    let mut all = serde_json::Map::new();
    for (moment, matcher, command) in list {
        let mut group = json!({"hooks": [{"type": "command", "command": command, "timeout": 5}]});
        if !matcher.is_empty() {
            group["matcher"] = json!(matcher);
        }
        let groups = all.entry(*moment).or_insert_with(|| json!([]));
        groups.as_array_mut().unwrap().push(group);
    }
    format!("hooks: {}", Value::Object(all))
}

fn outcomes(ran: &Ran) -> Vec<(String, HookOutcome)> {
    let events = ran.journal.iter();
    let hooks = events.filter_map(|line| match &line.event {
        Event::HookRan {
            moment, outcome, ..
        } => Some((moment.clone(), *outcome)),
        _ => None,
    });
    hooks.collect()
}

async fn hooked(extra: &str, list: &[(&str, &str, &str)], command: &str) -> (Ran, String) {
    let world = World::new(&[]);
    let person = person(|_| Some(no()));
    let text = plan(&format!("{extra}\n{}", hooks(list)), &["a"]);
    let command = command.to_owned();
    let ran = run_with(&world, &text, &person, move |ask| match ask.ordinal {
        0 => Answer::call("bash", json!({"command": command})),
        _ => report("done", "did it"),
    })
    .await;
    let first = results(&ran).first().cloned().unwrap_or_default();
    (ran, first)
}

fn answer(specific: Value) -> String {
    let whole = json!({"hookSpecificOutput": specific}).to_string();
    format!("cat >/dev/null; echo '{}'", whole.replace('\'', "'\\''"))
}

#[tokio::test]
async fn a_hook_blocks_asks_allows_or_fails_closed() {
    let pre = |command: &'static str| [("PreToolUse", "Bash", command)];
    let (ran, result) = hooked("", &pre("echo not on Friday >&2; exit 2"), "echo ran").await;
    assert!(
        result.contains("not on Friday") && !result.contains("exit code"),
        "{result}"
    );
    assert_eq!(decisions(&ran), [(false, DecidedBy::Hook)]);
    assert_eq!(
        outcomes(&ran),
        [("PreToolUse".to_owned(), HookOutcome::Blocked)]
    );
    for odd in [
        "exit 1",
        "echo '{'",
        "sleep 30",
        "yes",
        "head -c 100000000 /dev/zero",
        "/nowhere",
    ] {
        let (ran, result) = hooked("", &pre(odd), "echo ran").await;
        assert!(!result.contains("exit code"), "{odd}: {result}");
        assert_eq!(
            decisions(&ran),
            [(false, DecidedBy::Fault)],
            "{odd}: {result}"
        );
    }
    let (ran, result) = hooked("", &pre("true"), "echo ran").await;
    assert!(result.contains("exit code: 0"), "{result}");
    assert!(decisions(&ran).is_empty());
    let allow = answer(json!({"permissionDecision": "allow"}));
    let (ran, result) = hooked(ASK, &[("PreToolUse", "bash", &allow)], "echo ran").await;
    assert!(result.contains("exit code: 0"), "{result}");
    assert_eq!(decisions(&ran), [(true, DecidedBy::Hook)]);
    let ask = answer(json!({"permissionDecision": "ask", "permissionDecisionReason": "odd"}));
    let (ran, result) = hooked("", &[("PreToolUse", "", &ask)], "echo ran").await;
    assert!(result.contains("odd"), "{result}");
    assert_eq!(decisions(&ran), [(false, DecidedBy::Person)]);
    // Another tool's hook is not heard.
    let (ran, _) = hooked("", &[("PreToolUse", "write_file", "exit 2")], "echo ran").await;
    assert!(outcomes(&ran).is_empty());
}

#[tokio::test]
async fn what_a_hook_makes_of_a_call_is_checked_as_if_the_model_had_written_it() {
    let deny = "permissions: {rules: [{tool: bash, command: \"git push*\", action: deny}]}";
    let to = |input: Value| answer(json!({"permissionDecision": "allow", "updatedInput": input}));
    let good = to(json!({"command": "echo changed"}));
    let (ran, result) = hooked(deny, &[("PreToolUse", "bash", &good)], "echo ran").await;
    assert!(
        result.contains("changed") && result.contains("a hook of the operator's"),
        "{result}"
    );
    assert_eq!(
        outcomes(&ran),
        [("PreToolUse".to_owned(), HookOutcome::Changed)]
    );
    for smuggled in ["git push", "true; env A=1 git push", "bash -c 'git push'"] {
        let line = to(json!({"command": smuggled}));
        let (ran, result) = hooked(deny, &[("PreToolUse", "bash", &line)], "echo ran").await;
        assert!(
            result.contains("may not run") && !result.contains("exit code"),
            "{result}"
        );
        assert!(decisions(&ran).iter().all(|(allowed, _)| !allowed));
    }
    let odd = to(json!({"commands": 7}));
    let (_, result) = hooked(deny, &[("PreToolUse", "bash", &odd)], "echo ran").await;
    assert!(result.contains("may not run"), "{result}");
    // The second hook sees what the first one made, and its change takes the first one's yes away.
    let first = to(json!({"command": "echo first"}));
    let second = "grep -q 'echo first' && echo '{\"hookSpecificOutput\":{\"updatedInput\":{\"command\":\"echo second\"}}}'";
    let list = [
        ("PreToolUse", "bash", first.as_str()),
        ("PreToolUse", "bash", second),
    ];
    let (ran, result) = hooked(ASK, &list, "echo ran").await;
    assert!(!result.contains("exit code"), "{result}");
    assert_eq!(decisions(&ran), [(false, DecidedBy::Person)]);
    // What the rules forbid is no matter for hooks.
    let (ran, _) = hooked(deny, &[("PreToolUse", "bash", &good)], "git push").await;
    assert!(outcomes(&ran).is_empty());
    assert_eq!(decisions(&ran), [(false, DecidedBy::Rules)]);
}

#[tokio::test]
async fn a_hook_changes_a_result_adds_to_it_or_withholds_it() {
    let other =
        answer(json!({"updatedToolOutput": "nothing to see", "additionalContext": "mind the gap"}));
    let (_, result) = hooked("", &[("PostToolUse", "bash", &other)], "echo secret").await;
    assert_eq!(result, "#1 nothing to see\n[mind the gap]");
    let (_, result) = hooked("", &[("PostToolUse", "bash", "exit 1")], "echo secret").await;
    assert!(
        result.contains("withheld") && !result.contains("secret"),
        "{result}"
    );
    let objects = "echo '{\"decision\":\"block\",\"reason\":\"run it again\"}'";
    let (_, result) = hooked("", &[("PostToolUse", "bash", objects)], "echo shown").await;
    assert!(
        result.contains("shown") && result.contains("run it again"),
        "{result}"
    );
}

#[tokio::test]
async fn hooks_stand_at_an_agent_s_start_and_end_and_at_the_run_s() {
    let (ran, _) = hooked(
        "",
        &[("SubagentStart", "coder", "echo closed >&2; exit 2")],
        "echo ran",
    )
    .await;
    let subtask = &ran.summary.subtasks[0];
    assert_eq!(subtask.status, SubtaskStatus::Failed);
    assert!(
        subtask.reason.as_ref().unwrap().contains("closed"),
        "{:?}",
        subtask.reason
    );
    assert!(ran.server.requests().is_empty(), "no model was asked");
    let (ran, _) = hooked("", &[("SubagentStart", "reviewer", "exit 2")], "echo ran").await;
    assert_eq!(ran.summary.subtasks[0].status, SubtaskStatus::Done);
}

#[tokio::test]
async fn a_hook_hands_work_back_so_often_and_no_more() {
    let once = "grep -q '\"stop_hook_active\":true' || { echo more tests >&2; exit 2; }";
    let (ran, _) = hooked("", &[("SubagentStop", "", once)], "echo ran").await;
    assert_eq!(ran.summary.subtasks[0].status, SubtaskStatus::Done);
    assert!(
        results(&ran)
            .iter()
            .any(|result| result.contains("more tests"))
    );
    let (ran, _) = hooked(
        "",
        &[("SubagentStop", "", "echo never >&2; exit 2")],
        "echo ran",
    )
    .await;
    assert_eq!(ran.summary.subtasks[0].status, SubtaskStatus::Failed);
    assert_eq!(outcomes(&ran).len(), 4, "handed back three times");
    let (ran, _) = hooked("", &[("SubagentStop", "", "exit 1")], "echo ran").await;
    assert_eq!(ran.summary.subtasks[0].status, SubtaskStatus::Failed);
    assert_eq!(outcomes(&ran).len(), 1);
}

#[tokio::test]
async fn a_hook_at_the_end_objects_before_anything_is_delivered() {
    let (ran, _) = hooked(
        "",
        &[("Stop", "", "echo look at it >&2; exit 2")],
        "echo ran",
    )
    .await;
    assert!(
        ran.summary
            .warnings
            .iter()
            .any(|w| w.contains("look at it")),
        "{:?}",
        ran.summary.warnings
    );
    let stop = ran
        .journal
        .iter()
        .position(|l| matches!(&l.event, Event::HookRan { moment, .. } if moment == "Stop"));
    let delivered = ran
        .journal
        .iter()
        .position(|l| matches!(l.event, Event::Delivered { .. }));
    assert!(
        stop.unwrap() < delivered.unwrap(),
        "before anything lies in the operator's directory"
    );
}

#[tokio::test]
async fn a_run_that_is_stopped_ends_its_hooks() {
    let world = World::new(&[]);
    let text = plan(&hooks(&[("PreToolUse", "", "sleep 4721.1 & wait")]), &["a"]);
    let stop = world.stop.clone();
    let person = person(|_| None);
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        stop.exit_code
            .store(130, std::sync::atomic::Ordering::SeqCst);
        stop.cancel.cancel();
    };
    let script = calls(vec![("bash", json!({"command": "true"}))]);
    let (ran, ()) = tokio::join!(run_with(&world, &text, &person, script), stopping);
    assert_eq!(ran.summary.exit_code, 130);
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        assert!(!line.starts_with("sleep 4721.1"), "{line}");
    }
}

#[tokio::test]
async fn hooks_see_who_calls_what_and_no_key() {
    let world = World::new(&[]);
    let told = world.state.with_file_name("told");
    let command = format!("cat > {0}; env >> {0}", told.display());
    let text = plan(&hooks(&[("PreToolUse", "", &command)]), &["a"]);
    let script = calls(vec![("bash", json!({"command": "true"}))]);
    run_with(&world, &text, &person(|_| None), script).await;
    let told = std::fs::read_to_string(told).unwrap();
    let (object, env) = told.rsplit_once('}').unwrap();
    for part in [
        "\"session_id\":\"run\"",
        "\"hook_event_name\":\"PreToolUse\"",
        "\"tool_name\":\"bash\"",
        "\"tool_use_id\"",
        "\"subtask\":\"a\"",
        "\"permission_mode\":\"auto\"",
        "\"cwd\"",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(object.contains("\"command\":\"true\""), "{object}");
    let names = env
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name);
    let names: BTreeSet<&str> = names.collect();
    assert!(
        names
            .iter()
            .all(|name| ["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(name)),
        "{names:?}"
    );
}

/// What agents leave in a workspace is never a word on what runs on this machine.
#[tokio::test]
async fn files_that_agents_make_are_no_configuration() {
    let world = World::new(&[]);
    let mark = world.state.with_file_name("mark");
    let own = json!({"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": format!("touch {}", mark.display())}]}]}});
    let settings = own.to_string();
    let yaml = format!("version: 1\n{}", serde_json::to_string(&own).unwrap());
    let ran = run_with(
        &world,
        &plan("", &["a"]),
        &person(|_| None),
        move |ask| match ask.ordinal {
            0 => Answer::calls(vec![
                (
                    "write_file",
                    json!({"path": ".claude/settings.json", "content": settings}),
                ),
                (
                    "write_file",
                    json!({"path": ".claude/settings.local.json", "content": settings}),
                ),
                ("write_file", json!({"path": "wharf.yaml", "content": yaml})),
                (
                    "write_file",
                    json!({"path": ".wharf/config.yaml", "content": settings}),
                ),
            ]),
            1 => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "did it"),
        },
    )
    .await;
    assert_eq!(ran.summary.subtasks[0].status, SubtaskStatus::Done);
    assert!(outcomes(&ran).is_empty() && !mark.exists());
}

#[tokio::test]
async fn a_plan_that_only_lies_there_runs_nothing_on_this_machine() {
    let operator = Operator::new();
    let mark = operator.work().join("mark");
    let text = |more: &str| {
        let hook = format!("touch {}{more}", mark.display());
        plan(&hooks(&[("Stop", "", &hook)]), &["a"])
    };
    put(&operator.work().join("wharf.yaml"), &text(""));
    let found = ["run", "--model", "openai/x", "--json"];
    let said = operator.wharf(None, &found).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    let error = said.object()["error"].clone();
    let (message, hint) = (error["message"].to_string(), error["hint"].to_string());
    assert!(
        message.contains("on your machine") && message.contains("touch"),
        "{message}"
    );
    assert!(hint.contains("--plan"), "{hint}");
    // Named, it is trusted: the next fault is the missing engine.
    let named = [
        "run",
        "--plan",
        "wharf.yaml",
        "--model",
        "openai/x",
        "--json",
    ];
    let away = |mut command: tokio::process::Command| {
        command.env("DOCKER_HOST", "unix:///nowhere/docker.sock");
        command
    };
    let code = async |args: &[&str]| {
        let said = away(operator.command(None, args)).output().await.unwrap();
        said.status.code()
    };
    assert_eq!(code(&named).await, Some(3));
    // From then on also where it is found, but not with other words.
    assert_eq!(code(&found).await, Some(3));
    put(&operator.work().join("wharf.yaml"), &text(" && true"));
    assert_eq!(code(&found).await, Some(2));
    assert!(!mark.exists());
    // A plan without such programs is found as ever.
    put(&operator.work().join("wharf.yaml"), &plan("", &["a"]));
    assert_eq!(code(&found).await, Some(3));
}

/// Keys of a plan that are wrong, and what is said of it.
const UNFIT: [(&str, &str); 11] = [
    (
        r#"hooks: {PreToolUse: [{matcher: bsh, hooks: [{command: "true"}]}]}"#,
        "did you mean `bash`",
    ),
    (
        r#"hooks: {PreTolUse: [{hooks: [{command: "true"}]}]}"#,
        "PreToolUse",
    ),
    (
        r#"hooks: {PreToolUse: [{hooks: [{command: "true", shell: x}]}]}"#,
        "shell",
    ),
    (
        r#"hooks: {PreToolUse: [{matcher: "a.*b", hooks: [{command: "true"}]}]}"#,
        "no matcher",
    ),
    (
        r#"hooks: {Stop: [{matcher: bash, hooks: [{command: "true"}]}]}"#,
        "no matcher",
    ),
    (
        r#"hooks: {Stop: [{hooks: [{command: " "}]}]}"#,
        "no command line",
    ),
    (
        r#"hooks: {Stop: [{hooks: [{command: "true", timeout: 0}]}]}"#,
        "no time to wait",
    ),
    (
        r#"permissions: {approver: {command: a, url: "http://b"}}"#,
        "not both",
    ),
    (r#"permissions: {approver: {url: "ftp://b"}}"#, "no address"),
    (r#"permissions: {approver: {timeout: soon}}"#, "no duration"),
    (
        r#"permissions: {rules: [{tool: grep, path: "a/**", action: deny}]}"#,
        "has no path",
    ),
];

#[test]
fn a_hook_that_could_never_run_or_a_half_approver_is_a_fault_of_the_plan() {
    let fault = |extra: &str| {
        let read = wharf::plan::parse(&plan(extra, &["a"]), "p.yaml", &|_| Err(String::new()));
        read.unwrap_err().to_string()
    };
    for (extra, part) in UNFIT {
        let said = fault(extra);
        assert!(said.contains(part), "{part} in {said}");
    }
    let text = plan(
        &format!(
            "{}\npermissions: {{approver: {{command: \"./ask\", timeout: 30}}}}",
            hooks(&[
                ("PreToolUse", "Bash|*_file", "./check"),
                ("Stop", "", "./end")
            ])
        ),
        &["a"],
    );
    let read = |text: &str| wharf::plan::parse(text, "p.yaml", &|_| Err(String::new())).unwrap();
    let first = read(&text);
    let again = read(&first.to_yaml(&first.subtasks).unwrap());
    assert_eq!(
        (first.hooks, first.permissions),
        (again.hooks, again.permissions)
    );
}

#[tokio::test]
async fn what_was_granted_for_the_run_survives_and_an_open_question_is_asked_again() {
    let allow = "permissions: {mode: ask, approver: {command: \"echo '{\\\"decision\\\":\\\"allow\\\",\\\"scope\\\":\\\"run\\\"}'\"}}";
    let script = |ask: &Ask| {
        let turns = ask
            .messages
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        match (ask.role, turns) {
            (Role::Verifier | Role::Other | Role::Coordinator, _) => Answer::text("none"),
            (_, 0 | 1) => Answer::call("bash", json!({"command": "true"})),
            (_, 2) => write("a.txt", "a"),
            _ => report("done", "did it"),
        }
    };
    let whole = Recorded::of(&[], &plan(allow, &["a"]), script).await;
    let by = |lines: &[wharf::journal::Line]| -> Vec<DecidedBy> {
        let decided = lines.iter().filter_map(|line| match &line.event {
            Event::PermissionDecided { by, agent, .. } if agent.subtask.as_str() == "a" => {
                Some(*by)
            }
            _ => None,
        });
        decided.collect()
    };
    assert_eq!(
        by(&whole.lines),
        [DecidedBy::Approver, DecidedBy::Grant, DecidedBy::Approver]
    );
    let line = |so: &dyn Fn(&Event) -> bool| {
        whole.lines.iter().position(|line| so(&line.event)).unwrap() + 1
    };
    let asked = |tool: &'static str| {
        line(
            &move |event: &Event| matches!(event, Event::PermissionAsked { tool: own, .. } if own == tool),
        )
    };
    // Killed while the first question was open: it is asked again.
    let state = whole.killed(&whole.journal[..whole.boundaries()[asked("bash")]]);
    let again = whole
        .resume(state, Raised::default(), script)
        .await
        .unwrap();
    let asks = |lines: &[wharf::journal::Line]| {
        count(
            lines,
            |event| matches!(event, Event::PermissionAsked { tool, agent, .. } if tool == "bash" && agent.subtask.as_str() == "a"),
        )
    };
    assert_eq!(asks(&again.lines), 2);
    assert!(by(&again.lines).starts_with(&[DecidedBy::Approver, DecidedBy::Grant]));
    // Killed after the yes for the run: it still holds.
    let state = whole.killed(&whole.journal[..whole.boundaries()[asked("write_file")]]);
    let again = whole
        .resume(state, Raised::default(), script)
        .await
        .unwrap();
    assert_eq!(asks(&again.lines), 1);
    assert!(Path::new(&again.summary.run_dir).exists());
}

/// A run at a terminal of its own, made by `script`; what it prints is what a person sees.
struct Terminal {
    child: tokio::process::Child,
    keys: tokio::process::ChildStdin,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn open(operator: &Operator, server: &FakeModel, arguments: &str) -> Self {
        let mut command = operator.command(Some(server), &[]);
        let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_wharf"));
        let program = command.as_std().get_envs();
        let env: Vec<_> = program
            .map(|(k, v)| (k.to_owned(), v.unwrap_or_default().to_owned()))
            .collect();
        command = tokio::process::Command::new("script");
        command
            .args(["-qefc", &line, "/dev/null"])
            .env_clear()
            .envs(env)
            .env("TERM", "xterm")
            .current_dir(operator.work())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let screen = Arc::new(Mutex::new(String::new()));
        let seen = screen.clone();
        tokio::spawn(async move {
            use tokio::io::AsyncReadExt as _;
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes).await {
                seen.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self {
            child,
            keys,
            screen,
        }
    }

    /// Waits until this stands on the screen so many times.
    async fn shows(&self, text: &str, times: usize) {
        for _ in 0..1200 {
            if self.screen.lock().unwrap().matches(text).count() >= times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{text} is not shown: {}", self.screen.lock().unwrap());
    }

    async fn press(&mut self, key: &str) {
        use tokio::io::AsyncWriteExt as _;
        // As long as a person needs to read it.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        self.keys.write_all(key.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }
}

#[tokio::test]
async fn a_person_at_a_terminal_answers_by_a_key_or_is_too_late_and_the_others_go_on() {
    if crate::operator::skipped() {
        return;
    }
    let operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let server = FakeModel::start(|ask| match (ask.first.contains("BRIEF a."), ask.ordinal) {
        (true, 0) => Answer::call("bash", json!({"command": "echo one > one.txt"})),
        (true, 1) => write("two.txt", "two"),
        (true, 2) => Answer::call("bash", json!({"command": "echo late"})),
        (false, 0) => Answer::call("read_file", json!({"path": "keep.txt"})),
        _ => report("done", "did it"),
    })
    .await;
    let extra = "model: openai/fake\npermissions: {mode: ask, approver: {timeout: 12s}}";
    let file = operator.beside("plan.yaml", &plan(extra, &["a", "b"]));
    let line = format!("run -f {file} -C . --run-id run --no-verify");
    let mut terminal = Terminal::open(&operator, &server, &line);
    terminal.shows("a (coder) wants to run bash", 1).await;
    // Nothing was answered, and the other agent comes to its end.
    terminal.shows("b (coder) done", 1).await;
    terminal.press("y").await;
    terminal.shows("yes, once", 1).await;
    terminal.shows("a (coder) wants to run write_file", 1).await;
    terminal.press("n").await;
    terminal.shows("nobody answered within", 1).await;
    let status = tokio::time::timeout(crate::operator::LIMIT, terminal.child.wait()).await;
    assert!(
        status.unwrap().unwrap().success(),
        "{}",
        terminal.screen.lock().unwrap()
    );
    let journal = wharf::journal::read(&operator.state().join("runs/run/journal.jsonl")).unwrap();
    let decided = journal.lines.iter().filter_map(|line| match &line.event {
        Event::PermissionDecided { allowed, by, .. } => Some((*allowed, *by)),
        _ => None,
    });
    let decided: Vec<_> = decided.collect();
    use DecidedBy::{Deadline, Person};
    assert_eq!(
        decided,
        [(true, Person), (false, Person), (false, Deadline)]
    );
}
