//! Questions to the person at the terminal: one at a time, answered by one key, each with its deadline.
//! Nothing is read while no question is open, and nothing that was typed before it stood there counts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::keyboard::Keyboard;
use super::text;
use crate::run::{Answer, Question, Reply, Scope};

/// How long a question stands before a key counts: nobody has read it earlier.
const READ: Duration = Duration::from_millis(600);
/// Characters of a command that are shown; one that is longer says how much is missing.
const SHOWN: usize = 4_000;

/// The questions that are open, the first of them shown.
pub struct Questions {
    waiting: VecDeque<(Question, Reply)>,
    keyboard: Option<Keyboard>,
    shown: Option<Instant>,
}

/// What there is to be said.
pub struct Turn {
    /// Lines for good, above what moves.
    pub lines: Vec<String>,
    /// The prompt that stands until the next turn; None when no question is open.
    pub prompt: Option<String>,
}

impl Questions {
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            keyboard: None,
            shown: None,
        }
    }

    /// One more.
    pub fn add(&mut self, question: Question, reply: Reply) {
        self.waiting.push_back((question, reply));
    }

    /// Drops what is over, reads a key, shows what comes next. To be called often.
    pub fn turn(&mut self) -> Turn {
        let mut lines = Vec::new();
        self.drop_over();
        if self.waiting.is_empty() {
            self.keyboard = None;
            self.shown = None;
            return Turn {
                lines,
                prompt: None,
            };
        }
        if self.keyboard.is_none() {
            self.keyboard = Keyboard::take();
            if self.keyboard.is_none() {
                // In the background, say, the terminal is another's until its deadline.
                let prompt = self
                    .waiting
                    .front()
                    .map(|(question, _)| elsewhere(question));
                return Turn { lines, prompt };
            }
            self.shown = None;
        }
        if self.shown.is_none() {
            self.show(&mut lines);
        } else if let Some(line) = self.key() {
            lines.push(line);
            self.shown = None;
            self.drop_over();
            if self.waiting.is_empty() {
                self.keyboard = None;
            } else {
                self.show(&mut lines);
            }
        }
        let more = self.waiting.len().saturating_sub(1);
        let prompt = self
            .waiting
            .front()
            .map(|(question, _)| prompt(question, more));
        Turn { lines, prompt }
    }

    fn drop_over(&mut self) {
        let first = self.waiting.front().map(|(question, _)| question.until);
        self.waiting
            .retain(|(question, reply)| !reply.is_closed() && !question.left().is_zero());
        if self.waiting.front().map(|(question, _)| question.until) != first {
            self.shown = None;
        }
    }

    fn show(&mut self, lines: &mut Vec<String>) {
        if let (Some((question, _)), Some(keyboard)) = (self.waiting.front(), &self.keyboard) {
            keyboard.forget();
            lines.extend(asked(question));
            self.shown = Some(Instant::now());
        }
    }

    /// The line of an answer, when a key gave one.
    fn key(&mut self) -> Option<String> {
        let keyboard = self.keyboard.as_ref()?;
        let key = match keyboard.key() {
            Ok(key) => key?,
            Err(_) => {
                // The terminal is gone: whoever waits hears that nobody can be asked.
                self.waiting.clear();
                return None;
            }
        };
        if self.shown.is_none_or(|since| since.elapsed() < READ) {
            return None;
        }
        let (question, _) = self.waiting.front()?;
        let answer = answer(key, &question.scopes)?;
        let (question, reply) = self.waiting.pop_front()?;
        let line = answered(&question, &answer);
        // An asker that went on without it needs none.
        drop(reply.send(answer));
        Some(line)
    }
}

/// What a key means for a question with these scopes.
fn answer(key: u8, scopes: &[Scope]) -> Option<Answer> {
    let yes = |scope| {
        scopes.contains(&scope).then_some(Answer::Yes {
            scope,
            reason: None,
        })
    };
    match key.to_ascii_lowercase() {
        b'y' => yes(Scope::Once),
        b'a' => yes(Scope::Run),
        b'd' => yes(Scope::Directory),
        b'n' => Some(Answer::No { reason: None }),
        _ => None,
    }
}

fn asked(question: &Question) -> Vec<String> {
    let mut lines = vec![format!(
        "? {} ({}) wants to run {}: {}",
        text::line(&question.agent, 60),
        text::line(&question.role, 40),
        text::line(&question.tool, 40),
        text::line(&question.reason, 400)
    )];
    let whole: Vec<char> = question.what.chars().collect();
    let shown: String = whole.iter().take(SHOWN).collect();
    lines.extend(shown.lines().map(|line| format!("    {line}")));
    if whole.len() > SHOWN {
        let more = whole.len() - SHOWN;
        lines.push(format!(
            "    … and {more} characters more that are not shown"
        ));
    }
    lines
}

fn prompt(question: &Question, more: usize) -> String {
    let keys = question.scopes.iter().map(|scope| match scope {
        Scope::Once => "y once",
        Scope::Run => "a for the run",
        Scope::Directory => "d in this directory",
    });
    let keys: Vec<&str> = keys.chain(["n no"]).collect();
    let queue = match more {
        0 => String::new(),
        more => format!(", {more} more wait"),
    };
    format!(
        "? {}: {}  ({}s left{queue})",
        text::line(&question.agent, 40),
        keys.join(" · "),
        question.left().as_secs()
    )
}

fn elsewhere(question: &Question) -> String {
    format!(
        "? {} asks; bring this run to the foreground to answer ({}s left)",
        text::line(&question.agent, 40),
        question.left().as_secs()
    )
}

fn answered(question: &Question, answer: &Answer) -> String {
    let word = match answer {
        Answer::Yes {
            scope: Scope::Once, ..
        } => "yes, once",
        Answer::Yes {
            scope: Scope::Run, ..
        } => "yes, for the run",
        Answer::Yes {
            scope: Scope::Directory,
            ..
        } => "yes, in this directory",
        Answer::No { .. } => "no",
    };
    format!("? {}: {word}", text::line(&question.agent, 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(scopes: &[Scope], what: &str) -> Question {
        Question {
            agent: "fix".to_owned(),
            role: "coder".to_owned(),
            tool: "bash".to_owned(),
            what: what.to_owned(),
            reason: "the mode is ask".to_owned(),
            scopes: scopes.to_vec(),
            until: Instant::now() + Duration::from_secs(90),
        }
    }

    #[test]
    fn a_key_that_is_not_offered_answers_nothing() {
        let once = [Scope::Once];
        assert!(matches!(answer(b'y', &once), Some(Answer::Yes { .. })));
        assert!(matches!(answer(b'N', &once), Some(Answer::No { .. })));
        for key in [b'a', b'd', b'\n', b' ', 27, b'x'] {
            assert_eq!(answer(key, &once), None, "{key}");
        }
    }

    #[test]
    fn the_whole_command_is_shown_or_what_is_missing_is_named() {
        let lines = asked(&question(&[Scope::Once], "make\nrm -rf /"));
        assert_eq!(lines[1..], ["    make", "    rm -rf /"]);
        let long = format!("ls {}; rm x", " ".repeat(5_000));
        let lines = asked(&question(&[Scope::Once], &long));
        assert!(
            lines.last().unwrap().contains("1009 characters more"),
            "{lines:?}"
        );
        let prompt = prompt(&question(&[Scope::Once, Scope::Run], "make"), 2);
        assert!(prompt.contains("y once · a for the run · n no") && prompt.contains("2 more wait"));
    }
}
