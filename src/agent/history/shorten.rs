//! Making a conversation shorter: outputs elided, a beginning summed up or dropped, results clipped.

use super::item::Item;
use super::{BYTES, History, transcript};
use crate::tools::clip;

/// Outputs of at most this many characters are not worth eliding.
const SHORT: usize = 300;
/// Share of what a request may have that a beginning must hold to be worth a summary.
const WORTH: f64 = 0.1;
/// Characters that a word of a summary may take: more than any language's average.
const WORD: usize = 12;

/// The beginning of a conversation, to be summed up.
#[derive(Clone, Debug)]
pub struct Part {
    /// Steps of the conversation that the summary takes the place of.
    pub items: usize,
    /// The first message, and the summary that stands already.
    pub first: String,
    pub before: Option<String>,
    /// What was said and done, as text.
    pub transcript: String,
}

/// How long a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub messages: usize,
    /// Estimated.
    pub tokens: u64,
}

impl History {
    /// The next request as it stands.
    pub fn size(&self) -> Size {
        let items: usize = self.items.iter().map(Item::messages).sum();
        Size {
            messages: 2 + items,
            tokens: self.estimate(),
        }
    }

    /// True when it is time to shorten it.
    pub fn is_long(&self) -> bool {
        let size = self.size();
        let many = |most: usize| size.messages > most;
        size.tokens as f64 > self.soft || self.compaction.messages.is_some_and(many)
    }

    /// Makes the next request fit: old outputs are elided first, then old turns dropped, then what is left
    /// is clipped. True when something was done.
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
        done
    }

    /// Puts a pointer in the place of every longer output before those that stay whole.
    pub fn elide(&mut self) -> bool {
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

    /// The beginning that a summary could take the place of, within `tokens`. None when that would not be
    /// worth it.
    pub fn part(&self, tokens: u64) -> Option<Part> {
        let items = self.kept_from();
        let bytes: usize = self.items[..items].iter().map(Item::bytes).sum();
        let least = self.soft * WORTH;
        let many = self.compaction.messages.is_some() && items > 1;
        if items == 0 || (!many && bytes as f64 / BYTES * self.factor < least) {
            return None;
        }
        let room = tokens as f64 * BYTES / self.factor.max(1.0);
        Some(Part {
            items,
            first: self.first.clone(),
            before: self.summary.clone(),
            transcript: transcript::of(&self.items[..items], room as usize),
        })
    }

    /// Puts a summary in the place of the first `items` steps, and of the summary before it.
    pub fn condense(&mut self, items: usize, summary: &str) {
        self.items.drain(..items.min(self.items.len()));
        let most = self.compaction.words * WORD;
        self.summary = Some(clip::middle(summary.trim(), most));
    }

    /// The first item of those that stay whole.
    fn kept_from(&self) -> usize {
        let sizes: Vec<usize> = self.items.iter().map(Item::messages).collect();
        cut(&sizes, self.compaction.keep)
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

    pub(super) fn summary_note(&self) -> String {
        let summary = self.summary.as_deref();
        summary
            .map(super::super::words::summed_up)
            .unwrap_or_default()
    }

    pub(super) fn dropped_note(&self) -> String {
        const SHOWN: usize = 20;
        if self.dropped.is_empty() {
            return String::new();
        }
        let from = self.dropped.len().saturating_sub(SHOWN);
        format!(
            "[Earlier turns of yours are left out here to save room; they made {} tool calls, the last of them: \
             {}]",
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

/// Where a conversation of steps with so many messages each may be cut so that at least `keep` messages
/// stay: always before a step, and a step is a reply with all its results.
pub fn cut(sizes: &[usize], keep: usize) -> usize {
    let mut messages = 0;
    for (index, size) in sizes.iter().enumerate().rev() {
        messages += size;
        if messages >= keep {
            return index;
        }
    }
    0
}
