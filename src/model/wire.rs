//! The protocols: which one a provider speaks, where it is spoken, and how a request is written in it.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::profile::{EffortForm, Quirks};
use super::{Error, Message, Reply, Request, anthropic, openai, responses, stream};

/// The parts of a body, over all protocols, that hold what was said and what is offered.
const CONVERSATION: [&str; 5] = ["messages", "input", "system", "instructions", "tools"];

/// Which protocol a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Wire {
    /// Chat completions.
    #[serde(rename = "openai")]
    OpenAi,
    /// Messages.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// OpenAI's responses.
    #[serde(rename = "openai-responses")]
    Responses,
}

/// A request, and the form in which it is to be written.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub model: &'a str,
    pub request: &'a Request,
    /// As `outgoing` prepared and fitted them.
    pub messages: &'a [Message],
    pub quirks: Quirks,
    pub effort: Option<EffortForm>,
}

/// An answer under way, from events or from one whole object.
pub trait Answer: stream::Fold {
    /// Takes an answer that was not streamed. `Err` says why it is none.
    fn whole(&mut self, value: &Value) -> Result<(), String>;

    /// The whole reply of `model` to a request of `size` bytes in the conversation `earlier`.
    /// `Err` says why the answer is not whole.
    fn reply(
        self: Box<Self>,
        model: &str,
        earlier: &[Message],
        size: usize,
    ) -> Result<Reply, String>;
}

impl Wire {
    /// The word an operator writes for `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Responses => "openai-responses",
        }
    }

    /// Where answers are asked for; a query (`?api-version=…`) stays at the end.
    pub(super) fn address(self, base: &str) -> String {
        match self {
            Self::OpenAi => at(base, "/chat/completions"),
            Self::Anthropic => at(&with_version(base), "/messages"),
            Self::Responses => at(base, "/responses"),
        }
    }

    /// Where the models of a server are listed.
    pub(super) fn list_address(self, base: &str) -> String {
        match self {
            Self::OpenAi | Self::Responses => at(base, "/models"),
            Self::Anthropic => at(&with_version(base), "/models"),
        }
    }

    /// What a body holds beside the conversation and the tools; nothing where it cannot be written.
    pub(super) fn parameters(self, asked: &Asked<'_>) -> Map<String, Value> {
        let body = self.body(asked).unwrap_or_default();
        let mut parts: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
        parts.retain(|name, _| !CONVERSATION.contains(&name.as_str()));
        parts
    }

    pub(super) fn body(self, asked: &Asked<'_>) -> Result<Vec<u8>, Error> {
        let written = match self {
            Self::OpenAi => serde_json::to_vec(&openai::body::Body::of(asked)),
            Self::Anthropic => serde_json::to_vec(&anthropic::body::of(asked)?),
            Self::Responses => serde_json::to_vec(&responses::body::of(asked)),
        };
        written.map_err(|error| Error::Setup {
            what: format!("the request cannot be written as JSON: {error}"),
            hint: "this is a bug in Wharf".to_owned(),
        })
    }

    pub(super) fn answer(self) -> Box<dyn Answer + Send> {
        match self {
            Self::OpenAi => Box::<openai::fold::Fold>::default(),
            Self::Anthropic => Box::<anthropic::fold::Fold>::default(),
            Self::Responses => Box::<responses::fold::Fold>::default(),
        }
    }
}

/// `base` with `place` after its path, before its query. A base that names a place of a wire already is
/// taken at its word.
fn at(base: &str, place: &str) -> String {
    let (path, query) = parts(base);
    let path = ["/chat/completions", "/responses", "/messages", "/models"]
        .iter()
        .find_map(|known| path.strip_suffix(known))
        .unwrap_or(path);
    format!("{path}{place}{query}")
}

/// Anthropic's base is written without its version; with it, it is taken too.
fn with_version(base: &str) -> String {
    let (path, query) = parts(base);
    let path = path.strip_suffix("/messages").unwrap_or(path);
    let path = path.strip_suffix("/v1").unwrap_or(path);
    format!("{path}/v1{query}")
}

fn parts(base: &str) -> (&str, &str) {
    let at = base.find('?').unwrap_or(base.len());
    let (path, query) = base.split_at(at);
    (path.trim_end_matches('/'), query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_put_after_the_path_and_before_the_query() {
        let table = [
            (
                Wire::OpenAi,
                "http://h/v1/",
                "http://h/v1/chat/completions",
                "http://h/v1/models",
            ),
            (
                Wire::OpenAi,
                "https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
                "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
                "https://r.openai.azure.com/openai/deployments/d/models?api-version=2024-10-21",
            ),
            (
                Wire::OpenAi,
                "http://h/v1/chat/completions",
                "http://h/v1/chat/completions",
                "http://h/v1/models",
            ),
            (
                Wire::Anthropic,
                "http://h",
                "http://h/v1/messages",
                "http://h/v1/models",
            ),
            (
                Wire::Anthropic,
                "http://h/v1/",
                "http://h/v1/messages",
                "http://h/v1/models",
            ),
            (
                Wire::Responses,
                "http://h/v1",
                "http://h/v1/responses",
                "http://h/v1/models",
            ),
        ];
        for (wire, base, asked, listed) in table {
            assert_eq!(wire.address(base), asked);
            assert_eq!(wire.list_address(base), listed);
        }
    }

    #[test]
    fn parameters_are_what_a_body_holds_beside_conversation_and_tools() {
        let text = |text: &str| text.to_owned();
        let request = Request {
            key: super::super::Key {
                round: 1,
                subtask: text("a"),
                role: text("coder"),
                call: 1,
            },
            messages: vec![
                Message::System { text: text("s") },
                Message::User { text: text("u") },
            ],
            tools: vec![super::super::ToolSpec {
                name: text("look"),
                description: text("d"),
                schema: serde_json::json!({"type": "object"}),
            }],
            reply_tokens: 4000,
            temperature: Some(0.5),
            effort: None,
        };
        let asked = Asked {
            model: "m",
            request: &request,
            messages: &request.messages,
            quirks: Quirks::default(),
            effort: None,
        };
        for (wire, names) in [
            (
                Wire::OpenAi,
                "max_tokens model stream stream_options temperature tool_choice",
            ),
            (Wire::Anthropic, "max_tokens model stream temperature"),
            (
                Wire::Responses,
                "include max_output_tokens model store stream temperature tool_choice",
            ),
        ] {
            let whole = wire.parameters(&asked);
            let mut found: Vec<&str> = whole.keys().map(String::as_str).collect();
            found.sort_unstable();
            assert_eq!(found.join(" "), names);
            // What was said so far changes none of it.
            let without = Asked {
                messages: &[],
                ..asked
            };
            assert_eq!(wire.parameters(&without), whole);
        }
    }
}
