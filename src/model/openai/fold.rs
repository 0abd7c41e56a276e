//! Deltas, or one whole message, become a reply.

use serde_json::{Value, json};

use super::super::stream::{self, Stage};
use super::super::wire::Answer;
use super::super::{Finish, Message, Reply, Usage, ids};
use super::calls::{Calls, Origin};

/// What was read of one answer.
#[derive(Debug, Default)]
pub struct Fold {
    text: String,
    refusal: String,
    reasoning: String,
    /// The field that the reasoning came in, and goes back in.
    reasoning_field: &'static str,
    calls: Calls,
    finish: Option<String>,
    usage: Option<Usage>,
    model: Option<String>,
    id: Option<String>,
    /// `[DONE]` came.
    done: bool,
}

impl stream::Fold for Fold {
    fn event(&mut self, event: &Value) -> Result<(), String> {
        if event == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let named = |key: &str| event[key].as_str().map(str::to_owned);
        self.model = self.model.take().or_else(|| named("model"));
        self.id = self.id.take().or_else(|| named("id"));
        self.usage = usage(&event["usage"]).or(self.usage);
        let choices = event["choices"].as_array();
        for choice in choices.into_iter().flatten() {
            // With several choices the first is the answer.
            if choice["index"].as_u64().unwrap_or(0) == 0 {
                self.choice(choice);
            }
        }
        Ok(())
    }

    fn stage(&self) -> Stage {
        match (self.done, &self.finish, self.usage) {
            (true, ..) => Stage::Done,
            (false, None, _) => Stage::Open,
            (false, Some(_), _) => Stage::Closing,
        }
    }
}

impl Answer for Fold {
    fn whole(&mut self, value: &Value) -> Result<(), String> {
        stream::Fold::event(self, value)
    }

    fn reply(
        self: Box<Self>,
        model: &str,
        earlier: &[Message],
        size: usize,
    ) -> Result<Reply, String> {
        let (mut calls, broken) = self.calls.whole();
        let refused = self.text.is_empty() && !self.refusal.is_empty();
        let text = if refused { self.refusal } else { self.text };
        if self.finish.is_none() && !(self.done && !(text.is_empty() && calls.is_empty())) {
            return Err("it ended before its finish reason".to_owned());
        }
        let finish = match self.finish.as_deref() {
            _ if refused => Finish::Filtered,
            None if broken => return Err("it ended inside a tool call".to_owned()),
            Some("length" | "max_tokens" | "model_length") => Finish::Length,
            Some("content_filter") => Finish::Filtered,
            _ if !calls.is_empty() => Finish::Calls,
            None | Some("stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence") => {
                Finish::Stop
            }
            Some("tool_calls" | "function_call") => Finish::Stop,
            Some(other) => Finish::Other(other.to_owned()),
        };
        ids::settle(&mut calls, earlier);
        let written: usize = calls.iter().map(|c| c.name.len() + c.arguments.len()).sum();
        let written = written + text.len() + self.reasoning.len();
        let native = (!self.reasoning.is_empty())
            .then(|| json!({ "openai": model, self.reasoning_field: self.reasoning }));
        Ok(Reply {
            text,
            calls,
            finish,
            usage: self.usage.unwrap_or_else(|| Usage::estimate(size, written)),
            model: self.model,
            id: self.id,
            native,
        })
    }
}

impl Fold {
    fn choice(&mut self, choice: &Value) {
        let (part, origin) = match (&choice["delta"], &choice["message"]) {
            (Value::Object(_), _) | (_, Value::Null) => (&choice["delta"], Origin::Delta),
            (_, message) => (message, Origin::Whole),
        };
        push(&mut self.text, &part["content"]);
        push(&mut self.refusal, &part["refusal"]);
        let fields = ["reasoning_content", "reasoning"];
        if let Some(field) = fields.into_iter().find(|field| !part[*field].is_null()) {
            self.reasoning_field = field;
            push(&mut self.reasoning, &part[field]);
        }
        let calls = part["tool_calls"].as_array();
        for call in calls.into_iter().flatten() {
            self.calls.add(call, origin);
        }
        self.calls.add_legacy(&part["function_call"]);
        match choice["finish_reason"].as_str() {
            Some("") | None => {}
            Some(reason) => self.finish = Some(reason.to_owned()),
        }
    }
}

/// What a model of this name thought, kept by an earlier reply under this field.
pub fn reasoning<'a>(native: &'a Value, model: &str, field: &str) -> Option<&'a str> {
    (native["openai"] == model)
        .then(|| native[field].as_str())
        .flatten()
}

/// Appends a text, or the texts of an array of parts.
fn push(out: &mut String, content: &Value) {
    match content {
        Value::String(text) => out.push_str(text),
        Value::Array(parts) => {
            for part in parts {
                let text = part.as_str().or_else(|| part["text"].as_str());
                out.push_str(text.unwrap_or_default());
            }
        }
        _ => {}
    }
}

/// The figures of a usage object; None for none and for one that counts nothing.
fn usage(value: &Value) -> Option<Usage> {
    let count = |value: &Value| {
        let whole = value.as_u64();
        whole.or_else(|| value.as_f64().map(|float| float.max(0.0) as u64))
    };
    let input = count(&value["prompt_tokens"]).unwrap_or(0);
    let output = count(&value["completion_tokens"]).unwrap_or(0);
    let cached = count(&value["prompt_tokens_details"]["cached_tokens"])
        .or_else(|| count(&value["prompt_cache_hit_tokens"]))
        .unwrap_or(0);
    (input + output > 0).then_some(Usage {
        input: input.max(cached),
        output,
        cached,
        estimated: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stream::Fold as _;

    fn fold(chunks: &[&str]) -> Result<Reply, String> {
        let mut fold = Fold::default();
        for chunk in chunks {
            let value = match *chunk {
                "[DONE]" => Value::from("[DONE]"),
                text => serde_json::from_str(text).unwrap(),
            };
            fold.event(&value)?;
        }
        Box::new(fold).reply("m", &[], 400)
    }

    #[test]
    fn complete_only_by_finish_reason_or_done_after_content() {
        let hi = r#"{"choices":[{"delta":{"content":"hi"}}]}"#;
        let stop = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        let odd = r#"{"choices":[{"delta":{},"finish_reason":""}]}"#;
        assert!(fold(&[hi]).is_err());
        assert!(fold(&[hi, odd]).is_err());
        assert!(fold(&["[DONE]"]).is_err());
        assert_eq!(fold(&[hi, "[DONE]"]).unwrap().text, "hi");
        assert_eq!(fold(&[hi, stop]).unwrap().finish, Finish::Stop);
        assert_eq!(fold(&[stop]).unwrap().text, "");
        let half = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"com"}}]}}]}"#;
        assert!(fold(&[half, "[DONE]"]).is_err());
    }

    #[test]
    fn finish_reasons() {
        let with = |delta: &str, reason: &str| {
            let chunk = format!(
                r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":"{reason}"}}]}}"#
            );
            fold(&[&chunk]).unwrap()
        };
        let call =
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"bash","arguments":"{}"}}]}"#;
        assert_eq!(with(call, "stop").finish, Finish::Calls);
        assert_eq!(with(call, "length").finish, Finish::Length);
        assert_eq!(with(call, "tool_calls").finish, Finish::Calls);
        assert_eq!(
            with(r#"{"content":"x"}"#, "content_filter").finish,
            Finish::Filtered
        );
        assert_eq!(
            with(r#"{"content":"x"}"#, "odd").finish,
            Finish::Other("odd".into())
        );
        let refused = with(r#"{"content":null,"refusal":"I will not"}"#, "stop");
        assert_eq!(
            (refused.text.as_str(), refused.finish),
            ("I will not", Finish::Filtered)
        );
    }

    #[test]
    fn strange_deltas_two_choices_and_parts() {
        let reply = fold(&[
            r#"{"id":"x","model":"other","choices":[{"index":0,"delta":{"content":[{"type":"text","text":"a"}],"tool_calls":null,"function_call":null}},{"index":1,"delta":{"content":"SECOND"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"b","tool_calls":[]}}]}"#,
            r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"},{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}"#,
        ])
        .unwrap();
        assert_eq!((reply.text.as_str(), reply.finish), ("ab", Finish::Stop));
        assert_eq!(reply.model.as_deref(), Some("other"));
        let usage = Usage {
            input: 9,
            output: 3,
            cached: 4,
            estimated: false,
        };
        assert_eq!(reply.usage, usage);
    }

    #[test]
    fn missing_usage_is_estimated_and_says_so() {
        let usage =
            fold(&[r#"{"choices":[{"message":{"content":"12345678"},"finish_reason":"stop"}]}"#])
                .unwrap()
                .usage;
        assert_eq!(
            usage,
            Usage {
                input: 100,
                output: 2,
                cached: 0,
                estimated: true
            }
        );
    }
}
