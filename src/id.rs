//! The names that things carry through a run, each a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(String);

        impl $type {
            /// Takes the text as it is; whoever reads it from outside checks it first.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// One execution of a task under a plan.
    RunId
}
name! {
    /// A node of the run's DAG, `[a-z0-9][a-z0-9_-]{0,39}`.
    SubtaskId
}
name! {
    /// What kind of agent works a subtask.
    RoleName
}
name! {
    /// A commit in the run's own store, 40 hex digits.
    CommitId
}
name! {
    /// A git tree, 40 hex digits; two commits with the same files share it.
    TreeId
}
name! {
    /// The content of a file as git names it, 40 hex digits.
    BlobId
}

/// True for `[a-z0-9][a-z0-9_-]{0,39}`, the form of every id a person or a model chooses.
pub fn is_valid(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=40).contains(&bytes.len())
        && plain(bytes[0])
        && bytes.iter().all(|&c| plain(c) || c == b'_' || c == b'-')
}
