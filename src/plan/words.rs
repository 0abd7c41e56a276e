//! What the YAML reader complains of, in words for an operator.

use serde_saphyr::Error as YamlError;
use serde_saphyr::budget::BudgetBreach;

use super::error::suggest;

/// Keys of the format that this version does not carry out yet.
const LATER: [&str; 4] = ["mcp_servers", "skills", "memory", "trust"];

/// Message and hint for an error at `word`, in the value of the key `owner` where that is known.
pub(super) fn explain(error: &YamlError, word: &str, owner: Option<&str>) -> (String, String) {
    let of = owner
        .map(|path| format!(" of `{path}`"))
        .unwrap_or_default();
    let needed = |wanted: &str| {
        let message = format!("`{word}` is no value{of}");
        (message, format!("write {wanted}"))
    };
    match error {
        YamlError::SerdeUnknownField {
            field, expected, ..
        } => unknown_key(field, expected),
        YamlError::SerdeUnknownVariant {
            variant, expected, ..
        } => (
            format!("`{variant}` is no value{of}"),
            format!("write one of: {}", expected.join(", ")),
        ),
        YamlError::SerdeMissingField { field, .. } => (
            format!("the key `{field}` is missing"),
            format!("add `{field}:` here"),
        ),
        YamlError::DuplicateMappingKey { key, .. } => (
            format!("the key `{}` stands twice", key.as_deref().unwrap_or(word)),
            "keep one of them".to_owned(),
        ),
        YamlError::SerdeInvalidType { expected, .. }
        | YamlError::SerdeInvalidValue { expected, .. } => needed(expected),
        YamlError::InvalidScalar { ty, .. } => needed(scalar(ty)),
        YamlError::InvalidBooleanStrict { .. } => needed("true or false"),
        YamlError::NonFiniteFloat { .. } => needed("a finite number"),
        YamlError::NullIntoString { .. } => needed("text"),
        YamlError::Unexpected { expected, .. } => needed(shape(expected)),
        other => file_fault(other),
    }
}

fn unknown_key(field: &str, known: &[&str]) -> (String, String) {
    if LATER.contains(&field) {
        let message = format!("`{field}` is not supported yet by this version");
        return (
            message,
            "remove the key: it would have no effect".to_owned(),
        );
    }
    let hint = suggest(field, known.iter().copied());
    (format!("unknown key `{field}`"), hint)
}

fn scalar(ty: &str) -> &'static str {
    match ty.as_bytes().first() {
        Some(b'u') => "a whole number, zero or more",
        Some(b'i') => "a whole number",
        Some(b'f') => "a number",
        Some(b'b') => "true or false",
        _ => "plain text",
    }
}

/// What the reader calls an event, as an operator would.
fn shape(expected: &'static str) -> &'static str {
    match expected {
        "sequence start" => "a list: one item a line after `- `, or `[a, b]`",
        "mapping start" => "a map: one key a line, or `{key: value}`",
        "string scalar" => "text, in quotes if it holds `: `",
        other => other,
    }
}

/// Faults of the file as YAML.
fn file_fault(error: &YamlError) -> (String, String) {
    match error {
        YamlError::MultipleDocuments { .. }
        | YamlError::Budget {
            breach: BudgetBreach::Documents { .. },
            ..
        } => (
            "the file holds more than one document".to_owned(),
            "remove the `---` line and what follows it".to_owned(),
        ),
        YamlError::Budget { breach, .. } => (
            format!("the file is too large or too deep to be a plan ({breach:?})"),
            "move long text into a `prompt_file`; write fewer aliases".to_owned(),
        ),
        other => {
            let text = other.to_string();
            let first = text.lines().next().unwrap_or_default();
            let cut = first.find(" at line ").unwrap_or(first.len());
            let said = first[..cut].trim_end_matches([':', ',', '.', ' ']);
            let hint = "check indentation, quotes and brackets around this place";
            (format!("broken YAML: {said}"), hint.to_owned())
        }
    }
}
