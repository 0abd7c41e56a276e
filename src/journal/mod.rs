//! The append-only record of a run's facts, the only truth for show, resume and replay.
//!
//! Owns: the closed set of events, their lines on disk, large outputs beside them, one writer a run, the
//! fold from events to a state.
//! Takes: events in plain types, and values that must not be written.
//! Gives: `Writer` (appends, acknowledged once on disk), `read`, `salvage`, `Chain`, `fold`.
//! Never: a type of a room above.

mod agent;
mod beside;
mod checks;
mod consent;
mod egress;
mod event;
mod fold;
mod loss;
mod mask;
mod read;
mod request;
mod tally;
mod write;

pub use agent::{Agent, AgentEnd, AgentKind};
pub use beside::whole;
pub use checks::{CommandRun, Progress, TestCount, WithBase};
pub use consent::{DecidedBy, HookOutcome};
pub use egress::{Egress, EgressStep};
pub use event::*;
pub use fold::{Conflict, State, SubtaskState};
pub use loss::{Dropped, Loss, Side};
pub use mask::Mask;
pub use read::{Chain, Line, Read, read, salvage};
pub use request::{Terms, Usage};
pub use tally::{AgentState, Lost, Spent};
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
    /// A line that is neither whole nor a torn tail. The lines before it are whole.
    #[error("{} line {line}: {what}", path.display())]
    Damaged {
        path: std::path::PathBuf,
        line: usize,
        what: String,
    },
    /// Written by a later program, whose lines this one could misread.
    #[error(
        "{} is of version {version} and this wharf reads up to {}: a newer wharf wrote it",
        path.display(),
        VERSION
    )]
    Newer {
        path: std::path::PathBuf,
        version: u64,
    },
    /// A large output that was put beside the journal is gone or is not what it was.
    #[error("{}: {what}", path.display())]
    Beside {
        path: std::path::PathBuf,
        what: String,
    },
    /// The writer's task is gone; the first failure was reported to whoever appended then.
    #[error("the journal is closed: {reason}")]
    Closed { reason: String },
}
