//! A call of a model, told again attempt by attempt.

use serde_json::Value;

use crate::agent::Stop;
use crate::journal::{Event, Usage};
use crate::model::Reply;
use crate::run::call::tab::Tab;
use crate::trace::Span;

/// A call that is not answered yet.
pub(super) struct Chat {
    tab: Tab,
    call: u32,
    model: String,
    attempts: u32,
}

impl Chat {
    /// Its first attempt went out.
    pub fn open(span: Span, call: u32, model: &str) -> Self {
        Self {
            tab: Tab::open(span),
            call,
            model: model.to_owned(),
            attempts: 1,
        }
    }

    /// True when what goes out now is another attempt of the same.
    pub fn again(&mut self, call: u32, model: &str) -> bool {
        let same = self.call == call && self.model == model;
        self.attempts += u32::from(same);
        same
    }

    pub fn answered(mut self, reply: &Value, usage: Usage, cost: Option<f64>) {
        let reply: Option<Reply> = serde_json::from_value(reply.clone()).ok();
        self.tab.add(usage, cost);
        self.tab.answered(reply.as_ref(), self.attempts);
    }

    /// An attempt failed. Gives the call back while another one may follow.
    pub fn failed(mut self, event: &Event) -> Option<Self> {
        let Event::ModelFailed {
            attempt,
            reason,
            retry_seconds,
            usage,
            cost_usd,
            stop,
            ..
        } = event
        else {
            return Some(self);
        };
        if let Some(usage) = usage {
            self.tab.add(*usage, *cost_usd);
        }
        let word = stop.as_deref().unwrap_or_default();
        if word == Stop::Cancelled.word() {
            self.stopped(&Stop::Cancelled);
            return None;
        }
        self.tab.attempt_failed(*attempt, reason, *retry_seconds);
        if retry_seconds.is_some() {
            return Some(self);
        }
        let overflow = Stop::ContextOverflow { window: None };
        let stop = match word == overflow.word() {
            true => overflow,
            false => Stop::Model {
                reason: reason.clone(),
                hint: String::new(),
            },
        };
        self.stopped(&stop);
        None
    }

    /// No answer comes any more.
    pub fn stopped(mut self, stop: &Stop) {
        self.tab.failed(stop);
    }
}
