//! What a model call's span says at its end.

use super::value::Value;
use super::{ChatEnd, ChatUsage, Span, names};

impl Span {
    /// What the reply says, on a chat span.
    pub fn answered(&self, end: &ChatEnd) {
        let finish = vec![end.finish.clone()];
        self.set(names::FINISH_REASONS, Value::Texts(finish));
        self.used(&end.usage);
        self.set(names::ATTEMPTS, u64::from(end.attempts).into());
        if let Some(id) = &end.response_id {
            self.set(names::RESPONSE_ID, id.as_str().into());
        }
        if let Some(model) = &end.response_model {
            self.set(names::RESPONSE_MODEL, model.as_str().into());
        }
    }

    /// What the call used, once, on a chat span: also of one that came to nothing.
    pub fn used(&self, usage: &ChatUsage) {
        let pairs = [
            (names::INPUT_TOKENS, usage.input_tokens),
            (names::OUTPUT_TOKENS, usage.output_tokens),
            (names::CACHE_READ_TOKENS, usage.cached_tokens),
            (names::LLM_PROMPT_TOKENS, usage.input_tokens),
            (names::LLM_COMPLETION_TOKENS, usage.output_tokens),
            (names::LLM_CACHE_READ_TOKENS, usage.cached_tokens),
            (
                names::LLM_TOTAL_TOKENS,
                usage.input_tokens.saturating_add(usage.output_tokens),
            ),
        ];
        for (key, number) in pairs {
            self.set(key, number.into());
        }
        if usage.estimated {
            self.set(names::USAGE_ESTIMATED, true.into());
        }
        if let Some(cost) = usage.cost_usd {
            self.set(names::USAGE_COST, cost.into());
            self.set(names::LLM_COST, cost.into());
        }
    }
}
