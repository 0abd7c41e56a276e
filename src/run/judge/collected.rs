//! How many tests a command ran, as far as its own output says it: pure.
//!
//! Read are the last words of pytest, unittest, cargo test, go test, node's runner and jest. A program
//! can print such words itself, so a count never makes a pass; it only takes one away or warns.

use crate::journal::TestCount;

/// What the output says of tests; None when no runner's words are in it.
pub(in crate::run) fn of(output: &str) -> Option<TestCount> {
    let plain = without_colours(output);
    let lines: Vec<&str> = plain.lines().map(str::trim_end).collect();
    let readers: [(&str, Reader); 6] = [
        ("pytest", pytest),
        ("unittest", unittest),
        ("cargo test", cargo),
        ("go test", go),
        ("node", node),
        ("jest", jest),
    ];
    let mut count: Option<TestCount> = None;
    for (name, read) in readers {
        if let Some(said) = read(&lines) {
            let count = count.get_or_insert_default();
            count.runners.push(name.to_owned());
            count.collected += said.passed + said.failed + said.skipped;
            count.passed += said.passed;
            count.failed += said.failed;
            count.skipped += said.skipped;
        }
    }
    count
}

/// Reads what one runner says in these lines.
type Reader = fn(&[&str]) -> Option<Said>;

#[derive(Default)]
struct Said {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Takes out the escape sequences that colour a terminal.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.next_if_eq(&'[').is_some() {
            // Up to the letter that ends the sequence.
            while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
        } else {
            plain.push(c);
        }
    }
    plain
}

/// `=== 1 failed, 4 passed, 2 skipped in 0.12s ===`, with -q the same without its frame.
fn pytest(lines: &[&str]) -> Option<Said> {
    let mut said: Option<Said> = None;
    for line in lines {
        let line = line.trim_matches(|c| c == '=' || c == ' ');
        let Some((counts, time)) = line.rsplit_once(" in ") else {
            continue;
        };
        let seconds = time.split('s').next().unwrap_or_default();
        if seconds.parse::<f64>().is_err() {
            continue;
        }
        if counts == "no tests ran" {
            said.get_or_insert_default();
            continue;
        }
        if let Some(found) = counted(counts, ", ") {
            let said = said.get_or_insert_default();
            said.passed += found.passed;
            said.failed += found.failed;
            said.skipped += found.skipped;
        }
    }
    said
}

/// `1 failed, 4 passed`; None when a part is no count of a known word.
fn counted(text: &str, between: &str) -> Option<Said> {
    let mut said = Said::default();
    for part in text.split(between) {
        let (number, word) = part.trim().split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        match word {
            "passed" | "xpassed" | "subtests passed" => said.passed += number,
            "failed" | "error" | "errors" => said.failed += number,
            "skipped" | "xfailed" | "ignored" | "todo" => said.skipped += number,
            "deselected" | "warning" | "warnings" | "rerun" | "total" | "measured"
            | "filtered out" => {}
            _ => return None,
        }
    }
    Some(said)
}

/// `Ran 5 tests in 0.001s`, then `OK (skipped=1)` or `FAILED (failures=1, errors=2)`, or since Python
/// 3.12 `NO TESTS RAN`.
fn unittest(lines: &[&str]) -> Option<Said> {
    let mut said: Option<Said> = None;
    let mut ran = 0;
    for line in lines {
        if let Some(rest) = line.strip_prefix("Ran ") {
            let number = rest.split(' ').next().unwrap_or_default();
            if let (Ok(number), true) = (number.parse(), rest.contains(" test")) {
                ran = number;
                said.get_or_insert_default().passed += ran;
            }
            continue;
        }
        let ends = ["OK (", "FAILED ("]
            .iter()
            .find_map(|end| line.strip_prefix(end));
        if let (Some(rest), Some(said)) = (ends, said.as_mut()) {
            let rest = rest.trim_end_matches(')');
            let parts = rest.split(", ").filter_map(|part| part.split_once('='));
            for (word, number) in parts {
                let number = number.parse::<u64>().unwrap_or_default().min(ran);
                match word {
                    "failures" | "errors" => said.failed += number,
                    "skipped" | "expected failures" => said.skipped += number,
                    _ => continue,
                }
                ran -= number;
                said.passed = said.passed.saturating_sub(number);
            }
        }
    }
    said
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s`, one
/// for each binary.
fn cargo(lines: &[&str]) -> Option<Said> {
    let mut said: Option<Said> = None;
    for line in lines {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            continue;
        };
        let counts = counts.split("; finished in").next().unwrap_or_default();
        if let Some(found) = counted(counts, "; ") {
            let said = said.get_or_insert_default();
            said.passed += found.passed;
            said.failed += found.failed;
            said.skipped += found.skipped;
        }
    }
    said
}

/// Tests by name with -v; without it only whether a package has any.
fn go(lines: &[&str]) -> Option<Said> {
    let (mut said, mut seen, mut empty) = (Said::default(), false, false);
    for line in lines {
        let line = line.trim_start();
        let result = line.strip_prefix("--- ").and_then(|r| r.split_once(": "));
        match result.map(|(word, _)| word) {
            Some("PASS") => said.passed += 1,
            Some("FAIL") => said.failed += 1,
            Some("SKIP") => said.skipped += 1,
            _ => {}
        }
        seen |= matches!(result, Some(("PASS" | "FAIL" | "SKIP", _)));
        let none = line.ends_with("[no test files]") || line.ends_with("[no tests to run]");
        empty |= none;
        // A package that was tested without -v: how many tests it has is not said.
        if line.starts_with("ok  \t") && !none && !seen {
            return None;
        }
    }
    (seen || empty).then_some(said)
}

/// `# tests 5`, `# pass 4` and so on, or with the spec reporter `ℹ tests 5`.
fn node(lines: &[&str]) -> Option<Said> {
    let (mut said, mut seen) = (Said::default(), false);
    for line in lines {
        let Some(rest) = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ ")) else {
            continue;
        };
        let Some((word, number)) = rest.split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse::<u64>() else {
            continue;
        };
        match word {
            "tests" => seen = true,
            "pass" => said.passed += number,
            "fail" | "cancelled" => said.failed += number,
            "skipped" | "todo" => said.skipped += number,
            _ => {}
        }
    }
    seen.then_some(said)
}

/// `Tests:       1 failed, 1 skipped, 3 passed, 5 total`; `No tests found`.
fn jest(lines: &[&str]) -> Option<Said> {
    let mut said: Option<Said> = None;
    for line in lines {
        if let Some(counts) = line.strip_prefix("Tests: ")
            && let Some(found) = counted(counts.trim(), ", ")
        {
            let said = said.get_or_insert_default();
            said.passed += found.passed;
            said.failed += found.failed;
            said.skipped += found.skipped;
        } else if line.starts_with("No tests found") {
            said.get_or_insert_default();
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(output: &str) -> Option<(u64, u64, u64, u64)> {
        of(output).map(|c| (c.collected, c.passed, c.failed, c.skipped))
    }

    #[test]
    fn each_runner_s_last_words_are_read() {
        let cases = [
            (
                "..F\n=== 1 failed, 4 passed, 2 skipped in 0.12s ===\n",
                (7, 4, 1, 2),
            ),
            (
                "\u{1b}[32m5 passed\u{1b}[0m, 1 warning in 61.02s (0:01:01)\n",
                (5, 5, 0, 0),
            ),
            ("no tests ran in 0.00s\n", (0, 0, 0, 0)),
            ("3 deselected in 0.01s\n", (0, 0, 0, 0)),
            (
                "1 passed in 0.1s\nthen\n2 passed, 1 xfailed in 0.2s\n",
                (4, 3, 0, 1),
            ),
            (
                "Ran 5 tests in 0.001s\n\nFAILED (failures=1, skipped=2)\n",
                (5, 2, 1, 2),
            ),
            ("Ran 0 tests in 0.000s\n\nOK\n", (0, 0, 0, 0)),
            ("Ran 0 tests in 0.000s\n\nNO TESTS RAN\n", (0, 0, 0, 0)),
            (
                "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s\n\n\
                 test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n",
                (9, 6, 2, 1),
            ),
            (
                "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- SKIP: TestA/b (0.00s)\nok  \tx\t0.1s\n",
                (2, 1, 0, 1),
            ),
            ("?   \tx\t[no test files]\n", (0, 0, 0, 0)),
            ("ok  \tx\t0.1s [no tests to run]\n", (0, 0, 0, 0)),
            (
                "# tests 4\n# suites 0\n# pass 2\n# fail 1\n# cancelled 0\n# skipped 1\n# todo 0\n",
                (4, 2, 1, 1),
            ),
            ("ℹ tests 1\nℹ pass 1\nℹ fail 0\n", (1, 1, 0, 0)),
            (
                "Tests:       1 failed, 1 skipped, 3 passed, 5 total\n",
                (5, 3, 1, 1),
            ),
            ("No tests found, exiting with code 1\n", (0, 0, 0, 0)),
        ];
        for (output, want) in cases {
            assert_eq!(counts(output), Some(want), "{output}");
        }
    }

    #[test]
    fn what_no_runner_said_is_no_count() {
        let others = [
            "",
            "all good\n",
            "5 passed\n",
            "5 passed in a row\n",
            "3 dogs passed in 2s\n",
            "ok  \tx\t0.1s\n?   \ty\t[no test files]\n",
            "# tests are good\n",
            "Ran away\n",
        ];
        for output in others {
            assert_eq!(of(output), None, "{output}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[\\x1b\\[a-z0-9=# :;,.()\n-]{0,120}") {
            let _ = of(&text);
            let _ = of(&format!("Ran 3 tests in 1s\nFAILED ({text}"));
        }
    }
}
