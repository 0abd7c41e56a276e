//! One test binary; each module is named by the behaviour it holds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at its first surprise"
)]

// What several tests use.
mod operator; // an operator's home and repository, and the real program run there
mod otlp; // a receiver of spans on loopback, HTTP and gRPC
mod server; // a scripted model server on loopback that checks every request
mod world; // a workspace, a state directory and a run in them

// How the source is laid out: rooms, owners, lengths, docs.
mod layers;

// Plan files: shipped ones, broken ones, the DAG.
mod plans;

// Which source of a setting wins.
mod config;

// What a model's wire survives.
mod messages; // Anthropic's protocol
mod real; // servers named by the environment, ignored without
mod wire; // chat completions

// One agent: the tool contract; every way to go wrong, and to end.
mod agent;
mod tools;

// Trees, snapshots, merges, delivery, apply.
mod workspace;

// Sandboxes: process 1 as a plain child on this machine, then on a real engine.
mod battery; // abuse from inside
mod container; // profile, lifetime, sweep
mod egress; // ways out of a sandbox
mod images; // what they are made of
mod lifecycle; // their ends, who removes what, layers, what is kept warm
mod toolbox;

// Whole runs over the in-memory sandbox.
mod full; // a disk without room, in a mount of its own
mod next; // what a result says to type next does what it says
mod runs;

// Whole runs through the real program on a real engine.
mod docker_runs; // what they make, and what they leave alone
mod stops; // signals, kills, and what dead runs leave
mod traces; // what a tracing backend sees of them

// What a tracing backend sees.
mod spans;

// What a person sees: help, refusals, exit codes, what is printed where.
mod cli;
mod hints; // what somebody is told who knows only the README
