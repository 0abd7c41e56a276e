//! What both ends of a sandbox's stream share: frames, messages, records of files, patterns.
//!
//! Owns: the wire between Wharf and process 1 of a container.
//! Takes: bytes.
//! Gives: frames and messages, or a `Fault` that says why the bytes are none.
//! Never: a thread, a file, an opinion on what a call means.

pub mod held;
pub mod memo;
pub mod message;
pub mod pattern;
pub mod record;
pub mod wire;
