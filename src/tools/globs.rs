//! Path patterns as the workspace room reads them too.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::Error;

/// Path patterns in order: a later `!pattern` takes a path out again; one without `/` matches at any
/// depth, one that begins with `/` at the top alone, and a folder covers what is in it. The workspace
/// room reads the same patterns for the last check of a result; both must agree.
#[derive(Clone, Debug, Default)]
pub struct Globs {
    set: GlobSet,
    /// For each pattern of the set, whether it takes a path in.
    takes_in: Vec<bool>,
}

impl Globs {
    /// Compiles them; `of` names their key in the error.
    pub fn new(of: &'static str, patterns: &[String]) -> Result<Self, Error> {
        let refused = |pattern: &String, error: &globset::Error| Error::Pattern {
            of,
            pattern: pattern.clone(),
            reason: error.kind().to_string(),
        };
        let mut set = GlobSetBuilder::new();
        let mut takes_in = Vec::new();
        for pattern in patterns {
            let (taken, body) = match pattern.strip_prefix('!') {
                Some(body) => (false, body),
                None => (true, pattern.as_str()),
            };
            let body = body.trim_end_matches('/');
            let body = match body.strip_prefix('/').or_else(|| body.strip_prefix("./")) {
                Some(anchored) => anchored.to_string(),
                None if body.contains('/') || body == "**" => body.to_string(),
                None => format!("**/{body}"),
            };
            for form in [body.clone(), format!("{body}/**")] {
                let glob = GlobBuilder::new(&form).literal_separator(true).build();
                set.add(glob.map_err(|error| refused(pattern, &error))?);
                takes_in.push(taken);
            }
        }
        let set = set
            .build()
            .map_err(|error| refused(&patterns.join(" "), &error))?;
        Ok(Self { set, takes_in })
    }

    /// Does the last pattern that matches the path take it in?
    pub fn covers(&self, path: &str) -> bool {
        let last = self.set.matches(path).into_iter().max();
        last.is_some_and(|last| self.takes_in.get(last).copied().unwrap_or_default())
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
