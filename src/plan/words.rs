//! What the YAML reader complains of, in words for an operator.

use serde_saphyr::Error as YamlError;
use serde_saphyr::budget::BudgetBreach;

use super::error::suggest;
use super::yaml::LEVELS;

/// Keys of the format that this version does not carry out yet.
const LATER: [&str; 4] = ["mcp_servers", "skills", "memory", "trust"];

/// Begins what is said of an alias whose anchor is not there.
pub(super) const NO_ANCHOR: &str = "an alias names no anchor";

/// An error without what the reader wraps around one that it met while it wrote out an alias; true where
/// it did.
pub(super) fn bare(error: &YamlError) -> (&YamlError, bool) {
    let mut error = error.without_snippet();
    let mut aliased = false;
    while let YamlError::AliasError { error: inner, .. } = error {
        (error, aliased) = (inner.without_snippet(), true);
    }
    (error, aliased)
}

/// True for what the reader finds only when it has read everything, so that its place says nothing.
pub(super) fn is_counted_at_the_end(error: &YamlError) -> bool {
    let breach = match bare(error).0 {
        YamlError::Budget { breach, .. } => breach,
        _ => return false,
    };
    matches!(breach, BudgetBreach::AliasAnchorRatio { .. })
}

/// True when a tab stands where YAML takes none; the reader has no kind of its own for that.
pub(super) fn is_tab(error: &YamlError) -> bool {
    let (error, _) = bare(error);
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let mut words = line.split(|c: char| !c.is_alphanumeric());
    matches!(
        error,
        YamlError::Message { .. } | YamlError::ExternalMessage { .. }
    ) && words.any(|word| word == "tab" || word == "tabs")
}

/// Message and hint for an error at `word`, in the value of the key `owner` where that is known.
pub(super) fn explain(error: &YamlError, word: &str, owner: Option<&str>) -> (String, String) {
    let (error, aliased) = bare(error);
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
        other => file_fault(other, aliased),
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

/// What is said of a file that passes a limit; `aliased` while an alias is written out.
fn too_much(breach: &BudgetBreach, aliased: bool) -> (String, String) {
    let aliases = "write out what they stand for where it is needed";
    let (message, hint) = match breach {
        BudgetBreach::Aliases { aliases: n } => (format!("too many aliases: {n}"), aliases),
        BudgetBreach::AliasAnchorRatio {
            aliases: n,
            anchors,
        } => (
            format!("too many aliases: {n} of {anchors} anchors"),
            aliases,
        ),
        BudgetBreach::Anchors { anchors } => (format!("too many anchors: {anchors}"), aliases),
        BudgetBreach::Depth { depth } => (
            format!("nested too deep: {depth} levels"),
            "a plan has few levels: check brackets and indentation around this place",
        ),
        _ if aliased => (
            "the file is too large to be a plan once its aliases are written out".to_owned(),
            "an alias of aliases grows with each level: write out what they stand for",
        ),
        BudgetBreach::Nodes { nodes } => (
            format!("the file is too large to be a plan: it has {nodes} values or more"),
            "move what is long into a `prompt_file` or `role_files`",
        ),
        other => (
            format!("the file is too large to be a plan ({other:?})"),
            "move long text into a `prompt_file`",
        ),
    };
    (message, hint.to_owned())
}

/// Faults of the file as YAML.
fn file_fault(error: &YamlError, aliased: bool) -> (String, String) {
    if is_tab(error) {
        let message = "broken YAML: a tab stands where only spaces may";
        return (message.to_owned(), "replace the tab by spaces".to_owned());
    }
    match error {
        YamlError::MultipleDocuments { .. }
        | YamlError::Budget {
            breach: BudgetBreach::Documents { .. },
            ..
        } => (
            "the file holds more than one document".to_owned(),
            "remove the `---` line and what follows it".to_owned(),
        ),
        YamlError::Budget { breach, .. } => too_much(breach, aliased),
        YamlError::AliasReplayCounterOverflow { .. }
        | YamlError::AliasReplayLimitExceeded { .. }
        | YamlError::AliasExpansionLimitExceeded { .. }
        | YamlError::AliasReplayStackDepthExceeded { .. } => (
            "the file is too large to be a plan once its aliases are written out".to_owned(),
            "an alias of aliases grows with each level: write out what they stand for".to_owned(),
        ),
        YamlError::RecursiveReferencesRequireWeakTypes { .. } => (
            "an alias stands inside of what it stands for".to_owned(),
            "a value cannot hold itself: write out what is meant".to_owned(),
        ),
        YamlError::UnknownAnchor { .. } => (
            NO_ANCHOR.to_owned(),
            "write `&name` at the value that `*name` stands for, above it".to_owned(),
        ),
        other => {
            let text = other.to_string();
            let first = text.lines().next().unwrap_or_default();
            if first.contains("recursion limit") {
                let message = format!("nested too deep: more than {LEVELS} levels of brackets");
                let hint = "a plan has few levels: check brackets around this place".to_owned();
                return (message, hint);
            }
            let cut = first.find(" at line ").unwrap_or(first.len());
            let said = first[..cut].trim_end_matches([':', ',', '.', ' ']);
            let hint = "check indentation, quotes and brackets around this place";
            (format!("broken YAML: {said}"), hint.to_owned())
        }
    }
}
