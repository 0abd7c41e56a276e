//! Names and arguments that models were trained on elsewhere, understood as the tool they mean.

use serde_json::{Map, Value, json};

use super::{patch, path};

/// A call in our own words.
pub struct Meant {
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// The arguments have a shape of our own making, already checked, outside the public schema.
    pub translated: bool,
}

/// Why a call is not understood.
pub enum Refusal {
    Unknown,
    /// What to do instead.
    Advice(String),
}

/// Argument names that mean one of ours, by tool.
const ARGUMENTS: [(&str, &[(&str, &str)]); 6] = [
    (
        "bash",
        &[
            ("cmd", "command"),
            ("script", "command"),
            ("timeout", "timeout_seconds"),
            ("run_in_background", "background"),
        ],
    ),
    (
        "read_file",
        &[
            ("file_path", "path"),
            ("filename", "path"),
            ("file", "path"),
            ("start_line", "offset"),
        ],
    ),
    (
        "write_file",
        &[
            ("file_path", "path"),
            ("filename", "path"),
            ("file", "path"),
            ("file_text", "content"),
            ("contents", "content"),
            ("text", "content"),
        ],
    ),
    (
        "edit_file",
        &[
            ("file_path", "path"),
            ("filename", "path"),
            ("file", "path"),
            ("old", "old_string"),
            ("old_str", "old_string"),
            ("old_text", "old_string"),
            ("new", "new_string"),
            ("new_str", "new_string"),
            ("new_text", "new_string"),
        ],
    ),
    (
        "list_files",
        &[("glob", "pattern"), ("path_glob", "pattern")],
    ),
    (
        "grep",
        &[
            ("query", "pattern"),
            ("regex", "pattern"),
            ("path_glob", "glob"),
            ("include", "glob"),
            ("head_limit", "max_results"),
            ("limit", "max_results"),
        ],
    ),
];

/// Arguments that only say something about the call and change nothing.
const NOISE: [&str; 6] = [
    "description",
    "explanation",
    "justification",
    "output_mode",
    "login",
    "with_escalated_permissions",
];

/// Finds the tool that a name means and puts the arguments into its words.
pub fn understand(
    known: &[&str],
    name: &str,
    mut arguments: Map<String, Value>,
) -> Result<Meant, Refusal> {
    let name = tidy(name);
    let own = known.iter().find(|k| **k == name);
    let own = own.or_else(|| known.iter().find(|k| k.eq_ignore_ascii_case(&name)));
    let tool = match own {
        Some(tool) => (*tool).to_string(),
        None => {
            let lower = name.to_ascii_lowercase();
            match elsewhere(&lower, &mut arguments)? {
                Understood::Tool(tool) => tool.to_string(),
                Understood::Call(meant) if known.contains(&meant.tool.as_str()) => {
                    return Ok(meant);
                }
                Understood::Call(_) => return Err(Refusal::Unknown),
            }
        }
    };
    if !known.contains(&tool.as_str()) {
        return Err(Refusal::Unknown);
    }
    words(&tool, &mut arguments)?;
    if tool == "edit_file" && arguments.contains_key("edits") {
        return several(arguments);
    }
    Ok(Meant {
        tool,
        arguments,
        translated: false,
    })
}

pub(super) enum Understood {
    Tool(&'static str),
    Call(Meant),
}

fn tidy(name: &str) -> String {
    let name = name.trim();
    let name = name.strip_prefix("functions.").unwrap_or(name);
    let name = name.strip_prefix("tools.").unwrap_or(name);
    name.trim().to_string()
}

pub(super) fn elsewhere(
    name: &str,
    arguments: &mut Map<String, Value>,
) -> Result<Understood, Refusal> {
    let tool = match name {
        "shell" | "exec_command" | "execute" | "bash" | "sh" | "run_command"
        | "execute_command" | "run_shell_command" | "local_shell" | "terminal"
        | "container.exec" => "bash",
        "read" | "view" | "view_file" | "open_file" | "cat" => "read_file",
        "write" | "create_file" => "write_file",
        "edit" | "multiedit" | "multi_edit" | "str_replace" | "search_replace" | "replace" => {
            "edit_file"
        }
        "glob" | "ls" | "list_dir" | "list_directory" | "find_files" => {
            folder(arguments);
            "list_files"
        }
        "grep" | "search_code" | "grep_search" | "search_files" | "search" | "rg" => "grep",
        "str_replace_based_edit_tool" | "str_replace_editor" => return editor(arguments),
        "apply_patch" => return patch::understand(arguments).map(Understood::Call),
        _ => return Err(Refusal::Unknown),
    };
    Ok(Understood::Tool(tool))
}

/// The editor tool that names its deed in `command`.
fn editor(arguments: &mut Map<String, Value>) -> Result<Understood, Refusal> {
    let deed = arguments.remove("command");
    match deed.as_ref().and_then(Value::as_str) {
        Some("view") => Ok(Understood::Tool("read_file")),
        Some("create") => Ok(Understood::Tool("write_file")),
        Some("str_replace") => {
            arguments.entry("new_str").or_insert(json!(""));
            Ok(Understood::Tool("edit_file"))
        }
        Some("insert") => insertion(arguments),
        _ => Err(Refusal::Advice(
            "command must be one of view, create, str_replace, insert; or use read_file, write_file and \
             edit_file"
                .to_string(),
        )),
    }
}

fn insertion(arguments: &mut Map<String, Value>) -> Result<Understood, Refusal> {
    let path = arguments.get("path").and_then(Value::as_str);
    let line = arguments.get("insert_line").and_then(Value::as_u64);
    let text = arguments
        .get("insert_text")
        .or_else(|| arguments.get("new_str"));
    match (path, line, text.and_then(Value::as_str)) {
        (Some(path), Some(line), Some(text)) => {
            let mut map = Map::new();
            map.insert("path".into(), path.into());
            map.insert("insert_line".into(), line.into());
            map.insert("insert_text".into(), text.into());
            Ok(Understood::Call(Meant {
                tool: "edit_file".into(),
                arguments: map,
                translated: true,
            }))
        }
        _ => Err(Refusal::Advice(
            "insert needs path (text), insert_line (a whole number from 0) and insert_text (text)"
                .to_string(),
        )),
    }
}

/// Several edits of one file, each checked here.
fn several(arguments: Map<String, Value>) -> Result<Meant, Refusal> {
    let advice =
        |what: &str| Refusal::Advice(format!("{what}; or call edit_file once for each edit"));
    let Some(path) = arguments
        .get("path")
        .and_then(Value::as_str)
        .filter(|p| !p.is_empty())
    else {
        return Err(advice("path is missing"));
    };
    let Some(edits) = arguments
        .get("edits")
        .and_then(Value::as_array)
        .filter(|l| !l.is_empty())
    else {
        return Err(advice("edits must be a list of {old_string, new_string}"));
    };
    let mut clean = Vec::new();
    for edit in edits {
        let mut edit = edit.as_object().cloned().unwrap_or_default();
        rename("edit_file", &mut edit);
        let both = ["old_string", "new_string"].map(|k| edit.get(k).and_then(Value::as_str));
        let [Some(old), Some(new)] = both else {
            return Err(advice(
                "each of edits needs old_string and new_string as text",
            ));
        };
        let all = edit.get("replace_all").and_then(Value::as_bool) == Some(true);
        clean.push(json!({"old_string": old, "new_string": new, "replace_all": all}));
    }
    let mut map = Map::new();
    map.insert("path".into(), path.into());
    map.insert("edits".into(), Value::Array(clean));
    Ok(Meant {
        tool: "edit_file".into(),
        arguments: map,
        translated: true,
    })
}

/// A folder with or without a glob, as one glob.
fn folder(arguments: &mut Map<String, Value>) {
    let keys = ["path", "dir_path", "target_directory", "directory"];
    let found = keys.iter().find_map(|key| arguments.remove(*key));
    arguments.remove("ignore");
    let Some(Value::String(folder)) = found else {
        return;
    };
    let glob = arguments.get("pattern").and_then(Value::as_str);
    let glob = glob.unwrap_or("**");
    let folder = path::normal(&folder);
    let pattern = if folder == "." {
        glob.to_string()
    } else {
        format!("{folder}/{glob}")
    };
    arguments.insert("pattern".into(), pattern.into());
}

fn words(tool: &str, arguments: &mut Map<String, Value>) -> Result<(), Refusal> {
    rename(tool, arguments);
    match tool {
        "bash" => shell(arguments),
        "read_file" => range(arguments),
        "grep" => scope(arguments),
        _ => {}
    }
    Ok(())
}

/// Renames what has one of our names, unless that stands there already; drops the noise.
fn rename(tool: &str, arguments: &mut Map<String, Value>) {
    let Some((_, names)) = ARGUMENTS.iter().find(|(of, _)| *of == tool) else {
        return;
    };
    for (theirs, ours) in *names {
        if !arguments.contains_key(*ours)
            && let Some(value) = arguments.remove(*theirs)
        {
            arguments.insert((*ours).to_string(), value);
        }
    }
    arguments.retain(|key, _| !NOISE.contains(&key.as_str()));
}

/// A command as a list becomes a line; a working directory becomes a `cd` before it.
fn shell(arguments: &mut Map<String, Value>) {
    if let Some(Value::Array(list)) = arguments.get("command") {
        let words: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
        if let Some(words) = words.filter(|w| !w.is_empty()) {
            let line = match words.as_slice() {
                ["bash" | "sh" | "/bin/bash" | "/bin/sh", "-c" | "-lc", line] => {
                    (*line).to_string()
                }
                words => words
                    .iter()
                    .map(|w| quoted(w))
                    .collect::<Vec<_>>()
                    .join(" "),
            };
            arguments.insert("command".into(), line.into());
        }
    }
    if let Some(milliseconds) = arguments
        .remove("timeout_ms")
        .as_ref()
        .and_then(Value::as_f64)
    {
        let seconds = (milliseconds / 1000.0).ceil().clamp(1.0, 86_400.0) as i64;
        arguments.entry("timeout_seconds").or_insert(seconds.into());
    }
    for key in ["workdir", "cwd"] {
        let folder = arguments.remove(key);
        if let (Some(folder), Some(line)) = (
            folder
                .as_ref()
                .and_then(Value::as_str)
                .filter(|f| !f.is_empty()),
            arguments.get("command").and_then(Value::as_str),
        ) {
            let line = format!("cd {} && {line}", quoted(folder));
            arguments.insert("command".into(), line.into());
        }
    }
}

/// One word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// First and last line become first line and count.
fn range(arguments: &mut Map<String, Value>) {
    let mut ends = (None, None);
    if let Some(Value::Array(list)) = arguments.get("view_range") {
        ends = (
            list.first().and_then(Value::as_i64),
            list.get(1).and_then(Value::as_i64),
        );
        arguments.remove("view_range");
    }
    if let Some(last) = arguments.get("end_line").and_then(Value::as_i64) {
        ends = (
            arguments.get("offset").and_then(Value::as_i64).or(Some(1)),
            Some(last),
        );
        arguments.remove("end_line");
    }
    if let Some(first) = ends.0 {
        arguments.insert("offset".into(), first.into());
        if let Some(last) = ends.1.filter(|last| *last >= first) {
            arguments.insert("limit".into(), (last - first + 1).into());
        }
    }
    // Models that count lines from 0 mean the first one.
    if arguments.get("offset").and_then(Value::as_i64) == Some(0) {
        arguments.insert("offset".into(), 1.into());
    }
}

/// A folder or file to search in, and switches of the command of the same name.
fn scope(arguments: &mut Map<String, Value>) {
    if let Some(Value::String(place)) = arguments.remove("path") {
        let place = path::normal(&place);
        let glob = arguments.get("glob").and_then(Value::as_str);
        let glob = match (place.as_str(), glob) {
            (".", None) => None,
            (".", Some(glob)) => Some(glob.to_string()),
            (place, Some(glob)) => Some(format!("{place}/**/{}", glob.trim_start_matches("**/"))),
            (place, None) => Some(format!("{{{place},{place}/**}}")),
        };
        if let Some(glob) = glob {
            arguments.insert("glob".into(), glob.into());
        }
    }
    let blind = arguments.remove("-i").is_some_and(|v| v == json!(true));
    arguments.remove("-n");
    if blind && let Some(pattern) = arguments.get("pattern").and_then(Value::as_str) {
        let pattern = format!("(?i){pattern}");
        arguments.insert("pattern".into(), pattern.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 7] = [
        "bash",
        "read_file",
        "write_file",
        "edit_file",
        "list_files",
        "grep",
        "submit_report",
    ];

    fn meant(name: &str, arguments: Value) -> (String, Value) {
        let map = arguments.as_object().unwrap().clone();
        match understand(&KNOWN, name, map) {
            Ok(meant) => (meant.tool, Value::Object(meant.arguments)),
            Err(Refusal::Unknown) => ("?".into(), Value::Null),
            Err(Refusal::Advice(text)) => ("!".into(), text.into()),
        }
    }

    #[test]
    fn trained_names_and_arguments_mean_our_tools() {
        let cases = [
            (
                "functions.bash",
                json!({"cmd": "ls"}),
                "bash",
                json!({"command": "ls"}),
            ),
            (
                "bash ",
                json!({"command": "ls"}),
                "bash",
                json!({"command": "ls"}),
            ),
            (
                "BASH",
                json!({"command": "ls", "description": "x"}),
                "bash",
                json!({"command": "ls"}),
            ),
            (
                "shell",
                json!({"command": ["bash", "-lc", "ls | wc"]}),
                "bash",
                json!({"command": "ls | wc"}),
            ),
            (
                "exec_command",
                json!({"cmd": ["grep", "a b", "it's"]}),
                "bash",
                json!({"command": "grep 'a b' 'it'\\''s'"}),
            ),
            (
                "execute",
                json!({"command": "ls", "workdir": "a b", "timeout_ms": 1500}),
                "bash",
                json!({"timeout_seconds": 2, "command": "cd 'a b' && ls"}),
            ),
            (
                "Read",
                json!({"file_path": "a", "offset": 0, "limit": 5}),
                "read_file",
                json!({"path": "a", "offset": 1, "limit": 5}),
            ),
            (
                "Write",
                json!({"file_path": "a", "content": "x"}),
                "write_file",
                json!({"path": "a", "content": "x"}),
            ),
            (
                "Edit",
                json!({"file_path": "a", "old": "x", "new": "y"}),
                "edit_file",
                json!({"path": "a", "old_string": "x", "new_string": "y"}),
            ),
            (
                "Glob",
                json!({"pattern": "*.rs", "path": "/workspace/src"}),
                "list_files",
                json!({"pattern": "src/*.rs"}),
            ),
            (
                "LS",
                json!({"path": "."}),
                "list_files",
                json!({"pattern": "**"}),
            ),
            (
                "list_dir",
                json!({"dir_path": "src"}),
                "list_files",
                json!({"pattern": "src/**"}),
            ),
            (
                "Grep",
                json!({"pattern": "x", "path": "src", "-n": true, "-i": true}),
                "grep",
                json!({"pattern": "(?i)x", "glob": "{src,src/**}"}),
            ),
            (
                "search_code",
                json!({"query": "x", "path_glob": "*.py"}),
                "grep",
                json!({"pattern": "x", "glob": "*.py"}),
            ),
            (
                "str_replace_based_edit_tool",
                json!({"command": "view", "path": "a", "view_range": [3, 7]}),
                "read_file",
                json!({"path": "a", "offset": 3, "limit": 5}),
            ),
            (
                "str_replace_editor",
                json!({"command": "create", "path": "a", "file_text": "x"}),
                "write_file",
                json!({"path": "a", "content": "x"}),
            ),
            (
                "str_replace_based_edit_tool",
                json!({"command": "str_replace", "path": "a", "old_str": "x"}),
                "edit_file",
                json!({"path": "a", "old_string": "x", "new_string": ""}),
            ),
            (
                "str_replace_based_edit_tool",
                json!({"command": "insert", "path": "a", "insert_line": 2, "new_str": "x"}),
                "edit_file",
                json!({"path": "a", "insert_line": 2, "insert_text": "x"}),
            ),
            (
                "MultiEdit",
                json!({"file_path": "a", "edits": [{"old": "x", "new": "y"}]}),
                "edit_file",
                json!({"path": "a", "edits": [{"old_string": "x", "new_string": "y", "replace_all": false}]}),
            ),
            ("frobnicate", json!({}), "?", Value::Null),
        ];
        for (name, given, tool, arguments) in cases {
            assert_eq!(
                meant(name, given.clone()),
                (tool.to_string(), arguments),
                "{name} {given}"
            );
        }
    }

    #[test]
    fn a_role_without_the_tool_does_not_get_it_by_another_name() {
        let found = understand(&["read_file"], "shell", Map::new());
        assert!(matches!(found, Err(Refusal::Unknown)));
        let map = json!({"command": "insert", "path": "a", "insert_line": 1, "insert_text": "x"});
        let found = understand(
            &["read_file"],
            "str_replace_editor",
            map.as_object().unwrap().clone(),
        );
        assert!(matches!(found, Err(Refusal::Unknown)));
    }
}
