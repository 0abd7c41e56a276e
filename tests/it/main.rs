//! One test binary; each module is named by the behaviour it holds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at its first surprise"
)]

// Helpers.
mod otlp; // an OTLP receiver on loopback, HTTP and gRPC

// How the source is laid out.

// How the source is laid out: rooms, owners, lengths, docs.
mod layers;

// Which source of a setting wins.
mod config;

// What a tracing backend sees.
mod spans;

// What a person sees.
mod cli; // help, refusals, exit codes, what is printed where
// Plan files: shipped ones, broken ones, the DAG.
mod plans;
mod server; // a scripted model server on loopback that checks every request

// What a model's wire survives.
mod wire;
mod container; // sandboxes on a real engine
mod toolbox; // process 1 of a sandbox, as a plain child on this machine
