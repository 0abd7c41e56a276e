//! One model of one server over any wire: a single attempt, in the form the server was found to need.

use std::borrow::Cow;

use futures::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::http::{self, Http};
use super::profile::{self, Auth, Learned, Part, Profile, Quirk, Quirks};
use super::wire::{Answer, Asked};
use super::{
    About, Error, Limits, Message, Meter, Model, Reply, Request, Secret, Wire, outgoing, stream,
};

/// Other forms tried within one attempt when the server cannot read the first.
const FORMS: usize = 4;

/// One model of one server.
pub struct Client {
    http: Http,
    about: About,
    /// The name the server knows it by.
    model: String,
    wire: Wire,
    profile: &'static Profile,
    learned: Learned,
}

/// What a client is made of beside its address.
pub struct Parts<'a> {
    pub wire: Wire,
    pub profile: &'static Profile,
    pub learned: Learned,
    pub model: &'a str,
    pub key: Option<&'a Secret>,
    pub about: About,
}

impl Client {
    /// `base` is the provider's address, in the form its wire has. Nothing is connected yet.
    pub fn open(base: &str, parts: Parts<'_>, limits: Limits) -> Result<Self, Error> {
        let headers = headers(parts.wire, parts.profile, parts.key)?;
        let http = Http::open(&parts.wire.address(base), headers, limits)?;
        Ok(Self {
            about: About {
                host: http.host(),
                port: http.port(),
                ..parts.about
            },
            model: parts.model.to_owned(),
            wire: parts.wire,
            profile: parts.profile,
            learned: parts.learned,
            http,
        })
    }

    async fn answer(&self, request: &Request, meter: &Meter) -> Result<Reply, Error> {
        let messages = outgoing::prepare(request)?;
        self.check_tools(request)?;
        let mut request = Cow::Borrowed(request);
        self.limit_reply(&mut request);
        let start = self.profile.quirks();
        let begun = self.learned.over(start);
        let mut quirks = begun;
        let mut tried = vec![quirks];
        loop {
            let answer = self.once(&request, &messages, &mut quirks, meter).await;
            let error = match answer {
                Ok(reply) => {
                    self.learned.keep(start, begun, quirks, profile::shared());
                    self.tell(begun, quirks, &request);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            meter.failed(&error);
            // Each figure is smaller than the one before, but a server may name ever smaller ones.
            let shorter = error.reply_limit(request.reply_tokens);
            if let Some(most) = shorter.filter(|_| tried.len() < FORMS) {
                tracing::warn!(
                    "{} writes at most {most} tokens at once: agent.reply_tokens {} is not sent",
                    self.about.name,
                    request.reply_tokens
                );
                self.learned.keep_reply_tokens(most);
                self.limit_reply(&mut request);
                tried.push(quirks);
                continue;
            }
            let holds = |part| self.holds(part, &request, &messages, quirks);
            match profile::taught(self.profile, quirks, &error, &holds) {
                Some(other) if tried.len() < FORMS && !tried.contains(&other) => {
                    tried.push(other);
                    quirks = other;
                }
                _ => return Err(error),
            }
        }
    }

    /// Asks for no longer a reply than the model was found to write.
    fn limit_reply(&self, request: &mut Cow<'_, Request>) {
        let most = self.learned.reply_tokens(request.reply_tokens);
        if most < request.reply_tokens {
            request.to_mut().reply_tokens = most;
        }
    }

    /// One request; a second, plain one when the stream came back without any event.
    async fn once(
        &self,
        request: &Request,
        messages: &[Message],
        quirks: &mut Quirks,
        meter: &Meter,
    ) -> Result<Reply, Error> {
        let fitted = outgoing::fitted(messages, *quirks);
        let asked = |quirks| Asked {
            model: &self.model,
            request,
            messages: &fitted,
            quirks,
            effort: self.profile.effort_form(quirks),
        };
        let longest = longest(request.reply_tokens);
        if !quirks.has(Quirk::Plain) {
            let bytes = self.wire.body(&asked(*quirks))?;
            let size = bytes.len();
            let body = self.http.post(bytes, http::Form::Streamed, meter).await?;
            let mut answer = self.wire.answer();
            match stream::read(body, answer.as_mut(), longest).await? {
                stream::Form::Events => {
                    *quirks = quirks.without(Quirk::EmptyOnce);
                    return self.reply(answer, request, size);
                }
                stream::Form::Whole(value) => return self.whole(&value, request, size, meter),
                stream::Form::Empty => {}
            }
        }
        let bytes = self.wire.body(&asked(quirks.with(Quirk::Plain)))?;
        let size = bytes.len();
        let body = self.http.post(bytes, http::Form::Plain, meter).await?;
        let value = stream::whole(body, longest).await?;
        let reply = self.whole(&value, request, size, meter)?;
        *quirks = match quirks.has(Quirk::EmptyOnce) {
            true => quirks.with(Quirk::Plain),
            false => quirks.with(Quirk::EmptyOnce),
        };
        Ok(reply)
    }

    fn whole(
        &self,
        value: &serde_json::Value,
        request: &Request,
        size: usize,
        meter: &Meter,
    ) -> Result<Reply, Error> {
        let mut answer = self.wire.answer();
        answer.whole(value).map_err(|reason| self.cut(reason))?;
        meter.read(answer.progress(), 0);
        self.reply(answer, request, size)
    }

    fn reply(
        &self,
        answer: Box<dyn Answer + Send>,
        request: &Request,
        size: usize,
    ) -> Result<Reply, Error> {
        answer
            .reply(&self.model, &request.messages, size)
            .map_err(|reason| self.cut(reason))
    }

    fn cut(&self, reason: String) -> Error {
        Error::Cut {
            url: self.http.shown.clone(),
            reason,
        }
    }

    /// Whether the request as it was written held a part that a lesson is about.
    fn holds(&self, part: Part, request: &Request, messages: &[Message], quirks: Quirks) -> bool {
        let any = |fits: &dyn Fn(&Message) -> bool| messages.iter().any(fits);
        match part {
            Part::Usage => self.wire == Wire::OpenAi && !quirks.has(Quirk::Plain),
            Part::Temperature => request.temperature.is_some(),
            Part::Effort => request.effort.is_some(),
            Part::Cache => self.wire == Wire::Anthropic,
            Part::Reasoning => any(
                &|message| matches!(message, Message::Assistant { native, .. } if native.is_some()),
            ),
            Part::System => any(&|message| matches!(message, Message::System { .. })),
            Part::Results => any(&|message| matches!(message, Message::Tool { .. })),
            Part::Tools => !request.tools.is_empty(),
            Part::Include => self.wire == Wire::Responses,
            Part::UserAfterResult => messages
                .windows(2)
                .any(|pair| matches!(pair, [Message::Tool { .. }, Message::User { .. }])),
            Part::NullContent => {
                self.wire == Wire::OpenAi
                    && any(
                        &|message| matches!(message, Message::Assistant { text, .. } if text.trim().is_empty()),
                    )
            }
        }
    }

    fn check_tools(&self, request: &Request) -> Result<(), Error> {
        match self.profile.tools {
            Some(most) if request.tools.len() > most => Err(Error::Setup {
                what: format!(
                    "the request offers {} tools, and {} takes at most {most}",
                    request.tools.len(),
                    self.about.provider
                ),
                hint: "give the role fewer `tools`".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// What an operator asked for and the model does not take is not left out in silence.
    fn tell(&self, before: Quirks, found: Quirks, request: &Request) {
        let learnt = found.has(Quirk::NoTemperature) && !before.has(Quirk::NoTemperature);
        if learnt && let Some(temperature) = request.temperature {
            tracing::warn!(
                "{} takes no temperature: agent.temperature {temperature} is not sent",
                self.about.name
            );
        }
    }
}

/// Bytes of an answer past which no server keeps to the limit that it was given: a token has four on the
/// average, and few have more than this.
fn longest(reply_tokens: u64) -> usize {
    const BYTES: usize = 64;
    const LEAST: usize = 256 << 10;
    let tokens = usize::try_from(reply_tokens).unwrap_or(usize::MAX);
    tokens.saturating_mul(BYTES).max(LEAST)
}

impl Model for Client {
    fn attempt<'a>(
        &'a self,
        request: &'a Request,
        meter: Meter,
    ) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(async move { self.answer(request, &meter).await })
    }

    fn parameters(&self, request: &Request) -> Map<String, Value> {
        let mut request = Cow::Owned(Request {
            key: request.key.clone(),
            messages: Vec::new(),
            // Whether there are any decides about other parts of the request.
            tools: request.tools.first().cloned().into_iter().collect(),
            ..*request
        });
        self.limit_reply(&mut request);
        let quirks = self.learned.over(self.profile.quirks());
        self.wire.parameters(&Asked {
            model: &self.model,
            request: &request,
            messages: &[],
            quirks,
            effort: self.profile.effort_form(quirks),
        })
    }

    fn about(&self) -> About {
        self.about.clone()
    }
}

/// The headers of every request to a server.
pub fn headers(wire: Wire, profile: &Profile, key: Option<&Secret>) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if wire == Wire::Anthropic {
        let version = HeaderValue::from_static("2023-06-01");
        headers.insert(HeaderName::from_static("anthropic-version"), version);
    }
    if let Some(key) = key {
        let (name, text) = match profile.auth {
            Auth::Bearer => (AUTHORIZATION, format!("Bearer {}", key.reveal())),
            Auth::XApiKey => (
                HeaderName::from_static("x-api-key"),
                key.reveal().to_owned(),
            ),
            Auth::ApiKey => (HeaderName::from_static("api-key"), key.reveal().to_owned()),
        };
        headers.insert(name, hidden(&text)?);
    }
    Ok(headers)
}

/// A header's value that logs leave out.
fn hidden(text: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(text).map_err(|_| Error::Setup {
        what: "the model's key has characters that no header may have".to_owned(),
        hint: "look for a line break or a quotation mark in the variable that holds it".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}
