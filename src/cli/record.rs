//! `wharf record`: a run's answers as a recording.

use std::path::PathBuf;

use super::fault::Fault;
use super::{find, out, state, text};
use crate::config::Flags;
use crate::journal::State;
use crate::ops;

/// Write a run's model answers as a recording that `--model replay:FILE` answers from
///
/// It can be given away: known secrets are replaced by `[secret]`, the directory the run worked on by
/// `/workspace`, your home by `/home/user`, your name by `user`, this machine's name and those of servers of
/// yours by `host`. It names the trees that the
/// answers are about, so that a run on other files says so.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  wharf record last > demo.cassette.jsonl\n  wharf record last -o demo.cassette.jsonl\n  \
wharf run --plan demo.yaml --model replay:demo.cassette.jsonl"
)]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// Write here instead of standard output; an existing file is not replaced
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Answer with one JSON object (needs --output)
    #[arg(long, requires = "output")]
    json: bool,
}

/// Writes the recording.
pub fn act(args: &Args) -> Result<i32, Fault> {
    let config = state::settings(&Flags::default())?;
    let found = find::one(&config.state, &args.run)?;
    let read = crate::journal::read(&found.journal())?;
    let started = State::of(&read.lines).started;
    let servers = started
        .as_ref()
        .and_then(|(_, started)| started.options["servers"].as_object())
        .map(|servers| {
            servers
                .values()
                .filter_map(|s| s.as_str())
                .map(str::to_owned)
                .collect()
        });
    let workspace = started.map(|(_, started)| started.workspace);
    let places = config.places(workspace, servers.unwrap_or_default());
    let veil = ops::Veil::new(&config.secrets, &places);
    let cassette = ops::cassette(&read.lines, &veil);
    if cassette.answers == 0 {
        return Err(
            Fault::usage(format!("run {} has no answer of a model", found.id))
                .hint(format!("`wharf log {}` shows what it did", found.id)),
        );
    }
    let (answers, veiled) = (cassette.answers, cassette.veiled);
    let said = match veiled {
        0 => text::plural(answers, "answer"),
        _ => format!(
            "{}; secrets and places on this machine were taken out of {}",
            text::plural(answers, "answer"),
            text::plural(veiled, "text")
        ),
    };
    match &args.output {
        None => {
            out::print(&cassette.text)?;
            out::note(&said);
        }
        Some(path) => {
            write_new(path, &cassette.text)?;
            if args.json {
                out::json(&serde_json::json!({
                    "run": found.id, "answers": answers, "veiled": veiled, "file": path,
                }))?;
            } else {
                out::note(&format!("{said}; written to {}", path.display()));
            }
        }
    }
    Ok(0)
}

/// Writes a file that must not be there yet.
pub fn write_new(path: &std::path::Path, content: &str) -> Result<(), Fault> {
    use std::io::Write as _;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path);
    match file.and_then(|mut file| file.write_all(content.as_bytes())) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(Fault::usage(format!("{} exists already", path.display()))
                .hint("name another file by --output, or remove that one first"))
        }
        Err(error) => Err(Fault::io("write", path, &error)),
    }
}
