//! What a person is told when a verb could not do its work: what happened, and what to do next.

use std::fmt;

use serde_json::json;

use super::out::{self, Form};
use super::text;

/// An exit code with its words. `kind` is a stable word for programs.
#[derive(Debug)]
pub struct Fault {
    pub code: i32,
    pub kind: &'static str,
    pub message: String,
    pub hint: String,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(code: i32, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            kind,
            message: message.into(),
            hint: String::new(),
        }
    }

    /// Exit 2: something on the command line makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(2, "usage", message)
    }

    /// Exit 3: something around Wharf is missing or broken.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(3, "environment", message)
    }

    /// Exit 3 for a file operation that failed.
    pub fn io(operation: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::environment(format!("{operation} {}: {error}", path.display()))
    }

    /// Says what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Where a full disk is what went wrong, the hint is about that alone.
    pub fn of_full_disk(mut self) -> Self {
        let full = ["No space left on device", "Disk quota exceeded"];
        if self.kind != out::KIND && full.iter().any(|words| self.message.contains(words)) {
            let where_ = super::STATE.get().map_or_else(String::new, |state| {
                format!(" ({} holds the runs)", state.display())
            });
            self.hint = format!(
                "free some space on that disk{where_}, or name another state directory by WHARF_HOME; \
                 `wharf clean --runs --older-than 7d` removes old runs"
            );
        }
        self
    }

    /// The object programs read: `{"error":{…}}`.
    pub fn to_json(&self) -> serde_json::Value {
        json!({"error": {
            "code": self.code, "kind": self.kind,
            "message": self.message.trim_end(), "hint": self.hint,
        }})
    }

    /// Prints it in the form asked for and returns its exit code.
    pub fn tell(&self, form: Form) -> i32 {
        out::note(&self.to_string());
        let told = match form {
            Form::Text => Ok(()),
            Form::Json => out::json(&self.to_json()),
            Form::Events => {
                let mut line = json!({"type": "result", "status": "error", "exit_code": self.code});
                line["error"] = self.to_json()["error"].take();
                out::json(&line)
            }
        };
        // Standard output is beyond use; standard error has the message already.
        drop(told);
        self.code
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = text::plain(self.message.trim_end());
        write!(f, "error: {message}")?;
        if !self.hint.is_empty() {
            write!(f, "\nhint: {}", text::plain(&self.hint))?;
        }
        Ok(())
    }
}

impl From<clap::Error> for Fault {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let mut parts = text.split("\n\n");
        let message = parts.next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let mut hints = Vec::new();
        for line in parts.flat_map(str::lines).map(str::trim) {
            if let Some(tip) = line.strip_prefix("tip: ") {
                hints.push(tip.to_owned());
            } else if line.starts_with("Usage: ") {
                hints.push(line.replacen("Usage", "usage", 1));
            }
        }
        hints.push("--help says more".to_owned());
        Self::usage(message).hint(hints.join("; "))
    }
}

impl From<crate::run::Error> for Fault {
    fn from(error: crate::run::Error) -> Self {
        match error {
            crate::run::Error::Start {
                code,
                kind,
                message,
                hint,
            } => Self {
                code,
                kind,
                message,
                hint,
            },
            crate::run::Error::Journal(error) => error.into(),
            other => Self::environment(other.to_string())
                .hint("`wharf show last` says how far the run came"),
        }
    }
}

impl From<crate::journal::Error> for Fault {
    fn from(error: crate::journal::Error) -> Self {
        use crate::journal::Error;
        let hint = match &error {
            Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                let dir = path.parent().unwrap_or(path);
                return Self::new(3, "journal", format!("{} holds no journal", dir.display()))
                    .hint("no run ever began there; remove that directory");
            }
            Error::Io { .. } | Error::Closed { .. } => "`wharf doctor` checks the state directory",
            Error::Newer { .. } => "use that version of wharf, or a later one",
            Error::Damaged { .. } | Error::Beside { .. } => {
                "what came before that line still holds; what the run came to cannot be told"
            }
        };
        Self::new(3, "journal", error.to_string()).hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_its_own_hint_unless_it_is_standard_output_s() {
        let words = "write x: No space left on device (os error 28)";
        let hint = |kind| Fault::new(3, kind, words).hint("other").of_full_disk().hint;
        assert!(hint("journal").contains("free some space"));
        assert_eq!(hint(out::KIND), "other");
        let other = Fault::usage("no such thing").hint("other").of_full_disk();
        assert_eq!(other.hint, "other");
    }

    #[test]
    fn a_message_keeps_its_lines_and_loses_its_escapes() {
        let fault = Fault::usage("a\u{1b}[31mred\nb").hint("do this");
        assert_eq!(
            fault.to_string(),
            "error: a\u{fffd}[31mred\nb\nhint: do this"
        );
        assert_eq!(fault.to_json()["error"]["code"], 2);
        assert_eq!(fault.to_json()["error"]["hint"], "do this");
    }
}
