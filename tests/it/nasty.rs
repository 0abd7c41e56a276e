//! Workspaces that break what is not careful: each is taken, worked on, and left as it was.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod added; // what a result adds, or lacks, that nobody looked for
mod brought; // what is hard to bring back, from a container
mod canaries; // what a repository could start, in a whole run
mod debian; // the oldest git that is promised
mod emptied; // work that removes almost everything
mod history; // what agents see of it, and what never
mod included; // what is shown although ignored or hidden
mod measured; // what is large
mod nothing; // work that changed nothing
mod own; // Wharf's own files inside the workspace
mod replaced; // what is refused, taken away again or hidden, over several turns
mod repositories; // the generator
mod runs; // a run in each of them changes nothing
mod scanned; // what comes back from a sandbox
mod unprivileged; // files that the operator may not read
