//! Whether a report says anything: pure. One that does not is asked for once more.

use serde_json::Value;

/// Characters that a report may have, all its texts together.
pub const LARGEST: usize = 24_000;

/// Whole summaries that say nothing, in small letters and without marks around them.
const HOLLOW: [&str; 28] = [
    "all done",
    "as above",
    "as described above",
    "as discussed",
    "as requested",
    "complete",
    "completed",
    "done",
    "finished",
    "n/a",
    "na",
    "none",
    "ok",
    "okay",
    "placeholder",
    "report",
    "same as above",
    "see above",
    "see conversation",
    "see my previous message",
    "see previous message",
    "see the above",
    "success",
    "summary",
    "task complete",
    "task completed",
    "tbd",
    "todo",
];

/// What is wrong with a report, in words that follow \"your report\"; None when nothing is.
pub fn fault(report: &Value) -> Option<String> {
    let summary = report["summary"].as_str().unwrap_or_default();
    let bare = summary
        .trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase();
    if bare.is_empty() {
        return Some("is empty: its summary has no word".to_owned());
    }
    let words: Vec<&str> = bare.split_whitespace().collect();
    if HOLLOW.contains(&words.join(" ").as_str()) {
        return Some(format!(
            "says nothing: its summary is \"{}\", and whoever reads it has seen nothing of your work",
            summary.trim()
        ));
    }
    let size = size(report);
    (size > LARGEST).then(|| {
        format!(
            "is too long: {size} characters, and at most {LARGEST} can be read; name files instead of \
             quoting them"
        )
    })
}

/// Characters of all its texts.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_that_says_nothing_is_known() {
        for summary in [
            "",
            " \n",
            "...",
            "Done.",
            "**see above**",
            "See  Above",
            "N/A",
            "–",
        ] {
            let found = fault(&json!({"status": "done", "summary": summary}));
            assert!(found.is_some(), "{summary:?}");
        }
        for summary in [
            "s",
            "made it",
            "nothing to do",
            "Done: a.txt holds x.",
            "не готово",
        ] {
            let found = fault(&json!({"status": "done", "summary": summary}));
            assert_eq!(found, None, "{summary:?}");
        }
    }

    #[test]
    fn every_text_of_a_report_counts_to_its_size() {
        let findings = vec!["f".repeat(1_000); 24];
        let mut report = json!({"status": "done", "summary": "", "findings": findings});
        report["summary"] = json!("x".repeat(4));
        let found = fault(&report).unwrap();
        assert!(found.contains("too long: 24008 characters"), "{found}");
        report["findings"] = json!(vec!["ü".repeat(1_000); 23]);
        assert_eq!(fault(&report), None);
    }
}
