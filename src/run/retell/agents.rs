//! The spans of agents and of what they did: calls of models, of tools, and commands in sandboxes.

use std::collections::HashMap;
use std::time::SystemTime;

use serde_json::Value;

use super::chat::Chat;
use super::{later, moment};
use crate::agent::{Resource, Stop};
use crate::id::SubtaskId;
use crate::journal::{Agent, AgentEnd, AgentKind, Event, Line, Terms, Usage};
use crate::run::allow::egress;
use crate::run::call::ask::bare;
use crate::run::work::worker;
use crate::trace::{AgentStart, ChatStart, ExecStart, Span, Tracer};

pub(super) struct Agents {
    root: Span,
    run: String,
    /// The provider of each model, as the first request to it has it.
    providers: HashMap<String, String>,
    open: HashMap<Agent, At>,
    /// The last span of each subtask.
    last: HashMap<SubtaskId, Span>,
    /// Verifiers that ended and wait for what their verdict is worth, each with its own word.
    judges: Vec<(SubtaskId, Span, Option<Value>)>,
}

/// An agent at work, or who else asks a model.
struct At {
    span: Span,
    start: AgentStart,
    chat: Option<Chat>,
    /// When the last answer came: tools run from then on.
    answered: SystemTime,
    sandbox: ExecStart,
    ended: bool,
}

/// A connection out of a sandbox, on the span it belongs to.
pub(super) fn tell_egress(span: &Span, event: &Event) {
    if let Event::Egress {
        host, port, step, ..
    } = event
    {
        span.event(
            crate::trace::names::EGRESS,
            egress::attributes(host, *port, step),
        );
    }
}

impl Agents {
    pub(super) fn new(root: Span, run: String, lines: &[Line]) -> Self {
        let mut providers = HashMap::new();
        for line in lines {
            if let Event::ModelAsked { model, terms, .. } = &line.event {
                let provider = terms.as_ref().map(|terms| terms.provider.clone());
                let provider = provider.unwrap_or_else(|| before(model).to_owned());
                providers.entry(model.clone()).or_insert(provider);
            }
        }
        Self {
            root,
            run,
            providers,
            open: HashMap::new(),
            last: HashMap::new(),
            judges: Vec::new(),
        }
    }

    /// The span of an agent that starts.
    pub(super) fn begin(
        &mut self,
        line: &Line,
        parent: &Span,
        mut start: AgentStart,
        needs: &[Span],
    ) {
        let Event::AgentStarted { agent, model, .. } = &line.event else {
            return;
        };
        let known = self.providers.get(model).cloned();
        start.provider = known.unwrap_or_else(|| before(model).to_owned());
        start.model.clone_from(model);
        let span = parent.agent(&start, needs);
        self.last.insert(agent.subtask.clone(), span.clone());
        let at = At::new(span, start, moment(line.at));
        if let Some(before) = self.open.insert(agent.clone(), at) {
            before.close();
        }
    }

    /// True for one that no agent's span was begun for.
    pub(super) fn is_no_agent(&self, agent: &Agent) -> bool {
        !self.open.contains_key(agent)
    }

    pub(super) fn last_of(&self, id: &SubtaskId) -> Option<Span> {
        self.last.get(id).cloned()
    }

    /// Those that a verdict is given of: name, span, its own word.
    pub(super) fn judges(&mut self) -> Vec<(SubtaskId, Span, Option<Value>)> {
        std::mem::take(&mut self.judges)
    }

    pub(super) fn take(&mut self, line: &Line, tracer: &Tracer) {
        match &line.event {
            Event::ModelAsked {
                agent,
                call,
                model,
                terms,
                ..
            } => self.asked(agent, *call, model, terms.clone(), moment(line.at)),
            Event::ModelAnswered {
                agent,
                reply,
                usage,
                cost_usd,
                ..
            } => {
                if let Some(at) = self.open.get_mut(agent) {
                    at.answered(moment(line.at), reply, *usage, *cost_usd);
                }
            }
            Event::ModelFailed { agent, .. } => {
                if let Some(at) = self.open.get_mut(agent) {
                    at.failed(&line.event);
                }
            }
            Event::SandboxOpened { agent, .. } => {
                if let Some(at) = self.open.get_mut(agent) {
                    at.sandboxed(&line.event);
                }
            }
            Event::TurnDone { agent, results, .. } => {
                if let Some(at) = self.open.get(agent) {
                    at.turn(results, tracer);
                    tracer.at(moment(line.at));
                }
            }
            Event::Egress { agent, .. } => {
                if let Some(at) = self.open.get(agent) {
                    tell_egress(&at.span, &line.event);
                }
            }
            Event::AgentResumed { agent, .. } => self.resumed(agent, moment(line.at)),
            Event::AgentEnded { agent, end } => self.ended(agent, end),
            Event::Resumed { .. } => self.open.values_mut().for_each(At::cut),
            _ => {}
        }
    }

    fn asked(
        &mut self,
        agent: &Agent,
        call: u32,
        model: &str,
        terms: Option<Terms>,
        time: SystemTime,
    ) {
        // The summary is one question of nobody's: it stands below the run itself.
        let nobody = || At::new(self.root.clone(), AgentStart::default(), time);
        let at = self.open.entry(agent.clone()).or_insert_with(nobody);
        if let Some(chat) = &mut at.chat
            && chat.again(call, model)
        {
            return;
        }
        at.cut();
        let provider = self.providers.get(model).cloned().unwrap_or_default();
        let terms = terms.unwrap_or_default();
        let span = at.span.chat(&ChatStart {
            run: self.run.clone(),
            provider,
            model: bare(model).to_owned(),
            host: terms.host,
            port: terms.port,
            stream: true,
            reply_tokens: terms.reply_tokens,
            temperature: terms.temperature,
            agent: agent.role.to_string(),
        });
        at.chat = Some(Chat::open(span, call, model));
    }

    /// Goes on with the span of the process before; with another one where that had its end.
    fn resumed(&mut self, agent: &Agent, time: SystemTime) {
        let Some(at) = self.open.get_mut(agent) else {
            return;
        };
        at.answered = time;
        if at.ended {
            let span = self.root.agent(&at.start, &[]);
            self.last.insert(agent.subtask.clone(), span.clone());
            (at.span, at.ended) = (span, false);
        }
    }

    fn ended(&mut self, agent: &Agent, end: &AgentEnd) {
        let Some(at) = self.open.get_mut(agent) else {
            return;
        };
        let stop = end.stop.clone();
        let stop: Option<Stop> = stop.and_then(|stop| serde_json::from_value(stop).ok());
        match &stop {
            // The pot had no room for another attempt of the call.
            Some(stop @ Stop::RunLimit(limit)) if limit.of != Resource::Time => at.stop(stop),
            _ => at.cut(),
        }
        at.ended = true;
        if let Some(stop) = stop {
            at.span.fail(stop.word(), &stop.without_quotes());
        }
        if end
            .ended
            .as_ref()
            .is_some_and(|report| report["status"] == "failed")
        {
            at.span.fail(worker::REPORTED.0, worker::REPORTED.1);
        }
        if at.start.kind == worker::kind_word(AgentKind::Verifier) {
            let own = end.ended.as_ref().map(|call| call["verdict"].clone());
            let judge = (agent.subtask.clone(), at.span.clone(), own);
            self.judges.push(judge);
        } else {
            at.span.end();
        }
    }

    /// Ends whatever was left open, as cut off.
    pub(super) fn close(&mut self) {
        for (_, span, _) in self.judges() {
            span.end();
        }
        self.open.drain().for_each(|(_, at)| at.close());
    }
}

impl At {
    fn new(span: Span, start: AgentStart, time: SystemTime) -> Self {
        Self {
            span,
            start,
            chat: None,
            answered: time,
            sandbox: ExecStart::default(),
            ended: false,
        }
    }

    /// A call without an answer was cut off.
    fn cut(&mut self) {
        self.stop(&Stop::Cancelled);
    }

    /// A call without an answer came to this.
    fn stop(&mut self, stop: &Stop) {
        if let Some(chat) = self.chat.take() {
            chat.stopped(stop);
        }
    }

    fn close(mut self) {
        self.cut();
        let is_agent = !self.start.role.is_empty();
        if is_agent && !self.ended {
            self.span.fail("cancelled", "cancelled");
            self.span.end();
        }
    }

    fn answered(&mut self, time: SystemTime, reply: &Value, usage: Usage, cost: Option<f64>) {
        self.answered = time;
        if let Some(chat) = self.chat.take() {
            chat.answered(reply, usage, cost);
        }
    }

    fn failed(&mut self, event: &Event) {
        self.chat = self.chat.take().and_then(|chat| chat.failed(event));
    }

    fn sandboxed(&mut self, event: &Event) {
        if let Event::SandboxOpened {
            container,
            image,
            shell,
            runtime,
            ..
        } = event
        {
            self.sandbox = ExecStart {
                executable: shell.clone(),
                container: container.clone(),
                image: image.clone(),
                runtime: runtime.clone(),
            };
        }
    }

    /// A turn's calls, one after the other from the answer on.
    fn turn(&self, results: &[Value], tracer: &Tracer) {
        let mut time = self.answered;
        for result in results {
            tracer.at(time);
            let text = |key: &str| result[key].as_str().unwrap_or_default();
            // What could not be understood has the arguments as they were written.
            let name = match result["arguments"].is_string() {
                true => "unknown",
                false => text("tool"),
            };
            let span = self.span.tool(name, text("call_id"), &self.start.role);
            let ran = result["executed"] == true;
            let exec = ran.then(|| span.exec(&self.sandbox));
            time = later(time, result["seconds"].as_f64().unwrap_or_default());
            tracer.at(time);
            let word = result["error_type"].as_str();
            if let Some(exec) = exec {
                let code = result["exit_code"].as_i64();
                match (code.and_then(|code| i32::try_from(code).ok()), word) {
                    (Some(code), _) => exec.exited(code),
                    (None, Some(word)) if is_of_sandbox(word) => exec.fail(word, word),
                    (None, _) => {}
                }
                exec.end();
            }
            if let Some(word) = word {
                span.fail(word, word);
            }
            span.end();
        }
    }
}

/// The words of a call that the sandbox itself failed.
fn is_of_sandbox(word: &str) -> bool {
    word == "cancelled" || word.starts_with("sandbox_")
}

/// A model's provider, as its name has it.
fn before(model: &str) -> &str {
    model
        .split_once('/')
        .map_or(model, |(provider, _)| provider)
}
