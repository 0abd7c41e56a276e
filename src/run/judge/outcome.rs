//! What the end of an acceptance command is worth: pure. Only an exit code that says something counts.

use crate::journal::{CommandRun, TestCount, WithBase};

/// What one command says of the tree it ran at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) enum Outcome {
    Passed,
    Failed(String),
    /// It says nothing, and why.
    Unknown(String),
}

/// The status of a shell that found no such program, and of one that may not start it.
const ABSENT: [i32; 2] = [126, 127];

/// What pytest exits with when it collected no test.
const PYTEST_NOTHING: i32 = 5;

/// Weighs a command's end; `at_base` is the same command at the base, where that was run.
pub(in crate::run) fn of(run: &CommandRun, at_base: Option<&CommandRun>) -> Outcome {
    let line = &run.command;
    let Some(code) = run.exit_code else {
        let note = run.note.as_deref();
        let note = note.unwrap_or("its exit code is not known");
        return Outcome::Unknown(format!("`{line}`: {note}"));
    };
    if ABSENT.contains(&code) {
        // A program that is there at the base was taken away by the change.
        let there = at_base.and_then(|base| base.exit_code);
        return match there.is_some_and(|code| !ABSENT.contains(&code)) {
            true => Outcome::Failed(format!(
                "`{line}` could be run at the base and exits with {code} now"
            )),
            false => Outcome::Unknown(format!(
                "`{line}` could not be run: exit code {code} says that there is no such program; \
                 `sandbox.setup` can install it"
            )),
        };
    }
    if is_empty(run) {
        let before = at_base.and_then(|base| base.tests.as_ref());
        let before = before.map_or(0, |tests| tests.collected);
        return match (code, before) {
            (0, _) | (_, 0) => Outcome::Unknown(format!("`{line}` collected no tests")),
            (code, before) => Outcome::Failed(format!(
                "`{line}` exited with {code}: it collected no tests, and {before} at the base"
            )),
        };
    }
    match code {
        0 => match untested(run, at_base) {
            Some(why) => Outcome::Unknown(format!("`{line}` {why}")),
            None => Outcome::Passed,
        },
        code => Outcome::Failed(format!("`{line}` exited with {code}")),
    }
}

/// Why an exit code of 0 says nothing: tests failed, no test ran, or none is told of where some were at the
/// base.
fn untested(run: &CommandRun, at_base: Option<&CommandRun>) -> Option<String> {
    let ran = |tests: &TestCount| tests.collected.saturating_sub(tests.skipped);
    let before = at_base.and_then(|base| base.tests.as_ref()).map_or(0, ran);
    match &run.tests {
        Some(tests) if tests.failed > 0 => Some(format!(
            "exited with 0, and its output counts {} of {} tests that failed",
            tests.failed, tests.collected
        )),
        Some(tests) if tests.collected > 0 && ran(tests) == 0 => {
            Some(format!("skipped all of its {} tests", tests.collected))
        }
        None if before > 0 => Some(format!(
            "ran {before} tests at the base and tells of none now"
        )),
        _ => None,
    }
}

/// True when a test runner ran and found nothing to run.
fn is_empty(run: &CommandRun) -> bool {
    match &run.tests {
        Some(tests) => tests.collected == 0,
        None => run.exit_code == Some(PYTEST_NOTHING) && run.command.contains("pytest"),
    }
}

/// Words of command lines that run tests, whose output may have stopped saying so.
const RUNNERS: [&str; 16] = [
    "pytest",
    "unittest",
    "cargo test",
    "nextest",
    "go test",
    "node --test",
    "npm ",
    "yarn ",
    "pnpm ",
    "jest",
    "vitest",
    "make",
    "just ",
    "tox",
    "mvn",
    "gradle",
];

/// True when the same command at the base would tell more.
pub(in crate::run) fn asks_for_base(run: &CommandRun) -> bool {
    run.tests.is_some()
        || RUNNERS.iter().any(|runner| run.command.contains(runner))
        || is_empty(run)
        || run.exit_code.is_some_and(|code| ABSENT.contains(&code))
}

/// All commands together, each with its run at the base.
pub(in crate::run) fn all(runs: &[CommandRun], at_base: &[CommandRun]) -> Vec<Outcome> {
    let before = |n: usize| at_base.get(n);
    let runs = runs.iter().enumerate();
    runs.map(|(n, run)| of(run, before(n))).collect()
}

/// What a comparison with the base's tests shows to their disadvantage, a sentence a command.
pub(in crate::run) fn losses(runs: &[CommandRun], at_base: &[CommandRun]) -> Vec<String> {
    let both = runs.iter().zip(at_base);
    let both = both.filter(|(now, before)| now.command == before.command);
    both.filter_map(|(now, before)| loss(now, before)).collect()
}

/// Commands that pass with the changed checks alone, a sentence each.
pub(in crate::run) fn doubts(runs: &[CommandRun], with: &WithBase) -> Vec<String> {
    let both = runs.iter().zip(&with.commands);
    let both = both.filter(|(now, _)| of(now, None) == Outcome::Passed);
    let told = both.filter_map(|(now, then)| {
        let why = match of(then, None) {
            Outcome::Passed => return None,
            Outcome::Failed(why) | Outcome::Unknown(why) => why,
        };
        Some(format!(
            "`{}` passes only with what was changed of {}: with the base's version, {why}",
            now.command,
            with.paths.join(", ")
        ))
    });
    told.collect()
}

fn loss(now: &CommandRun, before: &CommandRun) -> Option<String> {
    let line = &now.command;
    let was = before.tests.as_ref()?;
    let Some(is) = now.tests.as_ref() else {
        return Some(format!(
            "`{line}` said of {} tests at the base and says of none now",
            was.collected
        ));
    };
    let mut said = Vec::new();
    if is.collected < was.collected {
        said.push(format!(
            "collected {} tests at the base and {} now",
            was.collected, is.collected
        ));
    }
    if is.skipped > was.skipped {
        said.push(format!(
            "skipped {} at the base and {} now",
            was.skipped, is.skipped
        ));
    }
    (!said.is_empty()).then(|| format!("`{line}` {}", said.join(", and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_of_0_says_nothing_where_no_test_ran() {
        let at = |now, before| {
            let (now, before) = (run("pytest", Some(0), now), run("pytest", Some(1), before));
            of(&now, Some(&before))
        };
        let unknown = |outcome| matches!(outcome, Outcome::Unknown(_));
        assert!(unknown(at(Some((2, 2)), Some((2, 0)))), "all are skipped");
        assert!(
            unknown(at(Some((2, 2)), Some((2, 2)))),
            "all were skipped before too"
        );
        assert!(unknown(at(None, Some((2, 0)))), "none is told of");
        assert_eq!(at(Some((2, 1)), Some((2, 0))), Outcome::Passed);
        assert_eq!(at(None, Some((2, 2))), Outcome::Passed);
        assert_eq!(at(None, None), Outcome::Passed);
    }

    #[test]
    fn an_exit_code_of_0_beside_tests_that_failed_is_no_pass() {
        let with = |code, failed| {
            let mut now = run("pytest | tail -3", Some(code), Some((2, 0)));
            let tests = now.tests.as_mut().unwrap();
            (tests.failed, tests.passed) = (failed, 2 - failed);
            word(&of(&now, None))
        };
        assert_eq!(with(0, 0), "passed");
        assert_eq!(with(0, 1), "unknown");
        assert_eq!(with(1, 1), "failed");
    }

    fn run(command: &str, exit_code: Option<i32>, tests: Option<(u64, u64)>) -> CommandRun {
        CommandRun {
            command: command.to_owned(),
            exit_code,
            seconds: 0.1,
            output_tail: String::new(),
            note: None,
            tests: tests.map(|(collected, skipped)| TestCount {
                collected,
                skipped,
                ..TestCount::default()
            }),
        }
    }

    fn word(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "failed",
            Outcome::Unknown(_) => "unknown",
        }
    }

    #[test]
    fn an_exit_code_counts_only_when_it_says_something() {
        let cases = [
            (run("make", Some(0), None), None, "passed"),
            (run("make", Some(5), None), None, "failed"),
            (run("make", None, None), None, "unknown"),
            (run("make", Some(127), None), None, "unknown"),
            (run("make", Some(126), None), None, "unknown"),
            // It was there before the change.
            (
                run("./check", Some(127), None),
                Some(run("./check", Some(1), None)),
                "failed",
            ),
            (
                run("./check", Some(127), None),
                Some(run("./check", Some(127), None)),
                "unknown",
            ),
            (
                run("./check", Some(127), None),
                Some(run("./check", None, None)),
                "unknown",
            ),
            (run("pytest", Some(5), None), None, "unknown"),
            (
                run("pytest", Some(5), Some((0, 0))),
                Some(run("pytest", Some(0), Some((3, 0)))),
                "failed",
            ),
            (
                run("pytest", Some(5), Some((0, 0))),
                Some(run("pytest", Some(5), Some((0, 0)))),
                "unknown",
            ),
            // An old unittest says OK to nothing at all.
            (
                run("python -m unittest", Some(0), Some((0, 0))),
                None,
                "unknown",
            ),
            (
                run("cargo test", Some(0), Some((0, 0))),
                Some(run("cargo test", Some(0), Some((3, 0)))),
                "unknown",
            ),
            (run("cargo test", Some(0), Some((2, 2))), None, "unknown"),
            (run("cargo test", Some(101), Some((2, 0))), None, "failed"),
        ];
        for (now, before, want) in cases {
            assert_eq!(word(&of(&now, before.as_ref())), want, "{now:?} {before:?}");
        }
    }

    #[test]
    fn fewer_tests_and_more_skipped_ones_are_losses() {
        let now = [
            run("a", Some(0), Some((4, 2))),
            run("b", Some(0), Some((5, 0))),
            run("c", Some(0), None),
            run("d", Some(0), Some((1, 0))),
        ];
        let before = [
            run("a", Some(1), Some((5, 1))),
            run("b", Some(1), Some((5, 1))),
            run("c", Some(1), Some((2, 0))),
            run("d", Some(1), None),
        ];
        let want = [
            "`a` collected 5 tests at the base and 4 now, and skipped 1 at the base and 2 now",
            "`c` said of 2 tests at the base and says of none now",
        ];
        assert_eq!(losses(&now, &before), want);
        assert_eq!(losses(&now, &[]), [""; 0]);
    }
}
