//! What kind of project a directory holds, for the suggestions of a first plan.

use std::path::Path;

/// Suggestions for a plan file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// `python`, `rust`, `node`, or `unknown`.
    pub kind: &'static str,
    pub image: &'static str,
    pub setup: Vec<&'static str>,
    pub acceptance: Vec<&'static str>,
    /// Where its tests are, when they are apart.
    pub protect: Vec<&'static str>,
}

/// Looks at the names of the files at the top of `dir`; runs nothing.
pub fn detect(dir: &Path) -> Project {
    let has = |name: &str| dir.join(name).exists();
    let protect = if has("tests") {
        vec!["tests/**"]
    } else {
        Vec::new()
    };
    if has("Cargo.toml") {
        return Project {
            kind: "rust",
            image: "rust:1-bookworm",
            setup: vec!["cargo fetch --locked"],
            acceptance: vec!["cargo test --offline"],
            protect,
        };
    }
    if has("package.json") {
        let locked = has("package-lock.json");
        return Project {
            kind: "node",
            image: "node:22-bookworm",
            setup: vec![if locked { "npm ci" } else { "npm install" }],
            acceptance: vec!["npm test"],
            protect,
        };
    }
    let python = ["pyproject.toml", "setup.py", "requirements.txt"]
        .into_iter()
        .any(has);
    if python {
        let setup = if has("requirements.txt") {
            vec!["pip install -r requirements.txt"]
        } else {
            Vec::new()
        };
        return Project {
            kind: "python",
            image: "wharf/python",
            setup,
            acceptance: vec!["python3 -m pytest -q"],
            protect,
        };
    }
    Project {
        kind: "unknown",
        image: "wharf/base",
        setup: Vec::new(),
        acceptance: Vec::new(),
        protect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_at_the_top_tell_the_kind() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(detect(dir.path()).kind, "unknown");
        std::fs::write(dir.path().join("requirements.txt"), "").unwrap();
        std::fs::create_dir(dir.path().join("tests")).unwrap();
        let python = detect(dir.path());
        assert_eq!((python.kind, python.protect), ("python", vec!["tests/**"]));
        assert_eq!(python.setup, ["pip install -r requirements.txt"]);
        std::fs::write(dir.path().join("package.json"), "{}").unwrap();
        assert_eq!(detect(dir.path()).setup, ["npm install"]);
        std::fs::write(dir.path().join("Cargo.toml"), "").unwrap();
        assert_eq!(detect(dir.path()).kind, "rust");
    }
}
