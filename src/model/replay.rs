//! Answers recorded earlier, given again by the place of the call in its run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{About, Call, Error, Finish, Key, Model, Price, Reply, Request, Usage, ids, outgoing};

/// Tokens a recording pretends to hold: what was answered once fitted.
const CONTEXT_WINDOW: u64 = 128_000;

/// The answers of one file, by key.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    file: String,
    answers: BTreeMap<Key, Answer>,
    price: Option<Price>,
}

#[derive(Clone, Debug)]
struct Answer {
    reply: Reply,
    latency: Duration,
    /// The hash of the request it answered; only told, never looked up by.
    request_hash: Option<String>,
}

/// One line of a cassette.
#[derive(Deserialize)]
struct Line {
    key: Key,
    reply: Value,
    #[serde(default)]
    latency_ms: u64,
    #[serde(default)]
    request_hash: Option<String>,
}

impl Recording {
    /// Reads a cassette (a JSON object a line: `key`, `reply`, optionally `request_hash` and
    /// `latency_ms`; a line with only `price` prices them all) or a run's journal.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| setup(&file, format!("cannot be read: {error}")))?;
        Self::parse(&file, &text)
    }

    /// `load` without the file. Of two answers to one key the later counts: a resumed run asks again.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let mut out = Self {
            file: file.to_owned(),
            ..Self::default()
        };
        let mut lines = text.split_inclusive('\n').enumerate().peekable();
        while let Some((at, line)) = lines.next() {
            if line.trim().is_empty() {
                continue;
            }
            // A run that died may have left half a line, and only at the end.
            let torn = lines.peek().is_none() && !line.ends_with('\n');
            match serde_json::from_str(line) {
                Ok(value) => out
                    .take(value)
                    .map_err(|what| setup(file, format!("line {}: {what}", at + 1)))?,
                Err(_) if torn && !out.answers.is_empty() => {}
                Err(error) => return Err(setup(file, format!("line {}: {error}", at + 1))),
            }
        }
        if out.answers.is_empty() {
            return Err(setup(file, "holds no answer".to_owned()));
        }
        Ok(out)
    }

    /// How many answers it holds.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// True when it holds none.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// The hash of the request that `key` answered, where the recording has it.
    pub fn recorded_hash(&self, key: &Key) -> Option<&str> {
        self.answers.get(key)?.request_hash.as_deref()
    }

    fn take(&mut self, line: Value) -> Result<(), String> {
        if line.get("type").is_some() {
            return self.take_event(&line);
        }
        if let (Some(price), None) = (line.get("price"), line.get("key")) {
            let price = Price::deserialize(price).map_err(|error| format!("price: {error}"))?;
            self.price = Some(price);
            return Ok(());
        }
        let line = Line::deserialize(&line).map_err(|error| error.to_string())?;
        let answer = Answer {
            reply: reply(&line.reply)?,
            latency: Duration::from_millis(line.latency_ms),
            request_hash: line.request_hash,
        };
        self.answers.insert(line.key, answer);
        Ok(())
    }

    /// A journal's line; only answers count.
    fn take_event(&mut self, line: &Value) -> Result<(), String> {
        if line["type"] != "model_answered" {
            return Ok(());
        }
        let mut key = line["agent"].clone();
        if let Value::Object(agent) = &mut key {
            agent.insert("call".to_owned(), line["call"].clone());
        }
        let key = Key::deserialize(&key).map_err(|error| error.to_string())?;
        let answer = Answer {
            reply: reply(&line["reply"])?,
            latency: Duration::ZERO,
            request_hash: None,
        };
        self.answers.insert(key, answer);
        Ok(())
    }
}

/// A recording as a model.
pub struct Replay {
    recording: Recording,
}

impl Replay {
    /// Answers from `recording`.
    pub fn new(recording: Recording) -> Self {
        Self { recording }
    }

    async fn answer(&self, request: &Request) -> Result<Reply, Error> {
        outgoing::prepare(request)?;
        let Some(answer) = self.recording.answers.get(&request.key) else {
            return Err(Error::NotRecorded {
                file: self.recording.file.clone(),
                key: request.key.to_string(),
            });
        };
        if let Some(recorded) = &answer.request_hash {
            let now = request_hash(request);
            if *recorded != now {
                tracing::debug!(key = %request.key, %recorded, %now, "the request differs from the recorded one");
            }
        }
        if !answer.latency.is_zero() {
            tokio::time::sleep(answer.latency).await;
        }
        let mut reply = answer.reply.clone();
        if ids::settle(&mut reply.calls, &request.messages) {
            // Its verbatim blocks name the calls by their old ids.
            reply.native = None;
        }
        Ok(reply)
    }
}

impl Model for Replay {
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(self.answer(request))
    }

    fn about(&self) -> About {
        About {
            name: format!("replay:{}", self.recording.file),
            provider: "replay".to_owned(),
            host: None,
            port: None,
            context_window: CONTEXT_WINDOW,
            price: self.recording.price,
        }
    }
}

/// One line of a cassette, without its newline.
pub fn cassette_line(key: &Key, request_hash: Option<&str>, reply: &Value) -> String {
    let mut line = json!({ "key": key, "reply": reply });
    if let Some(hash) = request_hash {
        line["request_hash"] = json!(hash);
    }
    line.to_string()
}

/// The SHA-256 of a request's messages and tools in one written form, as 64 hex digits.
pub fn request_hash(request: &Request) -> String {
    let written = json!({ "messages": request.messages, "tools": request.tools });
    let digest = Sha256::digest(written.to_string().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "call {} of {} ({}) in round {}",
            self.call, self.subtask, self.role, self.round
        )
    }
}

/// A recorded reply; one written by hand may leave out ids, usage and finish, and have arguments as
/// an object.
fn reply(value: &Value) -> Result<Reply, String> {
    if let Ok(whole) = Reply::deserialize(value) {
        return Ok(whole);
    }
    let fields = value.as_object().ok_or("the reply is no object")?;
    let known = ["text", "calls", "finish", "usage", "model", "id", "native"];
    if let Some(other) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("the reply has an unknown key {other:?}"));
    }
    let text = match &value["text"] {
        Value::Null => String::new(),
        text => text
            .as_str()
            .ok_or("the reply's text is no string")?
            .to_owned(),
    };
    let calls = match &value["calls"] {
        Value::Null => Vec::new(),
        calls => {
            let calls = calls.as_array().ok_or("the reply's calls are no list")?;
            calls.iter().map(call).collect::<Result<_, _>>()?
        }
    };
    let finish = match &value["finish"] {
        Value::Null if calls.is_empty() => Finish::Stop,
        Value::Null => Finish::Calls,
        finish => Finish::deserialize(finish).map_err(|error| format!("finish: {error}"))?,
    };
    let usage = match &value["usage"] {
        Value::Null => Usage::estimate(0, value.to_string().len()),
        usage => Usage::deserialize(usage).map_err(|error| format!("usage: {error}"))?,
    };
    Ok(Reply {
        text,
        calls,
        finish,
        usage,
        model: value["model"].as_str().map(str::to_owned),
        id: value["id"].as_str().map(str::to_owned),
        native: value.get("native").cloned(),
    })
}

fn call(value: &Value) -> Result<Call, String> {
    let name = value["name"].as_str().ok_or("a call has no name")?;
    Ok(Call {
        id: value["id"].as_str().unwrap_or_default().to_owned(),
        name: name.to_owned(),
        arguments: match &value["arguments"] {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            whole => whole.to_string(),
        },
    })
}

fn setup(file: &str, what: String) -> Error {
    Error::Setup {
        what: format!("the recording {file}: {what}"),
        hint: "a recording is a cassette of JSON lines or the journal.jsonl of a run".to_owned(),
    }
}
