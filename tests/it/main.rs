//! One test binary; each module is named by the behaviour it holds.

mod agent; // One agent: every way to go wrong, and to end.
mod tools; // The tool contract: understanding, permission, the words of results.
