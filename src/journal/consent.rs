//! Who let a call run, or did not, and what hooks made of calls and agents.

use serde::{Deserialize, Serialize};

/// Who decided about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// Mode, rules, protected paths, the shipped list.
    Rules,
    /// A yes that was given before, for the run or for a directory.
    Grant,
    /// The person at the terminal.
    Person,
    /// The plan's or the user's approver.
    Approver,
    Hook,
    /// Nobody answered in time.
    Deadline,
    /// There was nobody to ask.
    Nobody,
    /// Whoever was asked failed, or gave no answer that could be read.
    Fault,
}

/// What a hook came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    NoObjection,
    /// It gave the consent that was needed.
    Allowed,
    /// It wants somebody to consent.
    Asked,
    /// It changed arguments or a result.
    Changed,
    Blocked,
    /// It cannot be told what it wanted.
    Failed,
}

impl DecidedBy {
    /// As the journal writes it, with spaces.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rules => "the rules",
            Self::Grant => "an earlier yes",
            Self::Person => "the person at the terminal",
            Self::Approver => "the approver",
            Self::Hook => "a hook",
            Self::Deadline => "the deadline",
            Self::Nobody => "nobody",
            Self::Fault => "a fault",
        }
    }
}

impl HookOutcome {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoObjection => "no objection",
            Self::Allowed => "allowed it",
            Self::Asked => "wants it asked",
            Self::Changed => "changed it",
            Self::Blocked => "blocked it",
            Self::Failed => "failed",
        }
    }
}
