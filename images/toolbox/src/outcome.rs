//! How the end of a command is told: its status, and a note where that does not say all.

use wharf_toolbox::message::Ended;

use crate::output::Status;
use crate::reaper::Said;

/// Said of a command that was killed where the memory limit does not count its kills.
const UNCOUNTED: &str = "it was killed; whether by the memory limit cannot be read here";

/// Why a wait for a command ended.
pub enum Why {
    /// By itself.
    Said(Status),
    /// Its time was over.
    TimedOut,
    /// Wharf asked for its end.
    Cancelled,
    /// A limit of the disk was passed; the sentence on it.
    Over(String),
}

impl Why {
    /// True when the command ended by itself, and what it left running may live.
    pub fn natural(&self) -> bool {
        matches!(self, Why::Said(Status::Said(_)))
    }

    /// The error number of a command that could not be started.
    pub fn unstarted(&self) -> Option<i32> {
        match self {
            Why::Said(Status::Said(Said::NotStarted(errno))) => Some(*errno),
            _ => None,
        }
    }

    /// The end and a note; `starved` when the memory limit killed something of the command.
    pub fn told(self, starved: Option<bool>) -> (Ended, Option<String>) {
        match self {
            Why::Said(Status::Said(Said::Ended(code))) if starved == Some(true) => {
                (Ended::OutOfMemory(code), None)
            }
            // Without the counter the memory limit may be why, and nobody knows.
            Why::Said(Status::Said(Said::Ended(137))) if starved.is_none() => {
                (Ended::Code(137), Some(UNCOUNTED.to_owned()))
            }
            Why::Said(Status::Said(Said::Ended(code))) => (Ended::Code(code), None),
            Why::Said(Status::Said(Said::NotStarted(errno))) => {
                (Ended::Code(126), Some(unstarted(errno)))
            }
            Why::Said(_) if starved == Some(true) => (Ended::OutOfMemory(137), None),
            Why::Said(_) => {
                let note = "the process above this command was killed, and the command with it";
                (Ended::Code(137), Some(note.to_owned()))
            }
            Why::TimedOut => (Ended::TimedOut, None),
            Why::Cancelled => (Ended::Cancelled, None),
            Why::Over(limit) => {
                let note = format!("{limit}; the command was killed");
                (Ended::Full(137), Some(note))
            }
        }
    }
}

/// The words on a command that could not be started.
pub fn unstarted(errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno);
    format!("the command was not started: {error}")
}
