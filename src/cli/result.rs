//! The end of a run in a few lines: what it came to, who did what, the verdict, what to type next.

use std::collections::BTreeSet;

use console::style;

use super::text::{self, Answers};
use super::wording::{mark, status_word};
use super::{judged, wording};
use crate::journal::Usage;
use crate::run::{AgentResult, ConflictResult, Status, SubtaskResult, Summary};

/// The lines printed when a run ends.
pub fn lines(summary: &Summary) -> String {
    let mut out = head(summary);
    out.push_str(&warnings(summary));
    let answers = Answers::of(&summary.models);
    for subtask in &summary.subtasks {
        out.push_str(&subtask_line(subtask, answers));
    }
    for conflict in &summary.conflicts {
        out.push_str(&conflict_line(conflict));
    }
    for agent in &summary.agents {
        out.push_str(&agent_line(agent, answers));
    }
    out.push_str(&words(summary, 12));
    out.push_str(&judged::verdict(summary.verdict.as_ref()));
    // What agents made and the result lacks is a warning; report.md lists build output too.
    let named = summary.left_out.iter().filter(|l| l.subtask.is_none());
    let named: BTreeSet<(&str, &str)> = named
        .map(|l| (l.path.as_str(), l.reason.as_str()))
        .collect();
    for (path, why) in named {
        let (path, why) = (text::line(path, 80), text::line(why, 80));
        out.push_str(&format!("left out: {path} ({why})\n"));
    }
    out.push('\n');
    out.push_str(&delivered(summary));
    out
}

/// What agents say of the whole; where that was not borne out, it is said first.
pub fn words(summary: &Summary, limit: usize) -> String {
    if summary.summary.trim().is_empty() {
        return String::new();
    }
    let whose = match Answers::of(&summary.models) {
        Answers::Recorded => "words recorded in another run",
        Answers::Asked => "the agents' own words",
    };
    let before = match summary.status {
        Status::Passed => String::new(),
        Status::Unverified => format!("  {whose}, not verified:\n"),
        _ => format!("  {whose}; this run did not pass:\n"),
    };
    format!("\n{before}{}", text::block(&summary.summary, "  ", limit))
}

/// What a headline alone would hide, right below it.
pub fn warnings(summary: &Summary) -> String {
    let lines = summary.warnings.iter();
    lines
        .map(|warning| format!("  warning: {}\n", text::line(warning, 300)))
        .collect()
}

/// `passed  run ID  3m12s  184,220 tokens  $0.42` and the reason.
pub fn head(summary: &Summary) -> String {
    let word = status(summary.status);
    let shown = match summary.status {
        Status::Passed => style(word).green().bold(),
        Status::Unverified | Status::Limited | Status::Interrupted => style(word).yellow().bold(),
        Status::Failed | Status::Error => style(word).red().bold(),
    };
    let usage = &summary.usage;
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    let estimate = if summary.usage.estimated {
        " (estimated)"
    } else {
        ""
    };
    let mut out = format!(
        "{shown}  run {}  {}, {}, {}{estimate}\n",
        text::line(&summary.run, 40),
        text::seconds(summary.seconds),
        text::plural(summary.rounds as usize, "round"),
        Answers::of(&summary.models).spent(&text::count(tokens), summary.cost_usd)
    );
    if !summary.reason.is_empty() {
        out.push_str(&text::block(&summary.reason, "  ", 6));
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

/// Where the result is and what to type next.
pub fn delivered(summary: &Summary) -> String {
    let mut out = String::new();
    if let Some(branch) = &summary.branch {
        out.push_str(&format!("branch:  {}\n", text::line(branch, 200)));
        if summary.dirty {
            out.push_str(
                "         its first commit, \"working tree at start\", holds what you had not \
                 committed, untracked files too\n",
            );
        }
    }
    if let Some(patch) = &summary.patch {
        out.push_str(&format!("patch:   {}\n", text::plain(patch)));
    }
    if let Some(apply) = &summary.apply {
        out.push_str(&format!("apply:   {}\n", text::plain(apply)));
    }
    if let Some(nothing) = nothing(summary) {
        out.push_str(&format!("{nothing}\n"));
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

/// Said in place of a branch or a patch when a run that came to its end has neither.
fn nothing(summary: &Summary) -> Option<&'static str> {
    let ended = match summary.status {
        Status::Passed | Status::Failed | Status::Unverified | Status::Limited => true,
        Status::Interrupted | Status::Error => false,
    };
    let delivered = summary.branch.is_some() || summary.patch.is_some();
    let changed = |subtask: &SubtaskResult| !subtask.changed_files.is_empty();
    match (ended && !delivered, summary.subtasks.iter().any(changed)) {
        (false, _) => None,
        (true, false) => Some("no change was made"),
        (true, true) => Some("no change was delivered: what the subtasks made did not come to one"),
    }
}

fn subtask_line(subtask: &SubtaskResult, answers: Answers) -> String {
    let word = status_word(subtask.status);
    format!(
        "  {} {:<20} {:<12} {word}{}  {}, {}, {}, {}\n",
        mark(word),
        text::line(&subtask.id, 40),
        text::line(&subtask.role, 40),
        reason(subtask.reason.as_deref()),
        text::plural(subtask.changed_files.len(), "file"),
        text::plural(subtask.turns as usize, "turn"),
        answers.spent(&tokens(&subtask.usage), subtask.cost_usd),
        text::seconds(subtask.seconds)
    )
}

fn conflict_line(conflict: &ConflictResult) -> String {
    format!(
        "  {} {:<20} {:<12} conflict in {}{}  {}, {} tokens\n{}",
        mark(status_word(conflict.status)),
        text::line(&conflict.id, 40),
        "merger",
        text::line(&conflict.files.join(", "), 80),
        reason(conflict.reason.as_deref()),
        text::plural(conflict.turns as usize, "turn"),
        tokens(&conflict.usage),
        wording::dropped(&conflict.dropped)
    )
}

/// The line of a coordinator, a verifier or the summary, so that the tokens add up.
fn agent_line(agent: &AgentResult, answers: Answers) -> String {
    let mut line = format!("  {} {:<20} ", mark(""), text::line(&agent.id, 40));
    let role = if agent.id == agent.role {
        ""
    } else {
        &agent.role
    };
    line.push_str(&format!("{:<12} ", text::line(role, 40)));
    if agent.round > 1 {
        line.push_str(&format!("round {}  ", agent.round));
    }
    if agent.turns > 0 {
        line.push_str(&format!("{}, ", text::plural(agent.turns as usize, "turn")));
    }
    line.push_str(&answers.spent(&tokens(&agent.usage), agent.cost_usd));
    if agent.seconds > 0.0 {
        line.push_str(&format!(", {}", text::seconds(agent.seconds)));
    }
    line + "\n"
}

fn tokens(usage: &Usage) -> String {
    text::short(usage.input_tokens.saturating_add(usage.output_tokens))
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
  warning: w
  ✓ a                    coder        done  1 file, 3 turns, 1.2k tokens, cost unknown, 9.0s

  the agents' own words, not verified:
  all�[2J done

verdict: unknown on tree 0123456789
  ✗ acceptance: pytest -> no exit code in 1.0s
      timed out
  ? Prices are rounded  [no evidence]
  ✗ protected file changed: tests/t.py
  the verifier says: not sure

branch:  wharf/r1
details: wharf show r1
next:    wharf apply r1
";
        assert_eq!(text, expected);
        assert!(lines(&summary(json!(null))).contains("verdict: none was given"));
    }

    #[test]
    fn a_failing_command_comes_first_and_words_of_wharf_are_not_the_verifier_s() {
        console::set_colors_enabled(false);
        let ran = |command: &str, code: i32| {
            json!({"command": command, "exit_code": code, "seconds": 1.0, "output_tail": "",
                "note": null})
        };
        let given: crate::run::Verdict =
            serde_json::from_value(json!({"status": "fail", "criteria": [],
            "summary": "the verifier was not asked", "tree": "0123456789abcdef",
            "commands": [ran("lint", 0), ran("test", 1)], "protected_changes": []}))
            .unwrap();
        let expected = "
verdict: fail on tree 0123456789
  ✗ acceptance: test -> exit 1 in 1.0s
  ✓ acceptance: lint -> exit 0 in 1.0s
  the verifier was not asked
";
        assert_eq!(judged::verdict(Some(&given)), expected);
    }

    #[test]
    fn a_run_without_a_change_says_so_and_a_stopped_one_does_not_claim_it() {
        let mut summary = summary(json!(null));
        summary.branch = None;
        summary.next = "wharf show r1".to_owned();
        summary.subtasks[0].changed_files.clear();
        let expected = "no change was made\nnext:    wharf show r1\n";
        assert_eq!(delivered(&summary), expected);
        summary.status = Status::Interrupted;
        assert!(!delivered(&summary).contains("no change"));
    }
}
