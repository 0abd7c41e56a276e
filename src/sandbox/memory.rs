//! Sandboxes without containers, for tests and benches.
