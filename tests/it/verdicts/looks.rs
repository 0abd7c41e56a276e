//! A pass rests on a look: of the verifier's own, or of Wharf's by commands that passed. Where nobody
//! judged, every criterion is there all the same, as unknown.

use serde_json::{Value, json};
use wharf::run::{Criterion, Status, VerdictStatus};

use super::{CRITERIA, no_pass, plan, turns};
use crate::server::{Answer, Ask, Role};
use crate::world::{Ran, World, passes, report, write};

/// A coder that changes nothing, and this verifier.
async fn judged(extra: &str, verifier: impl Fn(&Ask) -> Answer + Send + Sync + 'static) -> Ran {
    let world = World::new(&[("a.txt", "a\n"), ("sub/b.txt", "b\n")]);
    let text = plan(extra);
    let ran = world.run(&text, move |ask| match ask.role {
        Role::Verifier => verifier(ask),
        _ => report("done", "nothing to do"),
    });
    ran.await
}

fn criteria(ran: &Ran) -> Vec<Criterion> {
    ran.summary.verdict.as_ref().unwrap().criteria.clone()
}

/// What verifiers were told after their verdicts, all of it.
fn told(ran: &Ran) -> String {
    let requests = ran.server.requests();
    let last = requests.last().unwrap()["messages"]
        .as_array()
        .unwrap()
        .clone();
    let tools = last.iter().filter(|message| message["role"] == "tool");
    tools
        .map(|m| m["content"].to_string())
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test]
async fn a_verifier_that_names_lines_without_a_look_is_asked_to_look_and_then_not_believed() {
    let ran = judged(CRITERIA, |_| passes(&["It is done"], "a.txt:1")).await;
    no_pass("blind", &ran);
    let ended = (ran.summary.status, ran.summary.exit_code);
    assert_eq!(ended, (Status::Unverified, 4), "{}", ran.summary.reason);
    let given = &criteria(&ran)[0];
    assert_eq!(given.status, VerdictStatus::Unknown);
    assert!(given.evidence.contains("a.txt:1"), "{}", given.evidence);
    assert!(
        told(&ran).contains("no call of your own that went well"),
        "{}",
        told(&ran)
    );

    // A call that failed is no look.
    let ran = judged(CRITERIA, |ask| match turns(ask) {
        0 => Answer::call("read_file", json!({"path": "nowhere.txt"})),
        _ => passes(&["It is done"], "a.txt:1"),
    });
    no_pass("a failed call", &ran.await);

    // Asked, it looks.
    let ran = judged(CRITERIA, |ask| match turns(ask) {
        1 => Answer::call("read_file", json!({"path": "a.txt"})),
        _ => passes(&["It is done"], "a.txt:1"),
    });
    let ran = ran.await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
}

/// Wharf looked, and the verifier says where.
#[tokio::test]
async fn commands_that_passed_are_a_look_and_others_are_none() {
    for (command, status) in [
        ("true", Status::Passed),
        ("false", Status::Failed),
        ("exit 5; pytest", Status::Unverified),
    ] {
        let extra =
            format!("acceptance: {{commands: [\"{command}\"], criteria: [\"It is done\"]}}");
        let ran = judged(&extra, |_| passes(&["It is done"], "a.txt:1")).await;
        assert_eq!(
            ran.summary.status, status,
            "{command}: {}",
            ran.summary.reason
        );
        let given = criteria(&ran)[0].status;
        let wanted = match status {
            Status::Passed => VerdictStatus::Pass,
            _ => VerdictStatus::Unknown,
        };
        assert_eq!(given, wanted, "{command}");
    }
}

#[tokio::test]
async fn a_place_outside_of_the_tree_is_told_as_that_in_our_words() {
    for (evidence, why) in [
        ("../../x:1", "`../../x` is not inside the tree"),
        ("/etc/passwd:1", "`/etc/passwd` is not inside the tree"),
        ("sub:1", "`sub` is a folder"),
        ("a.txt\0:1", "is not inside the tree"),
        ("a.txt:99999999999999999999999", "`a.txt` has 1 lines"),
        ("a.txt:0", "lines count from 1"),
        ("#99", "#99 is no call of yours that went well"),
    ] {
        let ran = judged(CRITERIA, move |ask| match turns(ask) {
            0 => Answer::call("list_files", json!({})),
            _ => passes(&["It is done"], evidence),
        });
        let ran = ran.await;
        no_pass(evidence, &ran);
        assert_eq!(
            ran.summary.exit_code, 4,
            "{evidence:?}: {}",
            ran.summary.reason
        );
        let told = told(&ran);
        assert!(told.contains(why), "{evidence:?}: {told}");
        for raw in ["fatal", "git ", "os error"] {
            assert!(!told.contains(raw), "{evidence:?}: {told}");
        }
    }
}

/// Ways in which nobody judges: a name, further keys of the plan, what its coder says.
#[tokio::test]
async fn where_nobody_judged_each_criterion_is_unknown_and_says_why() {
    let two = "acceptance: {criteria: [\"It is done\", \"It is right\"]}";
    let none = format!("{two}\nroles: {{extends: none, coder: {{prompt: code, tools: [bash]}}}}");
    let starved = format!("{two}\nroles: {{verifier: {{agent: {{turns: 0}}}}}}");
    let three = format!("{two}\nverify: {{votes: 3}}");
    for (name, extra, status, why) in [
        (
            "no verifier",
            none.as_str(),
            "done",
            "the plan has no verifier",
        ),
        ("starved", &starved, "done", "limit"),
        ("only talks", two, "done", "no usable tool call"),
        (
            "a subtask failed",
            two,
            "failed",
            "while a subtask stands failed",
        ),
        ("three votes", &three, "done", "no majority"),
    ] {
        let world = World::new(&[("a.txt", "a\n")]);
        let ran = world
            .run(&plan(extra), move |ask| match ask.role {
                Role::Verifier => Answer::text("Looks good!"),
                _ => report(status, "nothing to do"),
            })
            .await;
        no_pass(name, &ran);
        let given = criteria(&ran);
        let texts: Vec<&str> = given.iter().map(|c| c.text.as_str()).collect();
        assert_eq!(texts, ["It is done", "It is right"], "{name}");
        for criterion in &given {
            assert_eq!(criterion.status, VerdictStatus::Unknown, "{name}");
            assert!(
                criterion.evidence.contains(why),
                "{name}: {}",
                criterion.evidence
            );
        }
        written(name, &world);
        // The reason is said once, not once a criterion.
        let reason = &ran.summary.reason;
        assert!(
            !reason.contains("criteria: 2 unknown") || name == "three votes",
            "{name}: {reason}"
        );
    }
}

/// result.json has every criterion too, and so has every vote in it.
fn written(name: &str, world: &World) {
    let json = std::fs::read_to_string(world.state.join("runs/run/result.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let told = json["verdict"]["criteria"].as_array().unwrap();
    assert_eq!(told.len(), 2, "{name}");
    assert!(
        told.iter()
            .all(|c| c["status"] == "unknown" && c["evidence"].is_string())
    );
    for vote in json["verdict"]["votes"].as_array().into_iter().flatten() {
        assert_eq!(
            vote["criteria"].as_array().unwrap().len(),
            2,
            "{name}: {vote}"
        );
    }
}

/// A failing command decided while nobody judged: a resumed run asks the verifier all the same.
#[tokio::test]
async fn a_verdict_that_nobody_was_asked_for_is_asked_for_on_resume() {
    use crate::again::Recorded;
    use wharf::run::Raised;
    let fails = |ask: &Ask| match (ask.role, turns(ask)) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => write("made.txt", "made\n"),
        (_, 1) => Answer::call("bash", json!({"command": "true"})),
        _ => report("failed", "cannot"),
    };
    let mends = |ask: &Ask| match (ask.role, turns(ask)) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        _ => report("done", "nothing was to do"),
    };
    let extra = "acceptance: {commands: [\"false\"], criteria: [\"It is done\"]}";
    let whole = Recorded::of(&[("a.txt", "a\n")], &plan(extra), fails).await;
    assert_eq!(whole.summary.exit_code, 1, "{}", whole.summary.reason);
    let raised = Raised {
        retry_failed: true,
        ..Raised::default()
    };
    let state = whole.killed(&whole.journal);
    let again = whole.resume(state, raised, mends).await.unwrap();
    assert_eq!(
        again.summary.status,
        Status::Failed,
        "{}",
        again.summary.reason
    );
    let verdict = again.summary.verdict.unwrap();
    assert_eq!(verdict.criteria[0].status, VerdictStatus::Pass);
}
