//! The only place that writes to standard output and standard error.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

use serde::Serialize;

use super::fault::Fault;
use super::text;

/// The word for programs when standard output cannot take an answer.
pub const KIND: &str = "output";

/// How a verb answers on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// Exactly one object.
    Json,
    /// One object a line.
    Events,
}

impl Form {
    /// The form that the flags ask for.
    pub fn wanted(json: bool, events: bool) -> Self {
        match (json, events) {
            (true, _) => Self::Json,
            (_, true) => Self::Events,
            _ => Self::Text,
        }
    }

    /// The form the raw arguments ask for; known before they are parsed, so that an error in them
    /// is told in the same form.
    pub fn of(args: &[OsString]) -> Self {
        let mut flags = args.iter().take_while(|arg| *arg != "--");
        match flags.find(|arg| *arg == "--json" || *arg == "--events") {
            Some(arg) if arg == "--json" => Self::Json,
            Some(_) => Self::Events,
            None => Self::Text,
        }
    }
}

/// Writes text to standard output. A reader that went away is no error.
pub fn print(text: &str) -> Result<(), Fault> {
    bytes(text.as_bytes())?;
    if text.ends_with('\n') {
        return Ok(());
    }
    bytes(b"\n")
}

/// Writes bytes as they are to standard output.
pub fn bytes(bytes: &[u8]) -> Result<(), Fault> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes);
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(
                Fault::new(3, KIND, format!("write to standard output: {error}"))
                    .hint("send it somewhere that can take it"),
            )
        }
        _ => Ok(()),
    }
}

/// Writes bytes that somebody else made: as they are for a program, and for a terminal as text in
/// which nothing can move its cursor or hide a line.
pub fn foreign(foreign: &[u8]) -> Result<(), Fault> {
    if std::io::stdout().is_terminal() {
        return bytes(text::plain(&String::from_utf8_lossy(foreign)).as_bytes());
    }
    bytes(foreign)
}

/// As `foreign`, to standard error. There is nobody to tell when that fails.
pub fn foreign_aside(foreign: &[u8]) -> Result<(), Fault> {
    let mut stderr = std::io::stderr().lock();
    let written = match stderr.is_terminal() {
        true => stderr.write_all(text::plain(&String::from_utf8_lossy(foreign)).as_bytes()),
        false => stderr.write_all(foreign),
    };
    drop(written);
    Ok(())
}

/// Asks the person for a line, on standard error.
pub fn ask(prompt: &str) {
    let mut stderr = std::io::stderr().lock();
    drop(write!(stderr, "{prompt}").and_then(|()| stderr.flush()));
}

/// Writes one object on a line of its own to standard output.
pub fn json(value: &impl Serialize) -> Result<(), Fault> {
    let text = serde_json::to_string(value)
        .map_err(|error| Fault::new(3, "bug", format!("encode the answer: {error}")))?;
    print(&text)
}

/// Writes lines to standard error. There is nobody to tell when that fails.
pub fn note(text: &str) {
    let mut stderr = std::io::stderr().lock();
    drop(writeln!(stderr, "{}", text.trim_end()));
}

/// True when standard output can take another line.
pub fn is_open() -> bool {
    std::io::stdout().lock().flush().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_read_before_parsing_and_not_after_two_dashes() {
        let form = |words: &[&str]| Form::of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(form(&["wharf", "run", "--json", "--nope"]), Form::Json);
        assert_eq!(form(&["wharf", "run", "--events"]), Form::Events);
        assert_eq!(form(&["wharf", "run", "--", "--json"]), Form::Text);
    }
}
