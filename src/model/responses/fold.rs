//! Events, or one whole response, become a reply.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::meter::{Progress, Told};
use super::super::stream::{self, Stage};
use super::super::wire::Answer;
use super::super::{Call, Finish, Message, Reply, Usage, ids, outgoing};

/// What was read of one answer.
#[derive(Debug, Default)]
pub struct Fold {
    /// Items that are done, by their place.
    items: BTreeMap<u64, Value>,
    /// Text of servers that tell no items.
    text: String,
    /// The response as the event that ends it gives it.
    end: Option<Value>,
    /// Bytes of all pieces, and of the items that are done.
    pieces: usize,
    whole: usize,
}

impl stream::Fold for Fold {
    fn event(&mut self, event: &Value) -> Result<(), String> {
        let class = event["type"].as_str().unwrap_or_default();
        if class.ends_with(".delta") {
            self.pieces += event["delta"].as_str().map_or(0, str::len);
        }
        match class {
            "response.output_item.done" => {
                self.whole += event["item"].to_string().len();
                let next = self.items.keys().last().map_or(0, |last| last + 1);
                let at = event["output_index"].as_u64().unwrap_or(next);
                self.items.insert(at, event["item"].clone());
            }
            "response.output_text.delta" => {
                self.text.push_str(event["delta"].as_str().unwrap_or(""));
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                self.ended(&event["response"])?;
            }
            "response.failed" | "response.cancelled" => {
                return Err(format!("it ended as {}", event["type"]));
            }
            // Beginnings, pieces of what comes whole later, and what later versions add.
            _ => {}
        }
        Ok(())
    }

    fn stage(&self) -> Stage {
        match self.end {
            Some(_) => Stage::Done,
            None => Stage::Open,
        }
    }

    fn progress(&self) -> Progress {
        let usage = self.end.as_ref().and_then(|end| usage(&end["usage"]));
        Progress {
            // What came whole came in pieces before, except of servers that tell none.
            written: self.pieces.max(self.whole),
            told: usage.map(|usage| Told { usage, whole: true }),
        }
    }
}

impl Answer for Fold {
    fn whole(&mut self, value: &Value) -> Result<(), String> {
        self.ended(value)
    }

    fn reply(
        self: Box<Self>,
        model: &str,
        earlier: &[Message],
        size: usize,
    ) -> Result<Reply, String> {
        let Some(end) = &self.end else {
            return Err("it ended before response.completed".to_owned());
        };
        let items: Vec<Value> = match end["output"].as_array() {
            Some(output) if !output.is_empty() => output.clone(),
            _ => self.items.values().cloned().collect(),
        };
        let mut said = Said::default();
        items.iter().for_each(|item| said.take(item));
        if items.is_empty() {
            said.text.clone_from(&self.text);
        }
        let refused = said.text.is_empty() && !said.refusal.is_empty();
        let finish = match end["incomplete_details"]["reason"].as_str() {
            Some("content_filter") => Finish::Filtered,
            Some("max_output_tokens" | "max_tokens") => Finish::Length,
            Some(other) => Finish::Other(other.to_owned()),
            None if end["status"] == "incomplete" => Finish::Length,
            None if refused => Finish::Filtered,
            None if !said.calls.is_empty() => Finish::Calls,
            None => Finish::Stop,
        };
        let text = if refused { said.refusal } else { said.text };
        let renamed = ids::settle(&mut said.calls, earlier);
        let written: usize = items.iter().map(|item| item.to_string().len()).sum();
        let usage = usage(&end["usage"]);
        Ok(Reply {
            finish,
            usage: usage.unwrap_or_else(|| Usage::estimate(size, written.max(text.len()))),
            model: end["model"].as_str().map(str::to_owned),
            id: end["id"].as_str().map(str::to_owned),
            native: native(items, model).filter(|_| !renamed),
            calls: said.calls,
            text,
        })
    }
}

impl Fold {
    fn ended(&mut self, response: &Value) -> Result<(), String> {
        match response["status"].as_str() {
            Some("completed" | "incomplete") => {}
            // Servers that copy the wire leave the word out of an answer that is there.
            None if response["output"].is_array() => {}
            status => return Err(format!("its status is {}", status.unwrap_or("not told"))),
        }
        self.end = Some(response.clone());
        Ok(())
    }
}

/// What the items say.
#[derive(Default)]
struct Said {
    text: String,
    refusal: String,
    calls: Vec<Call>,
}

impl Said {
    fn take(&mut self, item: &Value) {
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                for part in item["content"].as_array().into_iter().flatten() {
                    self.text.push_str(part["text"].as_str().unwrap_or(""));
                    self.refusal
                        .push_str(part["refusal"].as_str().unwrap_or(""));
                }
            }
            "function_call" => {
                let named = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
                self.calls.push(Call {
                    id: named("call_id"),
                    name: named("name"),
                    arguments: arguments(&item["arguments"]),
                });
            }
            _ => {}
        }
    }
}

fn arguments(value: &Value) -> String {
    match value {
        Value::Null => "{}".to_owned(),
        Value::String(text) if matches!(text.trim(), "" | "null") => "{}".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The items as they came, where a thought stands among them that can go back.
fn native(items: Vec<Value>, model: &str) -> Option<Value> {
    let thought = |item: &Value| item["type"] == "reasoning";
    // Nothing is stored at the server: a thought without its encrypted content is a name for nothing.
    let whole = |item: &Value| {
        item["encrypted_content"]
            .as_str()
            .is_some_and(|t| !t.is_empty())
    };
    let thoughts = || items.iter().filter(|item| thought(item));
    // Arguments that are no object were never run; they go back in a form that can be read.
    let sound = |item: &Value| {
        item["type"] != "function_call" || outgoing::is_object(&arguments(&item["arguments"]))
    };
    (thoughts().next().is_some() && thoughts().all(whole) && items.iter().all(sound))
        .then(|| json!({ "responses": model, "items": items }))
}

/// The items kept by an earlier reply, if it was this model's and has just these calls.
pub fn verbatim<'a>(native: &'a Value, model: &str, calls: &[Call]) -> Option<&'a [Value]> {
    if native["responses"] != model {
        return None;
    }
    let items = native["items"].as_array()?;
    let made = items.iter().filter(|item| item["type"] == "function_call");
    let same = |(item, call): (&Value, &Call)| {
        item["call_id"] == call.id.as_str() && item["name"] == call.name.as_str()
    };
    let all = made.clone().count() == calls.len() && made.zip(calls).all(same);
    all.then_some(items)
}

fn usage(value: &Value) -> Option<Usage> {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let input = count(&value["input_tokens"]);
    let output = count(&value["output_tokens"]);
    let cached = count(&value["input_tokens_details"]["cached_tokens"]);
    Usage::told(input, output, cached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_from_the_cache_than_was_read_is_no_figure() {
        let of = |cached: u64| {
            usage(&json!({"input_tokens": 100, "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": cached}}))
        };
        assert_eq!(
            of(100).map(|usage| (usage.input, usage.cached)),
            Some((100, 100))
        );
        assert_eq!(of(101), None);
        assert_eq!(of(1_000_000), None);
    }
    use crate::model::stream::Fold as _;

    fn fold(events: &[Value]) -> Result<Reply, String> {
        let mut fold = Fold::default();
        events.iter().try_for_each(|event| fold.event(event))?;
        Box::new(fold).reply("m", &[], 400)
    }

    fn done(at: u64, item: &Value) -> Value {
        json!({"type": "response.output_item.done", "output_index": at, "item": item})
    }

    fn thought() -> Value {
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA=="})
    }

    fn call() -> Value {
        json!({"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "bash", "arguments": "{\"command\":\"ls\"}", "status": "completed"})
    }

    fn completed(output: &Value) -> Value {
        json!({"type": "response.completed", "response": {"id": "resp_1", "model": "m-1", "status": "completed", "error": null, "output": output,
            "usage": {"input_tokens": 90, "output_tokens": 30, "input_tokens_details": {"cached_tokens": 64}}}})
    }

    #[test]
    fn items_go_back_as_they_came_and_only_to_their_model() {
        let reply = fold(&[
            done(0, &thought()),
            done(1, &call()),
            completed(&json!([thought(), call()])),
        ])
        .unwrap();
        assert_eq!(reply.finish, Finish::Calls);
        assert_eq!(reply.calls[0].id, "call_a");
        assert_eq!(
            (reply.usage.input, reply.usage.output, reply.usage.cached),
            (90, 30, 64)
        );
        let native = reply.native.unwrap();
        assert_eq!(
            verbatim(&native, "m", &reply.calls),
            Some(&[thought(), call()][..])
        );
        assert_eq!(verbatim(&native, "other", &reply.calls), None);
        assert_eq!(verbatim(&native, "m", &[]), None);
    }

    #[test]
    fn thoughts_that_name_nothing_stay_behind() {
        let bare = json!({"type": "reasoning", "id": "rs_1", "summary": []});
        let reply = fold(&[completed(&json!([bare, call()]))]).unwrap();
        assert_eq!((reply.native, reply.calls.len()), (None, 1));
    }

    #[test]
    fn broken_arguments_are_not_sent_back() {
        let mut half = call();
        half["arguments"] = json!("{\"command\": \"l");
        let reply = fold(&[completed(&json!([thought(), half]))]).unwrap();
        assert_eq!(reply.calls[0].arguments, "{\"command\": \"l");
        assert_eq!(reply.native, None);
    }

    #[test]
    fn only_the_end_makes_it_whole() {
        let events = [
            json!({"type": "response.created", "response": {"status": "in_progress", "error": null}}),
            done(0, &call()),
            json!({"type": "response.in_progress", "response": {"status": "in_progress"}}),
        ];
        for cut in 0..=events.len() {
            assert!(fold(&events[..cut]).is_err(), "cut at {cut}");
        }
        let failed = json!({"type": "response.failed", "response": {"status": "failed"}});
        assert!(fold(&[done(0, &call()), failed]).is_err());
        // The last event of some servers has no output of its own.
        let reply = fold(&[done(0, &call()), completed(&json!([]))]).unwrap();
        assert_eq!(reply.calls.len(), 1);
    }

    #[test]
    fn what_was_cut_or_filtered_says_so() {
        let incomplete = |reason: &str| json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": reason}, "output": [call()]}});
        let finish = |reason| fold(&[incomplete(reason)]).unwrap().finish;
        assert_eq!(finish("max_output_tokens"), Finish::Length);
        assert_eq!(finish("content_filter"), Finish::Filtered);
        let refusal =
            json!([{"type": "message", "content": [{"type": "refusal", "refusal": "I will not"}]}]);
        let reply = fold(&[completed(&refusal)]).unwrap();
        assert_eq!(
            (reply.text.as_str(), reply.finish),
            ("I will not", Finish::Filtered)
        );
    }

    #[test]
    fn a_response_in_one_piece() {
        let mut whole = Fold::default();
        let text = json!([{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]);
        Answer::whole(&mut whole, &completed(&text)["response"]).unwrap();
        let reply = Box::new(whole).reply("m", &[], 4).unwrap();
        assert_eq!((reply.text.as_str(), reply.finish), ("hi", Finish::Stop));
        assert!(Answer::whole(&mut Fold::default(), &json!({"status": "queued"})).is_err());
        assert!(Answer::whole(&mut Fold::default(), &json!({})).is_err());
    }
}
