//! What a server's refusal means: its status, its error object, or the page it sent instead.

use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use serde_json::Value;

use super::{Error, StatusKind, wait};

/// Characters of an error's own text that are shown.
const TEXT_SHOWN: usize = 600;
/// Characters of a page that is no error object.
const PAGE_SHOWN: usize = 200;

/// The error of a whole response that is not the answer: another status, or a page inside a 200.
pub fn refusal(url: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> Error {
    let text = String::from_utf8_lossy(body);
    let (words, message) = match serde_json::from_str::<Value>(&text) {
        Ok(value) => {
            let told = Told::of(&value);
            (told.words(), told.shown())
        }
        Err(_) => (text.to_lowercase(), page(headers, &text)),
    };
    Error::Status {
        url: url.to_owned(),
        status,
        message,
        kind: kind(status, &words),
        retry_after: wait::asked(headers, jiff::Timestamp::now()),
    }
}

/// The error object inside a 200, classified by its type or code; None when `value` holds none.
pub fn inside(url: &str, value: &Value) -> Option<Error> {
    let is_error = value.get("error").is_some_and(|error| !error.is_null())
        || ["object", "type"].iter().any(|&key| value[key] == "error");
    if !is_error {
        return None;
    }
    let told = Told::of(value);
    let words = told.words();
    let status = told.status();
    Some(Error::Status {
        url: url.to_owned(),
        status,
        message: told.shown(),
        kind: kind(status, &words),
        retry_after: None,
    })
}

/// Control characters become spaces, and only the first `most` characters stay.
pub fn tame(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut out: String = text.trim().chars().take(most).map(plain).collect();
    if text.trim().chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

/// The parts of an error object, whichever server's shape it has.
struct Told {
    message: String,
    class: String,
    code: String,
}

impl Told {
    fn of(value: &Value) -> Self {
        let value = value.get(0).unwrap_or(value);
        let inner = match value.get("error") {
            Some(inner) if !inner.is_null() => inner,
            _ => value,
        };
        let text = |key: &str| match &inner[key] {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let message = match inner {
            Value::String(text) => text.clone(),
            _ => ["message", "detail", "error_description"]
                .iter()
                .map(|key| text(key))
                .find(|text| !text.is_empty())
                .unwrap_or_else(|| inner.to_string()),
        };
        Self {
            message,
            class: text("type"),
            code: text("code"),
        }
    }

    fn words(&self) -> String {
        format!("{} {} {}", self.class, self.code, self.message).to_lowercase()
    }

    fn shown(&self) -> String {
        let label = if self.code.is_empty() {
            &self.class
        } else {
            &self.code
        };
        let message = tame(&self.message, TEXT_SHOWN);
        if label.is_empty() || label == "error" || message.contains(label.as_str()) {
            message
        } else {
            format!("{message} ({})", tame(label, PAGE_SHOWN))
        }
    }

    /// The status this error would have had as a response of its own; 200 when it does not say.
    fn status(&self) -> u16 {
        if let Ok(code @ 400..=599) = self.code.parse() {
            return code;
        }
        match self.class.as_str() {
            "invalid_request_error" => 400,
            "authentication_error" => 401,
            "billing_error" => 402,
            "permission_error" => 403,
            "not_found_error" => 404,
            "request_too_large" => 413,
            "rate_limit_error" => 429,
            "api_error" | "server_error" | "internal_server_error" => 500,
            "timeout_error" => 504,
            "overloaded_error" => 529,
            _ => 200,
        }
    }
}

fn page(headers: &HeaderMap, text: &str) -> String {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = header(CONTENT_TYPE).unwrap_or("no content type");
    let kind = tame(kind.split(';').next().unwrap_or(kind), PAGE_SHOWN);
    let mut out = if text.trim().is_empty() {
        format!("an empty body ({kind})")
    } else {
        format!("{} ({kind})", tame(text, PAGE_SHOWN))
    };
    if let Some(to) = header(LOCATION) {
        let to = to.split(['?', '#']).next().unwrap_or(to);
        out = format!("a redirect to {}; {out}", tame(to, PAGE_SHOWN));
    }
    out
}

/// The class of an error from its status and its words in lower case.
fn kind(status: u16, words: &str) -> StatusKind {
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
    if status == 413 || (!matches!(status, 401 | 403 | 429) && is_overflow(words)) {
        return StatusKind::ContextOverflow;
    }
    if status == 402 || says(QUOTA) || (says(&["exceeded your current quota"]) && !says(SHORT)) {
        return StatusKind::Quota;
    }
    match status {
        401 | 403 => StatusKind::Key,
        429 | 529 => StatusKind::Limited,
        408 | 409 | 425 | 500..=599 => StatusKind::Server,
        // An error told inside a 200 without a class: only its words are left.
        200 if says(&["invalid_api_key", "incorrect api key", "unauthorized"]) => StatusKind::Key,
        200 if says(&[
            "overloaded",
            "rate limit",
            "rate_limit",
            "too many requests",
        ]) =>
        {
            StatusKind::Limited
        }
        200 if says(&["internal", "server", "unavailable", "timeout", "timed out"])
            && !says(&["<html", "<!doctype"]) =>
        {
            StatusKind::Server
        }
        _ => StatusKind::Refused,
    }
}

const QUOTA: &[&str] = &[
    "insufficient_quota",
    "insufficient quota",
    "insufficient credits",
    "insufficient balance",
    "credit balance",
    "billing_hard_limit",
    "billing_not_active",
    "payment required",
];

/// Words that say a used-up quota is one of minutes and comes back by itself.
const SHORT: &[&str] = &["per minute", "perminute", "retry in"];

/// Wordings that always mean: too long for the model.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "context_window_exceeded",
    "contextwindowexceeded",
    "exceed_context_size",
    "model_max_prompt_tokens_exceeded",
    "request_too_large",
    "prompt is too long",
    "prompt too long",
    "prompt token count",
    "input is too long",
    "input token count",
    "input length should be",
    "maximum context length",
    "maximum prompt length",
    "exceeds the maximum number of tokens",
    "exceed max message tokens",
    "reduce the length of the messages",
    "reduce the length of the input",
];

fn is_overflow(words: &str) -> bool {
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
    says(OVERFLOW)
        || (says(&[
            "context window",
            "context length",
            "context size",
            "context limit",
        ]) && says(&[
            "exceed",
            "maximum",
            "too long",
            "too large",
            "larger than",
            "longer than",
        ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> (StatusKind, String) {
        match refusal("http://h/v1", status, &HeaderMap::new(), body.as_bytes()) {
            Error::Status { kind, message, .. } => (kind, message),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn overflow_is_known_in_every_wording() {
        let bodies = [
            (
                400,
                r#"{"error":{"message":"x","code":"context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 8192 tokens. However, you requested 0 output tokens and your prompt contains at least 8193 input tokens","code":400}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"request (124071 tokens) exceeds the available context size (123904 tokens)"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Requested tokens (5000) exceed context window of 4096"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"litellm.ContextWindowExceededError: mock","code":"400"}}"#,
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."}}]"#,
            ),
            (
                500,
                r#"{"error":{"message":"the prompt is too long for the context window, maximum 8192"}}"#,
            ),
            (413, "<html><body>Request Entity Too Large</body></html>"),
        ];
        for (status, body) in bodies {
            assert_eq!(of(status, body).0, StatusKind::ContextOverflow, "{body}");
        }
    }

    #[test]
    fn kinds_by_status_and_words() {
        use StatusKind::{Key, Limited, Quota, Refused, Server};
        let table = [
            (
                401,
                r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#,
                Key,
            ),
            (403, "<html>blocked</html>", Key),
            (402, "", Quota),
            (429, r#"{"error":{"type":"insufficient_quota"}}"#, Quota),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota, check your billing"}}"#,
                Quota,
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota. Please retry in 7 s"}}"#,
                Limited,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                Quota,
            ),
            (429, r#"{"error":{"message":"slow down"}}"#, Limited),
            (529, "<html>", Limited),
            (408, "", Server),
            (500, "", Server),
            (502, "<html>Bad gateway</html>", Server),
            (503, r#"{"error":"busy"}"#, Server),
            (400, r#"{"error":{"message":"unknown field"}}"#, Refused),
            (404, r#"{"detail":"Not Found"}"#, Refused),
            (302, "", Refused),
            (200, "<html>Please log in to our server</html>", Refused),
        ];
        for (status, body, expected) in table {
            assert_eq!(of(status, body).0, expected, "{status} {body}");
        }
    }

    #[test]
    fn pages_are_shown_short_and_tame() {
        let (_, message) = of(502, &format!("<html>\x1b[31m\r\n{}", "é".repeat(500)));
        assert!(message.starts_with("<html> [31m"), "{message}");
        assert!(message.chars().count() < 240 && !message.contains('\x1b'));
        let mut headers = HeaderMap::new();
        headers.insert(
            LOCATION,
            "https://login.example/in?token=s3cret".parse().unwrap(),
        );
        let text = refusal("http://h/v1", 302, &headers, b"").to_string();
        assert!(text.contains("redirect to https://login.example/in;") && !text.contains("s3cret"));
    }

    #[test]
    fn errors_inside_a_200() {
        let kind_of = |text: &str| match inside("u", &serde_json::from_str(text).unwrap()) {
            Some(Error::Status { kind, status, .. }) => Some((status, kind)),
            _ => None,
        };
        use StatusKind::{Key, Limited, Refused, Server};
        let table = [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Some((529, Limited)),
            ),
            (
                r#"{"error":{"message":"x","code":429}}"#,
                Some((429, Limited)),
            ),
            (
                r#"{"error":{"message":"x","code":"429"}}"#,
                Some((429, Limited)),
            ),
            (
                r#"{"error":{"type":"api_error","message":"x"}}"#,
                Some((500, Server)),
            ),
            (r#"{"error":"internal failure"}"#, Some((200, Server))),
            (
                r#"{"error":{"type":"authentication_error","message":"x"}}"#,
                Some((401, Key)),
            ),
            (
                r#"{"object":"error","message":"no","code":400}"#,
                Some((400, Refused)),
            ),
            (r#"{"error":null,"choices":[]}"#, None),
            (r#"{"type":"ping"}"#, None),
        ];
        for (text, expected) in table {
            assert_eq!(kind_of(text), expected, "{text}");
        }
    }
}
