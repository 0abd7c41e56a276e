//! Path patterns as the workspace room reads them too.

use globset::{GlobBuilder, GlobMatcher};

use super::Error;

/// Path patterns in order: a later `!pattern` takes a path out again; one without `/` matches at any
/// depth, one that begins with `/` at the top alone, and a folder covers what is in it. The workspace
/// room reads the same patterns for the last check of a result; both must agree.
#[derive(Clone, Debug, Default)]
pub struct Globs {
    patterns: Vec<(bool, Vec<GlobMatcher>)>,
}

impl Globs {
    /// Compiles them; `of` names their key in the error.
    pub fn new(of: &'static str, patterns: &[String]) -> Result<Self, Error> {
        let mut compiled = Vec::new();
        for pattern in patterns {
            let (takes_in, body) = match pattern.strip_prefix('!') {
                Some(body) => (false, body),
                None => (true, pattern.as_str()),
            };
            let body = body.trim_end_matches('/');
            let body = match body.strip_prefix('/').or_else(|| body.strip_prefix("./")) {
                Some(anchored) => anchored.to_string(),
                None if body.contains('/') || body == "**" => body.to_string(),
                None => format!("**/{body}"),
            };
            let mut matchers = Vec::new();
            for form in [body.clone(), format!("{body}/**")] {
                let glob = GlobBuilder::new(&form).literal_separator(true).build();
                let glob = glob.map_err(|error| Error::Pattern {
                    of,
                    pattern: pattern.clone(),
                    reason: error.kind().to_string(),
                })?;
                matchers.push(glob.compile_matcher());
            }
            compiled.push((takes_in, matchers));
        }
        Ok(Self { patterns: compiled })
    }

    /// Does the last pattern that matches the path take it in?
    pub fn covers(&self, path: &str) -> bool {
        let last = self
            .patterns
            .iter()
            .rev()
            .find(|(_, forms)| forms.iter().any(|m| m.is_match(path)));
        last.is_some_and(|(takes_in, _)| *takes_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_exclamation_takes_a_path_out_of_protection() {
        let list = ["tests/**", "conftest.py", "!tests/new/**"].map(String::from);
        let globs = Globs::new("protect", &list).unwrap();
        assert!(globs.covers("tests/a.py") && globs.covers("tests/x/b.py"));
        assert!(globs.covers("a/b/conftest.py"));
        assert!(!globs.covers("tests/new/c.py") && !globs.covers("src/a.py"));
        assert!(
            Globs::new("protect", &["tests".to_string()])
                .unwrap()
                .covers("tests/deep/a.py")
        );
        assert!(Globs::new("protect", &["a[".to_string()]).is_err());
    }
}
