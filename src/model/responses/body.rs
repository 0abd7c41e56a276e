//! The request's body.

use serde_json::{Value, json};

use super::super::profile::Quirk;
use super::super::wire::Asked;
use super::super::{Call, Message};
use super::fold;

/// The body: nothing is stored at the server, so thoughts are asked for in the form that goes back.
pub fn of(asked: &Asked<'_>) -> Value {
    let request = asked.request;
    let mut body = json!({
        "model": asked.model,
        "input": input(asked),
        "max_output_tokens": request.reply_tokens,
        "store": false,
        "stream": !asked.quirks.has(Quirk::Plain),
    });
    if !asked.quirks.has(Quirk::NoInclude) {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    if let Some(Message::System { text }) = asked.messages.first() {
        body["instructions"] = json!(text);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": false,
            })
        });
        body["tools"] = tools.collect();
        if !asked.quirks.has(Quirk::NoToolChoice) {
            body["tool_choice"] = json!("auto");
        }
    }
    if let Some(temperature) = request.temperature
        && !asked.quirks.has(Quirk::NoTemperature)
    {
        body["temperature"] = json!(temperature);
    }
    if let Some(effort) = request.effort {
        body["reasoning"] = json!({ "effort": effort.as_str() });
    }
    body
}

fn input(asked: &Asked<'_>) -> Vec<Value> {
    let mut out = Vec::new();
    for message in asked.messages {
        match message {
            Message::System { .. } => {}
            Message::User { text } => out.push(said("user", text)),
            Message::Assistant {
                text,
                calls,
                native,
            } => {
                let kept = native
                    .as_ref()
                    .and_then(|native| fold::verbatim(native, asked.model, calls));
                match kept {
                    Some(items) => out.extend_from_slice(items),
                    None => {
                        if !text.trim().is_empty() {
                            out.push(said("assistant", text));
                        }
                        out.extend(calls.iter().map(call));
                    }
                }
            }
            Message::Tool { call_id, text, .. } => out.push(json!({
                "type": "function_call_output",
                "call_id": call_id,
                "output": text,
            })),
        }
    }
    out
}

fn said(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}

fn call(call: &Call) -> Value {
    json!({
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    })
}
