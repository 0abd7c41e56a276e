//! OpenAI's responses: the wire of models whose thoughts go back encrypted.
//!
//! Owns: the request's body, the fold of its events.
//! Takes: a request in the form its server needs.
//! Gives: a body; a whole reply whose items go back as they came.
//! Never: sends anything, keeps anything on the server, or shows one model's items to another.

pub mod body;
pub mod fold;
