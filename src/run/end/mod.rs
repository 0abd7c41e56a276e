//! A run ends: its result is delivered, put down in files, and put in place when it is asked for.
//!
//! Owns: branch, patch, result.json, report.md, and the command to type next.
//! Takes: what a run came to, or its journal alone.
//! Gives: a `Summary`.
//! Never: changes the operator's files, but for `apply`.

pub(in crate::run) mod apply;
pub(in crate::run) mod deliver;
pub(in crate::run) mod finish;
pub(in crate::run) mod next;
pub(in crate::run) mod patch;
pub(in crate::run) mod remade;
pub(in crate::run) mod report;
pub(in crate::run) mod result;
pub(in crate::run) mod summary;
pub(in crate::run) mod words;
