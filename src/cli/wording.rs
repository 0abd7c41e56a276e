//! One readable line for each notice, and the words shared with the journal's lines.

use console::style;

use super::{decisions, text};
use crate::journal::{Dropped, Loss};
use crate::run::Notice;

/// Characters of a line.
pub const WIDTH: usize = 160;

/// The line of a notice.
pub fn notice(notice: &Notice) -> String {
    let line = match notice {
        Notice::Started {
            run,
            model,
            recorded,
            run_dir,
            network,
            ..
        } => {
            let mut line = format!("run {run} with {model}");
            if *recorded {
                line.push_str(" (recorded answers, no model is asked)");
            }
            if !network.is_empty() {
                line.push_str(&format!("; with network: {}", network.join(", ")));
            }
            return text::line(&format!("{line}; state in {run_dir}"), 400);
        }
        Notice::Resumed { .. } => resumed(notice),
        Notice::Preparing { line } => line.clone(),
        Notice::Base { .. } => base(notice),
        Notice::Round { round } => format!("round {round}"),
        Notice::Planned { subtasks, .. } => return planned(subtasks),
        Notice::AgentStarted { agent, role, .. } => format!("{} started", who(agent, role)),
        Notice::AgentTurn {
            agent,
            role,
            turn,
            doing,
        } => {
            format!("{} turn {turn}: {doing}", who(agent, role))
        }
        Notice::AgentEnded { .. } => ended(notice),
        Notice::Waiting { .. } => waiting(notice),
        Notice::Asked { .. } | Notice::Decided { .. } => decisions::notice(notice),
        Notice::Blocked { subtask, reason } => format!("{subtask} blocked: {reason}"),
        Notice::Conflict { subtask, files } => {
            format!("conflict {subtask} in {}", files.join(", "))
        }
        Notice::Merged { inputs } => format!("merged {}", text::plural(*inputs, "snapshot")),
        Notice::Acceptance {
            command,
            exit_code,
            seconds,
        } => command_line(command, *exit_code, *seconds),
        Notice::Verdict { status, summary } => format!("verdict {status}: {summary}"),
        Notice::Warning { text } => format!("warning: {text}"),
        Notice::Stopping { reason } => format!("stopping: {reason}"),
    };
    text::line(&line, WIDTH)
}

fn base(notice: &Notice) -> String {
    let Notice::Base {
        files,
        bytes,
        dirty,
        hidden,
        included,
        left_out,
    } = notice
    else {
        return String::new();
    };
    let mut line = format!(
        "base: {}, {}",
        text::plural(*files, "file"),
        text::bytes(*bytes)
    );
    if *dirty {
        line.push_str(", with uncommitted changes");
    }
    if !hidden.is_empty() {
        line.push_str(&format!("; withheld from agents: {}", few(hidden, 5)));
    }
    if !included.is_empty() {
        line.push_str(&format!("; shown on request: {}", few(included, 5)));
    }
    if !left_out.is_empty() {
        let named: Vec<String> = left_out
            .iter()
            .map(|(p, why)| format!("{p} ({why})"))
            .collect();
        line.push_str(&format!("; left out: {}", few(&named, 5)));
    }
    line
}

fn resumed(notice: &Notice) -> String {
    let Notice::Resumed {
        done,
        open,
        torn,
        lost_tokens,
        seconds,
        ..
    } = notice
    else {
        return String::new();
    };
    let mut line = format!(
        "resumed after {}: {} done, {} in the middle",
        text::seconds(*seconds),
        text::plural(*done, "subtask"),
        text::plural(*open, "agent")
    );
    if *torn > 0 {
        line.push_str(&format!("; {torn} bytes of an unfinished record cut off"));
    }
    if *lost_tokens > 0 {
        line.push_str(&format!(
            "; {} tokens of requests without an answer count as spent",
            text::count(*lost_tokens)
        ));
    }
    line
}

fn planned(subtasks: &[(String, String, Vec<String>)]) -> String {
    let named: Vec<String> = subtasks
        .iter()
        .map(|(id, role, needs)| match needs.as_slice() {
            [] => format!("{id} ({role})"),
            needs => format!("{id} ({role}) after {}", needs.join(", ")),
        })
        .map(|line| format!("\n           {}", text::line(&line, WIDTH)))
        .collect();
    format!(
        "plan: {}{}",
        text::plural(subtasks.len(), "subtask"),
        named.concat()
    )
}

/// `fix (coder)`; an agent named as its role is named once.
pub fn who(agent: &str, role: &str) -> String {
    if agent == role {
        agent.to_owned()
    } else {
        format!("{agent} ({role})")
    }
}

fn waiting(notice: &Notice) -> String {
    let Notice::Waiting {
        agent,
        attempt,
        attempts,
        reason,
        seconds,
    } = notice
    else {
        return String::new();
    };
    let wait = text::seconds(*seconds);
    format!("{agent} try {attempt} of {attempts} in {wait}: {reason}")
}

fn ended(notice: &Notice) -> String {
    let Notice::AgentEnded {
        agent,
        role,
        status,
        reason,
        changed_files,
        turns,
        tokens,
        cost_usd,
        seconds,
    } = notice
    else {
        return String::new();
    };
    let mut line = format!("{} {status}", who(agent, role));
    if let Some(reason) = reason {
        line.push_str(&format!(": {}", text::line(reason, 80)));
    }
    line.push_str(&format!(
        " - {} changed, {}, {} tokens{}, {}",
        text::plural(*changed_files, "file"),
        text::plural(*turns as usize, "turn"),
        text::count(*tokens),
        text::and_cost(*cost_usd),
        text::seconds(*seconds)
    ));
    line
}

/// `acceptance: CMD -> exit 0 in 3s`; no code is said as such, never as success.
pub fn command_line(command: &str, exit_code: Option<i32>, seconds: f64) -> String {
    let exit = exit_code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit {code}"));
    format!(
        "acceptance: {} -> {exit} in {}",
        text::line(command, 80),
        text::seconds(seconds)
    )
}

/// The first of many names, and how many more there are.
pub fn few(names: &[String], limit: usize) -> String {
    let shown: Vec<&str> = names.iter().take(limit).map(String::as_str).collect();
    match names.len().saturating_sub(limit) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The word of a status, as in result.json.
pub fn status_word(status: crate::journal::SubtaskStatus) -> &'static str {
    match status {
        crate::journal::SubtaskStatus::Done => "done",
        crate::journal::SubtaskStatus::Failed => "failed",
        crate::journal::SubtaskStatus::Blocked => "blocked",
        crate::journal::SubtaskStatus::Cancelled => "cancelled",
    }
}

/// What is gone of either side of a conflict, on a line beside it; empty when nothing is.
pub fn dropped(dropped: &[Dropped]) -> String {
    let lost = dropped.iter().map(|d| match (d.what, d.lines.first()) {
        (Loss::Deletion, _) => format!("the removal of {}", d.path),
        (_, Some(line)) => format!("{}: {line}", d.path),
        (_, None) => d.path.clone(),
    });
    let lost: Vec<String> = lost.collect();
    if lost.is_empty() {
        return String::new();
    }
    format!("      dropped: {}\n", text::line(&lost.join("; "), 160))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_cannot_write_a_second_line_or_an_escape() {
        let forged = Notice::AgentTurn {
            agent: "a".into(),
            role: "coder".into(),
            turn: 2,
            doing: "bash: true\nverdict pass: \u{1b}[2Kall good".into(),
        };
        let line = notice(&forged);
        assert!(!line.contains('\n') && !line.contains('\u{1b}'), "{line}");
        assert!(line.starts_with("a (coder) turn 2: "));
    }

    #[test]
    fn a_failed_call_says_which_try_comes_when() {
        let waiting = Notice::Waiting {
            agent: "a".into(),
            attempt: 2,
            attempts: 6,
            reason: "503 overloaded".into(),
            seconds: 1.24,
        };
        assert_eq!(notice(&waiting), "a try 2 of 6 in 1.2s: 503 overloaded");
    }

    #[test]
    fn a_command_without_an_exit_code_does_not_read_as_success() {
        assert_eq!(
            command_line("make lint", None, 3.2),
            "acceptance: make lint -> no exit code in 3.2s"
        );
    }
}
