//! The model's voice: what is asked, what is answered, over which wire.
//!
//! Owns: the wire formats, reading of streams, the retry table, prices, recordings.
//! Takes: a `Request` and a `Provider` from `config`.
//! Gives: a whole `Reply` or an `Error` that says whether asking again can help.
//! Never: runs a tool, keeps a conversation, waits for a retry by itself.

mod advice;
mod anthropic;
mod client;
mod http;
mod ids;
pub mod list;
mod meter;
mod openai;
mod outgoing;
pub mod price;
pub mod profile;
pub mod provider;
pub mod question;
pub mod recording;
pub mod replay;
mod responses;
pub mod retry;
pub mod secret;
mod sse;
mod status;
mod stream;
mod told;
mod wait;
mod wire;

use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use http::Limits;
pub use meter::{Meter, Reading};
pub use provider::{Provider, open, open_with};
pub use recording::Recording;
pub use replay::{Replay, request_hash};
pub use secret::{Secret, masked};
pub use wire::Wire;

/// One model behind one wire. An implementation makes a single attempt; `run` retries.
pub trait Model: Send + Sync {
    /// Asks once, and counts on `meter` what that comes to. Dropping the future cancels the attempt; the
    /// meter stays as it was then. One that is never touched says that nothing went out.
    fn attempt<'a>(
        &'a self,
        request: &'a Request,
        meter: Meter,
    ) -> BoxFuture<'a, Result<Reply, Error>>;

    /// An attempt that nobody counts.
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Reply, Error>> {
        self.attempt(request, Meter::default())
    }

    /// What the next attempt sends beside messages and tools, by the names of its protocol; nothing where
    /// nothing is sent.
    fn parameters(&self, _request: &Request) -> Map<String, Value> {
        Map::new()
    }

    /// What spans and messages say of it.
    fn about(&self) -> About;
}

/// Who a model is.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// As written by the operator: `openai/gpt-x`, `replay:FILE`.
    pub name: String,
    /// The `gen_ai.provider.name`: `openai`, `anthropic`, or a name of the operator's.
    pub provider: String,
    pub host: Option<String>,
    pub port: Option<u16>,
    /// Tokens a request and its reply may hold together.
    pub context_window: u64,
    /// None: the price is not known.
    pub price: Option<Price>,
    /// What a recording was made on; None for a model that is really asked.
    pub recorded: Option<Recorded>,
}

/// The trees that recorded words are about: on others they are words without ground.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The git tree of the base.
    #[serde(default)]
    pub base: Option<String>,
    /// The git tree that each round's verdict judged.
    #[serde(default)]
    pub judged: std::collections::BTreeMap<u32, String>,
}

/// US dollars a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub input: f64,
    pub cached_input: f64,
    pub output: f64,
}

/// Which call of a run this is; recordings are looked up by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub round: u32,
    pub subtask: String,
    pub role: String,
    /// The how-manieth logical call of this agent, from 1.
    pub call: u32,
}

impl Key {
    /// Summaries of an agent's own conversation count from here, so that its other calls have the same
    /// ordinals with and without them.
    pub const SUMMARIES: u32 = 1_000_000;
}

#[derive(Clone, Debug)]
pub struct Request {
    pub key: Key,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    /// Tokens the reply may have.
    pub reply_tokens: u64,
    pub temperature: Option<f64>,
    /// How much the model should think; None: as it does by itself.
    pub effort: Option<Effort>,
}

/// How much a model should think before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    Minimal,
    Low,
    Medium,
    High,
}

impl Effort {
    /// The word that plans and protocols have for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    System {
        text: String,
    },
    User {
        text: String,
    },
    Assistant {
        text: String,
        calls: Vec<Call>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<Value>,
    },
    Tool {
        call_id: String,
        name: String,
        text: String,
        failed: bool,
    },
}

/// A tool call as the model wrote it; `arguments` is unchecked text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Unique in its conversation: made so on arrival.
    pub id: String,
    pub name: String,
    pub arguments: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// A JSON Schema object.
    pub schema: Value,
}

/// A whole answer: its stream reached the protocol's own end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub text: String,
    pub calls: Vec<Call>,
    pub finish: Finish,
    pub usage: Usage,
    /// The model's and the response's names as the server gave them.
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub id: Option<String>,
    /// Provider items to be sent back verbatim (reasoning), where the wire has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    Calls,
    /// The reply limit cut it: none of its calls may run.
    Length,
    Filtered,
    Other(String),
}

/// Tokens of one call. `input` includes `cached`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cached: u64,
    /// The server gave none: these are estimates.
    pub estimated: bool,
}

impl Usage {
    /// Tokens past which a figure is none: no request of any model holds so many.
    const MOST: u64 = 1_000_000_000;

    /// The figures of a server; None where it counted nothing, or what cannot be: more than any request
    /// holds, or more input from the cache than input.
    pub fn told(input: u64, output: u64, cached: u64) -> Option<Self> {
        let counts = input.max(output).max(cached);
        (counts > 0 && counts <= Self::MOST && cached <= input).then_some(Self {
            input,
            output,
            cached,
            estimated: false,
        })
    }

    /// Both together; one estimate makes the sum an estimate.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            output: self.output + other.output,
            cached: self.cached + other.cached,
            estimated: self.estimated || other.estimated,
        }
    }

    /// What a request of `sent` bytes and a reply of `received` bytes may have counted.
    pub fn estimate(sent: usize, received: usize) -> Self {
        let tokens = |bytes: usize| (bytes as u64).div_ceil(4).max(1);
        Self {
            input: tokens(sent),
            output: tokens(received),
            cached: 0,
            estimated: true,
        }
    }
}

/// Why an attempt failed, by what can be done about it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("could not reach {url}: {reason}")]
    Connect { url: String, reason: String },
    #[error("no answer within {} s from {url}", limit.as_secs())]
    Timeout { url: String, limit: Duration },
    /// A status other than 200, or an error object inside a 200.
    #[error("{url} answered {status}: {message}")]
    Status {
        url: String,
        status: u16,
        message: String,
        kind: StatusKind,
        retry_after: Option<Duration>,
    },
    /// The stream ended before the protocol said so, or was no stream of the protocol.
    #[error("the answer of {url} was cut or unreadable: {reason}")]
    Cut { url: String, reason: String },
    /// No recording for this call.
    #[error("the recording {file} has no answer for {key}")]
    NotRecorded { file: String, key: String },
    /// The key's variable is unset, a file is missing, an address is wrong.
    #[error("{what}")]
    Setup { what: String, hint: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    /// 401, 403: asking again cannot help.
    Key,
    /// Quota or money is used up: asking again cannot help.
    Quota,
    /// Too many requests, overloaded.
    Limited,
    /// Too long for the model's window.
    ContextOverflow,
    /// 5xx and the like.
    Server,
    /// Any other 4xx: the request itself is refused.
    Refused,
}
