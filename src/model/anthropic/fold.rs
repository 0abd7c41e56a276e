//! Events, or one whole message, become a reply.

use serde_json::{Map, Value, json};

use super::super::stream::{self, Stage};
use super::super::{Call, Finish, Message, Reply, Usage, ids};

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
}

impl Fold {
    /// Takes a message that was not streamed.
    pub fn whole(&mut self, message: &Value) -> Result<(), String> {
        let content = message["content"].as_array();
        let content = content.ok_or("the answer has no content")?;
        self.head(message);
        self.stopped(message);
        let blocks = (0..).zip(content);
        self.blocks = blocks
            .map(|(index, value)| Block::open(index, value))
            .collect::<Result<_, _>>()?;
        self.done = true;
        Ok(())
    }

    /// The whole reply of `model` to a request of `size` bytes in the conversation `earlier`.
    /// `Err` says why the answer is not whole.
    pub fn reply(self, model: &str, earlier: &[Message], size: usize) -> Result<Reply, String> {
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
        texts.map(str::len).sum::<usize>() + self.call().map_or(0, |c| c.arguments.len())
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
    let input = count("input_tokens") + cached + count("cache_creation_input_tokens");
    let output = count("output_tokens");
    (input + output > 0).then_some(Usage {
        input,
        output,
        cached,
        estimated: false,
    })
}
