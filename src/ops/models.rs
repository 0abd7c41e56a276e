//! Model servers as an operator looks at them: what they have, and what one small call comes to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::doctor::{Check, State};
use crate::model::list::{self, Listed, Models};
use crate::model::{Finish, Key, Message, Model, Provider, Reply, Request, ToolSpec};

/// How long the one small call may take in all.
const CALL: Duration = Duration::from_secs(60);
/// Tokens its reply may have: enough for a model that thinks before it calls.
const REPLY: u64 = 2048;
/// The tool that the model is asked to call.
const TOOL: &str = "ready";

/// A model that is set up.
pub type OpenModel = Arc<dyn Model>;

/// What is known of a provider's models.
#[derive(Clone, Debug)]
pub enum Asked {
    Has(Vec<Listed>),
    /// It answers and has no list; or it was not asked, for it has no key. The text says which.
    Unknown {
        reason: String,
        hint: String,
    },
    /// It could not be reached, or refused.
    Failed {
        reason: String,
        hint: String,
    },
}

/// Asks a provider for its models, once.
pub async fn models(provider: &Provider) -> Asked {
    match list::models(provider).await {
        Ok(Models::Are(models)) => Asked::Has(models),
        Ok(Models::Untold(error)) => Asked::Unknown {
            reason: format!("it has no list of models ({error})"),
            hint: format!(
                "`wharf doctor --model {}/NAME` tries one by name",
                provider.name
            ),
        },
        Err(error) => Asked::Failed {
            reason: error.to_string(),
            hint: error.hint(),
        },
    }
}

/// Makes one small call with one tool and says what came of it.
pub async fn call(model: &OpenModel) -> Check {
    let name = "model call";
    let about = model.about();
    if about.recorded.is_some() {
        let found = format!("{} answers from a recording: nothing is asked", about.name);
        return Check::new(name, State::Note, found, "");
    }
    let began = Instant::now();
    let request = request();
    match tokio::time::timeout(CALL, model.ask(&request)).await {
        Err(_) => Check::failed(
            name,
            format!("{} gave no answer within {} s", about.name, CALL.as_secs()),
            "see whether the server is loaded or stuck, then try again",
        ),
        Ok(Err(error)) => Check::failed(name, format!("{}: {error}", about.name), error.hint()),
        Ok(Ok(reply)) => judged(name, &about.name, &reply, began.elapsed()),
    }
}

fn judged(name: &'static str, model: &str, reply: &Reply, took: Duration) -> Check {
    let estimated = if reply.usage.estimated {
        ", estimated: the server gives no figures"
    } else {
        ""
    };
    let answered = format!(
        "{model} answered in {:.1} s ({} tokens in, {} out{estimated})",
        took.as_secs_f64(),
        reply.usage.input,
        reply.usage.output,
    );
    let called = reply.calls.iter().any(|call| call.name == TOOL);
    match (&reply.finish, called) {
        (Finish::Length, _) => Check::new(
            name,
            State::Unknown,
            format!("{answered}, cut at {REPLY} tokens before it called the tool"),
            "a model that thinks at length needs a larger agent.reply_tokens, or a lower effort",
        ),
        (_, true) => Check::ok(name, format!("{answered} and called the tool")),
        (Finish::Filtered, false) => Check::failed(
            name,
            format!("{answered}, and its filter stopped it"),
            "name another model",
        ),
        (_, false) => Check::new(
            name,
            State::Unknown,
            format!("{answered}, in text: it did not call the tool"),
            "agents work by tool calls: start the server with them, or name a model that makes them",
        ),
    }
}

fn request() -> Request {
    Request {
        key: Key {
            round: 1,
            subtask: "doctor".to_owned(),
            role: "doctor".to_owned(),
            call: 1,
        },
        messages: vec![
            Message::System {
                text: "You answer by tool calls only.".to_owned(),
            },
            Message::User {
                text: format!("Call the tool `{TOOL}` now, with the word \"yes\"."),
            },
        ],
        tools: vec![ToolSpec {
            name: TOOL.to_owned(),
            description: "Says that you are there.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": { "word": { "type": "string" } },
                "required": ["word"],
                "additionalProperties": false,
            }),
        }],
        reply_tokens: REPLY,
        temperature: None,
        effort: None,
    }
}
