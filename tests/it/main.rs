//! One test binary; each module is named by the behaviour it holds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at its first surprise"
)]

mod battery; // abuse inside a sandbox, on a real engine
mod container; // sandboxes on a real engine
mod images; // images on a real engine
mod toolbox; // process 1 of a sandbox, as a plain child on this machine
