//! `wharf log`: the journal, a line an event.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use super::fault::Fault;
use super::{audit, events, find, out, state};
use crate::journal::{self, Chain, Event, Line};
use crate::ops::Held;

/// How often a followed journal is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Print what happened in a run, one line an event
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf log last -f")]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// Go on until the run ends
    #[arg(long, short)]
    follow: bool,
    /// Print the journal's own lines
    #[arg(long)]
    json: bool,
    /// Only check that everything is as it was written: every line there and none changed, the outputs
    /// beside them, result and report
    #[arg(long, conflicts_with_all = ["follow", "json"])]
    check: bool,
}

/// Prints, follows or checks the journal.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let found = find::one(&state::directory()?, &args.run)?;
    if args.check {
        return audit::check(&found);
    }
    let mut tail = Tail::open(&found.journal())?;
    let mut ended = false;
    loop {
        // Asked before reading: what a run wrote before it let go is then surely read.
        let held = crate::ops::held(&found.dir);
        let (lines, damage) = tail.more();
        for (raw, line) in lines {
            ended = match line.event {
                Event::RunEnded { .. } => true,
                Event::Resumed { .. } => false,
                _ => ended,
            };
            out::print(&if args.json {
                raw
            } else {
                events::record(&line)
            })?;
        }
        // What stands before a damaged line was worth printing.
        if let Some(damage) = damage {
            return Err(damage);
        }
        if !args.follow || ended || !out::is_open() {
            if !args.follow && held != Held::Yes {
                rest(&mut tail, args.json)?;
            }
            return Ok(0);
        }
        if held == Held::No {
            rest(&mut tail, args.json)?;
            out::note("the run stopped before its end, nobody works on it now");
            return Ok(0);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Says what stands after the last whole line. A record that lacks only its newline is whole.
fn rest(tail: &mut Tail, json: bool) -> Result<(), Fault> {
    let Some((bytes, line)) = tail.rest() else {
        return Ok(());
    };
    match line {
        Some((raw, line)) => out::print(&if json { raw } else { events::record(&line) }),
        None => {
            out::note(&format!(
                "{bytes} bytes of an unfinished last line are not counted"
            ));
            Ok(())
        }
    }
}

/// Whole lines of a growing file.
struct Tail {
    file: std::fs::File,
    path: std::path::PathBuf,
    offset: u64,
    number: usize,
    chain: Chain,
}

impl Tail {
    fn open(path: &Path) -> Result<Self, Fault> {
        let file = std::fs::File::open(path).map_err(|e| Fault::io("open", path, &e))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            offset: 0,
            number: 0,
            chain: Chain::default(),
        })
    }

    /// The lines that were finished since the last call, raw and decoded, up to one that is none.
    fn more(&mut self) -> (Vec<(String, Line)>, Option<Fault>) {
        let mut bytes = Vec::new();
        let read = self
            .file
            .seek(SeekFrom::Start(self.offset))
            .and_then(|_| self.file.read_to_end(&mut bytes));
        if let Err(error) = read {
            return (Vec::new(), Some(Fault::io("read", &self.path, &error)));
        }
        let whole = bytes
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        self.offset += whole as u64;
        let mut lines = Vec::new();
        for text in bytes[..whole].split_inclusive(|&b| b == b'\n') {
            self.number += 1;
            let text = text.strip_suffix(b"\n").unwrap_or(text);
            match self.chain.take(text) {
                Ok(line) => lines.push((String::from_utf8_lossy(text).into_owned(), line)),
                Err(what) => {
                    let damage = journal::Error::Damaged {
                        path: self.path.clone(),
                        line: self.number,
                        what,
                    };
                    return (lines, Some(damage.into()));
                }
            }
        }
        (lines, None)
    }

    /// How many bytes stand after the last newline, and the record if they are a whole one.
    fn rest(&mut self) -> Option<(usize, Option<(String, Line)>)> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(self.offset)).ok()?;
        self.file.read_to_end(&mut bytes).ok()?;
        if bytes.is_empty() {
            return None;
        }
        let raw = || String::from_utf8_lossy(&bytes).into_owned();
        let line = self.chain.take(&bytes).ok().map(|line| (raw(), line));
        Some((bytes.len(), line))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_half_written_line_waits_for_its_end() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let text =
            r#"{"seq":1,"at":"2026-01-01T00:00:00Z","prev":"","type":"round_started","round":1}"#;
        let mut tail = Tail::open(file.path()).unwrap();
        file.write_all(&text.as_bytes()[..20]).unwrap();
        assert!(tail.more().0.is_empty());
        file.write_all(&text.as_bytes()[20..]).unwrap();
        file.write_all(b"\nnonsense").unwrap();
        let (lines, damage) = tail.more();
        assert!(damage.is_none());
        assert_eq!(lines[0].0, text);
        file.write_all(format!("\n{text}\n").as_bytes()).unwrap();
        let (lines, damage) = tail.more();
        assert!(lines.is_empty());
        assert!(damage.unwrap().message.contains("line 2"));
    }
}
