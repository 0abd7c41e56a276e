//! Anthropic's messages, streamed.
//!
//! Owns: the request's body, the fold of its events.
//! Takes: an address without `/v1`, a key, a model's name.
//! Gives: a `Model` whose thinking blocks go back as they came.
//! Never: waits between attempts, or shows one model's blocks to another.

mod body;
mod fold;

use futures::future::BoxFuture;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::http::{self, Http};
use super::openai::header;
use super::{About, Error, Limits, Model, Reply, Request, Secret, outgoing, stream};

/// The version of the protocol this room speaks.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// One model of one server.
pub struct Anthropic {
    http: Http,
    about: About,
    /// The name the server knows it by.
    model: String,
}

impl Anthropic {
    /// `base` is `https://api.anthropic.com` or a gateway's; a trailing `/v1` is taken too. Nothing
    /// is connected yet.
    pub fn open(
        base: &str,
        model: &str,
        key: Option<&Secret>,
        about: About,
        limits: Limits,
    ) -> Result<Self, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("anthropic-version"), VERSION);
        if let Some(key) = key {
            headers.insert(HeaderName::from_static("x-api-key"), header(key.reveal())?);
        }
        let base = base.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        let http = Http::open(&format!("{base}/v1/messages"), headers, limits)?;
        Ok(Self {
            about: About {
                host: http.host(),
                port: http.port(),
                ..about
            },
            model: model.to_owned(),
            http,
        })
    }

    async fn attempt(&self, request: &Request) -> Result<Reply, Error> {
        let messages = outgoing::prepare(request)?;
        let bytes = body::of(&self.model, request, &messages)
            .to_string()
            .into_bytes();
        let size = bytes.len();
        let body = self.http.post(bytes, http::Form::Streamed).await?;
        let mut fold = fold::Fold::default();
        let cut = |reason: String| Error::Cut {
            url: self.http.shown.clone(),
            reason,
        };
        match stream::read(body, &mut fold).await? {
            stream::Form::Events => {}
            stream::Form::Whole(value) => fold.whole(&value).map_err(cut)?,
            stream::Form::Empty => return Err(cut("the answer is empty".to_owned())),
        }
        fold.reply(&self.model, &request.messages, size)
            .map_err(cut)
    }
}

impl Model for Anthropic {
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(self.attempt(request))
    }

    fn about(&self) -> About {
        self.about.clone()
    }
}
