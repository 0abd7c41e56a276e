//! What an agent's end makes of its subtask: pure.

use serde_json::Value;

use crate::agent::Stop;

pub(super) enum End {
    /// With its report.
    Done(Value),
    Failed(String),
    Cancelled,
}

/// Only a report that says `done` makes a subtask done, and only while there is something left of the tree.
pub(super) fn of(ended: &Result<Value, Stop>, emptied: bool) -> End {
    match ended {
        Err(Stop::Cancelled) => End::Cancelled,
        Err(stop) => End::Failed(stop.to_string()),
        Ok(_) if emptied => End::Failed(
            "it removed every file of the workspace, which is taken for an accident".to_owned(),
        ),
        Ok(report) if report["status"] == "done" => End::Done(report.clone()),
        Ok(report) => {
            let summary = report["summary"].as_str().unwrap_or_default();
            End::Failed(format!("it reported that it failed: {summary}"))
        }
    }
}
