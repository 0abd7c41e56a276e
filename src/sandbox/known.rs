//! What a call of an agent's came to where that is known without running it.

/// A recorded result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Without its number in front.
    pub text: String,
    pub failed: bool,
    pub exit_code: Option<i32>,
}
