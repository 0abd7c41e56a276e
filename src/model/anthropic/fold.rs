//! Events, or one whole message, become a reply.

use serde_json::{Map, Value, json};

use super::super::meter::{Progress, Told};
use super::super::stream::{self, Stage};
use super::super::wire::Answer;
use super::super::{Call, Finish, Message, Reply, Usage, ids, status};

/// Characters of an answer that is none which its error shows.
const SHOWN: usize = 200;

/// What was read of one answer.
#[derive(Debug, Default)]
pub struct Fold {
    id: Option<String>,
    model: Option<String>,
    blocks: Vec<Block>,
    stop: Option<String>,
    usage: Map<String, Value>,
    /// `message_stop` came.
    done: bool,
}

/// One block as it came, and what its deltas add.
#[derive(Debug)]
struct Block {
    index: u64,
    value: Value,
    /// The pieces of a call's input.
    input: String,
    /// Something was added that we cannot add: the block is no longer what the server wrote.
    altered: bool,
}

impl stream::Fold for Fold {
    fn event(&mut self, event: &Value) -> Result<(), String> {
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.head(&event["message"]),
            "content_block_start" => {
                let index = event["index"].as_u64().unwrap_or(self.blocks.len() as u64);
                self.blocks
                    .push(Block::open(index, &event["content_block"])?);
            }
            "content_block_delta" => {
                let index = event["index"].as_u64();
                let found = match index {
                    Some(index) => self.blocks.iter_mut().rfind(|b| b.index == index),
                    None => self.blocks.last_mut(),
                };
                let block = found.ok_or("a delta belongs to no block")?;
                block.add(&event["delta"]);
            }
            "message_delta" => {
                self.stopped(&event["delta"]);
                self.count(&event["usage"]);
            }
            "message_stop" => self.done = true,
            // Pings, ends of blocks, and what later versions add.
            _ => {}
        }
        Ok(())
    }

    fn stage(&self) -> Stage {
        if self.done { Stage::Done } else { Stage::Open }
    }

    fn progress(&self) -> Progress {
        // The first event counts what was read, the last one what was written.
        let whole = self.stop.is_some();
        Progress {
            written: self.blocks.iter().map(Block::size).sum(),
            told: usage(&self.usage).map(|usage| Told { usage, whole }),
        }
    }
}

impl Answer for Fold {
    fn whole(&mut self, message: &Value) -> Result<(), String> {
        let content = message["content"].as_array();
        let content = content.ok_or_else(|| {
            let shown = status::tame(&message.to_string(), SHOWN);
            format!("it has no content: {shown}")
        })?;
        self.head(message);
        self.stopped(message);
        let blocks = (0..).zip(content);
        self.blocks = blocks
            .map(|(index, value)| Block::open(index, value))
            .collect::<Result<_, _>>()?;
        self.done = true;
        Ok(())
    }

    fn reply(
        self: Box<Self>,
        model: &str,
        earlier: &[Message],
        size: usize,
    ) -> Result<Reply, String> {
        let (true, Some(stop)) = (self.done, self.stop.as_deref()) else {
            return Err("it ended before message_stop".to_owned());
        };
        let text: String = self.blocks.iter().filter_map(Block::text).collect();
        let mut calls: Vec<Call> = self.blocks.iter().filter_map(Block::call).collect();
        let finish = match stop {
            "max_tokens" | "model_context_window_exceeded" => Finish::Length,
            "refusal" => Finish::Filtered,
            _ if !calls.is_empty() => Finish::Calls,
            "end_turn" | "stop_sequence" | "tool_use" => Finish::Stop,
            other => Finish::Other(other.to_owned()),
        };
        let renamed = ids::settle(&mut calls, earlier);
        let written: usize = self.blocks.iter().map(Block::size).sum();
        let usage = usage(&self.usage).unwrap_or_else(|| Usage::estimate(size, written));
        let native = native(self.blocks, model).filter(|_| !renamed);
        Ok(Reply {
            text,
            calls,
            finish,
            usage,
            model: self.model,
            id: self.id,
            native,
        })
    }
}

impl Fold {
    fn head(&mut self, message: &Value) {
        self.id = message["id"].as_str().map(str::to_owned);
        self.model = message["model"].as_str().map(str::to_owned);
        self.count(&message["usage"]);
    }

    fn stopped(&mut self, delta: &Value) {
        if let Some(reason) = delta["stop_reason"].as_str().filter(|r| !r.is_empty()) {
            self.stop = Some(reason.to_owned());
        }
    }

    /// Later figures stand for the whole answer, but a zero takes nothing back.
    fn count(&mut self, usage: &Value) {
        for (key, value) in usage.as_object().into_iter().flatten() {
            if value.as_u64().is_some_and(|count| count > 0) {
                self.usage.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The blocks as they came; only where something stands in them that text and calls do not say.
fn native(blocks: Vec<Block>, model: &str) -> Option<Value> {
    let plain = |block: &Block| matches!(block.class(), "text" | "tool_use");
    if blocks.iter().all(plain) {
        return None;
    }
    let kept = blocks.into_iter().filter(|block| !block.is_blank());
    let content = kept.map(Block::verbatim).collect::<Option<Vec<_>>>()?;
    Some(json!({ "anthropic": model, "content": content }))
}

impl Block {
    fn open(index: u64, value: &Value) -> Result<Self, String> {
        if !value.is_object() {
            return Err("a block is no object".to_owned());
        }
        Ok(Self {
            index,
            value: value.clone(),
            input: String::new(),
            altered: false,
        })
    }

    fn class(&self) -> &str {
        self.value["type"].as_str().unwrap_or_default()
    }

    fn text(&self) -> Option<&str> {
        (self.class() == "text")
            .then(|| self.value["text"].as_str())
            .flatten()
    }

    /// An empty text: no server takes it back.
    fn is_blank(&self) -> bool {
        self.text().is_some_and(|text| text.trim().is_empty())
    }

    fn call(&self) -> Option<Call> {
        if self.class() != "tool_use" {
            return None;
        }
        let named = |key: &str| self.value[key].as_str().unwrap_or_default().to_owned();
        let arguments = match (self.input.trim(), &self.value["input"]) {
            ("" | "null", Value::Null) => "{}".to_owned(),
            ("" | "null", given) => given.to_string(),
            _ => self.input.clone(),
        };
        Some(Call {
            id: named("id"),
            name: named("name"),
            arguments,
        })
    }

    fn size(&self) -> usize {
        let fields = ["text", "thinking", "data"];
        let texts = fields.iter().filter_map(|key| self.value[key].as_str());
        let input = match (self.class(), self.input.len(), &self.value["input"]) {
            ("tool_use", 0, given) if !given.is_null() => given.to_string().len(),
            (_, pieces, _) => pieces,
        };
        texts.map(str::len).sum::<usize>() + input
    }

    fn add(&mut self, delta: &Value) {
        let field = match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "signature_delta" => "signature",
            "input_json_delta" => {
                let piece = delta["partial_json"].as_str();
                self.input.push_str(piece.unwrap_or_default());
                return;
            }
            "citations_delta" => {
                match &mut self.value["citations"] {
                    Value::Array(all) => all.push(delta["citation"].clone()),
                    none => *none = json!([delta["citation"]]),
                }
                return;
            }
            _ => {
                self.altered = true;
                return;
            }
        };
        let piece = delta[field].as_str().unwrap_or_default();
        match &mut self.value[field] {
            Value::String(text) => text.push_str(piece),
            none => *none = json!(piece),
        }
    }

    /// The block whole; None when it cannot be sent back as it was.
    fn verbatim(mut self) -> Option<Value> {
        if !self.input.trim().is_empty() {
            let input: Value = serde_json::from_str(&self.input).ok()?;
            self.value["input"] = Some(input).filter(Value::is_object)?;
        }
        (!self.altered).then_some(self.value)
    }
}

/// The blocks kept by an earlier reply, if it was this model's and has just these calls.
pub fn verbatim<'a>(native: &'a Value, model: &str, calls: &[Call]) -> Option<&'a [Value]> {
    if native["anthropic"] != model {
        return None;
    }
    let blocks = native["content"].as_array()?;
    let uses = blocks.iter().filter(|block| block["type"] == "tool_use");
    let same = |(block, call): (&Value, &Call)| {
        block["id"] == call.id.as_str() && block["name"] == call.name.as_str()
    };
    let all = uses.clone().count() == calls.len() && uses.zip(calls).all(same);
    all.then_some(blocks)
}

/// Anthropic counts cached input apart; ours includes it.
fn usage(map: &Map<String, Value>) -> Option<Usage> {
    let count = |key: &str| map.get(key).and_then(Value::as_u64).unwrap_or(0);
    let cached = count("cache_read_input_tokens");
    let written = count("cache_creation_input_tokens");
    let input = count("input_tokens")
        .saturating_add(cached)
        .saturating_add(written);
    Usage::told(input, count("output_tokens"), cached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stream::Fold as _;

    fn fold(events: &[Value]) -> Result<Reply, String> {
        let mut fold = Fold::default();
        events.iter().try_for_each(|event| fold.event(event))?;
        Box::new(fold).reply("m", &[], 400)
    }

    fn start(usage: &Value) -> Value {
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "content": [], "usage": usage}})
    }

    fn block(index: u64, value: &Value) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": value})
    }

    fn delta(index: u64, delta: &Value) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    fn end(reason: &str, usage: &Value) -> [Value; 2] {
        let delta =
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage});
        [delta, json!({"type": "message_stop"})]
    }

    fn thought_and_call(input: &str) -> Vec<Value> {
        let mut events = vec![
            start(
                &json!({"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1}),
            ),
            block(
                0,
                &json!({"type": "thinking", "thinking": "", "signature": ""}),
            ),
            delta(
                0,
                &json!({"type": "thinking_delta", "thinking": "a <b> & \u{2028} c  "}),
            ),
            json!({"type": "ping"}),
            delta(0, &json!({"type": "signature_delta", "signature": "c2ln"})),
            json!({"type": "content_block_stop", "index": 0}),
            block(1, &json!({"type": "text", "text": ""})),
            block(2, &json!({"type": "redacted_thinking", "data": "xyz=="})),
            block(
                3,
                &json!({"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}),
            ),
            delta(
                3,
                &json!({"type": "input_json_delta", "partial_json": input}),
            ),
        ];
        events.extend(end("tool_use", &json!({"output_tokens": 42})));
        events
    }

    #[test]
    fn blocks_go_back_as_they_came_and_only_to_their_model() {
        let reply = fold(&thought_and_call(r#"{"command": "ls"}"#)).unwrap();
        let native = reply.native.unwrap();
        let wanted = json!([
            {"type": "thinking", "thinking": "a <b> & \u{2028} c  ", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "xyz=="},
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
        ]);
        assert_eq!(
            verbatim(&native, "m", &reply.calls).map(|b| json!(b)),
            Some(wanted)
        );
        assert_eq!(verbatim(&native, "other", &reply.calls), None);
        assert_eq!(verbatim(&native, "m", &[]), None);
    }

    #[test]
    fn cached_input_stands_beside_the_rest_and_may_be_the_larger() {
        let told = json!({"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 5000});
        let told = usage(told.as_object().unwrap()).unwrap();
        assert_eq!(
            (told.input, told.cached, told.estimated),
            (5001, 5000, false)
        );
    }

    #[test]
    fn usage_is_merged_and_counts_the_cache() {
        let usage = fold(&thought_and_call("{}")).unwrap().usage;
        assert_eq!(
            usage,
            Usage {
                input: 115,
                output: 42,
                cached: 100,
                estimated: false
            }
        );
        let mut late = vec![
            start(&json!({"input_tokens": 0, "output_tokens": 0})),
            block(0, &json!({"type": "text", "text": "hi"})),
        ];
        late.extend(end(
            "end_turn",
            &json!({"input_tokens": 7, "output_tokens": 3}),
        ));
        let reply = fold(&late).unwrap();
        assert_eq!((reply.usage.input, reply.usage.output), (7, 3));
        assert_eq!(
            (reply.text.as_str(), reply.finish, reply.native),
            ("hi", Finish::Stop, None)
        );
    }

    #[test]
    fn a_stream_without_its_end_is_not_whole() {
        let events = thought_and_call(r#"{"command": "ls"}"#);
        for cut in 0..events.len() {
            assert!(fold(&events[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn broken_input_stays_as_written_and_is_not_sent_back() {
        let reply = fold(&thought_and_call(r#"{"command": "l"#)).unwrap();
        assert_eq!(reply.calls[0].arguments, r#"{"command": "l"#);
        assert_eq!(reply.native, None);
        assert!(fold(&[block(0, &json!("no object"))]).is_err());
        assert!(fold(&[delta(0, &json!({}))]).is_err());
    }

    #[test]
    fn length_stops_and_whole_messages() {
        let mut events = thought_and_call("{}");
        events[10]["delta"]["stop_reason"] = json!("max_tokens");
        assert_eq!(fold(&events).unwrap().finish, Finish::Length);
        let mut whole = Fold::default();
        let message = json!({"content": [{"type": "tool_use", "id": "t", "name": "bash", "input": null}], "stop_reason": "tool_use", "usage": {}});
        whole.whole(&message).unwrap();
        let reply = Box::new(whole).reply("m", &[], 4).unwrap();
        assert_eq!(
            (reply.calls[0].arguments.as_str(), reply.usage.estimated),
            ("{}", true)
        );
        assert!(Fold::default().whole(&json!({"content": null})).is_err());
    }
}
