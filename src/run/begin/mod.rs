//! A run begins: its directory and lock, what it was told, the base of its files.
//!
//! Owns: what must hold before the first agent, and what is refused instead.
//! Takes: an `Order`.
//! Gives: a run under way (`start`), a base in the run's store.
//! Never: asks a model.

pub(in crate::run) mod base;
pub(in crate::run) mod fresh;
pub(in crate::run) mod history;
pub(in crate::run) mod kept;
pub(in crate::run) mod lock;
pub(in crate::run) mod price;
pub(in crate::run) mod start;
