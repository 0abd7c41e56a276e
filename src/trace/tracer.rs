//! The tracer of one process: opened from options, asked for the root span, flushed at the end.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use super::clock::Clock;
use super::options::{Options, Target};
use super::origin::Ids;
use super::queue::Queue;
use super::value::Secrets;
use super::{Error, RunStart, Span, names};

/// The longest that a flush may take, whatever its caller allows.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// The exporter of one process.
#[derive(Clone, Debug, Default)]
pub struct Tracer {
    live: Option<Arc<Live>>,
}

/// What every span of a tracer shares.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) tracer: SdkTracer,
    pub(super) secrets: Secrets,
    /// The span outside of this process that the run belongs to, or nothing.
    outside: Context,
    pub(super) clock: Clock,
    out: Option<(Queue, Target)>,
}

impl Tracer {
    /// Records nothing.
    pub fn none() -> Self {
        Self { live: None }
    }

    /// A tracer as the options say. Connects to nothing yet.
    ///
    /// # Errors
    /// When the target's endpoint or headers cannot be used; `unsent` is what is left then.
    pub fn open(options: &Options) -> Result<Self, Error> {
        Self::opened(options, Clock::Now)
    }

    /// A tracer for a trace that is told again: what its spans say happened when `at` says. The same
    /// calls give the same ids each time.
    ///
    /// # Errors
    /// As `open`.
    pub fn told(options: &Options) -> Result<Self, Error> {
        Self::opened(options, Clock::told())
    }

    /// What is told from now on happened then.
    pub fn at(&self, time: SystemTime) {
        if let Some(live) = &self.live {
            live.clock.set(time);
        }
    }

    fn opened(options: &Options, clock: Clock) -> Result<Self, Error> {
        if options.disabled {
            return Ok(Self::none());
        }
        let resource = resource(options);
        let out = match &options.target {
            None => None,
            Some(target) => {
                let queue = Queue::start(target.clone(), resource.clone())?;
                Some((queue, target.clone()))
            }
        };
        Ok(Self::with(options, resource, out, clock))
    }

    /// A tracer whose spans have ids and go nowhere.
    pub fn unsent(options: &Options) -> Self {
        if options.disabled {
            return Self::none();
        }
        Self::with(options, resource(options), None, Clock::Now)
    }

    fn with(
        options: &Options,
        resource: Resource,
        out: Option<(Queue, Target)>,
        clock: Clock,
    ) -> Self {
        let ids = match clock {
            Clock::Now => Ids::new(options.origin.as_ref()),
            Clock::Told(_) => Ids::told(options.origin.as_ref()),
        };
        let mut builder = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_id_generator(ids);
        if let Some((queue, _)) = &out {
            builder = builder.with_span_processor(queue.clone());
        }
        let scope = InstrumentationScope::builder(names::SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(names::SCHEMA_URL)
            .build();
        let headers = out.iter().flat_map(|(_, target)| &target.headers);
        let secrets = options.secrets.iter().cloned();
        Self {
            live: Some(Arc::new(Live {
                tracer: builder.build().tracer_with_scope(scope),
                secrets: Secrets::new(secrets.chain(headers.map(|h| h.1.clone()))),
                outside: outside(options),
                clock,
                out,
            })),
        }
    }

    /// The run's root span, `invoke_workflow {plan}`.
    pub fn run(&self, start: &RunStart) -> Span {
        match &self.live {
            None => Span::none(),
            Some(live) => Span::root(live, &live.outside, start),
        }
    }

    /// Sends what is queued, within `limit` and, where a run waits for it, never longer than 3 s; false
    /// when that was not reached. Nothing waits for what could not be sent.
    pub async fn flush(&self, limit: Duration) -> bool {
        let Some(live) = &self.live else {
            return true;
        };
        let limit = match live.clock {
            Clock::Now => limit.min(FLUSH_LIMIT),
            Clock::Told(_) => limit,
        };
        match &live.out {
            None => true,
            Some((queue, _)) => queue.flush(limit).await,
        }
    }

    /// What an operator should know after the last flush, in one sentence; None when all was sent.
    pub fn warning(&self) -> Option<String> {
        let live = self.live.as_ref()?;
        let (queue, target) = live.out.as_ref()?;
        let lost = queue.facts.lost.load(Ordering::Relaxed);
        let late = queue.facts.late.load(Ordering::Relaxed);
        if lost == 0 && !late {
            return None;
        }
        let mut text = format!("not every span reached {}", target.shown());
        match queue.facts.failure.get() {
            Some(reason) => {
                let _ = write!(text, ": {}", live.secrets.line(reason));
            }
            None if late => text.push_str(": no answer in time"),
            None => {
                let _ = write!(text, ": the queue was full, {lost} spans were dropped");
            }
        }
        if let Some(hint) = target.mismatch() {
            let _ = write!(text, " ({hint})");
        }
        Some(text)
    }
}

fn resource(options: &Options) -> Resource {
    let mut attributes = vec![
        KeyValue::new("service.name", options.service.clone()),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let named = options.resource.iter();
    attributes.extend(named.map(|(key, value)| KeyValue::new(key.clone(), value.clone())));
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(attributes)
        .build()
}

/// The remote parent: of a resumed run its first part, else what a valid `traceparent` names.
fn outside(options: &Options) -> Context {
    if let Some(origin) = &options.origin {
        return origin.parent().unwrap_or_default();
    }
    let mut carrier = HashMap::new();
    if let Some(parent) = &options.traceparent {
        carrier.insert("traceparent".to_owned(), parent.clone());
    }
    if let Some(state) = &options.tracestate {
        carrier.insert("tracestate".to_owned(), state.clone());
    }
    let empty = Context::new();
    let context = TraceContextPropagator::new().extract_with_context(&empty, &carrier);
    if context.has_active_span() {
        context
    } else {
        empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tracer: &Tracer) -> Span {
        tracer.run(&RunStart {
            run: "r1".to_owned(),
            plan: "p".to_owned(),
        })
    }

    #[test]
    fn without_a_target_spans_have_ids_and_nothing_is_said() {
        let tracer = Tracer::open(&Options::default()).unwrap();
        let id = run(&tracer).trace_id().unwrap();
        assert_eq!(id.len(), 32);
        assert_ne!(id, "0".repeat(32));
        assert_eq!(tracer.warning(), None);
    }

    #[test]
    fn none_and_disabled_record_nothing() {
        let disabled = Options {
            disabled: true,
            ..Options::default()
        };
        for tracer in [Tracer::none(), Tracer::open(&disabled).unwrap()] {
            assert_eq!(run(&tracer).trace_id(), None);
        }
    }

    #[test]
    fn a_traceparent_gives_the_trace_its_id() {
        let with = |parent: &str| {
            let options = Options {
                traceparent: Some(parent.to_owned()),
                ..Options::default()
            };
            run(&Tracer::open(&options).unwrap()).trace_id().unwrap()
        };
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(with(&format!("00-{id}-00f067aa0ba902b7-01")), id);
        assert_eq!(with("garbage").len(), 32);
    }

    #[test]
    fn a_resumed_part_joins_the_trace_and_takes_the_place_of_a_root_that_was_lost() {
        let (trace, root) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for ended in [false, true] {
            let origin = super::super::Origin {
                trace: trace.to_owned(),
                root: Some(root.to_owned()),
                ended,
            };
            let options = Options {
                origin: Some(origin),
                traceparent: Some(format!("00-{}-{root}-01", "1".repeat(32))),
                ..Options::default()
            };
            let span = run(&Tracer::open(&options).unwrap());
            assert_eq!(span.trace_id().unwrap(), trace);
            assert_eq!(span.span_id().unwrap() == root, !ended);
        }
    }

    #[test]
    fn an_unusable_endpoint_is_an_error_that_names_it() {
        let options = Options {
            target: Some(Target::new(
                super::super::Protocol::HttpProtobuf,
                "http://a b/",
            )),
            ..Options::default()
        };
        let error = Tracer::open(&options).unwrap_err().to_string();
        assert!(
            error.starts_with("spans cannot be sent to http://a b/"),
            "{error}"
        );
    }
}
