//! A run goes on from its journal, as if it had not been away.
//!
//! Owns: what an earlier process finished, and how far each conversation came.
//! Takes: a run's directory.
//! Gives: `Past`, which the steps of a run ask before they do anything; `resume`.
//! Never: has an order of steps of its own.

pub(in crate::run) mod absorb;
pub(in crate::run) mod changed;
pub(in crate::run) mod files;
pub(in crate::run) mod past;
pub(in crate::run) mod recall;
pub(in crate::run) mod resume;
pub(in crate::run) mod talk;
