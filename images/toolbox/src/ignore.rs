//! Which new paths are nobody's work: `.gitignore` rules, and what tools leave behind.
//!
//! The rules are git's: the last one that matches holds, `!` takes back, a slash before the end
//! binds a pattern to the folder of its file, a slash at the end means folders only.

use crate::record::MAX_PATH;

/// One line of a `.gitignore`.
#[derive(Clone, Debug)]
struct Rule {
    /// Path of the file's folder, with a slash at its end unless empty.
    base: Vec<u8>,
    glob: String,
    takes_back: bool,
    folders_only: bool,
    /// Held against the path beneath `base`, else against the name.
    bound: bool,
}

/// The rules that hold in one folder, outer ones first.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are, for `truncate` when a folder is left.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets the rules of the folders that were left.
    pub fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// Adds the rules of the `.gitignore` in `folder` (relative, without a slash at the end).
    pub fn add(&mut self, folder: &[u8], text: &[u8]) {
        let base = if folder.is_empty() {
            Vec::new()
        } else {
            [folder, b"/"].concat()
        };
        let text = String::from_utf8_lossy(text);
        self.0
            .extend(text.lines().filter_map(|line| Rule::of(&base, line)));
    }

    /// True when the last rule that matches leaves the path out.
    pub fn leave_out(&self, path: &[u8], folder: bool) -> bool {
        self.judge(path, folder) == Some(true)
    }

    /// Whether the last rule that matches leaves the path out or takes it back; None when none matches.
    pub fn judge(&self, path: &[u8], folder: bool) -> Option<bool> {
        let last = self.0.iter().rev().find(|rule| rule.matches(path, folder));
        last.map(|rule| !rule.takes_back)
    }
}

impl Rule {
    fn of(base: &[u8], line: &str) -> Option<Rule> {
        let line = line.trim_end_matches('\r');
        // Spaces at the end do not count unless the last is escaped.
        let bare = line.trim_end_matches(' ');
        let line = if bare.ends_with('\\') && bare.len() < line.len() {
            &line[..=bare.len()]
        } else {
            bare
        };
        if line.is_empty() || line.starts_with('#') || line.len() > MAX_PATH {
            return None;
        }
        let (takes_back, line) = line
            .strip_prefix('!')
            .map_or((false, line), |rest| (true, rest));
        let (folders_only, line) = line
            .strip_suffix('/')
            .map_or((false, line), |rest| (true, rest));
        let bound = line.contains('/');
        let line = line.strip_prefix('/').unwrap_or(line);
        if line.is_empty() {
            return None;
        }
        let glob = line.replace('{', "\\{").replace('}', "\\}");
        // In a glob a leading `!` would turn its meaning round; in a rule it is a character here.
        let glob = if glob.starts_with('!') {
            format!("\\{glob}")
        } else {
            glob
        };
        Some(Rule {
            base: base.to_vec(),
            glob,
            takes_back,
            folders_only,
            bound,
        })
    }

    fn matches(&self, path: &[u8], folder: bool) -> bool {
        if self.folders_only && !folder {
            return false;
        }
        let Some(rest) = path.strip_prefix(self.base.as_slice()) else {
            return false;
        };
        let name = rest.rsplit(|&byte| byte == b'/').next().unwrap_or(rest);
        fast_glob::glob_match(&self.glob, if self.bound { rest } else { name })
    }
}

/// Folders that tools make anew, whatever the rules say.
pub fn junk_folder(name: &[u8], holds: &dyn Fn(&str) -> bool) -> bool {
    match name {
        b"__pycache__" | b"node_modules" | b".pytest_cache" => true,
        b"target" => holds("CACHEDIR.TAG") || holds(".rustc_info.json"),
        _ => false,
    }
}

/// Files that tools make anew.
pub fn junk_file(name: &[u8]) -> bool {
    name.ends_with(b".pyc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(text: &str, path: &str) -> bool {
        let mut rules = Rules::default();
        rules.add(b"", text.as_bytes());
        let (path, folder) = path
            .strip_suffix('/')
            .map_or((path, false), |rest| (rest, true));
        rules.leave_out(path.as_bytes(), folder)
    }

    #[test]
    fn rules_mean_what_git_means() {
        assert!(left_out("*.log", "a/b.log") && left_out("build/", "x/build/"));
        assert!(!left_out("build/", "build") && !left_out("/build", "x/build"));
        assert!(left_out("/build", "build") && left_out("a/*.o", "a/b.o"));
        assert!(!left_out("a/*.o", "x/a/b.o") && left_out("a/**/b", "a/x/y/b"));
        assert!(!left_out("*.log\n!keep.log", "keep.log") && left_out("!x\nx", "x"));
        assert!(!left_out("# x", "# x") && left_out("\\#x", "#x") && left_out("x  ", "x"));
        assert!(left_out("{a}", "{a}") && !left_out("{a,b}", "a") && left_out("\\!a", "!a"));
        assert!(!left_out("", "a") && !left_out("/", "a/"));
    }

    #[test]
    fn a_nested_file_rules_its_own_folder_only() {
        let mut rules = Rules::default();
        let outer = rules.len();
        rules.add(b"sub", b"*.tmp\n/only");
        assert!(rules.leave_out(b"sub/x/a.tmp", false) && rules.leave_out(b"sub/only", false));
        assert!(!rules.leave_out(b"a.tmp", false) && !rules.leave_out(b"sub/x/only", false));
        rules.truncate(outer);
        assert!(!rules.leave_out(b"sub/a.tmp", false));
    }
}
