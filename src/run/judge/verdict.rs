//! What a verifier's verdict is worth: pure. A pass needs evidence that exists; what is missing is unknown.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::run::end::summary::{Criterion, Verdict, VerdictStatus};
use crate::run::judge::outcome::Outcome;

/// A verifier's verdict after the check, before acceptance commands and protected paths are counted in.
#[derive(Clone, Debug)]
pub(in crate::run) struct Judged {
    pub status: VerdictStatus,
    pub summary: String,
    pub criteria: Vec<Criterion>,
}

/// Where evidence may point.
pub(in crate::run) trait Evidence {
    /// True when the verifier's own call `#number` ran, went well and has a result.
    fn has_call(&self, number: u32) -> bool;
    /// True when the judged tree has this line.
    fn has_line(&self, path: &str, line: u64) -> bool;
}

/// Judges the arguments of `submit_verdict` against the criteria that were asked for.
pub(in crate::run) fn judge(
    arguments: &Value,
    asked: &[String],
    evidence: &dyn Evidence,
) -> Judged {
    let given = arguments["criteria"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let criteria: Vec<Criterion> = asked
        .iter()
        .map(|text| one(text, &given, evidence))
        .collect();
    let status = sum(&arguments["verdict"], &criteria);
    let summary = arguments["summary"].as_str().unwrap_or_default().to_owned();
    Judged {
        status,
        summary,
        criteria,
    }
}

/// What criteria that were judged come to: the verifier's own word can only lower it.
pub(in crate::run) fn sum(own: &Value, criteria: &[Criterion]) -> VerdictStatus {
    let own = status(own);
    let any = |status| criteria.iter().any(|c| c.status == status);
    if any(VerdictStatus::Fail) || own == VerdictStatus::Fail {
        VerdictStatus::Fail
    } else if any(VerdictStatus::Unknown) || own == VerdictStatus::Unknown || criteria.is_empty() {
        VerdictStatus::Unknown
    } else {
        VerdictStatus::Pass
    }
}

/// What keeps a submitted verdict from counting in full, for the verifier to mend; None when nothing does.
pub(in crate::run) fn faults(
    arguments: &Value,
    asked: &[String],
    evidence: &dyn Evidence,
) -> Option<String> {
    let given = arguments["criteria"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut faults = Vec::new();
    for (n, text) in asked.iter().enumerate() {
        let found: Vec<&Value> = given.iter().filter(|g| same(g, text)).collect();
        let number = n + 1;
        match found.as_slice() {
            [] => faults.push(format!("criterion {number} is missing; repeat its exact words: {text}")),
            [one] if passes(one) && !supported(one, evidence) => faults.push(format!(
                "the pass of criterion {number} names no evidence that exists: give `#N`, the number of a \
                 call of your own that went well, or `path:line`"
            )),
            [_] => {}
            _ => faults.push(format!("criterion {number} is answered more than once")),
        }
    }
    (!faults.is_empty()).then(|| faults.join("\n"))
}

fn one(text: &str, given: &[Value], evidence: &dyn Evidence) -> Criterion {
    let found: Vec<&Value> = given.iter().filter(|g| same(g, text)).collect();
    let unknown = |why: &str| Criterion {
        text: text.to_owned(),
        status: VerdictStatus::Unknown,
        evidence: why.to_owned(),
        by: None,
    };
    match found.as_slice() {
        [] => unknown("the verifier gave no answer to it"),
        [one] if passes(one) && !supported(one, evidence) => {
            let said = one["evidence"].as_str().unwrap_or_default();
            unknown(&format!("passed without evidence that exists: {said}"))
        }
        [one] => Criterion {
            text: text.to_owned(),
            status: status(&one["status"]),
            evidence: one["evidence"].as_str().unwrap_or_default().to_owned(),
            by: None,
        },
        many if many
            .iter()
            .any(|g| status(&g["status"]) == VerdictStatus::Fail) =>
        {
            Criterion {
                status: VerdictStatus::Fail,
                ..unknown("answered more than once, at least once with fail")
            }
        }
        _ => unknown("answered more than once"),
    }
}

/// The same words; how they are broken into lines is no difference, for they are shown on one.
fn same(given: &Value, text: &str) -> bool {
    let given = given["criterion"].as_str();
    given.is_some_and(|given| given.split_whitespace().eq(text.split_whitespace()))
}

fn passes(given: &Value) -> bool {
    status(&given["status"]) == VerdictStatus::Pass
}

fn status(word: &Value) -> VerdictStatus {
    match word.as_str() {
        Some("pass") => VerdictStatus::Pass,
        Some("fail") => VerdictStatus::Fail,
        _ => VerdictStatus::Unknown,
    }
}

/// Every path that the evidence of a verdict names with a line.
pub(in crate::run) fn paths(arguments: &Value) -> Vec<String> {
    let given = arguments["criteria"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let texts = given.iter().filter_map(|g| g["evidence"].as_str());
    let mut paths: Vec<String> = texts
        .flat_map(words)
        .filter_map(|word| Some(place(word)?.0.to_owned()))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn words(evidence: &str) -> impl Iterator<Item = &str> {
    let apart = |c: char| c.is_whitespace() || ",;()[]".contains(c);
    let quote = |c: char| "`'\"".contains(c);
    evidence
        .split(apart)
        .map(move |word| word.trim_end_matches(['.', ':']).trim_matches(quote))
}

/// `path:line` or `path:line-line` as path and first line.
fn place(word: &str) -> Option<(&str, u64)> {
    let (path, lines) = word.rsplit_once(':')?;
    let first = lines.split('-').next().unwrap_or_default().parse().ok()?;
    Some((
        path.trim_start_matches("./")
            .trim_start_matches("/workspace/"),
        first,
    ))
}

fn supported(given: &Value, evidence: &dyn Evidence) -> bool {
    let text = given["evidence"].as_str().unwrap_or_default();
    words(text).any(|word| names(word, evidence))
}

fn names(word: &str, evidence: &dyn Evidence) -> bool {
    match word.strip_prefix('#') {
        Some(number) => number.parse().is_ok_and(|n| evidence.has_call(n)),
        None => place(word).is_some_and(|(path, line)| evidence.has_line(path, line)),
    }
}

/// The status as journals and spans have it.
pub(in crate::run) fn word(status: VerdictStatus) -> &'static str {
    match status {
        VerdictStatus::Pass => "pass",
        VerdictStatus::Fail => "fail",
        VerdictStatus::Unknown => "unknown",
    }
}

/// Counts acceptance commands and protected paths in: facts that no verdict can outweigh.
pub(in crate::run) fn with_facts(
    judged: VerdictStatus,
    commands: &[Outcome],
    protected_changes: &[String],
) -> VerdictStatus {
    let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
    if commands.iter().any(failed) || !protected_changes.is_empty() {
        return VerdictStatus::Fail;
    }
    let unknown = |outcome: &Outcome| matches!(outcome, Outcome::Unknown(_));
    match judged {
        VerdictStatus::Pass if commands.iter().any(unknown) => VerdictStatus::Unknown,
        other => other,
    }
}

/// Why the verdict is what it is, in one line; the first `planned` criteria are the plan's.
pub(in crate::run) fn reason(verdict: &Verdict, commands: &[Outcome], planned: usize) -> String {
    let mut reasons: Vec<String> = commands
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Passed => None,
            Outcome::Failed(why) | Outcome::Unknown(why) => Some(why.clone()),
        })
        .collect();
    if !verdict.protected_changes.is_empty() {
        reasons.push(format!(
            "protected files changed: {}",
            verdict.protected_changes.join(", ")
        ));
    }
    // Where facts decided, what the verifier says stands apart from them, with the verdict.
    let decided = !reasons.is_empty();
    let counts = counts(verdict);
    if !counts.is_empty() {
        let added = match verdict.criteria.len().saturating_sub(planned) {
            0 => String::new(),
            added => format!(" ({added} of them added by the coordinator)"),
        };
        reasons.push(format!("criteria: {counts}{added}"));
    }
    if !decided && verdict.status != VerdictStatus::Pass && !verdict.summary.is_empty() {
        reasons.push(verdict.summary.clone());
    }
    reasons.join("; ")
}

/// `1 failed, 2 passed`.
fn counts(verdict: &Verdict) -> String {
    let mut by: BTreeMap<&str, usize> = BTreeMap::new();
    for criterion in &verdict.criteria {
        let word = match criterion.status {
            VerdictStatus::Pass => "passed",
            VerdictStatus::Fail => "failed",
            VerdictStatus::Unknown => "unknown",
        };
        *by.entry(word).or_default() += 1;
    }
    let counts: Vec<String> = by.iter().map(|(word, n)| format!("{n} {word}")).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Calls;

    impl Evidence for Calls {
        fn has_call(&self, number: u32) -> bool {
            (1..=3).contains(&number)
        }

        fn has_line(&self, path: &str, line: u64) -> bool {
            path == "src/a.py" && (1..=10).contains(&line)
        }
    }

    fn verdict(status: &str, evidence: &str) -> VerdictStatus {
        let arguments = json!({
            "verdict": "pass",
            "summary": "",
            "criteria": [{"criterion": "It works", "status": status, "evidence": evidence}],
        });
        judge(&arguments, &["It works".to_owned()], &Calls).status
    }

    #[test]
    fn a_pass_needs_evidence_that_exists() {
        for good in [
            "#2",
            "see #3, which passed",
            "`src/a.py:4`",
            "./src/a.py:1-3",
            "(#1)",
        ] {
            assert_eq!(verdict("pass", good), VerdictStatus::Pass, "{good}");
        }
        for bad in [
            "",
            "it looks good",
            "#9",
            "#",
            "src/a.py",
            "src/a.py:99",
            "other.py:1",
            "# 2",
        ] {
            assert_eq!(verdict("pass", bad), VerdictStatus::Unknown, "{bad}");
        }
        assert_eq!(verdict("fail", ""), VerdictStatus::Fail);
        assert_eq!(verdict("PASS (with caveats)", "#1"), VerdictStatus::Unknown);
    }

    #[test]
    fn missing_doubled_or_contradicting_answers_never_pass() {
        let asked = ["A".to_owned(), "B".to_owned()];
        let pass =
            |criterion: &str| json!({"criterion": criterion, "status": "pass", "evidence": "#1"});
        let fail =
            |criterion: &str| json!({"criterion": criterion, "status": "fail", "evidence": "#1"});
        let status = |word: &str, criteria: Vec<Value>| {
            judge(
                &json!({"verdict": word, "criteria": criteria}),
                &asked,
                &Calls,
            )
            .status
        };
        assert_eq!(
            status("pass", vec![pass("A"), pass("B")]),
            VerdictStatus::Pass
        );
        assert_eq!(status("pass", vec![pass("A")]), VerdictStatus::Unknown);
        assert_eq!(
            status("pass", vec![pass("A"), pass("B"), pass("B")]),
            VerdictStatus::Unknown
        );
        assert_eq!(
            status("pass", vec![pass("A"), pass("B"), fail("B")]),
            VerdictStatus::Fail
        );
        assert_eq!(
            status("fail", vec![pass("A"), pass("B")]),
            VerdictStatus::Fail
        );
        assert_eq!(
            status("yes", vec![pass("A"), pass("B")]),
            VerdictStatus::Unknown
        );
        assert_eq!(
            judge(&json!({"verdict": "pass"}), &[], &Calls).status,
            VerdictStatus::Unknown
        );
        assert_eq!(
            judge(&json!("pass"), &asked, &Calls).status,
            VerdictStatus::Unknown
        );
    }

    #[test]
    fn commands_and_protected_paths_outweigh_the_verdict() {
        let pass = VerdictStatus::Pass;
        let failed = [Outcome::Passed, Outcome::Failed(String::new())];
        let unknown = [Outcome::Passed, Outcome::Unknown(String::new())];
        assert_eq!(with_facts(pass, &[Outcome::Passed], &[]), pass);
        assert_eq!(with_facts(pass, &failed, &[]), VerdictStatus::Fail);
        assert_eq!(with_facts(pass, &unknown, &[]), VerdictStatus::Unknown);
        assert_eq!(
            with_facts(VerdictStatus::Fail, &unknown, &[]),
            VerdictStatus::Fail
        );
        assert_eq!(
            with_facts(pass, &[], &["tests/a.py".to_owned()]),
            VerdictStatus::Fail
        );
        assert_eq!(
            with_facts(VerdictStatus::Unknown, &[Outcome::Passed], &[]),
            VerdictStatus::Unknown
        );
    }
}
