//! One step of a conversation: what was said, or a reply with all its results.

use serde_json::{Value, json};

use super::CallOutput;
use crate::model::{Call, Reply};
use crate::tools::{self, clip};

#[derive(Clone, Debug)]
pub(super) enum Item {
    User(String),
    Reply {
        text: String,
        calls: Vec<Call>,
        native: Option<Value>,
        /// The size of `native` as text, measured once.
        native_bytes: usize,
        results: Vec<Shown>,
    },
}

/// A result as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub call_id: String,
    pub name: String,
    pub text: String,
    pub failed: bool,
    /// `#3 … bash "ls"`: what the elision says.
    pub label: String,
    pub elided: bool,
}

impl Item {
    /// Bytes that it has on the wire, about.
    pub fn bytes(&self) -> usize {
        match self {
            Self::User(text) => text.len() + 16,
            Self::Reply {
                text,
                calls,
                native_bytes,
                results,
                ..
            } => {
                let calls: usize = calls
                    .iter()
                    .map(|c| c.name.len() + c.arguments.len() + 48)
                    .sum();
                let results: usize = results.iter().map(|s| s.text.len() + 48).sum();
                16 + text.len().max(*native_bytes) + calls + results
            }
        }
    }

    /// Messages that it becomes.
    pub fn messages(&self) -> usize {
        match self {
            Self::User(_) => 1,
            Self::Reply { results, .. } => 1 + results.len(),
        }
    }
}

/// `#3: bash "ls"`: what stands for a result that is gone.
pub(super) fn label(result: &CallOutput) -> String {
    let arguments = &result.arguments;
    let named = ["command", "path", "pattern"]
        .iter()
        .find_map(|key| arguments.get(*key)?.as_str());
    let named = named
        .map(|text| format!(" {:?}", clip::line(text, 60)))
        .unwrap_or_default();
    format!(
        "#{}: {}{named}",
        result.number,
        clip::line(&result.tool, 40)
    )
}

/// Servers refuse arguments that are no JSON object; what the model wrote stays readable inside one.
pub(super) fn sendable(call: &Call) -> Call {
    let arguments = if call.arguments.trim().is_empty() {
        "{}".to_string()
    } else if tools::is_object(&call.arguments) {
        call.arguments.clone()
    } else {
        json!({"unreadable": clip::line(&call.arguments, 500)}).to_string()
    };
    Call {
        arguments,
        ..call.clone()
    }
}

/// The size of what a provider wants back verbatim, as text.
pub(super) fn native_bytes(reply: &Reply) -> usize {
    let native = reply.native.as_ref();
    native.map_or(0, |native| native.to_string().len())
}
