//! What is wrong with a plan file, where, and what to write instead.

use std::fmt;

/// A fault of a plan file: always with a place and a hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Rendered(self))]
pub struct Error {
    /// The file's name as the caller gave it.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
    pub hint: String,
    /// The source line, control characters neutralised; empty when the file has no such line.
    pub snippet: String,
}

/// The longest piece of a source line that is shown.
const SNIPPET: usize = 120;

/// The longest message or hint.
const MESSAGE: usize = 600;

impl Error {
    /// A fault at a place of `text`.
    pub(super) fn at(
        (file, text): (&str, &str),
        (line, column): (usize, usize),
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let line = line.max(1);
        let source = text.lines().nth(line - 1).unwrap_or_default();
        Self {
            file: file.to_owned(),
            line,
            column: column.max(1),
            message: brief(&message.into()),
            hint: brief(&hint.into()),
            snippet: visible(source.trim_end()),
        }
    }
}

struct Rendered<'a>(&'a Error);

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error {
            file,
            line,
            column,
            message,
            hint,
            snippet,
        } = self.0;
        write!(f, "{file}:{line}:{column}: {message}")?;
        if !snippet.is_empty() {
            let (shown, caret) = window(snippet, column - 1);
            let gutter = " ".repeat(line.to_string().len());
            write!(f, "\n {line} | {shown}")?;
            write!(f, "\n {gutter} | {}^", " ".repeat(caret))?;
        }
        if !hint.is_empty() {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// The piece of a line around a column, and the column in that piece.
fn window(line: &str, column: usize) -> (String, usize) {
    let skip = column.saturating_sub(SNIPPET * 2 / 3);
    let shown = line.chars().skip(skip).take(SNIPPET).collect();
    (shown, column - skip)
}

/// Text for a terminal: a control character becomes a space (one for one, so that carets fit).
fn visible(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

/// One line of bearable length: a message may quote what stood in the file.
fn brief(text: &str) -> String {
    match text.char_indices().nth(MESSAGE) {
        Some((cut, _)) => format!("{}…", visible(&text[..cut])),
        None => visible(text),
    }
}

/// The known word nearest to what was written, when it is near enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.trim().to_lowercase();
    let limit = 1 + lower.chars().count() / 4;
    known
        .into_iter()
        .map(|name| (distance(&lower, &name.to_lowercase()), name))
        .filter(|(far, _)| *far <= limit)
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

/// A hint that names the nearest known word, or all of them when none is near.
pub(super) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "there are none to choose from".to_owned(),
        None => format!("known: {}", known.join(", ")),
    }
}

/// Edits (insert, remove, replace, swap of neighbours) from one word to another.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut previous = None;
    for (i, x) in a.chars().take(64).enumerate() {
        let mut next = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let mut cost = (row[j] + usize::from(x != y)).min(row[j + 1] + 1);
            cost = cost.min(next[j] + 1);
            if j > 0 && previous == Some(y) && x == b[j - 1] {
                cost = cost.min(before[j - 1] + 1);
            }
            next.push(cost);
        }
        previous = Some(x);
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits_and_swaps() {
        assert_eq!(distance("needs", "needs"), 0);
        assert_eq!(distance("need", "needs"), 1);
        assert_eq!(distance("nedes", "needs"), 1);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn names_a_near_word_only() {
        assert_eq!(nearest("promt", ["prompt", "model"]), Some("prompt"));
        assert_eq!(nearest("Bash", ["bash"]), Some("bash"));
        assert_eq!(nearest("zzz", ["prompt", "model"]), None);
        assert_eq!(suggest("zzz", ["a", "b"]), "known: a, b");
    }

    #[test]
    fn renders_place_line_caret_and_hint() {
        let error = Error::at(
            ("x.yaml", "a: 1\nbad: \u{1b}[2J\n"),
            (2, 6),
            "odd",
            "write 1",
        );
        assert_eq!(
            error.to_string(),
            "x.yaml:2:6: odd\n 2 | bad:  [2J\n   |      ^\nhint: write 1"
        );
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let error = Error::at(("x", &text), (1, 501), "m", "h");
        let shown = error.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        let caret = lines[2].find('^').unwrap();
        assert_eq!(&lines[1][caret..=caret], "X");
        assert!(lines[1].len() < 140);
    }
}
