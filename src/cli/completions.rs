//! `wharf completions`: a script for a shell.

use clap::CommandFactory as _;

use super::fault::Fault;
use super::{args, out};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  wharf completions bash > ~/.local/share/bash-completion/completions/wharf"
)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn act(args: &Args) -> Result<i32, Fault> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::Cli::command(), "wharf", &mut script);
    out::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
