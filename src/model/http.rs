//! One POST and the reading of its body, each wait under its own limit.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url, redirect};
use tokio::time::{Instant, timeout};

use super::{Error, Meter, status};

/// How long a connection is kept between requests: common servers close theirs after 5 s.
const IDLE_KEPT: Duration = Duration::from_secs(4);
/// Bytes of an error's body that are read.
const ERROR_CAP: usize = 64 << 10;
/// Bytes a whole plain answer may have.
const ANSWER_CAP: usize = 16 << 20;
/// Bytes of a streamed one: each token comes in an object of some hundred bytes.
const STREAM_CAP: usize = 128 << 20;

/// How long each part of an attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connect: Duration,
    /// From sending to the first byte of a streamed answer.
    pub first_byte: Duration,
    /// Between two pieces of a stream.
    pub idle: Duration,
    /// The whole attempt; alone for answers that are not streamed.
    pub total: Duration,
    /// For figures that come after the answer proper ended.
    pub trailing: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(600),
            trailing: Duration::from_secs(5),
        }
    }
}

/// How the answer comes, which decides what its first byte may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Streamed,
    Plain,
}

/// One address of one server.
#[derive(Debug)]
pub struct Http {
    client: Client,
    url: Url,
    /// The address as messages show it: no query, no user.
    pub shown: String,
    headers: HeaderMap,
    pub limits: Limits,
}

impl Http {
    /// Checks the address and makes the client; nothing is connected yet.
    pub fn open(url: &str, headers: HeaderMap, limits: Limits) -> Result<Self, Error> {
        let setup = |what: String| Error::Setup {
            what,
            hint: "a base URL looks like http://127.0.0.1:11434/v1".to_owned(),
        };
        let url = Url::parse(url)
            .map_err(|error| setup(format!("the model's address is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(setup("the model's address is not http or https".to_owned()));
        }
        // Whoever installed a provider before is right; without one no TLS client can be made.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(limits.connect)
            .pool_idle_timeout(IDLE_KEPT)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("wharf/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let client = builder
            .build()
            .map_err(|error| setup(format!("could not set up HTTP: {}", cause(&error))))?;
        Ok(Self {
            shown: shown(&url),
            client,
            url,
            headers,
            limits,
        })
    }

    pub fn host(&self) -> Option<String> {
        self.url.host_str().map(str::to_owned)
    }

    pub fn port(&self) -> Option<u16> {
        self.url.port_or_known_default()
    }

    /// Asks for what is at the address, under the limit of the whole.
    pub async fn get(&self) -> Result<Body, Error> {
        let request = self.client.get(self.url.clone());
        let begun = Instant::now();
        let limit = self.limits.total;
        let sent = request.headers(self.headers.clone()).send();
        let response = match timeout(limit, sent).await {
            Err(_) => return Err(self.timed_out(limit)),
            Ok(sent) => sent.map_err(|error| self.unsent(&error))?,
        };
        let meter = Meter::default();
        self.body(response, begun, limit, meter).await
    }

    /// Sends `body` as JSON, counted on `meter`. Any status but 200 is an error, read and classified.
    pub async fn post(&self, body: Vec<u8>, form: Form, meter: &Meter) -> Result<Body, Error> {
        let begun = Instant::now();
        let limit = match form {
            Form::Streamed => self.limits.first_byte.min(self.limits.total),
            Form::Plain => self.limits.total,
        };
        meter.sending(body.len());
        let response = match timeout(limit, self.send(body.into())).await {
            Err(_) => return Err(self.timed_out(limit)),
            Ok(Err(error)) => {
                if error.is_connect() {
                    meter.refused();
                }
                return Err(self.unsent(&error));
            }
            Ok(Ok(response)) => response,
        };
        self.body(response, begun, limit, meter.clone()).await
    }

    async fn body(
        &self,
        response: Response,
        begun: Instant,
        limit: Duration,
        meter: Meter,
    ) -> Result<Body, Error> {
        let body = Body {
            response,
            shown: self.shown.clone(),
            first: Some((begun + limit, limit)),
            read: 0,
            end: begun + self.limits.total,
            limits: self.limits,
            most: ANSWER_CAP,
            meter,
        };
        match body.response.status().as_u16() {
            200 => Ok(body),
            _ => Err(body.refused().await),
        }
    }

    /// Sends once, and once more when the connection broke before any answer: most often it was one
    /// kept from an earlier request, which the server was just closing.
    async fn send(&self, body: Bytes) -> Result<Response, reqwest::Error> {
        let request = || {
            self.client
                .post(self.url.clone())
                .headers(self.headers.clone())
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(body.clone())
        };
        match request().send().await {
            Err(error) if error.is_request() && !error.is_connect() && !error.is_timeout() => {
                request().send().await
            }
            sent => sent,
        }
    }

    fn timed_out(&self, limit: Duration) -> Error {
        Error::Timeout {
            url: self.shown.clone(),
            limit,
        }
    }

    fn unsent(&self, error: &reqwest::Error) -> Error {
        if error.is_timeout() {
            return self.timed_out(self.limits.connect);
        }
        let (url, reason) = (self.shown.clone(), cause(error));
        if error.is_connect() {
            Error::Connect { url, reason }
        } else {
            Error::Cut { url, reason }
        }
    }
}

/// The body of an answer, read piece by piece.
#[derive(Debug)]
pub struct Body {
    response: Response,
    pub shown: String,
    /// Until the first piece came: when it must be there, and the limit that says so.
    first: Option<(Instant, Duration)>,
    /// Bytes so far.
    read: usize,
    end: Instant,
    limits: Limits,
    /// Bytes that a plain answer may have.
    most: usize,
    /// What comes is counted here.
    pub meter: Meter,
}

impl Body {
    /// The next piece; None at the body's end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let (by, limit) = match self.first.take() {
            Some(first) => first,
            None => (Instant::now() + self.limits.idle, self.limits.idle),
        };
        self.piece(by, limit).await
    }

    /// As `next` for what may follow a finished answer; any trouble is the end.
    pub async fn trailing(&mut self) -> Option<Bytes> {
        let limit = self.limits.trailing;
        let piece = self.piece(Instant::now() + limit, limit).await;
        piece.ok().flatten()
    }

    /// What the model writes may have so many bytes; a plain answer says more around it.
    pub fn at_most(&mut self, written: usize) {
        self.most = written
            .saturating_mul(4)
            .saturating_add(1 << 20)
            .min(ANSWER_CAP);
    }

    /// All that is left, after `begun`; an answer past its cap is refused.
    pub async fn rest(&mut self, begun: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = begun.to_vec();
        while let Some(piece) = self.next().await? {
            out.extend_from_slice(&piece);
            if out.len() > self.most {
                return Err(self.cut("the answer is too long"));
            }
        }
        Ok(out)
    }

    /// The type the server says the body has, in lower case.
    pub fn kind(&self) -> String {
        let value = self.response.headers().get(CONTENT_TYPE);
        let text = value.and_then(|value| value.to_str().ok());
        text.unwrap_or_default().to_lowercase()
    }

    /// The error that this response is, its body read as far as it is needed.
    pub async fn refused(mut self) -> Error {
        let mut text = Vec::new();
        while text.len() < ERROR_CAP {
            match self.next().await {
                Ok(Some(piece)) => text.extend_from_slice(&piece),
                Ok(None) | Err(_) => break,
            }
        }
        self.refusal(&text)
    }

    /// The error that this response is when its body is `text`.
    pub fn refusal(&self, text: &[u8]) -> Error {
        let status = self.response.status().as_u16();
        status::refusal(&self.shown, status, self.response.headers(), text)
    }

    pub fn cut(&self, reason: impl Into<String>) -> Error {
        Error::Cut {
            url: self.shown.clone(),
            reason: reason.into(),
        }
    }

    async fn piece(&mut self, by: Instant, limit: Duration) -> Result<Option<Bytes>, Error> {
        let (by, limit) = if by <= self.end {
            (by, limit)
        } else {
            (self.end, self.limits.total)
        };
        match tokio::time::timeout_at(by, self.response.chunk()).await {
            Ok(Ok(piece)) => {
                let bytes = piece.as_ref().map_or(0, Bytes::len);
                self.read += bytes;
                self.meter.received(bytes);
                match self.read > STREAM_CAP {
                    true => Err(self.cut("the answer is too long")),
                    false => Ok(piece),
                }
            }
            Ok(Err(error)) => Err(self.cut(cause(&error))),
            Err(_) => Err(Error::Timeout {
                url: self.shown.clone(),
                limit,
            }),
        }
    }
}

/// The deepest cause: the outer texts only repeat the address.
pub(super) fn cause(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    let mut source = error.source();
    while let Some(inner) = source {
        deepest = inner;
        source = inner.source();
    }
    status::tame(&deepest.to_string(), 300)
}

/// An address as messages show it: no user, no query.
pub fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}"));
    format!(
        "{}://{}{}{}",
        url.scheme(),
        url.host_str().unwrap_or_default(),
        port.unwrap_or_default(),
        url.path()
    )
}

/// True for addresses of this machine: no proxy stands before them, and they need no key.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || host
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}
