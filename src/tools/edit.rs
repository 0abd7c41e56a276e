//! Replacing text in a file: exactly one place unless all are asked for, line endings kept.

use bytes::Bytes;
use serde_json::Value;

use super::files::{fault, is_binary, number, text, whole};
use super::{Output, clip};
use crate::sandbox::{Error, Sandbox};

/// One replacement.
struct Edit<'a> {
    old: &'a str,
    new: &'a str,
    all: bool,
}

/// `edit_file`, and what the aliases made of an insertion or of several edits of one file.
pub async fn edit(arguments: &Value, sandbox: &dyn Sandbox) -> Result<Output, Error> {
    let path = text(arguments, "path");
    let bytes = match whole(sandbox, path).await? {
        Ok(bytes) => bytes,
        Err(reason) => return Ok(fault(path, &reason)),
    };
    if is_binary(&bytes) {
        return Ok(fault(path, "a binary file is not edited as text"));
    }
    let Ok(before) = String::from_utf8(bytes) else {
        return Ok(fault(path, "not UTF-8; edit it with a command"));
    };
    let (after, said) = match apply(arguments, &before) {
        Ok(done) => done,
        Err(reason) => return Ok(fault(path, &reason)),
    };
    if after == before {
        return Ok(fault(path, "the edit changes nothing"));
    }
    match sandbox.write(path, Bytes::from(after)).await? {
        Ok(()) => Ok(Output::done(format!("edited {path}: {said}"))),
        Err(reason) => Ok(fault(path, &reason)),
    }
}

fn apply(arguments: &Value, before: &str) -> Result<(String, String), String> {
    if let Some(line) = number(arguments, "insert_line") {
        return insert(before, line, text(arguments, "insert_text"));
    }
    let one = std::slice::from_ref(arguments);
    let edits = arguments.get("edits").and_then(Value::as_array);
    let edits = edits.map_or(one, Vec::as_slice);
    let mut now = before.to_string();
    let mut places = 0;
    for (index, given) in edits.iter().enumerate() {
        let edit = Edit {
            old: text(given, "old_string"),
            new: text(given, "new_string"),
            all: given.get("replace_all").and_then(Value::as_bool) == Some(true),
        };
        let (next, count) = replace(&now, &edit).map_err(|reason| match edits.len() {
            1 => reason,
            _ => format!(
                "edit {} of {} (none was made): {reason}",
                index + 1,
                edits.len()
            ),
        })?;
        now = next;
        places += count;
    }
    let noun = if places == 1 { "place" } else { "places" };
    Ok((now, format!("{places} {noun} replaced")))
}

fn replace(before: &str, edit: &Edit) -> Result<(String, usize), String> {
    if edit.old.is_empty() {
        return Err("old_string is empty; use write_file for a new file".to_string());
    }
    if edit.old == edit.new {
        return Err("old_string and new_string are equal".to_string());
    }
    let (old, new) = fitting(before, edit);
    let count = before.matches(old.as_str()).count();
    match count {
        0 => Err(missing(before, edit.old)),
        1 => Ok((before.replacen(old.as_str(), &new, 1), 1)),
        n if edit.all => Ok((before.replace(old.as_str(), &new), n)),
        n => Err(format!(
            "old_string stands there {n} times (lines {}); take more of the lines around it, or set replace_all",
            numbers(before, &old)
        )),
    }
}

/// Old and new with the line endings of the file: an agent is shown and writes plain newlines.
fn fitting(before: &str, edit: &Edit) -> (String, String) {
    let crlf = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
    let windows = before.contains("\r\n");
    let plain = windows && before.matches('\n').count() > before.matches("\r\n").count();
    let as_is = before.contains(edit.old);
    if windows && !(as_is && (plain || edit.old.contains('\n'))) {
        let old = if as_is {
            edit.old.to_string()
        } else {
            crlf(edit.old)
        };
        return (old, crlf(edit.new));
    }
    (edit.old.to_string(), edit.new.to_string())
}

fn numbers(before: &str, old: &str) -> String {
    let lines: Vec<String> = before
        .match_indices(old)
        .take(10)
        .map(|(at, _)| (before[..at].matches('\n').count() + 1).to_string())
        .collect();
    lines.join(", ")
}

/// Why there is no match, with the line of the file that comes nearest.
fn missing(before: &str, old: &str) -> String {
    let wanted = old
        .lines()
        .find(|l| !l.trim().is_empty())
        .unwrap_or(old)
        .trim();
    let best = before
        .lines()
        .enumerate()
        .map(|(index, line)| (likeness(line.trim(), wanted), index + 1, line))
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    match best {
        Some((score, number, line)) if score >= 0.5 => format!(
            "old_string is not in it; the nearest to its first line is line {number}: `{}`; read the place \
             and copy it exactly, white space included",
            clip::line(line, 200)
        ),
        _ => "old_string is not in it and no line comes near; read the file first".to_string(),
    }
}

/// Share of equal pairs of neighbouring characters, 0 to 1.
fn likeness(a: &str, b: &str) -> f64 {
    if a == b {
        return 1.0;
    }
    let pairs = |text: &str| -> Vec<(char, char)> {
        let chars: Vec<char> = text.chars().take(200).collect();
        let mut pairs: Vec<(char, char)> = chars.windows(2).map(|w| (w[0], w[1])).collect();
        pairs.sort_unstable();
        pairs
    };
    let (a, b) = (pairs(a), pairs(b));
    let (mut i, mut j, mut same) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Equal => {
                same += 1;
                i += 1;
                j += 1;
            }
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
        }
    }
    match a.len() + b.len() {
        0 => 0.0,
        all => 2.0 * f64::from(same) / all as f64,
    }
}

fn insert(before: &str, after_line: i64, added: &str) -> Result<(String, String), String> {
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let at = usize::try_from(after_line).unwrap_or(usize::MAX);
    if at > lines.len() {
        return Err(format!("it has {} lines, none {after_line}", lines.len()));
    }
    let ending = if before.contains("\r\n") {
        "\r\n"
    } else {
        "\n"
    };
    let mut now = lines[..at].concat();
    if !now.is_empty() && !now.ends_with('\n') {
        now.push_str(ending);
    }
    let added = added.replace("\r\n", "\n");
    now.push_str(&added.trim_end_matches('\n').replace('\n', ending));
    now.push_str(ending);
    now.push_str(&lines[at..].concat());
    Ok((now, format!("inserted after line {at}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edited(before: &str, old: &str, new: &str) -> Result<String, String> {
        apply(&json!({"old_string": old, "new_string": new}), before).map(|(after, _)| after)
    }

    #[test]
    fn line_endings_of_the_file_are_kept() {
        assert_eq!(
            edited("a\r\nb\r\n", "a\nb", "x\ny"),
            Ok("x\r\ny\r\n".into())
        );
        assert_eq!(
            edited("a\r\nb\r\n", "a", "x\ny"),
            Ok("x\r\ny\r\nb\r\n".into())
        );
        assert_eq!(
            edited("a\r\nb\r\n", "a\r\nb", "x\r\ny"),
            Ok("x\r\ny\r\n".into())
        );
        assert_eq!(edited("a\nb\n", "a\nb", "x\ny"), Ok("x\ny\n".into()));
    }

    #[test]
    fn more_than_one_match_is_an_error_unless_all_are_meant() {
        let error = edited("a\nb\na\n", "a", "x").unwrap_err();
        assert!(error.contains("2 times (lines 1, 3)"), "{error}");
        let all = json!({"old_string": "a", "new_string": "x", "replace_all": true});
        assert_eq!(apply(&all, "a\nb\na\n").unwrap().0, "x\nb\nx\n");
    }

    #[test]
    fn a_miss_points_to_the_nearest_line() {
        let error = edited(
            "fn main() {\n\tprintln!(\"hi\");\n}\n",
            "    println!(\"hi\");\n",
            "x",
        )
        .unwrap_err();
        assert!(error.contains("line 2: "), "{error}");
        assert!(
            edited("abc\n", "zzzz", "y")
                .unwrap_err()
                .contains("no line comes near")
        );
    }

    #[test]
    fn several_edits_apply_in_order_or_not_at_all() {
        let two = json!({"edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "b", "new_string": "c"}]});
        assert_eq!(apply(&two, "a").unwrap().0, "c");
        let bad = json!({"edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "q", "new_string": "c"}]});
        assert!(
            apply(&bad, "a")
                .unwrap_err()
                .starts_with("edit 2 of 2 (none was made)")
        );
    }

    #[test]
    fn an_insertion_goes_after_its_line() {
        let at = |line: i64| json!({"insert_line": line, "insert_text": "x"});
        assert_eq!(apply(&at(0), "a\n").unwrap().0, "x\na\n");
        assert_eq!(apply(&at(1), "a").unwrap().0, "a\nx\n");
        assert!(apply(&at(3), "a\n").is_err());
    }
}
