//! What kind of project a directory holds, for the suggestions of a first plan.

use std::path::Path;

/// Suggestions for a plan file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// `python`, `rust`, `node`, `go`, `maven`, `gradle`, `make`, `empty`, or `unknown`.
    pub kind: &'static str,
    pub image: &'static str,
    pub setup: Vec<&'static str>,
    pub acceptance: Vec<&'static str>,
    /// Where its tests are, when they are apart.
    pub protect: Vec<&'static str>,
}

/// Looks at the names of the files at the top of `dir`, and into a Makefile; runs nothing.
pub fn detect(dir: &Path) -> Project {
    let has = |name: &str| dir.join(name).exists();
    let mut project = language(&has).unwrap_or_else(|| other(dir));
    if has("tests") {
        project.protect.insert(0, "tests/**");
    }
    project
}

/// By the file that each language's own tool reads.
fn language(has: &dyn Fn(&str) -> bool) -> Option<Project> {
    let any = |names: &[&str]| names.iter().any(|name| has(name));
    Some(if has("Cargo.toml") {
        let locked = has("Cargo.lock");
        let fetch = if locked {
            "cargo fetch --locked"
        } else {
            "cargo fetch"
        };
        Project::of(
            "rust",
            "rust:1-bookworm",
            &[fetch],
            &["cargo test --offline"],
        )
    } else if has("go.mod") {
        let test = "go test ./...";
        let go = Project::of("go", "golang:1-bookworm", &["go mod download"], &[test]);
        go.protecting("**/*_test.go")
    } else if has("pom.xml") {
        let image = "maven:3-eclipse-temurin-21";
        // A setup command sees the files of the workspace that it names.
        let fetch = "mvn -q -B -f pom.xml dependency:go-offline";
        Project::of("maven", image, &[fetch], &["mvn -q -B -o test"]).protecting("src/test/**")
    } else if any(&["build.gradle", "build.gradle.kts"]) {
        // What fetches without building is each project's own.
        let test = "gradle --no-daemon --offline test";
        Project::of("gradle", "gradle:8-jdk21", &[], &[test]).protecting("src/test/**")
    } else if has("package.json") {
        let locked = has("package-lock.json");
        let install = if locked { "npm ci" } else { "npm install" };
        Project::of("node", "node:22-bookworm", &[install], &["npm test"])
    } else if any(&["pyproject.toml", "setup.py", "requirements.txt"]) {
        let install: &[&str] = match has("requirements.txt") {
            true => &["pip install -r requirements.txt"],
            false => &[],
        };
        Project::of("python", "wharf/python", install, &["python3 -m pytest -q"])
    } else {
        return None;
    })
}

fn other(dir: &Path) -> Project {
    let make = ["GNUmakefile", "makefile", "Makefile"].into_iter();
    let make = make
        .filter_map(|name| std::fs::read_to_string(dir.join(name)).ok())
        .next();
    match make {
        Some(text) => {
            let test: &[&str] = match has_target(&text, "test") {
                true => &["make test"],
                false => &[],
            };
            Project::of("make", "wharf/base", &[], test)
        }
        None if is_empty(dir) => Project::of("empty", "wharf/python", &[], &[]),
        None => Project::of("unknown", "wharf/base", &[], &[]),
    }
}

/// True when there is nothing but a repository; what cannot be listed is not empty.
fn is_empty(dir: &Path) -> bool {
    let nothing = |name: &std::ffi::OsStr| name == ".git" || name == "wharf.yaml";
    std::fs::read_dir(dir).is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| nothing(&entry.file_name())))
    })
}

/// True when a Makefile has a rule for a target, also as one of several.
fn has_target(makefile: &str, wanted: &str) -> bool {
    let rules = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#', '.']));
    let mut rules = rules.filter_map(|line| line.split_once(':'));
    rules.any(|(names, after)| {
        !after.starts_with('=') && names.split_whitespace().any(|name| name == wanted)
    })
}

impl Project {
    fn of(
        kind: &'static str,
        image: &'static str,
        setup: &[&'static str],
        acceptance: &[&'static str],
    ) -> Self {
        Self {
            kind,
            image,
            setup: setup.to_vec(),
            acceptance: acceptance.to_vec(),
            protect: Vec::new(),
        }
    }

    fn protecting(mut self, pattern: &'static str) -> Self {
        self.protect.push(pattern);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_at_the_top_tell_the_kind() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(detect(dir.path()).kind, "empty");
        std::fs::write(dir.path().join("notes"), "").unwrap();
        assert_eq!(detect(dir.path()).kind, "unknown");
        std::fs::write(dir.path().join("requirements.txt"), "").unwrap();
        std::fs::create_dir(dir.path().join("tests")).unwrap();
        let python = detect(dir.path());
        assert_eq!((python.kind, python.protect), ("python", vec!["tests/**"]));
        assert_eq!(python.setup, ["pip install -r requirements.txt"]);
        std::fs::write(dir.path().join("package.json"), "{}").unwrap();
        assert_eq!(detect(dir.path()).setup, ["npm install"]);
        std::fs::write(dir.path().join("Cargo.toml"), "").unwrap();
        let rust = detect(dir.path());
        assert_eq!((rust.kind, rust.setup), ("rust", vec!["cargo fetch"]));
        std::fs::write(dir.path().join("Cargo.lock"), "").unwrap();
        assert_eq!(detect(dir.path()).setup, ["cargo fetch --locked"]);
    }

    #[test]
    fn other_languages_and_a_makefile_have_a_command_that_tests() {
        let of = |name: &str, text: &str| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(name), text).unwrap();
            detect(dir.path())
        };
        for (name, kind, test) in [
            ("go.mod", "go", "go test ./..."),
            ("pom.xml", "maven", "mvn -q -B -o test"),
            (
                "build.gradle.kts",
                "gradle",
                "gradle --no-daemon --offline test",
            ),
        ] {
            let project = of(name, "");
            assert_eq!((project.kind, project.acceptance), (kind, vec![test]));
        }
        let make = of("Makefile", "CC := cc\n.PHONY: test\nall test: x\n\tcc x\n");
        assert_eq!((make.kind, make.acceptance), ("make", vec!["make test"]));
        let none = of(
            "Makefile",
            ".PHONY: test\ntest := 1\nall: test\n\techo test: no\n",
        );
        assert_eq!((none.kind, none.acceptance.len()), ("make", 0));
    }
}
