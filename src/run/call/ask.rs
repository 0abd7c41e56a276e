//! One logical model call: reserved, gated, retried, journaled and settled.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::Stop;
use crate::journal::{Agent, Usage};
use crate::model::{self, Model, Reply, Request, StatusKind, retry};
use crate::run::board::Notice;
use crate::run::call::bill;
use crate::run::call::gate::jitter;
use crate::run::call::pending::Pending;
use crate::run::call::pot::{Held, Refusal};
use crate::run::call::tab::Tab;
use crate::run::shared::Shared;
use crate::trace::{ChatStart, Span};

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

/// A call under way: who asks which model for what.
pub(super) struct Call<'a> {
    pub shared: &'a Shared,
    pub who: &'a Agent,
    pub model: &'a dyn Model,
    pub about: model::About,
    pub request: &'a Request,
}

impl Call<'_> {
    async fn ask(&self, parent: &Span) -> Result<Reply, Stop> {
        let mut tab = Tab::open(parent.chat(&ChatStart {
            run: self.shared.id.to_string(),
            provider: self.about.provider.clone(),
            model: self.model_name().to_owned(),
            host: self.about.host.clone(),
            port: self.about.port,
            stream: true,
            reply_tokens: self.request.reply_tokens,
            temperature: self.request.temperature,
            agent: self.who.role.to_string(),
        }));
        let answer = self.attempts(&mut tab).await;
        if let Err(stop) = &answer {
            tab.failed(stop);
        }
        answer
    }

    async fn attempts(&self, tab: &mut Tab) -> Result<Reply, Stop> {
        let mut attempt = 1;
        let mut failures = retry::Failures::default();
        loop {
            let held = self.reserve().await?;
            let mut pending = Pending::new(self, tab, attempt, held);
            self.turn().await?;
            let error = match pending.ask().await? {
                Ok(reply) => return pending.answered(reply).await,
                Err(error) => error,
            };
            failures = failures.and(&error);
            let next = retry::next(&error, failures, jitter());
            let wait = match next {
                retry::Next::Again(wait) => Some(wait),
                retry::Next::Stop => None,
            };
            pending.failed(&error, wait);
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

    /// Reserves the worst case of one attempt.
    async fn reserve(&self) -> Result<Held, Stop> {
        let cancel = &self.shared.stop.cancel;
        let worst = bill::worst(self.request, self.about.price);
        tokio::select! {
            () = cancel.cancelled() => Err(Stop::Cancelled),
            held = self.shared.pot.reserve(worst) => held.map_err(refused),
        }
    }

    /// A server that leaves out what does not fit says nothing of it: its own figures give it away.
    pub(super) fn doubt(&self, reply: &Reply) {
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

    /// An attempt that used this came to no answer: the agent's own limit knows of it.
    pub(super) fn lost(&self, usage: Usage) {
        let tokens = usage.input_tokens + usage.output_tokens;
        self.shared
            .unanswered
            .send_modify(|known| *known.entry(self.who.clone()).or_default() += tokens);
    }

    pub(super) fn show(&self, usage: Usage, cost: Option<f64>) {
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
    async fn turn(&self) -> Result<(), Stop> {
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
        tokio::select! {
            () = self.shared.stop.cancel.cancelled() => Err(Stop::Cancelled),
            () = self.shared.gates.pass(server) => Ok(()),
        }
    }

    /// Tells all who ask this server of a limit that the request sent at `since` met.
    pub(super) fn limited(&self, error: &model::Error, since: Instant) {
        let one = retry::Failures::default().and(error);
        if let retry::Next::Again(wait) = retry::next(error, one, jitter()) {
            self.shared.gates.limited(&self.about.provider, since, wait);
        }
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

fn add(so_far: Option<f64>, more: Option<f64>) -> Option<f64> {
    more.map(|more| so_far.unwrap_or(0.0) + more)
}

fn refused(refusal: Refusal) -> Stop {
    match refusal {
        Refusal::Limit(limit) => Stop::RunLimit(limit),
        Refusal::Ended => Stop::Cancelled,
    }
}

pub(super) fn stop_of(error: &model::Error) -> Stop {
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
pub(super) fn environment(error: crate::journal::Error) -> Stop {
    Stop::Environment {
        reason: error.to_string(),
    }
}
