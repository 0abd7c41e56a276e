//! The request's body.

use serde::Serialize;
use serde_json::Value;

use super::fold;
use super::profile::Profile;
use crate::model::{Call, Message, Request, ToolSpec};

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
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Serialize)]
struct StreamOptions {
    include_usage: bool,
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
    /// The body for `messages`, which `outgoing` has prepared.
    pub fn of(
        model: &'a str,
        request: &'a Request,
        messages: &'a [Message],
        profile: Profile,
    ) -> Self {
        let limit = Some(request.reply_tokens);
        let (max_completion_tokens, max_tokens) = if profile.completion_limit {
            (limit, None)
        } else {
            (None, limit)
        };
        Self {
            model,
            messages: messages.iter().map(|m| line(m, model, profile)).collect(),
            tools: request.tools.iter().map(tool).collect(),
            // Some servers ignore the tools without it.
            tool_choice: (!request.tools.is_empty()).then_some("auto"),
            max_tokens,
            max_completion_tokens,
            temperature: request.temperature,
            stream: profile.stream,
            stream_options: (profile.stream && profile.stream_usage).then_some(StreamOptions {
                include_usage: true,
            }),
        }
    }
}

/// True when a body under `profile` holds a null content.
pub fn has_null(messages: &[Message], profile: Profile) -> bool {
    !profile.empty_text
        && messages.iter().any(
            |message| matches!(message, Message::Assistant { text, .. } if text.trim().is_empty()),
        )
}

fn line<'a>(message: &'a Message, model: &str, profile: Profile) -> Line<'a> {
    match message {
        Message::System { text } => Line::System { content: text },
        Message::User { text } => Line::User { content: text },
        Message::Assistant {
            text,
            calls,
            native,
        } => Line::Assistant {
            content: match text.trim().is_empty() {
                false => Some(text),
                true => profile.empty_text.then_some(""),
            },
            // Servers that think want it back within a turn, and only there.
            reasoning_content: native
                .as_ref()
                .filter(|_| !calls.is_empty())
                .and_then(|native| fold::reasoning(native, model)),
            tool_calls: calls.iter().map(tool_call).collect(),
        },
        Message::Tool { call_id, text, .. } => Line::Tool {
            tool_call_id: call_id,
            content: text,
        },
    }
}

fn tool_call(call: &Call) -> ToolCall<'_> {
    ToolCall {
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
