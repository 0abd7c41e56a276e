//! Programs that an acceptance command starts, by its text alone. Arguments start nothing.

use std::collections::BTreeSet;

use crate::tools::commands;

/// What runs the module that follows `-m`.
const INTERPRETERS: [&str; 4] = ["python", "pypy", "py", "coverage"];

/// Their names in lower case, those of Python's modules among them. Of a line that cannot be read whole,
/// any word may be one.
pub(super) fn of(command: &str) -> BTreeSet<String> {
    let line = commands::read(command);
    let mut found = BTreeSet::new();
    for form in line.parts.iter().flat_map(|part| &part.forms) {
        found.extend(started(form));
    }
    if line.obscure {
        found.extend(words(command).filter(|word| !word.starts_with('-')));
    }
    let bare = |word: &&str| !word.contains(['/', '.', '$']) && !word.starts_with('-');
    found
        .into_iter()
        .map(|word| word.trim_start_matches("./"))
        .filter(bare)
        .map(str::to_lowercase)
        .collect()
}

/// The words of a line, in whatever quotes.
pub(super) fn words(command: &str) -> impl Iterator<Item = &str> {
    let apart = |c: char| c.is_whitespace() || ";|&()<>'\"`$".contains(c);
    command.split(apart).filter(|word| !word.is_empty())
}

/// Those of one command: its first word, and what an interpreter or a tool that prepares its surroundings
/// is told to run.
fn started(form: &str) -> BTreeSet<&str> {
    let words: Vec<&str> = form
        .split_whitespace()
        .skip_while(|word| word.contains('='))
        .collect();
    let mut found: BTreeSet<&str> = words.first().copied().into_iter().collect();
    let interpreter = words.iter().position(|word| {
        let name = word.rsplit('/').next().unwrap_or(word);
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        INTERPRETERS.contains(&name)
    });
    if let Some(at) = interpreter {
        let mut rest = words[at..].iter();
        let module = match rest.find_map(|word| word.strip_prefix("-m")) {
            Some("") => rest.next().copied(),
            glued => glued,
        };
        found.extend(module.and_then(|module| module.split('.').next()));
    }
    for pair in words.windows(2) {
        if ["run", "exec"].contains(&pair[0]) {
            found.insert(pair[1]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_starts_is_told_from_what_it_is_given() {
        let started = |command: &str| of(command).into_iter().collect::<Vec<_>>().join(" ");
        for (command, want) in [
            (
                "python3 -m compileall -q src && PYTHONPATH=src python3 -m pytest -q tests",
                "compileall pytest python3",
            ),
            ("pytest -m slow src", "pytest"),
            ("cd src && python3.11 -mpytest -m slow -q", "cd pytest"),
            ("python3 -W error -m app.check x", "app python3"),
            ("uv run pytest -q app", "pytest uv"),
            (
                "timeout 60 env A=1 bash -c 'coverage run -m pytest app'",
                "bash coverage env pytest timeout",
            ),
            ("make lint; ./scripts/check.sh all", "make"),
            (
                "find . -name x -exec python3 -m nose {} ;",
                "find nose python3",
            ),
            ("$RUNNER app", "app runner"),
        ] {
            assert_eq!(started(command), want, "{command}");
        }
    }
}
