//! Whole runs over the in-memory sandbox: what a plan and its agents' answers come to.

use serde_json::json;
use wharf::journal::{Event, SubtaskStatus};
use wharf::run::{Notice, Status, VerdictStatus};

use crate::server::{Answer, Ask, Role};
use crate::world::{Ran, World, passes, report, verdict, write};

const LINES: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n";

/// A plan of fixed subtasks, each `id: needs`, every brief `BRIEF id`.
fn plan(extra: &str, subtasks: &[(&str, &[&str])]) -> String {
    let mut text = format!("version: 1\nname: test\ntask: Do the work\n{extra}\nsubtasks:\n");
    for (id, needs) in subtasks {
        let needs = needs.join(", ");
        text.push_str(&format!(
            "  - {{id: {id}, role: coder, brief: \"BRIEF {id}.\", needs: [{needs}]}}\n"
        ));
    }
    text
}

const CRITERIA: &str = "acceptance: {criteria: [\"It is done\"]}";

/// The id of the subtask whose brief stands first.
fn id_of(ask: &Ask) -> String {
    let from = ask.first.find("BRIEF ").map_or(0, |at| at + 6);
    ask.first[from..]
        .chars()
        .take_while(|c| *c != '.')
        .collect()
}

/// A verifier that looks once and then passes.
fn verifier(ask: &Ask) -> Answer {
    match ask.ordinal {
        0 => Answer::call("list_files", json!({})),
        _ => passes(&["It is done"], "#1"),
    }
}

fn status(ran: &Ran, id: &str) -> SubtaskStatus {
    let found = ran.summary.subtasks.iter().find(|s| s.id == id);
    found.unwrap_or_else(|| panic!("no subtask {id}")).status
}

fn patch(ran: &Ran) -> String {
    std::fs::read_to_string(ran.summary.patch.as_ref().expect("a patch")).unwrap()
}

#[tokio::test]
async fn a_diamond_of_five_merges_all_edits() {
    let world = World::new(&[("list.txt", LINES)]);
    let plan = plan(
        CRITERIA,
        &[
            ("a", &[]),
            ("b", &["a"]),
            ("c", &["a"]),
            ("d", &["b", "c"]),
            ("e", &[]),
        ],
    );
    let ran = world
        .run(&plan, |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, _) => verifier(ask),
            (_, 0) => match id_of(ask).as_str() {
                "b" => Answer::call(
                    "edit_file",
                    json!({"path": "list.txt", "old_string": "one\n", "new_string": "ONE\n"}),
                ),
                "c" => Answer::call(
                    "edit_file",
                    json!({"path": "list.txt", "old_string": "nine\n", "new_string": "NINE\n"}),
                ),
                "d" => Answer::call("read_file", json!({"path": "list.txt"})),
                id => write(&format!("{id}.txt"), "made\n"),
            },
            (_, 1) if id_of(ask) == "d" => {
                let seen = ask.last();
                assert!(
                    seen.contains("ONE") && seen.contains("NINE"),
                    "d sees both: {seen}"
                );
                report("done", "looked")
            }
            (_, _) => Answer::calls(vec![
                ("bash", json!({"command": "true"})),
                (
                    "submit_report",
                    json!({"status": "done", "summary": "made it"}),
                ),
            ]),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.exit_code, 0);
    let patch = patch(&ran);
    for part in ["+ONE", "+NINE", "a.txt", "e.txt"] {
        assert!(patch.contains(part), "{part} in {patch}");
    }
    assert_eq!(
        std::fs::read_to_string(world.workspace.join("list.txt")).unwrap(),
        LINES
    );
    let calls: u64 = ran.summary.usage.calls;
    assert_eq!(calls, ran.server.requests().len() as u64);
}

/// A merger that is shown both sides whole and keeps both.
fn keeps_both(ask: &Ask) -> Answer {
    for part in ["BRIEF left.", "BRIEF right.", "LEFT five", "RIGHT five"] {
        assert!(ask.first.contains(part), "{part} in {}", ask.first);
    }
    match ask.ordinal {
        0 => write(
            "list.txt",
            &LINES.replace("five\n", "LEFT five\nRIGHT five\n"),
        ),
        1 => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "kept both"),
    }
}

/// Two coders change the same line; two others need both of them.
#[tokio::test]
async fn a_conflict_becomes_a_node_whose_one_resolution_serves_all() {
    let world = World::new(&[("list.txt", LINES)]);
    let plan = plan(
        CRITERIA,
        &[
            ("left", &[]),
            ("right", &[]),
            ("x", &["left", "right"]),
            ("y", &["left", "right"]),
        ],
    );
    let ran = world
        .run(&plan, |ask| {
            let edit = |new: &str| {
                Answer::call(
                    "edit_file",
                    json!({"path": "list.txt", "old_string": "five\n", "new_string": new}),
                )
            };
            if ask.role == Role::Verifier {
                return verifier(ask);
            }
            if ask.first.contains("conflict") {
                return keeps_both(ask);
            }
            match (id_of(ask).as_str(), ask.ordinal) {
                ("left", 0) => edit("LEFT five\n"),
                ("right", 0) => edit("RIGHT five\n"),
                ("x" | "y", 0) => Answer::call("read_file", json!({"path": "list.txt"})),
                ("x" | "y", _) => {
                    assert!(
                        ask.results()[0].contains("LEFT five"),
                        "{:?}",
                        ask.results()
                    );
                    report("done", "saw both")
                }
                (_, 1) => Answer::call("bash", json!({"command": "true"})),
                _ => report("done", "changed five"),
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(
        ran.summary.conflicts.len(),
        1,
        "{:?}",
        ran.summary.conflicts
    );
    assert_eq!(ran.summary.conflicts[0].files, ["list.txt"]);
    assert_eq!(ran.summary.conflicts[0].status, SubtaskStatus::Done);
    assert_eq!(ran.summary.subtasks.len(), 4);
    let patch = patch(&ran);
    assert!(
        patch.contains("+LEFT five") && patch.contains("+RIGHT five"),
        "{patch}"
    );
}

#[tokio::test]
async fn a_resolution_with_markers_is_handed_back_and_an_unresolved_conflict_fails_the_run() {
    let world = World::new(&[("list.txt", LINES)]);
    let plan = plan(
        CRITERIA,
        &[
            ("left", &[]),
            ("right", &[]),
            ("x", &["left", "right"]),
            ("free", &[]),
        ],
    );
    let ran = world
        .run(&plan, |ask| {
            if ask.first.contains("conflict") {
                return match ask.ordinal {
                    0 => report("done", "nothing to do"),
                    _ => {
                        assert!(ask.last().contains("conflict markers"), "{}", ask.last());
                        report("failed", "they contradict each other")
                    }
                };
            }
            match (id_of(ask).as_str(), ask.ordinal) {
                ("free", 0) => write("free.txt", "free\n"),
                (id, 0) => Answer::call(
                    "edit_file",
                    json!({"path": "list.txt", "old_string": "five\n", "new_string": format!("{id}\n")}),
                ),
                (_, 1) => Answer::call("bash", json!({"command": "true"})),
                _ => report("done", "did it"),
            }
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Failed, 1)
    );
    assert!(
        ran.summary.reason.contains("they contradict each other"),
        "{}",
        ran.summary.reason
    );
    assert_eq!(status(&ran, "x"), SubtaskStatus::Blocked);
    assert_eq!(status(&ran, "free"), SubtaskStatus::Done);
    assert!(patch(&ran).contains("free.txt"));
}

#[tokio::test]
async fn a_failure_blocks_its_dependents_and_no_one_else() {
    let world = World::new(&[("a.txt", "a\n")]);
    let plan = plan(
        CRITERIA,
        &[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])],
    );
    let ran = world
        .run(&plan, |ask| match (id_of(ask).as_str(), ask.ordinal) {
            ("b", 0) => write("half.txt", "half done\n"),
            ("b", _) => report("failed", "it cannot be done"),
            (id, 0) => write(&format!("{id}.txt"), "made\n"),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "made"),
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Failed, 1)
    );
    assert!(
        ran.summary.reason.contains("it cannot be done"),
        "{}",
        ran.summary.reason
    );
    let want = [
        SubtaskStatus::Done,
        SubtaskStatus::Failed,
        SubtaskStatus::Done,
        SubtaskStatus::Blocked,
    ];
    let got: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|id| status(&ran, id))
        .collect();
    assert_eq!(got, want);
    let patch = patch(&ran);
    assert!(
        patch.contains("c.txt") && !patch.contains("half.txt"),
        "{patch}"
    );
    let failed = ran.summary.subtasks.iter().find(|s| s.id == "b").unwrap();
    assert!(failed.snapshot.is_some() && failed.changed_files == ["half.txt"]);
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

#[tokio::test]
async fn a_verdict_of_fail_opens_a_second_round_that_starts_from_what_was_merged() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(
            "version: 1\nname: test\ntask: Do the work\n",
            |ask| match ask.role {
                Role::Coordinator if ask.first.contains("broken in two places") => {
                    submit(&["mend"])
                }
                Role::Coordinator => submit(&["make"]),
                Role::Verifier if ask.ordinal == 0 => Answer::call("list_files", json!({})),
                Role::Verifier if ask.last().contains("mend.txt") => passes(&["It is done"], "#1"),
                Role::Verifier => {
                    let answer = json!({"verdict": "fail", "summary": "broken in two places",
                    "criteria": [{"criterion": "It is done", "status": "fail", "evidence": "#1"}]});
                    Answer::call("submit_verdict", answer)
                }
                Role::Worker if ask.ordinal == 0 => {
                    let id = id_of(ask);
                    write(&format!("{id}.txt"), "made\n")
                }
                Role::Worker if ask.ordinal == 1 => {
                    Answer::call("bash", json!({"command": "cat make.txt"}))
                }
                Role::Worker => {
                    assert!(
                        ask.last().contains("made"),
                        "round two sees round one: {}",
                        ask.last()
                    );
                    report("done", "made")
                }
                Role::Other => Answer::text("All of it was made."),
            },
        )
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.rounds, 2);
    assert_eq!(ran.summary.summary, "All of it was made.");
    let rounds: Vec<_> = ran
        .summary
        .subtasks
        .iter()
        .map(|s| (s.id.as_str(), s.round))
        .collect();
    assert_eq!(rounds, [("make", 1), ("mend", 2)]);
    assert_eq!(ran.summary.verdict.unwrap().criteria[0].text, "It is done");
}

#[tokio::test]
async fn a_failing_acceptance_command_outweighs_a_verdict_of_pass() {
    let world = World::new(&[("a.txt", "a\n")]);
    let extra = "acceptance: {commands: [\"exit 3\"], criteria: [\"It is done\"]}";
    let ran = world
        .run(&plan(extra, &[("a", &[])]), |ask| match ask.role {
            Role::Verifier => {
                assert!(ask.first.contains("exit 3"));
                verifier(ask)
            }
            _ => report("done", "nothing to do"),
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Failed, 1)
    );
    let verdict = ran.summary.verdict.unwrap();
    assert_eq!(verdict.status, VerdictStatus::Fail);
    assert_eq!(verdict.commands[0].exit_code, Some(3));
    // What the verifier says stands with the verdict; the reason is what decided.
    let reason = "`exit 3` exited with 3; criteria: 1 passed";
    assert_eq!(ran.summary.reason, reason);
    assert!(!verdict.summary.is_empty());
}

#[tokio::test]
async fn a_call_that_was_refused_or_failed_is_no_evidence() {
    type Script = fn(&Ask) -> Answer;
    // Each answers the first request with a call that shows nothing, and then rests on it.
    let firsts: [(&str, Script); 6] = [
        ("its own verdict, handed back", |_| {
            passes(&["It is done"], "#1")
        }),
        ("a file that is not there", |_| {
            Answer::call("read_file", json!({"path": "none.txt"}))
        }),
        ("a tool that there is not", |_| {
            Answer::call("look_around", json!({}))
        }),
        ("a command that failed", |_| {
            Answer::call("bash", json!({"command": "exit 1"}))
        }),
        ("acceptance commands that there are not", |_| {
            Answer::call("run_acceptance", json!({}))
        }),
        ("a command that still runs", |_| {
            Answer::call("bash", json!({"command": "sleep 60", "background": true}))
        }),
    ];
    for (name, first) in firsts {
        let world = World::new(&[("a.txt", "a\n")]);
        let ran = world
            .run(&plan(CRITERIA, &[("a", &[])]), move |ask| {
                match (ask.role, ask.ordinal) {
                    (Role::Verifier, 0) => first(ask),
                    (Role::Verifier, _) => passes(&["It is done"], "#1"),
                    _ => report("done", "nothing to do"),
                }
            })
            .await;
        assert_eq!(
            (ran.summary.status, ran.summary.exit_code),
            (Status::Unverified, 4),
            "{name}"
        );
    }
}

/// `submit_verdict` of this word, as a call of several.
fn word(word: &str) -> (&'static str, serde_json::Value) {
    let status = match word {
        "nonsense" => "pass",
        word => word,
    };
    let criteria = json!([{"criterion": "It is done", "status": status, "evidence": "#1"}]);
    (
        "submit_verdict",
        json!({"verdict": word, "summary": "s", "criteria": criteria}),
    )
}

#[tokio::test]
async fn of_several_ending_calls_in_one_turn_none_counts() {
    // The last pair's first cannot be understood, which makes the second no clearer.
    for (first, second) in [("fail", "pass"), ("pass", "fail"), ("nonsense", "pass")] {
        let world = World::new(&[("a.txt", "a\n")]);
        let ran = world
            .run(&plan(CRITERIA, &[("a", &[])]), move |ask| {
                match (ask.role, ask.ordinal) {
                    (Role::Verifier, 0) => Answer::call("list_files", json!({})),
                    (Role::Verifier, _) => Answer::calls(vec![word(first), word(second)]),
                    _ => report("done", "nothing to do"),
                }
            })
            .await;
        let seen = (ran.summary.status, ran.summary.exit_code);
        assert_eq!(seen, (Status::Unverified, 4), "{first}, {second}");
    }
}

#[tokio::test]
async fn of_several_reports_in_one_turn_none_counts() {
    let world = World::new(&[("a.txt", "a\n")]);
    let said = |status| ("submit_report", json!({"status": status, "summary": "s"}));
    let ran = world
        .run(&plan(CRITERIA, &[("a", &[])]), move |ask| {
            match (ask.role, ask.ordinal) {
                (Role::Verifier, _) => verifier(ask),
                (_, 0) => Answer::calls(vec![said("failed"), said("done")]),
                _ => {
                    assert!(ask.last().contains("none of them counts"), "{}", ask.last());
                    report("failed", "it cannot be done")
                }
            }
        })
        .await;
    assert_eq!(ran.summary.exit_code, 1, "{}", ran.summary.reason);
}

#[tokio::test]
async fn what_is_done_when_a_limit_stops_the_run_is_delivered_as_what_it_is() {
    let world = World::new(&[("a.txt", "a\n")]);
    let plan = plan(
        &format!("{CRITERIA}\nrun: {{tokens: 60000}}"),
        &[("one", &[]), ("two", &["one"])],
    );
    let ran = world
        .run(&plan, |ask| match (id_of(ask).as_str(), ask.ordinal) {
            ("one", 0) => write("one.txt", "made\n"),
            ("one", 1) => Answer::call("bash", json!({"command": "true"})),
            ("one", _) => report("done", "made it"),
            (_, 0) => write("half.txt", "half\n").usage(100_000, 10),
            _ => report("done", "never asked"),
        })
        .await;
    assert_eq!(ran.summary.exit_code, 5, "{}", ran.summary.reason);
    let patch = patch(&ran);
    assert!(patch.contains("one.txt"), "{patch}");
    assert!(!patch.contains("half.txt"), "{patch}");
    assert!(ran.summary.verdict.is_none());
}

#[tokio::test]
async fn whatever_is_no_verdict_is_no_pass() {
    type Script = fn(&Ask) -> Answer;
    let answers: [(&str, Script); 6] = [
        ("text", |_| Answer::text("Verdict: PASS")),
        ("nothing", |_| Answer::text("")),
        ("no evidence", |_| passes(&["It is done"], "I looked at it")),
        ("a call it never made", |_| passes(&["It is done"], "#7")),
        ("unknown", |_| {
            verdict("pass", vec![("It is done", "unknown", "")])
        }),
        ("another criterion", |_| passes(&["Something else"], "#1")),
    ];
    for (name, answer) in answers {
        let world = World::new(&[("a.txt", "a\n")]);
        let ran = world
            .run(&plan(CRITERIA, &[("a", &[])]), move |ask| {
                match (ask.role, ask.ordinal) {
                    (Role::Verifier, 0) => Answer::call("list_files", json!({})),
                    (Role::Verifier, _) => answer(ask),
                    _ => report("done", "nothing to do"),
                }
            })
            .await;
        assert_eq!(
            (ran.summary.status, ran.summary.exit_code),
            (Status::Unverified, 4),
            "{name}"
        );
        assert!(!ran.summary.reason.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn without_verification_a_done_run_says_so() {
    let mut world = World::new(&[("a.txt", "a\n")]);
    world.options.verify = false;
    let ran = world
        .run(&plan(CRITERIA, &[("a", &[])]), |_| {
            report("done", "nothing")
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Unverified, 0)
    );
    assert!(ran.summary.verdict.is_none());
}

#[tokio::test]
async fn a_budget_of_nothing_allows_nothing_and_a_spent_one_limits() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(&plan("run: {tokens: 0}", &[("a", &[])]), |_| {
            report("done", "nothing")
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Limited, 5)
    );
    assert_eq!(ran.server.requests().len(), 0);

    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(
            &plan("run: {tokens: 30000}", &[("a", &[]), ("b", &["a"])]),
            |ask| {
                Answer::call("bash", json!({"command": format!("echo {}", ask.ordinal)}))
                    .usage(9000, 100)
            },
        )
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Limited, 5)
    );
    assert!(
        ran.server.requests().len() <= 3,
        "{} requests",
        ran.server.requests().len()
    );
    assert_ne!(status(&ran, "b"), SubtaskStatus::Done);
}

#[tokio::test]
async fn a_bad_key_ends_the_run_at_once_for_all_agents() {
    let world = World::new(&[("a.txt", "a\n")]);
    let subtasks: &[(&str, &[&str])] = &[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])];
    let ran = world
        .run(&plan("", subtasks), |_| {
            Answer::status(
                401,
                r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#,
                &[],
            )
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Error, 3)
    );
    assert!(
        ran.server.requests().len() <= 4,
        "{}",
        ran.server.requests().len()
    );
    assert!(ran.summary.reason.contains("401"), "{}", ran.summary.reason);
}

#[tokio::test]
async fn a_throttled_agent_waits_and_loses_nothing() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(&plan(CRITERIA, &[("a", &[])]), |ask| {
            match (ask.role, ask.number) {
                (_, 0) => Answer::status(429, "{}", &[("retry-after-ms", "20")]),
                (Role::Verifier, _) => verifier(ask),
                _ => report("done", "nothing"),
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert!(
        ran.notices
            .iter()
            .any(|n| matches!(n, Notice::Waiting { .. }))
    );
    let failed = ran
        .journal
        .iter()
        .filter(|l| matches!(l.event, Event::ModelFailed { .. }))
        .count();
    assert_eq!(failed, 1);
}

#[tokio::test]
async fn told_to_stop_a_run_ends_its_agents_and_keeps_what_they_made() {
    let world = World::new(&[("a.txt", "a\n")]);
    let stop = world.stop.clone();
    let ran = world
        .run(
            &plan("", &[("a", &[]), ("b", &[]), ("c", &["a"])]),
            move |ask| match (id_of(ask).as_str(), ask.ordinal) {
                ("a", 0) => write("kept.txt", "kept\n"),
                ("a", _) => {
                    stop.exit_code
                        .store(143, std::sync::atomic::Ordering::SeqCst);
                    stop.cancel.cancel();
                    report("done", "too late")
                }
                _ => Answer::call(
                    "bash",
                    json!({"command": "sleep 1000", "timeout_seconds": 600}),
                ),
            },
        )
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Interrupted, 143)
    );
    assert!(matches!(
        ran.journal.last().unwrap().event,
        Event::RunEnded { .. }
    ));
    assert_eq!(status(&ran, "c"), SubtaskStatus::Cancelled);
    let snapshots = ran.journal.iter().filter(|l| {
        matches!(
            &l.event,
            Event::TurnDone {
                snapshot: Some(_),
                ..
            }
        )
    });
    assert_eq!(snapshots.count(), 1);
}

#[tokio::test]
async fn a_bad_plan_goes_back_to_the_coordinator_with_the_exact_error() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(
            "version: 1\nname: test\ntask: Do the work\n",
            |ask| match (ask.role, ask.ordinal) {
                (Role::Coordinator, 0) => Answer::call(
                    "submit_plan",
                    json!({"summary": "s", "subtasks": [
                    {"id": "a", "role": "coder", "brief": "x", "needs": ["b"]},
                    {"id": "b", "role": "coder", "brief": "x", "needs": ["a"]}]}),
                ),
                (Role::Coordinator, _) => {
                    assert!(ask.last().contains("a -> b -> a"), "{}", ask.last());
                    submit(&["a"])
                }
                (Role::Verifier, _) => verifier(ask),
                (Role::Other, _) => Answer::text("Done."),
                _ => report("done", "nothing"),
            },
        )
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
}

#[tokio::test]
async fn a_hidden_file_is_neither_seen_nor_lost() {
    let world = World::new(&[("a.txt", "a\n"), (".env", "SECRET=1\n")]);
    let ran = world
        .run(&plan(CRITERIA, &[("a", &[])]), |ask| {
            match (ask.role, ask.ordinal) {
                (Role::Verifier, _) => verifier(ask),
                (_, 0) => Answer::call("list_files", json!({})),
                (_, 1) => {
                    assert!(!ask.last().contains(".env"), "{}", ask.last());
                    write(".env", "SECRET=mine\n")
                }
                (_, 2) => {
                    assert!(ask.last().contains("sensitive path"), "{}", ask.last());
                    Answer::call("bash", json!({"command": "echo SECRET=mine > .env"}))
                }
                _ => report("done", "nothing"),
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert!(ran.summary.patch.is_none());
    assert!(
        ran.summary.left_out.iter().any(|l| l.path == ".env"),
        "{:?}",
        ran.summary.left_out
    );
    assert_eq!(
        std::fs::read_to_string(world.workspace.join(".env")).unwrap(),
        "SECRET=1\n"
    );
}

#[tokio::test]
async fn a_protect_pattern_that_matches_no_file_is_warned_of_by_name() {
    let world = World::new(&[("tests/t.txt", "assert\n"), ("a.txt", "a\n")]);
    let extra = "acceptance: {criteria: [\"It is done\"]}\nprotect: [\"tests/**\", \"Tests/**\", \"!tests/new/**\"]";
    let ran = world
        .run(&plan(extra, &[("a", &[])]), |ask| {
            match (ask.role, ask.ordinal) {
                (Role::Verifier, _) => verifier(ask),
                (_, 0) => write("b.txt", "b\n"),
                _ => report("done", "made it"),
            }
        })
        .await;
    let of_protect = ran.summary.warnings.iter();
    let of_protect: Vec<_> = of_protect.filter(|w| w.starts_with("protect:")).collect();
    assert_eq!(
        of_protect,
        ["protect: `Tests/**` matches no file of the workspace that agents see"]
    );
}

#[tokio::test]
async fn a_changed_protected_file_fails_the_run_whatever_changed_it() {
    let world = World::new(&[("tests/t.txt", "assert\n"), ("a.txt", "a\n")]);
    let extra = "acceptance: {criteria: [\"It is done\"]}\nprotect: [\"tests/**\"]";
    let ran = world
        .run(&plan(extra, &[("a", &[])]), |ask| {
            match (ask.role, ask.ordinal) {
                (Role::Verifier, _) => {
                    assert!(ask.first.contains("tests/t.txt"));
                    verifier(ask)
                }
                (_, 0) => write("tests/t.txt", "true\n"),
                (_, 1) => {
                    assert!(ask.last().contains("protected"), "{}", ask.last());
                    Answer::call("bash", json!({"command": "echo true > tests/t.txt"}))
                }
                _ => report("done", "made the tests pass"),
            }
        })
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Failed, 1)
    );
    assert_eq!(
        ran.summary.verdict.unwrap().protected_changes,
        ["tests/t.txt"]
    );
}

/// A recorded verdict on the tree it judged passes; on another tree it is no verdict.
#[tokio::test]
async fn a_recorded_verdict_counts_only_for_the_tree_it_judged() {
    let script = |ask: &Ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, _) => verifier(ask),
        (_, 0) => Answer::call("bash", json!({"command": "echo made > made.txt"})),
        _ => report("done", "made it"),
    };
    let plan = plan(CRITERIA, &[("a", &[])]);
    let first = World::new(&[("a.txt", "a\n")]);
    let ran = first.run(&plan, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let journal = first.state.join("runs/run/journal.jsonl");

    for (text, status, warned) in [("a\n", Status::Passed, 0), ("b\n", Status::Unverified, 1)] {
        let again = World::new(&[("a.txt", text)]);
        let replay = wharf::model::open(
            &format!("replay:{}", journal.display()),
            &Default::default(),
        );
        let summary = wharf::run::start(again.order(&plan, replay.unwrap()))
            .await
            .unwrap();
        assert_eq!(summary.status, status, "{text}: {}", summary.reason);
        assert_eq!(
            summary.warnings.len(),
            warned,
            "{text}: {:?}",
            summary.warnings
        );
    }
}

#[tokio::test]
async fn told_to_stop_before_it_read_the_workspace_a_run_says_so_and_asks_nobody() {
    let world = World::new(&[("a.txt", "a\n")]);
    world
        .stop
        .exit_code
        .store(130, std::sync::atomic::Ordering::SeqCst);
    world.stop.cancel.cancel();
    let server = crate::server::FakeModel::start(|_| report("done", "never asked")).await;
    let order = world.order(&plan("", &[("a", &[])]), crate::world::connect(&server));
    let code = match wharf::run::start(order).await {
        Ok(summary) => summary.exit_code,
        Err(wharf::run::Error::Start { code, .. }) => code,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(code, 130);
    assert_eq!(server.requests().len(), 0);
    let journal = wharf::journal::read(&world.state.join("runs/run/journal.jsonl")).unwrap();
    let based = |line: &&wharf::journal::Line| matches!(line.event, Event::BaseTaken { .. });
    assert_eq!(
        journal.lines.iter().find(based),
        None,
        "it did not wait for the base"
    );
    match &journal.lines.last().unwrap().event {
        Event::RunEnded {
            status, exit_code, ..
        } => assert_eq!((status.as_str(), *exit_code), ("interrupted", 130)),
        other => panic!("{other:?}"),
    }
}

/// Eight at a time on one pot: what is spent stays within it, since each answer was reserved before.
#[tokio::test]
async fn agents_side_by_side_spend_no_more_than_the_pot_holds() {
    let ids: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    let subtasks: Vec<(&str, &[&str])> = ids.iter().map(|id| (id.as_str(), &[][..])).collect();
    let limit = 90_000;
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(
            &plan(&format!("run: {{parallel: 8, tokens: {limit}}}"), &subtasks),
            |ask| {
                Answer::call("bash", json!({"command": format!("echo {}", ask.number)}))
                    .usage(900, 7_900)
            },
        )
        .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Limited, 5),
        "{}",
        ran.summary.reason
    );
    let used = ran.summary.usage.input_tokens + ran.summary.usage.output_tokens;
    assert!((1..=limit).contains(&used), "{used}");
}

/// All work is done, and nothing is left to judge it by: that is no pass.
#[tokio::test]
async fn a_verifier_that_the_pot_starves_has_passed_nothing() {
    let world = World::new(&[("a.txt", "a\n")]);
    let extra = format!("{CRITERIA}\nrun: {{tokens: 30000}}");
    let ran = world
        .run(&plan(&extra, &[("a", &[])]), |ask| match ask.role {
            Role::Worker => report("done", "made it").usage(24_000, 100),
            _ => panic!("nobody else can be paid for"),
        })
        .await;
    assert_eq!(status(&ran, "a"), SubtaskStatus::Done);
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Limited, 5),
        "{}",
        ran.summary.reason
    );
    let verdict = ran.summary.verdict.map(|verdict| verdict.status);
    assert_ne!(verdict, Some(VerdictStatus::Pass));
}
