//! Anthropic's messages.
//!
//! Owns: the request's body with its marks of what to cache, the fold of its events.
//! Takes: a request in the form its server needs.
//! Gives: a body; a whole reply whose thinking blocks go back as they came.
//! Never: sends anything, or shows one model's blocks to another.

pub mod body;
pub mod fold;
