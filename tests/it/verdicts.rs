//! What a verdict takes to be a pass, and everything that is none.

use std::sync::Arc;

use serde_json::{Value, json};
use wharf::run::{Status, VerdictStatus};

use crate::server::{Answer, Ask, Role};
use crate::world::{Ran, World, passes, put, report, write};

mod cheats; // what is done to tests, and what the verifier is told of it
mod looks; // what a pass rests on, and verdicts that nobody gave
mod rounds; // what one round hands to the next, and when no other follows
mod trees; // the one a verdict is of
mod votes; // several verifiers

/// One coder under these further keys of the plan.
fn plan(extra: &str) -> String {
    format!(
        "version: 1\nname: test\ntask: Do the work\n{extra}\nsubtasks:\n  \
         - {{id: a, role: coder, brief: \"Do it.\"}}\n"
    )
}

const CRITERIA: &str = "acceptance: {criteria: [\"It is done\"]}";

/// The turns that an agent has taken.
fn turns(ask: &Ask) -> usize {
    let mine = ask.messages.iter();
    mine.filter(|m| m["role"] == "assistant").count()
}

/// Looks once, then passes.
fn verifier(ask: &Ask) -> Answer {
    match turns(ask) {
        0 => Answer::call("list_files", json!({})),
        _ => passes(&["It is done"], "#1"),
    }
}

/// The first message that the run's verifier got.
fn told(ran: &Ran) -> String {
    let requests = ran.server.requests();
    let found = requests.iter().find(|body| {
        let tools = body["tools"].as_array().into_iter().flatten();
        tools
            .into_iter()
            .any(|tool| tool["function"]["name"] == "submit_verdict")
    });
    let body = found.expect("a verifier was asked");
    let messages = body["messages"].as_array().unwrap();
    let first = messages.iter().find(|m| m["role"] == "user").unwrap();
    first["content"].as_str().unwrap().to_owned()
}

fn no_pass(name: &str, ran: &Ran) {
    let summary = &ran.summary;
    assert_ne!(summary.status, Status::Passed, "{name}: {}", summary.reason);
    assert_ne!(summary.exit_code, 0, "{name}");
    assert!(!summary.reason.is_empty(), "{name}");
    let status = summary.verdict.as_ref().map(|v| v.status);
    assert_ne!(status, Some(VerdictStatus::Pass), "{name}");
}

/// `submit_verdict` with these arguments as they stand.
fn raw(arguments: &str) -> Answer {
    Answer::calls(vec![(
        "submit_verdict",
        Value::String(arguments.to_owned()),
    )])
}

/// What a verifier may say that is no verdict, or none that passes.
fn no_verdicts() -> Vec<(&'static str, Answer)> {
    let criteria = r##""summary":"s","criteria":[{"criterion":"It is done","status":"pass","evidence":"#1"}]"##;
    let three = |words: [&str; 3]| {
        let one = |word: &&str| {
            let arguments = json!({"verdict": word, "summary": "s", "criteria":
                [{"criterion": "It is done", "status": word, "evidence": "#1"}]});
            ("submit_verdict", arguments)
        };
        Answer::calls(words.iter().map(one).collect())
    };
    let refusal = Answer::text("I'm sorry, I can't help with that.").finish("content_filter");
    vec![
        ("nothing", Answer::text("")),
        ("praise", Answer::text("Looks good!")),
        ("caveats", Answer::text("PASS (with caveats)")),
        ("both", Answer::text("Verdict: FAIL for a, b. Overall PASS")),
        ("a word", Answer::text("passed")),
        ("a negation", Answer::text("I cannot pass this")),
        (
            "another language",
            Answer::text("Bestanden. Все проверки пройдены."),
        ),
        ("a refusal", refusal),
        (
            "a call in text",
            Answer::text(&format!(
                "submit_verdict({{\"verdict\":\"pass\",{criteria}}})"
            )),
        ),
        ("cut", raw("{\"verdict\":\"pass\"")),
        ("no criteria", raw("{\"verdict\":\"pass\"}")),
        (
            "a boolean",
            raw(&format!("{{\"verdict\":true,{criteria}}}")),
        ),
        (
            "another word",
            raw(&format!("{{\"verdict\":\"PASSED!\",{criteria}}}")),
        ),
        (
            "twice in one",
            raw(&format!(
                "{{\"verdict\":\"pass\",\"verdict\":\"fail\",{criteria}}}"
            )),
        ),
        ("a list", raw("[\"pass\"]")),
        ("three that differ", three(["pass", "fail", "pass"])),
        ("a report instead", report("done", "verdict: pass")),
    ]
}

#[tokio::test]
async fn nothing_that_is_no_typed_verdict_in_due_form_passes() {
    for (name, answer) in no_verdicts() {
        let world = World::new(&[("a.txt", "a\n")]);
        let ran = world
            .run(&plan(CRITERIA), move |ask| match (ask.role, turns(ask)) {
                (Role::Verifier, 0) => Answer::call("list_files", json!({})),
                (Role::Verifier, _) => answer.clone(),
                _ => report("done", "nothing to do"),
            })
            .await;
        no_pass(name, &ran);
    }
}

/// Ways in which there is no judging: a name, further keys of the plan, what the reason says.
fn unjudged() -> Vec<(&'static str, String, &'static str)> {
    let command = |run: &str| {
        let command = format!("{{run: \"{run}\", timeout: 1s}}");
        format!("acceptance: {{commands: [{command}], criteria: [\"It is done\"]}}")
    };
    let verifier = |key: &str| format!("{CRITERIA}\nroles: {{verifier: {{agent: {{{key}}}}}}}");
    let none = "roles: {extends: none, coder: {prompt: code, tools: [bash]}}";
    let (absent, empty) = ("no such program", "collected no tests");
    vec![
        (absent, command("no-such-program"), absent),
        (
            "killed by its limit",
            command("sleep 30"),
            "killed after 1 s",
        ),
        (empty, command("echo no tests ran in 0.00s; exit 5"), empty),
        (
            "none and a success",
            command("echo Ran 0 tests in 0.000s"),
            empty,
        ),
        ("pytest says 5", command("exit 5; pytest"), empty),
        ("no tokens for it", verifier("tokens: 0"), "limit"),
        ("no turns for it", verifier("turns: 0"), "limit"),
        (
            "no verifier",
            format!("{CRITERIA}\n{none}"),
            "the plan has no verifier",
        ),
    ]
}

#[tokio::test]
async fn whoever_could_not_judge_has_not_passed_and_says_why() {
    for (name, extra, why) in unjudged() {
        let world = World::new(&[("a.txt", "a\n")]);
        let ran = world
            .run(&plan(&extra), |ask| match ask.role {
                Role::Verifier => verifier(ask),
                _ => report("done", "nothing to do"),
            })
            .await;
        no_pass(name, &ran);
        let summary = &ran.summary;
        let ended = (summary.status, summary.exit_code);
        assert_eq!(ended, (Status::Unverified, 4), "{name}: {}", summary.reason);
        assert!(summary.reason.contains(why), "{name}: {}", summary.reason);
    }
}

#[tokio::test]
async fn a_verifier_whose_model_refuses_it_leaves_the_run_unjudged() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(&plan(CRITERIA), |ask| match ask.role {
            Role::Verifier => Answer::status(401, r#"{"error":{"message":"bad key"}}"#, &[]),
            _ => report("done", "nothing to do"),
        })
        .await;
    no_pass("401", &ran);
    let summary = &ran.summary;
    assert_eq!((summary.status, summary.exit_code), (Status::Error, 3));
    let verdict = summary
        .verdict
        .as_ref()
        .expect("it is said in the verdict too");
    assert_eq!(verdict.status, VerdictStatus::Unknown);
    assert!(verdict.summary.contains("401"), "{}", verdict.summary);
}

/// The engine fails for one sandbox, once or for good.
#[tokio::test]
async fn an_environment_that_failed_is_tried_once_more_and_then_it_is_said() {
    for (place, times, status) in [
        ("verifier", 1, Status::Passed),
        ("verifier", 9, Status::Error),
        ("acceptance", 1, Status::Passed),
        ("acceptance", 9, Status::Error),
    ] {
        let mut world = World::new(&[("a.txt", "a\n")]);
        world.engine = Arc::new(Failing::new(place, times));
        let extra = "acceptance: {commands: [\"true\"], criteria: [\"It is done\"]}";
        let ran = world
            .run(&plan(extra), |ask| match ask.role {
                Role::Verifier => verifier(ask),
                _ => report("done", "nothing to do"),
            })
            .await;
        let summary = &ran.summary;
        assert_eq!(
            summary.status, status,
            "{place} {times}: {}",
            summary.reason
        );
        let warned = summary.warnings.iter().any(|w| w.contains("once more"));
        assert!(warned, "{place} {times}: {:?}", summary.warnings);
        if status == Status::Error {
            no_pass(place, &ran);
            assert!(summary.reason.contains("no room"), "{}", summary.reason);
        }
    }
}

/// Judged is the merged tree, whatever the operator's directory is meanwhile.
#[tokio::test]
async fn what_is_judged_is_what_merged_and_nothing_else() {
    for (before, after, passes) in [("broken", "fixed", true), ("fixed", "broken", false)] {
        let world = World::new(&[("a.txt", before), ("other.txt", "other\n")]);
        let host = world.workspace.clone();
        let extra = "acceptance: {commands: [\"grep -q fixed a.txt\"], criteria: [\"It is done\"]}";
        let ran = world
            .run(&plan(extra), move |ask| match (ask.role, turns(ask)) {
                (Role::Verifier, 0) => {
                    put(&host.join("a.txt"), "changed by the operator");
                    put(&host.join("other.txt"), "changed by the operator");
                    Answer::calls(vec![
                        ("read_file", json!({"path": "a.txt"})),
                        ("read_file", json!({"path": "other.txt"})),
                    ])
                }
                (Role::Verifier, _) => {
                    assert!(ask.results()[0].contains(after), "{:?}", ask.results());
                    assert!(ask.results()[1].contains("other\n"), "{:?}", ask.results());
                    assert!(!ask.first.contains("other.txt\n+"), "{}", ask.first);
                    verifier(ask)
                }
                (_, 0) => write("a.txt", after),
                (_, 1) => Answer::call("bash", json!({"command": "true"})),
                _ => report("done", "changed it"),
            })
            .await;
        assert_eq!(
            ran.summary.status == Status::Passed,
            passes,
            "{}",
            ran.summary.reason
        );
        let patch = std::fs::read_to_string(ran.summary.patch.as_ref().unwrap()).unwrap();
        assert!(!patch.contains("operator"), "{patch}");
        let tree = ran.summary.verdict.unwrap().tree;
        let git = std::process::Command::new("git")
            .arg("--git-dir")
            .arg(world.state.join("runs/run/store.git"))
            .args([
                "rev-parse",
                &format!("{}^{{tree}}", ran.summary.snapshot.unwrap()),
            ])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&git.stdout).trim(), tree);
    }
}

#[tokio::test]
async fn what_a_verifier_changes_is_thrown_away() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(&plan(CRITERIA), |ask| match (ask.role, turns(ask)) {
            (Role::Verifier, 0) => Answer::call(
                "bash",
                json!({"command": "echo hacked >> a.txt; echo x > junk.txt; cat a.txt"}),
            ),
            (Role::Verifier, _) => {
                assert!(ask.last().contains("hacked"), "{}", ask.last());
                passes(&["It is done"], "#1")
            }
            (_, 0) => write("b.txt", "b\n"),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "made it"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let patch = std::fs::read_to_string(ran.summary.patch.as_ref().unwrap()).unwrap();
    assert!(patch.contains("b.txt"), "{patch}");
    assert!(
        !patch.contains("hacked") && !patch.contains("junk"),
        "{patch}"
    );
    assert_eq!(ran.summary.left_out.len(), 0, "{:?}", ran.summary.left_out);
}

/// A child fails in each way; the coordinator's words claim that all is well.
#[tokio::test]
async fn no_words_of_success_outweigh_a_child_that_failed() {
    type Child = fn(&Ask) -> Answer;
    let children: [(&str, Child); 5] = [
        ("says nothing", |_| Answer::text("")),
        ("only talks", |_| Answer::text("created proof.txt")),
        ("never ends", |ask| {
            Answer::call("bash", json!({"command": format!("echo {}", turns(ask))}))
        }),
        ("has no summary", |_| {
            Answer::calls(vec![(
                "submit_report",
                json!({"status": "failed", "summary": ""}),
            )])
        }),
        ("is refused", |_| {
            Answer::status(401, r#"{"error":{"message":"bad key"}}"#, &[])
        }),
    ];
    for (name, child) in children {
        let world = World::new(&[("a.txt", "a\n")]);
        let plan = "version: 1\ntask: Make proof.txt\nrun: {rounds: 1}\nagent: {turns: 6}\n";
        let ran = world
            .run(plan, move |ask| match ask.role {
                Role::Coordinator => Answer::call(
                    "submit_plan",
                    json!({"summary": "s", "criteria": ["There is a proof.txt"], "subtasks":
                        [{"id": "t1", "role": "coder", "brief": "Make proof.txt", "needs": []}]}),
                ),
                Role::Worker => child(ask),
                Role::Verifier => panic!("nobody asks a verifier while t1 stands failed"),
                Role::Other => Answer::text("All done, proof.txt created"),
            })
            .await;
        no_pass(name, &ran);
        let report = std::fs::read_to_string(world.state.join("runs/run/report.md")).unwrap();
        let t1 = &ran.summary.subtasks[0];
        assert_eq!(t1.status, wharf::journal::SubtaskStatus::Failed, "{name}");
        assert!(t1.reason.as_ref().is_some_and(|r| !r.is_empty()), "{name}");
        assert!(
            report.contains("| t1 | coder |  | failed |"),
            "{name}: {report}"
        );
        if let Some(at) = report.find("All done") {
            assert!(
                report[..at].contains("this run did not pass"),
                "{name}: {report}"
            );
        }
    }
}

/// An engine that cannot start the first sandboxes of one subtask.
struct Failing {
    inner: wharf::sandbox::memory::Memory,
    subtask: &'static str,
    left: std::sync::atomic::AtomicU32,
}

impl Failing {
    fn new(subtask: &'static str, times: u32) -> Self {
        Self {
            inner: Default::default(),
            subtask,
            left: times.into(),
        }
    }
}

impl wharf::sandbox::Engine for Failing {
    fn prepare<'a>(
        &'a self,
        image: &'a wharf::sandbox::ImageSpec,
        progress: &'a dyn wharf::sandbox::Progress,
        cancel: &'a tokio_util::sync::CancellationToken,
    ) -> futures::future::BoxFuture<'a, Result<wharf::sandbox::Image, wharf::sandbox::Error>> {
        self.inner.prepare(image, progress, cancel)
    }

    fn start<'a>(
        &'a self,
        spec: &'a wharf::sandbox::Spec,
        layer: Option<&'a wharf::sandbox::Layer>,
        cancel: &'a tokio_util::sync::CancellationToken,
    ) -> futures::future::BoxFuture<
        'a,
        Result<Box<dyn wharf::sandbox::Vacant>, wharf::sandbox::Error>,
    > {
        use std::sync::atomic::Ordering::SeqCst;
        let mine = spec.labels.subtask == self.subtask;
        let fails = mine
            && self
                .left
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok();
        match fails {
            true => Box::pin(async {
                Err(wharf::sandbox::Error::Engine {
                    operation: "start a container",
                    reason: "no room".to_owned(),
                })
            }),
            false => self.inner.start(spec, layer, cancel),
        }
    }

    fn layer<'a>(
        &'a self,
        spec: &'a wharf::sandbox::Spec,
        tree: Arc<wharf::sandbox::Tree>,
        progress: &'a dyn wharf::sandbox::Progress,
        cancel: &'a tokio_util::sync::CancellationToken,
    ) -> futures::future::BoxFuture<'a, Result<wharf::sandbox::Layer, wharf::sandbox::Error>> {
        self.inner.layer(spec, tree, progress, cancel)
    }
}
