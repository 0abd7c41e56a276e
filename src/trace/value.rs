//! Attribute values: plain on our side, with secrets masked and length bounded on the other.

use opentelemetry::{Array, KeyValue, StringValue};

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Texts(Vec<String>),
}

/// Attributes of a span or of an event.
pub type Attributes = Vec<(&'static str, Value)>;

/// Bytes of a text that a backend certainly keeps; Tempo truncates above 2 KiB by default.
const TEXT_LIMIT: usize = 2_000;

/// Shorter values would mask ordinary words.
const SECRET_MIN: usize = 6;

/// What stands where a secret stood.
const MASK: &str = "[masked]";

/// Values that must not leave the process, longest first so that none hides inside another.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values
            .into_iter()
            .filter(|value| value.len() >= SECRET_MIN)
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values)
    }

    /// The text with every secret masked, cut to its limit.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), MASK);
            }
        }
        clip(text, TEXT_LIMIT)
    }

    /// A status message: one short line.
    pub(super) fn line(&self, text: &str) -> String {
        let first = text.lines().next().unwrap_or_default();
        let plain: String = self
            .clean(first)
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        clip(plain, 300)
    }

    pub(super) fn attribute(&self, key: &'static str, value: &Value) -> KeyValue {
        let value: opentelemetry::Value = match value {
            Value::Text(text) => self.clean(text).into(),
            Value::Int(number) => (*number).into(),
            Value::Float(number) => (*number).into(),
            Value::Bool(yes) => (*yes).into(),
            Value::Texts(texts) => {
                let texts: Vec<StringValue> =
                    texts.iter().map(|text| self.clean(text).into()).collect();
                opentelemetry::Value::Array(Array::String(texts))
            }
        };
        KeyValue::new(key, value)
    }
}

fn clip(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let mut end = limit;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_every_secret_the_longest_first() {
        let secrets = Secrets::new(["sk-abc".to_owned(), "sk-abcdef".to_owned(), "x".to_owned()]);
        assert_eq!(
            secrets.clean("key sk-abcdef and sk-abc x"),
            "key [masked] and [masked] x"
        );
    }

    #[test]
    fn cuts_on_a_character() {
        let text = "é".repeat(2_000);
        let cut = Secrets::default().clean(&text);
        assert_eq!(cut.chars().count(), 1_001);
        assert!(cut.ends_with("é…"));
    }

    #[test]
    fn a_message_is_one_plain_line() {
        let message = Secrets::default().line("a\u{1b}[31m red\nand more");
        assert_eq!(message, "a[31m red");
    }
}
