//! Chat completions, as OpenAI and everything compatible speak them.
//!
//! Owns: the request's body, the fold of deltas, what a server was found to need.
//! Takes: an address, a key, a model's name.
//! Gives: a `Model`; one attempt, streamed unless the server cannot.
//! Never: waits between attempts; only a form the server cannot read is asked again at once.

mod body;
mod calls;
mod fold;
mod profile;

use std::sync::atomic::{AtomicU8, Ordering};

use futures::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use self::profile::Profile;
use super::http::{self, Http};
use super::{About, Error, Limits, Message, Model, Reply, Request, Secret, outgoing, stream};

/// Other forms tried within one attempt when the server cannot read the first.
const FORMS: usize = 3;

/// One model of one server.
pub struct OpenAi {
    http: Http,
    about: About,
    /// The name the server knows it by.
    model: String,
    /// What this server was found to need, a `Profile` as bits.
    learned: AtomicU8,
}

impl OpenAi {
    /// `base` ends with the version: `https://api.openai.com/v1`. Nothing is connected yet.
    pub fn open(
        base: &str,
        model: &str,
        key: Option<&Secret>,
        about: About,
        limits: Limits,
    ) -> Result<Self, Error> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            headers.insert(AUTHORIZATION, header(&format!("Bearer {}", key.reveal()))?);
        }
        let http = Http::open(&address(base), headers, limits)?;
        let profile = Profile::of(http.host().as_deref().unwrap_or_default());
        Ok(Self {
            about: About {
                host: http.host(),
                port: http.port(),
                ..about
            },
            model: model.to_owned(),
            learned: AtomicU8::new(profile.bits()),
            http,
        })
    }

    async fn attempt(&self, request: &Request) -> Result<Reply, Error> {
        let messages = outgoing::prepare(request)?;
        let mut profile = Profile::from_bits(self.learned.load(Ordering::Relaxed));
        let mut tried = vec![profile];
        loop {
            let error = match self.once(request, &messages, &mut profile).await {
                Ok(reply) => {
                    self.learned.store(profile.bits(), Ordering::Relaxed);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            match profile.after(&error, body::has_null(&messages, profile)) {
                Some(other) if tried.len() < FORMS && !tried.contains(&other) => {
                    tried.push(other);
                    profile = other;
                }
                _ => return Err(error),
            }
        }
    }

    /// One request; a second, plain one when the stream came back without any event.
    async fn once(
        &self,
        request: &Request,
        messages: &[Message],
        profile: &mut Profile,
    ) -> Result<Reply, Error> {
        if profile.stream {
            let bytes = self.body(request, messages, *profile)?;
            let size = bytes.len();
            let body = self.http.post(bytes, http::Form::Streamed).await?;
            let mut fold = fold::Fold::default();
            match stream::read(body, &mut fold).await? {
                stream::Form::Events => return self.reply(fold, request, size),
                stream::Form::Whole(value) => return self.whole(&value, request, size),
                stream::Form::Empty => profile.stream = false,
            }
        }
        let bytes = self.body(request, messages, *profile)?;
        let size = bytes.len();
        let body = self.http.post(bytes, http::Form::Plain).await?;
        let value = stream::whole(body).await?;
        self.whole(&value, request, size)
    }

    fn body(
        &self,
        request: &Request,
        messages: &[Message],
        profile: Profile,
    ) -> Result<Vec<u8>, Error> {
        let body = body::Body::of(&self.model, request, messages, profile);
        serde_json::to_vec(&body).map_err(|error| Error::Setup {
            what: format!("the request cannot be written as JSON: {error}"),
            hint: "this is a bug in Wharf".to_owned(),
        })
    }

    fn whole(
        &self,
        value: &serde_json::Value,
        request: &Request,
        size: usize,
    ) -> Result<Reply, Error> {
        let mut fold = fold::Fold::default();
        stream::Fold::event(&mut fold, value).map_err(|reason| self.cut(reason))?;
        self.reply(fold, request, size)
    }

    fn reply(&self, fold: fold::Fold, request: &Request, size: usize) -> Result<Reply, Error> {
        fold.reply(&self.model, &request.messages, size)
            .map_err(|reason| self.cut(reason))
    }

    fn cut(&self, reason: String) -> Error {
        Error::Cut {
            url: self.http.shown.clone(),
            reason,
        }
    }
}

impl Model for OpenAi {
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(self.attempt(request))
    }

    fn about(&self) -> About {
        self.about.clone()
    }
}

/// Where completions are asked for; a query (`?api-version=…`) stays at the end.
fn address(base: &str) -> String {
    let (path, query) = match base.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (base, String::new()),
    };
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix("/chat/completions").unwrap_or(path);
    format!("{path}/chat/completions{query}")
}

/// A header's value that logs leave out.
pub fn header(text: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(text).map_err(|_| Error::Setup {
        what: "the model's key has characters that no header may have".to_owned(),
        hint: "look for a line break or a quotation mark in the variable that holds it".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}
