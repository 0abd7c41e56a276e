//! The beginning of a conversation as text, for whoever sums it up: pure.

use super::item::{Item, Shown};
use crate::model::Call;
use crate::tools::clip;

/// Characters of one thing said, called or answered, where there is room.
const EACH: usize = 6_000;
/// And at least.
const LEAST: usize = 200;

/// All that was said and done, within about `room` bytes: long parts lose their middles first.
pub fn of(items: &[Item], room: usize) -> String {
    let mut each = EACH;
    loop {
        let text = whole(items, each);
        if text.len() <= room {
            return text;
        }
        if each <= LEAST {
            // A character takes four bytes at most.
            return clip::middle(&text, room / 4);
        }
        each /= 2;
    }
}

fn whole(items: &[Item], each: usize) -> String {
    let mut text = String::new();
    for item in items {
        match item {
            Item::User(said) => add(&mut text, "told", said, each),
            Item::Reply {
                text: said,
                calls,
                results,
                ..
            } => {
                if !said.trim().is_empty() {
                    add(&mut text, "said", said, each);
                }
                for (call, result) in calls.iter().zip(results) {
                    exchange(&mut text, call, result, each);
                }
            }
        }
    }
    text
}

fn exchange(text: &mut String, call: &Call, result: &Shown, each: usize) {
    let made = format!("{} {}", call.name, call.arguments);
    add(text, "called", &made, each);
    let how = if result.failed { "failed" } else { "result" };
    add(text, how, &result.text, each);
}

fn add(text: &mut String, what: &str, said: &str, each: usize) {
    text.push_str(&format!("[{what}] {}\n", clip::middle(said.trim(), each)));
}
