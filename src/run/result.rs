//! A journal's state as result.json words it: pure, for a run that goes on, ended or crashed.

use std::path::Path;

use serde_json::Value;

use super::summary::{
    ConflictResult, LeftOut, SCHEMA, Status, SubtaskResult, Summary, TotalUsage, Verdict,
};
use super::words;
use crate::id::SubtaskId;
use crate::journal::{AgentKind, AgentState, State, Subtask, SubtaskState, SubtaskStatus};

/// What the journal tells of a run. Status, exit code and reason are those of its last line; a run
/// without one was cut off, which is an error until somebody resumes it.
pub fn of(state: &State, dir: &Path) -> Summary {
    let started = state.started.as_ref();
    let run = started.map(|(_, s)| s.clone());
    let (usage, cost_usd, calls) = state.totals();
    let seconds = match (started, state.last) {
        (Some((from, _)), Some(to)) => to.duration_since(*from).as_secs_f64(),
        _ => 0.0,
    };
    let (status, exit_code, reason) = ended(state);
    let delivered = state.delivered.clone();
    Summary {
        schema: SCHEMA.to_owned(),
        wharf_version: run
            .as_ref()
            .map(|r| r.wharf_version.clone())
            .unwrap_or_default(),
        run: run.as_ref().map(|r| r.run.to_string()).unwrap_or_default(),
        run_dir: dir.display().to_string(),
        status,
        exit_code,
        reason,
        next: String::new(),
        task: run.as_ref().map(|r| r.task.clone()).unwrap_or_default(),
        plan_hash: run
            .as_ref()
            .map(|r| r.plan_hash.clone())
            .unwrap_or_default(),
        models: run.as_ref().map(|r| r.models.clone()).unwrap_or_default(),
        started_at: started.map(|(at, _)| at.to_string()).unwrap_or_default(),
        seconds,
        rounds: state.round,
        subtasks: state
            .nodes()
            .map(|(round, node)| subtask(state, round, node))
            .collect(),
        conflicts: conflicts(state),
        left_out: left_out(state),
        warnings: state.warnings.clone(),
        verdict: verdict(state),
        base: state.base.as_ref().map(|b| b.commit.to_string()),
        snapshot: None,
        branch: delivered.as_ref().and_then(|d| d.branch.clone()),
        patch: delivered.and_then(|d| d.patch),
        usage: TotalUsage {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.cached_tokens,
            calls,
            estimated: usage.estimated,
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

/// The agent that worked a node in a round.
fn agent<'a>(state: &'a State, id: &SubtaskId) -> Option<&'a AgentState> {
    state
        .agents
        .iter()
        .rev()
        .find(|(agent, _)| agent.subtask == *id)
        .map(|(_, state)| state)
}

fn subtask(state: &State, round: u32, node: &Subtask) -> SubtaskResult {
    let agent = agent(state, &node.id).cloned().unwrap_or_default();
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
        usage: agent.usage,
        cost_usd: agent.cost_usd,
        seconds: agent.ended.as_ref().map_or(0.0, |e| e.seconds),
        snapshot: end
            .and_then(|e| e.snapshot.as_ref())
            .map(ToString::to_string),
    }
}

fn conflicts(state: &State) -> Vec<ConflictResult> {
    let result = |conflict: &crate::journal::Conflict| {
        let end: Option<&SubtaskState> = state.subtasks.get(&conflict.id);
        let agent = agent(state, &conflict.id).cloned().unwrap_or_default();
        let report = agent.ended.as_ref().and_then(|e| e.ended.as_ref());
        ConflictResult {
            id: conflict.id.to_string(),
            files: conflict.files.clone(),
            ours: conflict.ours.to_string(),
            theirs: conflict.theirs.to_string(),
            status: end.map_or(SubtaskStatus::Cancelled, |e| e.status),
            reason: end.and_then(|e| e.reason.clone()),
            summary: report.map(words::report),
            turns: agent.turns,
            usage: agent.usage,
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
    // What a coordinator or a verifier leaves in its sandbox is thrown away with it.
    let kept = state.agents.iter().filter(|(_, agent)| {
        !matches!(
            agent.kind,
            Some(AgentKind::Coordinator | AgentKind::Verifier)
        )
    });
    for (agent, agent_state) in kept {
        for line in &agent_state.left_out {
            let (path, reason) = line.rsplit_once(": ").unwrap_or((line, ""));
            let (path, reason) = (path.to_owned(), reason.to_owned());
            all.push(LeftOut {
                path,
                reason,
                subtask: Some(agent.subtask.to_string()),
            });
        }
    }
    all
}

fn verdict(state: &State) -> Option<Verdict> {
    let (_, value) = state.verdict.as_ref()?;
    serde_json::from_value(value.clone()).ok()
}
