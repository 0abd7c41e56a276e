//! The end of a run in a few lines: what it came to, who did what, the verdict, what to type next.

use std::collections::BTreeSet;

use console::style;

use super::text;
use super::wording::{self, status_word};
use crate::run::{Criterion, Status, SubtaskResult, Summary, Verdict, VerdictStatus};

/// The lines printed when a run ends.
pub fn lines(summary: &Summary) -> String {
    let mut out = head(summary);
    for subtask in &summary.subtasks {
        out.push_str(&subtask_line(subtask));
    }
    for conflict in &summary.conflicts {
        out.push_str(&format!(
            "  {} {}  conflict in {}{}\n",
            mark(status_word(conflict.status)),
            text::line(&conflict.id, 40),
            text::line(&conflict.files.join(", "), 80),
            reason(conflict.reason.as_deref())
        ));
    }
    if !summary.summary.trim().is_empty() {
        out.push('\n');
        out.push_str(&text::block(&summary.summary, "  ", 12));
    }
    out.push_str(&verdict(summary.verdict.as_ref()));
    // What ignore rules name is build output, of the same kind in every sandbox: `show` lists it.
    let named = summary
        .left_out
        .iter()
        .filter(|left| left.reason != "ignored");
    let named: BTreeSet<(&str, &str)> = named
        .map(|l| (l.path.as_str(), l.reason.as_str()))
        .collect();
    for (path, why) in named {
        let (path, why) = (text::line(path, 80), text::line(why, 80));
        out.push_str(&format!("left out: {path} ({why})\n"));
    }
    for warning in &summary.warnings {
        out.push_str(&format!("warning: {}\n", text::line(warning, 300)));
    }
    out.push('\n');
    out.push_str(&delivered(summary));
    out
}

/// `passed  run ID  3m12s  184,220 tokens  $0.42` and the reason.
pub fn head(summary: &Summary) -> String {
    let word = status(summary.status);
    let shown = match summary.status {
        Status::Passed => style(word).green().bold(),
        Status::Unverified | Status::Limited | Status::Interrupted => style(word).yellow().bold(),
        Status::Failed | Status::Error => style(word).red().bold(),
    };
    let tokens = summary
        .usage
        .input_tokens
        .saturating_add(summary.usage.output_tokens);
    let estimate = if summary.usage.estimated {
        " (estimated)"
    } else {
        ""
    };
    let mut out = format!(
        "{shown}  run {}  {}, {}, {} tokens{estimate}, {}\n",
        text::line(&summary.run, 40),
        text::seconds(summary.seconds),
        text::plural(summary.rounds as usize, "round"),
        text::count(tokens),
        text::cost(summary.cost_usd)
    );
    if !summary.reason.is_empty() {
        out.push_str(&text::block(&summary.reason, "  ", 6));
    }
    out
}

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
    for run in &verdict.commands {
        let line = wording::command_line(&run.command, run.exit_code, run.seconds);
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
    verdict
        .criteria
        .iter()
        .for_each(|criterion| out.push_str(&criterion_line(criterion)));
    for path in &verdict.protected_changes {
        let path = text::line(path, 160);
        out.push_str(&format!(
            "  {} protected file changed: {path}\n",
            mark("failed")
        ));
    }
    if !verdict.summary.trim().is_empty() {
        let said = format!("the verifier: {}", verdict.summary.trim());
        out.push_str(&text::block(&said, "  ", 8));
    }
    out
}

/// The status as result.json has it.
pub fn status(status: Status) -> &'static str {
    match status {
        Status::Passed => "passed",
        Status::Failed => "failed",
        Status::Unverified => "unverified",
        Status::Limited => "limited",
        Status::Interrupted => "interrupted",
        Status::Error => "error",
    }
}

/// A sign for a state, so that colour is not needed to tell them apart.
pub fn mark(state: &str) -> String {
    match state {
        "done" | "pass" => style("✓").green().to_string(),
        "failed" | "fail" => style("✗").red().to_string(),
        "running" => style("▸").cyan().to_string(),
        "blocked" | "cancelled" | "stopped" => style("–").yellow().to_string(),
        "unknown" => style("?").yellow().to_string(),
        _ => style("·").dim().to_string(),
    }
}

/// Where the result is and what to type next.
pub fn delivered(summary: &Summary) -> String {
    let mut out = String::new();
    if let Some(branch) = &summary.branch {
        out.push_str(&format!("branch:  {}\n", text::line(branch, 200)));
    }
    if let Some(patch) = &summary.patch {
        out.push_str(&format!("patch:   {}\n", text::plain(patch)));
    }
    if summary.branch.is_none() && summary.patch.is_none() && summary.snapshot == summary.base {
        out.push_str("no change was made\n");
    }
    let details = format!("wharf show {}", text::line(&summary.run, 40));
    if summary.next.trim() != details {
        out.push_str(&format!("details: {details}\n"));
    }
    if !summary.next.trim().is_empty() {
        out.push_str(&format!("next:    {}\n", text::line(&summary.next, 400)));
    }
    out
}

fn subtask_line(subtask: &SubtaskResult) -> String {
    let word = status_word(subtask.status);
    let tokens = subtask
        .usage
        .input_tokens
        .saturating_add(subtask.usage.output_tokens);
    format!(
        "  {} {:<20} {:<12} {word}{}  {}, {}, {} tokens, {}, {}\n",
        mark(word),
        text::line(&subtask.id, 40),
        text::line(&subtask.role, 40),
        reason(subtask.reason.as_deref()),
        text::plural(subtask.changed_files.len(), "file"),
        text::plural(subtask.turns as usize, "turn"),
        text::short(tokens),
        text::cost(subtask.cost_usd),
        text::seconds(subtask.seconds)
    )
}

fn criterion_line(criterion: &Criterion) -> String {
    let evidence = match criterion.evidence.trim() {
        "" => "no evidence".to_owned(),
        evidence => text::line(evidence, 100),
    };
    let sign = mark(verdict_word(criterion.status));
    format!(
        "  {sign} {}  [{evidence}]\n",
        text::line(&criterion.text, 160)
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

fn reason(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| {
        format!(": {}", text::line(reason, 100))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(verdict: serde_json::Value) -> Summary {
        serde_json::from_value(json!({
            "schema": crate::run::SCHEMA, "wharf_version": "0", "run": "r1", "run_dir": "/s/runs/r1",
            "status": "unverified", "exit_code": 4, "reason": "a criterion is unknown",
            "next": "wharf apply r1", "task": "t", "plan_hash": "h", "models": ["m"],
            "started_at": "2026-01-01T00:00:00Z", "seconds": 72.0, "rounds": 1,
            "subtasks": [{"id": "a", "role": "coder", "needs": [], "round": 1, "status": "done",
                "reason": null, "summary": "s", "changed_files": ["x"], "turns": 3, "tool_calls": 4,
                "usage": {"input_tokens": 1000, "output_tokens": 200, "cached_tokens": 0, "estimated": false},
                "cost_usd": null, "seconds": 9.0, "snapshot": null}],
            "conflicts": [], "left_out": [], "warnings": ["w"], "verdict": verdict,
            "base": null, "snapshot": null, "branch": "wharf/r1", "patch": null,
            "usage": {"input_tokens": 1000, "output_tokens": 200, "cached_tokens": 0, "calls": 2, "estimated": false},
            "cost_usd": null, "trace_id": null, "summary": "all\u{1b}[2J done"
        }))
        .unwrap()
    }

    #[test]
    fn the_result_reads_whole_and_plain() {
        console::set_colors_enabled(false);
        let verdict = json!({"status": "unknown", "summary": "not sure", "tree": "0123456789abcdef",
            "criteria": [{"text": "Prices are rounded", "status": "unknown", "evidence": ""}],
            "commands": [{"command": "pytest", "exit_code": null, "seconds": 1.0, "output_tail": "",
                "note": "timed out"}], "protected_changes": ["tests/t.py"]});
        let text = lines(&summary(verdict));
        let expected = "\
unverified  run r1  1m12s, 1 round, 1,200 tokens, cost unknown
  a criterion is unknown
  ✓ a                    coder        done  1 file, 3 turns, 1.2k tokens, cost unknown, 9.0s

  all�[2J done

verdict: unknown on tree 0123456789
  ✗ acceptance: pytest -> no exit code in 1.0s
      timed out
  ? Prices are rounded  [no evidence]
  ✗ protected file changed: tests/t.py
  the verifier: not sure
warning: w

branch:  wharf/r1
details: wharf show r1
next:    wharf apply r1
";
        assert_eq!(text, expected);
        assert!(lines(&summary(json!(null))).contains("verdict: none was given"));
    }
}
