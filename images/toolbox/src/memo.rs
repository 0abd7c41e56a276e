//! Sentences of the toolbox that the host side must know again.

/// What the answer of a command says in an image without a shell.
pub const NO_SHELL: &str =
    "this image has no shell (neither bash nor sh on PATH), so commands cannot run in it";
