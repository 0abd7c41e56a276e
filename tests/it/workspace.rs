//! The workspace room against real repositories: nothing of the operator's moves, nothing is lost.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod apply;
mod base;
pub mod canary;
mod deliver;
pub mod fixture;
mod merge;
mod pairs;
mod random;
mod store;
