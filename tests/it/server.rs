//! A model server on loopback, scripted by a closure, that checks every request as the strictest
//! server would.

mod chat;
mod messages;
mod responses;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use futures::StreamExt as _;
use serde_json::{Value, json};

pub use chat::violations;

/// A running server; it ends with the runtime of the test.
pub struct FakeModel {
    port: u16,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    script: Box<dyn Fn(&Ask) -> Answer + Send + Sync>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<Value>,
    headers: Vec<HeaderMap>,
    violations: Vec<String>,
    conversations: BTreeMap<String, usize>,
}

/// The protocol a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    Chat,
    Messages,
    Responses,
}

/// One request, as a script wants to see it.
#[derive(Clone, Debug)]
pub struct Ask {
    pub spoken: Spoken,
    /// The whole body.
    pub body: Value,
    /// Role and text of each message, in the form of chat completions whatever the protocol.
    pub messages: Vec<Value>,
    /// The names of the tools offered.
    pub tools: Vec<String>,
    pub role: Role,
    /// The first user message.
    pub first: String,
    /// How many requests of the same system and first user message came before, from 0.
    pub ordinal: usize,
    /// How many requests the server saw before, from 0.
    pub number: usize,
    pub headers: HeaderMap,
}

/// Who asks, told by the ending tool offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Coordinator,
    Worker,
    Verifier,
    /// No ending tool: a summary.
    Other,
}

impl Ask {
    /// The text of the last message.
    pub fn last(&self) -> &str {
        let last = self.messages.last();
        last.and_then(|message| message["content"].as_str())
            .unwrap_or_default()
    }

    /// The texts of all tool results so far.
    pub fn results(&self) -> Vec<&str> {
        let tools = self.messages.iter().filter(|m| m["role"] == "tool");
        tools.filter_map(|m| m["content"].as_str()).collect()
    }
}

/// A message that is to be written in a request's protocol.
pub struct Said {
    pub text: String,
    pub calls: Vec<(String, Value)>,
    /// In the words of chat completions.
    pub finish: Option<String>,
    pub usage: Option<(u64, u64)>,
}

impl Said {
    /// Input and output tokens, a token for four bytes where the script does not say.
    pub fn tokens(&self, ask: &Ask) -> (u64, u64) {
        let tokens = |bytes: usize| (bytes as u64 / 4).max(1);
        self.usage.unwrap_or_else(|| {
            let written = self.text.len() + json!(self.calls).to_string().len();
            (tokens(ask.body.to_string().len()), tokens(written))
        })
    }
}

/// What the server answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A message in due form, streamed when the request asks for it.
    Message {
        text: String,
        calls: Vec<(String, Value)>,
        finish: Option<String>,
        usage: Option<(u64, u64)>,
    },
    /// A status with a body.
    Status(u16, Vec<(String, String)>, String),
    /// Pieces of a body with content type and a pause before each; the connection then closes in order.
    Raw(String, Vec<(Duration, Vec<u8>)>),
    /// The answer, its body broken off after so many bytes.
    Cut(Box<Answer>, usize),
    /// Headers and then nothing.
    Silence,
}

impl Answer {
    /// One tool call.
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::calls(vec![(name, arguments)])
    }

    /// Several tool calls. Arguments that are a JSON string are sent as they stand, unquoted.
    pub fn calls(calls: Vec<(&str, Value)>) -> Self {
        let calls = calls
            .into_iter()
            .map(|(name, a)| (name.to_owned(), a))
            .collect();
        Self::Message {
            text: String::new(),
            calls,
            finish: None,
            usage: None,
        }
    }

    /// Text alone.
    pub fn text(text: &str) -> Self {
        Self::Message {
            text: text.to_owned(),
            calls: vec![],
            finish: None,
            usage: None,
        }
    }

    /// A status with a body; headers by name.
    pub fn status(code: u16, body: &str, headers: &[(&str, &str)]) -> Self {
        let headers = headers
            .iter()
            .map(|&(n, v)| (n.to_owned(), v.to_owned()))
            .collect();
        Self::Status(code, headers, body.to_owned())
    }

    /// An event stream of these pieces, without pauses.
    pub fn raw(pieces: &[&str]) -> Self {
        let pieces = pieces
            .iter()
            .map(|p| (Duration::ZERO, p.as_bytes().to_vec()))
            .collect();
        Self::Raw("text/event-stream".to_owned(), pieces)
    }

    /// The same with another finish reason (`length`).
    pub fn finish(mut self, reason: &str) -> Self {
        if let Self::Message { finish, .. } = &mut self {
            *finish = Some(reason.to_owned());
        }
        self
    }

    /// The same with these figures of input and output tokens.
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        if let Self::Message { usage, .. } = &mut self {
            *usage = Some((input, output));
        }
        self
    }

    /// The same, broken off after `bytes` of its body.
    pub fn cut(self, bytes: usize) -> Self {
        Self::Cut(Box::new(self), bytes)
    }
}

impl FakeModel {
    /// Listens on a free port of loopback and answers by `script`.
    pub async fn start(script: impl Fn(&Ask) -> Answer + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Mutex::default(),
        });
        let router = axum::Router::new()
            .route("/v1/chat/completions", axum::routing::post(answer))
            .route("/v1/messages", axum::routing::post(answer))
            .route("/v1/responses", axum::routing::post(answer))
            .route("/v1/models", axum::routing::get(listed))
            .with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { port, shared, task }
    }

    /// As `start`; answers come from the list in turn, and past its end a 400 says so.
    pub async fn queue(answers: Vec<Answer>) -> Self {
        Self::start(move |ask| {
            let answer = answers.get(ask.number).cloned();
            answer.unwrap_or_else(|| Answer::status(400, "the script is over", &[]))
        })
        .await
    }

    /// `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.seen.lock().unwrap().requests.clone()
    }

    /// The headers of all requests so far.
    pub fn headers(&self) -> Vec<HeaderMap> {
        self.shared.seen.lock().unwrap().headers.clone()
    }

    /// What the requests did wrong; empty is right.
    pub fn violations(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap().violations.clone()
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let spoken = match uri.path() {
        "/v1/messages" => Spoken::Messages,
        "/v1/responses" => Spoken::Responses,
        _ => Spoken::Chat,
    };
    let body: Value = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(error) => {
            let text = format!("no JSON: {error}");
            shared.seen.lock().unwrap().violations.push(text.clone());
            return refusal(&text);
        }
    };
    let (ask, wrong) = {
        let mut seen = shared.seen.lock().unwrap();
        let number = seen.requests.len();
        seen.requests.push(body.clone());
        seen.headers.push(headers.clone());
        let wrong = match spoken {
            Spoken::Chat => chat::violations(&body),
            Spoken::Messages => messages::violations(&body),
            Spoken::Responses => responses::violations(&body),
        };
        seen.violations
            .extend(wrong.iter().map(|w| format!("request {number}: {w}")));
        let ask = ask(spoken, body, headers, number, &mut seen.conversations);
        (ask, wrong)
    };
    if !wrong.is_empty() {
        return refusal(&wrong.join("; "));
    }
    let answer = (shared.script)(&ask);
    respond(answer, &ask)
}

fn ask(
    spoken: Spoken,
    body: Value,
    headers: HeaderMap,
    number: usize,
    seen: &mut BTreeMap<String, usize>,
) -> Ask {
    let messages = match spoken {
        Spoken::Chat => body["messages"].as_array().cloned().unwrap_or_default(),
        Spoken::Messages => messages::plain(&body),
        Spoken::Responses => responses::plain(&body),
    };
    let of = |role: &str| {
        let found = messages.iter().find(|m| m["role"] == role);
        found
            .and_then(|m| m["content"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let first = of("user");
    let count = seen
        .entry(format!("{}\0{first}", of("system")))
        .or_default();
    let ordinal = *count;
    *count += 1;
    let tools: Vec<String> = body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| {
            let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
            name.map(str::to_owned)
        })
        .collect();
    let has = |name: &str| tools.iter().any(|tool| tool == name);
    let role = match () {
        () if has("submit_plan") => Role::Coordinator,
        () if has("submit_report") => Role::Worker,
        () if has("submit_verdict") => Role::Verifier,
        () => Role::Other,
    };
    Ask {
        spoken,
        body,
        messages,
        tools,
        role,
        first,
        ordinal,
        number,
        headers,
    }
}

/// The models this server says it has.
async fn listed() -> Response {
    let list = json!({"object": "list", "data": [{"id": "fake", "max_model_len": 32_768}, {"id": "other"}]});
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(list.to_string())).unwrap()
}

fn respond(answer: Answer, ask: &Ask) -> Response {
    let (kind, pieces) = match answer {
        Answer::Status(code, headers, body) => {
            let mut response = Response::builder().status(code);
            for (name, value) in headers {
                response = response.header(name, value.as_bytes());
            }
            return response.body(Body::from(body)).unwrap();
        }
        Answer::Silence => {
            let never = futures::stream::pending::<Result<Bytes, Infallible>>();
            return Response::new(Body::from_stream(never));
        }
        Answer::Cut(answer, bytes) => {
            let (kind, pieces) = body_of(*answer, ask);
            return cut(kind, pieces, bytes);
        }
        other => body_of(other, ask),
    };
    let stream = futures::stream::iter(pieces).then(|(pause, bytes)| async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok::<_, Infallible>(Bytes::from(bytes))
    });
    Response::builder()
        .header("content-type", kind)
        .body(Body::from_stream(stream))
        .unwrap()
}

fn cut(kind: String, pieces: Vec<(Duration, Vec<u8>)>, bytes: usize) -> Response {
    let mut whole: Vec<u8> = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
    whole.truncate(bytes);
    // An error in the body makes the close a break, as when a server dies; the pause before it lets
    // what came first go out.
    let stream = futures::stream::iter([
        Ok(Bytes::from(whole)),
        Err(std::io::Error::other("cut by the script")),
    ])
    .then(|piece| async {
        if piece.is_err() {
            tokio::task::yield_now().await;
        }
        piece
    });
    Response::builder()
        .header("content-type", kind)
        .body(Body::from_stream(stream))
        .unwrap()
}

fn body_of(answer: Answer, ask: &Ask) -> (String, Vec<(Duration, Vec<u8>)>) {
    match answer {
        Answer::Raw(kind, pieces) => (kind, pieces),
        Answer::Message {
            text,
            calls,
            finish,
            usage,
        } => {
            let said = Said {
                text,
                calls,
                finish,
                usage,
            };
            let (events, plain) = match ask.spoken {
                Spoken::Chat => {
                    let message = chat::Written::new(ask, said);
                    (message.events(ask), message.plain())
                }
                Spoken::Messages => messages::written(ask, said),
                Spoken::Responses => responses::written(ask, said),
            };
            if ask.body["stream"] == true {
                let pieces = events.into_iter();
                let pieces = pieces.map(|event| (Duration::ZERO, event.into_bytes()));
                ("text/event-stream".to_owned(), pieces.collect())
            } else {
                let bytes = plain.to_string().into_bytes();
                ("application/json".to_owned(), vec![(Duration::ZERO, bytes)])
            }
        }
        Answer::Status(..) | Answer::Cut(..) | Answer::Silence => panic!("no body can be cut here"),
    }
}

fn refusal(text: &str) -> Response {
    let body = json!({"error": {"message": text, "type": "invalid_request_error"}});
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

fn is_fit(name: &Value) -> bool {
    let fit = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.as_str()
        .is_some_and(|name| (1..=64).contains(&name.len()) && name.chars().all(fit))
}
