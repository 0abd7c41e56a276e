//! Chat completions, as OpenAI and everything compatible speak them.
//!
//! Owns: the request's body, the fold of deltas.
//! Takes: a request in the form its server needs.
//! Gives: a body's bytes; a whole reply out of events or one message.
//! Never: sends anything.

pub mod body;
mod calls;
pub mod fold;
