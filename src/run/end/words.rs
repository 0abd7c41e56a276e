//! A report as a person or a model reads it.

use serde_json::Value;

use crate::journal::{Dropped, Loss, Side};

/// A worker's report as text: summary, findings, open questions, notes.
pub(in crate::run) fn report(report: &Value) -> String {
    let mut text = report["summary"]
        .as_str()
        .unwrap_or_default()
        .trim()
        .to_owned();
    for (key, title) in [
        ("findings", "Findings"),
        ("open_questions", "Open questions"),
        ("notes", "Notes"),
    ] {
        let items = report[key]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
        if !items.is_empty() {
            text.push_str(&format!("\n\n{title}:"));
            items
                .iter()
                .for_each(|item| text.push_str(&format!("\n- {item}")));
        }
    }
    text
}

/// What a resolution dropped, a line each.
pub(in crate::run) fn dropped(dropped: &Dropped) -> Vec<String> {
    let side = match dropped.side {
        Side::Ours => "side ours",
        Side::Theirs => "side theirs",
        Side::Both => "both sides",
    };
    let path = &dropped.path;
    match dropped.what {
        Loss::Version => vec![format!("{path}: the whole version of {side}")],
        Loss::Deletion => vec![format!("{path}: its removal by {side}")],
        Loss::Lines => {
            let lines = dropped.lines.iter();
            lines
                .map(|line| format!("{path}: {line}  ({side})"))
                .collect()
        }
    }
}

/// What Wharf itself found of a merger's choices; empty when it kept both sides and touched no more.
pub(in crate::run) fn choices(lost: &[Dropped], beyond: &[String]) -> String {
    let mut text = String::new();
    if !lost.is_empty() {
        text.push_str("\n\nGone from the resolution, as Wharf found it:");
        let lines = lost.iter().flat_map(dropped);
        lines.for_each(|line| text.push_str(&format!("\n- {line}")));
    }
    if !beyond.is_empty() {
        let paths = beyond.join(", ");
        text.push_str(&format!(
            "\n\nChanged beyond the files in conflict: {paths}"
        ));
    }
    text
}

/// The first of many, and how many more there are.
pub(in crate::run) fn few(all: &[impl ToString], limit: usize, between: &str) -> String {
    let named: Vec<String> = all.iter().take(limit).map(ToString::to_string).collect();
    let more = match all.len().saturating_sub(limit) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(between) + &more
}

/// `read_file ×2, grep`: each name once, in the order of first sight.
pub(in crate::run) fn times<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut seen: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match seen.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => seen.push((name, 1)),
        }
    }
    let words = seen.iter().map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{name} ×{count}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_first_are_named_and_the_others_counted() {
        assert_eq!(few(&["a", "b"], 2, ", "), "a, b");
        assert_eq!(few(&["a", "b", "c"], 2, "; "), "a; b and 1 more");
        assert_eq!(few(&[""; 0], 2, ", "), "");
    }

    #[test]
    fn a_turn_names_each_tool_once_with_its_count() {
        let names = ["read_file", "grep", "read_file"];
        assert_eq!(times(names.into_iter()), "read_file ×2, grep");
        assert_eq!(times([].into_iter()), "");
    }
}
