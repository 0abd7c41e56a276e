//! `wharf record`: a run's answers as a recording.

use std::path::PathBuf;

use super::fault::Fault;
use super::{find, out, state, text};

/// Write a run's model answers as a recording that `--model replay:FILE` answers from
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  wharf record last -o demo.cassette.jsonl\n  \
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
    let found = find::one(&state::directory()?, &args.run)?;
    let read = crate::journal::read(&found.journal())?;
    let cassette = crate::ops::cassette(&read.lines);
    if cassette.is_empty() {
        return Err(
            Fault::usage(format!("run {} has no answer of a model", found.id))
                .hint("`wharf log RUN` shows what it did"),
        );
    }
    let answers = cassette.lines().count();
    match &args.output {
        None => out::print(&cassette)?,
        Some(path) => {
            write_new(path, &cassette)?;
            if args.json {
                out::json(&serde_json::json!({"run": found.id, "answers": answers, "file": path}))?;
            } else {
                out::note(&format!(
                    "{} in {}",
                    text::plural(answers, "answer"),
                    path.display()
                ));
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
