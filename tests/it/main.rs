//! One test binary; each module is named by the behaviour it holds.

// Plan files: shipped ones, broken ones, the DAG.
mod plans;
