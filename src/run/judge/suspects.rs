//! Changed files that decide what is checked, listed as such: a pure classifier, and its reading of both
//! sides. What weakens a check is a hint for the verifier, never a verdict of its own.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::id::CommitId;
use crate::run::end::summary::ChangedCheck;
use crate::run::judge::programs;
use crate::run::shared::Shared;
use crate::workspace::{self, DifferenceStatus, Globs, display};

/// The patterns and words, a line each; its head says how to read it.
const TABLE: &str = include_str!("suspects.txt");

/// What became of a file that the base does not have.
pub(in crate::run) const ADDED: &str = "added";

/// Kinds that follow from the acceptance commands.
const NAMED: &str = "named by an acceptance command";
const LIKE_A_PROGRAM: &str = "named like a program that an acceptance command starts";
const LIKE_A_MODULE: &str = "named like a module of Python's library";
const LIKE_OUR_MODULE: &str = "named like a module of the workspace";

/// Files of a change whose contents are compared, and the largest of them in bytes.
const FILES: usize = 100;
const LARGEST: usize = 1 << 20;

/// Changed files that decide what is checked, between the base and a result.
pub(in crate::run) async fn of(
    shared: &Shared,
    merged: &CommitId,
) -> Result<Vec<Suspect>, workspace::Error> {
    let base = &shared.base.commit;
    let differences = shared.store.differences(base, merged).await?;
    let commands = shared.plan.acceptance.commands.iter();
    let commands: Vec<&str> = commands.map(|command| command.run.as_str()).collect();
    let mut table = Table::new(&commands)?;
    table.over(&shared.base_paths);
    let (mut found, mut read) = (Vec::new(), 0);
    for difference in differences {
        let path = &difference.path;
        let kind = table.kind(path);
        let language = table.language(path);
        let notes = match language {
            Some(language) if read < FILES => {
                read += 1;
                let old = shared.store.blob(base, path).await?;
                let new = shared.store.blob(merged, path).await?;
                match (text(old.as_deref()), text(new.as_deref())) {
                    (Ok(old), Ok(new)) => {
                        let place = if kind.is_some() {
                            Place::Check
                        } else {
                            Place::Code
                        };
                        table.compare(language, place, &old, &new)
                    }
                    _ => vec!["too large to be compared".to_owned()],
                }
            }
            Some(_) => vec!["not compared: more files changed than are looked into".to_owned()],
            None => Vec::new(),
        };
        let kind = match kind {
            Some(kind) => kind,
            // What is no check itself matters only by the words in it.
            None if read <= FILES && notes.iter().any(|note| !note.starts_with("not compared")) => {
                "code"
            }
            None => continue,
        };
        found.push(Suspect {
            speaks: table.speaks(path, kind, difference.status, &notes),
            path: path.clone(),
            check: ChangedCheck {
                path: display(path),
                change: word(difference.status).to_owned(),
                kind: kind.to_owned(),
                notes,
            },
        });
    }
    Ok(found)
}

/// A changed check.
pub(in crate::run) struct Suspect {
    pub path: Vec<u8>,
    pub check: ChangedCheck,
    /// The commands can run with the base's version of it: what the old check says of the new code.
    pub speaks: bool,
}

fn word(status: DifferenceStatus) -> &'static str {
    match status {
        DifferenceStatus::Added => ADDED,
        DifferenceStatus::Changed => "changed",
        DifferenceStatus::Deleted => "removed",
        DifferenceStatus::ModeChanged => "mode",
    }
}

/// A file's text; nothing where there is none, `Err` for one that is too large.
fn text(bytes: Option<&[u8]>) -> Result<String, ()> {
    match bytes {
        Some(bytes) if bytes.len() > LARGEST => Err(()),
        bytes => Ok(String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()),
    }
}

/// Where a file stands: most words weaken only what is a check itself.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Check,
    Code,
}

/// The table, read once a process: its patterns take longer to read than most changes to look at.
struct Known {
    endings: Vec<(&'static str, Globs)>,
    files: Vec<(&'static str, Globs)>,
    manifests: Vec<Globs>,
    modules: BTreeSet<&'static str>,
    words: Vec<Word>,
}

/// The table, and what the acceptance commands add to it.
struct Table {
    known: &'static Known,
    /// Programs that acceptance commands start, and paths that they name.
    programs: BTreeSet<String>,
    named: BTreeSet<String>,
    /// Modules of Python that the base has beside its tests, in lower case.
    own: BTreeSet<String>,
    /// All of the base's files of Python, in lower case.
    there: BTreeSet<String>,
}

struct Word {
    sign: &'static str,
    language: &'static str,
    text: &'static str,
}

impl Known {
    fn get() -> Result<&'static Self, workspace::Error> {
        static KNOWN: OnceLock<Known> = OnceLock::new();
        match KNOWN.get() {
            Some(known) => Ok(known),
            None => {
                let read = Self::read()?;
                Ok(KNOWN.get_or_init(|| read))
            }
        }
    }

    fn read() -> Result<Self, workspace::Error> {
        let mut known = Self {
            endings: Vec::new(),
            files: Vec::new(),
            manifests: Vec::new(),
            modules: BTreeSet::new(),
            words: Vec::new(),
        };
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let globs = |rest: &str| {
                let patterns: Vec<String> = rest.split(' ').map(str::to_owned).collect();
                Globs::new(&patterns)
            };
            let mut parts = line.splitn(4, ' ');
            match (parts.next(), parts.next(), parts.next(), parts.next()) {
                (Some("file"), Some(kind), Some(_), Some(rest)) => {
                    known.files.push((kind, globs(rest)?));
                }
                (Some("word"), Some(sign), Some(language), Some(text)) => known.words.push(Word {
                    sign,
                    language,
                    text,
                }),
                (Some("ending"), Some(language), _, _) => {
                    let rest = line.splitn(3, ' ').nth(2).unwrap_or_default();
                    known.endings.push((language, globs(rest)?));
                }
                (Some("module"), ..) => known.modules.extend(line.split(' ').skip(1)),
                (Some("manifest"), ..) => {
                    let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
                    known.manifests.push(globs(rest)?);
                }
                _ => {}
            }
        }
        Ok(known)
    }
}

impl Table {
    fn new(commands: &[&str]) -> Result<Self, workspace::Error> {
        let mut table = Self {
            known: Known::get()?,
            programs: BTreeSet::new(),
            named: BTreeSet::new(),
            own: BTreeSet::new(),
            there: BTreeSet::new(),
        };
        commands.iter().for_each(|command| table.note(command));
        Ok(table)
    }

    /// True where the base's version can stand in the new one's place: tests, and what runs around
    /// them or chooses them. A file that says what the code needs is left as it is, unless it weakens
    /// a check. What is new and is no test is taken out.
    fn speaks(&self, path: &[u8], kind: &str, status: DifferenceStatus, notes: &[String]) -> bool {
        let added = matches!(status, DifferenceStatus::Added);
        let lower = path.to_ascii_lowercase();
        let manifest = self.known.manifests.iter().any(|m| m.matches(&lower));
        match kind {
            _ if manifest => !added && notes.iter().any(|note| !note.starts_with("not compared")),
            "test" | NAMED => !added,
            LIKE_A_MODULE | LIKE_OUR_MODULE => added,
            "hook" | "config" | "build" | LIKE_A_PROGRAM => true,
            _ => false,
        }
    }

    /// Takes in what a command line starts and names.
    fn note(&mut self, command: &str) {
        self.programs.extend(programs::of(command));
        let named =
            programs::words(command).map(|word| word.trim_start_matches("./").to_lowercase());
        self.named
            .extend(named.filter(|word| word.contains(['/', '.'])));
    }

    /// Takes in what the base has itself: its modules, which a command that starts one of them means, so
    /// that a file in it stands before no other.
    fn over(&mut self, base: &BTreeSet<String>) {
        for path in base.iter().filter(|path| path.ends_with(".py")) {
            let path = path.to_lowercase();
            if self.file(path.as_bytes()) != Some("test") {
                self.own.extend(module(&path).map(str::to_owned));
            }
            self.there.insert(path);
        }
        self.programs.retain(|program| {
            let folder = format!("{program}/");
            let below = base.range(folder.clone()..);
            let mut below = below.take_while(|path| path.starts_with(&folder));
            !below.any(|path| path.ends_with(".py"))
        });
    }

    /// What a changed file is to the checks; None for one that decides nothing.
    fn kind(&self, path: &[u8]) -> Option<&'static str> {
        let lower = path.to_ascii_lowercase();
        let shown = String::from_utf8_lossy(&lower);
        if self.named.contains(shown.as_ref()) {
            return Some(NAMED);
        }
        // At the top or in a folder of programs, such a file or module stands before the real one.
        let (folder, name) = shown.rsplit_once('/').unwrap_or(("", &shown));
        let folder_name = shown.split('/').next().unwrap_or_default();
        let stem = name.split('.').next().unwrap_or_default();
        let first = folder.is_empty() || folder == "bin" || folder.ends_with("/bin");
        if first && self.programs.contains(stem) && is_program(name) {
            return Some(LIKE_A_PROGRAM);
        }
        let found = self.file(&lower);
        let started = shown.ends_with(".py") && self.programs.contains(folder_name);
        if started && found.is_none() {
            return Some(LIKE_A_PROGRAM);
        }
        // Python looks at the top and beside a test before it looks into its own library.
        let modules = &self.known.modules;
        let beside = folder.is_empty() || found == Some("test");
        match name.strip_suffix(".py") {
            Some("__init__") if modules.contains(folder) => Some(LIKE_A_MODULE),
            Some(stem) if beside && modules.contains(stem) => Some(LIKE_A_MODULE),
            Some(_) if found == Some("test") && !self.there.contains(shown.as_ref()) => {
                // A test's folder comes before the rest, too.
                let ours = module(&shown).is_some_and(|name| self.own.contains(name));
                if ours { Some(LIKE_OUR_MODULE) } else { found }
            }
            _ => found,
        }
    }

    /// What the table says of a path in lower case.
    fn file(&self, lower: &[u8]) -> Option<&'static str> {
        let found = self
            .known
            .files
            .iter()
            .find(|(_, globs)| globs.matches(lower));
        found.map(|(kind, _)| *kind)
    }

    fn language(&self, path: &[u8]) -> Option<&'static str> {
        let lower = path.to_ascii_lowercase();
        let found = self
            .known
            .endings
            .iter()
            .find(|(_, globs)| globs.matches(&lower));
        found.map(|(language, _)| *language)
    }

    /// What of a file's content weakens a check. Rust's tests stand in the code that they test.
    fn compare(&self, language: &str, place: Place, old: &str, new: &str) -> Vec<String> {
        let mut notes = Vec::new();
        for (sign, what) in [("case", "tests"), ("assert", "checks")] {
            let (before, now) = (
                self.lines(sign, language, old).len(),
                self.lines(sign, language, new).len(),
            );
            let counts = place == Place::Check || (sign, language) == ("case", "rust");
            if now < before && counts {
                notes.push(format!("fewer {what}: {before} before, {now} now"));
            }
        }
        for (sign, what) in [
            ("skip", "skips or narrows tests"),
            ("hollow", "a check that cannot fail"),
            ("quit", "an end that looks like success"),
            ("steer", "steers which tests run or what they report"),
        ] {
            let (before, now) = (
                self.lines(sign, language, old),
                self.lines(sign, language, new),
            );
            // In other languages such words are common where nothing is tested.
            let plain = ["python", "rust", "go", "jvm"].contains(&language);
            let counts = place == Place::Check || sign == "hollow" || sign == "skip" && plain;
            if now.len() > before.len() && counts {
                let known: BTreeSet<&str> = before.into_iter().collect();
                let fresh = now.iter().find(|line| !known.contains(*line));
                let line: String = fresh.unwrap_or(&now[0]).chars().take(80).collect();
                notes.push(format!("{what}: `{line}`"));
            }
        }
        notes
    }

    /// The lines that hold a word of a sign, as they stand.
    fn lines<'t>(&self, sign: &str, language: &str, text: &'t str) -> Vec<&'t str> {
        let words = self.known.words.iter();
        let words = words.filter(|word| word.sign == sign && word.language == language);
        let words: Vec<&str> = words.map(|word| word.text).collect();
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| words.iter().any(|word| line.contains(word)))
            .collect()
    }
}

/// The module that a file of Python is, by its name alone.
fn module(path: &str) -> Option<&str> {
    let path = path.strip_suffix(".py")?;
    let path = path.strip_suffix("/__init__").unwrap_or(path);
    path.rsplit('/').next().filter(|name| *name != "__init__")
}

/// Without an ending, or with one that a program or module may have.
fn is_program(name: &str) -> bool {
    match name.rsplit_once('.') {
        None => true,
        Some((_, ending)) => ["py", "sh", "js", "exe", "bat", "cmd"].contains(&ending),
    }
}

/// One changed check in a line.
pub(in crate::run) fn line(check: &ChangedCheck) -> String {
    let ChangedCheck {
        path, change, kind, ..
    } = check;
    let notes = match check.notes.as_slice() {
        [] => String::new(),
        notes => format!("; {}", notes.join("; ")),
    };
    format!("{change} {path} ({kind}){notes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(&["python3 -m pytest -q", "./scripts/check.sh && make lint"]).unwrap()
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = TABLE
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let lines = lines.filter(|line| !line.starts_with("module "));
        let known = table().known;
        assert!(known.modules.contains("abc") && known.modules.contains("zoneinfo"));
        let read =
            known.endings.len() + known.files.len() + known.words.len() + known.manifests.len();
        assert_eq!(read, lines.count());
        let languages: BTreeSet<&str> = known.endings.iter().map(|(l, _)| *l).collect();
        for word in &known.words {
            assert!(languages.contains(word.language), "{}", word.text);
            let signs = ["case", "assert", "skip", "hollow", "quit", "steer"];
            assert!(signs.contains(&word.sign), "{}", word.text);
        }
    }

    #[test]
    fn the_base_s_version_speaks_for_checks_and_not_for_what_the_code_needs() {
        let table = table();
        let speaks = |path: &str, status, notes: &[&str]| {
            let notes: Vec<String> = notes.iter().map(|&note| note.to_owned()).collect();
            let kind = table.kind(path.as_bytes()).unwrap_or("code");
            table.speaks(path.as_bytes(), kind, status, &notes)
        };
        use DifferenceStatus::{Added, Changed, Deleted};
        for (path, status) in [
            ("tests/a.py", Changed),
            ("tests/a.py", Deleted),
            ("conftest.py", Added),
            ("pytest.ini", Added),
            ("Makefile", Changed),
            ("scripts/check.sh", Changed),
            ("pytest.py", Added),
            ("tests/conftest.py", Added),
            ("json.py", Added),
            ("tests/ast.py", Added),
            ("typing/__init__.py", Added),
        ] {
            assert!(speaks(path, status, &[]), "{path}");
        }
        for (path, status) in [
            ("tests/new.py", Added),
            ("scripts/check.sh", Added),
            ("Cargo.toml", Changed),
            ("package.json", Changed),
            (".envrc", Changed),
            (".github/workflows/ci.yml", Changed),
            ("src/a.py", Changed),
            ("json.py", Changed),
            ("src/json.py", Added),
            ("json/a.py", Added),
        ] {
            assert!(!speaks(path, status, &[]), "{path}");
        }
        assert!(speaks(
            "package.json",
            Changed,
            &["an end that looks like success: `exit 0`"]
        ));
    }

    #[test]
    fn what_decides_is_known_in_every_language() {
        let table = table();
        let cases = [
            ("tests/a.py", "test"),
            ("a/test_x.py", "test"),
            ("x_test.go", "test"),
            ("app/a.spec.ts", "test"),
            ("src/it/FooTest.java", "test"),
            ("conftest.py", "hook"),
            ("tests/conftest.py", "hook"),
            ("lib/sitecustomize.py", "hook"),
            ("x.pth", "hook"),
            ("build.rs", "hook"),
            ("pyproject.toml", "config"),
            ("sub/package.json", "config"),
            ("Cargo.toml", "config"),
            (".cargo/config.toml", "config"),
            ("vite.config.ts", "config"),
            (".github/workflows/ci.yml", "ci"),
            ("Makefile", "build"),
            (".envrc", "environment"),
            (".gitattributes", "environment"),
            ("scripts/check.sh", "named by an acceptance command"),
            (
                "pytest.py",
                "named like a program that an acceptance command starts",
            ),
            (
                "pytest/__init__.py",
                "named like a program that an acceptance command starts",
            ),
            (
                "bin/python3",
                "named like a program that an acceptance command starts",
            ),
        ];
        for (path, kind) in cases {
            assert_eq!(table.kind(path.as_bytes()), Some(kind), "{path}");
        }
        for path in [
            "src/a.py",
            "latest.txt",
            "contest.py",
            "docs/testing.md",
            "src/make.rs",
        ] {
            assert_eq!(table.kind(path.as_bytes()), None, "{path}");
        }
    }

    /// What a path is, under one command and over these files of the base.
    fn like(command: &str, base: &[&str], path: &str) -> Option<&'static str> {
        let mut table = Table::new(&[command]).unwrap();
        table.over(&base.iter().map(|&path| path.to_owned()).collect());
        table.kind(path.as_bytes())
    }

    #[test]
    fn what_a_command_is_given_is_no_program() {
        for (command, path, kind) in [
            (
                "python3 -m compileall -q src && PYTHONPATH=src python3 -m pytest -q tests",
                "src/a.py",
                None,
            ),
            (
                "python3 -m compileall -q src && PYTHONPATH=src python3 -m pytest -q tests",
                "pytest/__init__.py",
                Some(LIKE_A_PROGRAM),
            ),
            (
                "python3 -m compileall -q src && PYTHONPATH=src python3 -m pytest -q tests",
                "compileall/a.py",
                Some(LIKE_A_PROGRAM),
            ),
            ("pytest -q tests", "tests/test_new.py", Some("test")),
            ("pytest -q tests", "tests/helpers.py", Some("test")),
            ("pytest -m slow src", "slow/a.py", None),
            ("pytest -q", "pytest/x.py", Some(LIKE_A_PROGRAM)),
            ("cd src && python3 -mpytest -q", "src/a.py", None),
            (
                "cd src && python3 -mpytest -q",
                "pytest/a.py",
                Some(LIKE_A_PROGRAM),
            ),
            ("uv run pytest -q app", "pytest.sh", Some(LIKE_A_PROGRAM)),
            ("uv run pytest -q app", "app/a.py", None),
            (
                "timeout 60 env A=1 bash -c 'coverage run -m pytest app'",
                "pytest/a.py",
                Some(LIKE_A_PROGRAM),
            ),
            (
                "timeout 60 env A=1 bash -c 'coverage run -m pytest app'",
                "app/a.py",
                None,
            ),
            ("make lint", "bin/make", Some(LIKE_A_PROGRAM)),
            // Which of them it starts is not known.
            ("$RUNNER app", "app/a.py", Some(LIKE_A_PROGRAM)),
        ] {
            assert_eq!(like(command, &[], path), kind, "{command}: {path}");
        }
    }

    #[test]
    fn a_new_module_beside_tests_is_no_test_where_the_workspace_has_one_of_its_name() {
        let base = ["app.py", "src/pkg/__init__.py", "tests/util.py", "util.py"];
        for (path, kind) in [
            ("tests/app.py", LIKE_OUR_MODULE),
            ("tests/pkg/__init__.py", LIKE_OUR_MODULE),
            ("tests/util.py", "test"),
            ("tests/test_app.py", "test"),
            ("tests/new.py", "test"),
        ] {
            assert_eq!(like("pytest -q", &base, path), Some(kind), "{path}");
        }
        // The module that is meant is the workspace's own.
        let base = ["app/__init__.py", "app/a.py", "appendix/b.py"];
        assert_eq!(like("python3 -m app", &base, "app/new.py"), None);
        assert_eq!(
            like("python3 -m app", &base[2..], "app/new.py"),
            Some(LIKE_A_PROGRAM)
        );
    }

    /// Language, before, after, what is said.
    const WEAKENED: &[(&str, &str, &str, &str)] = &[
        (
            "python",
            "def test_a():\n  assert add(1, 2) == 3\n",
            "def test_a():\n  assert True\n",
            "cannot fail: `assert True`",
        ),
        (
            "python",
            "def test_a():\n  assert x\n",
            "",
            "fewer tests: 1 before, 0 now; fewer checks: 1 before, 0 now",
        ),
        (
            "python",
            "",
            "import pytest\n@pytest.mark.skip\ndef test_a(): pass\n",
            "narrows tests: `@pytest.mark.skip`",
        ),
        (
            "python",
            "",
            "def pytest_collection_modifyitems(items):\n  items.clear()\n",
            "steers which tests run",
        ),
        (
            "python",
            "",
            "import sys; sys.exit(0)\n",
            "looks like success: `import sys; sys.exit(0)`",
        ),
        (
            "rust",
            "#[test]\nfn a() {}\n",
            "#[test]\n#[ignore]\nfn a() {}\n",
            "`#[ignore]`",
        ),
        (
            "js",
            "it('a', f)\n",
            "it.only('b', f)\nit('a', f)\n",
            ".only('b', f)`",
        ),
        (
            "go",
            "",
            "func TestA(t *testing.T) {\n t.Skip()\n}\n",
            "`t.Skip()`",
        ),
        (
            "shell",
            "test: \n\tpytest\n",
            "test:\n\tpytest || true\n",
            "`pytest || true`",
        ),
    ];

    #[test]
    fn words_that_weaken_a_check_are_found_and_older_ones_are_not() {
        let table = table();
        let notes = |language, old, new| table.compare(language, Place::Check, old, new).join("; ");
        for &(language, old, new, want) in WEAKENED {
            let said = notes(language, old, new);
            assert!(said.contains(want), "{want} in {said}");
        }
        let old = "@pytest.mark.skip\ndef test_a():\n  assert True\n";
        assert_eq!(
            notes(
                "python",
                old,
                &format!("{old}\ndef test_b():\n  assert f()\n")
            ),
            ""
        );
        // A program may end itself; a helper of tests may not skip them.
        let code = |new| table.compare("python", Place::Code, "", new);
        assert_eq!(code("sys.exit(0)\nassert x\n"), [""; 0]);
        assert_eq!(code("raise SkipTest\n").len(), 1);
    }
}
