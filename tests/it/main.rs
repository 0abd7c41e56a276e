//! One test binary; each module is named by the behaviour it holds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at its first surprise"
)]

// Helpers.
mod server; // a scripted model server on loopback that checks every request

// What a model's wire survives.
mod messages; // Anthropic's protocol
mod real; // servers named by the environment, ignored without
mod wire; // chat completions
