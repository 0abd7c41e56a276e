//! Paths of the workspace as agents write them, brought to one form before anything is decided by them.

use serde_json::Value;

const ROOT: &str = "/workspace";

/// `./src//a.rs`, `/workspace/src/a.rs` and `src/x/../a.rs` are all `src/a.rs`; a path that leads
/// elsewhere stays absolute.
pub fn normal(path: &str) -> String {
    let full = if path.starts_with('/') {
        path.to_string()
    } else {
        format!("{ROOT}/{path}")
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in full.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    match parts.split_first() {
        Some((&"workspace", rest)) if !rest.is_empty() => rest.join("/"),
        Some((&"workspace", _)) => ".".to_string(),
        _ => format!("/{}", parts.join("/")),
    }
}

/// Brings the `path` of a call's arguments to its normal form.
pub fn tidy(arguments: &mut Value) {
    if let Some(Value::String(path)) = arguments.get_mut("path") {
        *path = normal(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_name() {
        for path in [
            "src/a.rs",
            "./src//a.rs",
            "/workspace/src/a.rs",
            "src/x/../a.rs",
            "../workspace/src/a.rs",
        ] {
            assert_eq!(normal(path), "src/a.rs", "{path}");
        }
        assert_eq!(normal("../etc/passwd"), "/etc/passwd");
        assert_eq!(normal("/tmp/x"), "/tmp/x");
        assert_eq!(normal("."), ".");
        assert_eq!(normal("/workspacex"), "/workspacex");
    }
}
