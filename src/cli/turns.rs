//! `wharf show RUN AGENT`: what one agent did, turn by turn, as its journal has it.

use std::path::Path;

use serde_json::{Value, json};

use super::fault::Fault;
use super::find::Found;
use super::story::{Conversation, Story};
use super::text::{self, Answers};
use super::{request, show};
use crate::journal::{self, Agent, Event, Line};

/// Lines of a result that are printed; `--json` has all.
const SHOWN: usize = 8;

/// One answer of the model and what came of its calls.
#[derive(Debug, Default, serde::Serialize)]
struct Turn {
    /// The number of its request; it begins again with an agent that does.
    call: u32,
    said: String,
    /// What it asked for, until there are results.
    calls: Vec<Value>,
    results: Vec<Value>,
    left_out: Vec<String>,
    snapshot: Option<String>,
}

/// The agent's conversation, of several rounds the last.
pub fn page(found: &Found, lines: &[Line], agent: &str) -> Result<String, Fault> {
    let who = request::last(lines, agent)?;
    let story = Story::of(lines);
    let own = |known: &&Conversation| is(known, &who);
    let mut out = match story.agents.iter().rev().find(own) {
        Some(known) => show::agent_lines(known, Answers::of(&story.models)),
        None => String::new(),
    };
    let told = turns(&found.dir, lines, &who)?;
    told.iter().for_each(|turn| out.push_str(&one(turn)));
    if told.is_empty() {
        out.push_str("\nno answer of its model is recorded\n");
    }
    out.push_str(&format!(
        "\nnext:    wharf show {} {} --request {} (what was sent for its last answer)\n",
        found.id,
        text::line(agent, 60),
        told.last().map_or(1, |turn| turn.call)
    ));
    Ok(out)
}

/// The same for a program, nothing left out.
pub fn value(found: &Found, lines: &[Line], agent: &str) -> Result<Value, Fault> {
    let who = request::last(lines, agent)?;
    let story = Story::of(lines);
    let known = story.agents.iter().rev().find(|known| is(known, &who));
    Ok(json!({
        "run": found.id,
        "agent": known,
        "turns": turns(&found.dir, lines, &who)?,
    }))
}

fn is(known: &Conversation, who: &Agent) -> bool {
    known.round == who.round && known.subtask == who.subtask.as_str()
}

/// What was answered and done since the agent began, and before that if it began again.
fn turns(dir: &Path, lines: &[Line], who: &Agent) -> Result<Vec<Turn>, Fault> {
    let mut turns: Vec<Turn> = Vec::new();
    for line in lines {
        match &line.event {
            Event::ModelAnswered {
                agent, call, reply, ..
            } if agent == who && *call < crate::run::SUMMARIES => turns.push(Turn {
                call: *call,
                said: reply["text"].as_str().unwrap_or_default().to_owned(),
                calls: reply["calls"].as_array().cloned().unwrap_or_default(),
                ..Turn::default()
            }),
            Event::TurnDone {
                agent,
                results,
                left_out,
                snapshot,
                ..
            } if agent == who => {
                let whole = |result: &Value| journal::whole(dir, result);
                let results = results.iter().map(whole).collect::<Result<_, _>>()?;
                let Some(turn) = turns.last_mut() else {
                    continue;
                };
                turn.calls.clear();
                turn.results = results;
                turn.left_out.clone_from(left_out);
                turn.snapshot = snapshot.as_ref().map(ToString::to_string);
            }
            _ => {}
        }
    }
    Ok(turns)
}

fn one(turn: &Turn) -> String {
    let mut out = format!("\nturn {}\n", turn.call);
    out.push_str(&text::block(&turn.said, "  ", 40));
    for call in &turn.calls {
        let arguments = call["arguments"].as_str().unwrap_or_default();
        out.push_str(&format!(
            "  {} {}: no result is recorded\n",
            text::line(call["name"].as_str().unwrap_or("?"), 40),
            text::line(arguments, 300)
        ));
    }
    for result in &turn.results {
        out.push_str(&called(result));
    }
    for path in &turn.left_out {
        out.push_str(&format!("  left out: {}\n", text::line(path, 300)));
    }
    out
}

/// A call, and the beginning of what it answered.
fn called(result: &Value) -> String {
    let tool = result["tool"].as_str().unwrap_or("?");
    let mut out = format!(
        "  #{} {} {}\n",
        result["number"],
        text::line(tool, 60),
        text::line(&arguments(&result["arguments"]), 300)
    );
    let answer = result["text"].as_str().unwrap_or_default();
    let head = format!("#{} ", result["number"]);
    let answer = answer.strip_prefix(&head).unwrap_or(answer);
    out.push_str(&text::block(answer, "      ", SHOWN));
    out
}

/// The one argument that says most, or all of them.
fn arguments(value: &Value) -> String {
    let known = ["command", "path", "pattern", "summary"];
    let said = known.iter().find_map(|key| value[*key].as_str());
    match said {
        Some(said) => said.to_owned(),
        None if value.as_object().is_some_and(serde_json::Map::is_empty) => String::new(),
        None => value.to_string(),
    }
}
