//! A server's departures from the common form, and where they are remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use serde::Deserialize;

/// One departure from the common form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Quirk {
    /// It does not stream: streams come back without an event.
    Plain = 1,
    /// The last stream came back without an event; the second such one makes it `Plain`.
    EmptyOnce = 1 << 1,
    /// It does not know `stream_options`.
    NoStreamUsage = 1 << 2,
    /// The reply limit is `max_completion_tokens`, not `max_tokens`.
    CompletionLimit = 1 << 3,
    /// An assistant message with only calls has `""` for its content, not null.
    EmptyText = 1 << 4,
    /// The model takes no temperature.
    NoTemperature = 1 << 5,
    /// Effort is said in the profile's second way.
    OtherEffort = 1 << 6,
    /// What the model thought does not go back.
    NoReasoning = 1 << 7,
    /// It does not know marks of what is to be cached, nor the lists of blocks that carry them.
    NoCache = 1 << 8,
    /// It takes no system message: its text opens the first user message.
    NoSystem = 1 << 9,
    /// No user message may follow a tool's result: its text closes the result.
    FoldUser = 1 << 10,
    /// Ids of calls have nine letters and digits.
    ShortIds = 1 << 11,
    /// It does not know `tool_choice`.
    NoToolChoice = 1 << 12,
    /// It does not know `include`, by which thoughts come in a form that goes back.
    NoInclude = 1 << 13,
}

/// A set of quirks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks(u32);

impl Quirks {
    pub fn has(self, quirk: Quirk) -> bool {
        self.0 & quirk as u32 != 0
    }

    pub fn with(self, quirk: Quirk) -> Self {
        Self(self.0 | quirk as u32)
    }

    pub fn without(self, quirk: Quirk) -> Self {
        Self(self.0 & !(quirk as u32))
    }

    pub fn toggled(self, quirk: Quirk) -> Self {
        Self(self.0 ^ quirk as u32)
    }

    fn within(self, mask: Self) -> Self {
        Self(self.0 & mask.0)
    }

    fn outside(self, mask: Self) -> Self {
        Self(self.0 & !mask.0)
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What was learnt of a provider, shared by all who ask it, and of one model of it.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    provider: Arc<AtomicU32>,
    model: Arc<AtomicU32>,
    /// The longest reply the model writes; 0 while that is not known.
    reply: Arc<AtomicU64>,
}

impl Learned {
    /// The same provider with a model of which nothing is learnt yet.
    pub fn of_model(&self) -> Self {
        Self {
            provider: self.provider.clone(),
            model: Arc::default(),
            reply: Arc::default(),
        }
    }

    /// The reply limit to send where `asked` is wished.
    pub fn reply_tokens(&self, asked: u64) -> u64 {
        match self.reply.load(Ordering::Relaxed) {
            0 => asked,
            most => asked.min(most),
        }
    }

    /// Keeps that the model writes no longer replies than of `most` tokens.
    pub fn keep_reply_tokens(&self, most: u64) {
        self.reply.store(most, Ordering::Relaxed);
    }

    /// What is known, laid over what a profile starts with. Learnt bits are departures from it.
    pub fn over(&self, start: Quirks) -> Quirks {
        let provider = self.provider.load(Ordering::Relaxed);
        let model = self.model.load(Ordering::Relaxed);
        Quirks(start.0 ^ Quirks(provider).and(Quirks(model)).0)
    }

    /// Keeps that a server was found to need `found`. Bits in `shared` are the provider's. What others
    /// learnt meanwhile of other quirks stays: only what this one saw change is written.
    pub fn keep(&self, start: Quirks, before: Quirks, found: Quirks, shared: Quirks) {
        let changed = Quirks(before.0 ^ found.0);
        let departs = Quirks(start.0 ^ found.0);
        let pairs = [
            (&self.provider, changed.within(shared)),
            (&self.model, changed.outside(shared)),
        ];
        for (place, changed) in pairs {
            place.fetch_or(changed.within(departs).0, Ordering::Relaxed);
            place.fetch_and(!changed.outside(departs).0, Ordering::Relaxed);
        }
    }
}

/// What was learnt is no part of what an operator configured.
impl PartialEq for Learned {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learnt_of_a_provider_holds_for_its_other_models() {
        let start = Quirks::default().with(Quirk::CompletionLimit);
        let shared = Quirks::default().with(Quirk::Plain);
        let first = Learned::default();
        let second = first.of_model();
        let found = start.with(Quirk::Plain).without(Quirk::CompletionLimit);
        first.keep(start, start, found, shared);
        assert_eq!(first.over(start), found);
        assert_eq!(second.over(start), start.with(Quirk::Plain));
        first.keep(start, found, start, shared);
        assert_eq!((first.over(start), second.over(start)), (start, start));
    }

    #[test]
    fn two_who_learn_at_once_both_teach() {
        let start = Quirks::default();
        let learned = Learned::default();
        let none = Quirks::default();
        learned.keep(start, none, none.with(Quirk::EmptyText), none);
        learned.keep(start, none, none.with(Quirk::NoSystem), none);
        let both = none.with(Quirk::EmptyText).with(Quirk::NoSystem);
        assert_eq!(learned.over(start), both);
    }
}
