//! Work that changed nothing: known to be none, said to whoever judges, and never taken for lost work.

use serde_json::json;
use wharf::journal::SubtaskStatus;
use wharf::run::Status;

use super::runs::PLAN;
use crate::server::{Answer, Ask, Role};
use crate::world::{World, passes, report, write};

fn verifier(ask: &Ask) -> Answer {
    match ask.ordinal {
        0 => Answer::call("list_files", json!({})),
        _ => passes(&["It is done"], "#1"),
    }
}

/// Says that it is done.
fn idle(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, _) => verifier(ask),
        _ => report("done", "there is nothing to do"),
    }
}

/// Writes, and brings back what was there.
fn there_and_back(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, _) => verifier(ask),
        (_, 0) => write("made", "1\n"),
        (_, 1) => Answer::call("bash", json!({"command": "rm made"})),
        (_, 2) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "it is as it was"),
    }
}

#[tokio::test]
async fn no_change_is_a_fact_that_everybody_is_told() {
    for script in [idle, there_and_back] {
        let world = World::new(&[("a", "1\n")]);
        let ran = world.run(PLAN, script).await;
        let summary = &ran.summary;
        assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
        assert_eq!((&summary.branch, &summary.patch), (&None, &None));
        let one = &summary.subtasks[0];
        assert_eq!(one.status, SubtaskStatus::Done);
        assert!(one.changed_files.is_empty(), "{:?}", one.changed_files);
        let requests = ran.server.requests();
        let texts = requests
            .iter()
            .map(|body| body["messages"][1]["content"].to_string());
        let mut told = texts.filter(|text| text.contains("Task that was worked"));
        let told = told.next().unwrap();
        assert!(told.contains("Nothing was changed"), "{told}");
        let report = std::fs::read_to_string(world.state.join("runs/run/report.md")).unwrap();
        assert!(report.contains("no change was delivered"), "{report}");
    }
}
