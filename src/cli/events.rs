//! One readable line for each record of a journal.

use super::wording::{WIDTH, command_line, few, status_word, who};
use super::{decisions, request, text};
use crate::journal::{EgressStep, Event, Line};

/// The line of a journal record, its time first.
pub fn record(line: &Line) -> String {
    let time = line.at.strftime("%H:%M:%S");
    format!("{time} {}", text::line(&event(&line.event), WIDTH))
}

#[expect(
    clippy::too_many_lines,
    reason = "a table: one arm an event, and none can be forgotten"
)]
fn event(event: &Event) -> String {
    match event {
        Event::RunStarted(start) => format!(
            "run {} started with {} in {}: {}",
            start.run,
            start.models.join(", "),
            start.workspace,
            start.task
        ),
        Event::BaseTaken {
            commit,
            files,
            bytes,
            ..
        } => format!(
            "base {} of {}, {}",
            short(commit.as_str()),
            text::plural(*files, "file"),
            text::bytes(*bytes)
        ),
        Event::RoundStarted { round } => format!("round {round}"),
        Event::PlanAccepted {
            subtasks, summary, ..
        } => {
            let ids: Vec<&str> = subtasks.iter().map(|task| task.id.as_str()).collect();
            format!("plan accepted: {}: {summary}", ids.join(", "))
        }
        Event::SubtaskEnded {
            id,
            status,
            reason,
            changed_files,
            ..
        } => format!(
            "{id} {}{}, {} changed",
            status_word(*status),
            because(reason.as_deref()),
            text::plural(changed_files.len(), "file")
        ),
        Event::Merged { inputs, commit } => {
            format!(
                "merged {} into {}",
                text::plural(inputs.len(), "snapshot"),
                short(commit.as_str())
            )
        }
        Event::ConflictFound { id, files, .. } => format!("conflict {id} in {}", files.join(", ")),
        Event::ConflictResolved { id, dropped, .. } => match dropped.len() {
            0 => format!("conflict {id} resolved, nothing of either side is gone"),
            some => format!(
                "conflict {id} resolved, with {} dropped",
                text::plural(some, "change")
            ),
        },
        Event::AcceptanceRan {
            commands,
            protected_changes,
            with_base_tests,
            at_base,
            ..
        } => {
            let mut lines: Vec<String> = commands
                .iter()
                .map(|run| command_line(&run.command, run.exit_code, run.seconds))
                .collect();
            if !protected_changes.is_empty() {
                lines.push(format!(
                    "protected files changed: {}",
                    few(protected_changes, 5)
                ));
            }
            for run in with_base_tests.iter().flat_map(|with| &with.commands) {
                let line = command_line(&run.command, run.exit_code, run.seconds);
                lines.push(format!("with the base's tests: {line}"));
            }
            for run in at_base {
                let line = command_line(&run.command, run.exit_code, run.seconds);
                lines.push(format!("at the base: {line}"));
            }
            lines.join("; ")
        }
        Event::VerdictGiven { verdict, .. } => format!(
            "verdict {}: {}",
            verdict["status"].as_str().unwrap_or("unreadable"),
            verdict["summary"].as_str().unwrap_or("")
        ),
        Event::RoundEnded {
            round,
            progress,
            stopped,
        } => {
            let (passed, all) = (progress.criteria_passed, progress.criteria);
            let stopped = stopped.as_ref().map(|why| format!("; {why}"));
            format!(
                "round {round} ended with {passed} of {all} criteria passed{}",
                stopped.unwrap_or_default()
            )
        }
        Event::Summarised { text, .. } => format!("summary: {text}"),
        Event::Warned { text } => format!("warning: {text}"),
        Event::Stopping { reason } => format!("stopping: {reason}"),
        Event::Delivered { branch, patch, .. } => match (branch, patch) {
            (Some(branch), _) => format!("delivered as branch {branch}"),
            (None, Some(patch)) => format!("delivered as patch {patch}"),
            (None, None) => "nothing to deliver".to_owned(),
        },
        Event::RunEnded {
            status,
            exit_code,
            reason,
            ..
        } => {
            format!("run {status} (exit {exit_code}): {reason}")
        }
        Event::Resumed {
            wharf_version,
            torn,
            retry_failed,
            ..
        } => {
            let cut = match torn {
                0 => String::new(),
                torn => format!(", {torn} bytes of an unfinished last record cut off"),
            };
            let again = match retry_failed {
                true => ", failed subtasks again",
                false => "",
            };
            format!("resumed by wharf {wharf_version}{again}{cut}")
        }
        Event::AgentResumed {
            agent,
            snapshot,
            after,
            ..
        } => format!(
            "{} goes on after turn {after} at {}",
            who(agent.subtask.as_str(), agent.role.as_str()),
            short(snapshot.as_str())
        ),
        Event::ImageReady { name, id, .. } => {
            let id = id.strip_prefix("sha256:").unwrap_or(id);
            format!("image {name} is {}", short(id))
        }
        Event::Applied { paths, refused } if refused.is_empty() => {
            format!(
                "applied {}: {}",
                text::plural(paths.len(), "path"),
                few(paths, 5)
            )
        }
        Event::Applied { refused, .. } => format!("apply refused: {}", few(refused, 5)),
        Event::AgentStarted { agent, model, .. } => {
            let who = who(agent.subtask.as_str(), agent.role.as_str());
            format!("{who} started with {model}")
        }
        Event::SandboxOpened {
            agent,
            container,
            image,
            seconds,
            ..
        } => format!(
            "{} sandbox {} of {image} in {seconds:.1}s",
            agent.subtask,
            short(container)
        ),
        Event::SandboxBroken {
            agent,
            reason,
            reopened,
            ..
        } => {
            let then = if *reopened {
                "reopened"
            } else {
                "not reopened"
            };
            format!("{} sandbox broke, {then}: {reason}", agent.subtask)
        }
        Event::Egress {
            agent,
            connection,
            host,
            port,
            step,
        } => {
            let what = egress(step);
            match step {
                EgressStep::Unlisted { .. } => format!("{} network: {what}", agent.subtask),
                _ => format!(
                    "{} network {connection}, {host}:{port} {what}",
                    agent.subtask
                ),
            }
        }
        Event::PermissionAsked { .. } | Event::PermissionDecided { .. } | Event::HookRan { .. } => {
            decisions::event(event)
        }
        Event::RequestMade { agent, call, .. } => request::made(agent, *call),
        Event::Compacted {
            agent,
            how,
            messages,
            tokens,
            ..
        } => request::shortened(agent, how, *messages, *tokens),
        Event::ModelAsked {
            agent,
            call,
            attempt,
            messages,
            reserved_tokens,
            ..
        } => format!(
            "{} asks ({}, attempt {attempt}): {}, {} tokens reserved",
            agent.subtask,
            request::named(*call),
            text::plural(*messages, "message"),
            text::count(*reserved_tokens)
        ),
        Event::ModelAnswered {
            agent,
            call,
            reply,
            usage,
            cost_usd,
            seconds,
        } => format!(
            "{} answer to {}: {} ({} in, {} out{}, {})",
            agent.subtask,
            request::named(*call),
            answer(reply),
            text::count(usage.input_tokens),
            text::count(usage.output_tokens),
            text::and_cost(*cost_usd),
            text::seconds(*seconds)
        ),
        Event::ModelFailed {
            agent,
            attempt,
            reason,
            retry_seconds,
            usage,
            cost_usd,
            ..
        } => {
            let used = usage.map_or_else(String::new, |usage| {
                format!(
                    " ({} in, {} out{})",
                    text::count(usage.input_tokens),
                    text::count(usage.output_tokens),
                    text::and_cost(*cost_usd)
                )
            });
            let next = retry_seconds.map_or_else(
                || "no further try".to_owned(),
                |seconds| format!("again in {seconds:.1}s"),
            );
            format!(
                "{} attempt {attempt} failed, {next}{used}: {reason}",
                agent.subtask
            )
        }
        Event::TurnDone {
            agent,
            turn,
            results,
            snapshot,
            ..
        } => {
            let saved = snapshot.as_ref().map_or_else(String::new, |commit| {
                format!(", files saved as {}", short(commit.as_str()))
            });
            format!(
                "{} turn {turn}: {}{saved}",
                agent.subtask,
                text::plural(results.len(), "result")
            )
        }
        Event::AgentEnded { agent, end } => format!(
            "{} ended{} after {}, {}",
            who(agent.subtask.as_str(), agent.role.as_str()),
            because(end.reason.as_deref()),
            text::plural(end.turns as usize, "turn"),
            text::seconds(end.seconds)
        ),
    }
}

/// What became of a connection out of a sandbox.
fn egress(step: &EgressStep) -> String {
    match step {
        EgressStep::Allowed { address, injected } => {
            let with = match injected.as_slice() {
                [] => String::new(),
                names => format!(", {} added", names.join(", ")),
            };
            format!("allowed, at {address}{with}")
        }
        EgressStep::Refused { reason } => format!("refused: {reason}"),
        EgressStep::Ended {
            sent,
            received,
            milliseconds,
            how,
        } => format!(
            "ended after {}, {} out, {} in: {how}",
            text::seconds(*milliseconds as f64 / 1000.0),
            text::bytes(*sent),
            text::bytes(*received)
        ),
        EgressStep::Unlisted {
            allowed,
            refused,
            sent,
            received,
        } => format!(
            "{allowed} further connections, {refused} further refused, {} out, {} in",
            text::bytes(*sent),
            text::bytes(*received)
        ),
    }
}

/// What a reply asks for: its tool calls by name, else the beginning of its text.
fn answer(reply: &serde_json::Value) -> String {
    let calls: Vec<String> = reply["calls"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|call| {
            let name = call["name"].as_str().unwrap_or("?");
            let arguments = call["arguments"].as_str().unwrap_or("");
            format!("{name} {}", text::line(arguments, 60))
        })
        .collect();
    match calls.as_slice() {
        [] => text::line(reply["text"].as_str().unwrap_or("(empty)"), 80),
        calls => calls.join(" | "),
    }
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| {
        format!(" ({})", text::line(reason, 80))
    })
}

fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(step: serde_json::Value, host: &str) -> String {
        let line = serde_json::json!({"seq": 1, "at": "2026-01-01T00:00:00Z", "prev": "", "type": "egress",
            "agent": {"round": 1, "subtask": "a", "role": "coder"}, "connection": 7, "host": host, "port": 443,
            "step": step});
        record(&serde_json::from_value(line).unwrap())
    }

    #[test]
    fn a_connection_is_one_line_whatever_it_asked_for() {
        let step = serde_json::json!({"step": "allowed", "address": "192.0.2.1:443", "injected": ["X-Key"]});
        assert_eq!(
            shown(step, "a.example"),
            "00:00:00 a network 7, a.example:443 allowed, at 192.0.2.1:443, X-Key added"
        );
        let step = serde_json::json!({"step": "ended", "sent": 10, "received": 2048, "milliseconds": 1500,
            "how": "both sides were done"});
        let ended = shown(step, "a.example");
        assert!(ended.contains("ended after 1.5s, 10 B out, 2"), "{ended}");
        let forged = shown(
            serde_json::json!({"step": "refused", "reason": "no"}),
            "x\n00:00:01 \u{1b}[2J",
        );
        assert!(
            !forged.contains('\n') && !forged.contains('\u{1b}'),
            "{forged}"
        );
        assert!(forged.ends_with(":443 refused: no"), "{forged}");
    }
}
