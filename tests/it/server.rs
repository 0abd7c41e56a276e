//! A model server on loopback, scripted by a closure, that checks every request as the strictest
//! server would.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures::StreamExt as _;
use serde_json::{Value, json};

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

/// One request, as a script wants to see it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The whole body.
    pub body: Value,
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
            .route("/v1/chat/completions", axum::routing::post(chat))
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

async fn chat(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
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
        let wrong = violations(&body);
        seen.violations
            .extend(wrong.iter().map(|w| format!("request {number}: {w}")));
        let ask = ask(body, headers, number, &mut seen.conversations);
        (ask, wrong)
    };
    if !wrong.is_empty() {
        return refusal(&wrong.join("; "));
    }
    let answer = (shared.script)(&ask);
    respond(answer, &ask)
}

fn ask(body: Value, headers: HeaderMap, number: usize, seen: &mut BTreeMap<String, usize>) -> Ask {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
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
        .filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned))
        .collect();
    let has = |name: &str| tools.iter().any(|tool| tool == name);
    let role = match () {
        () if has("submit_plan") => Role::Coordinator,
        () if has("submit_report") => Role::Worker,
        () if has("submit_verdict") => Role::Verifier,
        () => Role::Other,
    };
    Ask {
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
            let message = Written::new(ask, text, calls, finish, usage);
            if ask.body["stream"] == true {
                let pieces = message.events(ask).into_iter();
                let pieces = pieces.map(|event| (Duration::ZERO, event.into_bytes()));
                ("text/event-stream".to_owned(), pieces.collect())
            } else {
                let text = message.plain().to_string();
                (
                    "application/json".to_owned(),
                    vec![(Duration::ZERO, text.into_bytes())],
                )
            }
        }
        Answer::Status(..) | Answer::Cut(..) | Answer::Silence => panic!("no body can be cut here"),
    }
}

/// A message with everything a real server gives beside it.
struct Written {
    head: Value,
    text: String,
    calls: Vec<Value>,
    finish: String,
    usage: Value,
}

impl Written {
    fn new(
        ask: &Ask,
        text: String,
        calls: Vec<(String, Value)>,
        finish: Option<String>,
        usage: Option<(u64, u64)>,
    ) -> Self {
        let number = ask.number;
        let calls: Vec<Value> = calls.into_iter().enumerate().map(|(at, (name, arguments))| {
            let arguments = match arguments {
                Value::String(text) => text,
                other => other.to_string(),
            };
            json!({"id": format!("call_{number}_{at}"), "type": "function", "function": {"name": name, "arguments": arguments}})
        }).collect();
        let tokens = |bytes: usize| (bytes as u64 / 4).max(1);
        let (input, output) = usage.unwrap_or_else(|| {
            let written = text.len() + Value::from(calls.clone()).to_string().len();
            (
                tokens(ask.body["messages"].to_string().len()),
                tokens(written),
            )
        });
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

    fn plain(&self) -> Value {
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

    fn events(&self, ask: &Ask) -> Vec<String> {
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

fn refusal(text: &str) -> Response {
    let body = json!({"error": {"message": text, "type": "invalid_request_error"}});
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
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

fn is_fit(name: &Value) -> bool {
    let fit = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.as_str()
        .is_some_and(|name| (1..=64).contains(&name.len()) && name.chars().all(fit))
}
