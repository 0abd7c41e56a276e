//! Work that removes almost everything has to be meant.

use serde_json::json;
use wharf::run::Status;

use super::runs::PLAN;
use crate::server::{Answer, Ask, Role};
use crate::world::{Ran, World, passes, report};

const FILES: [(&str, &str); 3] = [("a", "1\n"), ("b", "2\n"), ("d/c", "3\n")];

/// A coder that removes every file, runs something, and ends so; what it is told comes back.
async fn emptied(last: fn(&Ask) -> Answer) -> (World, Ran) {
    let world = World::new(&FILES);
    let ran = world
        .run(PLAN, move |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, 0) => Answer::call("list_files", json!({})),
            (Role::Verifier, _) => passes(&["It is done"], "#1"),
            (_, at) if at < FILES.len() => {
                let line = format!("rm {}", FILES[at].0);
                Answer::call("bash", json!({"command": line}))
            }
            _ => last(ask),
        })
        .await;
    (world, ran)
}

fn told(ran: &Ran) -> usize {
    let requests = ran.server.requests();
    let texts = requests.iter().map(ToString::to_string);
    texts
        .filter(|text| text.contains("confirm_deletions: true"))
        .count()
}

#[tokio::test]
async fn a_report_that_does_not_say_so_comes_back_once_and_then_fails() {
    let (world, ran) = emptied(|_| report("done", "cleaned up")).await;
    assert_eq!(ran.summary.status, Status::Failed);
    assert!(
        ran.summary.reason.contains("removed every file"),
        "{}",
        ran.summary.reason
    );
    assert_eq!(told(&ran), 1, "asked once");
    assert!(world.workspace.join("d/c").exists());
}

#[tokio::test]
async fn deletions_that_are_meant_are_taken() {
    let confirms = |_: &Ask| {
        let report = json!({"status": "done", "summary": "asked for", "confirm_deletions": true});
        Answer::call("submit_report", report)
    };
    let (_world, ran) = emptied(confirms).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(told(&ran), 0, "who says so is not asked");
    let patch = std::fs::read_to_string(ran.summary.patch.as_ref().unwrap()).unwrap();
    assert_eq!(patch.matches("deleted file mode").count(), 3, "{patch}");
}
