//! The built-in tools as a model sees them: names, arguments, and caps in plain words.

use serde_json::{Value, json};

use super::{Error, Kind, Options, OwnTool, Spec, clip::thousands, schema};

/// Bytes of a file that one `read_file` gives at most.
pub const READ_BYTES: usize = 32_000;
/// Lines that one `read_file` gives when it names no limit.
pub const READ_LINES: usize = 2_000;
/// Characters of a line that `read_file` shows.
pub const LINE_CHARS: usize = 2_000;
/// Characters of a line that `grep` and `list_files` show.
pub const FOUND_CHARS: usize = 500;
/// Bytes that one `write_file` takes, and the largest file that `edit_file` and `read_file` look through.
pub const WRITE_BYTES: usize = 16 << 20;
/// Paths that one `list_files` gives at most.
pub const LIST_MAX: usize = 1_000;
/// Matches of `grep` when the call names no number, and at most.
pub const GREP_DEFAULT: usize = 100;
/// The most matches that one `grep` gives.
pub const GREP_MAX: usize = 500;
/// Seconds that an agent may give a command at most.
pub const TIMEOUT_MAX: u64 = 600;

/// The names of all built-in tools but the ending ones.
const NAMES: [&str; 8] = [
    "bash",
    "process",
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "grep",
    "run_acceptance",
];

/// The tool of this name: a built-in, or the operator's own.
pub fn find(name: &str, options: &Options) -> Result<Spec, Error> {
    if let Some(spec) = built_in(name, options) {
        return Ok(spec);
    }
    match options.own.iter().find(|own| own.name == name) {
        Some(own) => own_spec(own),
        None => {
            let own = options.own.iter().map(|o| o.name.as_str());
            let known: Vec<&str> = NAMES.into_iter().chain(own).collect();
            Err(Error::UnknownTool {
                name: name.to_string(),
                known: known.join(", "),
            })
        }
    }
}

fn own_spec(own: &OwnTool) -> Result<Spec, Error> {
    let mut schema = own.schema.clone();
    if schema.is_null() {
        schema = json!({"type": "object", "properties": {}});
    }
    schema::check(&schema).map_err(|reason| Error::Schema {
        tool: own.name.clone(),
        reason,
    })?;
    if let Some(map) = schema.as_object_mut() {
        map.entry("additionalProperties")
            .or_insert(Value::Bool(false));
    }
    Ok(Spec {
        name: own.name.clone(),
        description: own.description.clone(),
        schema,
        kind: Kind::Execute,
    })
}

fn built_in(name: &str, options: &Options) -> Option<Spec> {
    let (kind, description, schema) = match name {
        "bash" | "process" | "run_acceptance" => running(name, options)?,
        "write_file" | "edit_file" => writing(name)?,
        _ => reading(name)?,
    };
    Some(Spec {
        name: name.to_string(),
        description,
        schema,
        kind,
    })
}

fn running(name: &str, options: &Options) -> Option<(Kind, String, Value)> {
    let found = match name {
        "bash" => (
            format!(
                "Runs a shell command in /workspace and answers with its exit code, then stdout and stderr \
                 apart, at most {} characters of each (the beginning and the end; the full text is kept in a \
                 file that the answer names). Each call is a new shell: a `cd` or a variable does not carry \
                 over. Standard input is empty. After timeout_seconds (default {}, at most {TIMEOUT_MAX}) \
                 everything the command started is killed and the exit code is 124. With background: true it \
                 returns at once with an id for `process`.",
                thousands(options.output as u64),
                options.timeout.as_secs(),
            ),
            closed(
                json!({
                    "command": {"type": "string", "minLength": 1, "description": "the command line"},
                    "timeout_seconds": {"type": "integer", "description": format!("1 to {TIMEOUT_MAX}")},
                    "background": {"type": "boolean", "description": "keep it running, return at once"}
                }),
                &["command"],
            ),
        ),
        "process" => (
            "Looks at a background process that bash started: output gives what it printed so far or how it \
             ended, stop kills it with everything it started."
                .to_string(),
            closed(
                json!({
                    "id": {"type": "integer", "minimum": 0, "description": "the id that bash answered with"},
                    "action": {"type": "string", "enum": ["output", "stop"]}
                }),
                &["id", "action"],
            ),
        ),
        "run_acceptance" => (
            "Runs the acceptance commands of this task in /workspace, each with its own time limit, and \
             answers with each exit code and the last 2,000 characters of its output."
                .to_string(),
            closed(json!({}), &[]),
        ),
        _ => return None,
    };
    Some((Kind::Execute, found.0, found.1))
}

fn reading(name: &str) -> Option<(Kind, String, Value)> {
    let path = json!({"type": "string", "minLength": 1, "description": "relative to /workspace"});
    let found = match name {
        "read_file" => (
            format!(
                "Reads a text file by lines, at most {} bytes a call. offset is the first line, from 1; limit \
                 the number of lines (default {}). Lines longer than {} characters are cut.",
                thousands(READ_BYTES as u64),
                thousands(READ_LINES as u64),
                thousands(LINE_CHARS as u64),
            ),
            closed(
                json!({
                    "path": path,
                    "offset": {"type": "integer", "minimum": 1, "description": "first line, from 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "number of lines"}
                }),
                &["path"],
            ),
        ),
        "list_files" => (
            format!(
                "Lists the files of /workspace that match a glob (`**` crosses folders; without a pattern, all), \
                 sorted, at most {} paths, without .git and what .gitignore leaves out.",
                thousands(LIST_MAX as u64)
            ),
            closed(
                json!({"pattern": {"type": "string", "description": "a glob such as src/**/*.py"}}),
                &[],
            ),
        ),
        "grep" => (
            format!(
                "Searches the files of /workspace for lines that match a regular expression and answers with \
                 path:line:text, {GREP_DEFAULT} matches unless max_results says otherwise, at most {GREP_MAX}, \
                 each line cut at {FOUND_CHARS} characters, {} bytes in all.",
                thousands(READ_BYTES as u64)
            ),
            closed(
                json!({
                    "pattern": {"type": "string", "minLength": 1, "description": "a regular expression"},
                    "glob": {"type": "string", "description": "only files that match, such as **/*.rs"},
                    "max_results": {"type": "integer", "minimum": 1}
                }),
                &["pattern"],
            ),
        ),
        _ => return None,
    };
    Some((Kind::Read, found.0, found.1))
}

fn writing(name: &str) -> Option<(Kind, String, Value)> {
    let path = json!({"type": "string", "minLength": 1, "description": "relative to /workspace"});
    let found = match name {
        "write_file" => (
            format!(
                "Writes a whole file, making its folders; what stood there is replaced. At most {} bytes.",
                thousands(WRITE_BYTES as u64)
            ),
            closed(
                json!({"path": path, "content": {"type": "string"}}),
                &["path", "content"],
            ),
        ),
        "edit_file" => (
            format!(
                "Replaces old_string by new_string in a file of at most {} bytes. old_string must stand there \
                 exactly once, white space included, unless replace_all is true.",
                thousands(WRITE_BYTES as u64)
            ),
            closed(
                json!({
                    "path": path,
                    "old_string": {"type": "string", "minLength": 1},
                    "new_string": {"type": "string"},
                    "replace_all": {"type": "boolean"}
                }),
                &["path", "old_string", "new_string"],
            ),
        ),
        _ => return None,
    };
    Some((Kind::Write, found.0, found.1))
}

/// An object schema without additional properties.
pub fn closed(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false
    })
}
