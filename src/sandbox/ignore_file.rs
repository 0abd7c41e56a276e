//! `.dockerignore` as docker reads it: one pattern a line, the last that fits decides, `!` takes back,
//! and what stands under a folder that is left out is left out with it.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// The patterns of a file.
#[derive(Default)]
pub(super) struct IgnoreFile {
    /// In order, each with whether it takes back.
    patterns: Vec<(GlobMatcher, bool)>,
}

impl IgnoreFile {
    /// Reads a file's text; a pattern that cannot be read is told by its line.
    pub(super) fn read(text: &str) -> Result<IgnoreFile, String> {
        let mut patterns = Vec::new();
        let text = text.trim_start_matches('\u{feff}');
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (line, back) = match line.strip_prefix('!') {
                Some(rest) => (rest.trim(), true),
                None => (line, false),
            };
            let plain = cleaned(line);
            if plain.is_empty() {
                continue;
            }
            let glob = GlobBuilder::new(&plain)
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            let glob = glob.map_err(|error| format!(".dockerignore:{}: {error}", number + 1))?;
            patterns.push((glob.compile_matcher(), back));
        }
        Ok(IgnoreFile { patterns })
    }

    /// Whether a path of the context is left out.
    pub(super) fn leaves_out(&self, path: &Path) -> bool {
        let mut out = false;
        for (pattern, back) in &self.patterns {
            let fits = path
                .ancestors()
                .filter(|part| !part.as_os_str().is_empty())
                .any(|part| pattern.is_match(part));
            if fits {
                out = !back;
            }
        }
        out
    }

    /// Whether something under a folder that is left out may be in again.
    pub(super) fn takes_back(&self) -> bool {
        self.patterns.iter().any(|(_, back)| *back)
    }
}

/// A pattern without what only says where it begins; alternatives in braces are no part of the format.
fn cleaned(pattern: &str) -> String {
    let parts = pattern.split('/');
    let parts: Vec<&str> = parts
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    parts.join("/").replace('{', "[{]").replace('}', "[}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(text: &str) -> impl Fn(&str) -> bool {
        let file = IgnoreFile::read(text).unwrap();
        move |path: &str| file.leaves_out(Path::new(path))
    }

    #[test]
    fn patterns_stand_at_the_top_and_cover_what_is_below() {
        let out = out("# a comment\n\n/target\n*.log\n./docs/\n");
        assert!(out("target") && out("target/debug/x") && out("a.log") && out("docs/x"));
        assert!(!out("src/target") && !out("src/a.log") && !out("targets"));
    }

    #[test]
    fn stars_stop_at_folders_and_two_of_them_do_not() {
        let out = out("*/temp*\n**/*.o\na?c\n");
        assert!(out("x/temporary") && out("deep/er/x.o") && out("x.o") && out("abc"));
        assert!(!out("x/y/temp") && !out("a/c"));
    }

    #[test]
    fn the_last_that_fits_decides() {
        let all = out("*\n!src\nsrc/secret\n");
        assert!(all("x") && all("src/secret") && !all("src/a") && !all("src"));
        let readme = out("*.md\n!README.md\n");
        assert!(readme("a.md") && !readme("README.md"));
    }

    #[test]
    fn braces_are_letters_and_a_broken_pattern_is_named() {
        assert!(out("a{b}")("a{b}") && !out("{a,b}")("a"));
        let fault = IgnoreFile::read("x\n[a").err().unwrap();
        assert!(fault.starts_with(".dockerignore:2: "), "{fault}");
    }
}
