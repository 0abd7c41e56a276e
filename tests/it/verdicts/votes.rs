//! Several verifiers: what more than half of them say, and what is left when some say nothing.

use serde_json::json;
use wharf::run::{Raised, Status, VerdictStatus};

use super::{CRITERIA, no_pass, plan, turns};
use crate::again::Recorded;
use crate::server::{Answer, Ask, Role};
use crate::world::{Ran, World, passes, report, verdict, write};

/// Which of the verifiers asks.
fn number(ask: &Ask) -> usize {
    let at = ask.first.find("You are verifier ").expect("one of several");
    let digit = ask.first[at + 17..].chars().next().unwrap();
    digit.to_digit(10).unwrap() as usize
}

/// A script whose verifiers say these words, each after a look of its own.
fn says(words: &[&'static str]) -> impl Fn(&Ask) -> Answer + Clone + Send + Sync + 'static {
    let words = words.to_vec();
    move |ask: &Ask| match (ask.role, turns(ask)) {
        (Role::Verifier, n) if n == 0 || ask.last().contains("sandbox broke") => Answer::call(
            "bash",
            json!({"command": format!("cat made.txt; echo {}", number(ask))}),
        ),
        (Role::Verifier, _) => match words[number(ask) - 1] {
            "silent" => Answer::text("I'd rather not say."),
            word => verdict(word, vec![("It is done", word, "#1")]),
        },
        (_, 0) => write("made.txt", "made\n"),
        (_, 1) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "made it"),
    }
}

fn three(extra: &str) -> String {
    plan(&format!("{CRITERIA}\nverify: {{votes: 3}}\n{extra}"))
}

async fn voted(words: &[&'static str]) -> (World, Ran) {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world.run(&three(""), says(words)).await;
    (world, ran)
}

#[tokio::test]
async fn three_who_agree_decide_and_nobody_sees_another() {
    let (_, ran) = voted(&["pass", "pass", "pass"]).await;
    let summary = &ran.summary;
    assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
    assert_eq!(summary.warnings, [""; 0]);
    let votes = &summary.verdict.as_ref().unwrap().votes;
    let names: Vec<&str> = votes.iter().map(|vote| vote.agent.as_str()).collect();
    assert_eq!(names, ["verifier", "verifier-2", "verifier-3"]);
    // Each has a conversation and a sandbox of its own.
    let asked: Vec<&str> = summary.agents.iter().map(|a| a.id.as_str()).collect();
    assert_eq!(asked, names);
    for line in &ran.journal {
        if let wharf::journal::Event::SandboxOpened { agent, .. } = &line.event {
            assert_eq!(agent.round, 1);
        }
    }
    for body in ran.server.requests() {
        let text = body.to_string();
        let mine = (1..=3).filter(|n| text.contains(&format!("You are verifier {n} of 3")));
        assert!(mine.count() <= 1, "{text}");
    }
}

#[tokio::test]
async fn two_of_three_decide_and_the_third_is_shown() {
    for (words, status, code) in [
        (["pass", "fail", "pass"], VerdictStatus::Pass, 0),
        (["fail", "pass", "fail"], VerdictStatus::Fail, 1),
    ] {
        let (world, ran) = voted(&words).await;
        let summary = &ran.summary;
        let given = summary.verdict.as_ref().unwrap();
        assert_eq!(
            (given.status, summary.exit_code),
            (status, code),
            "{}",
            summary.reason
        );
        let said: Vec<VerdictStatus> = given.votes.iter().map(|vote| vote.status).collect();
        assert_eq!(said.iter().filter(|s| **s == status).count(), 2);
        let split = given.split("It is done").expect("they disagree");
        assert!(
            summary.warnings[0].contains(&split),
            "{:?}",
            summary.warnings
        );
        let json = std::fs::read_to_string(world.state.join("runs/run/result.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["verdict"]["votes"].as_array().unwrap().len(), 3);
        let report = std::fs::read_to_string(world.state.join("runs/run/report.md")).unwrap();
        for part in [format!("votes: {split}"), "### verifier-2: ".to_owned()] {
            assert!(report.contains(&part), "{part} in {report}");
        }
    }
}

#[tokio::test]
async fn without_a_majority_nothing_is_decided() {
    for words in [
        ["pass", "fail", "unknown"],
        ["pass", "fail", "silent"],
        ["pass", "silent", "silent"],
        ["unknown", "unknown", "pass"],
    ] {
        let (_, ran) = voted(&words).await;
        no_pass(&words.join(" "), &ran);
        let summary = &ran.summary;
        let ended = (summary.status, summary.exit_code);
        assert_eq!(
            ended,
            (Status::Unverified, 4),
            "{words:?}: {}",
            summary.reason
        );
    }
}

#[tokio::test]
async fn a_verifier_that_crashed_counts_as_unknown_and_two_still_decide() {
    for (words, want) in [
        (["pass", "pass", "pass"], Status::Passed),
        (["pass", "pass", "fail"], Status::Unverified),
    ] {
        let mut world = World::new(&[("a.txt", "a\n")]);
        world.engine = std::sync::Arc::new(wharf::sandbox::memory::Memory {
            break_after: Some(0),
            break_in: Some("verifier-2".to_owned()),
            ..Default::default()
        });
        let ran = world.run(&three(""), says(&words)).await;
        let summary = &ran.summary;
        assert_eq!(summary.status, want, "{}", summary.reason);
        let votes = &summary.verdict.as_ref().unwrap().votes;
        let why = votes[1].reason.as_ref().expect("it could not be had");
        assert!(why.contains("broke"), "{why}");
        let warned = summary
            .warnings
            .iter()
            .any(|w| w.contains("verifier-2 could not be had"));
        assert!(warned, "{:?}", summary.warnings);
    }
}

/// Killed anywhere: what was voted is taken in as it was, and nobody is asked twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn votes_that_were_cast_stand_after_a_crash() {
    let script = says(&["pass", "fail", "pass"]);
    let whole = Recorded::of(&[("a.txt", "a\n")], &three(""), script.clone()).await;
    assert_eq!(
        whole.summary.status,
        Status::Passed,
        "{}",
        whole.summary.reason
    );
    let answered = |lines: &[wharf::journal::Line]| {
        let is =
            |e: &wharf::journal::Event| matches!(e, wharf::journal::Event::ModelAnswered { .. });
        crate::again::count(lines, is)
    };
    let of_verifier = |line: &wharf::journal::Line| match &line.event {
        wharf::journal::Event::AgentStarted { agent, .. } => {
            agent.subtask.as_str().starts_with("verifier")
        }
        _ => false,
    };
    let from = whole.lines.iter().position(of_verifier).unwrap();
    for cut in from..whole.lines.len() {
        let state = whole.killed(&whole.journal[..whole.boundaries()[cut]]);
        let again = whole
            .resume(state, Raised::default(), script.clone())
            .await
            .unwrap();
        let at = format!("killed after {:?}", whole.lines[cut - 1].event);
        assert_eq!(again.summary.status, Status::Passed, "{at}");
        let left = whole.requests - answered(&whole.lines[..cut]);
        assert_eq!(again.requests.len(), left, "{at}");
        let statuses = |summary: &wharf::run::Summary| {
            let votes = summary.verdict.as_ref().unwrap().votes.iter();
            votes
                .map(|vote| (vote.agent.clone(), vote.status))
                .collect::<Vec<_>>()
        };
        assert_eq!(statuses(&again.summary), statuses(&whole.summary), "{at}");
        for kind in ["verdict_given", "round_ended", "acceptance_ran"] {
            let named =
                |e: &wharf::journal::Event| serde_json::to_value(e).unwrap()["type"] == kind;
            assert_eq!(crate::again::count(&again.lines, named), 1, "{at}: {kind}");
        }
    }
}

/// A recording holds every vote under a key of its own.
#[tokio::test]
async fn votes_are_replayed_each_as_it_was_cast() {
    let (first, ran) = voted(&["pass", "fail", "pass"]).await;
    assert_eq!(ran.summary.status, Status::Passed);
    let journal = first.state.join("runs/run/journal.jsonl");
    let again = World::new(&[("a.txt", "a\n")]);
    let replay = format!("replay:{}", journal.display());
    let replay = wharf::model::open(&replay, &Default::default()).unwrap();
    let order = again.order(&three(""), replay);
    let summary = wharf::run::start(order).await.unwrap();
    assert_eq!(summary.status, Status::Passed, "{}", summary.reason);
    let votes = summary.verdict.unwrap().votes;
    let said: Vec<VerdictStatus> = votes.iter().map(|vote| vote.status).collect();
    assert_eq!(
        said,
        [
            VerdictStatus::Pass,
            VerdictStatus::Fail,
            VerdictStatus::Pass
        ]
    );
}

/// The evidence of one verifier is no evidence of another.
#[tokio::test]
async fn each_vote_needs_evidence_of_its_own() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(&three(""), |ask| match (ask.role, turns(ask)) {
            (Role::Verifier, 0) if number(ask) == 1 => Answer::call("list_files", json!({})),
            (Role::Verifier, _) => passes(&["It is done"], "#1"),
            _ => report("done", "nothing to do"),
        })
        .await;
    no_pass("without looks", &ran);
    let votes = &ran.summary.verdict.as_ref().unwrap().votes;
    let said: Vec<VerdictStatus> = votes.iter().map(|vote| vote.status).collect();
    assert_eq!(
        said,
        [
            VerdictStatus::Pass,
            VerdictStatus::Unknown,
            VerdictStatus::Unknown
        ]
    );
}
