//! Figures that a server's refusal holds: the window it has, the longest reply it writes. Pure.

use super::{Error, StatusKind};

/// Words right before the tokens of a window, in lower case.
const WINDOW: [&str; 10] = [
    "maximum context length",
    "maximum prompt length",
    "maximum number of tokens allowed",
    "tokens allowed",
    "available context size",
    "context size",
    "context window",
    "context length",
    "context limit",
    "max_model_len",
];
/// What may stand between those words and their figure.
const BETWEEN: [&str; 10] = [
    "", "is", "is only", "of", "of only", "of up to", ":", "=", "size of", "size is",
];
/// Words that make a refusal one of the reply's limit.
const REPLY: [&str; 4] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "completion tokens",
];
const TOO_LARGE: [&str; 6] = [
    "too large",
    "at most",
    "maximum",
    "less than or equal",
    "range",
    "exceed",
];
/// Smaller figures are no window and no limit of a reply.
const LEAST: u64 = 256;
/// Larger ones are no window of any model.
const MOST: u64 = 100_000_000;

impl Error {
    /// The tokens that the server says a request and its reply may hold; None where it does not say.
    pub fn window(&self) -> Option<u64> {
        match self {
            Self::Status {
                kind: StatusKind::ContextOverflow,
                message,
                ..
            } => window(&message.to_lowercase()),
            _ => None,
        }
    }

    /// The longest reply that the server says it writes, below the `asked` one. None where it says none.
    pub(super) fn reply_limit(&self, asked: u64) -> Option<u64> {
        match self {
            Self::Status {
                status: 400 | 422,
                kind: StatusKind::Refused,
                message,
                ..
            } => reply_limit(&message.to_lowercase(), asked),
            _ => None,
        }
    }
}

fn window(text: &str) -> Option<u64> {
    let compared = text.match_indices("> ").map(|(at, mark)| at + mark.len());
    let named = WINDOW.iter().flat_map(|words| {
        let each = text.match_indices(words);
        each.map(|(at, words)| at + words.len())
    });
    let figure = |from: usize| {
        let digits = text[from..].find(|c: char| c.is_ascii_digit())?;
        let between = text[from..from + digits].trim_matches([' ', '(', '`', '\'']);
        BETWEEN
            .contains(&between)
            .then(|| number(&text[from + digits..]))?
    };
    compared
        .chain(named)
        .filter_map(figure)
        .find(|figure| (LEAST..=MOST).contains(figure))
}

fn reply_limit(text: &str, asked: u64) -> Option<u64> {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if !says(&REPLY) || !says(&TOO_LARGE) {
        return None;
    }
    let starts = text.char_indices().filter(|&(at, c)| {
        let before = text[..at].chars().next_back();
        // A figure within a name, such as that of a model, is none.
        let within = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ',');
        c.is_ascii_digit() && !before.is_some_and(within)
    });
    starts
        .filter_map(|(at, _)| number(&text[at..]))
        .filter(|figure| (LEAST..asked).contains(figure))
        .max()
}

/// The whole number at the beginning of a text, with commas between its thousands or without.
fn number(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != ',')
        .unwrap_or(text.len());
    text[..end].replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_in_each_server_s_words() {
        let table = [
            (
                "this model's maximum context length is 8192 tokens. however, you requested 0 output tokens and your prompt contains at least 8193 input tokens",
                Some(8192),
            ),
            (
                "prompt is too long: 210000 tokens > 200000 maximum",
                Some(200_000),
            ),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
                Some(200_000),
            ),
            (
                "request (124071 tokens) exceeds the available context size (123904 tokens)",
                Some(123_904),
            ),
            (
                "requested tokens (5000) exceed context window of 4096",
                Some(4096),
            ),
            (
                "the input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
            ),
            (
                "this model's maximum prompt length is 131,072 but the request contains 200000 tokens",
                Some(131_072),
            ),
            (
                "prompt too long; exceeded max context length by 1000 tokens",
                None,
            ),
            ("your input exceeds the context window of this model", None),
            ("maximum context length is 12 tokens", None),
            (
                "maximum context length is 99999999999999999999 tokens",
                None,
            ),
            ("é> ", None),
            ("", None),
        ];
        for (text, wanted) in table {
            assert_eq!(window(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_reply_s_limit_is_read_and_never_raised() {
        let table = [
            (
                "max_tokens is too large: 8000. this model supports at most 4096 completion tokens, whereas you provided 8000.",
                Some(4096),
            ),
            (
                "max_tokens: 8000 > 4096, which is the maximum allowed number of output tokens for claude-3-haiku-20240307",
                Some(4096),
            ),
            (
                "`max_tokens` must be less than or equal to `4,096`, the maximum value for `max_tokens`",
                Some(4096),
            ),
            (
                "invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
                None,
            ),
            (
                "unsupported parameter: 'max_tokens' is not supported with this model. use 'max_completion_tokens' instead.",
                None,
            ),
            ("the maximum is 4096", None),
            ("max_tokens: at most for model-2024", None),
        ];
        for (text, wanted) in table {
            assert_eq!(reply_limit(text, 8000), wanted, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_reading(text in "\\PC{0,80}", at in 0usize..10) {
            let _ = window(&format!("{text}{}{text}> {text}", WINDOW[at]));
            let _ = reply_limit(&format!("max_tokens at most {text}"), 8000);
        }
    }
}
