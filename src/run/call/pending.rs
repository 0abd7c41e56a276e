//! One attempt that is out: pot, journal, span and board learn what it came to on every way out.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::Stop;
use crate::journal::{self, Event, Terms};
use crate::model::{self, Meter, Reply, retry};
use crate::run::call::ask::{Call, environment, stop_of};
use crate::run::call::bill;
use crate::run::call::pot::{Amount, Held};
use crate::run::call::tab::Tab;

/// Why an attempt came to nothing that was cancelled, ran out of time or fell with its task.
const BROKEN_OFF: &str = "it was broken off before its answer";

/// An attempt whose worst case is reserved. One that is dropped was broken off: what it came to by then
/// is spent.
pub(super) struct Pending<'a> {
    call: &'a Call<'a>,
    tab: &'a mut Tab,
    /// From 1.
    attempt: u32,
    meter: Meter,
    /// None: it is settled.
    held: Option<Held>,
    /// When it went out; None: it did not.
    since: Option<Instant>,
}

/// What an attempt used, in the forms of those who count it.
struct Used {
    amount: Amount,
    usage: journal::Usage,
    /// None: the price is not known.
    cost_usd: Option<f64>,
}

impl<'a> Pending<'a> {
    pub fn new(call: &'a Call<'a>, tab: &'a mut Tab, attempt: u32, held: Held) -> Self {
        Self {
            call,
            tab,
            attempt,
            meter: Meter::default(),
            held: Some(held),
            since: None,
        }
    }

    /// Asks. The outer error ends the call; the inner one may be asked again.
    pub async fn ask(&mut self) -> Result<Result<Reply, model::Error>, Stop> {
        let call = self.call;
        self.since = Some(Instant::now());
        let written = call.shared.journal.append(self.event()).await;
        written.map_err(environment)?;
        let since = Instant::now();
        self.since = Some(since);
        tokio::select! {
            () = call.shared.stop.cancel.cancelled() => Err(Stop::Cancelled),
            answer = call.model.attempt(call.request, self.meter.clone()) => {
                if let Err(error) = &answer
                    && retry::is_limit(error)
                {
                    call.limited(error, since);
                }
                Ok(answer)
            }
        }
    }

    /// It is answered.
    pub async fn answered(mut self, reply: Reply) -> Result<Reply, Stop> {
        let call = self.call;
        call.shared.gates.answered(&call.about.provider);
        let usage = match self.meter.reading().before {
            Some(before) => reply.usage.and(before),
            None => reply.usage,
        };
        let used = self.used(usage);
        self.settle(Some(&used));
        let elapsed = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        let answered = Event::ModelAnswered {
            agent: call.who.clone(),
            call: call.request.key.call,
            reply: serde_json::to_value(&reply).unwrap_or_default(),
            usage: used.usage,
            cost_usd: used.cost_usd,
            seconds: elapsed.as_secs_f64(),
        };
        let written = call.shared.journal.append(answered).await;
        written.map_err(environment)?;
        call.doubt(&reply);
        self.tab.answered(Some(&reply), self.attempt);
        Ok(reply)
    }

    /// It failed, and another one follows after `wait`.
    pub fn failed(mut self, error: &model::Error, wait: Option<Duration>) {
        let seconds = wait.map(|wait| wait.as_secs_f64());
        let reason = error.to_string();
        self.tab.attempt_failed(self.attempt, &reason, seconds);
        let stop = wait.is_none().then(|| stop_of(error));
        self.close(reason, seconds, stop.as_ref());
    }

    fn close(&mut self, reason: String, retry_seconds: Option<f64>, stop: Option<&Stop>) {
        let usage = self.meter.reading().usage();
        let used = usage.map(|usage| self.used(usage));
        self.settle(used.as_ref());
        if let Some(used) = &used {
            self.call.lost(used.usage);
        }
        let spent = used.as_ref().map(|used| used.amount).unwrap_or_default();
        self.call.shared.journal.note(Event::ModelFailed {
            agent: self.call.who.clone(),
            call: self.call.request.key.call,
            attempt: self.attempt,
            reason,
            retry_seconds,
            spent_tokens: spent.tokens.ceil() as u64,
            spent_usd: spent.cost_usd,
            usage: used.as_ref().map(|used| used.usage),
            cost_usd: used.and_then(|used| used.cost_usd),
            stop: stop.map(|stop| stop.word().to_owned()),
        });
    }

    /// Takes what was used out of the pot and tells it to whoever watches.
    fn settle(&mut self, used: Option<&Used>) {
        if let Some(held) = self.held.take() {
            held.settle(used.map(|used| used.amount).unwrap_or_default());
        }
        if let Some(used) = used {
            self.tab.add(used.usage, used.cost_usd);
            self.call.show(used.usage, used.cost_usd);
        }
    }

    fn used(&self, usage: model::Usage) -> Used {
        let price = self.call.about.price;
        let amount = bill::used(usage, price);
        Used {
            amount,
            usage: journal::Usage {
                input_tokens: usage.input,
                output_tokens: usage.output,
                cached_tokens: usage.cached,
                estimated: usage.estimated,
            },
            cost_usd: price.map(|_| amount.cost_usd),
        }
    }

    fn event(&self) -> Event {
        let Call {
            who,
            model,
            about,
            request,
            ..
        } = self.call;
        let worst = bill::worst(request, about.price);
        Event::ModelAsked {
            agent: (*who).clone(),
            call: request.key.call,
            attempt: self.attempt,
            messages: request.messages.len(),
            reserved_tokens: worst.tokens as u64,
            reserved_usd: worst.cost_usd,
            model: about.name.clone(),
            terms: Some(Terms {
                provider: about.provider.clone(),
                host: about.host.clone(),
                port: about.port,
                reply_tokens: request.reply_tokens,
                temperature: request.temperature,
                parameters: model.parameters(request),
            }),
            request_hash: model::request_hash(request),
        }
    }
}

/// A wait that is over is dropped where it stands: there is no other moment at which this can be told.
impl Drop for Pending<'_> {
    fn drop(&mut self) {
        match (self.since, self.held.is_some()) {
            (_, false) => {}
            (Some(_), true) => self.close(BROKEN_OFF.to_owned(), None, Some(&Stop::Cancelled)),
            (None, true) => self.settle(None),
        }
    }
}
