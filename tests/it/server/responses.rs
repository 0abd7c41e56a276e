//! OpenAI's responses as the scripted server speaks them, and the rules that its server holds.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Ask, Said, is_fit};

/// Role and text of each item, as chat completions have them.
pub fn plain(body: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    if let Some(text) = body["instructions"].as_str() {
        out.push(json!({"role": "system", "content": text}));
    }
    for item in body["input"].as_array().into_iter().flatten() {
        match item["type"].as_str().unwrap_or("message") {
            "message" => out.push(json!({"role": item["role"], "content": item["content"]})),
            "function_call_output" => out.push(json!({
                "role": "tool",
                "tool_call_id": item["call_id"],
                "content": item["output"],
            })),
            _ => {}
        }
    }
    out
}

/// The events and the whole response. Every answer begins with a thought.
pub fn written(ask: &Ask, said: Said) -> (Vec<String>, Value) {
    let (input, output) = said.tokens(ask);
    let number = ask.number;
    let mut items = vec![
        json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [], "encrypted_content": format!("gAAAA{number}==")}),
    ];
    if !said.text.is_empty() {
        items.push(json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": said.text, "annotations": []}]}));
    }
    for (at, (name, arguments)) in said.calls.iter().enumerate() {
        let text = match arguments {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        items.push(json!({"type": "function_call", "id": format!("fc_{number}_{at}"), "call_id": format!("call_{number}_{at}"),
            "name": name, "arguments": text, "status": "completed"}));
    }
    let (status, details) = match said.finish.as_deref() {
        Some("length") => ("incomplete", json!({"reason": "max_output_tokens"})),
        Some("content_filter") => ("incomplete", json!({"reason": "content_filter"})),
        _ => ("completed", Value::Null),
    };
    let response = |status: &str, output: &[Value]| {
        json!({"id": format!("resp_{number}"), "object": "response", "status": status, "error": null,
            "model": ask.body["model"], "output": output})
    };
    let mut whole = response(status, &items);
    whole["incomplete_details"] = details;
    whole["usage"] =
        json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
    let mut events = vec![
        json!({"type": "response.created", "response": response("in_progress", &[])}),
        json!({"type": "response.in_progress", "response": response("in_progress", &[])}),
    ];
    for (at, item) in items.iter().enumerate() {
        let mut begun = item.clone();
        begun["status"] = json!("in_progress");
        events
            .push(json!({"type": "response.output_item.added", "output_index": at, "item": begun}));
        match item["type"].as_str().unwrap() {
            "function_call" => events.push(
                json!({"type": "response.function_call_arguments.delta", "output_index": at, "delta": item["arguments"]}),
            ),
            "message" => events.push(
                json!({"type": "response.output_text.delta", "output_index": at, "delta": said.text}),
            ),
            _ => {}
        }
        events.push(json!({"type": "response.output_item.done", "output_index": at, "item": item}));
    }
    events.push(json!({"type": format!("response.{status}"), "response": whole}));
    let lines = events.iter().enumerate().map(|(at, event)| {
        let mut event = event.clone();
        event["sequence_number"] = json!(at);
        let name = event["type"].as_str().unwrap().to_owned();
        format!("event: {name}\ndata: {event}\n\n")
    });
    (lines.collect(), whole)
}

/// Every rule that `body` breaks.
pub fn violations(body: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let known = [
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "max_output_tokens",
        "temperature",
        "reasoning",
        "include",
        "store",
        "stream",
    ];
    for key in body.as_object().into_iter().flatten().map(|(key, _)| key) {
        if !known.contains(&key.as_str()) {
            wrong.push(format!("unknown parameter: '{key}'"));
        }
    }
    if body["max_output_tokens"].as_u64().is_none_or(|n| n < 16) {
        wrong.push("max_output_tokens below 16 or missing".to_owned());
    }
    if body["store"] != false {
        wrong.push("something would be kept at the server".to_owned());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if !is_fit(&tool["name"]) || tool["type"] != "function" || !tool["parameters"].is_object() {
            wrong.push(format!("tool {} is malformed", tool["name"]));
        }
    }
    if let Err(what) = order(body) {
        wrong.push(what);
    }
    wrong
}

fn order(body: &Value) -> Result<(), String> {
    let none = vec![];
    let items = body["input"].as_array().unwrap_or(&none);
    let mut open: Vec<String> = Vec::new();
    let mut ids = HashSet::new();
    let mut last = "";
    for (at, item) in items.iter().enumerate() {
        let kind = item["type"].as_str().unwrap_or("message");
        if !matches!(kind, "function_call" | "function_call_output") && !open.is_empty() {
            return Err(format!("No tool output found for function call {open:?}"));
        }
        match kind {
            "message" => {
                let text = item["content"].as_str().unwrap_or_default();
                let parts = item["content"].as_array().is_some_and(|p| !p.is_empty());
                if text.trim().is_empty() && !parts {
                    return Err(format!("item {at} is empty"));
                }
            }
            "reasoning" => {
                if item["encrypted_content"].as_str().is_none() {
                    return Err(format!("item {at}: {} not found", item["id"]));
                }
                let next = items.get(at + 1).map(|next| next["type"].clone());
                if !matches!(next, Some(Value::String(_))) {
                    return Err(format!("{} without its following item", item["id"]));
                }
            }
            "function_call" => {
                let id = item["call_id"].as_str().unwrap_or_default().to_owned();
                if id.is_empty() || id.len() > 64 || !ids.insert(id.clone()) {
                    return Err(format!("item {at}: call_id {id} is unfit or stands twice"));
                }
                let arguments = item["arguments"].as_str().unwrap_or_default();
                let parsed: Result<Value, _> = serde_json::from_str(arguments);
                if !is_fit(&item["name"]) || !parsed.is_ok_and(|value| value.is_object()) {
                    return Err(format!("item {at}: call {id} is malformed"));
                }
                open.push(id);
            }
            "function_call_output" => {
                let id = item["call_id"].as_str().unwrap_or_default();
                let place = open.iter().position(|open| open == id);
                open.remove(place.ok_or(format!("No tool call found for call_id {id}"))?);
            }
            other => return Err(format!("item {at} is of {other:?}")),
        }
        last = match kind {
            "message" => item["role"].as_str().unwrap_or_default(),
            other => other,
        };
    }
    if !open.is_empty() {
        return Err(format!("No tool output found for function call {open:?}"));
    }
    if !matches!(last, "user" | "function_call_output") {
        return Err(format!("the last item is of {last:?}"));
    }
    Ok(())
}
