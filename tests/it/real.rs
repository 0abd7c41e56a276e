//! Real model servers, and the vendors' own types, asked only when one is named; docs/testing.md says
//! how. `WHARF_TEST_MODEL` names the model, `smol` without it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use wharf::model::{
    Effort, Error, Key, Message, Model, Provider, Reply, Request, Secret, StatusKind, ToolSpec,
    Wire, open,
};

use crate::operator::{Operator, skipped};
use crate::server::{Answer, FakeModel};
use crate::stops::none_left;
use crate::world::put;

#[expect(
    clippy::disallowed_methods,
    reason = "the only way to name a server to a test"
)]
fn named(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

fn model() -> Arc<dyn Model> {
    let url = named("WHARF_TEST_OPENAI_URL").expect("WHARF_TEST_OPENAI_URL names no server");
    let model = named("WHARF_TEST_MODEL").unwrap_or_else(|| "smol".to_owned());
    let provider = Provider {
        name: "real".to_owned(),
        ..Provider::openai(Some(url), None)
    };
    let providers = BTreeMap::from([("real".to_owned(), provider)]);
    open(&format!("real/{model}"), &providers).unwrap()
}

fn request(first: &str) -> Request {
    Request {
        key: Key {
            round: 1,
            subtask: "real".into(),
            role: "coder".into(),
            call: 1,
        },
        messages: vec![
            Message::System {
                text: "You are a coder. Use the tool.".into(),
            },
            Message::User { text: first.into() },
        ],
        tools: vec![ToolSpec {
            name: "bash".into(),
            description: "Runs a command.".into(),
            schema: json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}),
        }],
        reply_tokens: 60,
        temperature: Some(0.0),
        effort: None,
    }
}

#[tokio::test]
#[ignore = "needs a model server at WHARF_TEST_OPENAI_URL"]
async fn chat_a_weak_model_is_read_for_some_turns() {
    let model = model();
    let mut asking = request("List the files with bash.");
    for turn in 0..3 {
        let reply = model.ask(&asking).await.unwrap();
        assert!(reply.usage.input > 0 && reply.usage.output > 0);
        let calls = reply.calls.clone();
        asking.messages.push(Message::Assistant {
            text: reply.text,
            calls: reply.calls,
            native: reply.native,
        });
        for call in &calls {
            asking.messages.push(Message::Tool {
                call_id: call.id.clone(),
                name: call.name.clone(),
                text: format!("#{turn} a.txt b.txt"),
                failed: false,
            });
        }
        asking.messages.push(Message::User {
            text: "Go on.".into(),
        });
    }
}

#[tokio::test]
#[ignore = "needs a model server at WHARF_TEST_OPENAI_URL"]
async fn chat_a_call_without_text_in_the_history_is_read() {
    let mut asking = request("List the files.");
    asking.messages.push(Message::Assistant {
        text: String::new(),
        calls: vec![wharf::model::Call {
            id: "call_1".into(),
            name: "bash".into(),
            arguments: r#"{"command":"ls"}"#.into(),
        }],
        native: None,
    });
    asking.messages.push(Message::Tool {
        call_id: "call_1".into(),
        name: "bash".into(),
        text: "#1 a.txt".into(),
        failed: false,
    });
    model().ask(&asking).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a model server at WHARF_TEST_OPENAI_URL"]
async fn chat_a_request_past_the_window_is_an_overflow() {
    match model().ask(&request(&"word ".repeat(20_000))).await {
        Err(Error::Status {
            kind: StatusKind::ContextOverflow,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

/// The conversation after `reply`, its calls answered, and told to go on.
fn after(mut asking: Request, reply: Reply) -> Request {
    let calls = reply.calls.clone();
    asking.messages.push(Message::Assistant {
        text: reply.text,
        calls: reply.calls,
        native: reply.native,
    });
    for call in &calls {
        asking.messages.push(Message::Tool {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: "a.txt b.txt".into(),
            failed: false,
        });
    }
    asking.messages.push(Message::User {
        text: "Go on.".into(),
    });
    asking
}

#[tokio::test]
#[ignore = "needs a gateway that speaks messages at WHARF_TEST_ANTHROPIC_URL"]
async fn messages_of_a_gateway_are_read_for_some_turns() {
    let url = named("WHARF_TEST_ANTHROPIC_URL").expect("WHARF_TEST_ANTHROPIC_URL names no server");
    let model = named("WHARF_TEST_MODEL").unwrap_or_else(|| "smol".to_owned());
    let provider = Provider {
        name: "real".to_owned(),
        ..Provider::anthropic(Some(url), Some(Secret::new("key-of-a-test")))
    };
    let providers = BTreeMap::from([("real".to_owned(), provider)]);
    let model = open(&format!("real/{model}"), &providers).unwrap();
    let mut asking = request("List the files with bash.");
    for _ in 0..3 {
        let reply = model.ask(&asking).await.unwrap();
        assert!(reply.usage.input > 0 && reply.usage.output > 0);
        asking = after(asking, reply);
    }
}

/// Reads a JSON object of bodies by wire and holds each against the vendor's types, lists included.
const TYPES: &str = r#"
import json, sys
from pydantic import TypeAdapter
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as Chat
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as Responses
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as Messages

def walk(value):
    if isinstance(value, dict):
        return {key: walk(item) for key, item in value.items()}
    if isinstance(value, (str, bytes, int, float, bool)) or value is None:
        return value
    return [walk(item) for item in value]

# Lists are checked as they are walked, by parts of an adapter that must live as long.
kinds = {"chat": TypeAdapter(Chat), "responses": TypeAdapter(Responses), "messages": TypeAdapter(Messages)}
count = 0
for name, bodies in json.load(sys.stdin).items():
    for body in bodies:
        body.pop("stream", None)
        body.pop("stream_options", None)
        walk(kinds[name].validate_python(body))
        count += 1
print(count)
"#;

#[tokio::test]
#[ignore = "needs a Python with the packages openai and anthropic at WHARF_TEST_PYTHON"]
async fn types_of_the_vendors_take_what_is_sent() {
    let python = named("WHARF_TEST_PYTHON").expect("WHARF_TEST_PYTHON names no Python");
    let mut bodies = BTreeMap::new();
    for (name, wire) in [
        ("chat", Wire::OpenAi),
        ("messages", Wire::Anthropic),
        ("responses", Wire::Responses),
    ] {
        let call = |line: &str| ("bash", json!({"command": line}));
        let server = FakeModel::queue(vec![
            Answer::calls(vec![call("ls"), call("pwd")]),
            Answer::text("I think"),
            Answer::text("done"),
        ])
        .await;
        let provider = Provider {
            name: "real".to_owned(),
            kind: wire,
            ..Provider::openai(Some(server.base_url()), None)
        };
        let providers = BTreeMap::from([("real".to_owned(), provider)]);
        let model = open("real/m", &providers).unwrap();
        let mut asking = request("List the files with bash.");
        asking.reply_tokens = 4096;
        asking.effort = Some(Effort::Low);
        for _ in 0..3 {
            let reply = model.ask(&asking).await.unwrap();
            asking = after(asking, reply);
        }
        bodies.insert(name, server.requests());
    }
    let text = json!(bodies).to_string();
    let mut child = std::process::Command::new(python)
        .args(["-c", TYPES])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "9");
}

/// A whole run of a model too weak for it: whatever it says, the run ends in order, by itself, and is
/// no success.
async fn run_of_a_weak_model(provider: &str) {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    put(
        &operator.work().join("price.py"),
        "def price(x):\n    return x\n",
    );
    let plan = operator.beside(
        "plan.yaml",
        &format!(
            "version: 1\nname: weak\ntask: Round prices to cents and prove it.\n\
             model: real/{}\nproviders:\n  real: {provider}\n\
             acceptance: {{commands: [\"grep -q round price.py\"], criteria: [Prices are rounded]}}\n\
             agent: {{turns: 3, reply_tokens: 96, context_window: 4096}}\nrun: {{time: 4m, rounds: 1}}\n\
             subtasks: [{{id: a, role: coder, brief: Round prices in price.py to cents.}}]\n",
            named("WHARF_TEST_MODEL").unwrap_or_else(|| "smol".to_owned())
        ),
    );
    let args = ["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
    let child = operator.command(None, &args).spawn().unwrap();
    let ended = tokio::time::timeout(
        std::time::Duration::from_secs(400),
        child.wait_with_output(),
    );
    let out = ended.await.expect("it ends by itself").unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let status = result["status"].as_str().unwrap();
    assert!(matches!(status, "failed" | "limited"), "{result}");
    assert!(matches!(out.status.code(), Some(1 | 5)), "{result}");
    assert!(result["usage"]["calls"].as_u64() > Some(0), "{result}");
    none_left(&operator).await;
}

#[tokio::test]
#[ignore = "needs a model server at WHARF_TEST_OPENAI_URL"]
async fn chat_a_run_of_a_weak_model_ends_in_order() {
    let url = named("WHARF_TEST_OPENAI_URL").expect("WHARF_TEST_OPENAI_URL names no server");
    run_of_a_weak_model(&format!("{{kind: openai, base_url: \"{url}\"}}")).await;
}

#[tokio::test]
#[ignore = "needs a gateway that speaks messages at WHARF_TEST_ANTHROPIC_URL"]
async fn messages_a_run_of_a_weak_model_ends_in_order() {
    let url = named("WHARF_TEST_ANTHROPIC_URL").expect("WHARF_TEST_ANTHROPIC_URL names no server");
    run_of_a_weak_model(&format!("{{kind: anthropic, base_url: \"{url}\"}}")).await;
}
