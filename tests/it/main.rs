//! One test binary; each module is named by the behaviour it holds.

mod workspace; // trees, snapshots, merges, delivery, apply
