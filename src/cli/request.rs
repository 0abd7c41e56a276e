//! Requests to models as a person reads them: one line in a log, or the whole of what was sent.

use serde_json::Value;

use super::fault::Fault;
use super::find::Found;
use super::text;
use crate::journal::{Agent, Event, Line};
use crate::run::{self, Asked, To};

/// From here on calls are summaries of an agent's own conversation.
const SUMMARIES: u32 = run::SUMMARIES;

/// `call 3`, or `summary 1`.
pub fn named(call: u32) -> String {
    match call.checked_sub(SUMMARIES) {
        Some(number) => format!("summary {number}"),
        None => format!("call {call}"),
    }
}

/// The line of a request that was made up.
pub fn made(agent: &Agent, call: u32) -> String {
    format!("{} makes the request of {}", agent.subtask, named(call))
}

/// The line of a conversation that was made shorter.
pub fn shortened(
    agent: &Agent,
    how: &Value,
    messages: (usize, usize),
    tokens: (u64, u64),
) -> String {
    let way = match how["way"].as_str().unwrap_or_default() {
        "elided" => "old output elided".to_owned(),
        "summarised" => "its beginning summed up".to_owned(),
        "dropped" => "old turns dropped".to_owned(),
        "overflowed" => "too long for its model".to_owned(),
        "not_summarised" => format!("not summed up: {}", how["reason"].as_str().unwrap_or("?")),
        other => other.to_owned(),
    };
    format!(
        "{} conversation: {way} ({} to {} messages, about {} to {} tokens)",
        agent.subtask,
        messages.0,
        messages.1,
        text::count(tokens.0),
        text::count(tokens.1)
    )
}

/// Which request is meant: `3` is the agent's third call, `summary-1` its first summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    call: u32,
    summary: bool,
}

impl std::str::FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, summary) = match text.strip_prefix("summary-") {
            Some(number) => (number, true),
            None => (text, false),
        };
        match number.parse() {
            Ok(call) if call > 0 => Ok(Self { call, summary }),
            _ => Err("write a number from 1, or summary-1".to_owned()),
        }
    }
}

/// The request that is meant, of several with its number the last.
pub fn find(found: &Found, lines: &[Line], agent: &str, which: Which) -> Result<Asked, Fault> {
    let who = last(lines, agent)?;
    let all = run::requests(&found.dir, lines, &who)
        .map_err(|error| Fault::new(3, "journal", error.to_string()))?;
    let same = |asked: &&Asked| asked.call == which.call && asked.summary == which.summary;
    if let Some(asked) = all.iter().rev().find(same) {
        return Ok(asked.clone());
    }
    let own = all.iter().filter(|asked| !asked.summary).count();
    let said = format!("{agent} made no such request in run {}", found.id);
    let hint = match own {
        0 => "its journal holds no requests: it was written by an earlier wharf".to_owned(),
        _ => {
            let summaries = all.len() - own;
            format!("it made {own} and {summaries} for summaries (--request summary-1)")
        }
    };
    Err(Fault::usage(said).hint(hint))
}

/// The agent of this subtask, of several rounds the last. Whoever asked a model without a sandbox counts:
/// the run's summary is such a one.
pub fn last(lines: &[Line], agent: &str) -> Result<Agent, Fault> {
    let mut known: Vec<&str> = Vec::new();
    let mut last = None;
    for line in lines {
        if let Event::AgentStarted { agent: who, .. } | Event::RequestMade { agent: who, .. } =
            &line.event
        {
            if who.subtask.as_str() == agent {
                last = Some(who.clone());
            }
            if !known.contains(&who.subtask.as_str()) {
                known.push(who.subtask.as_str());
            }
        }
    }
    last.ok_or_else(|| {
        Fault::usage(format!("no agent worked on {agent}"))
            .hint(format!("this run has {}", known.join(", ")))
    })
}

/// The whole of it: who asked, whom and with which parameters, then each message under its role, then the tools.
pub fn page(asked: &Asked) -> String {
    let what = if asked.summary { "summary" } else { "call" };
    let sent = match asked.attempts {
        0 => "never sent".to_owned(),
        1 => "sent once".to_owned(),
        times => format!("sent {times} times"),
    };
    let mut out = format!(
        "{what} {} of {} ({}), round {}: {}, {sent}\n",
        asked.call,
        text::line(&asked.subtask, 60),
        text::line(&asked.role, 60),
        asked.round,
        text::plural(asked.messages.len(), "message"),
    );
    for to in &asked.sent {
        out.push_str(&parameters(to));
    }
    for message in &asked.messages {
        out.push_str(&one(message));
    }
    for tool in &asked.tools {
        let name = tool["name"].as_str().unwrap_or("?");
        let about = tool["description"].as_str().unwrap_or_default();
        out.push_str(&format!(
            "\n--- tool {}\n{}\n{}\n",
            text::line(name, 80),
            text::plain(about),
            text::plain(&tool["schema"].to_string())
        ));
    }
    out
}

/// One parameter a line, as JSON; of a model without a server, what was wished for.
fn parameters(to: &To) -> String {
    let model = text::line(&to.model, 160);
    let Some(terms) = &to.terms else {
        return format!("\n--- parameters, to {model}\nnot known: an earlier wharf asked\n");
    };
    let port = terms.port.map(|port| format!(":{port}"));
    let host = terms.host.as_ref();
    let at = host.map(|host| format!(" at {host}{}", port.unwrap_or_default()));
    let at = text::line(&at.unwrap_or_default(), 160);
    let mut out = format!("\n--- parameters, to {model}{at}\n");
    let mut put = |name: &str, value: &Value| {
        out.push_str(&format!(
            "{} {}\n",
            text::line(name, 80),
            text::plain(&value.to_string())
        ));
    };
    for (name, value) in &terms.parameters {
        put(name, value);
    }
    if terms.parameters.is_empty() {
        put("reply_tokens", &terms.reply_tokens.into());
        if let Some(temperature) = terms.temperature {
            put("temperature", &temperature.into());
        }
    }
    out
}

fn one(message: &Value) -> String {
    let role = message["role"].as_str().unwrap_or("?");
    let of = match (message["call_id"].as_str(), message["name"].as_str()) {
        (Some(id), Some(name)) => format!(" {name} {id}"),
        _ => String::new(),
    };
    let mut out = format!("\n--- {}\n", text::line(&format!("{role}{of}"), 160));
    let said = message["text"].as_str().unwrap_or_default();
    if !said.is_empty() {
        out.push_str(&format!("{}\n", text::plain(said)));
    }
    for call in message["calls"].as_array().into_iter().flatten() {
        let part = |key: &str| call[key].as_str().unwrap_or_default();
        out.push_str(&format!(
            "[call {}] {} {}\n",
            text::line(part("id"), 80),
            text::line(part("name"), 80),
            text::plain(part("arguments"))
        ));
    }
    if let Some(native) = message.get("native").filter(|native| !native.is_null()) {
        out.push_str(&format!(
            "[provider's own] {}\n",
            text::plain(&native.to_string())
        ));
    }
    out
}
