//! A conversation of an earlier process made ready to go on: its answers and results, a fresh sandbox's
//! files, and what the agent has to be told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::agent::{self, CallOutput};
use crate::journal::{self, Agent, Event};
use crate::model::Reply;
use crate::plan::ENDINGS;
use crate::run::again::talk::Talk;
use crate::run::shared::Shared;
use crate::run::work::accept::REPEATS;
use crate::run::work::trees::Standing;

/// Paths that were left out and are named to the agent.
const NAMED: usize = 20;

/// Everything an agent goes on with.
pub(in crate::run) struct Recalled {
    pub past: Vec<agent::Past>,
    /// How its conversation was shortened, and summaries that were paid for.
    pub shortened: Vec<(u32, agent::Way)>,
    pub summaries: BTreeMap<u32, Reply>,
    /// Where its files stand.
    pub at: Standing,
    pub left_out: Vec<(String, String)>,
    /// The numbers of its results that a verdict may rest on.
    pub results: BTreeSet<u32>,
    /// Calls of its model that are settled.
    pub calls: u32,
    /// Ending calls that were handed back to it.
    pub bounces: u32,
    /// Of them those that repeated an earlier round's plan.
    pub repeated: u32,
    pub spent: Duration,
    /// For the journal.
    pub resumed: Event,
}

/// The conversation of an agent that an earlier process left open. None when there is none; one that
/// cannot be read any more is told and begun again.
pub(in crate::run) async fn recall(
    shared: &Shared,
    who: &Agent,
    start: &Standing,
) -> Option<Recalled> {
    let talk = shared.past.open(who, &start.commit)?;
    match read(shared, who, talk).await {
        Ok(recalled) => Some(recalled),
        Err(reason) => {
            shared.warn(format!(
                "{}: its conversation cannot go on and begins again: {reason}",
                who.subtask
            ));
            None
        }
    }
}

async fn read(shared: &Shared, who: &Agent, talk: &Talk) -> Result<Recalled, String> {
    let at = Standing::of(&shared.store, talk.snapshot()).await;
    let at = at.map_err(|error| error.to_string())?;
    let mut past = Vec::new();
    for (n, reply) in talk.replies.iter().enumerate() {
        let reply = serde_json::from_value(reply.clone());
        let reply = reply.map_err(|error| format!("answer {}: {error}", n + 1))?;
        let turn = talk.turns.get(n);
        if turn.is_none() && n + 1 < talk.replies.len() {
            return Err(format!("the results of turn {} are missing", n + 1));
        }
        let results = turn.map(|turn| {
            let read = |value| whole(shared, value);
            turn.results.iter().map(read).collect()
        });
        past.push(agent::Past {
            reply,
            results: results.transpose()?,
            left_out: turn.map(|turn| turn.left_out.clone()).unwrap_or_default(),
            told: talk.told.get(&(n as u32 + 1)).cloned(),
        });
    }
    let left_out = talk.turns.last().map(|turn| turn.left_out.as_slice());
    let left_out = left_out.unwrap_or_default();
    let results: Vec<&CallOutput> = past
        .iter()
        .flat_map(|p| p.results.iter().flatten())
        .collect();
    let showing = results.iter().filter(|result| result.shows());
    let numbers: BTreeSet<u32> = showing.map(|result| result.number).collect();
    let bounces = results.iter().filter(|result| bounced(result)).count() as u32;
    let repeats = |result: &&&CallOutput| result.failed && result.text.contains(REPEATS);
    let repeated = results.iter().filter(repeats).count() as u32;
    let told = (!results.is_empty()).then(|| words(left_out));
    if let Some(last) = past.last_mut().filter(|_| told.is_some()) {
        last.told.clone_from(&told);
    }
    Ok(Recalled {
        resumed: Event::AgentResumed {
            agent: who.clone(),
            snapshot: at.commit.clone(),
            told,
            after: past.len() as u32,
        },
        shortened: talk.shortened.clone(),
        summaries: summaries(talk)?,
        past,
        at,
        left_out: left_out.iter().map(|line| pair(line)).collect(),
        results: numbers,
        calls: talk.calls,
        bounces,
        repeated,
        spent: talk.spent(),
    })
}

fn summaries(talk: &Talk) -> Result<BTreeMap<u32, Reply>, String> {
    let read = |(number, reply): (&u32, &serde_json::Value)| {
        let reply = serde_json::from_value(reply.clone());
        let reply = reply.map_err(|error| format!("summary {number}: {error}"))?;
        Ok((*number, reply))
    };
    talk.summaries.iter().map(read).collect()
}

fn whole(shared: &Shared, value: &serde_json::Value) -> Result<CallOutput, String> {
    let value = journal::whole(&shared.dir, value).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| format!("a result: {error}"))
}

/// An ending call that reached the check of what its agent owes and was handed back.
fn bounced(result: &CallOutput) -> bool {
    let ends = ENDINGS.contains(&result.tool.as_str());
    let made = !result.arguments.is_string();
    ends && made && result.failed && !result.text.contains("not handed in")
}

/// `path: why`, as turns and ends have it.
pub(in crate::run) fn pair(line: &str) -> (String, String) {
    let (path, why) = line.rsplit_once(": ").unwrap_or((line, ""));
    (path.to_owned(), why.to_owned())
}

/// What an agent is told that goes on in another process.
fn words(left_out: &[String]) -> String {
    let mut words = "[The run was interrupted and goes on now in a fresh sandbox. Your files are as they were \
                     after your last finished turn; calls of a turn that was not finished were made anew. \
                     Running processes, installed packages and files outside /workspace are gone"
        .to_owned();
    if !left_out.is_empty() {
        let named: Vec<&str> = left_out.iter().take(NAMED).map(String::as_str).collect();
        words.push_str(&format!(
            "; so is what was not kept with your changes: {}",
            named.join("; ")
        ));
        if left_out.len() > NAMED {
            words.push_str(&format!(" and {} more", left_out.len() - NAMED));
        }
    }
    words.push_str(".]");
    words
}
