//! Paths, durations and reports as a person or a model reads them.

use std::time::Duration;

use serde_json::Value;

/// A path of bytes, for display: control characters and bad UTF-8 are shown, not sent to a terminal.
pub(super) fn path(bytes: &[u8]) -> String {
    let lossy = String::from_utf8_lossy(bytes);
    if lossy.chars().any(char::is_control) {
        lossy.escape_debug().collect()
    } else {
        lossy.into_owned()
    }
}

/// `90s`, `5m`, `2h`, the largest unit that says it whole.
pub(super) fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        s if s % 3600 == 0 => format!("{} h", s / 3600),
        s if s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// A worker's report as text: summary, findings, open questions, notes.
pub(super) fn report(report: &Value) -> String {
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

/// `read_file ×2, grep`: each name once, in the order of first sight.
pub(super) fn times<'a>(names: impl Iterator<Item = &'a str>) -> String {
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
    fn a_turn_names_each_tool_once_with_its_count() {
        let names = ["read_file", "grep", "read_file"];
        assert_eq!(times(names.into_iter()), "read_file ×2, grep");
        assert_eq!(times([].into_iter()), "");
    }
}
