//! One test binary; each module is named by the behaviour it holds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at its first surprise"
)]

// Helpers.
mod otlp; // an OTLP receiver on loopback, HTTP and gRPC
mod server; // a scripted model server on loopback that checks every request

// How the source is laid out: rooms, owners, lengths, docs.
mod layers;

// Plan files: shipped ones, broken ones, the DAG.
mod plans;

// Which source of a setting wins.
mod config;

// What a model's wire survives.
mod wire;

// Sandboxes: on a real engine; process 1 as a plain child on this machine.
mod container;
mod toolbox;

// What a tracing backend sees.
mod spans;

// What a person sees: help, refusals, exit codes, what is printed where.
mod cli;
