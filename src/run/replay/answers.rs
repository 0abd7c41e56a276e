//! The recorded answers as the model of a replay, and how the conversations ended that they are from.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::agent::Stop;
use crate::journal::{Agent, Event, Line};
use crate::model::{About, Error, Key, Meter, Model, Recording, Replay, Reply, Request};

/// A recording that keeps in mind what it was asked for in vain.
pub(in crate::run) struct Answers {
    inner: Replay,
    missing: watch::Sender<BTreeSet<Key>>,
}

impl Answers {
    /// The answers of a journal's text.
    pub fn of(file: &str, journal: &str) -> Result<Self, Error> {
        let inner = Replay::new(Recording::parse(file, journal)?);
        let missing = watch::Sender::default();
        Ok(Self { inner, missing })
    }

    /// The calls that no answer was recorded of.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.missing.borrow();
        missing.iter().map(ToString::to_string).collect()
    }
}

impl Model for Answers {
    fn attempt<'a>(
        &'a self,
        request: &'a Request,
        meter: Meter,
    ) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(async move {
            let answer = self.inner.attempt(request, meter).await;
            if let Err(Error::NotRecorded { .. }) = &answer {
                self.missing.send_modify(|missing| {
                    missing.insert(request.key.clone());
                });
            }
            answer
        })
    }

    fn about(&self) -> About {
        self.inner.about()
    }
}

/// How recorded conversations ended, by whose they are.
#[derive(Default)]
pub(in crate::run) struct Ends {
    answered: HashSet<(Agent, u32)>,
    /// None: it has no end of its own, as the process that worked on it was gone first.
    stops: HashMap<Agent, Option<Stop>>,
    /// Those that handed in.
    handed_in: HashSet<Agent>,
    /// The run itself came to an end.
    whole: bool,
}

/// What becomes of a call that no answer was recorded of.
#[derive(Debug, PartialEq)]
pub(in crate::run) enum Beyond {
    /// There the recorded conversation was stopped, and so is this one.
    Stopped(Stop),
    /// There the recording ends.
    Over,
    /// The recorded run never asked this.
    Astray,
}

impl Ends {
    pub fn of(lines: &[Line]) -> Self {
        let mut ends = Self::default();
        for line in lines {
            ends.take(&line.event);
        }
        ends
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::AgentStarted { agent, .. } | Event::AgentResumed { agent, .. } => {
                self.stops.insert(agent.clone(), None);
                self.handed_in.remove(agent);
            }
            Event::ModelAnswered { agent, call, .. } => {
                self.answered.insert((agent.clone(), *call));
            }
            Event::AgentEnded { agent, end } => {
                let stop = end.stop.clone();
                let stop = stop.and_then(|stop| serde_json::from_value(stop).ok());
                self.stops.insert(agent.clone(), stop);
                if end.ended.is_some() {
                    self.handed_in.insert(agent.clone());
                }
            }
            Event::RunEnded { status, .. } => self.whole = status != "interrupted",
            Event::Resumed { .. } => self.whole = false,
            _ => {}
        }
    }

    /// None: an answer was recorded.
    pub fn beyond(&self, who: &Agent, call: u32) -> Option<Beyond> {
        if self.answered.contains(&(who.clone(), call)) {
            return None;
        }
        Some(match self.stops.get(who) {
            _ if self.handed_in.contains(who) => Beyond::Astray,
            Some(Some(Stop::Cancelled)) => Beyond::Over,
            Some(Some(stop)) => Beyond::Stopped(stop.clone()),
            // Whoever has neither an end nor a beginning there, in a run that has an end, was never asked.
            Some(None) | None if !self.whole => Beyond::Over,
            Some(None) | None => Beyond::Astray,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(events: &serde_json::Value) -> Vec<Line> {
        let line = |(n, event): (usize, &serde_json::Value)| {
            let mut event = event.clone();
            event["seq"] = json!(n + 1);
            event["at"] = json!("2026-01-01T00:00:00Z");
            event["prev"] = json!("");
            serde_json::from_value(event).unwrap()
        };
        let events = events.as_array().unwrap().iter().enumerate();
        events.map(line).collect()
    }

    fn who(id: &str) -> Agent {
        serde_json::from_value(json!({"round": 1, "subtask": id, "role": "coder"})).unwrap()
    }

    fn ended(id: &str, ended: serde_json::Value, stop: serde_json::Value) -> serde_json::Value {
        json!({"type": "agent_ended", "agent": who(id), "end": {"ended": ended, "reason": null,
            "stop": stop, "turns": 1, "tool_calls": 1, "seconds": 1.0, "snapshot": null, "left_out": []}})
    }

    #[test]
    fn a_call_without_an_answer_ends_as_the_recorded_conversation_did() {
        let started = |id: &str| {
            json!({"type": "agent_started", "agent": who(id), "kind": "worker", "model": "m",
                "start": "c"})
        };
        let answered = json!({"type": "model_answered", "agent": who("a"), "call": 1, "reply": {},
            "usage": {"input_tokens": 1, "output_tokens": 1, "cached_tokens": 0, "estimated": false},
            "cost_usd": null, "seconds": 1.0});
        let limit = Stop::AgentLimit {
            limit: "60 s".to_owned(),
        };
        let mut events = vec![
            started("a"),
            started("b"),
            started("c"),
            started("d"),
            answered,
            ended("a", json!({"status": "done"}), json!(null)),
            ended("b", json!(null), serde_json::to_value(&limit).unwrap()),
            ended("c", json!(null), json!({"stop": "cancelled"})),
        ];
        let cut = Ends::of(&lines(&json!(events)));
        assert_eq!(cut.beyond(&who("a"), 1), None);
        assert_eq!(cut.beyond(&who("a"), 2), Some(Beyond::Astray));
        assert_eq!(cut.beyond(&who("b"), 1), Some(Beyond::Stopped(limit)));
        for id in ["c", "d", "nobody"] {
            assert_eq!(cut.beyond(&who(id), 1), Some(Beyond::Over), "{id}");
        }
        events.push(
            json!({"type": "run_ended", "status": "failed", "exit_code": 1, "reason": "",
            "result": null}),
        );
        let whole = Ends::of(&lines(&json!(events)));
        assert_eq!(whole.beyond(&who("nobody"), 1), Some(Beyond::Astray));
    }
}
