//! Sentences of the toolbox that the host side must know again.

/// What the answer of a command says in an image without a shell.
pub const NO_SHELL: &str =
    "this image has no shell (neither bash nor sh on PATH), so commands cannot run in it";

/// Why a scan leaves out a file that a full disk cut, or that could not be written for it.
pub const TORN: &str = "not whole: the disk was full while it was written";

/// Why a scan leaves out what tools make anew.
pub const IGNORED: &str = "ignored";

/// Why a scan leaves out what a `.gitignore` of the workspace names, as it stands now.
pub const BY_RULES: &str = "ignored by a .gitignore";
