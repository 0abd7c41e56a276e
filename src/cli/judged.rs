//! The verdict for a person: what decided, each criterion with its evidence, where verifiers disagree.

use console::style;

use super::wording::mark;
use super::{text, wording};
use crate::journal::CommandRun;
use crate::run::{Criterion, Verdict, VerdictStatus, Vote};

/// Lines of changed checks and of votes that are shown; result.json has them all.
const SHOWN: usize = 8;

/// The verdict with each criterion's evidence; its absence is said.
pub fn verdict(verdict: Option<&Verdict>) -> String {
    let Some(verdict) = verdict else {
        return "\nverdict: none was given\n".to_owned();
    };
    let mut out = format!(
        "\nverdict: {} on tree {}\n",
        coloured(verdict.status),
        text::line(verdict.tree.get(..10).unwrap_or(&verdict.tree), 10)
    );
    commands(verdict, &mut out);
    for criterion in &verdict.criteria {
        let line = match verdict.is_unanswered() {
            // The reason is the same for all of them and stands below.
            true => format!(
                "  {} {}\n",
                mark(verdict_word(criterion.status)),
                text::line(&criterion.text, 160)
            ),
            false => criterion_line(criterion, verdict.split(&criterion.text)),
        };
        out.push_str(&line);
    }
    for path in &verdict.protected_changes {
        let path = text::line(path, 160);
        out.push_str(&format!(
            "  {} protected file changed: {path}\n",
            mark("failed")
        ));
    }
    if let Some(with) = &verdict.with_base_tests {
        let paths = text::line(&with.paths.join(", "), 100);
        for run in &with.commands {
            let line = wording::command_line(&run.command, run.exit_code, run.seconds);
            let line = text::line(&line, 160);
            out.push_str(&format!("  · with the base's {paths}: {line}\n"));
        }
    }
    checks(verdict, &mut out);
    verdict
        .votes
        .iter()
        .for_each(|vote| out.push_str(&vote_line(vote)));
    match (verdict.summary.trim(), verdict.is_unanswered()) {
        ("", _) => {}
        // Where nobody answered it is Wharf that says why.
        (why, true) => out.push_str(&text::block(why, "  ", 8)),
        (said, false) => {
            let who = if verdict.votes.is_empty() {
                "the verifier says"
            } else {
                "votes"
            };
            out.push_str(&text::block(&format!("{who}: {said}"), "  ", 8));
        }
    }
    out
}

/// What decided comes first.
fn commands(verdict: &Verdict, out: &mut String) {
    let (passed, decided): (Vec<&CommandRun>, Vec<_>) = verdict
        .commands
        .iter()
        .partition(|run| run.exit_code == Some(0));
    for run in decided.into_iter().chain(passed) {
        let mut line = wording::command_line(&run.command, run.exit_code, run.seconds);
        if let Some(tests) = &run.tests {
            line.push_str(&format!(
                ", {} of {} tests passed",
                tests.passed, tests.collected
            ));
        }
        let shown = if run.exit_code == Some(0) {
            "done"
        } else {
            "failed"
        };
        out.push_str(&format!("  {} {}\n", mark(shown), text::line(&line, 160)));
        if let Some(note) = &run.note {
            out.push_str(&text::block(note, "      ", 3));
        }
    }
}

/// Changed files that decide what is checked; what weakens a check comes first.
fn checks(verdict: &Verdict, out: &mut String) {
    let checks = &verdict.changed_checks;
    let (noted, plain): (Vec<_>, Vec<_>) = checks.iter().partition(|c| !c.notes.is_empty());
    for check in noted.into_iter().chain(plain).take(SHOWN) {
        let notes = match check.notes.as_slice() {
            [] => String::new(),
            notes => format!(": {}", notes.join("; ")),
        };
        let line = format!("{} {} ({}){notes}", check.change, check.path, check.kind);
        out.push_str(&format!("  · {}\n", text::line(&line, 160)));
    }
    if checks.len() > SHOWN {
        let more = checks.len() - SHOWN;
        out.push_str(&format!(
            "  · and {more} more files that decide what is checked\n"
        ));
    }
}

fn vote_line(vote: &Vote) -> String {
    let said = vote.reason.as_ref().unwrap_or(&vote.summary);
    format!(
        "  {} {}: {}  [{}]\n",
        mark(verdict_word(vote.status)),
        vote.agent,
        verdict_word(vote.status),
        text::line(said, 120)
    )
}

/// `split` says how verifiers disagree on it.
fn criterion_line(criterion: &Criterion, split: Option<String>) -> String {
    let evidence = match criterion.evidence.trim() {
        "" => "no evidence".to_owned(),
        evidence => text::line(evidence, 100),
    };
    let by = criterion.by.as_ref().map(|by| format!(" of {by}"));
    let split = split.map(|split| format!(" ({split})"));
    let sign = mark(verdict_word(criterion.status));
    format!(
        "  {sign} {}{}  [{evidence}{}]\n",
        text::line(&criterion.text, 160),
        split.unwrap_or_default(),
        by.unwrap_or_default()
    )
}

fn coloured(status: VerdictStatus) -> console::StyledObject<&'static str> {
    let word = style(verdict_word(status));
    match status {
        VerdictStatus::Pass => word.green(),
        VerdictStatus::Fail => word.red(),
        VerdictStatus::Unknown => word.yellow(),
    }
}

fn verdict_word(status: VerdictStatus) -> &'static str {
    match status {
        VerdictStatus::Pass => "pass",
        VerdictStatus::Fail => "fail",
        VerdictStatus::Unknown => "unknown",
    }
}
