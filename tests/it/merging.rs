//! Conflicts of whole runs: the same in any order of finishing, and what a merger chooses is seen.

use std::collections::BTreeMap;

use serde_json::json;
use wharf::journal::{Event, Loss, Side, SubtaskStatus};
use wharf::run::Status;

use crate::server::{Answer, Ask, Role};
use crate::workspace::fixture;
use crate::world::{Ran, World, passes, report, write};

const LINES: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n";

const HEAD: &str = "version: 1\nname: test\ntask: Do the work\nacceptance: {criteria: [\"It is done\"]}\n\
                    run: {parallel: 8}\nsubtasks:\n";

/// Subtasks that all work from the base, then one that needs the first two.
fn plan(ids: &[&str]) -> String {
    let mut text = HEAD.to_owned();
    for id in ids {
        text.push_str(&format!(
            "  - {{id: {id}, role: coder, brief: \"BRIEF {id}.\"}}\n"
        ));
    }
    text
}

fn id_of(ask: &Ask) -> String {
    let from = ask.first.find("BRIEF ").map_or(0, |at| at + 6);
    let rest = &ask.first[from..];
    rest.chars().take_while(|c| *c != '.').collect()
}

fn merges(ask: &Ask) -> bool {
    ask.first.contains("Resolve a merge conflict")
}

fn verifier(ask: &Ask) -> Answer {
    match ask.ordinal {
        0 => Answer::call("list_files", json!({})),
        _ => passes(&["It is done"], "#1"),
    }
}

fn edit(old: &str, new: &str) -> Answer {
    let edit = json!({"path": "list.txt", "old_string": old, "new_string": new});
    Answer::call("edit_file", edit)
}

/// `left` and `right` change the same line; whoever else there is adds a file of its own.
fn coder(ask: &Ask) -> Answer {
    match (id_of(ask).as_str(), ask.ordinal) {
        (id @ ("left" | "right"), 0) => edit("five\n", &format!("{id} five\n")),
        (id, 0) => write(&format!("{id}.txt"), "made\n"),
        (_, 1) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "changed it"),
    }
}

fn said(findings: &[&str]) -> Answer {
    let report = json!({"status": "done", "summary": "resolved", "findings": findings});
    Answer::call("submit_report", report)
}

/// Runs two coders in conflict with a merger of this script.
async fn conflict(world: &World, merger: impl Fn(&Ask) -> Answer + Send + Sync + 'static) -> Ran {
    let script = move |ask: &Ask| match ask.role {
        Role::Verifier => verifier(ask),
        _ if merges(ask) => merger(ask),
        _ => coder(ask),
    };
    world.run(&plan(&["left", "right"]), script).await
}

/// The first message of the verifier.
fn told_verifier(ran: &Ran) -> String {
    let requests = ran.server.requests();
    let texts = requests
        .iter()
        .map(|body| body["messages"][1]["content"].to_string());
    let mut texts = texts.filter(|text| text.contains("Task that was worked"));
    texts.next().unwrap_or_default()
}

/// What a conflict cost stands beside it, as it does beside a subtask, and the parts are the whole.
#[tokio::test]
async fn a_conflict_has_the_calls_the_cost_and_the_time_of_its_merger() {
    let world = World::new(&[("list.txt", LINES)]);
    let both = LINES.replace("five\n", "left five\nright five\n");
    let ran = conflict(&world, move |ask| match ask.ordinal {
        0 => write("list.txt", &both),
        1 => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "kept both"),
    });
    let ran = ran.await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let json = std::fs::read_to_string(world.state.join("runs/run/result.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (subtask, conflict) = (&json["subtasks"][0], &json["conflicts"][0]);
    for field in ["turns", "tool_calls", "usage", "cost_usd", "seconds"] {
        assert_eq!(
            kind_of(&conflict[field]),
            kind_of(&subtask[field]),
            "{field}: {conflict}"
        );
    }
    assert_eq!(conflict["tool_calls"], 2);
    let lists = ["subtasks", "conflicts", "agents"];
    let all = lists.iter().flat_map(|list| json[list].as_array().unwrap());
    let cost: f64 = all.map(|one| one["cost_usd"].as_f64().unwrap()).sum();
    let whole = json["cost_usd"].as_f64().unwrap();
    assert!((cost - whole).abs() < 1e-9, "{cost} of {whole}");
}

/// The kind of a value in JSON.
fn kind_of(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::Object(_) => "object",
        _ => "other",
    }
}

#[tokio::test]
async fn the_order_of_finishing_decides_nothing() {
    let delays: [BTreeMap<&str, &str>; 3] = [
        BTreeMap::from([("left", "0"), ("right", "0.2"), ("x", "0.4"), ("y", "0.1")]),
        BTreeMap::from([("left", "0.4"), ("right", "0.1"), ("x", "0"), ("y", "0.3")]),
        BTreeMap::from([("left", "0.1"), ("right", "0.4"), ("x", "0.3"), ("y", "0")]),
    ];
    let text = plan(&["y", "left", "x", "right"])
        + "  - {id: z, role: coder, brief: \"BRIEF z.\", needs: [right, left]}\n";
    let mut seen = Vec::new();
    for delays in delays {
        let world = World::new(&[("list.txt", LINES)]);
        let wait = move |ask: &Ask| {
            let seconds = delays.get(id_of(ask).as_str()).unwrap_or(&"0");
            Answer::call("bash", json!({"command": format!("sleep {seconds}")}))
        };
        let ran = world
            .run(&text, move |ask| match (ask.role, ask.ordinal) {
                (Role::Verifier, _) => verifier(ask),
                (_, 0) if merges(ask) => {
                    let both = LINES.replace("five\n", "left five\nright five\n");
                    write("list.txt", &both)
                }
                (_, 1) if merges(ask) => Answer::call("bash", json!({"command": "true"})),
                _ if merges(ask) => report("done", "kept both"),
                (_, 1) => wait(ask),
                _ => coder(ask),
            })
            .await;
        assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
        let order: Vec<String> = ran
            .journal
            .iter()
            .filter_map(|line| match &line.event {
                Event::AgentEnded { agent, .. } => Some(agent.subtask.to_string()),
                _ => None,
            })
            .collect();
        let conflict = &ran.summary.conflicts[0];
        let facts = (
            ran.summary.snapshot.clone(),
            conflict.id.clone(),
            conflict.ours.clone(),
            conflict.theirs.clone(),
        );
        seen.push((order, facts));
    }
    let (orders, facts): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    assert!(
        orders[0] != orders[1] || orders[1] != orders[2],
        "{orders:?}"
    );
    assert_eq!(facts[0], facts[1]);
    assert_eq!(facts[1], facts[2]);
}

#[tokio::test]
async fn what_a_merger_drops_is_asked_for_once_then_shown_to_all() {
    let world = World::new(&[("list.txt", LINES)]);
    let ran = conflict(&world, |ask| match ask.ordinal {
        0 => write("list.txt", &LINES.replace("five\n", "left five\n")),
        1 => Answer::call("bash", json!({"command": "true"})),
        2 => report("done", "took one"),
        _ => {
            assert!(
                ask.last().contains("list.txt: right five"),
                "{}",
                ask.last()
            );
            said(&["The wish of the other was taken back later."])
        }
    })
    .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let found = &ran.summary.conflicts[0];
    assert_eq!(
        (found.ours_by.as_slice(), found.theirs_by.as_slice()),
        (&["left".to_owned()][..], &["right".to_owned()][..])
    );
    let dropped = &found.dropped[0];
    assert_eq!(
        (dropped.path.as_str(), dropped.side, dropped.what),
        ("list.txt", Side::Theirs, Loss::Lines)
    );
    assert_eq!(dropped.lines, ["right five"]);
    let verifier = told_verifier(&ran);
    let report = std::fs::read_to_string(world.state.join("runs/run/report.md")).unwrap();
    for text in [&verifier, &report] {
        assert!(text.contains("Gone from the resolution"), "{text}");
        assert!(text.contains("list.txt: right five"), "{text}");
        assert!(text.contains("taken back later"), "{text}");
    }
    let resolved =
        |line: &&wharf::journal::Line| matches!(line.event, Event::ConflictResolved { .. });
    assert_eq!(ran.journal.iter().filter(resolved).count(), 1);
}

#[tokio::test]
async fn a_merger_that_names_what_it_drops_is_not_asked() {
    let world = World::new(&[("list.txt", LINES)]);
    let ran = conflict(&world, |ask| match ask.ordinal {
        0 => write("list.txt", &LINES.replace("five\n", "left five\n")),
        1 => Answer::call("bash", json!({"command": "true"})),
        2 => said(&["`right five` goes: the task wants the left."]),
        _ => panic!("asked again: {}", ask.last()),
    })
    .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.conflicts[0].dropped.len(), 1);
}

#[tokio::test]
async fn a_merger_that_never_says_why_has_resolved_nothing_and_both_versions_are_kept() {
    let world = World::new(&[("list.txt", LINES)]);
    let ran = conflict(&world, |ask| match ask.ordinal {
        0 => write("list.txt", &LINES.replace("five\n", "right five\n")),
        1 => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "took one"),
    })
    .await;
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Failed, 1)
    );
    let found = &ran.summary.conflicts[0];
    assert_eq!(found.status, SubtaskStatus::Failed);
    let reason = found.reason.clone().unwrap();
    assert!(reason.contains("both versions are kept"), "{reason}");
    let kept = found.kept.clone().unwrap();
    for (name, text) in [(&kept.ours, "left five"), (&kept.theirs, "right five")] {
        let git_dir = format!("--git-dir={}", kept.store);
        let shown = fixture::git(
            &world.workspace,
            &[&git_dir, "show", &format!("{name}:list.txt")],
        );
        assert!(shown.contains(text), "{name}: {shown}");
        assert!(reason.contains(name.as_str()), "{reason}");
    }
}

#[tokio::test]
async fn what_a_merger_removes_beyond_its_conflict_is_warned_of() {
    let world = World::new(&[("list.txt", LINES), ("b.txt", "b\n")]);
    let ran = conflict(&world, |ask| match ask.ordinal {
        0 => {
            let both = LINES.replace("five\n", "left five\nright five\n");
            write("list.txt", &both)
        }
        1 => Answer::call("bash", json!({"command": "rm b.txt"})),
        _ => report("done", "kept both"),
    })
    .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let found = &ran.summary.conflicts[0];
    assert_eq!(found.removed, ["b.txt"]);
    let warning = format!("{} removed what was in no conflict: b.txt", found.id);
    let warnings = ran.summary.warnings.join("\n");
    assert!(warnings.contains(&warning), "{warnings}");
    for file in ["report.md", "result.json"] {
        let text = std::fs::read_to_string(world.state.join("runs/run").join(file)).unwrap();
        assert!(text.contains(&warning), "{file}: {text}");
    }
}

/// Lines that both sides had left alone are asked about like a side's own, shown to the verifier, warned of.
#[tokio::test]
async fn what_no_side_had_touched_does_not_go_unseen() {
    let world = World::new(&[("list.txt", LINES)]);
    let few = "left five\nright five\nsix\n";
    let ran = conflict(&world, |ask| match ask.ordinal {
        0 => write("list.txt", few),
        1 => Answer::call("bash", json!({"command": "true"})),
        2 => report("done", "kept both"),
        3 => {
            let last = ask.last();
            assert!(last.contains("list.txt: one  (both sides)"), "{last}");
            assert!(!last.contains("six"), "{last}");
            said(&["the list shall be short"])
        }
        _ => panic!("asked again: {}", ask.last()),
    })
    .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let found = &ran.summary.conflicts[0];
    let [dropped] = found.dropped.as_slice() else {
        panic!("{:?}", found.dropped);
    };
    assert_eq!(dropped.side, wharf::journal::Side::Both);
    assert_eq!(dropped.lines.first().map(String::as_str), Some("one"));
    let told = told_verifier(&ran);
    assert!(told.contains("list.txt: one  (both sides)"), "{told}");
    let warning = format!(
        "{} dropped what no side had touched: list.txt: one",
        found.id
    );
    let warnings = ran.summary.warnings.join("\n");
    assert!(warnings.contains(&warning), "{warnings}");
}

#[tokio::test]
async fn doing_nothing_about_a_removal_is_no_resolution() {
    let world = World::new(&[("list.txt", LINES), ("b.txt", "b\n")]);
    let ran = world
        .run(&plan(&["left", "right"]), |ask| {
            let id = id_of(ask);
            match (ask.role, ask.ordinal) {
                (Role::Verifier, _) => verifier(ask),
                (_, 0) if merges(ask) => report("done", "nothing to do"),
                (_, 1) if merges(ask) => {
                    let last = ask.last();
                    assert!(
                        last.contains("list.txt: its removal by side theirs"),
                        "{last}"
                    );
                    Answer::call("bash", json!({"command": "rm list.txt"}))
                }
                (_, 2) if merges(ask) => {
                    said(&["list.txt goes with `left five`, the plan no longer needs it"])
                }
                (_, 0) if id == "right" => Answer::call("bash", json!({"command": "rm list.txt"})),
                _ => coder(ask),
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.conflicts[0].dropped[0].lines, ["left five"]);
}

/// A run of one coder that writes in so many turns; the git processes it took.
async fn processes(turns: usize, ids: &[&str]) -> u64 {
    let world = World::new(&[("list.txt", LINES)]);
    let ran = world
        .run(&plan(ids), move |ask| match ask.role {
            Role::Verifier => verifier(ask),
            _ if ask.ordinal < turns => {
                write(&format!("{}-{}.txt", id_of(ask), ask.ordinal), "made\n")
            }
            _ if ask.ordinal == turns => Answer::call("list_files", json!({})),
            _ => Answer::calls(vec![
                ("bash", json!({"command": "true"})),
                (
                    "submit_report",
                    json!({"status": "done", "summary": "made it"}),
                ),
            ]),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    world.options.git.started()
}

#[tokio::test]
async fn a_turn_that_wrote_costs_one_git_process_and_one_that_read_none() {
    let (few, many) = (processes(2, &["a"]).await, processes(7, &["a"]).await);
    assert_eq!(many - few, 5);
}

/// A subtask costs its snapshot, its merge, and what looks at the change: a bound for all sizes.
#[tokio::test]
async fn a_subtask_more_costs_a_bounded_number_of_git_processes() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let (few, more, most) = (
        processes(1, &ids[..4]).await,
        processes(1, &ids[..8]).await,
        processes(1, &ids).await,
    );
    assert_eq!(
        more - few,
        most - more,
        "it grows with the subtasks and no faster"
    );
    assert!((most - more) / 4 <= 8, "{few} {more} {most}");
}
