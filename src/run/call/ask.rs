//! One logical model call: reserved, gated, retried, journaled and settled.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::Stop;
use crate::journal::{Agent, Event, Terms, Usage};
use crate::model::{self, Model, Reply, Request, StatusKind, retry};
use crate::run::board::Notice;
use crate::run::call::bill;
use crate::run::call::gate::jitter;
use crate::run::call::pot::{Amount, Held, Refusal};
use crate::run::shared::Shared;
use crate::trace::{ChatEnd, ChatStart, Span, names};

/// Asks the models of a role in order of fall-back; the first whole reply counts.
pub(in crate::run) async fn ask(
    shared: &Shared,
    who: &Agent,
    models: &[Arc<dyn Model>],
    request: &Request,
    parent: &Span,
) -> Result<Reply, Stop> {
    let mut last = Stop::Model {
        reason: "no model is configured".to_owned(),
        hint: String::new(),
    };
    for (n, model) in models.iter().enumerate() {
        let known = shared.hopeless.borrow().get(&model.about().name).cloned();
        if let Some((reason, hint)) = known {
            last = Stop::Model { reason, hint };
            continue;
        }
        let call = Call {
            shared,
            who,
            model: model.as_ref(),
            about: model.about(),
            request,
        };
        match call.ask(parent).await {
            Ok(reply) => return Ok(reply),
            Err(stop @ (Stop::Cancelled | Stop::RunLimit(_) | Stop::ContextOverflow { .. })) => {
                return Err(stop);
            }
            Err(stop) => {
                if let Some(next) = models.get(n + 1) {
                    shared.warn(format!(
                        "{}: {stop}; asking {} instead",
                        call.about.name,
                        next.about().name
                    ));
                }
                last = stop;
            }
        }
    }
    Err(last)
}

struct Call<'a> {
    shared: &'a Shared,
    who: &'a Agent,
    model: &'a dyn Model,
    about: model::About,
    request: &'a Request,
}

impl Call<'_> {
    async fn ask(&self, parent: &Span) -> Result<Reply, Stop> {
        let span = parent.chat(&ChatStart {
            run: self.shared.id.to_string(),
            provider: self.about.provider.clone(),
            model: self.model_name().to_owned(),
            host: self.about.host.clone(),
            port: self.about.port,
            stream: true,
            reply_tokens: self.request.reply_tokens,
            temperature: self.request.temperature,
            agent: self.who.role.to_string(),
        });
        let answer = self.attempts(&span).await;
        if let Err(stop) = &answer {
            span.fail(stop.word(), &stop.to_string());
        }
        span.end();
        answer
    }

    async fn attempts(&self, span: &Span) -> Result<Reply, Stop> {
        let mut attempt = 1;
        let mut failures = retry::Failures::default();
        loop {
            let error = match self.attempt(attempt, span).await? {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            failures = failures.and(&error);
            let next = retry::next(&error, failures, jitter());
            let wait = match next {
                retry::Next::Again(wait) => Some(wait),
                retry::Next::Stop => None,
            };
            let spent = bill::failed(&error, self.request, self.about.price);
            self.shared.journal.note(Event::ModelFailed {
                agent: self.who.clone(),
                call: self.request.key.call,
                attempt,
                reason: error.to_string(),
                retry_seconds: wait.map(|w| w.as_secs_f64()),
                spent_tokens: spent.tokens as u64,
                spent_usd: spent.cost_usd,
                stop: wait.is_none().then(|| stop_of(&error).word().to_owned()),
            });
            self.failed(&error, attempt, wait, span);
            let Some(wait) = wait else {
                return Err(self.give_up(&error));
            };
            attempt += 1;
            self.wait(&error, wait, attempt, failures).await?;
        }
    }

    /// A fault that every other agent would meet too is remembered: nobody asks this model again.
    fn give_up(&self, error: &model::Error) -> Stop {
        let stop = stop_of(error);
        if let (true, Stop::Model { reason, hint }) = (error.holds_for_all(), &stop) {
            let (name, why) = (self.about.name.clone(), (reason.clone(), hint.clone()));
            self.shared.hopeless.send_modify(|known| {
                known.entry(name).or_insert(why);
            });
        }
        stop
    }

    /// One attempt. The outer error ends the call; the inner one may be asked again.
    async fn attempt(
        &self,
        attempt: u32,
        span: &Span,
    ) -> Result<Result<Reply, model::Error>, Stop> {
        let cancel = &self.shared.stop.cancel;
        let worst = bill::worst(self.request, self.about.price);
        let held = tokio::select! {
            () = cancel.cancelled() => return Err(Stop::Cancelled),
            held = self.shared.pot.reserve(worst) => held.map_err(refused)?,
        };
        tokio::select! {
            () = cancel.cancelled() => {
                held.settle(Amount::default());
                return Err(Stop::Cancelled);
            }
            () = self.turn() => {}
        }
        let asked = Event::ModelAsked {
            agent: self.who.clone(),
            call: self.request.key.call,
            attempt,
            messages: self.request.messages.len(),
            reserved_tokens: worst.tokens as u64,
            reserved_usd: worst.cost_usd,
            model: self.about.name.clone(),
            terms: Some(Terms {
                provider: self.about.provider.clone(),
                host: self.about.host.clone(),
                port: self.about.port,
                reply_tokens: self.request.reply_tokens,
                temperature: self.request.temperature,
            }),
            request_hash: model::request_hash(self.request),
        };
        self.shared
            .journal
            .append(asked)
            .await
            .map_err(environment)?;
        let since = Instant::now();
        tokio::select! {
            () = cancel.cancelled() => Err(Stop::Cancelled),
            answer = self.model.ask(self.request) => match answer {
                Ok(reply) => self.settle(held, reply, since.elapsed(), attempt, span).await.map(Ok),
                Err(error) => {
                    held.settle(bill::failed(&error, self.request, self.about.price));
                    if retry::is_limit(&error) {
                        self.limited(&error, since);
                    }
                    Ok(Err(error))
                }
            },
        }
    }

    async fn settle(
        &self,
        held: Held,
        reply: Reply,
        elapsed: Duration,
        attempts: u32,
        span: &Span,
    ) -> Result<Reply, Stop> {
        self.shared.gates.answered(&self.about.provider);
        let used = bill::used(reply.usage, self.about.price);
        held.settle(used);
        let cost = self.about.price.map(|_| used.cost_usd);
        let usage = Usage {
            input_tokens: reply.usage.input,
            output_tokens: reply.usage.output,
            cached_tokens: reply.usage.cached,
            estimated: reply.usage.estimated,
        };
        let answered = Event::ModelAnswered {
            agent: self.who.clone(),
            call: self.request.key.call,
            reply: serde_json::to_value(&reply).unwrap_or_default(),
            usage,
            cost_usd: cost,
            seconds: elapsed.as_secs_f64(),
        };
        self.shared
            .journal
            .append(answered)
            .await
            .map_err(environment)?;
        self.show(usage, cost);
        self.doubt(&reply);
        span.answered(&ChatEnd {
            response_id: reply.id.clone(),
            response_model: reply.model.clone(),
            finish: finish_word(&reply.finish),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.cached_tokens,
            estimated: usage.estimated,
            cost_usd: cost,
            attempts,
        });
        Ok(reply)
    }

    /// A server that leaves out what does not fit says nothing of it: its own figures give it away.
    fn doubt(&self, reply: &Reply) {
        if self.about.recorded.is_some() || !bill::cut(reply.usage, self.request) {
            return;
        }
        let key = format!("window of {}", self.about.name);
        if self
            .shared
            .doubted
            .send_if_modified(|known| known.insert(key))
        {
            self.shared.warn(format!(
                "{} counted {} tokens of a request of about {}: it may leave out in silence what does not fit \
                 its window; give the window it has as agent.context_window, or start it with a larger one \
                 (Ollama: num_ctx)",
                self.about.name,
                reply.usage.input,
                bill::estimate(self.request)
            ));
        }
    }

    fn show(&self, usage: Usage, cost: Option<f64>) {
        let tokens = usage.input_tokens + usage.output_tokens;
        self.shared.board.change(self.who.subtask.as_str(), |row| {
            row.tokens += tokens;
            row.cost_usd = add(row.cost_usd, cost);
        });
        self.shared.count(|totals| {
            totals.tokens += tokens;
            totals.cost_usd = add(totals.cost_usd, cost);
        });
    }

    /// Waits for the gate, and says so where it is closed: who waits for others' limit is not stuck.
    async fn turn(&self) {
        let server = &self.about.provider;
        let wait = self.shared.gates.closed_for(server);
        if !wait.is_zero() {
            let line = format!(
                "waiting {:.1} s for the limit of {server}",
                wait.as_secs_f64()
            );
            self.shared
                .board
                .change(self.who.subtask.as_str(), |row| row.doing = line);
        }
        self.shared.gates.pass(server).await;
    }

    /// Tells all who ask this server of a limit that the request sent at `since` met.
    fn limited(&self, error: &model::Error, since: Instant) {
        let one = retry::Failures::default().and(error);
        if let retry::Next::Again(wait) = retry::next(error, one, jitter()) {
            self.shared.gates.limited(&self.about.provider, since, wait);
        }
    }

    /// An attempt that failed stands on the call's span too.
    fn failed(&self, error: &model::Error, attempt: u32, wait: Option<Duration>, span: &Span) {
        let wait = wait.map(|wait| wait.as_secs_f64());
        tell_failed(span, attempt, &error.to_string(), wait);
    }

    /// Waits before try number `attempt`.
    async fn wait(
        &self,
        error: &model::Error,
        wait: Duration,
        attempt: u32,
        failures: retry::Failures,
    ) -> Result<(), Stop> {
        let agent = self.who.subtask.as_str();
        let reason = error.to_string();
        self.shared.board.change(agent, |row| {
            row.doing = format!("waiting {:.1} s: {reason}", wait.as_secs_f64())
        });
        self.shared.tell(&Notice::Waiting {
            agent: agent.to_owned(),
            attempt,
            attempts: match retry::is_limit(error) {
                true => retry::LIMITS + 1 + failures.faults,
                false => retry::RETRIES + 1 + failures.limits,
            },
            reason,
            seconds: wait.as_secs_f64(),
        });
        tokio::select! {
            () = self.shared.stop.cancel.cancelled() => Err(Stop::Cancelled),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }

    fn model_name(&self) -> &str {
        bare(&self.about.name)
    }
}

/// A model's name without its provider's.
pub(in crate::run) fn bare(name: &str) -> &str {
    name.split_once('/').map_or(name, |(_, name)| name)
}

/// A failed attempt on the span of its call.
pub(in crate::run) fn tell_failed(span: &Span, attempt: u32, reason: &str, wait: Option<f64>) {
    let mut attributes = vec![
        (names::ATTEMPT, attempt.into()),
        (names::STATUS, reason.into()),
    ];
    if let Some(wait) = wait {
        attributes.push((names::RETRY_SECONDS, wait.into()));
    }
    span.event(names::ATTEMPT_FAILED, attributes);
}

fn add(so_far: Option<f64>, more: Option<f64>) -> Option<f64> {
    more.map(|more| so_far.unwrap_or(0.0) + more)
}

pub(in crate::run) fn finish_word(finish: &model::Finish) -> String {
    match finish {
        model::Finish::Stop => "stop".to_owned(),
        model::Finish::Calls => "tool_calls".to_owned(),
        model::Finish::Length => "length".to_owned(),
        model::Finish::Filtered => "content_filter".to_owned(),
        model::Finish::Other(word) => word.clone(),
    }
}

fn refused(refusal: Refusal) -> Stop {
    match refusal {
        Refusal::Limit(limit) => Stop::RunLimit(limit),
        Refusal::Ended => Stop::Cancelled,
    }
}

fn stop_of(error: &model::Error) -> Stop {
    if let model::Error::Status {
        kind: StatusKind::ContextOverflow,
        ..
    } = error
    {
        return Stop::ContextOverflow {
            window: error.window(),
        };
    }
    Stop::Model {
        reason: error.to_string(),
        hint: error.hint(),
    }
}

/// A journal that cannot be written ends the agent: nothing may happen that is not recorded.
fn environment(error: crate::journal::Error) -> Stop {
    Stop::Environment {
        reason: error.to_string(),
    }
}
