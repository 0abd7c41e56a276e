//! What a receiver sees of a real run: one trace, whole at the program's exit, and no content in it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wharf::trace::names;

use crate::operator::{LIMIT, Operator, Said, engine, finish, skipped, until};
use crate::otlp::{Receiver, Span};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::stops;
use crate::world::{put, verdict};

/// Stands in the task, in answers, in arguments, in what tools say and in the verdict.
const PHRASE: &str = "flamingo-at-dusk";

fn plan(extra: &str) -> String {
    format!(
        "version: 1\nname: traced\ntask: Do the {PHRASE}\nmodel: openai/fake\nrun: {{rounds: 1}}\n\
         acceptance: {{commands: [\"cat a.txt\"], criteria: [\"It is {PHRASE}\"]}}\n{extra}"
    )
}

/// Plans two subtasks, works them with a command that fails on the way, and judges with `judged`.
fn script(judged: &'static str, reported: &'static str) -> impl Fn(&Ask) -> Answer {
    move |ask| match (ask.role, ask.ordinal) {
        (Role::Coordinator, _) => Answer::call(
            "submit_plan",
            json!({"summary": PHRASE, "subtasks": [
                {"id": "a", "role": "coder", "brief": format!("BRIEF {PHRASE}"), "needs": []},
                {"id": "b", "role": "reviewer", "brief": format!("BRIEF b {PHRASE}"), "needs": ["a"]}]}),
        ),
        (Role::Worker | Role::Verifier, 0) => Answer::calls(vec![
            ("write_file", json!({"path": "a.txt", "content": PHRASE})),
            ("bash", json!({"command": format!("echo {PHRASE}; exit 3")})),
            ("bash", json!({"command": "cat a.txt"})),
        ]),
        (Role::Worker, 1) => Answer::text(PHRASE),
        (Role::Worker, 2) => Answer::call(PHRASE, json!({"x": PHRASE})),
        (Role::Worker, _) => Answer::call(
            "submit_report",
            json!({"status": reported, "summary": PHRASE}),
        ),
        (Role::Verifier, _) => verdict_with_phrase(judged),
        (Role::Other, _) => Answer::text(&format!("All of it is {PHRASE}")),
    }
}

fn verdict_with_phrase(word: &str) -> Answer {
    let criterion = format!("It is {PHRASE}");
    let Answer::Message { calls, .. } = verdict(word, vec![(&criterion, word, "#3")]) else {
        unreachable!("a verdict is a call")
    };
    let (name, mut arguments) = calls[0].clone();
    arguments["summary"] = PHRASE.into();
    Answer::call(&name, arguments)
}

/// A run whose spans go to `endpoint`.
async fn traced(
    server: &FakeModel,
    plan: &str,
    protocol: &str,
    endpoint: &str,
) -> (Operator, Said) {
    let mut operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
    ];
    operator.env = variables.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let said = operator.run(server, plan, &[]).await;
    (operator, said)
}

/// The tool calls of every answer that the journal holds, as (tool's name, how often).
fn calls_made(operator: &Operator) -> usize {
    let journal = operator.of_run("journal.jsonl");
    let lines = journal
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    let answers = lines.filter(|l| l["type"] == "model_answered");
    answers
        .map(|l| l["reply"]["calls"].as_array().map_or(0, Vec::len))
        .sum()
}

/// What kind of span it is, by its operation; a command in a sandbox has none.
pub fn kind(span: &Span) -> &str {
    span.attributes
        .get(names::OPERATION)
        .map_or("exec", |o| o.as_str().unwrap())
}

/// One trace, one root, every span under one of the right kind and within its time.
pub fn is_one_tree<'a>(spans: &'a [Span], trace: &str) -> BTreeMap<&'a str, usize> {
    let ids: BTreeMap<&str, &Span> = spans.iter().map(|s| (s.id.as_str(), s)).collect();
    assert_eq!(ids.len(), spans.len(), "no span is sent twice");
    let mut counts = BTreeMap::new();
    for span in spans {
        assert_eq!(span.trace, trace, "{span:?}");
        assert!(span.end >= span.start && span.start > 0, "{span:?}");
        *counts.entry(kind(span)).or_default() += 1;
        let Some(parent) = &span.parent else {
            assert_eq!(kind(span), "invoke_workflow", "{span:?}");
            continue;
        };
        let parent = ids
            .get(parent.as_str())
            .unwrap_or_else(|| panic!("no parent: {span:?}"));
        let fits = match kind(span) {
            "plan" => kind(parent) == "invoke_workflow",
            "invoke_agent" => ["invoke_workflow", "plan"].contains(&kind(parent)),
            // The coordinator's summary is asked of no agent.
            "chat" => ["invoke_agent", "invoke_workflow"].contains(&kind(parent)),
            "execute_tool" => kind(parent) == "invoke_agent",
            "exec" => kind(parent) == "execute_tool",
            _ => false,
        };
        assert!(
            fits,
            "{} {} under {} {}",
            kind(span),
            span.name,
            kind(parent),
            parent.name
        );
        assert!(
            span.start >= parent.start && span.end <= parent.end,
            "{span:?} outside {parent:?}"
        );
        assert_eq!(span.attributes[names::SESSION], "run");
    }
    counts
}

fn holds_no_content(spans: &[Span]) {
    for span in spans {
        assert!(!format!("{span:?}").contains("flamingo"), "{span:?}");
    }
}

fn sum(spans: &[Span], name: &str) -> u64 {
    let chats = spans.iter().filter(|s| kind(s) == "chat");
    chats.map(|s| s.attributes[name].as_u64().unwrap()).sum()
}

/// A passing run over one protocol.
async fn whole(protocol: &str) {
    let receiver = Receiver::start();
    let endpoint = if protocol == "grpc" {
        &receiver.grpc_endpoint
    } else {
        &receiver.http_endpoint
    };
    let server = FakeModel::start(script("pass", "done")).await;
    let (operator, said) = traced(&server, &plan(""), protocol, endpoint).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.stderr.contains("warning"), "{said:?}");
    let (result, spans) = (said.object(), receiver.spans());
    let counts = is_one_tree(&spans, result["trace_id"].as_str().unwrap());
    assert_eq!(counts["invoke_workflow"], 1);
    assert_eq!(counts["plan"], 1);
    assert_eq!(
        counts["invoke_agent"], 4,
        "coordinator, a, b, verifier: {counts:?}"
    );
    assert_eq!(counts["chat"], server.requests().len());
    assert_eq!(counts["execute_tool"], calls_made(&operator));
    assert_eq!(
        counts["exec"], 6,
        "two commands of three agents: {counts:?}"
    );
    let exits = spans.iter().filter(|s| kind(s) == "exec");
    let failed = exits.filter(|s| s.attributes[names::PROCESS_EXIT_CODE] == 3);
    assert_eq!(failed.count(), 3);
    let usage = &result["usage"];
    assert_eq!(
        sum(&spans, names::INPUT_TOKENS),
        usage["input_tokens"].as_u64().unwrap()
    );
    assert_eq!(
        sum(&spans, names::OUTPUT_TOKENS),
        usage["output_tokens"].as_u64().unwrap()
    );
    assert_eq!(usage["calls"], server.requests().len());
    let of = |id: &str| {
        let agent = |s: &&Span| kind(s) == "invoke_agent" && s.attributes[names::SUBTASK] == id;
        spans.iter().find(agent).unwrap()
    };
    assert_eq!(of("b").links, [of("a").id.clone()], "b needs a");
    holds_no_content(&spans);
}

#[tokio::test]
async fn a_run_is_one_whole_trace_over_either_protocol() {
    if skipped() {
        return;
    }
    tokio::join!(whole("http/protobuf"), whole("grpc"));
}

/// What went wrong is told by words of our own, not by the model's.
async fn told_without_content(judged: &'static str, reported: &'static str, code: i32) {
    let receiver = Receiver::start();
    let server = FakeModel::start(script(judged, reported)).await;
    let (_, said) = traced(&server, &plan(""), "http/protobuf", &receiver.http_endpoint).await;
    assert_eq!(said.code, Some(code), "{said:?}");
    assert!(
        said.object()["reason"].as_str().unwrap().contains(PHRASE),
        "{said:?}"
    );
    let spans = receiver.spans();
    is_one_tree(&spans, said.object()["trace_id"].as_str().unwrap());
    let root = spans.iter().find(|s| s.parent.is_none()).unwrap();
    assert_eq!(root.status, 2, "{root:?}");
    assert!(!root.message.is_empty());
    holds_no_content(&spans);
}

#[tokio::test]
async fn a_failed_run_puts_none_of_the_models_words_into_a_span() {
    if skipped() {
        return;
    }
    tokio::join!(
        told_without_content("fail", "done", 1),
        told_without_content("pass", "failed", 1),
    );
}

#[tokio::test]
async fn a_dead_receiver_changes_nothing_but_a_warning() {
    if skipped() {
        return;
    }
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let dead = async |protocol: &'static str| {
        let server = FakeModel::start(script("pass", "done")).await;
        let (_, said) = traced(&server, &plan(""), protocol, &endpoint).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.object()["status"], "passed");
        assert_eq!(said.object()["warnings"], json!([]));
        let warnings = said
            .stderr
            .lines()
            .filter(|l| l.to_lowercase().contains("warn"));
        let spans: Vec<&str> = warnings.collect();
        assert_eq!(spans.len(), 1, "{said:?}");
        assert!(spans[0].contains("span"), "{said:?}");
    };
    tokio::join!(dead("http/protobuf"), dead("grpc"));
}

/// Stopped in the middle of everything, the trace is whole all the same.
#[tokio::test]
async fn an_interrupted_run_sends_every_span_it_began() {
    if skipped() {
        return;
    }
    let receiver = Receiver::start();
    let server = FakeModel::start(|ask| match ask.role {
        Role::Coordinator => script("pass", "done")(ask),
        _ => Answer::call(
            "bash",
            json!({"command": "sleep 600", "timeout_seconds": 600}),
        ),
    })
    .await;
    let mut operator = Operator::new();
    put(&operator.work().join("keep.txt"), "keep\n");
    let endpoint = receiver.http_endpoint.clone();
    operator.env = vec![("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), endpoint)];
    let plan = operator.beside("plan.yaml", &plan(""));
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(Some(&server), &args).spawn().unwrap();
    let engine = engine();
    until(LIMIT, "the agent sleeps", async || {
        stops::sleeping(&engine, &operator).await == 1
    })
    .await;
    stops::send(&child, rustix::process::Signal::INT);
    let said = finish(child).await;
    assert_eq!(said.code, Some(130), "{said:?}");
    let (result, spans) = (said.object(), receiver.spans());
    let counts = is_one_tree(&spans, result["trace_id"].as_str().unwrap());
    let wanted = [
        ("chat", 2),
        ("exec", 1),
        ("execute_tool", 2),
        ("invoke_agent", 2),
        ("invoke_workflow", 1),
        ("plan", 1),
    ];
    assert_eq!(counts, BTreeMap::from(wanted));
    let root = spans.iter().find(|s| s.parent.is_none()).unwrap();
    assert_eq!(root.attributes[names::ERROR_TYPE], "cancelled");
    holds_no_content(&spans);
}
