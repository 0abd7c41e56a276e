//! Quotes, escapes and substitutions of a shell text, each read from behind its first sign.

use super::shell::{Scan, Scanner};

impl Scanner {
    pub(super) fn escape(&mut self) {
        match self.peek(0) {
            Some('\n') => self.at += 1,
            Some(c) => {
                self.at += 1;
                self.quoted = true;
                self.push(c);
            }
            None => self.found.open = true,
        }
    }

    pub(super) fn single(&mut self) {
        self.quoted = true;
        self.word();
        while let Some(c) = self.peek(0) {
            self.at += 1;
            if c == '\'' {
                return;
            }
            self.push(c);
        }
        self.found.open = true;
    }

    pub(super) fn double(&mut self) {
        self.quoted = true;
        self.word();
        while let Some(c) = self.peek(0) {
            self.at += 1;
            match c {
                '"' => return,
                '\\' => match self.peek(0) {
                    Some('\n') => self.at += 1,
                    Some(next @ ('"' | '\\' | '$' | '`')) => {
                        self.at += 1;
                        self.push(next);
                    }
                    _ => {
                        self.push('\\');
                    }
                },
                '$' => self.dollar(),
                '`' => self.ticks(),
                c => {
                    self.push(c);
                }
            }
        }
        self.found.open = true;
    }

    /// After a `$`.
    pub(super) fn dollar(&mut self) {
        match self.peek(0) {
            Some('(') => {
                self.at += 1;
                self.substitution();
            }
            Some('{') => {
                self.at += 1;
                let end = closing(&self.chars, self.at, '{', '}');
                let inner = self.taken(end);
                self.found.inner.extend(Scan::quoted(&inner).inner);
                self.expansion(&format!("${{{inner}}}"));
            }
            Some(c) if c.is_alphanumeric() || "_@*#?$!-'\"".contains(c) => self.expansion("$"),
            _ => {
                self.push('$');
            }
        }
    }

    /// After `$(`, `<(` or `>(`.
    pub(super) fn substitution(&mut self) {
        let end = closing(&self.chars, self.at, '(', ')');
        let inner = self.taken(end);
        let signs: Vec<char> = inner.chars().collect();
        let whole =
            signs.first() == Some(&'(') && closing(&signs, 1, '(', ')') == Some(signs.len() - 1);
        if whole {
            // Arithmetic runs nothing but the substitutions in it.
            self.found.inner.extend(Scan::quoted(&inner).inner);
        }
        if !whole || is_no_sum(&inner) {
            self.found.inner.push(inner.clone());
        }
        self.expansion(&format!("$({inner})"));
    }

    /// After a backtick.
    pub(super) fn ticks(&mut self) {
        let mut inner = String::new();
        loop {
            let Some(c) = self.peek(0) else {
                self.found.open = true;
                break;
            };
            self.at += 1;
            match (c, self.peek(0)) {
                ('`', _) => break,
                ('\\', Some(next @ ('`' | '\\' | '$'))) => {
                    self.at += 1;
                    inner.push(next);
                }
                _ => inner.push(c),
            }
        }
        self.expansion(&format!("`{inner}`"));
        self.found.inner.push(inner);
    }

    pub(super) fn expansion(&mut self, text: &str) {
        let word = self.word();
        word.text.push_str(text);
        word.expands = true;
    }

    /// The text up to a closing bracket, and behind it.
    pub(super) fn taken(&mut self, end: Option<usize>) -> String {
        self.found.open |= end.is_none();
        let end = end.unwrap_or(self.chars.len());
        let inner = self.chars[self.at..end].iter().collect();
        self.at = (end + 1).min(self.chars.len());
        inner
    }
}

/// Two words without a sign between them: no shell can take that for arithmetic.
fn is_no_sum(text: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .windows(2)
        .any(|pair| pair[0].ends_with(name) && pair[1].starts_with(name))
}

/// Where the bracket closes that was opened before `at`.
fn closing(chars: &[char], at: usize, open: char, close: char) -> Option<usize> {
    let mut depth = 1;
    let mut at = at;
    let mut quote: Option<char> = None;
    while let Some(&c) = chars.get(at) {
        match (c, quote) {
            ('\\', None | Some('"')) => at += 1,
            ('$', Some('"')) if chars.get(at + 1) == Some(&'(') => {
                at = closing(chars, at + 2, '(', ')')?;
            }
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            (_, Some(_)) => {}
            (c, None) if c == open => depth += 1,
            (c, None) if c == close => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}
