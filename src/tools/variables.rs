//! The arguments of an operator's own tool as variables of the shell: pure.

use serde_json::Value;

/// What stands before an argument's name, in capitals.
const PREFIX: &str = "WHARF_ARG_";
/// Bytes of one value, and of all together; the system limits what a program can be started with.
const LARGEST: usize = 16 << 10;
const ALL: usize = 48 << 10;

/// Lines that set one variable for each argument: text as it is, anything else as JSON. An argument that
/// is null, too large, holds a NUL or shares its name with another has none.
pub(super) fn of(arguments: &Value) -> String {
    let Some(fields) = arguments.as_object() else {
        return String::new();
    };
    let mut lines = String::new();
    for (key, value) in fields {
        let name = name(key);
        let alone = fields
            .keys()
            .filter(|other| self::name(other) == name)
            .count()
            == 1;
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let fits = text.len() <= LARGEST && lines.len() + text.len() <= ALL;
        if alone && fits && !text.contains('\0') {
            lines.push_str(&format!("export {PREFIX}{name}={}\n", quoted(&text)));
        }
    }
    lines
}

fn name(key: &str) -> String {
    key.chars()
        .map(|c| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        })
        .collect()
}

/// In single quotes, inside which a shell reads nothing.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
