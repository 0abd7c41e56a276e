//! Deltas, or one whole message, become a reply.

use serde_json::{Map, Value, json};

use super::super::meter::{Progress, Told};
use super::super::stream::{self, Stage};
use super::super::wire::Answer;
use super::super::{Finish, Message, Reply, Usage, ids, status};
use super::calls::{Calls, Origin};

/// The field of what was thought that is a list, and under which it is kept.
const DETAILS: &str = "reasoning_details";
/// Where what hangs on calls is kept, by id.
const EXTRAS: &str = "extra_content";
/// Fields of such a list's items that come in pieces.
const PIECES: [&str; 3] = ["text", "summary", "data"];
/// Characters of an answer that is none which its error shows.
const SHOWN: usize = 200;
/// Finish reasons of an answer that its limit cut.
const LENGTH: [&str; 8] = [
    "length",
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "max_length",
    "model_length",
    "model_context_window_exceeded",
    "token_limit",
];
/// Those of one that a filter stopped.
const FILTERED: [&str; 6] = [
    "content_filter",
    "safety",
    "recitation",
    "prohibited_content",
    "blocklist",
    "refusal",
];
/// Those of one that broke: whatever came of it is not the whole of it.
const BROKEN: [&str; 9] = [
    "error",
    "abort",
    "aborted",
    "cancelled",
    "canceled",
    "timeout",
    "network_error",
    "insufficient_system_resource",
    "malformed_function_call",
];

/// What was read of one answer.
#[derive(Debug, Default)]
pub struct Fold {
    text: String,
    refusal: String,
    reasoning: String,
    /// The field that the reasoning came in, and goes back in.
    reasoning_field: &'static str,
    /// OpenRouter's form of what was thought, signatures included.
    details: Vec<Value>,
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

    fn progress(&self) -> Progress {
        // Where both are given they say the same.
        let thought = match self.reasoning.len() {
            0 => self.details.iter().map(size).sum(),
            text => text,
        };
        let whole = self.done || self.finish.is_some();
        Progress {
            written: self.text.len() + self.refusal.len() + thought + self.calls.written(),
            told: self.usage.map(|usage| Told { usage, whole }),
        }
    }
}

impl Answer for Fold {
    fn whole(&mut self, value: &Value) -> Result<(), String> {
        if !value["choices"].is_array() {
            let shown = status::tame(&value.to_string(), SHOWN);
            return Err(format!("it holds no choices: {shown}"));
        }
        stream::Fold::event(self, value)
    }

    fn reply(
        self: Box<Self>,
        model: &str,
        earlier: &[Message],
        size: usize,
    ) -> Result<Reply, String> {
        let extras = self.calls.extras();
        let (mut calls, broken) = self.calls.whole();
        let refused = self.text.is_empty() && !self.refusal.is_empty();
        let text = if refused { self.refusal } else { self.text };
        if self.finish.is_none() && !(self.done && !(text.is_empty() && calls.is_empty())) {
            return Err("it ended before its finish reason".to_owned());
        }
        // Gateways hand other protocols' words on, some in capitals.
        let reason = self.finish.as_deref().map(str::to_lowercase);
        let finish = match reason.as_deref() {
            _ if refused => Finish::Filtered,
            None if broken => return Err("it ended inside a tool call".to_owned()),
            Some(word) if LENGTH.contains(&word) => Finish::Length,
            Some(word) if FILTERED.contains(&word) => Finish::Filtered,
            Some(word) if BROKEN.contains(&word) => return Err(format!("it ended as {word:?}")),
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
        let mut native = Map::new();
        if !self.reasoning.is_empty() {
            native.insert(self.reasoning_field.to_owned(), json!(self.reasoning));
        }
        if !self.details.is_empty() {
            native.insert(DETAILS.to_owned(), json!(self.details));
        }
        if !extras.is_empty() {
            let pairs = calls.iter().zip(extras);
            let hung: Map<String, Value> = pairs
                .filter_map(|(call, extra)| Some((call.id.clone(), extra?)))
                .collect();
            native.insert(EXTRAS.to_owned(), json!(hung));
        }
        if !native.is_empty() {
            native.insert("openai".to_owned(), json!(model));
        }
        let native = (!native.is_empty()).then_some(Value::Object(native));
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
        for detail in part[DETAILS].as_array().into_iter().flatten() {
            join(&mut self.details, detail);
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

/// Adds a piece of what was thought: to the last one where it goes on with it.
fn join(details: &mut Vec<Value>, piece: &Value) {
    let same = |last: &&mut Value| {
        let goes_on = ["type", "index"]
            .iter()
            .all(|key| last[*key] == piece[*key]);
        goes_on && !piece["index"].is_null()
    };
    let (Some(last), Some(fields)) = (details.last_mut().filter(same), piece.as_object()) else {
        details.push(piece.clone());
        return;
    };
    for (key, value) in fields {
        match (&mut last[key], value) {
            (_, Value::Null) => {}
            (Value::String(text), Value::String(more)) if PIECES.contains(&key.as_str()) => {
                text.push_str(more);
            }
            (place, value) => *place = value.clone(),
        }
    }
}

/// Bytes of a piece of what was thought.
fn size(detail: &Value) -> usize {
    let texts = PIECES.iter().filter_map(|key| detail[*key].as_str());
    texts.map(str::len).sum()
}

/// What hung on a call of a model of this name.
pub fn extra<'a>(native: &'a Value, model: &str, id: &str) -> Option<&'a Value> {
    (native["openai"] == model)
        .then(|| native[EXTRAS].get(id))
        .flatten()
}

/// What a model of this name thought, in the form of details.
pub fn details<'a>(native: &'a Value, model: &str) -> Option<&'a Value> {
    (native["openai"] == model)
        .then(|| native.get(DETAILS))
        .flatten()
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
    // Where the sum is larger than its parts, thinking was counted apart: it is billed as output.
    let sum = count(&value["total_tokens"]).unwrap_or(0);
    let output = output.max(sum.saturating_sub(input));
    Usage::told(input, output, cached)
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
        assert_eq!(with(call, "MAX_TOKENS").finish, Finish::Length);
        assert_eq!(
            with(r#"{"content":"x"}"#, "SAFETY").finish,
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
    fn what_ended_as_broken_is_no_answer_however_whole_its_calls_look() {
        let call =
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"bash","arguments":"{}"}}]}"#;
        for reason in ["error", "abort", "insufficient_system_resource"] {
            let chunk = format!(r#"{{"choices":[{{"delta":{call},"finish_reason":"{reason}"}}]}}"#);
            let error = fold(&[&chunk]).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn thinking_that_is_counted_apart_is_output_and_what_cannot_be_is_no_figure() {
        let of = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            usage(&value).map(|usage| (usage.input, usage.output, usage.cached))
        };
        let within = r#"{"prompt_tokens":10,"completion_tokens":30,"total_tokens":40,"completion_tokens_details":{"reasoning_tokens":20}}"#;
        assert_eq!(of(within), Some((10, 30, 0)));
        let apart = r#"{"prompt_tokens":10,"completion_tokens":30,"total_tokens":60,"completion_tokens_details":{"reasoning_tokens":20}}"#;
        assert_eq!(of(apart), Some((10, 50, 0)));
        for lie in [
            r#"{"prompt_tokens":18446744073709551615,"completion_tokens":1}"#,
            r#"{"prompt_tokens":1e300,"completion_tokens":1}"#,
            r#"{"prompt_tokens":1,"completion_tokens":-5,"total_tokens":1e12}"#,
            r#"{"prompt_tokens":-1,"completion_tokens":-1}"#,
            r#"{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":1000000}}"#,
            r#"{"prompt_tokens":100,"completion_tokens":5,"prompt_cache_hit_tokens":101}"#,
            r#"{"prompt_tokens":"9","completion_tokens":null}"#,
            "null",
        ] {
            assert_eq!(of(lie), None, "{lie}");
        }
    }

    #[test]
    fn details_of_thinking_come_together_and_signatures_stay_with_their_calls() {
        let reply = fold(&[
            r#"{"choices":[{"delta":{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","index":0,"text":"a","format":"f"}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","index":0,"text":"b","signature":null}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"signature":"c2ln"},{"type":"reasoning.encrypted","index":1,"data":"x"}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"bash","arguments":"{}"}},{"index":1,"id":"a","function":{"name":"bash","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        ])
        .unwrap();
        let native = reply.native.unwrap();
        let wanted = json!([
            {"type": "reasoning.text", "index": 0, "text": "ab", "format": "f", "signature": "c2ln"},
            {"type": "reasoning.encrypted", "index": 1, "data": "x"},
        ]);
        assert_eq!(details(&native, "m"), Some(&wanted));
        assert_eq!(details(&native, "other"), None);
        let (first, second) = (&reply.calls[0].id, &reply.calls[1].id);
        let signature = json!({"google": {"thought_signature": "s"}});
        assert_eq!(extra(&native, "m", first), Some(&signature));
        assert_eq!(extra(&native, "m", second), None);
        assert_eq!(extra(&native, "other", first), None);
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
    fn an_answer_without_choices_is_shown() {
        let odd = json!({"detail": "no such route"});
        let error = Fold::default().whole(&odd).unwrap_err();
        assert!(error.contains("no such route"), "{error}");
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
