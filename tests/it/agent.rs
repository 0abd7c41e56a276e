//! One agent's loop against a scripted model and a scripted sandbox: every way to go wrong, and to end.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code fails loudly"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::agent::{
    Assignment, CallOutput, Checkpoint, Outcome, Past, Permit, Shortened, Stop, Turn, Way, work,
};
use wharf::id::RoleName;
use wharf::model::{Call, Finish, Key, Message, Reply, Request, Usage};
use wharf::plan::{AgentLimits, Compaction, Kind, Network, Role};
use wharf::sandbox::{self, Exit};
use wharf::{tools, trace};

use crate::tools::{Scripted, finished, options};

/// What the scripted model answers next.
type Answer = Box<dyn FnMut(&Request) -> Result<Reply, Stop> + Send>;

/// A run in small: answers in order (the last for ever), a sandbox, and a record of all that passed.
struct World {
    answers: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<Request>>,
    turns: Mutex<Vec<Turn>>,
    sandbox: Arc<Scripted>,
    reopened: AtomicU32,
    cancel: CancellationToken,
    /// Why an ending call is refused, that many times.
    refuse: Mutex<Vec<String>>,
    left_out: Vec<String>,
    /// Answers to requests for a summary, in order; then none can be had.
    notes: Mutex<VecDeque<Result<Reply, Stop>>>,
    summaries: Mutex<Vec<(u32, Request)>>,
    shortened: Mutex<Vec<Shortened>>,
}

impl World {
    fn new(answers: Vec<Answer>) -> Self {
        Self {
            answers: Mutex::new(answers.into()),
            requests: Mutex::default(),
            turns: Mutex::default(),
            sandbox: Arc::new(Scripted::new(shell)),
            reopened: AtomicU32::new(0),
            cancel: CancellationToken::new(),
            refuse: Mutex::default(),
            left_out: Vec::new(),
            notes: Mutex::default(),
            summaries: Mutex::default(),
            shortened: Mutex::default(),
        }
    }

    async fn work(&self, assignment: Assignment) -> Outcome {
        work(assignment, self).await
    }

    fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// The last user or tool text of a request, by its ordinal from 0.
    fn told(&self, request: usize) -> String {
        match self.requests.lock().unwrap()[request].messages.last() {
            Some(Message::Tool { text, .. } | Message::User { text }) => text.clone(),
            other => panic!("request {request} ends with {other:?}"),
        }
    }
}

/// The commands that a test may run.
fn shell(command: &sandbox::Command) -> Result<sandbox::Finished, sandbox::Error> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let line = command.line.as_str();
    Ok(match line {
        "false" => finished(Exit::Code(1), "", ""),
        "count" => finished(
            Exit::Code(0),
            &COUNT.fetch_add(1, Ordering::Relaxed).to_string(),
            "",
        ),
        "crash" => {
            return Err(sandbox::Error::Broken {
                cause: sandbox::Cause::Engine,
                reason: "the stream dropped".into(),
            });
        }
        "big" => finished(Exit::Code(0), &"9\n".repeat(4_000), ""),
        "huge" => finished(Exit::Code(0), &"9\n".repeat(500_000), ""),
        line => finished(
            Exit::Code(0),
            line.strip_prefix("echo ").unwrap_or_default(),
            "",
        ),
    })
}

impl Checkpoint for World {
    fn ask<'a>(
        &'a self,
        request: Request,
        _: &'a trace::Span,
    ) -> BoxFuture<'a, Result<Reply, Stop>> {
        async move {
            assert_sendable(&request);
            self.requests.lock().unwrap().push(request.clone());
            let mut answers = self.answers.lock().unwrap();
            let reply = match answers.len() {
                1 => (answers[0])(&request),
                _ => (answers.pop_front().expect("an answer is scripted"))(&request),
            };
            reply.map(|mut reply| {
                // The model room makes ids unique in their conversation.
                let asked = self.asked();
                for (index, call) in reply.calls.iter_mut().enumerate() {
                    call.id = format!("c{asked}-{index}");
                }
                reply
            })
        }
        .boxed()
    }

    fn condense<'a>(
        &'a self,
        number: u32,
        request: Request,
        _: &'a trace::Span,
    ) -> BoxFuture<'a, Result<Reply, Stop>> {
        async move {
            assert!(request.tools.is_empty());
            self.summaries.lock().unwrap().push((number, request));
            let mut notes = self.notes.lock().unwrap();
            notes.pop_front().unwrap_or_else(|| {
                Err(Stop::Model {
                    reason: "no summary is scripted".into(),
                    hint: String::new(),
                })
            })
        }
        .boxed()
    }

    fn shortened<'a>(&'a self, how: &'a Shortened) -> BoxFuture<'a, Result<(), Stop>> {
        async move {
            self.shortened.lock().unwrap().push(how.clone());
            Ok(())
        }
        .boxed()
    }

    fn sandbox(&self) -> Arc<dyn sandbox::Sandbox> {
        self.sandbox.clone()
    }

    fn reopen<'a>(&'a self, broken: sandbox::Error) -> BoxFuture<'a, Result<String, Stop>> {
        async move {
            if self.reopened.fetch_add(1, Ordering::Relaxed) >= 2 {
                return Err(Stop::Environment {
                    reason: broken.to_string(),
                });
            }
            Ok("A new one stands at your last turn.".to_string())
        }
        .boxed()
    }

    fn turn<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Vec<String>, Stop>> {
        async move {
            self.turns.lock().unwrap().push(turn.clone());
            Ok(if turn.wrote {
                self.left_out.clone()
            } else {
                Vec::new()
            })
        }
        .boxed()
    }

    fn accept<'a>(&'a self, _: &'a Value) -> BoxFuture<'a, Result<Result<(), String>, Stop>> {
        async move { Ok(self.refuse.lock().unwrap().pop().map_or(Ok(()), Err)) }.boxed()
    }

    fn permit<'a>(
        &'a self,
        tools: &'a tools::Set,
        call: tools::Call,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Result<Permit, tools::Output>, Stop>> {
        let permitted = match tools.ruling(&call) {
            tools::Ruling::Allowed => Ok(Permit { call, told: None }),
            _ => Err(tools::approvals::refusal("nobody is there")),
        };
        async move { Ok(permitted) }.boxed()
    }

    fn seen<'a>(
        &'a self,
        _: &'a tools::Call,
        _: &'a str,
        output: tools::Output,
    ) -> BoxFuture<'a, Result<tools::Output, Stop>> {
        async move { Ok(output) }.boxed()
    }

    fn refused(&self, _: &str, _: &str, _: &str) {}

    fn doing(&self, _: &str) {}

    fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }
}

/// What the strictest servers refuse.
fn assert_sendable(request: &Request) {
    let mut open: VecDeque<String> = VecDeque::new();
    let mut seen = BTreeSet::new();
    let mut last = "";
    for (index, message) in request.messages.iter().enumerate() {
        let role = match message {
            Message::System { .. } => "system",
            Message::User { .. } => "user",
            Message::Assistant { .. } => "assistant",
            Message::Tool { .. } => "tool",
        };
        assert_eq!(
            role == "system",
            index == 0,
            "system stands first and only there"
        );
        assert!(
            !(role == "user" && last == "user"),
            "two user messages in a row"
        );
        assert!(
            !(role == "assistant" && last == "assistant"),
            "two assistant messages in a row"
        );
        match message {
            Message::Tool { call_id, text, .. } => {
                assert_eq!(open.pop_front().as_ref(), Some(call_id));
                assert!(seen.insert(call_id.clone()), "{call_id} answered twice");
                assert!(!text.is_empty());
            }
            other => {
                assert!(open.is_empty(), "{open:?} not answered before {other:?}");
                if let Message::Assistant { text, calls, .. } = other {
                    assert!(
                        !text.is_empty() || !calls.is_empty(),
                        "an empty assistant message"
                    );
                    for call in calls {
                        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                        assert!(arguments.is_object());
                        open.push_back(call.id.clone());
                    }
                }
            }
        }
        last = role;
    }
    assert!(
        open.is_empty() && matches!(last, "user" | "tool"),
        "ends with {last}"
    );
    assert!(request.tools.iter().any(|t| t.name.starts_with("submit_")));
}

fn limits() -> AgentLimits {
    AgentLimits {
        turns: 40,
        tokens: 4_000_000,
        time: Duration::from_secs(1_200),
        tool_calls: 200,
        tool_timeout: Duration::from_secs(30),
        output: 8_000,
        reply_tokens: 8_000,
    }
}

fn assignment() -> Assignment {
    let sandbox = wharf::plan::Sandbox {
        image: wharf::plan::Image::Named("i".into()),
        setup: Vec::new(),
        env: BTreeMap::new(),
        cpus: 1.0,
        memory: 1 << 30,
        pids: 64,
        disk: 1 << 30,
        network: Network::None,
        runtime: None,
        ..wharf::plan::Sandbox::default()
    };
    Assignment {
        role: Role {
            name: RoleName::new("coder"),
            kind: Kind::Worker,
            description: String::new(),
            prompt: String::new(),
            tools: Vec::new(),
            model: Vec::new(),
            temperature: None,
            effort: None,
            context_window: None,
            sandbox,
            limits: limits(),
        },
        ending: tools::Ending::Report,
        system: "You are a coder.".into(),
        first: "Do it.".into(),
        tools: tools::Set::new(options()).unwrap(),
        compaction: Compaction::default(),
        shortened: Vec::new(),
        summary_window: 200_000,
        context_window: 200_000,
        key: Key {
            round: 1,
            subtask: "a".into(),
            role: "coder".into(),
            call: 0,
        },
        past: Vec::new(),
        spent: Duration::ZERO,
        span: trace::Span::none(),
    }
}

fn with(change: impl FnOnce(&mut AgentLimits)) -> Assignment {
    let mut assignment = assignment();
    change(&mut assignment.role.limits);
    assignment
}

fn reply(text: &str, calls: &[(&str, String)], finish: Finish) -> Reply {
    let calls = calls
        .iter()
        .enumerate()
        .map(|(index, (name, arguments))| Call {
            id: format!("scripted-{index}"),
            name: (*name).into(),
            arguments: arguments.clone(),
        });
    Reply {
        text: text.into(),
        calls: calls.collect(),
        finish,
        usage: Usage {
            input: 100,
            output: 10,
            cached: 0,
            estimated: true,
        },
        model: None,
        id: None,
        native: None,
    }
}

fn answer(reply: Reply) -> Answer {
    Box::new(move |_| Ok(reply.clone()))
}

fn text(text: &str) -> Answer {
    answer(reply(text, &[], Finish::Stop))
}

fn calls(calls: &[(&str, Value)]) -> Answer {
    let calls: Vec<(&str, String)> = calls.iter().map(|(n, a)| (*n, a.to_string())).collect();
    answer(reply("", &calls, Finish::Calls))
}

fn raw(name: &str, arguments: &str) -> Answer {
    answer(reply("", &[(name, arguments.to_string())], Finish::Calls))
}

fn bash(line: &str) -> Answer {
    calls(&[("bash", json!({"command": line}))])
}

fn done() -> (&'static str, Value) {
    ("submit_report", json!({"status": "done", "summary": "s"}))
}

#[tokio::test]
async fn the_ending_call_ends_it_with_its_arguments() {
    let world = World::new(vec![bash("echo hi"), calls(&[done()])]);
    let outcome = world.work(assignment()).await;
    assert_eq!(outcome.ended, Ok(done().1));
    assert_eq!(
        (outcome.turns, outcome.tool_calls, outcome.results.len()),
        (2, 1, 2)
    );
    assert_eq!(world.told(1), "#1 exit code: 0\nstdout:\nhi\n");
    let keys: Vec<u32> = world
        .requests
        .lock()
        .unwrap()
        .iter()
        .map(|r| r.key.call)
        .collect();
    assert_eq!(keys, [1, 2]);
    let turns = world.turns.lock().unwrap();
    assert_eq!(
        (turns.len(), turns[0].wrote, turns[1].wrote),
        (2, true, false)
    );
}

#[tokio::test]
async fn a_reply_cut_at_its_limit_runs_none_of_its_calls() {
    let whole = r#"{"command":"rm -rf /workspace/"}"#.to_string();
    let half = r#"{"command":"rm -rf build"#.to_string();
    let cut = reply("", &[("bash", whole), ("bash", half)], Finish::Length);
    let world = World::new(vec![answer(cut), calls(&[done()])]);
    let outcome = world.work(assignment()).await;
    assert!(outcome.ended.is_ok());
    assert_eq!(world.sandbox.ran(), Vec::<String>::new());
    assert!(
        outcome.results[..2]
            .iter()
            .all(|r| r.failed && r.text.contains("make it again"))
    );
}

#[tokio::test]
async fn malformed_arguments_never_run_whatever_the_finish_says() {
    let world = World::new(vec![
        raw("bash", r#"{"command":"rm -rf build"#),
        calls(&[done()]),
    ]);
    assert!(world.work(assignment()).await.ended.is_ok());
    assert!(world.sandbox.ran().is_empty());
    assert!(world.told(1).contains("line 1 column"), "{}", world.told(1));
}

/// What it thought, and neither a word nor a call.
fn thoughts_alone() -> Answer {
    answer(Reply {
        native: Some(json!({"openai": "m", "reasoning_content": "I shall look."})),
        ..reply("", &[], Finish::Stop)
    })
}

#[tokio::test]
async fn five_answers_without_a_usable_call_end_the_agent() {
    let cases: Vec<(Answer, &str)> = vec![
        (text("All done, proof.txt created"), "text alone"),
        (text(""), "returned nothing"),
        (text(" \n"), "returned nothing"),
        (thoughts_alone(), "returned nothing"),
        (raw("read_fil", "{}"), "there is no tool read_fil"),
        (raw("bash", "{}"), "command is missing"),
        (
            answer(reply(
                "",
                &[("bash", r#"{"command":"ls"}"#.into())],
                Finish::Length,
            )),
            "reply limit",
        ),
        (
            text(
                "<tool_call>{\"name\":bash,\"arguments\":{\"command\":\"touch leaked\"}}</tool_call>",
            ),
            "as text",
        ),
    ];
    for (always, part) in cases {
        let world = World::new(vec![always]);
        let outcome = world.work(assignment()).await;
        let Err(Stop::NoCall { answers: 5, why }) = &outcome.ended else {
            panic!("{:?}", outcome.ended)
        };
        assert!(why.contains(part), "{why}");
        assert_eq!(world.asked(), 5);
        assert!(world.sandbox.ran().is_empty());
        assert_eq!(
            world.turns.lock().unwrap().len(),
            5,
            "each reply leads to one turn"
        );
    }
}

#[tokio::test]
async fn a_usable_call_between_starts_the_count_again() {
    let mut answers: Vec<Answer> = Vec::new();
    for round in 0..3 {
        answers.extend((0..4).map(|_| text("hm")));
        answers.push(bash(&format!("echo {round}")));
    }
    answers.push(calls(&[done()]));
    let world = World::new(answers);
    assert!(world.work(assignment()).await.ended.is_ok());
    assert!(world.told(1).contains("submit_report"), "{}", world.told(1));
}

#[tokio::test]
async fn a_call_written_as_text_is_asked_for_again_and_not_run() {
    let leak =
        text("```json\n{\"name\": \"bash\", \"arguments\": {\"command\": \"touch leaked\"}}\n```");
    let world = World::new(vec![leak, calls(&[done()])]);
    assert!(world.work(assignment()).await.ended.is_ok());
    assert!(world.told(1).contains("a call of bash as text"));
    assert!(world.sandbox.ran().is_empty());
}

#[tokio::test]
async fn a_good_call_beside_an_unknown_one_still_runs() {
    let both = calls(&[
        ("frobnicate", json!({})),
        ("functions.Bash ", json!({"cmd": "echo hi"})),
    ]);
    let world = World::new(vec![both, calls(&[done()])]);
    let outcome = world.work(assignment()).await;
    assert!(outcome.ended.is_ok());
    assert!(
        outcome.results[0]
            .text
            .starts_with("#1 there is no tool frobnicate")
    );
    assert_eq!(outcome.results[1].text, "#2 exit code: 0\nstdout:\nhi\n");
}

#[tokio::test]
async fn an_ending_call_waits_for_the_calls_of_its_turn() {
    let world = World::new(vec![
        calls(&[done(), ("bash", json!({"command": "echo a"}))]),
        calls(&[("bash", json!({"command": "false"})), done()]),
        calls(&[("bash", json!({"command": "echo b"})), done()]),
    ]);
    let outcome = world.work(assignment()).await;
    assert!(outcome.ended.is_ok());
    assert_eq!(world.asked(), 3);
    assert!(outcome.results[0].text.contains("stand after it"));
    assert!(
        outcome.results[3]
            .text
            .contains("#3 of the same turn failed")
    );
    assert_eq!(world.sandbox.ran(), ["echo a", "false", "echo b"]);
}

#[tokio::test]
async fn a_refused_ending_is_told_why_and_may_be_mended() {
    let world = World::new(vec![calls(&[done()])]);
    *world.refuse.lock().unwrap() = vec!["the path a -> b -> a is a cycle".into()];
    assert!(world.work(assignment()).await.ended.is_ok());
    assert_eq!(world.told(1), "#1 the path a -> b -> a is a cycle");

    let world = World::new(vec![calls(&[done()])]);
    *world.refuse.lock().unwrap() = vec!["no".into(); 9];
    let ended = world.work(assignment()).await.ended;
    assert_eq!(
        ended,
        Err(Stop::HandedBack {
            answers: 5,
            times: 5,
            why: "no".into()
        })
    );
}

#[tokio::test]
async fn edits_called_done_without_a_command_are_asked_to_be_checked_once() {
    let write = ("write_file", json!({"path": "a", "content": "x"}));
    let world = World::new(vec![calls(std::slice::from_ref(&write)), calls(&[done()])]);
    assert!(world.work(assignment()).await.ended.is_ok());
    assert_eq!(world.asked(), 3);
    assert!(
        world
            .told(2)
            .contains("no command was run after your last edit")
    );

    let world = World::new(vec![
        calls(std::slice::from_ref(&write)),
        bash("echo test"),
        calls(&[done()]),
    ]);
    assert!(world.work(assignment()).await.ended.is_ok());
    assert_eq!(world.asked(), 3);

    let failed = ("submit_report", json!({"status": "failed", "summary": "s"}));
    let world = World::new(vec![calls(&[write, failed])]);
    assert!(world.work(assignment()).await.ended.is_ok());
    assert_eq!(world.asked(), 1, "a failure needs no check");
}

#[tokio::test]
async fn a_report_without_use_is_asked_for_once_more_and_then_ends_the_agent() {
    let report = |summary: &str| {
        let long = summary.len() > 100;
        let notes = if long {
            vec!["n".repeat(30_000)]
        } else {
            vec![]
        };
        let report = json!({"status": "done", "summary": summary, "notes": notes});
        calls(&[("submit_report", report)])
    };
    let long = "l".repeat(200);
    for (summary, what) in [
        ("", "is empty"),
        ("See above.", "says nothing"),
        (long.as_str(), "is too long"),
    ] {
        let world = World::new(vec![report(summary), calls(&[done()])]);
        assert_eq!(world.work(assignment()).await.ended, Ok(done().1));
        assert_eq!(world.asked(), 2);
        assert!(
            world.told(1).contains(&format!("your report {what}")),
            "{}",
            world.told(1)
        );

        let world = World::new(vec![report(summary)]);
        let ended = world.work(assignment()).await.ended;
        assert!(
            matches!(&ended, Err(Stop::NoReport { fault }) if fault.starts_with(what)),
            "{ended:?}"
        );
        assert_eq!(world.asked(), 2);
        assert_eq!(world.turns.lock().unwrap().len(), 2, "both turns are kept");
    }
    let empty = json!({"verdict": "pass", "summary": "", "criteria": []});
    let world = World::new(vec![calls(&[("submit_verdict", empty)])]);
    let mut judge = assignment();
    judge.role.kind = Kind::Verifier;
    judge.ending = tools::Ending::Verdict;
    judge.tools = tools::Set::new(tools::Options {
        ending: tools::Ending::Verdict,
        ..options()
    })
    .unwrap();
    assert!(
        world.work(judge).await.ended.is_ok(),
        "a verdict is checked by the run"
    );
}

/// Thirty turns of text as long as this, in a window that holds seven.
fn talker(notes: Vec<Result<Reply, Stop>>) -> (World, Assignment) {
    let mut turn = 0;
    let model: Answer = Box::new(move |_| {
        turn += 1;
        let call = match turn {
            31 => (done().0, done().1.to_string()),
            _ => (
                "bash",
                json!({"command": format!("echo {turn}")}).to_string(),
            ),
        };
        Ok(reply(&"word ".repeat(600), &[call], Finish::Calls))
    });
    let mut world = World::new(vec![model]);
    *world.notes.get_mut().unwrap() = notes.into();
    let mut assignment = assignment();
    assignment.context_window = 8_000;
    assignment.compaction.keep = 2;
    (world, assignment)
}

#[tokio::test]
async fn a_summary_is_asked_for_when_eliding_does_not_suffice_and_turns_are_dropped_without_one() {
    let notes = |text: &str| Ok(reply(text, &[], Finish::Stop));
    let (world, assignment) = talker((0..20).map(|n| notes(&format!("notes {n}"))).collect());
    assert!(world.work(assignment).await.ended.is_ok());
    let asked = world.summaries.lock().unwrap().clone();
    assert!((3..=10).contains(&asked.len()), "{}", asked.len());
    for (at, (number, request)) in asked.iter().enumerate() {
        assert_eq!(*number as usize, at + 1);
        let size = serde_json::to_string(&request.messages).unwrap().len();
        assert!(size < 32_000, "{size}");
    }
    let ways: Vec<Way> = world
        .shortened
        .lock()
        .unwrap()
        .iter()
        .map(|s| s.way.clone())
        .collect();
    let summed = ways
        .iter()
        .filter(|way| matches!(way, Way::Summarised { .. }))
        .count();
    assert_eq!(summed, asked.len());
    assert!(!ways.contains(&Way::Dropped), "{ways:?}");

    let (world, assignment) = talker(Vec::new());
    assert!(world.work(assignment).await.ended.is_ok());
    assert_eq!(world.summaries.lock().unwrap().len(), 2, "and then no more");
    let ways: Vec<Way> = world
        .shortened
        .lock()
        .unwrap()
        .iter()
        .map(|s| s.way.clone())
        .collect();
    assert!(ways.contains(&Way::Dropped), "{ways:?}");

    let (world, assignment) = talker(vec![Err(Stop::Cancelled)]);
    assert_eq!(world.work(assignment).await.ended, Err(Stop::Cancelled));
}

#[tokio::test]
async fn each_limit_of_the_agent_stops_it_by_name() {
    let cases: Vec<(Assignment, &str, usize)> = vec![
        (with(|l| l.turns = 3), "3 turns", 3),
        (with(|l| l.turns = 0), "0 turns", 0),
        (with(|l| l.tokens = 250), "250 tokens", 3),
        (with(|l| l.tokens = 0), "0 tokens", 0),
        (with(|l| l.tool_calls = 2), "2 tool calls", 3),
        (with(|l| l.time = Duration::ZERO), "0 s", 0),
    ];
    for (assignment, limit, asked) in cases {
        let world = World::new(vec![bash("count")]);
        let outcome = world.work(assignment).await;
        assert_eq!(
            outcome.ended,
            Err(Stop::AgentLimit {
                limit: limit.into()
            })
        );
        assert_eq!(world.asked(), asked, "{limit}");
        assert!(world.sandbox.ran().len() <= asked);
    }
}

#[tokio::test]
async fn the_last_turns_are_told() {
    let world = World::new(vec![bash("count")]);
    world.work(with(|l| l.turns = 6)).await;
    assert!(!world.told(2).contains("left"));
    assert!(
        world
            .told(3)
            .contains("3 turns are left: finish and call submit_report")
    );
    assert!(world.told(5).contains("this is your last turn"));
}

#[tokio::test]
async fn a_call_ends_when_the_agent_s_time_does() {
    let world = World::new(vec![bash("sleep 300")]);
    let outcome = world.work(with(|l| l.time = Duration::from_secs(1))).await;
    assert_eq!(
        outcome.ended,
        Err(Stop::AgentLimit {
            limit: "1 s".into()
        })
    );
    assert!(outcome.results[0].text.contains("cancelled"));
    assert_eq!(
        world.turns.lock().unwrap().len(),
        1,
        "what it changed is kept"
    );
}

#[tokio::test]
async fn the_same_call_with_the_same_result_is_told_and_then_stopped() {
    let forms = [
        r#"{"command":"false"}"#,
        r#"{ "command" : "false" , "timeout_seconds":null}"#,
    ];
    let mut turn = 0;
    let always: Answer = Box::new(move |_| {
        turn += 1;
        let call = ("bash", forms[turn % 2].to_string());
        Ok(reply(&format!("try {turn}"), &[call], Finish::Calls))
    });
    let world = World::new(vec![always]);
    let outcome = world.work(assignment()).await;
    assert_eq!(
        outcome.ended,
        Err(Stop::Stalled {
            tool: "bash".into(),
            times: 5
        })
    );
    assert_eq!(world.asked(), 5);
    assert!(
        !world.told(2).contains("Repeating") && world.told(3).contains("the same result 3 times")
    );
    assert_eq!(world.turns.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn alternation_and_grouped_calls_are_seen_and_polling_is_not() {
    let mut turn = 0;
    let alternate: Answer = Box::new(move |_| {
        turn += 1;
        let line = ["echo a", "echo b"][turn % 2];
        Ok(reply(
            "",
            &[("bash", json!({"command": line}).to_string())],
            Finish::Calls,
        ))
    });
    let world = World::new(vec![alternate]);
    assert!(matches!(
        world.work(assignment()).await.ended,
        Err(Stop::Stalled { times: 5, .. })
    ));
    assert_eq!(world.asked(), 10);

    let group = ["echo a", "echo b", "false"].map(|line| ("bash", json!({"command": line})));
    let world = World::new(vec![calls(&group)]);
    assert!(matches!(
        world.work(assignment()).await.ended,
        Err(Stop::Stalled { times: 5, .. })
    ));
    assert_eq!(world.asked(), 5);

    let world = World::new(vec![bash("count")]);
    let ended = world.work(with(|l| l.turns = 12)).await.ended;
    assert_eq!(
        ended,
        Err(Stop::AgentLimit {
            limit: "12 turns".into()
        })
    );
}

#[tokio::test]
async fn cancel_in_a_call_answers_what_is_pending_once_and_asks_no_more() {
    let three = ["echo a", "sleep 300", "echo b"].map(|line| ("bash", json!({"command": line})));
    let world = World::new(vec![calls(&three)]);
    let stop = async {
        while world.sandbox.ran().len() < 2 {
            tokio::task::yield_now().await;
        }
        world.cancel.cancel();
    };
    let (outcome, ()) = futures::join!(world.work(assignment()), stop);
    assert_eq!(outcome.ended, Err(Stop::Cancelled));
    assert_eq!(world.asked(), 1);
    assert_eq!(world.sandbox.ran(), ["echo a", "sleep 300"]);
    assert_eq!(outcome.results.len(), 3);
    assert!(outcome.results[2].text.contains("cancelled"));
    assert!(
        world.turns.lock().unwrap().is_empty(),
        "an unfinished turn is not recorded"
    );
}

#[tokio::test]
async fn cancel_while_the_model_thinks_ends_the_wait() {
    let world = World::new(vec![bash("echo a")]);
    world.cancel.cancel();
    assert_eq!(world.work(assignment()).await.ended, Err(Stop::Cancelled));
    assert_eq!(world.asked(), 0);
}

#[tokio::test]
async fn a_broken_sandbox_is_reopened_and_told_and_never_without_end() {
    let crash = ["echo a", "crash", "echo b"].map(|line| ("bash", json!({"command": line})));
    let world = World::new(vec![calls(&crash), calls(&[done()])]);
    let outcome = world.work(assignment()).await;
    assert!(outcome.ended.is_ok());
    assert_eq!(world.sandbox.ran(), ["echo a", "crash"]);
    let text = &outcome.results[1].text;
    assert!(
        text.contains("A new one stands at your last turn.") && text.contains("is lost with it"),
        "{text}"
    );
    assert!(outcome.results[2].text.contains("not run"));
    assert!(!world.turns.lock().unwrap()[0].wrote);

    let world = World::new(vec![bash("crash")]);
    let ended = world.work(assignment()).await.ended;
    let reason = "sandbox broken: the stream dropped".to_string();
    assert_eq!(ended, Err(Stop::Environment { reason }));
    assert_eq!(world.asked(), 3);
}

#[tokio::test]
async fn an_overflow_is_answered_with_a_shorter_request() {
    let mut calls_made = 0;
    let model: Answer = Box::new(move |request| {
        calls_made += 1;
        if serde_json::to_string(&request.messages).unwrap().len() > 40_000 {
            return Err(Stop::ContextOverflow { window: None });
        }
        let line = format!("echo {}", "x".repeat(6_000) + &calls_made.to_string());
        Ok(reply(
            "",
            &[("bash", json!({"command": line}).to_string())],
            Finish::Calls,
        ))
    });
    let world = World::new(vec![model]);
    let mut assignment = with(|l| l.turns = 8);
    assignment.compaction.keep = 2;
    let outcome = world.work(assignment).await;
    assert_eq!(
        outcome.ended,
        Err(Stop::AgentLimit {
            limit: "8 turns".into()
        })
    );
    assert!(world.asked() > 8, "{}", world.asked());

    let world = World::new(vec![Box::new(|_| {
        Err(Stop::ContextOverflow { window: None })
    })]);
    assert!(matches!(
        world.work(with(|_| ())).await.ended,
        Err(Stop::Model { .. })
    ));
    assert_eq!(world.asked(), 4);
}

/// A model that holds 8,192 tokens and says so; what it says follows from the number of the call.
fn small(request: &Request) -> Result<Reply, Stop> {
    let size = serde_json::to_string(&request.messages).unwrap().len() as u64;
    let window = 8_192;
    if size / 4 + request.reply_tokens > window {
        return Err(Stop::ContextOverflow {
            window: Some(window),
        });
    }
    Ok(wordy(request.key.call))
}

fn wordy(call: u32) -> Reply {
    let line = format!("echo {}{call}", "x".repeat(6_000));
    let call = ("bash", json!({"command": line}).to_string());
    reply("", &[call], Finish::Calls)
}

/// A window that was taken to be larger is learnt from the refusal: asked for too much once, never again,
/// and a conversation that goes on in another process knows it from the record.
#[tokio::test]
async fn a_window_that_the_model_tells_is_held_to_from_then_on() {
    let assignment = || {
        let mut assignment = with(|l| {
            l.turns = 20;
            l.reply_tokens = 8_000;
        });
        assignment.compaction.keep = 2;
        assignment
    };
    let ended = Err(Stop::AgentLimit {
        limit: "20 turns".into(),
    });
    let whole = World::new(vec![Box::new(small)]);
    assert_eq!(whole.work(assignment()).await.ended, ended);
    let requests = whole.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 20 + 1, "refused once");
    let turns = whole.turns.lock().unwrap().clone();
    let ways = whole.shortened.lock().unwrap().clone();
    let recorded = ways.iter().filter(|how| how.way.is_recorded());
    let written = |way| serde_json::to_value(way).unwrap();
    let shortened: Vec<_> = recorded
        .map(|how| {
            let read = serde_json::from_value(written(&how.way)).unwrap();
            (how.after, read)
        })
        .collect();
    for cut in [1, 6, 19] {
        let past = turns[..cut].iter().map(|turn| {
            let mut reply = wordy(turn.number);
            reply.calls[0].id.clone_from(&turn.results[0].call_id);
            Past {
                reply,
                results: Some(turn.results.clone()),
                left_out: Vec::new(),
                told: None,
            }
        });
        let world = World::new(vec![Box::new(small)]);
        let before = requests[..=cut].iter().cloned();
        world.requests.lock().unwrap().extend(before);
        let mut again = assignment();
        (again.past, again.shortened) = (past.collect(), shortened.clone());
        assert_eq!(world.work(again).await.ended, ended);
        let after = world.requests.lock().unwrap();
        assert_eq!(after.len(), requests.len(), "cut after turn {cut}");
        for (before, after) in requests.iter().zip(after.iter()) {
            assert_eq!(before.reply_tokens, after.reply_tokens);
            assert_eq!(before.messages, after.messages, "cut after turn {cut}");
        }
    }
}

#[tokio::test]
async fn a_long_conversation_stays_in_its_window_with_all_pairs_whole() {
    let mut turn = 0;
    let model: Answer = Box::new(move |request| {
        let size = serde_json::to_string(&request.messages).unwrap().len();
        assert!(size < 32_000, "{size}");
        turn += 1;
        let line = if turn % 7 == 3 { "huge" } else { "big" };
        let call = |n: u32| {
            (
                "bash",
                json!({"command": line, "timeout_seconds": turn + n}).to_string(),
            )
        };
        let calls: Vec<_> = (0..1 + turn % 3).map(call).collect();
        Ok(reply("next", &calls, Finish::Calls))
    });
    let world = World::new(vec![model]);
    let mut assignment = with(|l| l.turns = 60);
    assignment.context_window = 8_000;
    let outcome = world.work(assignment).await;
    assert_eq!(
        outcome.ended,
        Err(Stop::AgentLimit {
            limit: "60 turns".into()
        })
    );
    assert!(
        world
            .requests
            .lock()
            .unwrap()
            .iter()
            .all(|r| r.reply_tokens <= 2_000)
    );
}

#[tokio::test]
async fn what_a_snapshot_left_out_is_told() {
    let mut world = World::new(vec![bash("echo a"), calls(&[done()])]);
    world.left_out = vec!["pipe: a FIFO".into()];
    world.work(assignment()).await;
    assert!(
        world
            .told(1)
            .ends_with("[not kept with your changes: pipe: a FIFO]")
    );
}

#[tokio::test]
async fn every_role_has_the_same_nets() {
    for (ending, kind) in [
        (tools::Ending::Plan, Kind::Coordinator),
        (tools::Ending::Verdict, Kind::Verifier),
    ] {
        let mut assignment = assignment();
        assignment.role.kind = kind;
        assignment.ending = ending;
        assignment.tools = tools::Set::new(tools::Options {
            ending,
            ..options()
        })
        .unwrap();
        let world = World::new(vec![text("It is fine: pass.")]);
        let outcome = world.work(assignment).await;
        assert!(matches!(outcome.ended, Err(Stop::NoCall { .. })));
        assert!(world.told(1).contains(ending.tool()));
    }
}

/// A conversation of eight turns with one of each kind.
fn eight() -> VecDeque<Answer> {
    let write = ("write_file", json!({"path": "a", "content": "x"}));
    VecDeque::from([
        text("let me think"),
        text(""),
        bash("echo one"),
        calls(&[write, ("bash", json!({"command": "false"}))]),
        raw("bash", "{broken"),
        bash("echo two"),
        calls(&[(
            "submit_report",
            json!({"status": "done", "summary": "Done."}),
        )]),
        calls(&[done()]),
    ])
}

/// The first `count` turns as a journal gives them back, the last of them with or without its results.
fn recorded(ahead: &mut VecDeque<Answer>, whole: &World, count: usize, last: bool) -> Vec<Past> {
    let turns = whole.turns.lock().unwrap().clone();
    let requests = whole.requests.lock().unwrap().clone();
    let mut past = Vec::new();
    for index in 0..count {
        let mut reply = (ahead.pop_front().unwrap())(&requests[index]).unwrap();
        for (place, call) in reply.calls.iter_mut().enumerate() {
            call.id = format!("c{}-{place}", index + 1);
        }
        let known = last || index + 1 < count;
        let results: Option<Vec<CallOutput>> = known.then(|| turns[index].results.clone());
        past.push(Past {
            reply,
            results,
            left_out: Vec::new(),
            told: None,
        });
    }
    past
}

#[tokio::test]
async fn a_conversation_cut_after_any_turn_goes_on_with_the_same_requests() {
    let whole = World::new(eight().into());
    assert!(whole.work(assignment()).await.ended.is_ok());
    let requests = whole.requests.lock().unwrap().clone();
    assert_eq!((requests.len(), whole.turns.lock().unwrap().len()), (8, 8));
    for (cut, last) in (1..=8).flat_map(|cut| [(cut, true), (cut, false)]) {
        let mut ahead = eight();
        let past = recorded(&mut ahead, &whole, cut, last);
        if ahead.is_empty() {
            ahead.push_back(Box::new(|_| panic!("an ended conversation asks no more")));
        }
        let world = World::new(ahead.into());
        world
            .requests
            .lock()
            .unwrap()
            .extend(requests[..cut].iter().cloned());
        let outcome = world
            .work(Assignment {
                past,
                ..assignment()
            })
            .await;
        assert_eq!(outcome.ended, Ok(done().1), "cut after turn {cut}");
        assert_eq!((outcome.turns, outcome.results.len()), (8, 7));
        let again = world.requests.lock().unwrap();
        assert_eq!(again.len(), 8);
        for (before, after) in requests.iter().zip(again.iter()).skip(cut) {
            assert_eq!(before.key, after.key);
            assert_eq!(before.messages, after.messages, "cut after turn {cut}");
        }
    }
}
