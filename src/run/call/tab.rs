//! What one call comes to over all its attempts, as its span tells it.

use crate::agent::Stop;
use crate::journal::{Spent, Usage};
use crate::model::{Finish, Reply};
use crate::trace::{ChatEnd, ChatUsage, Span, names};

/// A call's span and what its attempts used so far. One that is dropped open was cut off.
pub(in crate::run) struct Tab {
    span: Span,
    spent: Spent,
    open: bool,
}

impl Tab {
    pub fn open(span: Span) -> Self {
        Self {
            span,
            spent: Spent::default(),
            open: true,
        }
    }

    /// An attempt used this.
    pub fn add(&mut self, usage: Usage, cost: Option<f64>) {
        self.spent.add(usage, cost);
    }

    /// An attempt failed; another one comes after `wait` seconds.
    pub fn attempt_failed(&self, attempt: u32, reason: &str, wait: Option<f64>) {
        let mut attributes = vec![
            (names::ATTEMPT, attempt.into()),
            (names::STATUS, reason.into()),
        ];
        if let Some(wait) = wait {
            attributes.push((names::RETRY_SECONDS, wait.into()));
        }
        self.span.event(names::ATTEMPT_FAILED, attributes);
    }

    /// The last of so many attempts was answered; None: by what cannot be read.
    pub fn answered(&mut self, reply: Option<&Reply>, attempts: u32) {
        self.open = false;
        self.span.answered(&ChatEnd {
            response_id: reply.and_then(|reply| reply.id.clone()),
            response_model: reply.and_then(|reply| reply.model.clone()),
            finish: reply
                .map(|reply| finish_word(&reply.finish))
                .unwrap_or_default(),
            usage: self.usage(),
            attempts,
        });
        self.span.end();
    }

    /// The call came to nothing.
    pub fn failed(&mut self, stop: &Stop) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        if self.spent.is_any() {
            self.span.used(&self.usage());
        }
        self.span.fail(stop.word(), &stop.to_string());
        self.span.end();
    }

    fn usage(&self) -> ChatUsage {
        let usage = self.spent.usage;
        ChatUsage {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.cached_tokens,
            estimated: usage.estimated,
            cost_usd: self.spent.cost_usd,
        }
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        self.failed(&Stop::Cancelled);
    }
}

fn finish_word(finish: &Finish) -> String {
    match finish {
        Finish::Stop => "stop".to_owned(),
        Finish::Calls => "tool_calls".to_owned(),
        Finish::Length => "length".to_owned(),
        Finish::Filtered => "content_filter".to_owned(),
        Finish::Other(word) => word.clone(),
    }
}
