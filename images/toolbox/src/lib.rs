//! What both ends of a sandbox's stream share: frames, messages, records of files, a layer's ledger,
//! patterns, rules of `.gitignore` files, seals of frames, and how the heads of HTTP requests are read.
//!
//! Owns: the wire between Wharf and process 1 of a container.
//! Takes: bytes.
//! Gives: frames and messages, or a `Fault` that says why the bytes are none.
//! Never: a thread, a file, an opinion on what a call means.

pub mod held;
pub mod http;
pub mod ignore;
pub mod ledger;
pub mod memo;
pub mod message;
pub mod pattern;
pub mod record;
pub mod seal;
pub mod speech;
pub mod stamp;
pub mod wire;
