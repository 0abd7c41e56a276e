//! Anthropic's protocol over a real connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use wharf::model::{
    Error, Finish, Key, Message, Model, Provider, Request, Secret, StatusKind, ToolSpec, open,
};

use crate::server::{Answer, FakeModel};

fn model(server: &FakeModel) -> Arc<dyn Model> {
    let base = server.base_url().trim_end_matches("/v1").to_owned();
    let provider = Provider::anthropic(Some(base), Some(Secret::new("key-of-a-test")));
    let providers = BTreeMap::from([("anthropic".to_owned(), provider)]);
    open("anthropic/thinker", &providers).unwrap()
}

fn request() -> Request {
    Request {
        key: Key {
            round: 1,
            subtask: "fix".into(),
            role: "coder".into(),
            call: 1,
        },
        messages: vec![
            Message::System {
                text: "You are a coder.".into(),
            },
            Message::User {
                text: "fix it".into(),
            },
        ],
        tools: vec![ToolSpec {
            name: "bash".into(),
            description: "Runs a command.".into(),
            schema: json!({"type": "object"}),
        }],
        reply_tokens: 800,
        temperature: None,
        effort: None,
    }
}

fn stream(events: &[Value]) -> Answer {
    let written: Vec<String> = events
        .iter()
        .map(|event| {
            let name = event["type"].as_str().unwrap();
            format!("event: {name}\ndata: {event}\n\n")
        })
        .collect();
    let pieces: Vec<&str> = written.iter().map(String::as_str).collect();
    Answer::raw(&pieces)
}

fn block(index: u64, value: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": value})
}

fn delta(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

/// Thinking, a call, thinking, a call, in the shapes in which they are streamed.
fn interleaved() -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "thinker-1", "usage": {"input_tokens": 20, "output_tokens": 1}}}),
    ];
    for (at, thought) in ["first <a> & \u{2028}", "then \"b\"  "].iter().enumerate() {
        let (at, call) = (at as u64 * 2, format!("toolu_{at}"));
        events.extend([
            block(
                at,
                &json!({"type": "thinking", "thinking": "", "signature": ""}),
            ),
            delta(at, &json!({"type": "thinking_delta", "thinking": thought})),
            delta(
                at,
                &json!({"type": "signature_delta", "signature": format!("sig{at}==")}),
            ),
            block(
                at + 1,
                &json!({"type": "tool_use", "id": call, "name": "bash", "input": {}}),
            ),
            delta(
                at + 1,
                &json!({"type": "input_json_delta", "partial_json": "{\"command\": "}),
            ),
            delta(
                at + 1,
                &json!({"type": "input_json_delta", "partial_json": "\"ls\"}"}),
            ),
        ]);
    }
    events.extend([
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}}),
        json!({"type": "message_stop"}),
    ]);
    events
}

#[tokio::test]
async fn interleaved_thoughts_and_calls_go_back_untouched() {
    let text = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 0}}}),
        block(0, &json!({"type": "text", "text": ""})),
        delta(0, &json!({"type": "text_delta", "text": "done"})),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 9, "output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ];
    let server = FakeModel::queue(vec![stream(&interleaved()), stream(&text)]).await;
    let model = model(&server);
    let mut asking = request();
    let reply = model.ask(&asking).await.unwrap();
    assert_eq!(reply.finish, Finish::Calls);
    assert_eq!((reply.usage.input, reply.usage.output), (20, 30));
    asking.messages.push(Message::Assistant {
        text: reply.text,
        calls: reply.calls.clone(),
        native: reply.native,
    });
    for (call, failed) in reply.calls.iter().zip([false, true]) {
        asking.messages.push(Message::Tool {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: "out".into(),
            failed,
        });
    }
    asking.messages.push(Message::User {
        text: "go on".into(),
    });
    assert_eq!(model.ask(&asking).await.unwrap().text, "done");

    let sent = &server.requests()[1];
    let thought = |text: &str, signature: &str| json!({"type": "thinking", "thinking": text, "signature": signature});
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "bash", "input": {"command": "ls"}});
    let wanted = json!([
        thought("first <a> & \u{2028}", "sig0=="),
        call("toolu_0"),
        thought("then \"b\"  ", "sig2=="),
        call("toolu_1"),
    ]);
    assert_eq!(
        sent["messages"][1],
        json!({"role": "assistant", "content": wanted})
    );
    let results = &sent["messages"][2]["content"];
    assert_eq!(results[0]["tool_use_id"], "toolu_0");
    assert_eq!(
        (&results[0]["is_error"], &results[1]["is_error"]),
        (&Value::Null, &json!(true))
    );
    assert_eq!(results[2]["text"], "go on");
    assert_eq!(sent["system"][0]["text"], "You are a coder.");
    assert_eq!(sent["tools"][0]["input_schema"], json!({"type": "object"}));
    let headers = &server.headers()[0];
    assert_eq!(headers["x-api-key"], "key-of-a-test");
    assert!(headers.contains_key("anthropic-version") && !headers.contains_key("authorization"));
}

#[tokio::test]
async fn another_model_gets_calls_without_foreign_thoughts() {
    let server = FakeModel::queue(vec![stream(&interleaved()), Answer::text("done")]).await;
    let mut asking = request();
    let reply = model(&server).ask(&asking).await.unwrap();
    let ids: Vec<String> = reply.calls.iter().map(|call| call.id.clone()).collect();
    asking.messages.push(Message::Assistant {
        text: reply.text,
        calls: reply.calls,
        native: reply.native,
    });
    for id in ids {
        asking.messages.push(Message::Tool {
            call_id: id,
            name: "bash".into(),
            text: "out".into(),
            failed: false,
        });
    }
    let provider = Provider::openai(Some(server.base_url()), None);
    let providers = BTreeMap::from([("openai".to_owned(), provider)]);
    let other = open("openai/other", &providers).unwrap();
    assert_eq!(other.ask(&asking).await.unwrap().text, "done");
    assert_eq!(server.violations(), Vec::<String>::new());
    assert!(!server.requests()[1].to_string().contains("sig0"));
}

#[tokio::test]
async fn overload_cuts_and_refusals() {
    let events = interleaved();
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let after = [&events[..4], std::slice::from_ref(&overloaded)].concat();
    let long = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
    let server = FakeModel::queue(vec![
        stream(std::slice::from_ref(&overloaded)),
        stream(&after),
        Answer::status(529, &overloaded.to_string(), &[("retry-after", "3")]),
        Answer::status(400, long, &[]),
    ])
    .await;
    let model = model(&server);
    let mut kinds = Vec::new();
    for _ in 0..4 {
        match model.ask(&request()).await {
            Err(Error::Status { kind, .. }) => kinds.push(kind),
            other => panic!("{other:?}"),
        }
    }
    use StatusKind::{ContextOverflow, Limited};
    assert_eq!(kinds, [Limited, Limited, Limited, ContextOverflow]);

    for cut in 0..events.len() {
        let server = FakeModel::queue(vec![stream(&events[..cut])]).await;
        let error = self::model(&server).ask(&request()).await.unwrap_err();
        assert!(matches!(error, Error::Cut { .. }), "cut at {cut}: {error}");
    }
}
