//! What went out to a model, written by what is new in it and put together again.

use std::path::Path;

use serde_json::Value;

use crate::journal::{self, Agent, Event, Line, Terms};
use crate::model::{Key, Message, Request, ToolSpec};
use crate::run::Error;

/// Calls from here on are summaries of an agent's own conversation.
pub const SUMMARIES: u32 = Key::SUMMARIES;

/// An agent's last own request.
#[derive(Default)]
pub(in crate::run) struct Sent {
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
}

impl Sent {
    pub fn of(messages: Vec<Message>, tools: Vec<ToolSpec>) -> Self {
        Self { messages, tools }
    }

    /// What the next request has that this one had not.
    pub fn event(&self, who: &Agent, request: &Request) -> Event {
        let pairs = self.messages.iter().zip(&request.messages);
        let same = pairs.take_while(|(before, now)| before == now).count();
        let json = |message: &Message| serde_json::to_value(message).unwrap_or_default();
        let tools = (self.tools != request.tools).then(|| {
            let json = |tool: &ToolSpec| serde_json::to_value(tool).unwrap_or_default();
            request.tools.iter().map(json).collect()
        });
        Event::RequestMade {
            agent: who.clone(),
            call: request.key.call,
            same,
            messages: request.messages[same..].iter().map(json).collect(),
            tools,
        }
    }
}

/// One request as it went out, with every message and tool.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Asked {
    pub round: u32,
    pub subtask: String,
    pub role: String,
    /// The ordinal of the call; summaries of the conversation count from 1 on their own.
    pub call: u32,
    pub summary: bool,
    /// How often it went out; 0: something kept it back, such as the run's limit.
    pub attempts: u32,
    /// Whom it went to and in which form, each once in the order of the attempts.
    pub sent: Vec<To>,
    pub messages: Vec<Value>,
    pub tools: Vec<Value>,
}

impl Asked {
    fn count(&mut self, model: &str, terms: Option<&Terms>) {
        self.attempts += 1;
        let to = To {
            model: model.to_owned(),
            terms: terms.cloned(),
        };
        if !self.sent.contains(&to) {
            self.sent.push(to);
        }
    }
}

/// Where a request went, and its parameters.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct To {
    pub model: String,
    /// None: an earlier wharf asked.
    pub terms: Option<Terms>,
}

/// The requests of an agent in a journal, in order; of a conversation that began again, all. `dir` is the
/// run's directory.
pub fn requests(dir: &Path, lines: &[Line], who: &Agent) -> Result<Vec<Asked>, Error> {
    let mut all: Vec<Asked> = Vec::new();
    let (mut messages, mut tools): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for line in lines {
        let (call, same, new, other) = match &line.event {
            Event::RequestMade {
                agent,
                call,
                same,
                messages,
                tools,
            } if agent == who => (call, same, messages, tools),
            Event::ModelAsked {
                agent,
                model,
                terms,
                ..
            } if agent == who => {
                if let Some(asked) = all.last_mut() {
                    asked.count(model, terms.as_ref());
                }
                continue;
            }
            _ => continue,
        };
        let whole = |parts: &Vec<Value>| -> Result<Vec<Value>, journal::Error> {
            parts.iter().map(|part| journal::whole(dir, part)).collect()
        };
        let new = whole(new)?;
        let summary = call.checked_sub(Key::SUMMARIES);
        let asked = |messages: Vec<Value>, tools: Vec<Value>| Asked {
            round: who.round,
            subtask: who.subtask.to_string(),
            role: who.role.to_string(),
            call: summary.unwrap_or(*call),
            summary: summary.is_some(),
            attempts: 0,
            sent: Vec::new(),
            messages,
            tools,
        };
        if summary.is_some() {
            all.push(asked(new, Vec::new()));
            continue;
        }
        messages.truncate(*same);
        messages.extend(new);
        if let Some(other) = other {
            tools = whole(other)?;
        }
        all.push(asked(messages.clone(), tools.clone()));
    }
    Ok(all)
}
