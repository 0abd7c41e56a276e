//! What the resolution of a conflict holds no more.

use serde::{Deserialize, Serialize};

/// What one side of a conflict had changed, or both had left alone, and the resolution does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// For display.
    pub path: String,
    pub side: Side,
    pub what: Loss,
    /// The lines that the side had added, or that both had left alone, for display.
    #[serde(default)]
    pub lines: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Ours,
    Theirs,
    /// What no side had touched.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    Lines,
    /// The side's version of the file as a whole.
    Version,
    /// The side had removed the file.
    Deletion,
}
