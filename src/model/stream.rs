//! Reads one answer to its end, whatever form it came in: events, one JSON object, a page, nothing.

use serde_json::Value;

use super::http::Body;
use super::meter::Progress;
use super::{Error, sse, status};

/// Builds an answer from the events of one protocol.
pub trait Fold {
    /// Takes one event's object. `Err` says why the stream cannot be read.
    fn event(&mut self, event: &Value) -> Result<(), String>;

    /// How far the protocol has come.
    fn stage(&self) -> Stage;

    /// How much was read.
    fn progress(&self) -> Progress;
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The answer is not complete.
    Open,
    /// The answer is complete; figures may still follow.
    Closing,
    /// Nothing more will come.
    Done,
}

/// What the body turned out to be.
#[derive(Debug)]
pub enum Form {
    /// Events; the fold has them.
    Events,
    /// One JSON object: the server does not stream.
    Whole(Value),
    /// Not a single event before the end or the break.
    Empty,
}

/// Reads `body` into `fold`. An error object anywhere is the attempt's error, and so is an answer in which
/// the model wrote more than `longest` bytes.
pub async fn read(
    mut body: Body,
    fold: &mut (impl Fold + ?Sized),
    longest: usize,
) -> Result<Form, Error> {
    let mut begun = Vec::new();
    while sniff(&begun, &body.kind()) == Looks::Blank {
        // Blank lines say nothing in either form; they only show that somebody is there.
        begun.clear();
        match body.next().await {
            Ok(Some(piece)) => begun.extend_from_slice(&piece),
            // A server that fails before it says anything closes in one way or the other.
            Ok(None) | Err(Error::Cut { .. }) => return Ok(Form::Empty),
            Err(error) => return Err(error),
        }
    }
    match sniff(&begun, &body.kind()) {
        Looks::Json => {
            body.meter.plain();
            body.at_most(longest);
            let whole = body.rest(&begun).await?;
            object(&body, &whole).map(Form::Whole)
        }
        Looks::Page => {
            let whole = body.rest(&begun).await?;
            Err(body.refusal(&whole))
        }
        Looks::Events | Looks::Blank => events(body, begun, fold, longest).await,
    }
}

/// Reads a body that should be one JSON object.
pub async fn whole(mut body: Body, longest: usize) -> Result<Value, Error> {
    body.at_most(longest);
    if !body.kind().contains("html") {
        body.meter.plain();
    }
    let text = body.rest(&[]).await?;
    match sniff(&text, &body.kind()) {
        Looks::Blank => Err(body.cut("the answer is empty")),
        Looks::Page => Err(body.refusal(&text)),
        Looks::Json | Looks::Events => object(&body, &text),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    Blank,
    Json,
    Page,
    Events,
}

/// The first byte tells more than the content type, which many servers get wrong.
fn sniff(begun: &[u8], kind: &str) -> Looks {
    let text = begun.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begun);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Looks::Blank,
        Some(b'{' | b'[') => Looks::Json,
        Some(b'<') => Looks::Page,
        // No JSON begins with the letters of `data`, `event`, `id`, `retry` or with a comment's colon.
        Some(b'd' | b'e' | b'i' | b'r' | b':') if !kind.contains("html") => Looks::Events,
        Some(_) if kind.contains("json") => Looks::Json,
        Some(_) if kind.contains("html") => Looks::Page,
        Some(_) => Looks::Events,
    }
}

fn object(body: &Body, text: &[u8]) -> Result<Value, Error> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| body.cut(format!("the answer is no JSON: {error}")))?;
    if let Some(error) = status::inside(&body.shown, &value) {
        return Err(error);
    }
    if value.is_object() {
        Ok(value)
    } else {
        Err(body.cut("the answer is no JSON object"))
    }
}

async fn events(
    mut body: Body,
    begun: Vec<u8>,
    fold: &mut (impl Fold + ?Sized),
    longest: usize,
) -> Result<Form, Error> {
    let mut parser = sse::Parser::default();
    let mut seen = 0;
    let mut piece = Some(bytes::Bytes::from(begun));
    loop {
        let mut found = Vec::new();
        let over = match &piece {
            Some(bytes) => parser.feed(bytes, &mut found).map(|()| false),
            None => std::mem::take(&mut parser).end(&mut found).map(|()| true),
        };
        seen += found.len();
        let taken = found.iter().try_for_each(|event| take(&body, event, fold));
        let progress = fold.progress();
        body.meter.read(progress, parser.unfinished());
        taken?;
        if progress.written + parser.unfinished() > longest {
            return Err(body.cut("the answer is many times as long as what was asked for"));
        }
        let over = over.map_err(|sse::TooLong| body.cut("an event is too long"))?;
        if over && seen == 0 {
            return Ok(Form::Empty);
        }
        if over || fold.stage() == Stage::Done {
            return Ok(Form::Events);
        }
        piece = match fold.stage() {
            Stage::Open => match body.next().await {
                Err(Error::Cut { .. }) if seen == 0 => return Ok(Form::Empty),
                next => next?,
            },
            Stage::Closing | Stage::Done => body.trailing().await,
        };
    }
}

fn take(body: &Body, event: &sse::Event, fold: &mut (impl Fold + ?Sized)) -> Result<(), Error> {
    let data = event.data.trim();
    // Some gateways send their comments as data.
    if data.is_empty() || data.starts_with(':') {
        return Ok(());
    }
    let value: Value = if data == "[DONE]" {
        Value::String(data.to_owned())
    } else {
        match serde_json::from_str(data) {
            Ok(value) => value,
            Err(_) if event.name == "error" => serde_json::json!({ "error": data }),
            // The answer proper is over: only its figures are lost.
            Err(_) if fold.stage() != Stage::Open => return Ok(()),
            // What cannot be read may have been a piece of a call: the answer is not whole.
            Err(error) => return Err(body.cut(format!("an event is no JSON: {error}"))),
        }
    };
    // A response that failed tells it inside of the response.
    let told = [&value, &value["response"]].into_iter();
    if let Some(error) = told
        .filter_map(|told| status::inside(&body.shown, told))
        .next()
    {
        return Err(error);
    }
    fold.event(&value).map_err(|reason| body.cut(reason))
}
