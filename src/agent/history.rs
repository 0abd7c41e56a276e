//! The conversation as it is sent: pairs kept whole, old output elided before the window is full.

use serde_json::{Value, json};

use super::CallOutput;
use crate::model::{Call, Message, Reply, ToolSpec};
use crate::plan::Compaction;
use crate::tools::{self, clip};

/// Outputs of at most this many characters are not worth eliding.
const SHORT: usize = 300;
/// Bytes a token stands for until the model's own count is known.
const BYTES: f64 = 4.0;

/// One agent's conversation.
#[derive(Clone, Debug)]
pub struct History {
    system: String,
    first: String,
    items: Vec<Item>,
    /// What the dropped turns were, for the note in their place.
    dropped: Vec<String>,
    /// Estimated tokens of the tool specs.
    overhead: f64,
    /// Tokens the model counts for one that we estimate.
    factor: f64,
    compaction: Compaction,
    /// Tokens a request may have.
    room: f64,
    /// Tokens at which eliding begins.
    soft: f64,
    elisions: u32,
}

#[derive(Clone, Debug)]
enum Item {
    User(String),
    Reply {
        text: String,
        calls: Vec<Call>,
        native: Option<Value>,
        results: Vec<Shown>,
    },
}

/// A result as it is sent.
#[derive(Clone, Debug)]
struct Shown {
    call_id: String,
    name: String,
    text: String,
    failed: bool,
    /// `#3 … bash "ls"`: what the elision says.
    label: String,
    elided: bool,
}

impl History {
    /// An empty conversation within `window` tokens, of which `reply` are the reply's.
    pub fn new(system: &str, first: &str, compaction: Compaction, window: u64, reply: u64) -> Self {
        let room = window.saturating_sub(reply).max(1) as f64;
        Self {
            system: system.to_string(),
            first: first.to_string(),
            items: Vec::new(),
            dropped: Vec::new(),
            overhead: 0.0,
            factor: 1.0,
            compaction,
            room,
            soft: (compaction.at * window as f64).min(room),
            elisions: 0,
        }
    }

    /// Counts the tools that go with every request.
    pub fn with_tools(mut self, tools: &[ToolSpec]) -> Self {
        let bytes: usize = tools
            .iter()
            .map(|t| t.name.len() + t.description.len() + t.schema.to_string().len() + 40)
            .sum();
        self.overhead = bytes as f64 / BYTES;
        self
    }

    /// Adds a reply that had no call (none at all when it was empty) and what it is answered with.
    pub fn text(&mut self, reply: &Reply, nudge: String) {
        if !reply.text.trim().is_empty() {
            self.items.push(Item::Reply {
                text: reply.text.clone(),
                calls: Vec::new(),
                native: reply.native.clone(),
                results: Vec::new(),
            });
        }
        self.items.push(Item::User(nudge));
    }

    /// Adds a reply with calls and all their results, in the order of the calls.
    pub fn calls(&mut self, reply: &Reply, results: &[CallOutput], left_out: &[String]) {
        let mut shown: Vec<Shown> = Vec::new();
        for (index, call) in reply.calls.iter().enumerate() {
            let (text, failed, label) = match results.get(index) {
                Some(result) => (result.text.clone(), result.failed, label(result)),
                None => ("no result is known".to_string(), true, call.name.clone()),
            };
            shown.push(Shown {
                call_id: call.id.clone(),
                name: call.name.clone(),
                text,
                failed,
                label,
                elided: false,
            });
        }
        if let (Some(last), false) = (shown.last_mut(), left_out.is_empty()) {
            last.text = format!(
                "{}\n{}",
                last.text.trim_end(),
                super::words::left_out(left_out)
            );
        }
        self.items.push(Item::Reply {
            text: reply.text.clone(),
            calls: reply.calls.iter().map(sendable).collect(),
            native: reply.native.clone(),
            results: shown,
        });
    }

    /// Adds words to what stands last, which is a result or a message to the agent; nothing where there
    /// is neither, for then nothing happened that they could be about.
    pub fn add(&mut self, words: Option<&str>) {
        let Some(words) = words else {
            return;
        };
        let last = match self.items.last_mut() {
            Some(Item::User(text)) => text,
            Some(Item::Reply { results, .. }) => match results.last_mut() {
                Some(shown) => &mut shown.text,
                None => return,
            },
            None => return,
        };
        *last = format!("{}\n{words}", last.trim_end());
    }

    /// The list to send: system, user, then replies each directly followed by their results; never two
    /// user messages in a row.
    pub fn messages(&self) -> Vec<Message> {
        let mut first = self.first.clone();
        if !self.dropped.is_empty() {
            first = format!("{first}\n\n{}", self.dropped_note());
        }
        let mut list = vec![
            Message::System {
                text: self.system.clone(),
            },
            Message::User { text: first },
        ];
        for item in &self.items {
            match item {
                Item::User(said) => match list.last_mut() {
                    Some(Message::User { text }) => *text = format!("{text}\n\n{said}"),
                    _ => list.push(Message::User { text: said.clone() }),
                },
                Item::Reply {
                    text,
                    calls,
                    native,
                    results,
                } => {
                    list.push(Message::Assistant {
                        text: text.clone(),
                        calls: calls.clone(),
                        native: native.clone(),
                    });
                    list.extend(results.iter().map(|shown| Message::Tool {
                        call_id: shown.call_id.clone(),
                        name: shown.name.clone(),
                        text: shown.text.clone(),
                        failed: shown.failed,
                    }));
                }
            }
        }
        list
    }

    /// Estimated tokens of the next request.
    pub fn estimate(&self) -> u64 {
        let bytes: usize = self.system.len() + self.first.len() + self.dropped_note().len();
        let items: usize = self.items.iter().map(Item::bytes).sum();
        (((bytes + items) as f64 / BYTES + self.overhead) * self.factor) as u64
    }

    /// Takes the model's own count of the request that was estimated at `estimate`.
    pub fn calibrate(&mut self, estimate: u64, counted: u64) {
        if estimate > 0 && counted > 0 {
            let raw = estimate as f64 / self.factor;
            self.factor = (counted as f64 / raw).clamp(0.5, 4.0);
        }
    }

    /// The model found the last request too long: less goes out from now on.
    pub fn overflowed(&mut self) {
        self.room = (self.estimate() as f64 * 0.7).min(self.room * 0.9).max(1.0);
        self.soft = self.soft.min(self.room);
    }

    /// How often output was elided, turns dropped or a result clipped.
    pub fn elisions(&self) -> u32 {
        self.elisions
    }

    /// Makes the next request fit: first old outputs are elided, then old turns dropped, then what is
    /// left is clipped. True when something was done.
    pub fn fit(&mut self) -> bool {
        let mut done = false;
        if self.estimate() as f64 > self.soft {
            done |= self.elide();
        }
        if self.estimate() as f64 > self.room {
            done |= self.drop_old();
        }
        if self.estimate() as f64 > self.room {
            done |= self.clip();
        }
        self.elisions += u32::from(done);
        done
    }

    /// The first item of those that stay whole.
    fn kept_from(&self) -> usize {
        let mut messages = 0;
        for (index, item) in self.items.iter().enumerate().rev() {
            messages += item.messages();
            if messages >= self.compaction.keep {
                return index;
            }
        }
        0
    }

    fn elide(&mut self) -> bool {
        let until = self.kept_from();
        let mut done = false;
        for item in &mut self.items[..until] {
            let Item::Reply { results, .. } = item else {
                continue;
            };
            for shown in results.iter_mut().filter(|s| !s.elided) {
                let size = shown.text.chars().count();
                if size > SHORT {
                    shown.text = format!(
                        "[output of {} elided: {} characters; run it again if you need it]",
                        shown.label,
                        clip::thousands(size as u64)
                    );
                    done = true;
                }
                shown.elided = true;
            }
        }
        done
    }

    fn drop_old(&mut self) -> bool {
        let until = self.kept_from();
        let mut count = 0;
        while count < until && self.estimate_without(count) > self.room * 0.8 {
            count += 1;
        }
        for item in self.items.drain(..count) {
            if let Item::Reply { results, .. } = item {
                self.dropped.extend(results.into_iter().map(|s| s.label));
            }
        }
        count > 0
    }

    fn estimate_without(&self, count: usize) -> f64 {
        let bytes: usize = self.items[..count].iter().map(Item::bytes).sum();
        self.estimate() as f64 - bytes as f64 / BYTES * self.factor
    }

    fn dropped_note(&self) -> String {
        const SHOWN: usize = 20;
        if self.dropped.is_empty() {
            return String::new();
        }
        let from = self.dropped.len().saturating_sub(SHOWN);
        format!(
            "[Your earlier turns are left out here to save room; they made {} tool calls, the last of them: {}]",
            self.dropped.len(),
            self.dropped[from..].join("; ")
        )
    }

    /// Cuts the largest results, harder until all fits.
    fn clip(&mut self) -> bool {
        let mut cap = 32_000;
        let mut done = false;
        while self.estimate() as f64 > self.room && cap >= 200 {
            for item in &mut self.items {
                let Item::Reply { results, .. } = item else {
                    continue;
                };
                for shown in results.iter_mut().filter(|s| s.text.len() > cap + 200) {
                    let cut = clip::middle(&shown.text, cap / 2);
                    shown.text = format!("{cut}\n[cut to fit: ask for less at once]");
                    done = true;
                }
            }
            cap /= 2;
        }
        done
    }
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::User(text) => text.len() + 16,
            Self::Reply {
                text,
                calls,
                native,
                results,
            } => {
                let calls: usize = calls
                    .iter()
                    .map(|c| c.name.len() + c.arguments.len() + 48)
                    .sum();
                let results: usize = results.iter().map(|s| s.text.len() + 48).sum();
                let native = native.as_ref().map_or(0, |n| n.to_string().len());
                16 + text.len().max(native) + calls + results
            }
        }
    }

    fn messages(&self) -> usize {
        match self {
            Self::User(_) => 1,
            Self::Reply { results, .. } => 1 + results.len(),
        }
    }
}

fn label(result: &CallOutput) -> String {
    let arguments = &result.arguments;
    let named = ["command", "path", "pattern"]
        .iter()
        .find_map(|key| arguments.get(*key)?.as_str());
    let named = named
        .map(|text| format!(" {:?}", clip::line(text, 60)))
        .unwrap_or_default();
    format!(
        "#{}: {}{named}",
        result.number,
        clip::line(&result.tool, 40)
    )
}

/// Servers refuse arguments that are no JSON object; what the model wrote stays readable inside one.
fn sendable(call: &Call) -> Call {
    let arguments = if call.arguments.trim().is_empty() {
        "{}".to_string()
    } else if tools::is_object(&call.arguments) {
        call.arguments.clone()
    } else {
        json!({"unreadable": clip::line(&call.arguments, 500)}).to_string()
    };
    Call {
        arguments,
        ..call.clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Finish, Usage};

    fn reply(text: &str, ids: &[String]) -> Reply {
        let calls = ids.iter().map(|id| Call {
            id: id.clone(),
            name: "bash".into(),
            arguments: r#"{"command":"seq 2000"}"#.into(),
        });
        Reply {
            text: text.into(),
            calls: calls.collect(),
            finish: Finish::Calls,
            usage: Usage::default(),
            model: None,
            id: None,
            native: None,
        }
    }

    fn output(number: u32, id: &str, text: String) -> CallOutput {
        CallOutput {
            number,
            call_id: id.into(),
            tool: "bash".into(),
            arguments: json!({"command": "seq 2000"}),
            text,
            failed: false,
            exit_code: Some(0),
            seconds: 0.0,
        }
    }

    fn valid(list: &[Message]) -> Result<(), String> {
        if !matches!(list, [Message::System { .. }, Message::User { .. }, ..]) {
            return Err("begins otherwise".into());
        }
        let mut open: Vec<String> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut after_user = false;
        for message in list {
            let user = matches!(message, Message::User { .. });
            match message {
                Message::Tool { call_id, .. } => {
                    let due = !open.is_empty() && open.remove(0) == *call_id;
                    if !due || !seen.insert(call_id.clone()) {
                        return Err(format!("{call_id} answered out of place"));
                    }
                }
                _ if !open.is_empty() => return Err(format!("{open:?} not answered")),
                Message::Assistant { text, calls, .. } => {
                    if text.is_empty() && calls.is_empty() {
                        return Err("empty assistant".into());
                    }
                    open = calls.iter().map(|c| c.id.clone()).collect();
                }
                Message::User { .. } if after_user => return Err("two users".into()),
                _ => {}
            }
            after_user = user;
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err("dangling".into())
        }
    }

    #[test]
    fn an_elided_output_says_what_it_was() {
        let compaction = Compaction { at: 0.1, keep: 2 };
        let mut history = History::new("s", "f", compaction, 4_000, 1_000);
        for n in 1..=3 {
            let id = format!("c{n}");
            history.calls(
                &reply("", std::slice::from_ref(&id)),
                &[output(n, &id, "x".repeat(1_234))],
                &[],
            );
        }
        assert!(history.fit());
        let texts: Vec<String> = history
            .messages()
            .into_iter()
            .filter_map(|m| match m {
                Message::Tool { text, .. } => Some(text),
                _ => None,
            })
            .collect();
        assert_eq!(
            texts[0],
            "[output of #1: bash \"seq 2000\" elided: 1,234 characters; run it again if you need it]"
        );
        assert_eq!(texts[2].len(), 1_234);
        assert!(!history.fit(), "nothing more to elide");
    }

    #[test]
    fn one_output_larger_than_the_window_is_clipped_in_the_sent_copy() {
        let mut history = History::new("s", "f", Compaction { at: 0.7, keep: 6 }, 8_000, 2_000);
        history.calls(
            &reply("", &["a".into()]),
            &[output(1, "a", "9\n".repeat(500_000))],
            &[],
        );
        history.fit();
        let bytes: usize = serde_json::to_string(&history.messages()).unwrap().len();
        assert!(bytes < 32_000, "{bytes}");
        assert_eq!(valid(&history.messages()), Ok(()));
    }

    #[test]
    fn unreadable_arguments_are_sent_as_an_object() {
        let mut broken = reply("", &["a".into()]);
        broken.calls[0].arguments = "{\"command\":\"rm -rf build".into();
        let mut history = History::new("s", "f", Compaction { at: 0.7, keep: 6 }, 8_000, 2_000);
        history.calls(&broken, &[output(1, "a", "no".into())], &[]);
        let sent = history.messages();
        let Message::Assistant { calls, .. } = &sent[2] else {
            panic!("{sent:?}")
        };
        assert!(
            tools::is_object(&calls[0].arguments),
            "{}",
            calls[0].arguments
        );
    }

    #[test]
    fn the_estimate_follows_the_model_s_own_count() {
        let mut history = History::new(
            "s",
            &"w".repeat(4_000),
            Compaction { at: 0.7, keep: 6 },
            8_000,
            2_000,
        );
        let before = history.estimate();
        history.calibrate(before, before * 2);
        assert_eq!(history.estimate() / before, 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn pairs_stay_whole_and_requests_fit_whatever_is_elided(
            turns in proptest::collection::vec((0usize..4, 0usize..20_000, any::<bool>()), 1..50),
            keep in 0usize..10,
            overflows in proptest::collection::vec(any::<bool>(), 50),
        ) {
            let mut history = History::new("system", "first", Compaction { at: 0.7, keep }, 8_000, 2_000);
            let mut number = 0;
            for (index, (calls, size, said)) in turns.iter().enumerate() {
                let ids: Vec<String> = (0..*calls).map(|c| format!("{index}-{c}")).collect();
                let text = if *said { "text" } else { "" };
                if ids.is_empty() {
                    history.text(&reply(text, &ids), "nudge".into());
                } else {
                    let results: Vec<CallOutput> = ids.iter().map(|id| {
                        number += 1;
                        output(number, id, "й".repeat(*size))
                    }).collect();
                    history.calls(&reply(text, &ids), &results, &[]);
                }
                history.fit();
                prop_assert_eq!(valid(&history.messages()), Ok(()));
                prop_assert!(history.estimate() <= 6_000, "{}", history.estimate());
                if overflows[index] && index % 17 == 0 {
                    history.overflowed();
                    history.fit();
                    prop_assert_eq!(valid(&history.messages()), Ok(()));
                }
            }
        }
    }
}
