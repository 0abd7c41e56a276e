//! A run's journal becomes a recording that `replay:FILE` answers from.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::veil::Veil;
use crate::journal::{Agent, Event, Line};

/// A recording as text, and how many texts in it were veiled.
#[derive(Debug, PartialEq, Eq)]
pub struct Cassette {
    pub text: String,
    /// Answers.
    pub answers: usize,
    pub veiled: usize,
}

/// The line of one answer, and what stands in its place in the file.
struct Answer<'a> {
    hash: &'a str,
    reply: &'a Value,
}

/// One line for each call: its key, the hash of its last request, the reply. Of several answers to one
/// call, as a resumed run may have, the last counts, where the last is. Then the trees that they are about.
pub fn cassette(lines: &[Line], veil: &Veil) -> Cassette {
    let mut hashes: BTreeMap<(&Agent, u32), &str> = BTreeMap::new();
    let mut answers: BTreeMap<usize, ((&Agent, u32), Answer<'_>)> = BTreeMap::new();
    let mut places: BTreeMap<(&Agent, u32), usize> = BTreeMap::new();
    let (mut base, mut judged) = (None, BTreeMap::new());
    for (at, line) in lines.iter().enumerate() {
        match &line.event {
            Event::ModelAsked {
                agent,
                call,
                request_hash,
                ..
            } => {
                hashes.insert((agent, *call), request_hash);
            }
            Event::ModelAnswered {
                agent, call, reply, ..
            } => {
                let key = (agent, *call);
                if let Some(before) = places.insert(key, at) {
                    answers.remove(&before);
                }
                let hash = hashes.get(&key).copied().unwrap_or("");
                answers.insert(at, (key, Answer { hash, reply }));
            }
            Event::BaseTaken { tree, .. } => base = Some(tree),
            Event::VerdictGiven { round, verdict } => {
                judged.insert(*round, verdict["tree"].clone());
            }
            _ => {}
        }
    }
    let mut out = Cassette {
        text: String::new(),
        answers: answers.len(),
        veiled: 0,
    };
    for ((agent, call), answer) in answers.into_values() {
        let mut reply = answer.reply.clone();
        out.veiled += veil.value(&mut reply);
        let record = json!({
            "key": {
                "round": agent.round, "subtask": agent.subtask,
                "role": agent.role, "call": call,
            },
            "request_hash": answer.hash,
            "reply": reply,
        });
        out.text.push_str(&format!("{record}\n"));
    }
    if base.is_some() && out.answers > 0 {
        let made_on = json!({ "made_on": { "base": base, "judged": judged } });
        out.text.push_str(&format!("{made_on}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RoleName, SubtaskId};
    use crate::journal::Usage;
    use crate::model::Recording;

    fn lines(events: Vec<Event>) -> Vec<Line> {
        let line = |(n, event)| Line {
            seq: n as u64 + 1,
            at: jiff::Timestamp::UNIX_EPOCH,
            prev: String::new(),
            event,
        };
        events.into_iter().enumerate().map(line).collect()
    }

    fn agent() -> Agent {
        Agent {
            round: 1,
            subtask: SubtaskId::new("a"),
            role: RoleName::new("coder"),
        }
    }

    fn asked(attempt: u32, hash: &str) -> Event {
        Event::ModelAsked {
            agent: agent(),
            call: 1,
            attempt,
            messages: 1,
            reserved_tokens: 1,
            reserved_usd: 0.0,
            model: String::new(),
            terms: None,
            request_hash: hash.to_owned(),
        }
    }

    fn answered(text: &str) -> Event {
        Event::ModelAnswered {
            agent: agent(),
            call: 1,
            reply: json!({ "text": text }),
            usage: Usage::default(),
            cost_usd: None,
            seconds: 0.1,
        }
    }

    #[test]
    fn each_answer_is_a_line_with_the_hash_of_its_last_request() {
        let lines = lines(vec![asked(1, "x"), asked(2, "y"), answered("hi")]);
        let cassette = cassette(&lines, &Veil::default());
        assert_eq!(
            cassette.text,
            "{\"key\":{\"round\":1,\"subtask\":\"a\",\"role\":\"coder\",\"call\":1},\"request_hash\":\"y\",\"reply\":{\"text\":\"hi\"}}\n"
        );
        assert!(Recording::parse("c", &cassette.text).is_ok());
    }

    #[test]
    fn of_two_answers_to_one_call_the_later_stands_there() {
        let lines = lines(vec![
            asked(1, "x"),
            answered("old"),
            asked(1, "y"),
            answered("new"),
        ]);
        let cassette = cassette(&lines, &Veil::default());
        assert_eq!((cassette.answers, cassette.text.lines().count()), (1, 1));
        assert!(cassette.text.contains("new") && cassette.text.contains("\"y\""));
    }

    #[test]
    fn a_run_without_answers_has_no_recording() {
        let cassette = cassette(&lines(vec![asked(1, "x")]), &Veil::default());
        assert_eq!((cassette.answers, cassette.text.as_str()), (0, ""));
    }
}
