//! Wharf runs a large task as a DAG of agents, each in its own disposable container,
//! merges what they made, and has it judged by an agent that saw none of the work.
//!
//! `docs/architecture.md` draws the rooms below and says what each may touch.

pub mod agent;
pub mod cli;
pub mod config;
pub mod id;
pub mod journal;
pub mod model;
pub mod ops;
pub mod plan;
pub mod run;
pub mod sandbox;
pub mod tools;
pub mod trace;
pub mod workspace;
