//! `apply_patch` as other agents write it, where one of our tools can express it.

use serde_json::{Map, Value, json};

use super::alias::{Meant, Refusal};

/// A patch of one file: added, or changed in places that can be found by their lines.
pub fn understand(arguments: &Map<String, Value>) -> Result<Meant, Refusal> {
    let text = ["input", "patch", "diff"]
        .iter()
        .find_map(|key| arguments.get(*key)?.as_str());
    let Some(text) = text else {
        return Err(advice("apply_patch needs its patch as text in input"));
    };
    let lines: Vec<&str> = text.lines().collect();
    let files: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("*** ") && lines[*at].contains(" File: "))
        .collect();
    let [start] = files.as_slice() else {
        return Err(advice(if files.is_empty() {
            "this patch is not of the form *** Begin Patch … *** End Patch"
        } else {
            "a patch of several files is not applied at once"
        }));
    };
    let body: Vec<&str> = lines[start + 1..]
        .iter()
        .copied()
        .take_while(|line| *line != "*** End Patch")
        .filter(|line| *line != "*** End of File")
        .collect();
    match lines[*start].split_once(" File: ") {
        Some(("*** Add", path)) => added(path.trim(), &body),
        Some(("*** Update", path)) => updated(path.trim(), &body),
        _ => Err(advice(
            "only adding and updating a file can be applied; delete with bash",
        )),
    }
}

fn added(path: &str, body: &[&str]) -> Result<Meant, Refusal> {
    let mut content = String::new();
    for line in body {
        let Some(line) = line.strip_prefix('+') else {
            return Err(advice("each line of an added file begins with +"));
        };
        content.push_str(line);
        content.push('\n');
    }
    Ok(meant(
        "write_file",
        json!({"path": path, "content": content}),
    ))
}

fn updated(path: &str, body: &[&str]) -> Result<Meant, Refusal> {
    if body.iter().any(|line| line.starts_with("*** Move to:")) {
        return Err(advice(
            "a patch that moves its file is not applied; move it with bash",
        ));
    }
    let mut edits = Vec::new();
    for hunk in body.split(|line| line.starts_with("@@")) {
        if hunk.is_empty() {
            continue;
        }
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for line in hunk {
            match line.split_at_checked(1) {
                Some(("+", rest)) => new.push(rest),
                Some(("-", rest)) => old.push(rest),
                Some((" ", rest)) => {
                    old.push(rest);
                    new.push(rest);
                }
                None => {
                    old.push("");
                    new.push("");
                }
                Some(_) => return Err(advice("each line of a hunk begins with a space, + or -")),
            }
        }
        if old.is_empty() {
            return Err(advice("a hunk without a line of the file has no place"));
        }
        edits.push(json!({"old_string": old.join("\n"), "new_string": new.join("\n"), "replace_all": false}));
    }
    if edits.is_empty() {
        return Err(advice("this patch changes nothing"));
    }
    Ok(meant("edit_file", json!({"path": path, "edits": edits})))
}

fn meant(tool: &str, arguments: Value) -> Meant {
    Meant {
        tool: tool.to_string(),
        arguments: match arguments {
            Value::Object(map) => map,
            _ => Map::new(),
        },
        translated: true,
    }
}

fn advice(what: &str) -> Refusal {
    Refusal::Advice(format!(
        "{what}; use edit_file with path, old_string and new_string, and write_file for a new file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(patch: &str) -> Result<(String, Value), String> {
        let map = json!({"input": patch});
        match understand(map.as_object().unwrap()) {
            Ok(meant) => Ok((meant.tool, Value::Object(meant.arguments))),
            Err(Refusal::Advice(text)) => Err(text),
            Err(Refusal::Unknown) => Err("unknown".into()),
        }
    }

    #[test]
    fn a_patch_of_one_file_becomes_a_write_or_an_edit() {
        let add = "*** Begin Patch\n*** Add File: a.txt\n+x\n+y\n*** End Patch";
        assert_eq!(
            read(add),
            Ok((
                "write_file".into(),
                json!({"path": "a.txt", "content": "x\ny\n"})
            ))
        );
        let update = "*** Begin Patch\n*** Update File: a.txt\n@@ fn\n x\n-y\n+z\n*** End Patch";
        let edits = json!({"path": "a.txt", "edits": [{"old_string": "x\ny", "new_string": "x\nz", "replace_all": false}]});
        assert_eq!(read(update), Ok(("edit_file".into(), edits)));
    }

    #[test]
    fn any_other_patch_is_answered_with_what_to_do() {
        for patch in [
            "--- a\n+++ b",
            "*** Begin Patch\n*** Delete File: a\n*** End Patch",
            "*** Add File: a\n*** Add File: b",
        ] {
            assert!(read(patch).unwrap_err().contains("edit_file"), "{patch}");
        }
    }
}
