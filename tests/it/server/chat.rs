//! Chat completions as the scripted server speaks them, and the rules of the strictest such server.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Ask, Said, is_fit};

/// A message with everything a real server gives beside it.
pub struct Written {
    head: Value,
    text: String,
    calls: Vec<Value>,
    finish: String,
    usage: Value,
}

impl Written {
    pub fn new(ask: &Ask, said: Said) -> Self {
        let number = ask.number;
        let (input, output) = said.tokens(ask);
        let Said {
            text,
            calls,
            finish,
            ..
        } = said;
        let calls: Vec<Value> = calls.into_iter().enumerate().map(|(at, (name, arguments))| {
            let arguments = match arguments {
                Value::String(text) => text,
                other => other.to_string(),
            };
            json!({"id": format!("call_{number}_{at}"), "type": "function", "function": {"name": name, "arguments": arguments}})
        }).collect();
        Self {
            head: json!({"id": format!("chatcmpl-{number}"), "created": 1, "model": ask.body["model"]}),
            finish: finish.unwrap_or_else(|| {
                if calls.is_empty() {
                    "stop"
                } else {
                    "tool_calls"
                }
                .to_owned()
            }),
            usage: json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}),
            text,
            calls,
        }
    }

    fn with(&self, object: &str, more: &Value) -> Value {
        let mut out = self.head.clone();
        out["object"] = object.into();
        for (key, value) in more.as_object().unwrap() {
            out[key] = value.clone();
        }
        out
    }

    pub fn plain(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": if self.text.is_empty() { Value::Null } else { json!(self.text) }});
        if !self.calls.is_empty() {
            message["tool_calls"] = json!(self.calls);
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": self.finish});
        self.with(
            "chat.completion",
            &json!({"choices": [choice], "usage": self.usage}),
        )
    }

    pub fn events(&self, ask: &Ask) -> Vec<String> {
        let mut deltas = vec![json!({"role": "assistant", "content": ""})];
        if !self.text.is_empty() {
            deltas.push(json!({"content": self.text}));
        }
        for (index, call) in self.calls.iter().enumerate() {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            let middle = (arguments.len() / 2..=arguments.len())
                .find(|&at| arguments.is_char_boundary(at))
                .unwrap();
            let (head, tail) = arguments.split_at(middle);
            let mut begun = call.clone();
            begun["index"] = json!(index);
            begun["function"]["arguments"] = json!("");
            deltas.push(json!({"tool_calls": [begun]}));
            for piece in [head, tail] {
                deltas.push(
                    json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
                );
            }
        }
        let chunk =
            |choices: Value| self.with("chat.completion.chunk", &json!({"choices": choices}));
        let mut out: Vec<Value> = deltas
            .into_iter()
            .map(|delta| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])))
            .collect();
        out.push(chunk(
            json!([{"index": 0, "delta": {}, "finish_reason": self.finish}]),
        ));
        if ask.body["stream_options"]["include_usage"] == true {
            out.push(self.with(
                "chat.completion.chunk",
                &json!({"choices": [], "usage": self.usage}),
            ));
        }
        let mut out: Vec<String> = out
            .into_iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect();
        out.push("data: [DONE]\n\n".to_owned());
        out
    }
}

/// Every rule of the strictest servers that `body` breaks.
pub fn violations(body: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for tool in body["tools"].as_array().into_iter().flatten() {
        if !is_fit(&tool["function"]["name"]) || tool["type"] != "function" {
            wrong.push(format!("tool {} is malformed", tool["function"]["name"]));
        }
        if !tool["function"]["parameters"].is_object() {
            wrong.push(format!("tool {} has no schema", tool["function"]["name"]));
        }
    }
    if body["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty())
        && body["tool_choice"] != "auto"
    {
        wrong.push("tools without tool_choice".to_owned());
    }
    let limit = [&body["max_tokens"], &body["max_completion_tokens"]];
    if !limit.iter().any(|limit| limit.as_u64().is_some()) {
        wrong.push("no reply limit".to_owned());
    }
    let none = vec![];
    let mut order = Order::default();
    for (at, message) in body["messages"]
        .as_array()
        .unwrap_or(&none)
        .iter()
        .enumerate()
    {
        if let Err(what) = order.take(at, message) {
            wrong.push(format!("message {at}: {what}"));
        }
    }
    if !order.open.is_empty() {
        wrong.push(format!("calls without a result: {:?}", order.open));
    }
    if !matches!(order.last.as_str(), "user" | "tool") {
        wrong.push(format!("the last message is of {:?}", order.last));
    }
    wrong
}

/// Reads messages in order and says what is out of it.
#[derive(Default)]
struct Order {
    last: String,
    open: Vec<String>,
    ids: HashSet<String>,
}

impl Order {
    fn take(&mut self, at: usize, message: &Value) -> Result<(), String> {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        let last = std::mem::replace(&mut self.last, role.clone());
        if message["content"]
            .as_array()
            .is_some_and(|parts| parts.iter().any(|p| p["text"] == ""))
        {
            return Err("an empty text part".to_owned());
        }
        if role != "tool" && !self.open.is_empty() {
            return Err(format!(
                "calls without a result: {:?}",
                std::mem::take(&mut self.open)
            ));
        }
        let text = message["content"].as_str().unwrap_or_default();
        match role.as_str() {
            "system" if at != 0 => Err("a late system message".to_owned()),
            "user" if last == "user" => Err("two user messages in a row".to_owned()),
            "system" | "user" if text.trim().is_empty() => Err("an empty message".to_owned()),
            "system" | "user" => Ok(()),
            "assistant" if !matches!(last.as_str(), "user" | "tool") => {
                Err("it answers nothing".to_owned())
            }
            "assistant" => self.calls(message, text),
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let place = self.open.iter().position(|open| open == id);
                self.open
                    .remove(place.ok_or(format!("result {id:?} has no open call"))?);
                message["content"]
                    .is_string()
                    .then_some(())
                    .ok_or("a result without text".to_owned())
            }
            other => Err(format!("role {other:?}")),
        }
    }

    fn calls(&mut self, message: &Value, text: &str) -> Result<(), String> {
        let none = vec![];
        let calls = message["tool_calls"].as_array().unwrap_or(&none);
        if calls.is_empty() && text.trim().is_empty() {
            return Err("an empty assistant message".to_owned());
        }
        if message["tool_calls"] == json!([]) {
            return Err("an empty list of calls".to_owned());
        }
        for call in calls {
            let id = call["id"].as_str().unwrap_or_default();
            if id.is_empty() || !self.ids.insert(id.to_owned()) {
                return Err(format!("call id {} is missing or stands twice", call["id"]));
            }
            self.open.push(id.to_owned());
            if !is_fit(&call["function"]["name"]) || call["type"] != "function" {
                return Err(format!("call name {}", call["function"]["name"]));
            }
            let arguments = call["function"]["arguments"]
                .as_str()
                .ok_or("arguments are no string")?;
            let parsed: Result<Value, _> = serde_json::from_str(arguments);
            if !parsed.is_ok_and(|value| value.is_object()) {
                return Err(format!("arguments are no object: {arguments}"));
            }
        }
        Ok(())
    }
}
