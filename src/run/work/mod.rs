//! One agent at work: its sandbox, what it is told, what is kept of it.
//!
//! Owns: an agent from its sandbox's start to its end, and what its end means.
//! Takes: a subtask, or the whole task for an agent that works alone.
//! Gives: a snapshot and a report, or why there is none.
//! Never: decides which agent is next.

pub(in crate::run) mod accept;
pub(in crate::run) mod alone;
pub(in crate::run) mod bounds;
pub(in crate::run) mod changes;
pub(in crate::run) mod desk;
pub(in crate::run) mod emptied;
pub(in crate::run) mod ends;
pub(in crate::run) mod first;
pub(in crate::run) mod ignored;
pub(in crate::run) mod instructions;
pub(in crate::run) mod keep;
pub(in crate::run) mod left_out;
pub(in crate::run) mod salvage;
pub(in crate::run) mod settings;
pub(in crate::run) mod stays;
pub(in crate::run) mod take;
pub(in crate::run) mod trees;
pub(in crate::run) mod worker;
