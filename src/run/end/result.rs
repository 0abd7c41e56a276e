//! A journal's state as result.json words it: pure, for a run that goes on, ended or crashed.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::id::SubtaskId;
use crate::journal::{
    Agent, AgentKind, AgentState, Lost, Progress, RunStarted, Side, State, Subtask, SubtaskState,
    SubtaskStatus,
};
use crate::run::end::patch::Root;
use crate::run::end::summary::{
    AgentResult, ConflictResult, Kept, LeftOut, RoundResult, SCHEMA, Status, SubtaskResult,
    Summary, TotalUsage, Verdict,
};
use crate::run::end::words;
use crate::run::judge::additions::IGNORED;
use crate::run::judge::outcome;
use crate::run::work::left_out::pair;
use crate::workspace;

/// What the journal tells of a run. Status, exit code and reason are those of its last line; a run
/// without one was cut off, which is an error until somebody resumes it.
pub fn of(state: &State, dir: &Path) -> Summary {
    let started = state.started.as_ref();
    let run = started.map(|(_, s)| s.clone());
    let (usage, cost_usd, calls) = state.totals();
    let seconds = state.seconds();
    let (status, exit_code, reason) = ended(state);
    let delivered = state.delivered.clone();
    let patch = delivered.as_ref().and_then(|d| d.patch.clone());
    let left_out = left_out(state);
    let base = state.base.as_ref();
    let said = |field: fn(&RunStarted) -> String| run.as_ref().map(field).unwrap_or_default();
    Summary {
        schema: SCHEMA.to_owned(),
        wharf_version: said(|r| r.wharf_version.clone()),
        run: said(|r| r.run.to_string()),
        run_dir: dir.display().to_string(),
        status,
        exit_code,
        reason,
        next: String::new(),
        task: said(|r| r.task.clone()),
        plan_hash: said(|r| r.plan_hash.clone()),
        models: run.as_ref().map(|r| r.models.clone()).unwrap_or_default(),
        started_at: started.map(|(at, _)| at.to_string()).unwrap_or_default(),
        seconds,
        rounds: state.round,
        subtasks: state
            .nodes()
            .map(|(round, node)| subtask(state, round, node))
            .collect(),
        conflicts: conflicts(state, dir),
        agents: others(state),
        warnings: warnings(state, &left_out),
        left_out,
        verdict: verdict(state),
        progress: progress(state),
        base: base.map(|b| b.commit.to_string()),
        dirty: base.is_some_and(|b| b.details["dirty"] == true),
        snapshot: None,
        branch: delivered.and_then(|d| d.branch),
        apply: patch
            .as_deref()
            .and_then(|patch| Some(Root::of(state)?.command(patch))),
        patch,
        usage: TotalUsage {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.cached_tokens,
            calls,
            estimated: usage.estimated || state.lost.calls > 0,
        },
        cost_usd,
        trace_id: run.and_then(|r| r.trace_id),
        summary: state.summary.clone().unwrap_or_default(),
    }
}

fn ended(state: &State) -> (Status, i32, String) {
    let Some(ended) = &state.ended else {
        return (Status::Error, 3, "it did not end in order".to_owned());
    };
    let status = serde_json::from_value(Value::String(ended.status.clone()));
    (
        status.unwrap_or(Status::Error),
        ended.exit_code,
        ended.reason.clone(),
    )
}

/// The agent that worked a node, of several the last.
fn agent<'a>(state: &'a State, id: &SubtaskId) -> Option<(&'a Agent, &'a AgentState)> {
    let mut agents = state.agents.iter().rev();
    agents.find(|(agent, _)| agent.subtask == *id)
}

fn agent_state(state: &State, id: &SubtaskId) -> AgentState {
    agent(state, id)
        .map(|(_, state)| state.clone())
        .unwrap_or_default()
}

/// Whoever else asked a model, so that all tokens of the run are somebody's.
fn others(state: &State) -> Vec<AgentResult> {
    let planned = state.nodes().map(|(_, node)| &node.id);
    let nodes = planned.chain(state.conflicts.iter().map(|conflict| &conflict.id));
    let told: BTreeSet<&Agent> = nodes.filter_map(|id| Some(agent(state, id)?.0)).collect();
    let rest = state.agents.iter().filter(|(who, _)| !told.contains(who));
    rest.filter(|(_, agent)| agent.spent.is_any())
        .map(|(who, agent)| AgentResult {
            id: who.subtask.to_string(),
            role: who.role.to_string(),
            round: who.round,
            turns: agent.turns,
            tool_calls: agent.tool_calls,
            usage: agent.spent.usage,
            cost_usd: agent.spent.cost_usd,
            seconds: agent.ended.as_ref().map_or(0.0, |e| e.seconds),
        })
        .collect()
}

fn subtask(state: &State, round: u32, node: &Subtask) -> SubtaskResult {
    let agent = agent_state(state, &node.id);
    let end = state.subtasks.get(&node.id);
    let report = agent.ended.as_ref().and_then(|e| e.ended.as_ref());
    SubtaskResult {
        id: node.id.to_string(),
        role: node.role.to_string(),
        needs: node.needs.iter().map(ToString::to_string).collect(),
        round,
        // A node without an end is one that the run never came to.
        status: end.map_or(SubtaskStatus::Cancelled, |e| e.status),
        reason: end.map_or_else(|| Some("it did not end".to_owned()), |e| e.reason.clone()),
        summary: report.map(words::report),
        changed_files: end.map(|e| e.changed_files.clone()).unwrap_or_default(),
        turns: agent.turns,
        tool_calls: agent.tool_calls,
        usage: agent.spent.usage,
        cost_usd: agent.spent.cost_usd,
        seconds: agent.ended.as_ref().map_or(0.0, |e| e.seconds),
        snapshot: end
            .and_then(|e| e.snapshot.as_ref())
            .map(ToString::to_string),
    }
}

fn conflicts(state: &State, dir: &Path) -> Vec<ConflictResult> {
    let kept = |id: &SubtaskId| {
        let reference = workspace::conflict_ref(id);
        Kept {
            store: dir.join("store.git").display().to_string(),
            ours: format!("{reference}/ours"),
            theirs: format!("{reference}/theirs"),
        }
    };
    let names = |ids: &[SubtaskId]| ids.iter().map(ToString::to_string).collect();
    let result = |conflict: &crate::journal::Conflict| {
        let end: Option<&SubtaskState> = state.subtasks.get(&conflict.id);
        let agent = agent_state(state, &conflict.id);
        let report = agent.ended.as_ref().and_then(|e| e.ended.as_ref());
        ConflictResult {
            id: conflict.id.to_string(),
            files: conflict.files.clone(),
            ours: conflict.ours.to_string(),
            theirs: conflict.theirs.to_string(),
            status: end.map_or(SubtaskStatus::Cancelled, |e| e.status),
            reason: end.and_then(|e| e.reason.clone()),
            summary: report.map(words::report),
            ours_by: names(&conflict.ours_by),
            theirs_by: names(&conflict.theirs_by),
            dropped: conflict.dropped.clone(),
            beyond: conflict.beyond.clone(),
            removed: conflict.removed.clone(),
            kept: Some(kept(&conflict.id)),
            turns: agent.turns,
            tool_calls: agent.tool_calls,
            usage: agent.spent.usage,
            cost_usd: agent.spent.cost_usd,
            seconds: agent.ended.as_ref().map_or(0.0, |e| e.seconds),
        }
    };
    state.conflicts.iter().map(result).collect()
}

fn left_out(state: &State) -> Vec<LeftOut> {
    let base = state.base.as_ref().map(|b| &b.details["left_out"]);
    let pairs = base
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<LeftOut> = pairs
        .iter()
        .map(|pair| LeftOut {
            path: text(&pair[0]),
            reason: text(&pair[1]),
            subtask: None,
        })
        .collect();
    let mut seen: BTreeSet<LeftOut> = all.iter().cloned().collect();
    // What a coordinator or a verifier leaves in its sandbox is thrown away with it.
    let kept = state.agents.iter().filter(|(_, agent)| {
        !matches!(
            agent.kind,
            Some(AgentKind::Coordinator | AgentKind::Verifier)
        )
    });
    for (agent, agent_state) in kept {
        for line in &agent_state.left_out {
            let (path, reason) = pair(line);
            let left = LeftOut {
                path,
                reason,
                subtask: Some(agent.subtask.to_string()),
            };
            // An agent of a later round leaves the same build output out once more.
            if seen.insert(left.clone()) {
                all.push(left);
            }
        }
    }
    all
}

/// What a killed process had asked for and nobody knows the cost of.
fn lost(state: &State) -> Option<String> {
    let Lost { calls, tokens } = state.lost;
    let were = match calls {
        0 => return None,
        1 => "1 call to a model was".to_owned(),
        calls => format!("{calls} calls to models were"),
    };
    Some(format!(
        "{were} out when the run was killed; up to {tokens} tokens are not in the figures of its usage"
    ))
}

fn warnings(state: &State, left_out: &[LeftOut]) -> Vec<String> {
    let told = state.warnings.iter().cloned();
    // One of a round before says nothing of what was planned since.
    let planned = state.plans.last().map_or(0, |plan| plan.round);
    let given = state.verdict.as_ref().map_or(0, |(round, _)| *round);
    let last = verdict(state).filter(|_| given >= planned);
    let verdict = last.into_iter().flat_map(|verdict| {
        let losses = verdict.test_losses.iter();
        let losses = losses.map(|loss| format!("the tests lost something: {loss}"));
        let with_base = verdict.with_base_tests.iter();
        let doubts = with_base.flat_map(|with| outcome::doubts(&verdict.commands, with));
        let said = losses.chain(doubts).chain(verdict.disagreement());
        said.collect::<Vec<_>>()
    });
    told.chain(lost(state))
        .chain(verdict)
        .chain(state.conflicts.iter().flat_map(unasked))
        .chain(missing(left_out))
        .collect()
}

/// What a merger did that no side asked for, in a resolution that was taken.
fn unasked(conflict: &crate::journal::Conflict) -> Vec<String> {
    let others = conflict.beyond.iter();
    let others: Vec<String> = others
        .filter(|path| !conflict.removed.contains(path))
        .cloned()
        .collect();
    let both = conflict.dropped.iter();
    let both: Vec<String> = both
        .filter(|dropped| dropped.side == Side::Both)
        .flat_map(words::dropped)
        .collect();
    [
        ("removed what was in no conflict", &conflict.removed),
        ("changed what was in no conflict", &others),
        ("dropped what no side had touched", &both),
    ]
    .into_iter()
    .filter(|(_, what)| conflict.resolved.is_some() && !what.is_empty())
    .map(|(did, what)| {
        let what = words::few(what, 5, ", ");
        format!("{} {did}: {what}; look whether that is meant", conflict.id)
    })
    .collect()
}

/// What an agent made and the result lacks, so that a pass is not taken for one with all of it. What
/// ignore rules name is build output.
fn missing(left_out: &[LeftOut]) -> Option<String> {
    let made = left_out
        .iter()
        .filter(|left| left.subtask.is_some() && left.reason != IGNORED);
    let paths: BTreeSet<String> = made
        .map(|left| format!("{} ({})", left.path, left.reason))
        .collect();
    let what = match paths.len() {
        0 => return None,
        1 => "a file that an agent made is".to_owned(),
        number => format!("{number} files that agents made are"),
    };
    let paths: Vec<String> = paths.into_iter().collect();
    let shown = words::few(&paths, 5, ", ");
    Some(format!("{what} not in the result: {shown}"))
}

fn progress(state: &State) -> Vec<RoundResult> {
    let rounds = state.progress.iter();
    let result = |(round, progress): (&u32, &Progress)| RoundResult {
        round: *round,
        progress: progress.clone(),
    };
    rounds.map(result).collect()
}

fn verdict(state: &State) -> Option<Verdict> {
    let (_, value) = state.verdict.as_ref()?;
    serde_json::from_value(value.clone()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::journal::Line;

    fn state(events: Value) -> State {
        let line = |(n, event): (usize, &Value)| {
            let mut event = event.clone();
            event["seq"] = json!(n + 1);
            event["at"] = json!("2026-01-01T00:00:00Z");
            event["prev"] = json!("");
            serde_json::from_value::<Line>(event).unwrap()
        };
        let lines = events.as_array().unwrap().iter().enumerate();
        State::of(&lines.map(line).collect::<Vec<_>>())
    }

    /// A coordinator, a subtask, a conflict's merger, the summary and a verifier, each of whom asked once.
    fn whole() -> Value {
        let who = |subtask: &str, role: &str| json!({"round": 1, "subtask": subtask, "role": role});
        let asked = |subtask: &str, role: &str, tokens: u64| {
            json!({"type": "model_answered", "agent": who(subtask, role), "call": 1, "reply": {},
                "usage": {"input_tokens": tokens, "output_tokens": 1, "cached_tokens": 0, "estimated": false},
                "cost_usd": null, "seconds": 1.0})
        };
        let turn = |subtask: &str, role: &str, turn: u32| {
            json!({"type": "turn_done", "agent": who(subtask, role), "turn": turn, "results": [],
                "snapshot": null, "left_out": [".cache/: ignored", ".cache/: ignored"]})
        };
        json!([
            {"type": "run_started", "wharf_version": "0", "run": "r", "task": "t", "plan_name": "p",
             "plan_hash": "h", "workspace": "/r/sub", "models": ["m"], "options": {"copy": true},
             "trace_id": null},
            {"type": "base_taken", "commit": "c", "tree": "t", "files": 1, "bytes": 1, "details": {
                "commit": "c", "tree": "t", "head": null, "git": "repository", "dirty": false,
                "files": 1, "bytes": 1, "hidden": [], "left_out": [], "prefix": "sub"}},
            {"type": "plan_accepted", "round": 1, "summary": "s", "criteria": [], "subtasks": [
                {"id": "a", "role": "coder", "title": null, "brief": "b", "needs": []}]},
            {"type": "agent_started", "agent": who("coordinator", "coordinator"), "kind": "coordinator",
             "model": "m", "start": "c"},
            asked("coordinator", "coordinator", 10),
            turn("coordinator", "coordinator", 1),
            {"type": "agent_started", "agent": who("a", "coder"), "kind": "worker", "model": "m", "start": "c"},
            asked("a", "coder", 100),
            turn("a", "coder", 1),
            {"type": "conflict_found", "id": "merge-1", "ours": "x", "theirs": "y", "files": ["f"]},
            asked("merge-1", "merger", 1_000),
            asked("summary", "coordinator", 10_000),
            asked("verifier", "verifier", 100_000),
            {"type": "delivered", "branch": null, "patch": "/s/p", "commit": null},
        ])
    }

    #[test]
    fn every_token_of_the_run_is_somebody_s() {
        let summary = of(&state(whole()), Path::new("/s"));
        let sides = summary.conflicts.iter().map(|c| c.usage);
        let all = summary.subtasks.iter().map(|s| s.usage).chain(sides);
        let all = all.chain(summary.agents.iter().map(|a| a.usage));
        let sum: u64 = all
            .map(|usage| usage.input_tokens + usage.output_tokens)
            .sum();
        let total = summary.usage.input_tokens + summary.usage.output_tokens;
        assert_eq!((sum, total), (111_115, 111_115));
        let names: Vec<&str> = summary.agents.iter().map(|a| a.id.as_str()).collect();
        assert_eq!(names, ["coordinator", "summary", "verifier"]);
    }

    #[test]
    fn a_request_that_was_out_at_a_kill_makes_the_figures_estimates_and_is_told() {
        let with = |more: Value| {
            let mut events = whole();
            let list = events.as_array_mut().unwrap();
            list.extend(more.as_array().unwrap().iter().cloned());
            of(&state(events), Path::new("/s"))
        };
        let asked = |subtask: &str| {
            json!({"type": "model_asked", "agent": {"round": 1, "subtask": subtask, "role": "coder"},
                "call": 2, "attempt": 1, "messages": 2, "reserved_tokens": 700, "request_hash": "h"})
        };
        let resumed = json!({"type": "resumed", "wharf_version": "0", "torn": 0});
        let whole = with(json!([resumed]));
        assert!(!whole.usage.estimated);
        assert_eq!(whole.warnings, [""; 0]);
        let killed = with(json!([
            asked("a"),
            asked("b"),
            resumed,
            asked("a"),
            resumed,
            resumed
        ]));
        assert!(killed.usage.estimated);
        assert_eq!(
            killed.warnings,
            ["3 calls to models were out when the run was killed; \
              up to 2100 tokens are not in the figures of its usage"]
        );
        assert_eq!(killed.usage.input_tokens, whole.usage.input_tokens);
    }

    #[test]
    fn what_was_left_out_is_named_once_and_only_where_files_are_kept() {
        let summary = of(&state(whole()), Path::new("/s"));
        let left: Vec<_> = summary.left_out.iter().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].subtask.as_deref(), Some("a"));
        assert_eq!(
            (left[0].path.as_str(), left[0].reason.as_str()),
            (".cache/", "ignored")
        );
    }

    #[test]
    fn what_an_agent_made_and_the_result_lacks_is_a_warning() {
        let mut events = whole();
        assert_eq!(
            of(&state(events.clone()), Path::new("/s")).warnings,
            [""; 0]
        );
        events[8]["left_out"] = json!(["big: 80 MiB, more than the 64 MiB a file may have"]);
        let summary = of(&state(events), Path::new("/s"));
        let warning = "a file that an agent made is not in the result: \
                       big (80 MiB, more than the 64 MiB a file may have)";
        assert_eq!(summary.warnings, [warning]);
    }

    #[test]
    fn a_patch_comes_with_the_command_that_applies_it() {
        let summary = of(&state(whole()), Path::new("/s"));
        let command = "git -C /r apply --directory=sub /s/p";
        assert_eq!(summary.apply.as_deref(), Some(command));
    }
}
