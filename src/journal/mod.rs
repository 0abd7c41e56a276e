//! The append-only record of a run's facts, the only truth for show, resume and replay.
//!
//! Owns: the closed set of events, their lines on disk, one writer a run, the fold from events to a state.
//! Takes: events in plain types.
//! Gives: `Writer` (appends, acknowledged once on disk), `read`, `fold`.
//! Never: a type of a room above.

mod egress;
mod event;
mod fold;
mod read;
mod write;

pub use egress::{Egress, EgressStep};
pub use event::*;
pub use fold::{AgentState, Conflict, State, SubtaskState};
pub use read::{Line, Read, read};
pub use write::{Handle, Writer};

/// What went wrong with a journal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    /// A line that is neither whole nor a torn tail.
    #[error("{} line {line}: {what}", path.display())]
    Damaged {
        path: std::path::PathBuf,
        line: usize,
        what: String,
    },
    /// The writer's task is gone; the first failure was reported to whoever appended then.
    #[error("the journal is closed: {reason}")]
    Closed { reason: String },
}
