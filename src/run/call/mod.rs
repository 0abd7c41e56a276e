//! One call of a model: paid from the pot, let through the gate, retried, journaled.
//!
//! Owns: money, tokens, the limits that a server made known.
//! Takes: a request of an agent.
//! Gives: an answer, or why there is none.
//! Never: reads what the answer says.

pub(in crate::run) mod ask;
pub(in crate::run) mod bill;
pub(in crate::run) mod gate;
mod pending;
pub(in crate::run) mod pot;
pub(in crate::run) mod sent;
pub(in crate::run) mod tab;
