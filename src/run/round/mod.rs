//! One round after another: subtasks, their order, their merges.
//!
//! Owns: the schedule, and when it is over.
//! Takes: a run under way.
//! Gives: the merged tree of each round, and what became of each subtask.
//! Never: judges the tree.

pub(in crate::run) mod coordinate;
pub(in crate::run) mod drive;
pub(in crate::run) mod execute;
pub(in crate::run) mod merges;
pub(in crate::run) mod resolution;
pub(in crate::run) mod rounds;
pub(in crate::run) mod schedule;
