//! The request's body, and where in it the server is asked to keep what it read.

use serde_json::{Value, json};

use super::super::profile::{EffortForm, Quirk};
use super::super::wire::Asked;
use super::super::{Call, Effort, Error, Message, Request, outgoing};
use super::fold;

/// The least that a model may be given to think, in tokens: the protocol's own bound.
const LEAST_THOUGHT: u64 = 1024;

/// The body in the form that its server was found to need. Three marks of what to keep, of the four
/// that one request may have: after tools and system message, which never change; after what the
/// request before this one ended with; and at the end. A server looks for kept text only some blocks
/// before a mark, so a turn of many calls needs the second one to find what the last request left.
pub fn of(asked: &Asked<'_>) -> Result<Value, Error> {
    let (request, quirks) = (asked.request, asked.quirks);
    let keeps = !quirks.has(Quirk::NoCache);
    let mut body = json!({
        "model": asked.model,
        "max_tokens": request.reply_tokens,
        "messages": turns(asked),
        "stream": !quirks.has(Quirk::Plain),
    });
    if let Some(Message::System { text }) = asked.messages.first() {
        let mut block = text_block(text);
        if keeps {
            keep_cached(&mut block);
        }
        body["system"] = json!([block]);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema })
        });
        body["tools"] = tools.collect();
    }
    match (request.effort, asked.effort) {
        (Some(effort), Some(EffortForm::OutputConfig)) => {
            body["thinking"] = json!({ "type": "adaptive" });
            body["output_config"] = json!({ "effort": effort.as_str() });
        }
        (Some(effort), Some(EffortForm::ReasoningEffort | EffortForm::Reasoning)) => {
            body["reasoning_effort"] = json!(effort.as_str());
        }
        (Some(effort), _) => {
            if let Some(tokens) = thought(request, effort)? {
                body["thinking"] = json!({ "type": "enabled", "budget_tokens": tokens });
            }
        }
        (None, _) => {}
    }
    // A model that thinks takes no temperature of ours.
    if let Some(temperature) = request.temperature
        && !quirks.has(Quirk::NoTemperature)
        && body["thinking"].is_null()
    {
        body["temperature"] = json!(temperature);
    }
    Ok(body)
}

/// How many of the reply's tokens may be thought; None: the least effort thinks not at all.
fn thought(request: &Request, effort: Effort) -> Result<Option<u64>, Error> {
    let share = match effort {
        Effort::Minimal => return Ok(None),
        Effort::Low => 4,
        Effort::Medium => 2,
        Effort::High => 1,
    };
    // Something must be left to answer with.
    let most = request.reply_tokens.saturating_sub(LEAST_THOUGHT);
    if most < LEAST_THOUGHT {
        return Err(Error::Setup {
            what: format!(
                "effort {} needs replies of at least {} tokens, and this one may have {}",
                effort.as_str(),
                2 * LEAST_THOUGHT,
                request.reply_tokens
            ),
            hint: "raise agent.reply_tokens, or write `effort: minimal`".to_owned(),
        });
    }
    Ok(Some((most / share).max(LEAST_THOUGHT)))
}

/// The conversation in turns of `user` and `assistant`; results come first in the turn they open.
fn turns(asked: &Asked<'_>) -> Value {
    let mut out: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in asked.messages {
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
                    .and_then(|n| fold::verbatim(n, asked.model, calls))
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
    if !asked.quirks.has(Quirk::NoCache) {
        let ours = out.iter_mut().rev().filter(|(role, _)| *role == "user");
        for block in ours.take(2).filter_map(|(_, blocks)| blocks.last_mut()) {
            keep_cached(block);
        }
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
