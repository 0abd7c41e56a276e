//! Answers recorded earlier, given again by the place of the call in its run.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::recording::Recording;
use super::{About, Error, Key, Meter, Model, Price, Reply, Request, ids, outgoing};

const FREE: Price = Price {
    input: 0.0,
    cached_input: 0.0,
    output: 0.0,
};

/// Tokens a recording pretends to hold: what was answered once fitted.
const CONTEXT_WINDOW: u64 = 128_000;

/// A recording as a model.
pub struct Replay {
    recording: Recording,
    name: String,
    /// Requests whose recorded hash was known, and those of them that had another one.
    known: AtomicU64,
    other: AtomicU64,
}

impl Replay {
    /// Answers from `recording`.
    pub fn new(recording: Recording) -> Self {
        let here = std::env::current_dir().unwrap_or_default();
        let name = format!("replay:{}", shown(Path::new(&recording.file), &here));
        Self {
            recording,
            name,
            known: AtomicU64::new(0),
            other: AtomicU64::new(0),
        }
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
            self.known.fetch_add(1, Ordering::Relaxed);
            if *recorded != now {
                self.other.fetch_add(1, Ordering::Relaxed);
                tracing::trace!(key = %request.key, %recorded, %now, "the request differs from the recorded one");
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

impl Drop for Replay {
    /// Said once, when nothing is asked any more.
    fn drop(&mut self) {
        let (known, other) = (*self.known.get_mut(), *self.other.get_mut());
        if other > 0 {
            tracing::debug!(
                "{}: {other} of {known} requests differ from the recorded ones: prompts, tools or \
                 files have changed since, or an output holds a time",
                self.name
            );
        }
    }
}

/// A recording's file as results and spans name it: from `here` when it lies below, else without the
/// places above it, which are nobody's business; a run's journal keeps the run's name.
fn shown(file: &Path, here: &Path) -> String {
    if file.is_relative() {
        return file.display().to_string();
    }
    if let Ok(below) = file.strip_prefix(here) {
        return below.display().to_string();
    }
    let kept = if file.ends_with("journal.jsonl") {
        2
    } else {
        1
    };
    let parts: Vec<_> = file.iter().collect();
    let tail = parts[parts.len().saturating_sub(kept)..].iter();
    let tail: std::path::PathBuf = tail.collect();
    format!("…/{}", tail.display())
}

impl Model for Replay {
    fn attempt<'a>(
        &'a self,
        request: &'a Request,
        _: Meter,
    ) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(self.answer(request))
    }

    fn about(&self) -> About {
        About {
            name: self.name.clone(),
            provider: "replay".to_owned(),
            host: None,
            port: None,
            context_window: CONTEXT_WINDOW,
            // Nobody is paid for what was answered before.
            price: self.recording.price.or(Some(FREE)),
            recorded: Some(self.recording.made_on.clone()),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Call, Message, ToolSpec};

    fn request(call: u32, messages: Vec<Message>) -> Request {
        Request {
            key: Key {
                round: 1,
                subtask: "a".into(),
                role: "coder".into(),
                call,
            },
            messages,
            tools: vec![],
            reply_tokens: 10,
            temperature: None,
            effort: None,
        }
    }

    fn user(text: &str) -> Message {
        Message::User { text: text.into() }
    }

    fn replay(reply: &serde_json::Value) -> Replay {
        let key = request(1, vec![]).key;
        let line = crate::model::recording::cassette_line(&key, Some("other"), reply);
        Replay::new(Recording::parse("tape", &line).unwrap())
    }

    #[tokio::test]
    async fn an_answer_comes_by_its_key_whatever_the_request_says() {
        let replay = replay(&json!({"text": "hi"}));
        for text in ["one", "two"] {
            assert_eq!(
                replay
                    .ask(&request(1, vec![user(text)]))
                    .await
                    .unwrap()
                    .text,
                "hi"
            );
        }
        let error = replay
            .ask(&request(2, vec![user("one")]))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the recording tape has no answer for call 2 of a (coder) in round 1"
        );
        assert_eq!(
            (replay.about().name.as_str(), replay.about().price),
            ("replay:tape", Some(FREE))
        );
    }

    /// What was logged down to a level.
    #[derive(Clone, Default)]
    struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn that_requests_differ_is_said_once_at_the_end() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let replay = replay(&json!({"text": "hi"}));
        for text in ["one", "two", "three"] {
            replay.answer(&request(1, vec![user(text)])).await.unwrap();
        }
        let said = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(said(), "");
        drop(replay);
        assert!(said().contains("3 of 3 requests differ"), "{}", said());
        assert_eq!(said().lines().count(), 1);
    }

    #[test]
    fn a_recording_is_named_from_here_or_by_its_last_parts() {
        let name = |file: &str| shown(Path::new(file), Path::new("/home/me/project"));
        assert_eq!(name("/home/me/project/plans/q.jsonl"), "plans/q.jsonl");
        assert_eq!(name("/home/me/other/q.jsonl"), "…/q.jsonl");
        assert_eq!(name("/s/runs/r1/journal.jsonl"), "…/r1/journal.jsonl");
        assert_eq!(name("q.jsonl"), "q.jsonl");
    }

    #[tokio::test]
    async fn recorded_ids_become_unique_in_the_new_conversation() {
        let replay = replay(
            &json!({"calls": [{"id": "x", "name": "bash"}, {"name": "bash"}], "native": {}}),
        );
        let call = Call {
            id: "x".into(),
            name: "bash".into(),
            arguments: "{}".into(),
        };
        let messages = vec![
            user("a"),
            Message::Assistant {
                text: String::new(),
                calls: vec![call],
                native: None,
            },
            Message::Tool {
                call_id: "x".into(),
                name: "bash".into(),
                text: "t".into(),
                failed: false,
            },
        ];
        let reply = replay.ask(&request(1, messages)).await.unwrap();
        let ids: Vec<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!((ids, reply.native), (vec!["call_2", "call_3"], None));
    }

    #[test]
    fn the_hash_sees_messages_and_tools_and_nothing_else() {
        let one = request(1, vec![user("a")]);
        let mut same = request(9, vec![user("a")]);
        same.reply_tokens = 77;
        assert_eq!(request_hash(&one), request_hash(&same));
        assert_eq!(request_hash(&one).len(), 64);
        assert_ne!(
            request_hash(&one),
            request_hash(&request(1, vec![user("b")]))
        );
        same.tools.push(ToolSpec {
            name: "t".into(),
            description: String::new(),
            schema: json!({}),
        });
        assert_ne!(request_hash(&one), request_hash(&same));
    }
}
