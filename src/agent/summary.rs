//! The one request without tools: a run's summary from its reports alone.

use super::first::fenced;
use crate::model::Message;
use crate::tools::clip;

/// Characters that all reports share.
const REPORTS: usize = 60_000;

const SYSTEM: &str = "You sum up the work of a team for the person who ordered it. You see the task, the \
                      reports of its members and what failed; nothing else. Say in at most 200 words what \
                      was done, what was found, and what is open. Claim nothing that no report says. \
                      Answer in plain text.";

/// The conversation that asks for it: the task, each report by subtask, what failed.
pub fn messages(task: &str, reports: &[(String, String)], failed: &str) -> Vec<Message> {
    let each = REPORTS / reports.len().max(1);
    let mut text = format!("# Task\n\n{}\n", task.trim());
    for (id, report) in reports {
        text.push_str(&format!(
            "\n# Report of {id}\n\n{}\n",
            fenced(&clip::middle(report, each))
        ));
    }
    if !failed.is_empty() {
        text.push_str(&format!(
            "\n# What failed\n\n{}\n",
            fenced(&clip::middle(failed, 8_000))
        ));
    }
    vec![
        Message::System {
            text: SYSTEM.to_owned(),
        },
        Message::User { text },
    ]
}
