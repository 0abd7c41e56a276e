//! Many subtasks together: none is lost where all end in one moment, a run in which every one fails
//! says so, and what a result names is there afterwards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use wharf::journal::{Event, SubtaskStatus};
use wharf::run::Status;

use crate::counted::Counted;
use crate::server::{Answer, Ask, Role};
use crate::world::{Ran, World, passes, report, write};

const HEAD: &str =
    "version: 1\nname: test\ntask: Do the work\nacceptance: {criteria: [\"It is done\"]}\n";

fn plan(parallel: usize, subtasks: &[(String, &str)]) -> String {
    let mut text = format!("{HEAD}run: {{parallel: {parallel}}}\nsubtasks:\n");
    for (id, needs) in subtasks {
        text.push_str(&format!(
            "  - {{id: {id}, role: coder, brief: \"BRIEF {id}.\", needs: [{needs}]}}\n"
        ));
    }
    text
}

fn id_of(ask: &Ask) -> String {
    let from = ask.first.find("BRIEF ").map_or(0, |at| at + 6);
    let rest = &ask.first[from..];
    rest.chars().take_while(|c| *c != '.').collect()
}

fn verifier(ask: &Ask) -> Answer {
    match ask.ordinal {
        0 => Answer::call("list_files", json!({})),
        _ => passes(&["It is done"], "#1"),
    }
}

/// Waits until so many are here; bounded, since one that never comes is a failure of its own.
fn all_of(here: &AtomicUsize, many: usize) {
    for _ in 0..3_000 {
        if here.load(Ordering::SeqCst) >= many {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not all of them came to their end");
}

fn statuses(ran: &Ran) -> Vec<SubtaskStatus> {
    ran.summary.subtasks.iter().map(|one| one.status).collect()
}

/// Every report is answered in the same moment: the server holds all of them back for the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn eight_that_end_in_one_moment_are_eight_results() {
    const MANY: usize = 8;
    let world = World::new(&[("a", "1\n")]);
    let ids: Vec<(String, &str)> = (0..MANY).map(|n| (format!("t{n}"), "")).collect();
    let here = Arc::new(AtomicUsize::new(0));
    let ran = world
        .run(&plan(MANY, &ids), move |ask| {
            match (ask.role, ask.ordinal) {
                (Role::Verifier, _) => verifier(ask),
                (_, 0) => write(&format!("made-{}", id_of(ask)), "made\n"),
                (_, 1) => Answer::call("bash", json!({"command": "true"})),
                _ => {
                    here.fetch_add(1, Ordering::SeqCst);
                    tokio::task::block_in_place(|| all_of(&here, MANY));
                    report("done", "made it")
                }
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(statuses(&ran), [SubtaskStatus::Done; MANY]);
    let ended = |line: &&wharf::journal::Line| matches!(line.event, Event::SubtaskEnded { .. });
    assert_eq!(ran.journal.iter().filter(ended).count(), MANY);
    let patch = std::fs::read_to_string(ran.summary.patch.as_ref().unwrap()).unwrap();
    for n in 0..MANY {
        assert!(patch.contains(&format!("b/made-t{n}\n")), "{n}: {patch}");
    }
}

#[tokio::test]
async fn where_every_root_fails_the_rest_is_blocked_and_nothing_is_delivered() {
    let world = World::new(&[("a", "1\n")]);
    let nodes = [("a", ""), ("b", ""), ("c", "a"), ("d", "b, c")];
    let nodes = nodes.map(|(id, needs)| (id.to_owned(), needs));
    let ran = world
        .run(&plan(4, &nodes), |ask| match (ask.role, ask.ordinal) {
            (Role::Worker, 0) => write(&format!("made-{}", id_of(ask)), "made\n"),
            (Role::Worker, _) => report("failed", "it cannot be done"),
            _ => panic!("nobody else is asked: {:?}", ask.role),
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Failed, 1)
    );
    let (failed, blocked) = (SubtaskStatus::Failed, SubtaskStatus::Blocked);
    assert_eq!(statuses(&ran), [failed, failed, blocked, blocked]);
    let reasons: Vec<&str> = ran.summary.subtasks[2..]
        .iter()
        .map(|one| one.reason.as_deref().unwrap_or_default())
        .collect();
    assert!(reasons[0].contains("needs a"), "{reasons:?}");
    assert_eq!((&ran.summary.branch, &ran.summary.patch), (&None, &None));
}

/// Every place that a result and its report name is there when the run is over, and holds something.
#[tokio::test]
async fn what_a_result_names_is_there() {
    let world = World::new(&[("list", "1\n2\n3\n")]);
    let nodes = [("left", ""), ("right", "")].map(|(id, needs)| (id.to_owned(), needs));
    let ran = world
        .run(&plan(2, &nodes), |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, _) => verifier(ask),
            _ if ask.first.contains("Resolve a merge conflict") => match ask.ordinal {
                0 => write("list", "1\nleft\nright\n3\n"),
                1 => Answer::call("bash", json!({"command": "true"})),
                _ => report("done", "kept both"),
            },
            (_, 0) => write("list", &format!("1\n{}\n3\n", id_of(ask))),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "wrote it"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let dir = Path::new(&ran.summary.run_dir);
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let report = read("report.md");
    let result = read("result.json");
    let mut named = 0;
    for text in [&report, &result] {
        for rest in text.split(dir.to_str().unwrap()).skip(1) {
            let end = rest.find(['`', '"', ' ', '\n', '\\', ')', ':', ',']);
            let inner = rest[..end.unwrap_or(rest.len())].trim_start_matches('/');
            let at = dir.join(inner.trim_end_matches('.'));
            let there = std::fs::metadata(&at);
            let there = there.unwrap_or_else(|error| panic!("{}: {error}", at.display()));
            assert!(there.is_dir() || there.len() > 0, "{}", at.display());
            named += 1;
        }
    }
    assert!(named > 2, "{report}");
    assert!(
        result.contains("result.patch") && report.contains("store.git"),
        "{report}"
    );
}

/// Forty subtasks, ten times what may run: all of them are worked, and never more sandboxes are open than the plan allows.
#[tokio::test]
async fn of_many_no_more_than_allowed_are_open_at_a_time() {
    const MANY: usize = 40;
    let mut world = World::new(&[("a", "1\n")]);
    let counted = Counted::default();
    world.engine = Arc::new(counted.clone());
    let ids: Vec<(String, &str)> = (0..MANY).map(|n| (format!("t{n}"), "")).collect();
    let text = plan(4, &ids).replace("parallel: 4", "parallel: 4, subtasks: 40");
    let ran = world
        .run(&text, |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, _) => verifier(ask),
            (_, 0) => write(&format!("made-{}", id_of(ask)), "made\n"),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "made it"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(statuses(&ran), [SubtaskStatus::Done; MANY]);
    assert_eq!((counted.most(), counted.open()), (4, 0));
    assert_eq!(counted.twice(), Vec::<String>::new());
    let patch = std::fs::read_to_string(ran.summary.patch.as_ref().unwrap()).unwrap();
    assert_eq!(patch.matches("+made\n").count(), MANY);
}

/// A second round's subtask that needs one of the first, which is done long since, is worked at once.
#[tokio::test]
async fn what_a_later_round_needs_of_an_earlier_one_is_done() {
    let world = World::new(&[("a", "1\n")]);
    let planned = |id: &str, needs: &[&str]| {
        let one =
            json!({"id": id, "role": "coder", "brief": format!("BRIEF {id}."), "needs": needs});
        let plan = json!({"summary": "split", "criteria": ["It is done"], "subtasks": [one]});
        Answer::call("submit_plan", plan)
    };
    let ran = world
        .run(
            "version: 1\nname: test\ntask: Do the work\n",
            move |ask| match (ask.role, ask.ordinal) {
                (Role::Coordinator, _) if ask.first.contains("something is missing") => {
                    planned("mend", &["make"])
                }
                (Role::Coordinator, _) => planned("make", &[]),
                (Role::Verifier, 0) => Answer::call("list_files", json!({})),
                (Role::Verifier, _) if ask.last().contains("made-mend") => {
                    passes(&["It is done"], "#1")
                }
                (Role::Verifier, _) => {
                    let failed =
                        json!({"criterion": "It is done", "status": "fail", "evidence": "#1"});
                    let verdict = json!({"verdict": "fail", "summary": "something is missing",
                        "criteria": [failed]});
                    Answer::call("submit_verdict", verdict)
                }
                (Role::Worker, 0) => write(&format!("made-{}", id_of(ask)), "made\n"),
                (Role::Worker, 1) => Answer::call("bash", json!({"command": "cat made-make"})),
                (Role::Worker, _) => report("done", "made it"),
                (Role::Other, _) => Answer::text("All of it was made."),
            },
        )
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(statuses(&ran), [SubtaskStatus::Done; 2]);
    assert_eq!(ran.summary.subtasks[1].needs, ["make"]);
}
