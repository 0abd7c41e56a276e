//! Does another round bring the run any further? Pure: which plans repeat, and how far each round came.

use std::collections::{BTreeMap, BTreeSet};

use crate::journal::Progress;
use crate::plan::Subtask;
use crate::run::end::summary::{Verdict, VerdictStatus};
use crate::run::judge::outcome::{self, Outcome};

/// The briefs of a plan, without their ids and however their words are broken into lines.
pub(in crate::run) type Briefs = BTreeSet<String>;

/// A subtask's brief as plans are compared by it.
pub(in crate::run) fn brief(subtask: &Subtask) -> String {
    let words: Vec<&str> = subtask.brief.split_whitespace().collect();
    format!("{}: {}", subtask.role, words.join(" "))
}

/// The round whose plan holds every one of these briefs already.
pub(in crate::run) fn repeats(new: &Briefs, earlier: &BTreeMap<u32, Briefs>) -> Option<u32> {
    let same = |before: &Briefs| !new.is_empty() && new.is_subset(before);
    let found = earlier.iter().find(|(_, before)| same(before));
    found.map(|(round, _)| *round)
}

/// How far the result stands after a round.
pub(in crate::run) fn progress(verdict: Option<&Verdict>, failed_subtasks: usize) -> Progress {
    let failed_subtasks = failed_subtasks as u64;
    let Some(verdict) = verdict else {
        return Progress {
            failed_subtasks,
            ..Progress::default()
        };
    };
    let passed = |status: &VerdictStatus| *status == VerdictStatus::Pass;
    let criteria = verdict.criteria.iter().map(|criterion| criterion.status);
    let outcomes = outcome::all(&verdict.commands, &verdict.at_base);
    let commands = outcomes.iter().filter(|o| **o == Outcome::Passed).count();
    let tests = verdict.commands.iter().filter_map(|run| run.tests.as_ref());
    Progress {
        criteria_passed: criteria.filter(passed).count() as u64,
        criteria: verdict.criteria.len() as u64,
        commands_passed: commands as u64,
        commands: verdict.commands.len() as u64,
        tests_passed: tests.map(|tests| tests.passed).sum(),
        failed_subtasks,
    }
}

/// True when a round is ahead of each one before in something.
fn is_better(now: &Progress, before: &BTreeMap<u32, Progress>) -> bool {
    let measures: [fn(&Progress) -> i128; 4] = [
        |p| i128::from(p.criteria_passed),
        |p| i128::from(p.commands_passed),
        |p| i128::from(p.tests_passed),
        |p| -i128::from(p.failed_subtasks),
    ];
    measures
        .iter()
        .any(|measure| before.values().all(|before| measure(now) > measure(before)))
}

/// Why no other round follows after this one, of `most`: it came no further than those before.
pub(in crate::run) fn standstill(
    round: u32,
    most: u32,
    now: &Progress,
    before: &BTreeMap<u32, Progress>,
) -> Option<String> {
    if before.is_empty() || is_better(now, before) {
        return None;
    }
    let left = most.saturating_sub(round);
    Some(format!(
        "round {round} came no further than the one before ({}), so the run stopped with {left} of its {most} \
         rounds left",
        words(now)
    ))
}

/// `criteria 1 of 3, acceptance commands 0 of 1, 4 tests passed`.
fn words(progress: &Progress) -> String {
    let mut parts = vec![format!(
        "criteria {} of {}",
        progress.criteria_passed, progress.criteria
    )];
    if progress.commands > 0 {
        parts.push(format!(
            "acceptance commands {} of {}",
            progress.commands_passed, progress.commands
        ));
    }
    if progress.tests_passed > 0 {
        parts.push(format!("{} tests passed", progress.tests_passed));
    }
    if progress.failed_subtasks > 0 {
        parts.push(format!("{} failures", progress.failed_subtasks));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RoleName, SubtaskId};

    /// Role and brief of each.
    type List<'a> = &'a [(&'a str, &'a str)];

    fn briefs(list: List<'_>) -> Briefs {
        let subtask = |(role, text): &(&str, &str)| Subtask {
            id: SubtaskId::new(format!("id-{}", text.len())),
            role: RoleName::new(*role),
            title: None,
            brief: (*text).to_owned(),
            needs: Vec::new(),
        };
        list.iter().map(subtask).map(|s| brief(&s)).collect()
    }

    #[test]
    fn a_plan_repeats_one_that_holds_all_its_briefs() {
        let first = briefs(&[("coder", "mend a"), ("coder", "mend b")]);
        let earlier = BTreeMap::from([(1, first.clone()), (2, briefs(&[("coder", "look")]))]);
        let cases: [(List<'_>, Option<u32>); 6] = [
            (&[("coder", "mend b"), ("coder", "mend  a\n")], Some(1)),
            (&[("coder", "mend a")], Some(1)),
            (&[("coder", "look")], Some(2)),
            (&[("coder", "mend a"), ("coder", "mend c")], None),
            (&[("reviewer", "mend a")], None),
            (&[], None),
        ];
        for (new, want) in cases {
            assert_eq!(repeats(&briefs(new), &earlier), want, "{new:?}");
        }
        assert_eq!(repeats(&first, &BTreeMap::new()), None);
    }

    #[test]
    fn a_round_is_better_by_any_measure_that_no_round_before_had() {
        let at = |criteria_passed, tests_passed, failed_subtasks| Progress {
            criteria_passed,
            tests_passed,
            failed_subtasks,
            criteria: 3,
            ..Progress::default()
        };
        let before = BTreeMap::from([(1, at(1, 5, 0)), (2, at(2, 4, 1))]);
        for better in [at(3, 0, 5), at(0, 6, 1)] {
            assert_eq!(standstill(3, 5, &better, &before), None, "{better:?}");
        }
        for same in [at(2, 5, 0), at(1, 4, 2), at(0, 0, 0)] {
            assert!(standstill(3, 5, &same, &before).is_some(), "{same:?}");
        }
        assert_eq!(standstill(1, 5, &at(0, 0, 9), &BTreeMap::new()), None);
        let said = standstill(3, 5, &at(1, 4, 2), &before).unwrap();
        assert!(said.ends_with(
            "(criteria 1 of 3, 4 tests passed, 2 failures), so the run stopped with 2 of its 5 rounds left"
        ));
    }
}
