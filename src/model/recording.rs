//! Answers of an earlier run, read from a cassette or a journal.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, Error, Finish, Key, Price, Recorded, Reply, Usage};

/// The answers of one file, by key.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub(super) file: String,
    pub(super) answers: BTreeMap<Key, Answer>,
    pub(super) price: Option<Price>,
    pub(super) made_on: Recorded,
}

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub reply: Reply,
    pub latency: Duration,
    /// The hash of the request it answered; only told, never looked up by.
    pub request_hash: Option<String>,
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
    /// `latency_ms`; a line with only `price` prices them all, one with only
    /// `made_on` names the trees they are about) or a run's journal.
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
        if let (Some(made_on), None) = (line.get("made_on"), line.get("key")) {
            let made_on = Recorded::deserialize(made_on);
            self.made_on = made_on.map_err(|error| format!("made_on: {error}"))?;
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

    /// A journal's line: answers, and the trees they are about.
    fn take_event(&mut self, line: &Value) -> Result<(), String> {
        match line["type"].as_str() {
            Some("model_answered") => self.take_answer(line),
            Some("base_taken") => {
                self.made_on.base = line["tree"].as_str().map(str::to_owned);
                Ok(())
            }
            Some("verdict_given") => {
                let round = line["round"]
                    .as_u64()
                    .and_then(|round| u32::try_from(round).ok());
                let tree = line["verdict"]["tree"].as_str();
                self.made_on
                    .judged
                    .extend(round.zip(tree.map(str::to_owned)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_answer(&mut self, line: &Value) -> Result<(), String> {
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

/// One line of a cassette, without its newline.
pub fn cassette_line(key: &Key, request_hash: Option<&str>, reply: &Value) -> String {
    let mut line = json!({ "key": key, "reply": reply });
    if let Some(hash) = request_hash {
        line["request_hash"] = json!(hash);
    }
    line.to_string()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(subtask: &str, call: u32) -> Key {
        Key {
            round: 1,
            subtask: subtask.into(),
            role: "coder".into(),
            call,
        }
    }

    fn refused(text: &str) -> String {
        match Recording::parse("c.jsonl", text) {
            Err(Error::Setup { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cassette_by_hand_and_one_by_machine() {
        let whole = Reply {
            text: "t".into(),
            calls: vec![],
            finish: Finish::Length,
            usage: Usage {
                input: 5,
                output: 6,
                cached: 1,
                estimated: false,
            },
            model: Some("m".into()),
            id: None,
            native: Some(json!({"anthropic": "m", "content": []})),
        };
        let line = cassette_line(
            &key("a", 2),
            Some("ab"),
            &serde_json::to_value(&whole).unwrap(),
        );
        let text = format!(
            "{}\n\n{line}\n{{\"price\":{{\"input\":1,\"cached_input\":1,\"output\":2}}}}\n",
            r#"{"key":{"round":1,"subtask":"a","role":"coder","call":1},"latency_ms":3,"reply":{"calls":[{"name":"bash","arguments":{"command":"ls"}}]}}"#
        );
        let recording = Recording::parse("c.jsonl", &text).unwrap();
        assert_eq!(recording.len(), 2);
        assert_eq!(recording.answers[&key("a", 2)].reply, whole);
        assert_eq!(recording.recorded_hash(&key("a", 2)), Some("ab"));
        let first = &recording.answers[&key("a", 1)];
        assert_eq!(
            (first.latency, first.reply.finish.clone()),
            (Duration::from_millis(3), Finish::Calls)
        );
        assert_eq!(first.reply.calls[0].arguments, r#"{"command":"ls"}"#);
        assert!(first.reply.usage.estimated);
        assert_eq!(recording.price.map(|price| price.output), Some(2.0));
    }

    fn answered(call: u32, text: &str) -> String {
        json!({"seq": 7, "at": "2026-01-01T00:00:00Z", "prev": "", "type": "model_answered",
            "agent": {"round": 1, "subtask": "a", "role": "coder"}, "call": call, "reply": {"text": text},
            "usage": {"input_tokens": 1}, "cost_usd": null, "seconds": 0.5})
        .to_string()
    }

    #[test]
    fn a_journal_is_a_recording_and_its_torn_end_is_left_out() {
        let other = r#"{"seq":1,"type":"round_started","round":1}"#;
        let text = [
            other,
            &answered(1, "old"),
            &answered(2, "two"),
            &answered(1, "new"),
            &answered(3, "x")[..50],
        ]
        .join("\n");
        let recording = Recording::parse("journal.jsonl", &text).unwrap();
        assert_eq!(recording.len(), 2);
        assert_eq!(recording.answers[&key("a", 1)].reply.text, "new");
    }

    #[test]
    fn a_damaged_recording_names_its_line() {
        let good =
            r#"{"key":{"round":1,"subtask":"a","role":"coder","call":1},"reply":{"text":"x"}}"#;
        assert!(refused(&format!("{good}\nnot json\n{good}\n")).contains("c.jsonl: line 2"));
        assert!(refused(&good.replace("text", "txet")).contains("\"txet\""));
        assert!(refused(&good.replace("\"call\":1", "\"call\":-1")).contains("line 1"));
        assert!(refused(&good.replace("{\"text\":\"x\"}", "{\"calls\":[{}]}")).contains("no name"));
        assert!(refused("").contains("no answer"));
        assert!(refused("{\"key\"").contains("line 1"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\{\\}\\[\\]\":,a-z0-9\n]{0,80}") {
            let _ = Recording::parse("f", &text);
        }
    }
}
