//! Globs and regular expressions as agents write them, and paths as lines of text.

/// A glob over paths relative to the workspace.
pub struct Glob {
    pattern: String,
    /// Without a slash it is held against the last component, at any depth.
    name_only: bool,
    /// Without wildcards it also names everything beneath a folder.
    folder: Option<String>,
}

impl Glob {
    /// A pattern of `list`: held against the whole path.
    pub fn path(pattern: &str) -> Result<Glob, String> {
        let pattern = relative(pattern);
        fast_glob::validate(pattern).map_err(|e| format!("bad glob {pattern:?}: {e}"))?;
        let folder = (!pattern.contains(['*', '?', '[', '{']))
            .then(|| pattern.trim_end_matches('/'))
            .map(|folder| {
                if matches!(folder, "." | "") {
                    String::new()
                } else {
                    format!("{folder}/")
                }
            });
        Ok(Glob {
            pattern: pattern.to_owned(),
            name_only: false,
            folder,
        })
    }

    /// A pattern of `grep`: without a slash it is held against the name alone.
    pub fn name(pattern: &str) -> Result<Glob, String> {
        let mut glob = Glob::path(pattern)?;
        glob.name_only = !glob.pattern.contains('/');
        Ok(glob)
    }

    /// True when the path is meant.
    pub fn matches(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let held = if self.name_only { name } else { path };
        fast_glob::glob_match(&self.pattern, held)
            || self
                .folder
                .as_ref()
                .is_some_and(|folder| path.starts_with(folder.as_bytes()))
    }
}

fn relative(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix("/workspace/").unwrap_or(pattern);
    let pattern = if pattern == "/workspace" {
        "."
    } else {
        pattern
    };
    pattern.strip_prefix("./").unwrap_or(pattern)
}

/// Lines of one file that match, as `path:line:text`; a file with a NUL in its first 8 KiB is
/// binary and has none. `put` says whether there is room for more.
pub fn search(
    regex: &regex_lite::Regex,
    path: &[u8],
    content: &[u8],
    put: &mut dyn FnMut(String) -> bool,
) -> bool {
    if content.iter().take(8192).any(|&byte| byte == 0) {
        return true;
    }
    let text = String::from_utf8_lossy(content);
    for (at, line) in text.lines().enumerate() {
        if regex.is_match(line) {
            let line: String = cut(line);
            if !put(format!("{}:{}:{line}", shown(path), at + 1)) {
                return false;
            }
        }
    }
    true
}

/// A regular expression, or what to tell the agent.
pub fn regex(pattern: &str) -> Result<regex_lite::Regex, String> {
    regex_lite::Regex::new(pattern).map_err(|e| format!("bad regular expression: {e}"))
}

fn cut(line: &str) -> String {
    const LONG: usize = 500;
    match line.char_indices().nth(LONG) {
        Some((at, _)) => format!("{}… ({} bytes cut)", &line[..at], line.len() - at),
        None => line.to_owned(),
    }
}

/// A path as one line of text: control characters and bytes that are no UTF-8 become `\xNN`.
pub fn shown(path: &[u8]) -> String {
    let mut out = String::new();
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                out.extend(c.to_string().bytes().map(|byte| format!("\\x{byte:02x}")));
            } else {
                out.push(c);
            }
        }
        out.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_mean_what_agents_expect() {
        let list =
            |pattern: &str, path: &str| Glob::path(pattern).unwrap().matches(path.as_bytes());
        assert!(list("**/*.rs", "src/a.rs") && list("**/*.rs", "a.rs"));
        assert!(list("*.rs", "a.rs") && !list("*.rs", "src/a.rs"));
        assert!(list("src", "src/a.rs") && list("/workspace/src/", "src/a/b") && list(".", "x/y"));
        assert!(!list("src", "src2/a.rs"));
        let name = Glob::name("*.rs").unwrap();
        assert!(name.matches(b"src/a.rs") && !name.matches(b"a.rs/b"));
        assert!(Glob::path("a[").is_err());
    }

    #[test]
    fn odd_names_are_one_line_of_text() {
        assert_eq!(shown(b"a\n\xff\x1b"), "a\\x0a\\xff\\x1b");
        assert_eq!(shown("ü-rf".as_bytes()), "ü-rf");
    }

    #[test]
    fn binary_files_have_no_lines_and_long_lines_are_cut() {
        let regex = regex("x+").unwrap();
        let mut lines = Vec::new();
        search(&regex, b"b", b"x\0x", &mut |line| {
            lines.push(line);
            true
        });
        assert!(lines.is_empty());
        search(
            &regex,
            b"t",
            &[b"a\n".as_slice(), &[b'x'; 900]].concat(),
            &mut |line| {
                lines.push(line);
                true
            },
        );
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("t:2:xxx") && lines[0].ends_with("(400 bytes cut)"));
    }
}
