//! A conversation of an earlier process made ready to go on: its answers and results, a fresh sandbox's
//! files, and what the agent has to be told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::agent::{self, CallOutput};
use crate::journal::{self, Agent, Event};
use crate::model::{self, Reply};
use crate::plan::{self, ENDINGS};
use crate::run::again::talk::Talk;
use crate::run::end::words::few;
use crate::run::judge::witness::Calls;
use crate::run::shared::Shared;
use crate::run::work::accept::REPEATS;
use crate::run::work::left_out::pair;
use crate::run::work::trees::Standing;
use crate::tools::clip;

/// Paths that were left out, and calls, that are named to the agent.
const NAMED: usize = 20;

/// Characters of a command that names a call.
const LINE: usize = 80;

/// Everything an agent goes on with.
pub(in crate::run) struct Recalled {
    pub past: Vec<agent::Past>,
    /// How its conversation was shortened, and summaries that were paid for.
    pub shortened: Vec<(u32, agent::Way)>,
    pub summaries: BTreeMap<u32, Reply>,
    /// Where its files stand.
    pub at: Standing,
    pub left_out: Vec<(String, String)>,
    /// The numbers of its results, and of each whether a verdict may rest on it.
    pub results: Calls,
    /// Calls of its model that are settled.
    pub calls: u32,
    /// Ending calls that were handed back to it.
    pub bounces: u32,
    /// Of them those that repeated an earlier round's plan.
    pub repeated: u32,
    pub spent: Duration,
    /// Calls of its last answer, where their results are not known.
    pub unfinished: BTreeSet<String>,
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
    let shown = results.iter().map(|result| (result.number, result.shows()));
    let numbers: Calls = shown.collect();
    let bounces = results.iter().filter(|result| bounced(result)).count() as u32;
    let repeats = |result: &&&CallOutput| result.failed && result.text.contains(REPEATS);
    let repeated = results.iter().filter(repeats).count() as u32;
    let open = unanswered(&past);
    let unfinished = open.iter().map(|call| call.id.clone()).collect();
    let told = !results.is_empty() || !open.is_empty();
    let told = told.then(|| words(left_out, &named(open), reach(shared, who)));
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
        unfinished,
        spent: talk.spent(),
    })
}

/// The calls of a last answer whose results are not known.
fn unanswered(past: &[agent::Past]) -> &[model::Call] {
    match past.last() {
        Some(last) if last.results.is_none() => &last.reply.calls,
        _ => &[],
    }
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

/// How far a sandbox of an agent reaches.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    Nowhere,
    Network,
}

fn reach(shared: &Shared, who: &Agent) -> Reach {
    let role = shared.plan.roles.get(&who.role);
    match role.map(|role| &role.sandbox.network) {
        None | Some(plan::Network::None) => Reach::Nowhere,
        Some(plan::Network::Full | plan::Network::Allow(_)) => Reach::Network,
    }
}

/// Calls in a few words each.
fn named(calls: &[model::Call]) -> Vec<String> {
    let what = |call: &model::Call| {
        let arguments: serde_json::Value =
            serde_json::from_str(&call.arguments).unwrap_or_default();
        let keys = ["command", "path", "pattern", "id"];
        let known = keys.iter().find_map(|key| arguments[*key].as_str());
        match known {
            Some(known) => format!("{} `{}`", call.name, clip::line(known, LINE)),
            None => call.name.clone(),
        }
    };
    calls.iter().map(what).collect()
}

/// What an agent is told that goes on in another process.
fn words(left_out: &[String], open: &[String], reach: Reach) -> String {
    let mut words = "[The run was interrupted and goes on now in a fresh sandbox. Your files are as they were \
                     after your last finished turn; calls of a turn that was not finished were made anew"
        .to_owned();
    if !open.is_empty() {
        words.push_str(&format!(": {}", few(open, NAMED, ", ")));
    }
    if !open.is_empty() && reach == Reach::Network {
        words.push_str(
            "; commands among them were not, for they may have reached the network before",
        );
    }
    words.push_str(". Running processes, installed packages and files outside /workspace are gone");
    if !left_out.is_empty() {
        words.push_str(&format!(
            "; so is what was not kept with your changes: {}",
            few(left_out, NAMED, "; ")
        ));
    }
    words.push_str(".]");
    words
}
