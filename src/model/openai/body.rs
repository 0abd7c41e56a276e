//! The request's body.

use serde::Serialize;
use serde_json::Value;

use super::fold;
use crate::model::profile::{EffortForm, Quirk, Quirks};
use crate::model::wire::Asked;
use crate::model::{Call, Message, ToolSpec};

#[derive(Debug, Serialize)]
pub struct Body<'a> {
    model: &'a str,
    messages: Vec<Line<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Debug, Serialize)]
struct Reasoning {
    effort: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Line<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_details: Option<&'a Value>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Debug, Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    class: &'static str,
    function: Written<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Debug, Serialize)]
struct Written<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    class: &'static str,
    function: Offered<'a>,
}

#[derive(Debug, Serialize)]
struct Offered<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

impl<'a> Body<'a> {
    /// The body in the form that its server was found to need.
    pub fn of(asked: &Asked<'a>) -> Self {
        let (request, quirks) = (asked.request, asked.quirks);
        let stream = !quirks.has(Quirk::Plain);
        let limit = Some(request.reply_tokens);
        let (max_completion_tokens, max_tokens) = match quirks.has(Quirk::CompletionLimit) {
            true => (limit, None),
            false => (None, limit),
        };
        let effort = request.effort.map(|effort| effort.as_str());
        let said_as = |form| effort.filter(|_| asked.effort == Some(form));
        // Some servers ignore the tools without it.
        let chooses = !request.tools.is_empty() && !quirks.has(Quirk::NoToolChoice);
        let usage = stream && !quirks.has(Quirk::NoStreamUsage);
        let temperature = request.temperature;
        Self {
            model: asked.model,
            messages: asked
                .messages
                .iter()
                .map(|message| line(message, asked.model, quirks))
                .collect(),
            tools: request.tools.iter().map(tool).collect(),
            tool_choice: chooses.then_some("auto"),
            max_tokens,
            max_completion_tokens,
            temperature: temperature.filter(|_| !quirks.has(Quirk::NoTemperature)),
            reasoning_effort: said_as(EffortForm::ReasoningEffort),
            reasoning: said_as(EffortForm::Reasoning).map(|effort| Reasoning { effort }),
            stream,
            stream_options: usage.then_some(StreamOptions {
                include_usage: true,
            }),
        }
    }
}

fn line<'a>(message: &'a Message, model: &str, quirks: Quirks) -> Line<'a> {
    match message {
        Message::System { text } => Line::System { content: text },
        Message::User { text } => Line::User { content: text },
        Message::Assistant {
            text,
            calls,
            native,
        } => {
            // Servers that think want it back within a turn, and only there.
            let thought = native
                .as_ref()
                .filter(|_| !calls.is_empty() && !quirks.has(Quirk::NoReasoning));
            let details = thought.and_then(|native| fold::details(native, model));
            // The list says all that the text says.
            let text_alone = thought.filter(|_| details.is_none());
            let kept = |field| text_alone.and_then(|native| fold::reasoning(native, model, field));
            let written = |call: &'a Call| tool_call(call, native.as_ref(), model);
            Line::Assistant {
                content: match text.trim().is_empty() {
                    false => Some(text),
                    true => quirks.has(Quirk::EmptyText).then_some(""),
                },
                reasoning_content: kept("reasoning_content"),
                reasoning: kept("reasoning"),
                reasoning_details: details,
                tool_calls: calls.iter().map(written).collect(),
            }
        }
        Message::Tool { call_id, text, .. } => Line::Tool {
            tool_call_id: call_id,
            content: text,
        },
    }
}

fn tool_call<'a>(call: &'a Call, native: Option<&'a Value>, model: &str) -> ToolCall<'a> {
    ToolCall {
        extra_content: native.and_then(|native| fold::extra(native, model, &call.id)),
        id: &call.id,
        class: "function",
        function: Written {
            name: &call.name,
            arguments: &call.arguments,
        },
    }
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    Tool {
        class: "function",
        function: Offered {
            name: &spec.name,
            description: &spec.description,
            parameters: &spec.schema,
        },
    }
}
