//! One span and its children: names, kinds, parents, links and attributes by the conventions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::trace::{Link, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Context, KeyValue};

use super::tracer::Live;
use super::value::{Attributes, Value};
use super::{AgentStart, ChatStart, ExecStart, RunStart, names};

/// One span; a clone is the same span. Ends at `end`, or when the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub struct Span {
    on: Option<On>,
}

#[derive(Clone, Debug)]
struct On {
    live: Arc<Live>,
    context: Context,
    place: Arc<Place>,
    /// The first failure holds; a second one would give the attribute twice.
    failed: Arc<AtomicBool>,
}

/// What a span hands down to its children.
#[derive(Clone, Debug, Default)]
struct Place {
    run: String,
    subtask: Option<String>,
    round: u32,
}

/// A span that is about to start.
struct Start {
    name: String,
    kind: SpanKind,
    /// The OpenInference kind.
    role: &'static str,
    attributes: Attributes,
    links: Vec<Link>,
}

impl Span {
    /// A span that records nothing.
    pub fn none() -> Self {
        Self { on: None }
    }

    pub(super) fn root(live: &Arc<Live>, outside: &Context, start: &RunStart) -> Self {
        let place = Place {
            run: start.run.clone(),
            ..Place::default()
        };
        let attributes = vec![
            (names::OPERATION, "invoke_workflow".into()),
            (names::WORKFLOW, start.plan.as_str().into()),
            (names::AGENT, start.plan.as_str().into()),
            (names::RUN, start.run.as_str().into()),
            (names::NODE, ROOT_NODE.into()),
            (names::NODE_NAME, start.plan.as_str().into()),
        ];
        let start = Start {
            name: named("invoke_workflow", &start.plan),
            kind: SpanKind::Internal,
            role: "CHAIN",
            attributes,
            links: Vec::new(),
        };
        begin(live, outside, Arc::new(place), start)
    }

    /// `plan {coordinator}`: the coordinator's decomposition.
    pub fn plan(&self, start: &AgentStart) -> Self {
        self.role("plan", "CHAIN", start, &[])
    }

    /// `invoke_agent {role}`, linked to the spans of what it needed.
    pub fn agent(&self, start: &AgentStart, needs: &[Self]) -> Self {
        let kind = if start.kind == "verifier" {
            "EVALUATOR"
        } else {
            "AGENT"
        };
        self.role("invoke_agent", kind, start, needs)
    }

    fn role(
        &self,
        operation: &str,
        kind: &'static str,
        start: &AgentStart,
        needs: &[Self],
    ) -> Self {
        let Some(on) = &self.on else {
            return Self::none();
        };
        let place = Place {
            run: on.place.run.clone(),
            subtask: Some(start.subtask.clone()).filter(|id| !id.is_empty()),
            round: start.round,
        };
        let links = needs
            .iter()
            .filter_map(|need| need.on.as_ref())
            .map(|need| Link::with_context(need.context.span().span_context().clone()))
            .collect();
        let mut attributes = vec![
            (names::OPERATION, operation.into()),
            (names::AGENT, start.role.as_str().into()),
            (names::OI_AGENT, start.role.as_str().into()),
            (names::ROLE_KIND, start.kind.into()),
            (names::NODE_NAME, start.role.as_str().into()),
            (names::NODE_PARENT, parent_node(needs).into()),
        ];
        add(&mut attributes, names::NODE, &start.subtask);
        add(&mut attributes, names::PROVIDER, &start.provider);
        add(&mut attributes, names::REQUEST_MODEL, &start.model);
        add(
            &mut attributes,
            names::AGENT_DESCRIPTION,
            &start.description,
        );
        self.child(
            Arc::new(place),
            Start {
                name: named(operation, &start.role),
                kind: SpanKind::Internal,
                role: kind,
                attributes,
                links,
            },
        )
    }

    /// `chat {model}`: one logical model call, its retries included.
    pub fn chat(&self, start: &ChatStart) -> Self {
        let mut attributes = vec![
            (names::OPERATION, "chat".into()),
            (names::PROVIDER, start.provider.as_str().into()),
            (names::REQUEST_MODEL, start.model.as_str().into()),
            (names::REQUEST_MAX_TOKENS, start.reply_tokens.into()),
            (names::LLM_SYSTEM, start.provider.as_str().into()),
            (names::LLM_PROVIDER, start.provider.as_str().into()),
            (names::LLM_MODEL, start.model.as_str().into()),
        ];
        add(&mut attributes, names::AGENT, &start.agent);
        if start.stream {
            attributes.push((names::REQUEST_STREAM, true.into()));
        }
        if let Some(temperature) = start.temperature {
            attributes.push((names::REQUEST_TEMPERATURE, temperature.into()));
        }
        if let Some(host) = &start.host {
            attributes.push((names::SERVER_ADDRESS, host.as_str().into()));
            let port = start.port.map(u32::from);
            attributes.extend(port.map(|port| (names::SERVER_PORT, port.into())));
        }
        self.inherit(Start {
            name: named("chat", &start.model),
            kind: SpanKind::Client,
            role: "LLM",
            attributes,
            links: Vec::new(),
        })
    }

    /// `execute_tool {name}`.
    pub fn tool(&self, name: &str, call_id: &str, agent: &str) -> Self {
        let mut attributes = vec![
            (names::OPERATION, "execute_tool".into()),
            (names::TOOL, name.into()),
            (names::TOOL_TYPE, "function".into()),
            (names::OI_TOOL, name.into()),
        ];
        add(&mut attributes, names::TOOL_CALL, call_id);
        add(&mut attributes, names::OI_TOOL_CALL, call_id);
        add(&mut attributes, names::AGENT, agent);
        self.inherit(Start {
            name: named("execute_tool", name),
            kind: SpanKind::Internal,
            role: "TOOL",
            attributes,
            links: Vec::new(),
        })
    }

    /// A command in a sandbox. Its arguments are content and stay out.
    pub fn exec(&self, start: &ExecStart) -> Self {
        let mut attributes = vec![(names::PROCESS_EXECUTABLE, start.executable.as_str().into())];
        add(&mut attributes, names::CONTAINER_ID, &start.container);
        add(&mut attributes, names::CONTAINER_IMAGE, &start.image);
        add(&mut attributes, names::SANDBOX_RUNTIME, &start.runtime);
        self.inherit(Start {
            name: start.executable.clone(),
            kind: SpanKind::Client,
            role: "CHAIN",
            attributes,
            links: Vec::new(),
        })
    }

    /// The command's end.
    pub fn exited(&self, code: i32) {
        self.set(names::PROCESS_EXIT_CODE, code.into());
        if code != 0 {
            self.fail("nonzero_exit", &format!("exit code {code}"));
        }
    }

    /// An attribute of our own (`wharf.…`).
    pub fn set(&self, key: &'static str, value: Value) {
        if let Some(on) = &self.on {
            let attribute = on.live.secrets.attribute(key, &value);
            on.context.span().set_attribute(attribute);
        }
    }

    /// Something that happened now (`gen_ai.evaluation.result`).
    pub fn event(&self, name: &'static str, attributes: Attributes) {
        if let Some(on) = &self.on {
            let attributes = converted(&on.live, &attributes);
            let span = on.context.span();
            match on.live.clock.time() {
                None => span.add_event(name, attributes),
                Some(then) => span.add_event_with_timestamp(name, then, attributes),
            }
        }
    }

    /// A verdict on this span's work: `label` is a word of low cardinality.
    pub fn evaluated(&self, name: &str, label: &str) {
        let text = |text: &str| Value::Text(text.to_owned());
        self.event(
            names::EVALUATION_RESULT,
            vec![
                (names::EVALUATION_NAME, text(name)),
                (names::EVALUATION_LABEL, text(label)),
            ],
        );
    }

    /// Status error with a low-cardinality `error.type`; the first one holds.
    pub fn fail(&self, error_type: &str, message: &str) {
        let Some(on) = &self.on else { return };
        if on.failed.swap(true, Ordering::Relaxed) {
            return;
        }
        let word = if is_word(error_type) {
            error_type
        } else {
            "_OTHER"
        };
        self.set(names::ERROR_TYPE, word.into());
        let message = on.live.secrets.line(message);
        on.context.span().set_status(Status::error(message));
    }

    /// Ends the span now; what is set later is not recorded.
    pub fn end(&self) {
        if let Some(on) = &self.on {
            let span = on.context.span();
            match on.live.clock.time() {
                None => span.end(),
                Some(then) => span.end_with_timestamp(then),
            }
        }
    }

    /// 32 hex digits; None for a span that records nothing.
    pub fn trace_id(&self) -> Option<String> {
        let on = self.on.as_ref()?;
        Some(on.context.span().span_context().trace_id().to_string())
    }

    /// 16 hex digits; None for a span that records nothing.
    pub fn span_id(&self) -> Option<String> {
        let on = self.on.as_ref()?;
        Some(on.context.span().span_context().span_id().to_string())
    }

    fn inherit(&self, start: Start) -> Self {
        match &self.on {
            None => Self::none(),
            Some(on) => self.child(on.place.clone(), start),
        }
    }

    fn child(&self, place: Arc<Place>, start: Start) -> Self {
        match &self.on {
            None => Self::none(),
            Some(on) => begin(&on.live, &on.context, place, start),
        }
    }
}

/// The graph's node that stands for the run.
const ROOT_NODE: &str = "run";

/// A graph node has one parent there; the links tell the others.
fn parent_node(needs: &[Span]) -> String {
    needs
        .iter()
        .filter_map(|need| need.on.as_ref()?.place.subtask.clone())
        .next()
        .unwrap_or_else(|| ROOT_NODE.to_owned())
}

fn begin(live: &Arc<Live>, parent: &Context, place: Arc<Place>, start: Start) -> Span {
    let mut attributes = converted(live, &start.attributes);
    let mut shared: Attributes = vec![
        (names::SPAN_KIND, start.role.into()),
        (names::SESSION, place.run.as_str().into()),
        (names::CONVERSATION, place.run.as_str().into()),
    ];
    if let Some(subtask) = &place.subtask {
        shared.push((names::SUBTASK, subtask.as_str().into()));
        shared.push((names::ROUND, place.round.into()));
    }
    attributes.extend(converted(live, &shared));
    let mut span = SpanBuilder::from_name(live.secrets.line(&start.name))
        .with_kind(start.kind)
        .with_attributes(attributes)
        .with_links(start.links);
    span.start_time = live.clock.time();
    let span = live.tracer.build_with_context(span, parent);
    Span {
        on: Some(On {
            live: live.clone(),
            context: parent.with_span(span),
            place,
            failed: Arc::default(),
        }),
    }
}

fn converted(live: &Live, attributes: &Attributes) -> Vec<KeyValue> {
    attributes
        .iter()
        .map(|(key, value)| live.secrets.attribute(key, value))
        .collect()
}

/// An attribute that is left out when there is nothing to say.
fn add(attributes: &mut Attributes, key: &'static str, text: &str) {
    if !text.is_empty() {
        attributes.push((key, text.into()));
    }
}

fn named(operation: &str, of: &str) -> String {
    if of.is_empty() {
        operation.to_owned()
    } else {
        format!("{operation} {of}")
    }
}

fn is_word(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_type_is_one_word() {
        for good in ["429", "timeout", "nonzero_exit", "a.b-C"] {
            assert!(is_word(good), "{good}");
        }
        for bad in ["", "could not reach http://x", &"a".repeat(65)] {
            assert!(!is_word(bad), "{bad}");
        }
    }

    #[test]
    fn children_of_nothing_are_nothing() {
        let none = Span::none();
        let child = none.tool("bash", "1", "coder").exec(&ExecStart::default());
        child.exited(1);
        child.end();
        assert_eq!(child.trace_id(), None);
    }
}
