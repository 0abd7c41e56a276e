//! The trace of a run that is resumed: its later part joins the first one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use sha2::{Digest as _, Sha256};

/// Where a run's trace began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// 32 hex digits.
    pub trace: String,
    /// The run's own span, 16 hex digits; None where it is not known.
    pub root: Option<String>,
    /// That span was ended and sent. Else nobody has it, and the resumed part takes its place.
    pub ended: bool,
}

/// Ids of new spans; the first ones may be given.
#[derive(Debug)]
pub(super) struct Ids {
    random: RandomIdGenerator,
    trace: Option<TraceId>,
    root: Option<SpanId>,
    /// The root's id was handed out.
    used: AtomicBool,
    /// Of a trace that is told again: how many ids were made so far, each from the root's and its number.
    told: Option<AtomicU64>,
}

impl Origin {
    /// The span that the resumed part stands under: the first part's, when that was sent.
    pub(super) fn parent(&self) -> Option<Context> {
        let (trace, root) = self.ids();
        let (Some(trace), Some(root), true) = (trace, root, self.ended) else {
            return None;
        };
        let sampled = TraceFlags::SAMPLED;
        let there = SpanContext::new(trace, root, sampled, true, TraceState::default());
        Some(Context::new().with_remote_span_context(there))
    }

    fn ids(&self) -> (Option<TraceId>, Option<SpanId>) {
        let trace = TraceId::from_hex(&self.trace).ok();
        let root = self
            .root
            .as_deref()
            .and_then(|id| SpanId::from_hex(id).ok());
        let root = root.filter(|id| *id != SpanId::INVALID);
        (trace.filter(|id| *id != TraceId::INVALID), root)
    }
}

impl Ids {
    /// Without an origin, or where its root was sent, all are random.
    pub(super) fn new(origin: Option<&Origin>) -> Self {
        let lost = origin.filter(|origin| origin.parent().is_none());
        let (trace, root) = lost.map(Origin::ids).unwrap_or_default();
        Self {
            random: RandomIdGenerator::default(),
            trace,
            root,
            used: AtomicBool::new(false),
            told: None,
        }
    }

    /// The origin's own ids, whatever was sent of it, and others that follow from them.
    pub(super) fn told(origin: Option<&Origin>) -> Self {
        let (trace, root) = origin.map(Origin::ids).unwrap_or_default();
        Self {
            random: RandomIdGenerator::default(),
            trace,
            root,
            used: AtomicBool::new(false),
            told: Some(AtomicU64::new(0)),
        }
    }

    /// The `number`th id below a root.
    fn below(root: SpanId, number: u64) -> SpanId {
        let mut hash = Sha256::new();
        hash.update(root.to_bytes());
        hash.update(number.to_be_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash.finalize()[..8]);
        SpanId::from_bytes(bytes)
    }
}

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        self.trace.unwrap_or_else(|| self.random.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        match self.root {
            Some(root) if !self.used.swap(true, Ordering::SeqCst) => root,
            Some(root) if let Some(count) = &self.told => {
                Self::below(root, count.fetch_add(1, Ordering::SeqCst))
            }
            _ => self.random.new_span_id(),
        }
    }
}
