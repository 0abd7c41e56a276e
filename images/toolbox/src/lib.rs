//! Frames and messages.
