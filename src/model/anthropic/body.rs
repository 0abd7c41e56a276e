//! The request's body.

use serde_json::{Value, json};

use super::super::{Call, Message, Request, outgoing};
use super::fold;

/// The body for `messages`, which `outgoing` has prepared.
pub fn of(model: &str, request: &Request, messages: &[Message]) -> Value {
    let mut body = json!({
        "model": model,
        "max_tokens": request.reply_tokens,
        "messages": turns(model, messages),
        "stream": true,
    });
    if let Some(Message::System { text }) = messages.first() {
        let mut block = json!({ "type": "text", "text": text });
        keep_cached(&mut block);
        body["system"] = json!([block]);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema })
        });
        body["tools"] = tools.collect();
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    body
}

/// The conversation in turns of `user` and `assistant`; results come first in the turn they open.
fn turns(model: &str, messages: &[Message]) -> Value {
    let mut out: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            Message::System { .. } => continue,
            Message::User { text } => ("user", vec![text_block(text)]),
            Message::Assistant {
                text,
                calls,
                native,
            } => (
                "assistant",
                match native
                    .as_ref()
                    .and_then(|n| fold::verbatim(n, model, calls))
                {
                    Some(blocks) => blocks.to_vec(),
                    None => rebuilt(text, calls),
                },
            ),
            Message::Tool {
                call_id,
                text,
                failed,
                ..
            } => ("user", vec![result(call_id, text, *failed)]),
        };
        match out.last_mut() {
            Some((last, before)) if *last == role => before.extend(blocks),
            _ => out.push((role, blocks)),
        }
    }
    // The next request begins with all of this one: what ends it is worth keeping.
    if let Some(block) = out.last_mut().and_then(|(_, blocks)| blocks.last_mut()) {
        keep_cached(block);
    }
    let turn = |(role, blocks)| json!({ "role": role, "content": Value::Array(blocks) });
    out.into_iter().map(turn).collect()
}

fn rebuilt(text: &str, calls: &[Call]) -> Vec<Value> {
    let mut out = Vec::new();
    if !text.trim().is_empty() {
        out.push(text_block(text));
    }
    out.extend(calls.iter().map(|call| {
        let input = outgoing::object(&call.arguments);
        json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
    }));
    out
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn result(call_id: &str, text: &str, failed: bool) -> Value {
    let mut block = json!({
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": [text_block(text)],
    });
    if failed {
        block["is_error"] = json!(true);
    }
    block
}

/// Asks the server to keep what stands up to this block for the next request.
fn keep_cached(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}
