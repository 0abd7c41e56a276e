//! One test binary; each module is named by the behaviour it holds.

mod tools; // The tool contract: understanding, permission, the words of results.
