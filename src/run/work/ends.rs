//! What an agent's end makes of its subtask: pure.

use serde_json::Value;

use crate::agent::Stop;
use crate::run::work::emptied::confirmed;

pub(in crate::run) enum End {
    /// With its report.
    Done(Value),
    Failed(String),
    Cancelled,
}

/// Only a report that says `done` makes a subtask done; where its work removes almost everything, in
/// the words of `accident`, it has to say too that this is meant.
pub(in crate::run) fn of(ended: &Result<Value, Stop>, accident: Option<String>) -> End {
    match ended {
        Err(Stop::Cancelled) => End::Cancelled,
        Err(stop) => End::Failed(stop.to_string()),
        Ok(report) if report["status"] == "done" => match accident {
            Some(accident) if !confirmed(report) => End::Failed(format!(
                "it {accident} and did not confirm that, which is taken for an accident"
            )),
            _ => End::Done(report.clone()),
        },
        Ok(report) => {
            let summary = report["summary"].as_str().unwrap_or_default();
            End::Failed(format!("it reported that it failed: {summary}"))
        }
    }
}
