//! A run's journal becomes a recording that `replay:FILE` answers from.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;

use crate::journal::{Agent, Event, Line};

/// One line for each answered call: its key, the hash of its request, the reply.
pub fn cassette(lines: &[Line]) -> String {
    let mut hashes: HashMap<(&Agent, u32), &str> = HashMap::new();
    let (mut base, mut judged) = (None, BTreeMap::new());
    let mut out = String::new();
    for line in lines {
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
                let record = json!({
                    "key": {
                        "round": agent.round, "subtask": agent.subtask,
                        "role": agent.role, "call": call,
                    },
                    "request_hash": hashes.get(&(agent, *call)).copied().unwrap_or(""),
                    "reply": reply,
                });
                out.push_str(&record.to_string());
                out.push('\n');
            }
            Event::BaseTaken { tree, .. } => base = Some(tree),
            Event::VerdictGiven { round, verdict } => {
                judged.insert(*round, verdict["tree"].clone());
            }
            _ => {}
        }
    }
    if base.is_some() {
        let made_on = json!({ "made_on": { "base": base, "judged": judged } });
        out.push_str(&made_on.to_string());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RoleName, SubtaskId};
    use crate::journal::Usage;

    #[test]
    fn each_answer_is_a_line_with_the_hash_of_its_last_request() {
        let agent = Agent {
            round: 1,
            subtask: SubtaskId::new("a"),
            role: RoleName::new("coder"),
        };
        let asked = |attempt, hash: &str| Event::ModelAsked {
            agent: agent.clone(),
            call: 1,
            attempt,
            messages: 1,
            reserved_tokens: 1,
            reserved_usd: 0.0,
            model: String::new(),
            request_hash: hash.to_owned(),
        };
        let answered = Event::ModelAnswered {
            agent: agent.clone(),
            call: 1,
            reply: json!({"text": "hi"}),
            usage: Usage::default(),
            cost_usd: None,
            seconds: 0.1,
        };
        let lines: Vec<Line> = [asked(1, "x"), asked(2, "y"), answered]
            .into_iter()
            .enumerate()
            .map(|(n, event)| Line {
                seq: n as u64 + 1,
                at: jiff::Timestamp::UNIX_EPOCH,
                prev: String::new(),
                event,
            })
            .collect();
        assert_eq!(
            cassette(&lines),
            "{\"key\":{\"round\":1,\"subtask\":\"a\",\"role\":\"coder\",\"call\":1},\"request_hash\":\"y\",\"reply\":{\"text\":\"hi\"}}\n"
        );
    }
}
