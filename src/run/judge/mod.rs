//! Is the merged tree what was asked for?
//!
//! Owns: acceptance commands, verifiers and what their words are worth, the run's status.
//! Takes: a tree that nobody can change any more.
//! Gives: a verdict for each criterion, and the status that facts make of them.
//! Never: takes what could not be told for a pass.

pub(in crate::run) mod acceptance;
pub(in crate::run) mod additions;
pub(in crate::run) mod collected;
mod evidence;
pub(in crate::run) mod outcome;
mod place;
mod programs;
pub(in crate::run) mod status;
pub(in crate::run) mod suspects;
pub(in crate::run) mod tally;
pub(in crate::run) mod verdict;
pub(in crate::run) mod verify;
pub(in crate::run) mod votes;
pub(in crate::run) mod witness;
