//! What a verifier's verdict is worth: pure. A pass needs evidence that exists; what is missing is unknown.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::run::end::summary::{Criterion, Verdict, VerdictStatus};
use crate::run::end::words::few;
use crate::run::judge::outcome::Outcome;
use crate::run::judge::place::{is_bare, place};

/// A verifier's verdict after the check, before acceptance commands and protected paths are counted in.
#[derive(Clone, Debug)]
pub(in crate::run) struct Judged {
    pub status: VerdictStatus,
    pub summary: String,
    pub criteria: Vec<Criterion>,
}

/// Why something that is named is no evidence, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) enum Lack {
    /// Nothing stands there.
    Missing(String),
    /// No file has the name; it may be none that was meant as one.
    Nameless(String),
    /// It is there and proves nothing by itself; named beside what does, it takes nothing from it.
    Proofless(String),
}

/// Where evidence may point.
pub(in crate::run) trait Evidence {
    /// The verifier's own call `#number` ran, went well and has a result.
    fn call(&self, number: u32) -> Result<(), Lack>;
    /// The judged tree has this line.
    fn line(&self, path: &str, line: u64) -> Result<(), Lack>;
    /// True when anybody looked at how the result behaves: the verifier by a call of its own that went
    /// well, or Wharf by acceptance commands that all passed. A place in a file can be named from the
    /// change alone, so without that it proves nothing.
    fn looked(&self) -> bool;
}

/// What a place in a file is worth where nobody looked.
const NO_LOOK: &str =
    "you have made no call of your own that went well, so a place in a file proves nothing yet";

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
            [] => faults.push(format!(
                "criterion {number} is missing; repeat its exact words: {text}"
            )),
            [one] if passes(one) => {
                if let Err(unfounded) = supported(one, evidence) {
                    let names = match unfounded.beside {
                        true => "names evidence that does not exist",
                        false => "names no evidence that exists",
                    };
                    faults.push(format!(
                        "the pass of criterion {number} {names}{}: give `#N`, the number of a call of \
                         your own that went well, or `path:line` in the tree, and nothing that is not there",
                        in_brackets(&unfounded.why)
                    ));
                }
            }
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
        [one] => {
            let said = one["evidence"].as_str().unwrap_or_default();
            match supported(one, evidence) {
                Err(unfounded) if passes(one) => {
                    let why = in_brackets(&unfounded.why);
                    let passed = match unfounded.beside {
                        true => "passed with evidence that does not exist",
                        false => "passed without evidence that exists",
                    };
                    unknown(&format!("{passed}{why}: {said}"))
                }
                _ => Criterion {
                    text: text.to_owned(),
                    status: status(&one["status"]),
                    evidence: said.to_owned(),
                    by: None,
                },
            }
        }
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
        .filter_map(|word| Some(place(word)?.path.to_owned()))
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

/// Why a pass does not stand.
struct Unfounded {
    /// Empty where nothing is named.
    why: String,
    /// Something that is named does exist.
    beside: bool,
}

/// Everything that is named has to exist, and something of it to prove.
fn supported(given: &Value, evidence: &dyn Evidence) -> Result<(), Unfounded> {
    let text = given["evidence"].as_str().unwrap_or_default();
    let (mut missing, mut proofless, mut stands) = (Vec::new(), Vec::new(), false);
    for word in words(text) {
        match names(word, evidence) {
            Some(Ok(())) => stands = true,
            Some(Err(Lack::Proofless(why))) => proofless.push(why),
            Some(Err(Lack::Nameless(why))) if is_bare(word) => proofless.push(why),
            Some(Err(Lack::Nameless(why) | Lack::Missing(why))) => missing.push(why),
            None => {}
        }
    }
    if stands && missing.is_empty() {
        return Ok(());
    }
    if !stands {
        missing.append(&mut proofless);
    }
    let mut once: Vec<String> = Vec::new();
    for why in missing {
        if !once.contains(&why) {
            once.push(why);
        }
    }
    Err(Unfounded {
        why: few(&once, 3, "; "),
        beside: stands,
    })
}

/// None for a word that names nothing.
fn names(word: &str, evidence: &dyn Evidence) -> Option<Result<(), Lack>> {
    if let Some(number) = word.strip_prefix('#') {
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        return digits.then(|| evidence.call(number.parse().unwrap_or(u32::MAX)));
    }
    let place = place(word)?;
    let ends = evidence
        .line(place.path, place.first)
        .and_then(|()| evidence.line(place.path, place.last));
    Some(ends.and_then(|()| match evidence.looked() {
        true => Ok(()),
        false => Err(Lack::Proofless(NO_LOOK.to_owned())),
    }))
}

fn in_brackets(why: &str) -> String {
    match why {
        "" => String::new(),
        why => format!(" ({why})"),
    }
}

/// Every criterion as unknown for one reason: nobody answered any of them.
pub(in crate::run) fn unanswered(asked: &[String], why: &str) -> Vec<Criterion> {
    let one = |text: &String| Criterion {
        text: text.clone(),
        status: VerdictStatus::Unknown,
        evidence: why.to_owned(),
        by: None,
    };
    asked.iter().map(one).collect()
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

/// How many criteria were named: the first ones by the plan, the others by the coordinator.
#[derive(Clone, Copy)]
pub(in crate::run) struct Named {
    pub plan: usize,
    pub all: usize,
}

impl Named {
    /// Whose the criteria are, where not all are the plan's.
    fn note(self) -> String {
        match (self.all, self.all.saturating_sub(self.plan)) {
            // Then the task itself is the one that is judged.
            (0, _) => " (the built-in one, as none was named)".to_owned(),
            (_, 0) => String::new(),
            (_, added) => format!(" ({added} of them added by the coordinator)"),
        }
    }
}

/// Why the verdict is what it is, in one line.
pub(in crate::run) fn reason(verdict: &Verdict, commands: &[Outcome], named: Named) -> String {
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
    if !counts.is_empty() && !verdict.is_unanswered() {
        reasons.push(format!("criteria: {counts}{}", named.note()));
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

    fn there(is: bool) -> Result<(), Lack> {
        is.then_some(())
            .ok_or_else(|| Lack::Missing("not there".to_owned()))
    }

    impl Evidence for Calls {
        fn call(&self, number: u32) -> Result<(), Lack> {
            match number {
                4 => Err(Lack::Proofless("went wrong".to_owned())),
                _ => there((1..=3).contains(&number)),
            }
        }

        fn line(&self, path: &str, line: u64) -> Result<(), Lack> {
            let path = path.trim_start_matches("./");
            match path {
                "src/a.py" | "Makefile" => there((1..=10).contains(&line)),
                _ => Err(Lack::Nameless("not there".to_owned())),
            }
        }

        fn looked(&self) -> bool {
            true
        }
    }

    /// A verifier that made no call and whose commands nobody ran.
    struct Blind;

    impl Evidence for Blind {
        fn call(&self, _: u32) -> Result<(), Lack> {
            there(false)
        }

        fn line(&self, path: &str, line: u64) -> Result<(), Lack> {
            Calls.line(path, line)
        }

        fn looked(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_place_in_a_file_is_no_evidence_of_one_that_did_not_look() {
        let given = |status: &str| {
            json!({"verdict": status, "criteria":
            [{"criterion": "A", "status": status, "evidence": "src/a.py:4"}]})
        };
        let asked = ["A".to_owned()];
        assert_eq!(
            judge(&given("pass"), &asked, &Calls).status,
            VerdictStatus::Pass
        );
        assert_eq!(
            judge(&given("pass"), &asked, &Blind).status,
            VerdictStatus::Unknown
        );
        assert!(
            faults(&given("pass"), &asked, &Blind)
                .unwrap()
                .contains(NO_LOOK)
        );
        // A fault that is there can be seen without a call.
        assert_eq!(
            judge(&given("fail"), &asked, &Blind).status,
            VerdictStatus::Fail
        );
        assert_eq!(faults(&given("fail"), &asked, &Blind), None);
    }

    #[test]
    fn a_number_that_nothing_can_hold_is_no_call() {
        let huge = "99999999999999999999999";
        let given = json!({"verdict": "pass", "criteria":
            [{"criterion": "A", "status": "pass", "evidence": format!("#{huge}")}]});
        let fault = faults(&given, &["A".to_owned()], &Calls).unwrap();
        assert!(fault.contains("(not there)"), "{fault}");
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
    fn everything_that_is_named_has_to_exist() {
        for good in [
            "#4 fails as it should, #2 passes",
            "#1, src/a.py:1-10 and src/a.py:3:80",
            "#1 got an answer of http://localhost:8080 and localhost:8080 at 12:30, exit:0",
        ] {
            assert_eq!(verdict("pass", good), VerdictStatus::Pass, "{good}");
        }
        for bad in [
            "src/a.py:1-900",
            "src/a.py:0-3",
            "nothing #999 but see src/a.py:1",
            "#1 and #2, #999",
            "#1, other.py:1",
            "#1, lib/other:1",
            "#1, src/a.py:4-11",
            "#1, Makefile:11",
            "#4",
            "#4 at localhost:8080",
        ] {
            assert_eq!(verdict("pass", bad), VerdictStatus::Unknown, "{bad}");
        }
        let given = json!({"verdict": "pass", "criteria":
            [{"criterion": "A", "status": "pass", "evidence": "#999, #1"}]});
        let fault = faults(&given, &["A".to_owned()], &Calls).unwrap();
        assert!(
            fault.contains("criterion 1 names evidence that does not exist (not there)"),
            "{fault}"
        );
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
