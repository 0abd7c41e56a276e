//! Real model servers, asked only when one is named: `WHARF_TEST_OPENAI_URL=http://…/v1 cargo test
//! --test it real -- --ignored`. `WHARF_TEST_MODEL` names the model, `smol` without it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use wharf::model::{Error, Key, Message, Model, Provider, Request, StatusKind, ToolSpec, open};

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
    }
}

#[tokio::test]
#[ignore = "needs a model server at WHARF_TEST_OPENAI_URL"]
async fn a_weak_model_is_read_for_some_turns() {
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
async fn a_call_without_text_in_the_history_is_read() {
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
async fn a_request_past_the_window_is_an_overflow() {
    match model().ask(&request(&"word ".repeat(20_000))).await {
        Err(Error::Status {
            kind: StatusKind::ContextOverflow,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}
