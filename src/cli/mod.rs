//! Talking to the person: verbs, flags, progress, results.
//!
//! Owns: the command line, what is printed where, exit codes, signals.
//! Takes: arguments; facts of a run from its journal, its result and its live board.
//! Gives: an exit code.
//! Never: a model, a container, a tool; anything below prints through it or not at all.

mod apply;
mod approve;
mod args;
mod attend;
mod audit;
mod check;
mod clean;
mod completions;
mod config;
mod decisions;
mod diff;
mod doctor;
mod events;
mod fault;
mod find;
mod images;
mod init;
mod judged;
mod keyboard;
mod live;
mod log;
mod models;
mod order;
mod out;
mod plan;
mod plan_file;
mod record;
mod replay;
mod request;
mod result;
mod resume;
mod run;
mod runs;
mod shell;
mod show;
mod signals;
mod state;
mod story;
mod target;
mod text;
mod trace;
mod turns;
mod value;
mod wording;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::Parser as _;

use fault::Fault;

/// Where the panic message sends the person; set as soon as it is known.
static STATE: OnceLock<PathBuf> = OnceLock::new();

/// Parses the arguments, does what they say, and returns the exit code.
pub async fn main(args: Vec<OsString>) -> i32 {
    let form = out::Form::of(&args);
    let parsed = match args::Cli::try_parse_from(&args) {
        Ok(parsed) => parsed,
        Err(error) if !error.use_stderr() => {
            return out::print(&error.render().to_string())
                .map_or_else(|fault| fault.tell(form), |()| 0);
        }
        // A verb that has verbs of its own, and none was said.
        Err(error) if is_bare(&error) && form == out::Form::Text => {
            out::note(&error.render().to_string());
            return 2;
        }
        Err(error) if is_bare(&error) => {
            let fault = Fault::usage("a sub-command is missing");
            return fault.hint("--help lists them").tell(form);
        }
        Err(error) => return Fault::from(error).tell(form),
    };
    match parsed.verb.act().await {
        Ok(code) => code,
        Err(fault) => fault.of_full_disk().tell(form),
    }
}

fn is_bare(error: &clap::Error) -> bool {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    matches!(
        error.kind(),
        DisplayHelpOnMissingArgumentOrSubcommand | MissingSubcommand
    )
}

/// The panic hook: what happened, that it is ours, and where the run's state lies.
pub fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let what = info
        .payload_as_str()
        .unwrap_or("a value that is no text")
        .to_owned();
    let place = info
        .location()
        .map_or_else(String::new, |l| format!(" ({}:{})", l.file(), l.line()));
    out::note(&format!(
        "wharf: {}{place}\nThis is a bug in Wharf, not in your plan.",
        text::plain(&what)
    ));
    if let Some(state) = STATE.get() {
        out::note(&format!(
            "What the run has done so far is kept under {}.",
            state.join("runs").display()
        ));
    }
}

/// Ends the process in order after a panic on the main path.
pub fn after_panic(args: &[OsString]) -> i32 {
    let fault = Fault::new(3, "bug", "wharf stopped on a bug of its own")
        .hint("the message above says where; the run's state is kept, `wharf show last` reads it");
    fault.tell(out::Form::of(args))
}

/// Says why not even the runtime could be started.
pub fn cannot_begin(args: &[OsString], error: &std::io::Error) -> i32 {
    Fault::new(3, "environment", format!("start the runtime: {error}")).tell(out::Form::of(args))
}
