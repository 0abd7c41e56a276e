//! Spans for tracing backends; nothing is ever decided from one.
//!
//! Owns: the exporter, span names and attribute names (`names`), the deadline of the last flush.
//! Takes: `Options` from `config`; names, attributes and links from the rooms above.
//! Gives: `Tracer` and `Span`, both cheap to clone; without an endpoint spans have ids and go nowhere.
//! Never: content of prompts, replies, tool arguments or results; a line on stderr.

pub mod names;

mod chat;
mod clock;
mod options;
mod origin;
mod queue;
mod send;
mod span;
mod start;
mod tracer;
mod value;
mod variables;

pub use options::{Options, Protocol, Target};
pub use origin::Origin;
pub use span::Span;
pub use start::{AgentStart, ChatEnd, ChatStart, ChatUsage, ExecStart, RunStart};
pub use tracer::Tracer;
pub use value::{Attributes, Value};

/// Why spans cannot be sent; a run goes on without them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("spans cannot be sent to {endpoint}: {reason}")]
    Exporter { endpoint: String, reason: String },
    #[error("the thread that sends spans could not start: {source}")]
    Thread { source: std::io::Error },
}
