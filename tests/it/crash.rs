//! A run killed at every boundary of its journal goes on to the same end, and pays for nothing twice.

use std::sync::Arc;

use futures::StreamExt as _;
use serde_json::json;
use wharf::journal::{Event, Line, SubtaskStatus};
use wharf::run::{Error, Raised, Status};

use crate::again::{Again, Recorded, count};
use crate::server::{Answer, Ask, Role};
use crate::world::{passes, report, verdict, write};

/// Lines that each process gets further; going on takes three agents some of them.
const AT_A_TIME: usize = 26;

/// How many runs are resumed at a time.
const ABREAST: usize = 6;

pub const LINES: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n";

pub const PLAN: &str = "version: 1
name: matrix
task: Do the work
run: {parallel: 3, rounds: 2}
acceptance: {commands: [\"test -f list.txt\"]}
";

/// Three agents at a time of which two change the same line, and what they made fails; a second round
/// mends it. Every answer follows from the messages alone, whoever asks and how often. On the way each
/// agent is handed something back once.
pub fn script(ask: &Ask) -> Answer {
    let turns = ask
        .messages
        .iter()
        .filter(|m| m["role"] == "assistant")
        .count();
    match ask.role {
        Role::Other => Answer::text("All of it was made."),
        Role::Coordinator if turns == 0 => Answer::call("list_files", json!({})),
        Role::Coordinator if ask.first.contains("broken in two places") => submit(&["mend"]),
        Role::Coordinator => submit(&["left", "right", "free"]),
        Role::Verifier => judge(ask, turns),
        Role::Worker if ask.first.contains("conflict") => merge(turns),
        Role::Worker => work(&id_of(ask), turns),
    }
}

fn work(id: &str, turns: usize) -> Answer {
    let edit = |new: &str| {
        let arguments = json!({"path": "list.txt", "old_string": "five\n", "new_string": new});
        Answer::call("edit_file", arguments)
    };
    // An appended line would stand there twice if a call ran again on what it had left.
    let append = format!("echo made by {id} >> {id}.log");
    match (id, turns) {
        ("left", 0) => edit("LEFT five\n"),
        ("right", 0) => edit("RIGHT five\n"),
        ("free", 0) => Answer::text("Let me think."),
        ("free", 1) => write("free.txt", &"much to read\n".repeat(1000)),
        ("free", 2) => Answer::call("read_file", json!({"path": "free.txt"})),
        ("mend", 0) => write("mend.txt", "mended\n"),
        // One looks before it says so again, the other insists.
        ("right", 1) => report("done", "not checked yet"),
        ("mend", _) => report("done", "as it is"),
        (_, turns) if turns < 4 => Answer::calls(vec![
            ("bash", json!({"command": append})),
            ("bash", json!({"command": format!("cat {id}.log")})),
        ]),
        _ => report("done", "made it"),
    }
}

fn merge(turns: usize) -> Answer {
    match turns {
        // With the markers still in the file.
        0 => report("done", "nothing to do"),
        1 => write(
            "list.txt",
            &LINES.replace("five\n", "LEFT five\nRIGHT five\n"),
        ),
        2 => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "kept both"),
    }
}

fn judge(ask: &Ask, turns: usize) -> Answer {
    match (turns, ask.first.contains("mend.txt")) {
        (0, _) => Answer::call("list_files", json!({})),
        (1, _) => passes(&["It is done"], "no evidence at all"),
        (_, true) => passes(&["It is done"], "#1"),
        (_, false) => verdict("fail", vec![("It is done", "fail", "broken in two places")]),
    }
}

fn id_of(ask: &Ask) -> String {
    let from = ask.first.find("BRIEF ").map_or(0, |at| at + 6);
    let rest = ask.first[from..].chars();
    rest.take_while(|c| *c != '.').collect()
}

fn submit(ids: &[&str]) -> Answer {
    let subtasks: Vec<_> = ids
        .iter()
        .map(|id| json!({"id": id, "role": "coder", "brief": format!("BRIEF {id}."), "needs": []}))
        .collect();
    Answer::call(
        "submit_plan",
        json!({"summary": "split", "criteria": ["It is done"], "subtasks": subtasks}),
    )
}

pub async fn recorded() -> Recorded {
    let whole = Recorded::of(&[("list.txt", LINES)], PLAN, script).await;
    assert_eq!(
        whole.summary.status,
        Status::Passed,
        "{}",
        whole.summary.reason
    );
    assert_eq!(
        (whole.summary.rounds, whole.summary.conflicts.len()),
        (2, 1)
    );
    whole
}

/// How many answers of the model are on record.
pub fn answered(lines: &[Line]) -> usize {
    count(lines, |e| matches!(e, Event::ModelAnswered { .. }))
}

/// The same end as the run that nobody killed, and nothing done twice that was done before line `cut`.
fn same_end(whole: &Recorded, cut: usize, again: &Again) {
    let at = format!("killed after line {cut}: {:?}", whole.lines[..cut].last());
    let (is, was) = (&again.summary, &whole.summary);
    assert_eq!(is.status, was.status, "{at}: {}", is.reason);
    assert_eq!(is.snapshot, was.snapshot, "{at}");
    assert_eq!(again.patch, whole.patch, "{at}");
    assert_eq!(is.rounds, was.rounds, "{at}");
    assert_eq!(is.usage.calls, was.usage.calls, "{at}");
    assert_eq!(is.summary, was.summary, "{at}");
    let verdict = |s: &wharf::run::Summary| s.verdict.as_ref().map(|v| (v.status, v.tree.clone()));
    assert_eq!(verdict(is), verdict(was), "{at}");
    let left = whole.requests - answered(&whole.lines[..cut]);
    assert_eq!(again.requests.len(), left, "{at}: requests");
    assert_eq!(
        (again.engine.open(), again.engine.twice()),
        (0, vec![]),
        "{at}"
    );
    let ids: Vec<&str> = was.subtasks.iter().map(|s| s.id.as_str()).collect();
    nothing_twice(&whole.lines, &again.lines, &ids, &at);
}

/// Each of these subtasks was worked and done once, and what happens once a round or once a run happened as
/// often as in the run that nobody killed.
pub fn nothing_twice(whole: &[Line], again: &[Line], ids: &[&str], at: &str) {
    for name in ids {
        let done = count(
            again,
            |e| matches!(e, Event::SubtaskEnded { id, status: SubtaskStatus::Done, .. } if id.as_str() == *name),
        );
        assert_eq!(done, 1, "{at}: {name} ended {done} times");
        let worked = count(
            again,
            |e| matches!(e, Event::AgentEnded { agent, .. } if agent.subtask.as_str() == *name),
        );
        assert_eq!(worked, 1, "{at}: {name} was worked {worked} times");
    }
    for kind in [
        "round_started",
        "plan_accepted",
        "merged",
        "conflict_found",
        "conflict_resolved",
        "acceptance_ran",
        "verdict_given",
        "round_ended",
        "delivered",
        "run_ended",
    ] {
        let of = |lines: &[Line]| {
            let named = |e: &Event| serde_json::to_value(e).unwrap()["type"] == kind;
            count(lines, named)
        };
        assert_eq!(of(again), of(whole), "{at}: {kind}");
    }
}

async fn kill_and_resume(whole: &Recorded, cut: usize) {
    let state = whole.killed(&whole.journal[..whole.boundaries()[cut]]);
    let again = whole.resume(state, Raised::default(), script).await;
    match again {
        Ok(again) => same_end(whole, cut, &again),
        // Without a first record nobody can tell what the run was.
        Err(Error::Start {
            code: 2,
            kind: "run",
            ..
        }) if cut == 0 => {}
        Err(error) => panic!("killed after line {cut}: {error}"),
    }
}

/// Does one thing for each of many, several at a time; all that failed is told.
async fn each<F>(all: impl IntoIterator<Item = usize>, one: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks = futures::stream::iter(all).map(|n| {
        let task = tokio::spawn(one(n));
        async move { task.await.err().map(|error| (n, error.to_string())) }
    });
    let done: Vec<_> = tasks.buffer_unordered(ABREAST).collect().await;
    let failed: Vec<_> = done.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_killed_at_any_line_of_its_journal_comes_to_the_same_end() {
    // Every line of one run, and here and there in another, for the agents of each go in another order.
    let mut kills = 0;
    for step in [1, 9] {
        let whole = Arc::new(recorded().await);
        let cuts: Vec<usize> = (0..=whole.lines.len()).step_by(step).collect();
        kills += cuts.len();
        let one = move |cut| {
            let whole = whole.clone();
            async move { kill_and_resume(&whole, cut).await }
        };
        each(cuts, one).await;
    }
    assert!(kills > 200, "{kills} kills are no matrix");
}

/// Killed again and again: each process gets a few lines further.
#[tokio::test]
async fn a_run_killed_over_and_over_comes_to_the_same_end() {
    let whole = recorded().await;
    let mut bytes = whole.journal[..whole.boundaries()[9]].to_vec();
    let mut requests = answered(&whole.lines[..9]);
    for _ in 0..200 {
        let lines = bytes.iter().filter(|b| **b == b'\n').count();
        let state = whole.killed(&bytes);
        let again = whole
            .resume(state, Raised::default(), script)
            .await
            .unwrap();
        assert_eq!(again.summary.snapshot, whole.summary.snapshot);
        assert_eq!(again.patch, whole.patch);
        assert_eq!(again.requests.len(), whole.requests - requests);
        if again.lines.len() <= lines + AT_A_TIME {
            return;
        }
        // A delivered patch lies in the directory of the process before, which is gone by then.
        let next = &again.lines[..lines + AT_A_TIME];
        if count(next, |event| matches!(event, Event::Delivered { .. })) > 0 {
            return;
        }
        let journal = std::fs::read(again.state.path().join("runs/run/journal.jsonl")).unwrap();
        let ends = journal.iter().enumerate().filter(|(_, b)| **b == b'\n');
        let end = ends
            .map(|(at, _)| at + 1)
            .nth(lines + AT_A_TIME - 1)
            .unwrap();
        bytes = journal[..end].to_vec();
        requests = answered(&again.lines[..lines + AT_A_TIME]);
    }
    panic!("it never came to an end");
}

/// The small run's last record that is so, cut at every `step`th byte, and each time resumed.
async fn cut_within(record: impl Fn(&Event) -> bool, step: usize) {
    let plan =
        "version: 1\nname: small\ntask: Do it\nsubtasks: [{id: a, role: coder, brief: BRIEF a.}]\n";
    let small = |ask: &Ask| match ask.role {
        Role::Verifier => Answer::text("no verdict"),
        _ if ask.results().is_empty() => {
            Answer::call("bash", json!({"command": "echo ünï > a.txt"}))
        }
        _ => report("done", "made ünï"),
    };
    let whole = Recorded::of(&[("x.txt", "x\n")], plan, small).await;
    let last = whole.lines.iter().rposition(|line| record(&line.event));
    let last = last.expect("such a record");
    let ends = whole.boundaries();
    let (from, to) = (ends[last], ends[last + 1]);
    let whole = Arc::new(whole);
    let one = move |cut: usize| {
        let whole = whole.clone();
        async move {
            let state = whole.killed(&whole.journal[..cut]);
            let again = whole.resume(state, Raised::default(), small).await;
            let again = again.unwrap_or_else(|error| panic!("cut at byte {cut}: {error}"));
            assert_eq!(again.summary.snapshot, whole.summary.snapshot);
            assert_eq!(again.patch, whole.patch);
            // Where only its newline is missing the record is whole. Else the cut is told.
            let told = again.lines.iter().find_map(|line| match line.event {
                Event::Resumed { torn, .. } => Some(torn as usize),
                _ => None,
            });
            let torn = if cut + 1 == to { 0 } else { cut - from };
            assert_eq!(told, Some(torn));
        }
    };
    let bytes = (from..to).step_by(step).chain([to - 1]);
    each(bytes, one).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_last_record_cut_at_any_byte_is_cut_off_and_the_run_goes_on() {
    cut_within(|e| matches!(e, Event::Summarised { .. }), 1).await;
    let saved = |e: &Event| {
        matches!(
            e,
            Event::TurnDone {
                snapshot: Some(_),
                ..
            }
        )
    };
    cut_within(saved, 13).await;
}
