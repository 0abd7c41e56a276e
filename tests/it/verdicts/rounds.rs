//! What one round hands to the next, and when no other follows.

use serde_json::json;
use wharf::journal::Event;
use wharf::run::{Raised, Status};

use super::turns;
use crate::again::Recorded;
use crate::server::{Answer, Ask, Role};
use crate::world::{Ran, World, report, verdict, write};

const PLAN: &str = "version: 1\ntask: Do the work\nrun: {rounds: 4}\n\
                    acceptance: {criteria: [\"First\", \"Second\", \"Third\"]}\n";

fn submit(id: &str, brief: &str) -> Answer {
    Answer::call(
        "submit_plan",
        json!({"summary": "s", "subtasks": [{"id": id, "role": "coder", "brief": brief, "needs": []}]}),
    )
}

/// The round that a coordinator is asked for.
fn round(ask: &Ask) -> u32 {
    let said = ask
        .first
        .find("# Round ")
        .map(|at| &ask.first[at + 8..at + 9]);
    said.map_or(1, |digit| digit.parse().unwrap())
}

/// Files `n.txt` are made one a round; the verifier passes as many criteria as `passed` says of them.
fn script(
    brief: impl Fn(u32) -> String + Clone + Send + Sync + 'static,
    passed: impl Fn(usize) -> usize + Clone + Send + Sync + 'static,
) -> impl Fn(&Ask) -> Answer + Clone + Send + Sync + 'static {
    move |ask: &Ask| match (ask.role, turns(ask)) {
        (Role::Coordinator, again) => {
            submit(&format!("r{}-{again}", round(ask)), &brief(round(ask)))
        }
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => {
            let made = (1..9)
                .filter(|n| ask.first.contains(&format!("A {n}.txt")))
                .count();
            let criteria = ["First", "Second", "Third"].iter().enumerate();
            let criteria: Vec<_> = criteria
                .map(|(n, text)| match n < passed(made) {
                    true => (*text, "pass", "#1"),
                    false => (*text, "fail", "#1 the third line of a.txt is wrong"),
                })
                .collect();
            let whole = if passed(made) >= 3 { "pass" } else { "fail" };
            verdict(whole, criteria)
        }
        (Role::Worker, 0) => {
            let n = (1..9)
                .find(|n| !ask.first.contains(&format!("{n}.txt")))
                .unwrap();
            write(&format!("{n}.txt"), "made\n")
        }
        (Role::Worker, 1) => Answer::call("bash", json!({"command": "true"})),
        (Role::Worker, _) => report("done", "made it"),
        (Role::Other, _) => Answer::text("Something was made."),
    }
}

fn count(ran: &Ran, of: impl Fn(&Event) -> bool) -> usize {
    ran.journal.iter().filter(|line| of(&line.event)).count()
}

#[tokio::test]
async fn a_failing_verdict_s_evidence_reaches_whoever_mends_it() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(
            PLAN,
            script(|round| format!("BRIEF of round {round}"), |made| made + 1),
        )
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.rounds, 2);
    let evidence = "the third line of a.txt is wrong";
    let told = |start: &str| {
        let requests = ran.server.requests();
        requests.iter().any(|body| {
            let first = body["messages"][1]["content"].as_str().unwrap_or_default();
            first.starts_with(start) && first.contains(evidence)
        })
    };
    assert!(told("# Task\n"), "the coordinator is told");
    assert!(
        told("# Your subtask\n\nBRIEF of round 2"),
        "the coder is told"
    );
    let passed: Vec<u64> = ran
        .summary
        .progress
        .iter()
        .map(|r| r.progress.criteria_passed)
        .collect();
    assert_eq!(passed, [2, 3]);
    let report = std::fs::read_to_string(world.state.join("runs/run/report.md")).unwrap();
    assert!(report.contains("| 2 | 3 of 3 |"), "{report}");
}

#[tokio::test]
async fn a_plan_that_repeats_is_handed_back_once_and_then_ends_the_run() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(PLAN, script(|_| "The  same\nbrief".to_owned(), |_| 1))
        .await;
    let summary = &ran.summary;
    assert_eq!((summary.status, summary.exit_code), (Status::Failed, 1));
    let why = "the plan for round 2 repeats that of round 1";
    assert!(summary.reason.contains(why), "{}", summary.reason);
    assert!(
        summary.reason.contains("criteria: 2 failed, 1 passed"),
        "{}",
        summary.reason
    );
    assert_eq!(summary.subtasks.len(), 1, "nothing was worked twice");
    assert_eq!(summary.summary, "Something was made.");
    let back = ran
        .server
        .requests()
        .iter()
        .filter(|body| {
            body.to_string()
                .contains("this plan asks for nothing but what the plan of round 1 asked for")
        })
        .count();
    assert_eq!(back, 1, "it was handed back once");
    assert!(summary.patch.is_some(), "what was made is delivered");

    // Told once, it may plan something else.
    let world = World::new(&[("a.txt", "a\n")]);
    let plans = script(|_| "The same brief".to_owned(), |made| made + 1);
    let ran = world
        .run(PLAN, move |ask| match (ask.role, round(ask), turns(ask)) {
            (Role::Coordinator, 2, 1) => submit("other", "Another brief"),
            _ => plans(ask),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
}

#[tokio::test]
async fn a_run_that_stops_getting_better_stops_and_says_so() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(
            PLAN,
            script(
                |round| format!("BRIEF of round {round}"),
                |made| made.min(2),
            ),
        )
        .await;
    let summary = &ran.summary;
    assert_eq!((summary.status, summary.exit_code), (Status::Failed, 1));
    assert_eq!(summary.rounds, 3, "{}", summary.reason);
    let why = "round 3 came no further than the one before (criteria 2 of 3), so the run stopped with 1 of its 4 \
               rounds left";
    assert!(summary.reason.ends_with(why), "{}", summary.reason);
    let passed: Vec<u64> = summary
        .progress
        .iter()
        .map(|r| r.progress.criteria_passed)
        .collect();
    assert_eq!(passed, [1, 2, 2]);
    assert_eq!(
        count(&ran, |e| matches!(
            e,
            Event::RoundEnded {
                stopped: Some(_),
                ..
            }
        )),
        1
    );
}

/// Both ways to stop come out the same when the process dies on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_run_stops_at_the_same_round_for_the_same_reason() {
    let repeated = script(|_| "The same brief".to_owned(), |_| 1);
    let whole = Recorded::of(&[("a.txt", "a\n")], PLAN, repeated.clone()).await;
    for cut in (1..whole.lines.len()).step_by(3) {
        let state = whole.killed(&whole.journal[..whole.boundaries()[cut]]);
        let again = whole
            .resume(state, Raised::default(), repeated.clone())
            .await
            .unwrap();
        let at = format!("killed after {:?}", whole.lines[cut - 1].event);
        assert_eq!(again.summary.reason, whole.summary.reason, "{at}");
        assert_eq!(again.summary.usage.calls, whole.summary.usage.calls, "{at}");
    }
    let still = script(|round| format!("BRIEF {round}"), |_| 1);
    let whole = Recorded::of(&[("a.txt", "a\n")], PLAN, still.clone()).await;
    assert_eq!(whole.summary.rounds, 2, "{}", whole.summary.reason);
    for cut in (1..whole.lines.len()).step_by(5) {
        let state = whole.killed(&whole.journal[..whole.boundaries()[cut]]);
        let again = whole
            .resume(state, Raised::default(), still.clone())
            .await
            .unwrap();
        let at = format!("killed after {:?}", whole.lines[cut - 1].event);
        assert_eq!(again.summary.reason, whole.summary.reason, "{at}");
        assert_eq!(again.summary.progress.len(), 2, "{at}");
    }
}
