//! May it be done? Calls of tools, and connections out of a sandbox.
//!
//! Owns: the order in which rules, hooks and people are asked, and the record of who decided.
//! Takes: a call before it runs, a host before it is dialled.
//! Gives: yes, or no with the reason that the agent is told.
//! Never: takes silence for a yes.

pub(in crate::run) mod approver;
pub(in crate::run) mod consent;
pub(in crate::run) mod egress;
pub(in crate::run) mod hooking;
pub(in crate::run) mod permit;
pub(in crate::run) mod rate;
mod unknown;
