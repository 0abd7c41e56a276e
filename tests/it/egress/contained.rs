//! In real containers, and in a whole run.
