//! report.md.

use std::fmt::Write as _;

use crate::tools::clip;

use crate::journal::{CommandRun, WithBase};
use crate::run::end::summary::{RoundResult, Status, Summary, Verdict, VerdictStatus};
use crate::run::end::words;
use crate::run::judge::suspects;

/// The report a person reads: what was asked, what was done, what the verifier says.
pub fn markdown(summary: &Summary) -> String {
    let mut out = String::new();
    let status = word(summary.status);
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "# Run {}: {status}\n\n{}\n",
        summary.run, summary.reason
    );
    let _ = writeln!(out, "## Task\n\n{}\n", summary.task.trim());
    if !summary.summary.is_empty() {
        let title = match summary.status {
            Status::Passed => "Summary",
            Status::Unverified => "Summary (words of agents, not verified)",
            _ => "Summary (words of agents; this run did not pass)",
        };
        let _ = writeln!(out, "## {title}\n\n{}\n", quoted(&summary.summary));
    }
    subtasks(summary, &mut out);
    if let Some(verdict) = &summary.verdict {
        verified(verdict, &mut out);
    }
    rounds(summary, &mut out);
    rest(summary, &mut out);
    // It is read with `cat`, and half of it is what agents said.
    clip::clean(out.as_bytes())
}

/// Words of agents, marked line by line: none of them can look like a part of the report.
fn quoted(text: &str) -> String {
    let lines = text.trim().lines().map(|line| format!("> {line}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The same for what stands in one line.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn subtasks(summary: &Summary, out: &mut String) {
    let _ = writeln!(
        out,
        "## Subtasks\n\n| subtask | role | needs | status | files | turns | tokens |"
    );
    let _ = writeln!(out, "| --- | --- | --- | --- | --- | --- | --- |");
    for s in &summary.subtasks {
        let tokens = s.usage.input_tokens + s.usage.output_tokens;
        let status = format!("{:?}", s.status).to_lowercase();
        let (needs, files) = (s.needs.join(", "), s.changed_files.len());
        let _ = writeln!(
            out,
            "| {} | {} | {needs} | {status} | {files} | {} | {tokens} |",
            s.id, s.role, s.turns
        );
    }
    others(summary, out);
    for s in &summary.subtasks {
        let _ = writeln!(out, "\n### {} ({})\n", s.id, s.role);
        if let Some(reason) = &s.reason {
            let _ = writeln!(out, "{}\n", quoted(reason));
        }
        let _ = writeln!(
            out,
            "{}",
            s.summary
                .as_deref()
                .map_or("(no report)".to_owned(), quoted)
        );
        for file in &s.changed_files {
            let _ = writeln!(out, "- `{file}`");
        }
    }
    for c in &summary.conflicts {
        let status = format!("{:?}", c.status).to_lowercase();
        let _ = writeln!(
            out,
            "\n### {} (conflict, {status})\n\nFiles: {}\n",
            c.id,
            c.files.join(", ")
        );
        let said = c
            .summary
            .as_deref()
            .or(c.reason.as_deref())
            .unwrap_or_default();
        let choices = words::choices(&c.dropped, &c.beyond);
        let _ = writeln!(out, "{}", quoted(&format!("{said}{choices}")));
        if let Some(kept) = &c.kept {
            let sides = [(&kept.ours, &c.ours_by), (&kept.theirs, &c.theirs_by)];
            let sides = sides.map(|(name, by)| match by.as_slice() {
                [] => format!("`{name}` (merged before)"),
                ids => format!("`{name}` ({})", ids.join(", ")),
            });
            let (store, sides) = (&kept.store, sides.join(" and "));
            let _ = writeln!(out, "\nBoth versions are kept in `{store}`: {sides}");
        }
    }
}

/// Whoever else asked a model, so that the table's tokens add up to the run's.
fn others(summary: &Summary, out: &mut String) {
    for c in &summary.conflicts {
        let tokens = c.usage.input_tokens + c.usage.output_tokens;
        let status = format!("{:?}", c.status).to_lowercase();
        let _ = writeln!(
            out,
            "| {} | merger | | {status} | {} | {} | {tokens} |",
            c.id,
            c.files.len(),
            c.turns
        );
    }
    for a in &summary.agents {
        let tokens = a.usage.input_tokens + a.usage.output_tokens;
        let _ = writeln!(
            out,
            "| {} | {} | | | | {} | {tokens} |",
            a.id, a.role, a.turns
        );
    }
}

fn verified(verdict: &Verdict, out: &mut String) {
    let _ = writeln!(
        out,
        "\n## Verdict: {}\n\n{}\n",
        status(verdict.status),
        quoted(&verdict.summary)
    );
    for criterion in &verdict.criteria {
        let (status, text) = (status(criterion.status), &criterion.text);
        let split = verdict.split(text).map(|split| format!("; votes: {split}"));
        let (evidence, split) = (&criterion.evidence, split.unwrap_or_default());
        let (text, evidence) = (flat(text), flat(evidence));
        let _ = writeln!(out, "- **{status}** {text} ({evidence}{split})");
    }
    for command in &verdict.commands {
        let _ = writeln!(out, "- `{}` {}", command.command, code(command));
    }
    for path in &verdict.protected_changes {
        let _ = writeln!(out, "- protected file changed: `{path}`");
    }
    if let Some(with) = &verdict.with_base_tests {
        with_base(with, out);
    }
    votes(verdict, out);
    if !verdict.changed_checks.is_empty() {
        let _ = writeln!(out, "\nChanged files that decide what is checked:\n");
        for check in &verdict.changed_checks {
            let _ = writeln!(out, "- {}", suspects::line(check));
        }
    }
    let _ = writeln!(out, "\nJudged tree: `{}`", verdict.tree);
}

/// What each verifier said, where there are several.
fn votes(verdict: &Verdict, out: &mut String) {
    for vote in &verdict.votes {
        let said = vote.reason.as_ref().unwrap_or(&vote.summary).trim();
        let _ = writeln!(
            out,
            "\n### {}: {}\n\n{said}\n",
            vote.agent,
            status(vote.status)
        );
        for criterion in &vote.criteria {
            let (status, text) = (status(criterion.status), &criterion.text);
            let _ = writeln!(out, "- **{status}** {text} ({})", criterion.evidence);
        }
    }
}

/// How far each round came, where there was more than one.
fn rounds(summary: &Summary, out: &mut String) {
    if summary.progress.len() < 2 {
        return;
    }
    let _ = writeln!(
        out,
        "\n## Rounds\n\n| round | criteria passed | commands passed | tests passed | failures |\n\
         | --- | --- | --- | --- | --- |"
    );
    for RoundResult { round, progress: p } in &summary.progress {
        let _ = writeln!(
            out,
            "| {round} | {} of {} | {} of {} | {} | {} |",
            p.criteria_passed,
            p.criteria,
            p.commands_passed,
            p.commands,
            p.tests_passed,
            p.failed_subtasks
        );
    }
}

fn with_base(with: &WithBase, out: &mut String) {
    let _ = writeln!(
        out,
        "\nWith the base's version of {} (evidence that decides nothing):\n",
        with.paths.join(", ")
    );
    for command in &with.commands {
        let _ = writeln!(out, "- `{}` {}", command.command, code(command));
    }
}

fn code(run: &CommandRun) -> String {
    let code = run
        .exit_code
        .map_or("could not be told".to_owned(), |code| code.to_string());
    let tests = run.tests.as_ref().map(|t| {
        format!(
            ", {} of {} tests passed, {} skipped",
            t.passed, t.collected, t.skipped
        )
    });
    format!(
        "exit code {code} in {:.1} s{}",
        run.seconds,
        tests.unwrap_or_default()
    )
}

fn rest(summary: &Summary, out: &mut String) {
    for warning in &summary.warnings {
        let _ = writeln!(out, "\nWarning: {warning}");
    }
    if !summary.left_out.is_empty() {
        let _ = writeln!(out, "\n## Left out\n");
        for left in &summary.left_out {
            let by = left.subtask.as_deref().unwrap_or("workspace");
            let _ = writeln!(out, "- `{}` ({by}): {}", left.path, left.reason);
        }
    }
    let delivered = match (&summary.branch, &summary.patch) {
        (Some(branch), _) => format!("branch `{branch}`"),
        (None, Some(patch)) => match &summary.apply {
            Some(apply) => format!("patch `{patch}`, applied by `{apply}`"),
            None => format!("patch `{patch}`"),
        },
        (None, None) => "no change was delivered".to_owned(),
    };
    let cost = summary
        .cost_usd
        .map_or("cost not known".to_owned(), |usd| format!("{usd:.4} USD"));
    let estimated = match summary.usage.estimated {
        true => " (estimated)",
        false => "",
    };
    let _ = writeln!(
        out,
        "\n## Delivery\n\n{delivered}; {} input and {} output tokens{estimated} in {} calls, {cost}, {:.0} s",
        summary.usage.input_tokens,
        summary.usage.output_tokens,
        summary.usage.calls,
        summary.seconds
    );
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Passed => "passed",
        Status::Failed => "failed",
        Status::Unverified => "unverified",
        Status::Limited => "limited",
        Status::Interrupted => "interrupted",
        Status::Error => "error",
    }
}

fn status(status: VerdictStatus) -> &'static str {
    match status {
        VerdictStatus::Pass => "pass",
        VerdictStatus::Fail => "fail",
        VerdictStatus::Unknown => "unknown",
    }
}
