//! Path patterns of `workspace.hide`, `workspace.include` and `protect`, and what they match.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::{Error, Source, path};

/// An ordered list of patterns; a later `!pattern` takes out what earlier ones matched.
pub struct Globs {
    set: GlobSet,
    /// For each pattern, whether it takes out.
    takes_out: Vec<bool>,
}

impl Globs {
    /// Reads patterns: without a slash they match at any depth, `*` stays within a folder.
    pub fn new(patterns: &[String]) -> Result<Self, Error> {
        let mut set = GlobSetBuilder::new();
        for text in patterns {
            set.add(glob(text).map_err(|error| refused(text, &error))?);
        }
        Ok(Self {
            set: set
                .build()
                .map_err(|error| refused(&patterns.join(" "), &error))?,
            takes_out: patterns.iter().map(|text| text.starts_with('!')).collect(),
        })
    }

    /// True when the path, or a folder above it, is matched and not taken out again.
    pub fn matches(&self, path: &[u8]) -> bool {
        let last = self.covering(path).max();
        last.is_some_and(|last| !self.takes_out[last])
    }

    /// True when a pattern matches the path and a later `!pattern` takes it out.
    pub fn takes_out(&self, path: &[u8]) -> bool {
        let taken_in = self.covering(path).any(|n| !self.takes_out[n]);
        taken_in && !self.matches(path)
    }

    /// The numbers of the patterns that take in and match none of these paths nor a folder above one.
    pub fn idle<'a>(&self, paths: impl Iterator<Item = &'a [u8]>) -> Vec<usize> {
        let all = 0..self.takes_out.len();
        let mut idle: Vec<usize> = all.filter(|&n| !self.takes_out[n]).collect();
        for path in paths {
            if idle.is_empty() {
                break;
            }
            let matched: Vec<usize> = self.covering(path).collect();
            idle.retain(|n| !matched.contains(n));
        }
        idle
    }

    /// The numbers of the patterns that match the path or a folder above it.
    fn covering(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        std::iter::once(path)
            .chain(path::parents(path))
            .flat_map(|part| self.set.matches(path::as_path(part)))
    }
}

/// What is kept from agents: `hide`, less what `include` names.
pub(super) struct Withheld {
    hide: Globs,
    include: Globs,
}

impl Withheld {
    pub fn of(source: &Source) -> Result<Self, Error> {
        Ok(Self {
            hide: Globs::new(&source.hide)?,
            include: Globs::new(&source.include)?,
        })
    }

    /// True for a path that agents do not see.
    pub fn holds(&self, path: &[u8]) -> bool {
        self.hide.matches(path) && !self.include.matches(path)
    }

    /// True for a path that would be withheld if nobody had asked for it.
    pub fn shows(&self, path: &[u8]) -> bool {
        self.hide.matches(path) && self.include.matches(path)
    }

    /// True for a path of `hide`, asked for or not.
    pub fn hides(&self, path: &[u8]) -> bool {
        self.hide.matches(path)
    }
}

fn glob(text: &str) -> Result<Glob, globset::Error> {
    let body = text.strip_prefix('!').unwrap_or(text);
    let body = body.trim_end_matches('/');
    let pattern = match body.strip_prefix('/').or_else(|| body.strip_prefix("./")) {
        Some(anchored) => anchored.to_owned(),
        None if body.contains('/') => body.to_owned(),
        None => format!("**/{body}"),
    };
    GlobBuilder::new(&pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
}

fn refused(pattern: &str, error: &globset::Error) -> Error {
    Error::Refused {
        what: format!("the pattern `{pattern}` cannot be read: {}", error.kind()),
        hint: "patterns use *, **, ?, [a-z] and {a,b}".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(patterns: &[&str]) -> Globs {
        let patterns: Vec<String> = patterns.iter().map(|&text| text.to_owned()).collect();
        Globs::new(&patterns).unwrap()
    }

    #[test]
    fn a_name_without_slash_matches_at_any_depth() {
        let hide = globs(&[".env*", "*.pem", "**/.ssh/**", "**/secrets/**"]);
        for hidden in [
            ".env",
            "a/b/.env.local",
            "x/key.pem",
            ".ssh/id",
            "a/secrets/b/c",
            ".env.d/x",
        ] {
            assert!(hide.matches(hidden.as_bytes()), "{hidden}");
        }
        for shown in ["env", "a.env", "pem", "secrets", "a/secretsx/b"] {
            assert!(!hide.matches(shown.as_bytes()), "{shown}");
        }
        assert!(hide.matches(b"\xff/.env"));
    }

    #[test]
    fn later_exclamation_takes_out() {
        let protect = globs(&["tests/**", "!tests/new/**", "/top.txt"]);
        assert!(protect.matches(b"tests/a.py"));
        assert!(!protect.matches(b"tests/new/a.py"));
        assert!(protect.matches(b"top.txt"));
        assert!(!protect.matches(b"a/top.txt"));
        assert!(!protect.matches(b"src/tests/a.py"));
        assert!(protect.takes_out(b"tests/new/a.py"));
        assert!(!protect.takes_out(b"tests/a.py") && !protect.takes_out(b"a/top.txt"));
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_idle_and_one_that_takes_out_never() {
        let protect = globs(&[
            "tests/**",
            "Tests/**",
            "!none/**",
            "*.lock",
            "docs",
            "deep/x.py",
        ]);
        let paths: [&[u8]; 3] = [b"tests/a.py", b"docs/x/y.md", b"src/\xff"];
        assert_eq!(protect.idle(paths.into_iter()), [1, 3, 5]);
        assert_eq!(protect.idle([].into_iter()), [0, 1, 3, 4, 5]);
    }

    #[test]
    fn an_unreadable_pattern_is_refused() {
        assert!(Globs::new(&["a[".to_owned()]).is_err());
    }
}
