//! One test binary; each module is named by the behaviour it holds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at its first surprise"
)]

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
mod server;
mod spans; // a scripted model server on loopback that checks every request

// What a model's wire survives.
mod wire;
// Plan files: shipped ones, broken ones, the DAG.
mod plans;
mod tools; // The tool contract: understanding, permission, the words of results.
mod battery; // abuse inside a sandbox, on a real engine
mod container; // sandboxes on a real engine
mod images; // images on a real engine
mod toolbox; // process 1 of a sandbox, as a plain child on this machine
mod messages; // Anthropic's protocol
mod real; // servers named by the environment, ignored without
mod wire; // chat completions

mod workspace; // trees, snapshots, merges, delivery, apply

mod agent; // One agent: every way to go wrong, and to end.
mod tools; // The tool contract: understanding, permission, the words of results.

// Plan files: shipped ones, broken ones, the DAG.
mod plans;
mod spans;

// What a person sees: help, refusals, exit codes, what is printed where.
mod cli;
