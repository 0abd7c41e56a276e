//! Telling an agent that goes in circles: the same calls with the same results, singly or in a cycle.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// Repetitions at which the agent is told.
pub const TOLD: u32 = 3;
/// Repetitions at which it is stopped.
pub const STOPPED: u32 = 5;
/// The longest cycle of calls that is recognised.
const PERIOD: usize = 8;

/// The calls so far, as fingerprints.
#[derive(Debug, Default)]
pub struct Stall {
    seen: Vec<u64>,
    /// The calls up to this one belong to a cycle that was told of.
    told: usize,
}

/// What the last call makes of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Moving,
    /// The call, or the cycle that ends with it, came this often: time to say so.
    Repeating(u32),
    Stalled(u32),
}

impl Stall {
    /// Takes a call with its result (without its number) and judges.
    pub fn observe(&mut self, tool: &str, arguments: &Value, result: &str) -> Pace {
        self.seen.push(fingerprint(tool, arguments, result));
        let (times, period) = (1..=PERIOD)
            .map(|period| (self.repeats(period), period))
            .max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)))
            .unwrap_or((1, 1));
        match times {
            STOPPED.. => Pace::Stalled(times),
            TOLD.. if self.seen.len() >= self.told + period => {
                self.told = self.seen.len();
                Pace::Repeating(times)
            }
            _ => Pace::Moving,
        }
    }

    /// How often the last `period` calls stand at the end, one after another.
    fn repeats(&self, period: usize) -> u32 {
        let Some(from) = self.seen.len().checked_sub(period) else {
            return 0;
        };
        let last = &self.seen[from..];
        let same = self.seen[..from]
            .rchunks_exact(period)
            .take_while(|chunk| *chunk == last);
        1 + same.count() as u32
    }
}

fn fingerprint(tool: &str, arguments: &Value, result: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    tool.hash(&mut hasher);
    canonical(arguments, &mut hasher);
    result.trim().hash(&mut hasher);
    hasher.finish()
}

/// Order of keys and white space around a text make no difference.
fn canonical(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            for key in keys {
                key.hash(hasher);
                canonical(&map[key.as_str()], hasher);
            }
        }
        Value::Array(list) => {
            list.len().hash(hasher);
            list.iter().for_each(|item| canonical(item, hasher));
        }
        Value::String(text) => text.split_whitespace().for_each(|word| word.hash(hasher)),
        other => other.to_string().hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn paces(calls: &[(&str, &str)]) -> Vec<Pace> {
        let mut stall = Stall::default();
        calls
            .iter()
            .map(|(command, result)| stall.observe("bash", &json!({"command": command}), result))
            .collect()
    }

    #[test]
    fn the_same_call_is_told_at_three_and_stopped_at_five() {
        use Pace::*;
        let same = [("false", "exit code: 1"); 5];
        assert_eq!(
            paces(&same),
            [Moving, Moving, Repeating(3), Repeating(4), Stalled(5)]
        );
    }

    #[test]
    fn alternation_is_a_cycle() {
        let mut calls = Vec::new();
        for _ in 0..5 {
            calls.extend([("a", "1"), ("b", "2")]);
        }
        let paces = paces(&calls);
        assert!(paces[..5].iter().all(|p| *p == Pace::Moving), "{paces:?}");
        assert_eq!(paces[5], Pace::Repeating(3));
        assert_eq!(paces[9], Pace::Stalled(5));
    }

    #[test]
    fn order_of_keys_and_white_space_hide_nothing() {
        let mut stall = Stall::default();
        let forms = [
            json!({"a": "x  y", "b": 1}),
            json!({"b": 1, "a": " x y"}),
            json!({"a": "x y", "b": 1}),
        ];
        let last = forms
            .iter()
            .map(|form| stall.observe("t", form, "r"))
            .last();
        assert_eq!(last, Some(Pace::Repeating(3)));
    }

    proptest! {
        #[test]
        fn changing_results_are_progress(length in 1usize..60) {
            let mut stall = Stall::default();
            for index in 0..length {
                let pace = stall.observe("bash", &json!({"command": "status"}), &index.to_string());
                prop_assert_eq!(pace, Pace::Moving);
            }
        }
    }
}
