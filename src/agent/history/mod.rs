//! The conversation as it is sent: pairs kept whole, and estimated in the model's own tokens.
//!
//! Owns: what was said and answered, what stands in the place of what was left out, the estimate.
//! Takes: replies with all their results, the model's own counts, summaries.
//! Gives: the list of messages of the next request, and what could be summed up.
//! Never: a request.

mod item;
mod shorten;
#[cfg(test)]
mod tests;
mod transcript;

use item::{Item, Shown, label, sendable};
pub use shorten::{Part, Size};

use super::CallOutput;
use crate::model::{Message, Reply, ToolSpec};
use crate::plan::Compaction;

/// Bytes a token stands for until the model's own count is known.
const BYTES: f64 = 4.0;

/// One agent's conversation.
#[derive(Clone, Debug)]
pub struct History {
    system: String,
    first: String,
    items: Vec<Item>,
    /// What stands in the place of turns that were summed up.
    summary: Option<String>,
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
}

impl History {
    /// An empty conversation within `window` tokens, of which `reply` are the reply's.
    pub fn new(system: &str, first: &str, compaction: Compaction, window: u64, reply: u64) -> Self {
        let (room, soft) = bounds(&compaction, window, reply);
        Self {
            system: system.to_string(),
            first: first.to_string(),
            items: Vec::new(),
            summary: None,
            dropped: Vec::new(),
            overhead: 0.0,
            factor: 1.0,
            compaction,
            soft,
            room,
        }
    }

    /// Holds to another window from now on.
    pub fn resize(&mut self, window: u64, reply: u64) {
        (self.room, self.soft) = bounds(&self.compaction, window, reply);
    }

    /// Words that a summary may have.
    pub fn words(&self) -> usize {
        self.compaction.words
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
                native_bytes: item::native_bytes(reply),
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
            native_bytes: item::native_bytes(reply),
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
        for more in [self.summary_note(), self.dropped_note()] {
            if !more.is_empty() {
                first = format!("{first}\n\n{more}");
            }
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
                    ..
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
        let notes = self.summary_note().len() + self.dropped_note().len();
        let bytes = self.system.len() + self.first.len() + notes;
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
}

/// What a request may have, and at how much eliding begins.
fn bounds(compaction: &Compaction, window: u64, reply: u64) -> (f64, f64) {
    let room = window.saturating_sub(reply).max(1) as f64;
    (room, (compaction.at * window as f64).min(room))
}
