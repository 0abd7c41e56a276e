//! What a receiver sees of a run: names, kinds, parents, links, attributes, and that sending never holds up an exit.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use wharf::trace::{
    AgentStart, ChatEnd, ChatStart, ChatUsage, ExecStart, Options, Protocol, RunStart, Span,
    Target, Tracer, names,
};

use crate::otlp::{self, Receiver};

const LIMIT: Duration = Duration::from_secs(3);

fn target(receiver: &Receiver, protocol: Protocol) -> Target {
    match protocol {
        Protocol::HttpProtobuf => {
            Target::new(protocol, format!("{}/v1/traces", receiver.http_endpoint))
        }
        Protocol::Grpc => Target::new(protocol, &receiver.grpc_endpoint),
    }
}

fn open(target: Target) -> Tracer {
    Tracer::open(&Options {
        target: Some(target),
        secrets: vec!["sk-canary-1".to_owned()],
        ..Options::default()
    })
    .unwrap()
}

fn agent(role: &str, subtask: &str, kind: &'static str) -> AgentStart {
    AgentStart {
        run: "run-1".to_owned(),
        role: role.to_owned(),
        subtask: subtask.to_owned(),
        description: "does it".to_owned(),
        provider: "openai".to_owned(),
        model: "m-1".to_owned(),
        round: 1,
        kind,
    }
}

fn chat(parent: &Span, agent: &str, input: u64, output: u64) {
    let span = parent.chat(&ChatStart {
        run: "run-1".to_owned(),
        provider: "openai".to_owned(),
        model: "m-1".to_owned(),
        host: Some("api.example".to_owned()),
        port: Some(443),
        stream: true,
        reply_tokens: 8_000,
        temperature: Some(0.5),
        agent: agent.to_owned(),
    });
    span.answered(&ChatEnd {
        response_id: Some("resp-1".to_owned()),
        response_model: Some("m-1-2026".to_owned()),
        finish: "stop".to_owned(),
        usage: ChatUsage {
            input_tokens: input,
            output_tokens: output,
            cached_tokens: 3,
            estimated: true,
            cost_usd: Some(0.25),
        },
        attempts: 2,
    });
    span.end();
}

/// A whole run: planned, worked by two agents of which one needs the other, judged.
fn play(tracer: &Tracer) -> String {
    let run = tracer.run(&RunStart {
        run: "run-1".to_owned(),
        plan: "price-fix".to_owned(),
    });
    let plan = run.plan(&agent("coordinator", "coordinator", "coordinator"));
    chat(&plan, "coordinator", 100, 10);
    plan.end();

    let first = run.agent(&agent("coder", "find", "worker"), &[]);
    chat(&first, "coder", 200, 20);
    let tool = first.tool("bash", "call_1", "coder");
    let exec = tool.exec(&ExecStart {
        executable: "bash".to_owned(),
        container: "c0ffee".to_owned(),
        image: "wharf/python".to_owned(),
        runtime: "runc".to_owned(),
    });
    exec.exited(2);
    exec.end();
    tool.end();
    first.end();

    let second = run.agent(
        &agent("coder", "mend", "worker"),
        std::slice::from_ref(&first),
    );
    second.fail("timeout", "gave up on sk-canary-1\nand a second line");
    second.fail("cancelled", "too late");
    drop(second);

    let verifier = run.agent(&agent("verifier", "verifier", "verifier"), &[]);
    chat(&verifier, "verifier", 300, 30);
    verifier.event(
        names::EVALUATION_RESULT,
        vec![
            (names::EVALUATION_NAME, "Prices are rounded".into()),
            (names::EVALUATION_LABEL, "pass".into()),
            (names::EVALUATION_SCORE, 1.0.into()),
        ],
    );
    verifier.end();
    run.end();
    run.trace_id().unwrap()
}

async fn seen(protocol: Protocol) -> (String, Vec<otlp::Span>) {
    let receiver = Receiver::start();
    let tracer = open(target(&receiver, protocol));
    let trace = play(&tracer);
    assert!(tracer.flush(LIMIT).await, "{:?}", tracer.warning());
    assert_eq!(tracer.warning(), None);
    (trace, receiver.spans())
}

fn one<'a>(spans: &'a [otlp::Span], name: &str, subtask: Option<&str>) -> &'a otlp::Span {
    let found: Vec<&otlp::Span> = spans
        .iter()
        .filter(|span| span.name == name)
        .filter(|span| subtask.is_none_or(|id| span.attributes[names::SUBTASK] == id))
        .collect();
    assert_eq!(found.len(), 1, "{name} {subtask:?}");
    found[0]
}

/// What each kind of span must say: operation, OTLP kind, OpenInference kind, further names.
fn table() -> BTreeMap<&'static str, (i32, &'static str, Vec<&'static str>)> {
    let agent = vec![
        names::PROVIDER,
        names::REQUEST_MODEL,
        names::AGENT,
        names::AGENT_DESCRIPTION,
        names::SUBTASK,
        names::ROUND,
        names::NODE,
        names::NODE_PARENT,
    ];
    BTreeMap::from([
        (
            "invoke_workflow",
            (1, "CHAIN", vec![names::WORKFLOW, names::AGENT]),
        ),
        ("plan", (1, "CHAIN", agent.clone())),
        ("invoke_agent", (1, "AGENT|EVALUATOR", agent)),
        (
            "chat",
            (
                3,
                "LLM",
                vec![
                    names::PROVIDER,
                    names::REQUEST_MODEL,
                    names::REQUEST_STREAM,
                    names::REQUEST_MAX_TOKENS,
                    names::REQUEST_TEMPERATURE,
                    names::RESPONSE_ID,
                    names::RESPONSE_MODEL,
                    names::FINISH_REASONS,
                    names::INPUT_TOKENS,
                    names::OUTPUT_TOKENS,
                    names::CACHE_READ_TOKENS,
                    names::SERVER_ADDRESS,
                    names::SERVER_PORT,
                    names::LLM_SYSTEM,
                    names::LLM_TOTAL_TOKENS,
                    names::SUBTASK,
                ],
            ),
        ),
        (
            "execute_tool",
            (
                1,
                "TOOL",
                vec![names::TOOL, names::TOOL_CALL, names::TOOL_TYPE],
            ),
        ),
    ])
}

fn check(trace: &str, spans: &[otlp::Span]) {
    assert_eq!(spans.len(), 10);
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    let roots: Vec<_> = spans.iter().filter(|span| span.parent.is_none()).collect();
    assert_eq!(roots.len(), 1, "one root");
    assert_eq!(roots[0].name, "invoke_workflow price-fix");
    for span in spans {
        assert_eq!(span.trace, trace, "{}", span.name);
        assert!(
            span.parent.iter().all(|id| ids.contains(id.as_str())),
            "{}",
            span.name
        );
        assert!(span.end >= span.start && span.end > 0, "{}", span.name);
        assert_eq!(span.scope, "wharf");
        assert_eq!(span.schema_url, names::SCHEMA_URL);
        assert_eq!(span.resource["service.name"], "wharf");
        assert_eq!(span.attributes[names::SESSION], "run-1");
        assert_eq!(span.attributes[names::CONVERSATION], "run-1");
        let Some(operation) = span.attributes.get(names::OPERATION) else {
            assert_eq!(span.name, "bash", "only a command has no operation");
            continue;
        };
        let (kind, role, keys) = &table()[operation.as_str().unwrap()];
        assert!(span.name.starts_with(operation.as_str().unwrap()));
        assert_eq!(span.kind, *kind, "{}", span.name);
        let given = span.attributes[names::SPAN_KIND].as_str().unwrap();
        assert!(
            role.split('|').any(|word| word == given),
            "{}: {given}",
            span.name
        );
        for key in keys {
            assert!(
                span.attributes.contains_key(*key),
                "{} lacks {key}",
                span.name
            );
        }
    }
}

fn check_details(spans: &[otlp::Span]) {
    let first = one(spans, "invoke_agent coder", Some("find"));
    let second = one(spans, "invoke_agent coder", Some("mend"));
    assert_eq!(second.links, std::slice::from_ref(&first.id));
    assert_eq!(second.attributes[names::NODE_PARENT], "find");
    assert_eq!(
        (second.status, second.message.as_str()),
        (2, "gave up on [masked]")
    );
    assert_eq!(second.attributes[names::ERROR_TYPE], "timeout");

    let tool = one(spans, "execute_tool bash", None);
    let exec = one(spans, "bash", None);
    assert_eq!(tool.parent.as_deref(), Some(first.id.as_str()));
    assert_eq!(exec.parent.as_deref(), Some(tool.id.as_str()));
    assert_eq!(exec.kind, 3);
    assert_eq!(exec.attributes[names::PROCESS_EXIT_CODE], 2);
    assert_eq!(exec.attributes[names::ERROR_TYPE], "nonzero_exit");
    assert_eq!(exec.attributes[names::CONTAINER_ID], "c0ffee");
    assert_eq!(
        tool.status, 0,
        "a command that failed is output, the tool did its work"
    );

    let verifier = one(spans, "invoke_agent verifier", None);
    assert_eq!(verifier.attributes[names::SPAN_KIND], "EVALUATOR");
    assert_eq!(verifier.events[0].0, "gen_ai.evaluation.result");
    assert_eq!(verifier.events[0].1[names::EVALUATION_SCORE], json!(1.0));

    let sum = |key: &str| -> i64 {
        let values = spans.iter().filter_map(|span| span.attributes.get(key));
        values.filter_map(Json::as_i64).sum()
    };
    assert_eq!(sum(names::INPUT_TOKENS), 600, "each call counts once");
    assert_eq!(sum(names::OUTPUT_TOKENS), 60);
    assert_eq!(sum(names::LLM_TOTAL_TOKENS), 660);
}

#[tokio::test]
async fn a_run_is_one_tree_over_http() {
    let (trace, spans) = seen(Protocol::HttpProtobuf).await;
    check(&trace, &spans);
    check_details(&spans);
}

#[tokio::test]
async fn a_run_is_one_tree_over_grpc() {
    let (trace, spans) = seen(Protocol::Grpc).await;
    check(&trace, &spans);
    check_details(&spans);
}

#[tokio::test]
async fn headers_path_and_type_are_as_configured() {
    let receiver = Receiver::start();
    for protocol in [Protocol::HttpProtobuf, Protocol::Grpc] {
        let mut target = target(&receiver, protocol);
        target.headers = vec![("x-project-name".to_owned(), "p1".to_owned())];
        let tracer = open(target);
        play(&tracer);
        assert!(tracer.flush(LIMIT).await, "{:?}", tracer.warning());
    }
    let requests = receiver.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].path, "/v1/traces");
    assert_eq!(
        requests[0].headers["content-type"],
        "application/x-protobuf"
    );
    assert!(requests.iter().all(|r| r.headers["x-project-name"] == "p1"));
}

#[tokio::test]
async fn a_traceparent_becomes_the_parent_of_the_run() {
    let receiver = Receiver::start();
    let tracer = Tracer::open(&Options {
        target: Some(target(&receiver, Protocol::HttpProtobuf)),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        ..Options::default()
    })
    .unwrap();
    play(&tracer);
    assert!(tracer.flush(LIMIT).await);
    let spans = receiver.spans();
    let run = one(&spans, "invoke_workflow price-fix", None);
    assert_eq!(run.trace, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(run.parent.as_deref(), Some("00f067aa0ba902b7"));
}

#[tokio::test]
async fn a_clone_keeps_a_span_open_and_a_second_end_changes_nothing() {
    let receiver = Receiver::start();
    let tracer = open(target(&receiver, Protocol::HttpProtobuf));
    let run = tracer.run(&RunStart::default());
    let tool = run.tool("bash", "1", "coder");
    let clone = tool.clone();
    drop(tool);
    assert!(tracer.flush(LIMIT).await);
    assert!(receiver.spans().is_empty(), "a clone is alive");
    clone.end();
    clone.end();
    clone.set(names::STATUS, "late".into());
    drop((clone, run));
    assert!(tracer.flush(LIMIT).await);
    let spans = receiver.spans();
    assert_eq!(spans.len(), 2);
    assert!(
        !one(&spans, "execute_tool bash", None)
            .attributes
            .contains_key(names::STATUS)
    );
}

/// The flush gives up within its limit, says so once, and names the endpoint.
async fn gives_up(protocol: Protocol, endpoint: &str) -> String {
    let tracer = open(Target::new(protocol, endpoint));
    play(&tracer);
    let begun = Instant::now();
    assert!(!tracer.flush(Duration::from_secs(1)).await, "{endpoint}");
    // A guard, not a measurement: without the deadline this would last the exporter's 10 s.
    assert!(begun.elapsed() < Duration::from_secs(8), "{endpoint}");
    let warning = tracer.warning().unwrap();
    assert!(warning.contains("not every span reached http"), "{warning}");
    warning
}

#[tokio::test]
async fn a_closed_port_holds_nothing_up() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let endpoint = format!("http://127.0.0.1:{port}");
    gives_up(Protocol::HttpProtobuf, &format!("{endpoint}/v1/traces")).await;
    gives_up(Protocol::Grpc, &endpoint).await;
}

#[tokio::test]
async fn a_silent_socket_holds_nothing_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let warning = gives_up(Protocol::HttpProtobuf, &format!("{endpoint}/v1/traces")).await;
    assert!(warning.contains("no answer in time"), "{warning}");
    gives_up(Protocol::Grpc, &endpoint).await;
}

#[tokio::test]
async fn an_address_that_swallows_packets_holds_nothing_up() {
    gives_up(Protocol::HttpProtobuf, "http://192.0.2.1:4318/v1/traces").await;
    gives_up(Protocol::Grpc, "http://192.0.2.1:4317").await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_holds_nothing_up() {
    gives_up(
        Protocol::HttpProtobuf,
        "http://nosuch.invalid:4318/v1/traces",
    )
    .await;
    gives_up(Protocol::Grpc, "http://nosuch.invalid:4317").await;
}

#[tokio::test]
async fn tls_to_a_plain_port_holds_nothing_up() {
    let receiver = Receiver::start();
    let http = receiver.http_endpoint.replace("http://", "https://");
    gives_up(Protocol::HttpProtobuf, &format!("{http}/v1/traces")).await;
    let grpc = receiver.grpc_endpoint.replace("http://", "https://");
    gives_up(Protocol::Grpc, &grpc).await;
    assert!(receiver.requests().is_empty());
}

/// Answers every request with 503 and asks for ten minutes of patience, until the test ends.
fn overloaded() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 16 << 10];
            let _ = stream.read(&mut head);
            let answer = "HTTP/1.1 503 Busy\r\nretry-after: 600\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    endpoint
}

#[tokio::test]
async fn a_receiver_that_asks_for_patience_gets_none() {
    let warning = gives_up(Protocol::HttpProtobuf, &overloaded()).await;
    assert_eq!(warning.lines().count(), 1);
}

#[tokio::test]
async fn the_wrong_protocol_is_said() {
    let receiver = Receiver::start();
    let warning = gives_up(
        Protocol::Grpc,
        &format!("{}/v1/traces", receiver.http_endpoint),
    )
    .await;
    assert!(warning.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{warning}");
}

#[tokio::test]
async fn a_full_queue_drops_counts_and_says_so() {
    let receiver = Receiver::start();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", silent.local_addr().unwrap());
    let tracer = open(Target {
        queue: 2,
        batch: 1,
        ..Target::new(Protocol::HttpProtobuf, endpoint)
    });
    for _ in 0..20 {
        play(&tracer);
    }
    let warning = tracer.warning().unwrap();
    assert!(warning.contains("the queue was full"), "{warning}");
    assert!(receiver.spans().is_empty());
}

#[tokio::test]
async fn nothing_named_nothing_sent_nothing_said() {
    let (options, warnings) = Options::read(&|_| None);
    assert!(warnings.is_empty());
    let tracer = Tracer::open(&options).unwrap();
    assert_eq!(play(&tracer).len(), 32);
    assert!(tracer.flush(LIMIT).await);
    assert_eq!(tracer.warning(), None);
}
