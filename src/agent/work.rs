//! The loop: ask, check the whole reply, run its calls, append, until the ending call or a limit.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::barren::{Barren, Lack};
use super::compaction::{Condensing, Way};
use super::history::History;
use super::limits::Used;
use super::stall::Stall;
use super::{Assignment, CallOutput, Checkpoint, Outcome, Past, Stop, words};
use crate::model::{Reply, Request, ToolSpec};
use crate::tools::clip;
use crate::{plan, tools};

/// Characters of what an agent was told that a stop repeats.
pub(super) const WHY: usize = 200;

/// How often an agent's conversation is shortened because the model found it too long.
const OVERFLOWS: u32 = 3;

/// Works one assignment to its end. Whatever the role, the same loop with the same safety nets.
pub async fn work(assignment: Assignment, checkpoint: &dyn Checkpoint) -> Outcome {
    let mut worker = Worker::new(assignment, checkpoint);
    let ended = worker.go().await;
    Outcome {
        ended,
        turns: worker.used.turns,
        tool_calls: worker.used.tool_calls,
        elapsed: worker.elapsed(),
        results: worker.results,
    }
}

/// One agent at work.
pub(super) struct Worker<'a> {
    pub checkpoint: &'a dyn Checkpoint,
    pub role: plan::Role,
    pub tools: tools::Set,
    pub span: crate::trace::Span,
    pub history: History,
    pub used: Used,
    pub stall: Stall,
    pub results: Vec<CallOutput>,
    /// Files were edited and no command ran since.
    pub unchecked: bool,
    pub asked_to_check: bool,
    /// Its report was handed back once.
    pub asked_again: bool,
    started: Instant,
    /// Used by an earlier process.
    spent: Duration,
    /// Of this process's, what went to waiting for consent and for hooks.
    pub paused: Duration,
    pub deadline: Instant,
    pub request: Request,
    names: Vec<String>,
    past: Vec<Past>,
    /// How an earlier process shortened the conversation, each with the turns done before.
    pub shortened: VecDeque<(u32, Way)>,
    pub condensing: Condensing,
    /// Tokens that a request and its reply may hold, as far as that is known.
    pub window: u64,
    /// Tokens that the model which sums up takes.
    pub summary_window: u64,
    barren: Barren,
    pub overflows: u32,
}

/// What a reply came to.
pub(super) enum Step {
    Ended(Value),
    /// A usable call ran.
    Went,
    /// It led nowhere.
    Barren(Lack),
}

impl<'a> Worker<'a> {
    fn new(assignment: Assignment, checkpoint: &'a dyn Checkpoint) -> Self {
        let limits = &assignment.role.limits;
        let window = assignment.context_window;
        let reply_tokens = reply_tokens(limits.reply_tokens, window);
        let specs: Vec<ToolSpec> = assignment.tools.specs().iter().map(shown).collect();
        let history = History::new(
            &assignment.system,
            &assignment.first,
            assignment.compaction,
            window,
            reply_tokens,
        );
        let started = Instant::now();
        let left = limits.time.saturating_sub(assignment.spent);
        Self {
            checkpoint,
            history: history.with_tools(&specs),
            names: specs.iter().map(|s| s.name.clone()).collect(),
            request: Request {
                key: assignment.key,
                messages: Vec::new(),
                tools: specs,
                reply_tokens,
                temperature: assignment.role.temperature,
                effort: super::effort(&assignment.role),
            },
            used: Used::default(),
            stall: Stall::default(),
            results: Vec::new(),
            unchecked: false,
            asked_to_check: false,
            asked_again: false,
            started,
            spent: assignment.spent,
            paused: Duration::ZERO,
            deadline: started + left.min(Duration::from_secs(365 * 86_400)),
            past: assignment.past,
            shortened: assignment.shortened.into(),
            condensing: Condensing::default(),
            window,
            summary_window: assignment.summary_window,
            barren: Barren::default(),
            overflows: 0,
            role: assignment.role,
            tools: assignment.tools,
            span: assignment.span,
        }
    }

    async fn go(&mut self) -> Result<Value, Stop> {
        for past in std::mem::take(&mut self.past) {
            if let Some(value) = self.relive(past).await? {
                return Ok(value);
            }
        }
        loop {
            self.used.time = self.elapsed();
            self.used.unanswered = self.checkpoint.unanswered();
            if let Some(limit) = self.used.over(&self.role.limits) {
                return Err(Stop::AgentLimit { limit });
            }
            self.used.last_chance |= !self.used.may_call(&self.role.limits);
            let reply = self.ask().await?;
            if let Some(value) = self.step(reply).await? {
                return Ok(value);
            }
        }
    }

    /// Takes a reply that just came, and settles what it leads to.
    async fn step(&mut self, reply: Reply) -> Result<Option<Value>, Stop> {
        self.count(&reply);
        match self.reply(reply).await? {
            Step::Ended(value) => Ok(Some(value)),
            Step::Went => {
                self.barren = Barren::default();
                Ok(None)
            }
            Step::Barren(lack) => {
                self.barren.add(lack);
                self.barren.stop().map_or(Ok(None), Err)
            }
        }
    }

    /// Takes a reply of an earlier process with its results; runs its calls where none are recorded.
    /// What the loop knows of the conversation is then what it knew when the reply came.
    async fn relive(&mut self, past: Past) -> Result<Option<Value>, Stop> {
        self.shorten_again();
        let estimate = self.history.estimate();
        self.settle_estimate(estimate, &past.reply);
        let Some(results) = past.results else {
            let ended = self.step(past.reply).await?;
            self.history.add(past.told.as_deref());
            return Ok(ended);
        };
        self.count(&past.reply);
        let ended = if past.reply.calls.is_empty() {
            let nudge = self.nudge(&past.reply);
            self.history.text(&past.reply, nudge);
            self.barren.add(Lack::Call(self.lacked(&past.reply)));
            None
        } else {
            self.history.calls(&past.reply, &results, &past.left_out);
            self.recall(results)
        };
        self.history.add(past.told.as_deref());
        Ok(ended)
    }

    /// Takes recorded results in; gives the arguments of an ending call that was handed in.
    fn recall(&mut self, results: Vec<CallOutput>) -> Option<Value> {
        let ending = self.tools.ending();
        // Arguments that are a text belong to a call that was refused before it was one.
        let made = |result: &&CallOutput| !result.arguments.is_string();
        let asked_to_check = |result: &CallOutput| result.text.contains(words::CHECK_FIRST);
        let asked_again = |result: &CallOutput| result.text.contains(words::REPORT_AGAIN);
        let ends = |result: &&CallOutput| result.tool == ending && !result.failed;
        let usable = |result: &CallOutput| {
            let asked = asked_to_check(result) || asked_again(result);
            result.tool != ending || !result.failed || asked
        };
        let ended = results.iter().find(ends).map(|r| r.arguments.clone());
        match results.iter().filter(made).any(usable) {
            true => self.barren = Barren::default(),
            false => self.barren.add(lack(&results, ending)),
        }
        for result in results {
            self.remember(&result);
            let counts = made(&&result) && result.tool != ending;
            self.used.tool_calls += u32::from(counts);
            self.asked_to_check |= result.tool == ending && asked_to_check(&result);
            self.asked_again |= result.tool == ending && asked_again(&result);
            self.results.push(result);
        }
        ended
    }

    fn count(&mut self, reply: &Reply) {
        self.used.turns += 1;
        self.used.tokens += reply.usage.input + reply.usage.output;
    }

    /// Keeps in mind whether the last edit was followed by a command.
    pub fn remember(&mut self, result: &CallOutput) {
        match result.tool.as_str() {
            "write_file" | "edit_file" if !result.failed => self.unchecked = true,
            "bash" | "run_acceptance" if result.exit_code.is_some() => self.unchecked = false,
            _ => {}
        }
    }

    /// What a reply without a usable form is answered with.
    pub fn nudge(&self, reply: &Reply) -> String {
        words::nudge(reply, &self.names, self.tools.ending())
    }

    /// Why it was not usable.
    pub fn lacked(&self, reply: &Reply) -> String {
        words::lacked(reply, &self.names).to_string()
    }

    /// One answer of the model; a request that is too long is shortened and sent again.
    async fn ask(&mut self) -> Result<Reply, Stop> {
        self.request.key.call = self.used.turns + 1;
        loop {
            self.shorten().await?;
            let estimate = self.history.estimate();
            self.request.messages = self.history.messages();
            self.checkpoint.doing("waiting for the model");
            let request = self.request.clone();
            let asking = self.checkpoint.ask(request, &self.span);
            match self.bounded(asking).await? {
                Ok(reply) => {
                    self.settle_estimate(estimate, &reply);
                    return Ok(reply);
                }
                Err(Stop::ContextOverflow { window }) if self.overflows < OVERFLOWS => {
                    self.overflows += 1;
                    self.overflowed(window).await?;
                }
                Err(Stop::ContextOverflow { .. }) => {
                    return Err(Stop::Model {
                        reason: "the conversation does not fit its context window".to_string(),
                        hint:
                            "name the model's context_window in the plan, or a smaller agent.output"
                                .to_string(),
                    });
                }
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Takes the model's own count of the request that was estimated.
    fn settle_estimate(&mut self, estimate: u64, reply: &Reply) {
        if !reply.usage.estimated {
            self.history.calibrate(estimate, reply.usage.input);
        }
    }

    /// The agent's time so far, that of an earlier process included, waiting for consent left out.
    pub fn elapsed(&self) -> Duration {
        self.spent + self.started.elapsed().saturating_sub(self.paused)
    }

    /// Waits for something of the run's within the agent's time, hearing the cancel.
    pub async fn bounded<T>(&self, waiting: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            () = self.checkpoint.cancel().cancelled() => Err(Stop::Cancelled),
            done = waiting => Ok(done),
            () = tokio::time::sleep_until(self.deadline) => Err(Stop::AgentLimit {
                limit: format!("{} s", self.role.limits.time.as_secs()),
            }),
        }
    }
}

/// What a recorded turn lacked that led nowhere.
fn lack(results: &[CallOutput], ending: &str) -> Lack {
    let told = |result: &CallOutput| {
        let number = format!("#{} ", result.number);
        let text = words::bare(&result.text);
        clip::line(text.strip_prefix(&number).unwrap_or(text), WHY)
    };
    let handed_in = |result: &&CallOutput| result.tool == ending && !result.arguments.is_string();
    match (results.iter().rfind(handed_in), results.last()) {
        (Some(back), _) => Lack::Taken(told(back)),
        (None, last) => Lack::Call(last.map(told).unwrap_or_default()),
    }
}

/// A small window is shared: the reply may not take the room of the request.
pub(super) fn reply_tokens(limit: u64, window: u64) -> u64 {
    limit.min((window / 4).max(1))
}

fn shown(spec: &tools::Spec) -> ToolSpec {
    ToolSpec {
        name: spec.name.clone(),
        description: spec.description.clone(),
        schema: spec.schema.clone(),
    }
}
