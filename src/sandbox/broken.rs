//! Why a sandbox broke: a word of a closed list, for the journal and spans, and a sentence.

use super::Error;

/// What gave way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Process 1 ended, or was killed.
    Gone,
    /// Process 1 answers and says that it cannot go on.
    Unable,
    /// Process 1 gave no sign of life, or no answer, in its time.
    Silent,
    /// What process 1 said is no frame, or out of place.
    Protocol,
    /// The engine, or the stream to it, failed.
    Engine,
    /// It was closed, and then used.
    Closed,
}

impl Cause {
    /// Of low cardinality.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Unable => "unable",
            Self::Silent => "silent",
            Self::Protocol => "protocol",
            Self::Engine => "engine",
            Self::Closed => "closed",
        }
    }
}

/// A cause and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    pub cause: Cause,
    /// A clause, without a full stop.
    pub reason: String,
}

impl Break {
    /// A break with its reason.
    pub fn new(cause: Cause, reason: impl std::fmt::Display) -> Self {
        let reason = reason.to_string();
        Self { cause, reason }
    }

    /// The end of process 1, by its exit status.
    pub fn ended(status: i64) -> Self {
        let (cause, why) = match status {
            70 => (
                Cause::Protocol,
                "it was sent something it does not understand",
            ),
            71 => (Cause::Unable, "it could not set itself up"),
            74 => (Cause::Engine, "it could not write to its stream"),
            75 => (Cause::Silent, "its lease ran out, for no ping came"),
            137 => (Cause::Gone, "it was killed"),
            _ => (Cause::Gone, ""),
        };
        let text = match why {
            "" => format!("process 1 ended with status {status}"),
            why => format!("process 1 ended with status {status}: {why}"),
        };
        Self::new(cause, text)
    }
}

/// The end of process 1 in somebody's words.
impl From<String> for Break {
    fn from(reason: String) -> Self {
        Self::new(Cause::Gone, reason)
    }
}

impl From<Break> for Error {
    fn from(Break { cause, reason }: Break) -> Self {
        Self::Broken { cause, reason }
    }
}

impl Error {
    /// What a span says of a call that had no answer.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Broken { cause, .. } => match cause {
                Cause::Gone => "sandbox_gone",
                Cause::Unable => "sandbox_unable",
                Cause::Silent => "sandbox_silent",
                Cause::Protocol => "sandbox_protocol",
                Cause::Engine => "sandbox_engine",
                Cause::Closed => "sandbox_closed",
            },
            _ => "sandbox_engine",
        }
    }

    /// What gave way, where a call on a sandbox failed.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Broken { cause, .. } => *cause,
            _ => Cause::Engine,
        }
    }

    /// Why, without saying again that it broke.
    pub fn reason(&self) -> String {
        match self {
            Self::Broken { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }
}

/// The error of a call on a sandbox that broke.
pub(super) fn broken(cause: Cause, reason: impl std::fmt::Display) -> Error {
    Break::new(cause, reason).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_process_1_says_what_it_means() {
        assert_eq!(Break::ended(75).cause, Cause::Silent);
        assert_eq!(Break::ended(71).cause, Cause::Unable);
        let killed = Break::ended(137);
        assert_eq!(killed.cause, Cause::Gone);
        assert_eq!(
            killed.reason,
            "process 1 ended with status 137: it was killed"
        );
        assert_eq!(Break::ended(3).reason, "process 1 ended with status 3");
    }
}
