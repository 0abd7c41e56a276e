//! Two journals of the same run beside each other: the first place where tool results differ, and how
//! many do. Pure.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::agent::CallOutput;
use crate::journal::{Agent, Event, Line};
use crate::tools::clip;

/// Characters of a result that are shown, from the line on where it differs.
const SHOWN: usize = 400;
/// Characters of a call's arguments that are shown.
const ARGUMENTS: usize = 200;
/// What stands for a call that one side lacks.
const NO_CALL: &str = "(no such call)";

/// A call whose result is another one than was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub agent: String,
    pub role: String,
    pub round: u32,
    pub turn: u32,
    /// The call's number in its conversation, from 1.
    pub call: u32,
    pub tool: String,
    pub arguments: String,
    /// Both results from the first line on that differs, clipped.
    pub recorded: String,
    pub replayed: String,
}

/// How many tool results there are, by how they compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Results {
    pub same: usize,
    /// They differ in digits alone, as times, sizes and process numbers do.
    pub numbers: usize,
    pub different: usize,
    /// The first that differs in more than digits, in the order of the recording.
    pub first: Option<Difference>,
    /// The first that differs in digits alone.
    pub first_in_numbers: Option<Difference>,
}

/// How many requests there are, by whether they are word for word what was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    pub same: usize,
    pub different: usize,
    /// The first that differs: `call 2 of fix (coder) in round 1`.
    pub first: Option<String>,
}

/// One conversation's results with the turn of each, and its place among the others.
#[derive(Default)]
struct Talk {
    results: BTreeMap<u32, (u32, CallOutput)>,
}

/// Each agent's last conversation, in the order in which they began.
#[derive(Default)]
struct Talks {
    order: Vec<Agent>,
    of: HashMap<Agent, Talk>,
    /// The place of each turn in the journal: agent and the numbers of its results.
    turns: Vec<(Agent, Vec<u32>)>,
}

impl Talks {
    fn of(lines: &[Line], whole: &dyn Fn(&serde_json::Value) -> serde_json::Value) -> Self {
        let mut talks = Self::default();
        for line in lines {
            match &line.event {
                Event::AgentStarted { agent, .. } => {
                    talks.order.retain(|known| known != agent);
                    talks.turns.retain(|(known, _)| known != agent);
                    talks.order.push(agent.clone());
                    talks.of.insert(agent.clone(), Talk::default());
                }
                Event::TurnDone {
                    agent,
                    turn,
                    results,
                    ..
                } => {
                    if !talks.order.contains(agent) {
                        talks.order.push(agent.clone());
                    }
                    let talk = talks.of.entry(agent.clone()).or_default();
                    let mut numbers = Vec::new();
                    for result in results {
                        let read = serde_json::from_value::<CallOutput>(whole(result));
                        let Ok(result) = read else { continue };
                        numbers.push(result.number);
                        talk.results.insert(result.number, (*turn, result));
                    }
                    talks.turns.push((agent.clone(), numbers));
                }
                _ => {}
            }
        }
        talks
    }
}

/// Reads a result with its whole text, as far as that can be read.
pub(super) type Whole<'a> = &'a dyn Fn(&serde_json::Value) -> serde_json::Value;

/// Compares every recorded result with the replayed one of the same number, in the recording's order,
/// then names what the replay has beyond it. `cut` when the replay stopped where the recording did.
pub(super) fn results(
    (recorded, whole): (&[Line], Whole<'_>),
    (replayed, whole_now): (&[Line], Whole<'_>),
    cut: bool,
) -> Results {
    let (was, is) = (Talks::of(recorded, whole), Talks::of(replayed, whole_now));
    let mut found = Results::default();
    for (who, numbers) in &was.turns {
        for number in numbers {
            let old = &was.of[who].results[number];
            let new = is.of.get(who).and_then(|talk| talk.results.get(number));
            // What a cut replay did not come to is not known to differ.
            if new.is_some() || !cut {
                found.take(who, Some(old), new);
            }
        }
    }
    // Nor is what a recording that was cut off does not hold any more.
    for who in is.order.iter().filter(|_| !cut) {
        let known = was.of.get(who);
        for (number, new) in &is.of[who].results {
            if known.is_none_or(|talk| !talk.results.contains_key(number)) {
                found.take(who, None, Some(new));
            }
        }
    }
    found
}

impl Results {
    fn take(
        &mut self,
        who: &Agent,
        old: Option<&(u32, CallOutput)>,
        new: Option<&(u32, CallOutput)>,
    ) {
        let Some((turn, about)) = old.or(new) else {
            return;
        };
        let likeness = match (old, new) {
            (Some((_, old)), Some((_, new))) => alike(old, new),
            _ => Likeness::Different,
        };
        let (count, first) = match likeness {
            Likeness::Same => {
                self.same += 1;
                return;
            }
            Likeness::Numbers => (&mut self.numbers, &mut self.first_in_numbers),
            Likeness::Different => (&mut self.different, &mut self.first),
        };
        *count += 1;
        if first.is_none() {
            let text = |side: Option<&(u32, CallOutput)>| {
                side.map_or(NO_CALL.to_owned(), |(_, result)| result.text.clone())
            };
            let (recorded, replayed) = from_first_difference(&text(old), &text(new));
            *first = Some(Difference {
                agent: who.subtask.to_string(),
                role: who.role.to_string(),
                round: who.round,
                turn: *turn,
                call: about.number,
                tool: about.tool.clone(),
                arguments: clip::line(&about.arguments.to_string(), ARGUMENTS),
                recorded,
                replayed,
            });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Likeness {
    Same,
    Numbers,
    Different,
}

fn alike(old: &CallOutput, new: &CallOutput) -> Likeness {
    let facts = |result: &CallOutput| (result.tool.clone(), result.failed, result.exit_code);
    if facts(old) != facts(new) {
        return Likeness::Different;
    }
    let (was, is) = (old.text.trim_end(), new.text.trim_end());
    if was == is {
        return Likeness::Same;
    }
    match digits_apart(was) == digits_apart(is) {
        true => Likeness::Numbers,
        false => Likeness::Different,
    }
}

/// The text with each run of digits as one.
fn digits_apart(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        if !(c == '0' && out.ends_with('0')) {
            out.push(c);
        }
    }
    out
}

fn from_first_difference(was: &str, is: &str) -> (String, String) {
    let mut at = 0;
    for (old, new) in was.split_inclusive('\n').zip(is.split_inclusive('\n')) {
        if old != new {
            break;
        }
        at += old.len();
    }
    let shown = |text: &str| match clip::clean(&text.as_bytes()[at..]) {
        rest if rest.trim().is_empty() => "(ends here)".to_owned(),
        rest => clip_chars(rest.trim_end()),
    };
    (shown(was), shown(is))
}

fn clip_chars(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Compares the hashes of requests that both sides made, in the recording's order.
pub(super) fn requests(recorded: &[Line], replayed: &[Line]) -> Requests {
    let (was, is) = (hashes(recorded), hashes(replayed));
    let now: HashMap<_, _> = is.into_iter().collect();
    let mut found = Requests::default();
    for ((agent, call), hash) in was {
        match now.get(&(agent, call)) {
            Some(other) if *other == hash => found.same += 1,
            Some(_) => {
                found.different += 1;
                found.first.get_or_insert_with(|| {
                    let (subtask, role, round) = (&agent.subtask, &agent.role, agent.round);
                    format!("call {call} of {subtask} ({role}) in round {round}")
                });
            }
            None => {}
        }
    }
    found
}

/// The hash of each call's last request, in order of the first.
fn hashes(lines: &[Line]) -> Vec<((&Agent, u32), &str)> {
    let mut places = HashMap::new();
    let mut out: Vec<((&Agent, u32), &str)> = Vec::new();
    for line in lines {
        if let Event::ModelAsked {
            agent,
            call,
            request_hash,
            ..
        } = &line.event
        {
            let at = *places.entry((agent, *call)).or_insert(out.len());
            match out.get_mut(at) {
                Some(known) => known.1 = request_hash,
                None => out.push(((agent, *call), request_hash)),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lines(turns: &[(&str, &[&str])]) -> Vec<Line> {
        let mut number = HashMap::<String, u32>::new();
        let line = |(n, (id, texts)): (usize, &(&str, &[&str]))| {
            let results: Vec<Value> = texts
                .iter()
                .map(|text| {
                    let next = number.entry((*id).to_owned()).or_default();
                    *next += 1;
                    json!({"number": *next, "call_id": "x", "tool": "bash", "arguments": {"command": "c"},
                        "text": text, "failed": text.contains("FAIL"), "exit_code": 0, "seconds": n})
                })
                .collect();
            let line = json!({"seq": n + 1, "at": "2026-01-01T00:00:00Z", "prev": "", "type": "turn_done",
                "agent": {"round": 1, "subtask": id, "role": "coder"}, "turn": n, "results": results,
                "snapshot": null, "left_out": []});
            serde_json::from_value(line).unwrap()
        };
        turns.iter().enumerate().map(line).collect()
    }

    fn compared(was: &[(&str, &[&str])], is: &[(&str, &[&str])], cut: bool) -> Results {
        let whole = |value: &Value| value.clone();
        results((&lines(was), &whole), (&lines(is), &whole), cut)
    }

    #[test]
    fn the_first_difference_is_the_first_of_the_recording_whatever_comes_first_now() {
        let was: [(&str, &[&str]); 3] = [
            ("b", &["same\nhead\nleft: 1"]),
            ("a", &["x", "y"]),
            ("b", &["in 0.12 s"]),
        ];
        let is: [(&str, &[&str]); 3] = [
            ("a", &["x", "z"]),
            ("b", &["same\nhead\nright: 1"]),
            ("b", &["in 10.3 s\n"]),
        ];
        let found = compared(&was, &is, false);
        assert_eq!((found.same, found.numbers, found.different), (1, 1, 2));
        let first = found.first.unwrap();
        assert_eq!((first.agent.as_str(), first.call), ("b", 1));
        assert_eq!(
            (first.recorded.as_str(), first.replayed.as_str()),
            ("left: 1", "right: 1")
        );
        assert_eq!(found.first_in_numbers.unwrap().call, 2);
    }

    #[test]
    fn a_failure_is_never_a_matter_of_numbers() {
        let found = compared(&[("a", &["FAIL 1"])], &[("a", &["FAIL 2"])], false);
        assert_eq!((found.numbers, found.different), (1, 0));
        let mut is = lines(&[("a", &["FAIL 1"])]);
        if let Event::TurnDone { results, .. } = &mut is[0].event {
            results[0]["exit_code"] = json!(1);
        }
        let whole = |value: &Value| value.clone();
        let was = lines(&[("a", &["FAIL 1"])]);
        let found = results((&was, &whole), (&is, &whole), false);
        assert_eq!((found.same, found.different), (0, 1));
    }

    #[test]
    fn what_one_side_lacks_differs_unless_the_replay_was_cut_there() {
        let was: [(&str, &[&str]); 1] = [("a", &["x", "y"])];
        let is: [(&str, &[&str]); 1] = [("a", &["x"])];
        let first = compared(&was, &is, false).first.unwrap();
        assert_eq!((first.call, first.replayed.as_str()), (2, NO_CALL));
        assert_eq!(compared(&was, &is, true).first, None);
        let first = compared(&is, &was, false).first.unwrap();
        assert_eq!((first.call, first.recorded.as_str()), (2, NO_CALL));
        assert_eq!(compared(&is, &was, true).first, None);
    }
}
