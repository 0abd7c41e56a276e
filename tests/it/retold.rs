//! A trace made again from the journal alone, held against the one that was sent while the run went on.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use wharf::run::Status;
use wharf::trace::{Options, Protocol, Target, Tracer, names};

use crate::otlp::{Receiver, Span};
use crate::server::{Answer, Ask, Role};
use crate::traces::{is_one_tree, kind};
use crate::world::{Ran, World, passes, report, write};
use crate::{cli, crash};

/// A run whose spans were received.
async fn live(
    files: &[(&str, &str)],
    plan: &str,
    script: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
) -> (World, Ran, Vec<Span>) {
    let receiver = Receiver::start();
    let endpoint = format!("{}/v1/traces", receiver.http_endpoint);
    let mut world = World::new(files);
    world.tracer = Tracer::open(&Options {
        target: Some(Target::new(Protocol::HttpProtobuf, endpoint)),
        ..Options::default()
    })
    .unwrap();
    let ran = world.run(plan, script).await;
    assert!(world.tracer.flush(Duration::from_secs(3)).await);
    (world, ran, receiver.spans())
}

/// What `wharf trace run` sends of it.
fn told(world: &World) -> Vec<Span> {
    let receiver = Receiver::start();
    let out = cli::wharf(world.state.parent().unwrap())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.http_endpoint)
        .args(["trace", "run", "--json"])
        .output()
        .unwrap();
    let (stdout, stderr) = (cli::text(&out.stdout), cli::text(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{stderr}");
    let spans = receiver.spans();
    assert_eq!(cli::object(&stdout)["trace_id"], spans[0].trace.as_str());
    spans
}

/// Every span by all that it says but its own id and its times: where it stands, name, kind,
/// attributes, links, events, status.
fn said(spans: &[Span]) -> BTreeMap<String, usize> {
    let by_id: BTreeMap<&str, &Span> = spans.iter().map(|s| (s.id.as_str(), s)).collect();
    let name = |span: &Span| {
        let subtask = span.attributes.get(names::SUBTASK);
        let round = span.attributes.get(names::ROUND);
        format!("{} {subtask:?} {round:?}", span.name)
    };
    let mut all = BTreeMap::new();
    for span in spans {
        let mut place = vec![name(span)];
        let mut at = span;
        while let Some(parent) = at.parent.as_ref().and_then(|id| by_id.get(id.as_str())) {
            place.push(name(parent));
            at = parent;
        }
        let mut links: Vec<String> = span
            .links
            .iter()
            .map(|id| name(by_id[id.as_str()]))
            .collect();
        links.sort();
        let (attributes, events) = (json!(span.attributes), json!(span.events));
        let line = format!(
            "{place:?} {} {attributes} {links:?} {events} {} {:?} {} {:?}",
            span.kind, span.status, span.message, span.scope, span.resource
        );
        *all.entry(line).or_default() += 1;
    }
    all
}

/// The same trace, told twice from the journal.
fn same(world: &World, ran: &Ran, sent: &[Span]) {
    let again = told(world);
    let trace = sent[0].trace.clone();
    let counts = is_one_tree(&again, &trace);
    assert_eq!(counts, is_one_tree(sent, &trace));
    let (before, after) = (said(sent), said(&again));
    let only = |a: &BTreeMap<String, usize>, b: &BTreeMap<String, usize>| {
        let lines = a.iter().filter(|(line, n)| b.get(*line) != Some(*n));
        lines
            .map(|(line, n)| format!("{n} x {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(
        before,
        after,
        "only sent:\n{}\nonly told:\n{}",
        only(&before, &after),
        only(&after, &before)
    );
    let root = |spans: &[Span]| {
        spans
            .iter()
            .find(|s| s.parent.is_none())
            .unwrap()
            .id
            .clone()
    };
    assert_eq!(root(&again), root(sent));
    let ids = |spans: &[Span]| spans.iter().map(|s| s.id.clone()).collect::<Vec<_>>();
    assert_eq!(
        ids(&again),
        ids(&told(world)),
        "the same journal, the same ids"
    );
    let sum = |name: &str| {
        let chats = again.iter().filter(|s| kind(s) == "chat");
        chats
            .filter_map(|s| s.attributes.get(name)?.as_u64())
            .sum::<u64>()
    };
    assert_eq!(sum(names::INPUT_TOKENS), ran.summary.usage.input_tokens);
    assert_eq!(sum(names::OUTPUT_TOKENS), ran.summary.usage.output_tokens);
    // The run's own time, as the journal has it.
    let whole = again.iter().find(|s| s.parent.is_none()).unwrap();
    let (first, last) = (&ran.journal[0], &ran.journal[ran.journal.len() - 1]);
    let took = last.at.duration_since(first.at).as_nanos();
    assert_eq!(i128::from(whole.end - whole.start), took);
}

#[tokio::test]
async fn three_agents_a_conflict_and_two_rounds_are_told_again() {
    let files = [("list.txt", crash::LINES)];
    let (world, ran, sent) = live(&files, crash::PLAN, crash::script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    same(&world, &ran, &sent);
}

const PLAN: &str = "version: 1
name: told
task: Do the work
acceptance: {commands: [\"cat a.txt\"], criteria: [\"It is done\"]}
verify: {votes: 3}
subtasks:
- {id: a, role: coder, brief: BRIEF a.}
- {id: b, role: reviewer, brief: BRIEF b., needs: [a]}
";

/// Everything that goes wrong on the way of calls: a server that fails once, a command that fails, a
/// tool that there is not, arguments that are none, an agent that only talks, a vote that is no verdict.
fn stumbling(ask: &Ask) -> Answer {
    let turns = ask
        .messages
        .iter()
        .filter(|m| m["role"] == "assistant")
        .count();
    match (ask.role, turns) {
        _ if ask.number == 0 => Answer::status(503, "busy", &[]),
        (Role::Verifier, 0) => Answer::calls(vec![
            ("list_files", json!({})),
            ("bash", json!({"command": "exit 3"})),
        ]),
        (Role::Verifier, _) if ask.first.contains("verifier 2 of 3") => Answer::text("It is fine."),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => Answer::calls(vec![
            ("bash", json!({"command": "exit 3"})),
            ("no_such_tool", json!({"x": 1})),
            ("bash", json!({"line": "true"})),
            ("write_file", json!({"path": "a.txt", "content": "a\n"})),
        ]),
        (_, 1) => Answer::text("Let me think."),
        (_, 2) => write("a.txt", "more\n"),
        (_, 3) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "made it"),
    }
}

#[tokio::test]
async fn what_went_wrong_on_the_way_is_told_again() {
    let (world, ran, sent) = live(&[("keep.txt", "k\n")], PLAN, stumbling).await;
    let failed = sent
        .iter()
        .flat_map(|s| &s.events)
        .filter(|(name, _)| name == names::ATTEMPT_FAILED);
    assert_eq!(failed.count(), 1);
    same(&world, &ran, &sent);
}

/// Agents that are stopped for what they wrote: the reason quotes it, and no span does.
#[tokio::test]
async fn a_stop_puts_none_of_the_model_s_words_into_a_span() {
    type Says = fn(&Ask) -> Answer;
    let plan_of = |role: &str| json!({"summary": "s", "subtasks": [{"id": "a", "role": role, "brief": "b", "needs": []}]});
    let refused = plan_of("flamingo");
    let cases: [(&str, Says); 3] = [
        ("an unknown tool", |_| Answer::call("flamingo", json!({}))),
        ("a plan handed back", |_| Answer::text("")),
        ("a report that says nothing", |_| {
            let long = "flamingo ".repeat(4_000);
            Answer::call("submit_report", json!({"status": "done", "summary": long}))
        }),
    ];
    for (name, worker) in cases {
        let refused = refused.clone();
        let fine = plan_of("coder");
        let script = move |ask: &Ask| match ask.role {
            Role::Coordinator if name == "a plan handed back" => {
                Answer::call("submit_plan", refused.clone())
            }
            Role::Coordinator => Answer::call("submit_plan", fine.clone()),
            _ => worker(ask),
        };
        let plan = "version: 1\ntask: Do the work\nrun: {rounds: 1}\n";
        let (world, ran, sent) = live(&[("keep.txt", "k\n")], plan, script).await;
        assert_eq!(ran.summary.exit_code, 1, "{name}: {}", ran.summary.reason);
        for span in &sent {
            assert!(
                !format!("{span:?}").contains("flamingo"),
                "{name}: {span:?}"
            );
        }
        same(&world, &ran, &sent);
    }
}

/// Killed in the middle: every span has an end, and what it came to is not made up.
#[tokio::test]
async fn a_run_without_an_end_is_told_as_one() {
    let (world, ran, sent) = live(&[("keep.txt", "k\n")], PLAN, stumbling).await;
    let path = world.state.join("runs/run/journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    for cut in [
        2,
        ran.journal.len() / 3,
        ran.journal.len() / 2,
        ran.journal.len() - 1,
    ] {
        let kept: String = text.split_inclusive('\n').take(cut).collect();
        std::fs::write(&path, kept).unwrap();
        let spans = told(&world);
        is_one_tree(&spans, &sent[0].trace);
        let root = spans.iter().find(|s| s.parent.is_none()).unwrap();
        assert_eq!(
            (root.status, root.message.as_str()),
            (2, "the journal has no end"),
            "{cut}"
        );
    }
}

/// A piece of an answer that closes before its end.
fn begun() -> Answer {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "Let me ".repeat(60)}}]});
    Answer::raw(&[&format!("data: {chunk}\n\n")])
}

/// What attempts without an answer used is on the spans of their calls, once: the sum of a trace is the
/// result's.
#[tokio::test]
async fn what_attempts_without_an_answer_used_is_told_once() {
    let script = |ask: &Ask| match ask.ordinal {
        0 => begun(),
        _ => stumbling(ask),
    };
    let (world, ran, sent) = live(&[("keep.txt", "k\n")], PLAN, script).await;
    let failed = sent
        .iter()
        .flat_map(|s| &s.events)
        .filter(|(name, _)| name == names::ATTEMPT_FAILED);
    assert!(failed.count() >= 4);
    assert!(ran.summary.usage.estimated);
    same(&world, &ran, &sent);
}

/// The pot has no room for a second attempt: the call's span says what the first one used, and why there
/// is no other.
#[tokio::test]
async fn a_call_that_ends_at_the_run_s_limit_is_told_again() {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(300_000)}}]});
    let script = move |_: &Ask| Answer::raw(&[&format!("data: {chunk}\n\n")]);
    let plan = format!("{PLAN}run: {{tokens: 30000}}\n");
    let (world, ran, sent) = live(&[("keep.txt", "k\n")], &plan, script).await;
    assert_eq!(
        ran.summary.status,
        Status::Limited,
        "{}",
        ran.summary.reason
    );
    let chat = sent.iter().find(|s| kind(s) == "chat").unwrap();
    assert_eq!(chat.attributes[names::ERROR_TYPE], "budget_exceeded");
    assert!(chat.attributes[names::OUTPUT_TOKENS].as_u64() >= Some(75_000));
    same(&world, &ran, &sent);
}

/// A call that was out when its agent's time was over.
#[tokio::test]
async fn a_call_that_was_broken_off_is_told_again() {
    let open = |_: &Ask| {
        let Answer::Raw(kind, mut pieces) = begun() else {
            unreachable!("what is begun is raw")
        };
        pieces.push((Duration::from_secs(600), Vec::new()));
        Answer::Raw(kind, pieces)
    };
    let plan = format!("{PLAN}agent: {{time: 2s}}\n");
    let (world, ran, sent) = live(&[("keep.txt", "k\n")], &plan, open).await;
    assert_eq!(ran.summary.exit_code, 1, "{}", ran.summary.reason);
    let chat = sent.iter().find(|s| kind(s) == "chat").unwrap();
    assert_eq!(chat.attributes[names::ERROR_TYPE], "cancelled");
    assert_eq!(chat.attributes[names::OUTPUT_TOKENS], 105);
    same(&world, &ran, &sent);
}

/// Only where no server counted: the mark stands on the calls that were estimated, and on no other.
#[tokio::test]
async fn a_call_whose_tokens_nobody_counted_is_marked_and_no_other() {
    let plan = "version: 1\nname: told\ntask: Do it\nacceptance: {criteria: [\"It is done\"]}\n\
                subtasks: [{id: a, role: coder, brief: BRIEF a.}]\n";
    let script = |ask: &Ask| match (ask.role, ask.results().len()) {
        (Role::Worker, 0) => {
            let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {
                "name": "list_files", "arguments": "{}"}}]});
            let chunk = json!({"choices": [{"delta": call, "finish_reason": "tool_calls"}]});
            Answer::raw(&[&format!("data: {chunk}\n\n"), "data: [DONE]\n\n"])
        }
        (Role::Worker, _) => report("done", "nothing to do").usage(700, 7),
        (Role::Verifier, 0) => Answer::call("list_files", json!({})).usage(700, 7),
        (Role::Verifier, _) => passes(&["It is done"], "#1").usage(700, 7),
        _ => Answer::text("Done.").usage(700, 7),
    };
    let (world, ran, sent) = live(&[("keep.txt", "k\n")], plan, script).await;
    let chats: Vec<_> = sent.iter().filter(|s| kind(s) == "chat").collect();
    let marked = |s: &&&Span| s.attributes.get(names::USAGE_ESTIMATED) == Some(&json!(true));
    let found: Vec<_> = chats.iter().filter(marked).collect();
    assert_eq!((chats.len(), found.len()), (4, 1));
    assert_ne!(found[0].attributes[names::INPUT_TOKENS], 700);
    let named = |s: &&&Span| s.attributes.contains_key(names::USAGE_ESTIMATED);
    assert_eq!(chats.iter().filter(named).count(), 1);
    same(&world, &ran, &sent);
}

#[test]
fn without_an_endpoint_it_says_which_variable_names_one() {
    let home = cli::home();
    cli::write_run(home.path(), "r-one", &cli::events("r-one"));
    let (code, _, stderr) = cli::run(home.path(), &["trace", "last"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{stderr}");
}
