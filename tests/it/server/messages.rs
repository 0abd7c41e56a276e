//! Anthropic's messages as the scripted server speaks them, and the rules that its server holds.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Ask, Said, is_fit};

/// Role and text of each message, as chat completions have them.
pub fn plain(body: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    let system = &body["system"];
    if let Some(text) = system.as_str().or(system[0]["text"].as_str()) {
        out.push(json!({"role": "system", "content": text}));
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        if message["content"].is_string() {
            out.push(message.clone());
        }
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str().unwrap_or_default() {
                "text" => out.push(json!({"role": message["role"], "content": block["text"]})),
                "tool_result" => out.push(json!({
                    "role": "tool",
                    "tool_call_id": block["tool_use_id"],
                    "content": block["content"][0]["text"],
                })),
                _ => {}
            }
        }
    }
    out
}

/// A block as it begins in a stream, and its deltas.
type Streamed = (Value, Vec<Value>);

/// The blocks of a message whole, and as they are streamed.
fn blocks(number: usize, said: &Said) -> (Vec<Value>, Vec<Streamed>) {
    let mut blocks = Vec::new();
    let mut streamed = Vec::new();
    if !said.text.is_empty() {
        blocks.push(json!({"type": "text", "text": said.text}));
        streamed.push((
            json!({"type": "text", "text": ""}),
            vec![json!({"type": "text_delta", "text": said.text})],
        ));
    }
    for (at, (name, arguments)) in said.calls.iter().enumerate() {
        let text = match arguments {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let id = format!("toolu_{number}_{at}");
        let input: Value = serde_json::from_str(&text).unwrap_or_default();
        blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
        let middle = (text.len() / 2..=text.len())
            .find(|&at| text.is_char_boundary(at))
            .unwrap();
        let (head, tail) = text.split_at(middle);
        let piece = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
        streamed.push((
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            vec![piece(head), piece(tail)],
        ));
    }
    (blocks, streamed)
}

/// The events and the whole message.
pub fn written(ask: &Ask, said: Said) -> (Vec<String>, Value) {
    let (input, output) = said.tokens(ask);
    let number = ask.number;
    let (blocks, streamed) = blocks(number, &said);
    let stop = match said.finish.as_deref() {
        Some("length") => "max_tokens",
        Some("content_filter") => "refusal",
        Some(other) => other,
        None if said.calls.is_empty() => "end_turn",
        None => "tool_use",
    };
    let head = json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": ask.body["model"]});
    let mut events = vec![
        json!({"type": "message_start", "message": merged(&head, &json!({"content": [], "usage": {"input_tokens": input, "output_tokens": 1}}))}),
        json!({"type": "ping"}),
    ];
    for (index, (begun, deltas)) in streamed.into_iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begun}));
        events.extend(
            deltas.into_iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": output}}));
    events.push(json!({"type": "message_stop"}));
    let lines = events.iter().map(|event| {
        let name = event["type"].as_str().unwrap();
        format!("event: {name}\ndata: {event}\n\n")
    });
    let usage = json!({"input_tokens": input, "output_tokens": output});
    let whole = merged(
        &head,
        &json!({"content": blocks, "stop_reason": stop, "usage": usage}),
    );
    (lines.collect(), whole)
}

fn merged(head: &Value, more: &Value) -> Value {
    let mut out = head.clone();
    for (key, value) in more.as_object().unwrap() {
        out[key] = value.clone();
    }
    out
}

/// Every rule that `body` breaks.
pub fn violations(body: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let known = [
        "model",
        "max_tokens",
        "messages",
        "stream",
        "system",
        "tools",
        "temperature",
        "thinking",
        "output_config",
        "reasoning_effort",
    ];
    for key in body.as_object().into_iter().flatten().map(|(key, _)| key) {
        if !known.contains(&key.as_str()) {
            wrong.push(format!("{key}: extra inputs are not permitted"));
        }
    }
    let Some(limit) = body["max_tokens"].as_u64() else {
        return vec!["max_tokens: field required".to_owned()];
    };
    if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
        if budget < 1024 || budget >= limit {
            wrong.push(format!("thinking.budget_tokens {budget} of {limit}"));
        }
        if !body["temperature"].is_null() {
            wrong.push("temperature with thinking".to_owned());
        }
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if !is_fit(&tool["name"]) || !tool["input_schema"].is_object() {
            wrong.push(format!("tool {} is malformed", tool["name"]));
        }
    }
    let marks = body.to_string().matches("\"cache_control\"").count();
    if marks > 4 {
        wrong.push(format!("{marks} blocks with cache_control, at most 4"));
    }
    if let Err(what) = order(body) {
        wrong.push(what);
    }
    wrong
}

fn order(body: &Value) -> Result<(), String> {
    let none = vec![];
    let messages = body["messages"].as_array().unwrap_or(&none);
    let mut open: Vec<String> = Vec::new();
    let mut ids = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let wanted = if at % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != wanted {
            return Err(format!("message {at} is of {}", message["role"]));
        }
        let blocks = message["content"].as_array().unwrap_or(&none);
        let said = message["content"].as_str().unwrap_or_default();
        if blocks.is_empty() && (said.trim().is_empty() || !open.is_empty()) {
            return Err(format!("message {at} is empty"));
        }
        for block in blocks {
            match block["type"].as_str().unwrap_or_default() {
                "text" if block["text"].as_str().is_none_or(|t| t.trim().is_empty()) => {
                    return Err(format!(
                        "message {at}: text content blocks must be non-empty"
                    ));
                }
                "text" if wanted == "user" && !open.is_empty() => {
                    return Err(format!("message {at}: text before the results of {open:?}"));
                }
                "tool_result" => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    let place = open.iter().position(|open| open == id);
                    open.remove(place.ok_or(format!("message {at}: unexpected result {id}"))?);
                }
                "tool_use" => {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    if !is_fit(&block["id"]) || !ids.insert(id.clone()) {
                        return Err(format!("message {at}: id {id} is unfit or stands twice"));
                    }
                    if !block["input"].is_object() || !is_fit(&block["name"]) {
                        return Err(format!("message {at}: tool_use {id} is malformed"));
                    }
                    open.push(id);
                }
                _ => {}
            }
        }
        if wanted == "user" && !open.is_empty() {
            return Err(format!("message {at}: calls without a result: {open:?}"));
        }
    }
    if messages.len().is_multiple_of(2) {
        return Err("the last message is not of the user".to_owned());
    }
    Ok(())
}
