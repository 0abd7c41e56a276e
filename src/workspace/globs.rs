//! Path patterns of `workspace.hide`, `workspace.include` and `protect`, and what they match.

use globset::{GlobBuilder, GlobMatcher};

use super::{Error, Source, path};

/// An ordered list of patterns; a later `!pattern` takes out what earlier ones matched.
pub struct Globs(Vec<Rule>);

struct Rule {
    matcher: GlobMatcher,
    takes_out: bool,
}

impl Globs {
    /// Reads patterns: without a slash they match at any depth, `*` stays within a folder.
    pub fn new(patterns: &[String]) -> Result<Self, Error> {
        patterns
            .iter()
            .map(|text| rule(text))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// True when the path, or a folder above it, is matched and not taken out again.
    pub fn matches(&self, path: &[u8]) -> bool {
        let mut matched = false;
        for rule in &self.0 {
            if matched == rule.takes_out && rule.covers(path) {
                matched = !matched;
            }
        }
        matched
    }

    /// True when a pattern matches the path and a later `!pattern` takes it out.
    pub fn takes_out(&self, path: &[u8]) -> bool {
        let taken_in = self
            .0
            .iter()
            .any(|rule| !rule.takes_out && rule.covers(path));
        taken_in && !self.matches(path)
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

impl Rule {
    fn covers(&self, path: &[u8]) -> bool {
        std::iter::once(path)
            .chain(path::parents(path))
            .any(|part| self.matcher.is_match(path::as_path(part)))
    }
}

fn rule(text: &str) -> Result<Rule, Error> {
    let (takes_out, body) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let body = body.trim_end_matches('/');
    let pattern = match body.strip_prefix('/').or_else(|| body.strip_prefix("./")) {
        Some(anchored) => anchored.to_owned(),
        None if body.contains('/') => body.to_owned(),
        None => format!("**/{body}"),
    };
    let glob = GlobBuilder::new(&pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| Error::Refused {
            what: format!("the pattern `{text}` cannot be read: {}", error.kind()),
            hint: "patterns use *, **, ?, [a-z] and {a,b}".into(),
        })?;
    Ok(Rule {
        matcher: glob.compile_matcher(),
        takes_out,
    })
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
    fn an_unreadable_pattern_is_refused() {
        assert!(Globs::new(&["a[".to_owned()]).is_err());
    }
}
