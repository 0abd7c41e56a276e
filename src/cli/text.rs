//! Text for a person's terminal: control characters neutralised, lengths cut, figures written out.

use std::time::Duration;

/// Replaces every character that could move the cursor, hide or reorder text; keeps line breaks.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => '\n',
            '\t' => ' ',
            c if is_unsafe(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// `plain` on one line, at most `limit` characters.
pub fn line(text: &str, limit: usize) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let safe = plain(&joined);
    if safe.chars().count() <= limit {
        return safe;
    }
    let mut cut: String = safe.chars().take(limit.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// `plain`, each line behind `margin`, at most `limit` lines.
pub fn block(text: &str, margin: &str, limit: usize) -> String {
    let safe = plain(text.trim());
    let lines: Vec<&str> = safe.lines().collect();
    let mut out = String::new();
    for line in lines.iter().take(limit) {
        out.push_str(margin);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    if lines.len() > limit {
        out.push_str(&format!("{margin}… {} more lines\n", lines.len() - limit));
    }
    out
}

/// `7s`, `3m12s`, `1h04m`.
pub fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `elapsed` of seconds as the journal has them; nonsense is shown as nothing.
pub fn seconds(seconds: f64) -> String {
    if (0.0..10.0).contains(&seconds) {
        return format!("{seconds:.1}s");
    }
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "?".to_owned(), elapsed)
}

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `950`, `12.3k`, `4.1M` tokens, for narrow places.
pub fn short(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

/// `$0.42`; small sums keep four places; an unknown price is said to be unknown.
pub fn cost(usd: Option<f64>) -> String {
    match usd {
        None => "cost unknown".to_owned(),
        Some(usd) if usd != 0.0 && usd < 0.1 => format!("${usd:.4}"),
        Some(usd) => format!("${usd:.2}"),
    }
}

/// `cost` at the end of a list; what costs nothing is left out.
pub fn and_cost(usd: Option<f64>) -> String {
    match usd {
        Some(0.0) => String::new(),
        usd => format!(", {}", cost(usd)),
    }
}

/// Where a run's answers came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    Asked,
    /// All of them from a recording: their tokens were used then, and nobody is paid for them now.
    Recorded,
}

impl Answers {
    /// Of these models, as results name them.
    pub fn of<M: AsRef<str>>(models: &[M]) -> Self {
        let recorded = |model: &M| model.as_ref().starts_with("replay:");
        if !models.is_empty() && models.iter().all(recorded) {
            Self::Recorded
        } else {
            Self::Asked
        }
    }

    /// `12.3k tokens, $0.42`, or `12.3k tokens recorded`.
    pub fn spent(self, tokens: &str, usd: Option<f64>) -> String {
        match (self, usd.filter(|usd| *usd != 0.0)) {
            (Self::Recorded, None) => format!("{tokens} tokens recorded"),
            (Self::Recorded, priced) => format!("{tokens} tokens recorded, {}", cost(priced)),
            (Self::Asked, _) => format!("{tokens} tokens, {}", cost(usd)),
        }
    }

    /// `cost` where it stands alone.
    pub fn cost(self, usd: Option<f64>) -> String {
        match (self, usd) {
            (Self::Recorded, None | Some(0.0)) => "recorded".to_owned(),
            _ => cost(usd),
        }
    }
}

/// `4.1 MB`.
pub fn bytes(number: u64) -> String {
    match number {
        0..1_000 => format!("{number} B"),
        1_000..1_000_000 => format!("{:.1} kB", number as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", number as f64 / 1e6),
        _ => format!("{:.1} GB", number as f64 / 1e9),
    }
}

/// `1 file`, `2 files`.
pub fn plural(number: usize, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {one}{ending}")
}

/// Of `known`, those that look like `word`, nearest first.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut ranked: Vec<(usize, &str)> = known
        .map(|name| (distance(word, name), name))
        .filter(|(far, name)| *far <= word.len().max(3) / 3 || name.contains(word))
        .collect();
    ranked.sort();
    ranked.into_iter().map(|(_, name)| name).collect()
}

fn is_unsafe(c: char) -> bool {
    let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hides = matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
    );
    c.is_control() || reorders || hides
}

/// Edits that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_an_agent_writes_moves_the_cursor_or_reorders_text() {
        let nasty = "a\u{1b}]0;x\u{7}\u{9b}2J\r\u{202e}b\u{200b}\tc\nd";
        let safe = plain(nasty);
        assert!(!safe.chars().any(|c| c != '\n' && is_unsafe(c)));
        assert_eq!(safe, "a�]0;x��2J��b� c\nd");
        assert_eq!(line("one\ntwo  three\u{1b}[2K", 40), "one two three�[2K");
        assert_eq!(line("abcdef", 4), "abc…");
    }

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(elapsed(Duration::from_secs(192)), "3m12s");
        assert_eq!(elapsed(Duration::from_secs(3_840)), "1h04m");
        assert_eq!(seconds(f64::NAN), "?");
        assert_eq!(cost(Some(0.0)), "$0.00");
        assert_eq!(cost(Some(0.0123)), "$0.0123");
        assert_eq!(cost(None), "cost unknown");
        assert_eq!(
            (and_cost(Some(0.0)), and_cost(None)),
            (String::new(), ", cost unknown".into())
        );
        assert_eq!(short(12_340), "12.3k");
    }

    #[test]
    fn what_was_recorded_costs_nothing_and_says_so() {
        let recorded = Answers::of(&["replay:a", "replay:b"]);
        assert_eq!(recorded.spent("7", Some(0.0)), "7 tokens recorded");
        assert_eq!(recorded.spent("7", Some(1.0)), "7 tokens recorded, $1.00");
        assert_eq!(recorded.cost(None), "recorded");
        let asked = Answers::of(&["replay:a", "openai/x"]);
        assert_eq!(asked.spent("7", None), "7 tokens, cost unknown");
        assert_eq!(asked.cost(Some(0.0)), "$0.00");
        assert_eq!(Answers::of::<&str>(&[]), Answers::Asked);
    }

    #[test]
    fn near_names_are_found() {
        let known = ["20260101-a", "20260102-b", "nightly"];
        assert_eq!(nearest("nigthly", known.into_iter()), ["nightly"]);
        assert_eq!(nearest("0102", known.into_iter()), ["20260102-b"]);
        assert!(nearest("zzzzzz", known.into_iter()).is_empty());
    }

    #[test]
    fn a_block_is_cut_and_says_so() {
        assert_eq!(block("a\nb\nc", "  ", 2), "  a\n  b\n  … 1 more lines\n");
    }
}
