//! The typed calls that end an agent: a plan, a report, a verdict.

use serde_json::{Value, json};

use super::{Ending, Kind, Spec, spec::closed};

/// The ending tool as a model sees it.
pub fn spec(ending: Ending) -> Spec {
    let (description, schema) = match ending {
        Ending::Plan => (
            "Ends your work: hands in the plan. Each subtask has an id ([a-z0-9][a-z0-9_-]{0,39}), a role, a \
             brief that stands alone, and the ids it needs. Call it alone.",
            plan(),
        ),
        Ending::Report => (
            "Ends your work: hands in your report. status is done only when the brief is fulfilled, else \
             failed with the reason in summary. Call it alone.",
            report(),
        ),
        Ending::Verdict => (
            "Ends your work: hands in your verdict, with one entry for each criterion in its exact words. \
             evidence names a result of yours (`#3`) or a place (`src/a.rs:12`); a pass without evidence \
             counts as unknown. Call it alone.",
            verdict(),
        ),
    };
    Spec {
        name: ending.tool().to_string(),
        description: description.to_string(),
        schema,
        kind: Kind::Meta,
    }
}

fn texts() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn plan() -> Value {
    let subtask = closed(
        json!({
            "id": {"type": "string", "minLength": 1},
            "role": {"type": "string", "minLength": 1},
            "title": {"type": "string"},
            "brief": {"type": "string", "minLength": 1},
            "needs": {"type": "array", "items": {"type": "string"}, "default": []}
        }),
        &["id", "role", "brief", "needs"],
    );
    closed(
        json!({
            "summary": {"type": "string"},
            "criteria": texts(),
            "subtasks": {"type": "array", "items": subtask}
        }),
        &["summary", "subtasks"],
    )
}

fn report() -> Value {
    closed(
        json!({
            "status": {"type": "string", "enum": ["done", "failed"]},
            "summary": {"type": "string"},
            "findings": texts(),
            "open_questions": texts(),
            "notes": texts(),
            "confirm_deletions": {"type": "boolean"}
        }),
        &["status", "summary"],
    )
}

fn verdict() -> Value {
    let status = json!({"type": "string", "enum": ["pass", "fail", "unknown"]});
    let criterion = closed(
        json!({
            "criterion": {"type": "string"},
            "status": status,
            "evidence": {"type": "string"}
        }),
        &["criterion", "status", "evidence"],
    );
    closed(
        json!({
            "verdict": status,
            "summary": {"type": "string"},
            "criteria": {"type": "array", "items": criterion}
        }),
        &["verdict", "summary", "criteria"],
    )
}
