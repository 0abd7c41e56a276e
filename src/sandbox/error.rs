//! What goes wrong with containers.

use super::Cause;

/// What went wrong with containers, by what a caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No engine answers; `tried` names the address.
    #[error("no container engine at {tried}: {reason}")]
    NoEngine {
        tried: String,
        reason: String,
        /// A socket is there, and this user may not use it.
        denied: bool,
    },
    /// An image is missing and cannot be made or fetched here.
    #[error("image {image}: {reason}")]
    Image {
        image: String,
        reason: String,
        hint: String,
    },
    /// A setup command of the plan failed; its output is at hand.
    #[error("setup command failed with exit code {code}: {command}")]
    Setup {
        command: String,
        code: i64,
        output: String,
    },
    /// The engine refused or failed at one operation.
    #[error("{operation}: {reason}")]
    Engine {
        operation: &'static str,
        reason: String,
    },
    /// Process 1 is gone, the stream dropped, a frame was bad or the lease ran out.
    #[error("sandbox broken: {reason}")]
    Broken { cause: Cause, reason: String },
    /// The cancel token fired.
    #[error("cancelled")]
    Cancelled,
}
