//! Shell text cut into simple commands and words, quotes resolved, substitutions set aside.

/// One word, its quotes gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// What it becomes is only known when it runs: a variable, a substitution, an unquoted pattern.
    pub expands: bool,
}

/// One simple command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// As it was written.
    pub raw: String,
    pub words: Vec<Word>,
    /// The targets of its redirections.
    pub targets: Vec<String>,
    /// Its here-document or here-string.
    pub document: Option<String>,
}

/// What a text holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub commands: Vec<Command>,
    /// The texts of substitutions.
    pub inner: Vec<String>,
    /// A quote or a bracket is not closed.
    pub open: bool,
}

impl Word {
    pub fn plain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            expands: false,
        }
    }

    /// `NAME=value`.
    pub fn assigns(&self) -> bool {
        let name = self.text.split_once('=').map_or("", |(name, _)| name);
        let name = name.strip_suffix('+').unwrap_or(name);
        let digit = |c: char| c.is_ascii_digit();
        !name.is_empty()
            && !name.starts_with(digit)
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    }
}

impl Scan {
    /// Cuts a text.
    pub fn of(text: &str) -> Self {
        let mut scanner = Scanner {
            chars: text.chars().collect(),
            ..Scanner::default()
        };
        scanner.run();
        scanner.found
    }

    /// The substitutions of a text that stands as if in double quotes.
    pub fn quoted(text: &str) -> Self {
        let mut scanner = Scanner {
            chars: text.chars().collect(),
            ..Scanner::default()
        };
        while let Some(c) = scanner.peek(0) {
            scanner.at += 1;
            match c {
                '\\' => scanner.at += 1,
                '$' => scanner.dollar(),
                '`' => scanner.ticks(),
                _ => {}
            }
        }
        scanner.found
    }
}

/// What the next word is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Word,
    Target,
    Delimiter {
        tabs: bool,
    },
    Text,
}

/// A text under the reader.
#[derive(Default)]
pub(super) struct Scanner {
    pub(super) chars: Vec<char>,
    pub(super) at: usize,
    begun: usize,
    word: Option<Word>,
    pub(super) quoted: bool,
    next: Next,
    command: Command,
    /// Here-documents whose bodies come after this line: delimiter, literal, tabs cut, whose.
    due: Vec<(String, bool, bool, usize)>,
    pub(super) found: Scan,
}

impl Scanner {
    fn run(&mut self) {
        while let Some(c) = self.peek(0) {
            self.at += 1;
            match c {
                '\\' => self.escape(),
                '\'' => self.single(),
                '"' => self.double(),
                '$' => self.dollar(),
                '`' => self.ticks(),
                '#' if self.word.is_none() => {
                    let begun = self.at - 1;
                    self.until_newline();
                    self.keep(begun);
                }
                '<' | '>' => self.redirect(c),
                '&' if self.peek(0) == Some('>') => {
                    self.end_word();
                }
                '\n' => {
                    self.end_command(1);
                    self.documents();
                }
                ';' | '&' | '|' | '(' | ')' => self.end_command(1),
                c if c.is_whitespace() => self.end_word(),
                c => {
                    let word = self.push(c);
                    word.expands |= match c {
                        '*' | '?' => true,
                        ']' => word.text.len() > 2 && word.text.contains('['),
                        '{' => word.text.len() > 1,
                        ',' => word.text.starts_with('{'),
                        _ => false,
                    };
                }
            }
        }
        self.end_command(0);
    }

    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    pub(super) fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    pub(super) fn push(&mut self, c: char) -> &mut Word {
        let word = self.word();
        word.text.push(c);
        word
    }

    /// A comment is no part of what was written before it.
    fn keep(&mut self, end: usize) {
        let raw: String = self.chars[self.begun.min(end)..end].iter().collect();
        self.command.raw.push_str(&raw);
        self.begun = self.at;
    }

    fn until_newline(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.at += 1;
        }
    }

    fn redirect(&mut self, c: char) {
        let digits = |word: &Word| word.text.chars().all(|c| c.is_ascii_digit());
        if self.word.as_ref().is_some_and(digits) && !self.quoted {
            self.word = None;
        }
        self.end_word();
        if self.peek(0) == Some('(') {
            self.at += 1;
            return self.substitution();
        }
        let mut sign = String::from(c);
        while let Some(next) = self
            .peek(0)
            .filter(|c| matches!(c, '<' | '>' | '&' | '|' | '-'))
        {
            let fits = matches!(
                (sign.as_str(), next),
                ("<<", '<' | '-') | (">", '&' | '|' | '>') | ("<", '&' | '<' | '>')
            );
            if !fits {
                break;
            }
            sign.push(next);
            self.at += 1;
        }
        self.next = match sign.as_str() {
            "<<" => Next::Delimiter { tabs: false },
            "<<-" => Next::Delimiter { tabs: true },
            "<<<" => Next::Text,
            _ => Next::Target,
        };
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else {
            return;
        };
        let quoted = std::mem::take(&mut self.quoted);
        match std::mem::take(&mut self.next) {
            Next::Word => self.command.words.push(word),
            Next::Target => self.command.targets.push(word.text),
            Next::Text => self.command.document = Some(word.text),
            Next::Delimiter { tabs } => {
                let whose = self.found.commands.len();
                self.due.push((word.text, quoted, tabs, whose));
            }
        }
    }

    /// Ends a command before a sign of so many characters.
    fn end_command(&mut self, sign: usize) {
        self.end_word();
        self.next = Next::Word;
        self.keep(self.at - sign);
        let command = std::mem::take(&mut self.command);
        let empty = command.words.is_empty() && command.targets.is_empty();
        if !empty
            || self
                .due
                .iter()
                .any(|due| due.3 == self.found.commands.len())
        {
            self.found.commands.push(command);
        }
    }

    /// The bodies of here-documents, after the line that named them.
    fn documents(&mut self) {
        for (delimiter, literal, tabs, whose) in std::mem::take(&mut self.due) {
            let mut body = String::new();
            let mut closed = false;
            while self.at < self.chars.len() && !closed {
                let begun = self.at;
                self.until_newline();
                let line: String = self.chars[begun..self.at].iter().collect();
                self.at = (self.at + 1).min(self.chars.len());
                let line = if tabs {
                    line.trim_start_matches('\t')
                } else {
                    &line
                };
                closed = line == delimiter;
                if !closed {
                    body.push_str(line);
                    body.push('\n');
                }
            }
            if !literal {
                self.found.inner.extend(Scan::quoted(&body).inner);
            }
            if let Some(command) = self.found.commands.get_mut(whose) {
                command.document = Some(body);
            }
        }
        self.begun = self.at;
    }
}
