//! What an agent is told, and what is known of one that hands in nothing: whole runs.

use serde_json::json;
use wharf::journal::Event;
use wharf::run::{Raised, Status};

use crate::again::{Recorded, count};
use crate::server::{Answer, Ask, Role};
use crate::world::{World, passes, report, write};

fn plan(more: &str) -> String {
    format!(
        "version: 1\nname: reports\ntask: Do the work\nacceptance: {{criteria: [It is done]}}\n{more}\n\
         subtasks: [{{id: a, role: coder, brief: BRIEF a.}}, {{id: b, role: coder, brief: BRIEF b., needs: [a]}}]\n"
    )
}

fn turns(ask: &Ask) -> usize {
    ask.messages
        .iter()
        .filter(|m| m["role"] == "assistant")
        .count()
}

/// Changes a file, sees a command fail, and never says what it did.
fn silent(ask: &Ask) -> Answer {
    match (ask.role, turns(ask)) {
        (Role::Worker, 0) => write("made.txt", "made\n"),
        (Role::Worker, 1) => Answer::call("bash", json!({"command": "test -f missing.txt"})),
        (Role::Worker, _) => report("done", "See above."),
        (Role::Verifier, _) => panic!("nothing is to be judged"),
        _ => Answer::text("All done, made.txt works."),
    }
}

#[tokio::test]
async fn a_subtask_without_a_report_fails_with_what_is_known_of_it() {
    let whole = Recorded::of(&[("a.txt", "a\n")], &plan(""), silent).await;
    let summary = &whole.summary;
    assert_eq!(
        (summary.status, summary.exit_code),
        (Status::Failed, 1),
        "{}",
        summary.reason
    );
    let failed = &summary.subtasks[0];
    let reason = failed.reason.as_deref().unwrap_or_default();
    for part in [
        "no usable report: it says nothing",
        "it changed made.txt",
        "`test -f missing.txt`: exit code 1",
    ] {
        assert!(reason.contains(part), "{part} in {reason}");
    }
    assert_eq!(failed.turns, 4, "asked once more, and no more");
    let blocked = summary.subtasks[1].reason.as_deref().unwrap_or_default();
    assert!(blocked.contains("needs a"), "{blocked}");

    // Killed right after the agent's end, the facts are the same.
    let end = |event: &Event| matches!(event, Event::AgentEnded { agent, .. } if agent.subtask.as_str() == "a");
    let at = whole
        .lines
        .iter()
        .position(|line| end(&line.event))
        .unwrap()
        + 1;
    let state = whole.killed(&whole.journal[..whole.boundaries()[at]]);
    let again = whole
        .resume(state, Raised::default(), silent)
        .await
        .unwrap();
    assert_eq!(again.summary.subtasks[0].reason, failed.reason);
    assert_eq!(count(&again.lines, end), 1);
}

#[tokio::test]
async fn an_agent_at_its_limit_leaves_what_is_known_too() {
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(&plan("agent: {turns: 3}"), |ask| match ask.role {
            Role::Worker => {
                Answer::call("bash", json!({"command": format!("echo {}", turns(ask))}))
            }
            _ => Answer::text("."),
        })
        .await;
    let reason = ran.summary.subtasks[0].reason.clone().unwrap_or_default();
    assert!(
        reason.contains("3 turns; it changed no file; its last commands: `echo 0`: exit code 0"),
        "{reason}"
    );
    let workers = ran.server.requests();
    let of_worker = workers
        .iter()
        .filter(|body| body["tools"].to_string().contains("submit_report"));
    assert_eq!(of_worker.count(), 3);
}

#[tokio::test]
async fn everybody_is_told_the_nearest_instructions() {
    let world = World::new(&[
        ("AGENTS.md", "Use tabs everywhere.\n"),
        ("app/AGENTS.md", "Use spaces in app.\n"),
        ("app/main.py", "x = 1\n"),
    ]);
    let ran = world
        .run(&plan(""), |ask| {
            for part in [
                "Use tabs everywhere.",
                "app/AGENTS.md, for everything beside",
                "Use spaces in app.",
            ] {
                assert!(
                    ask.role == Role::Other || ask.first.contains(part),
                    "{part} in {}",
                    ask.first
                );
            }
            match (ask.role, turns(ask)) {
                (Role::Verifier, 0) => Answer::call("list_files", json!({})),
                (Role::Verifier, _) => passes(&["It is done"], "#1"),
                (Role::Worker, _) => report("done", "made it"),
                _ => Answer::text("."),
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
}

#[tokio::test]
async fn more_tools_than_a_model_can_choose_from_are_warned_of() {
    let tools: String = (0..20)
        .map(|n| format!("t{n}: {{description: d, command: 'true'}}, "))
        .collect();
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world
        .run(&plan(&format!("tools: {{{tools}}}")), |ask| {
            match ask.role {
                Role::Worker if turns(ask) == 0 => Answer::call("t3", json!({})),
                Role::Worker => report("done", "made it"),
                Role::Verifier if turns(ask) == 0 => Answer::call("list_files", json!({})),
                Role::Verifier => passes(&["It is done"], "#1"),
                _ => Answer::text("."),
            }
        })
        .await;
    let warned = ran
        .summary
        .warnings
        .iter()
        .filter(|text| text.contains("role coder has"));
    assert_eq!(warned.count(), 1, "{:?}", ran.summary.warnings);
}

/// Nineteen subtasks, and one that needs them all.
fn wide() -> Answer {
    let ids: Vec<String> = (0..19).map(|n| format!("s{n}")).collect();
    let subtask = |id: &str, needs: &[String]| json!({"id": id, "role": "coder", "brief": format!("BRIEF {id}."), "needs": needs});
    let mut subtasks: Vec<_> = ids.iter().map(|id| subtask(id, &[])).collect();
    subtasks.push(subtask("last", &ids));
    Answer::call(
        "submit_plan",
        json!({"summary": "wide", "criteria": ["It is done"], "subtasks": subtasks}),
    )
}

/// What a subtask hands in: almost all that a report may have, in its summary or in its findings.
fn long(id: &str) -> (String, Vec<String>) {
    let words = |count: usize| format!("{id} sagt: {}", "übrig ".repeat(count));
    match id.ends_with('1') {
        true => ("made it".to_owned(), vec![words(1_900), words(1_900)]),
        false => (words(3_900), Vec::new()),
    }
}

/// Two rounds: the verifier wants a file that only the second one makes.
fn wide_script(ask: &Ask) -> Answer {
    let second = ask.first.contains("BRIEF again.");
    let id = ask.first.split("BRIEF ").nth(1).unwrap_or_default();
    let id = id.split('.').next().unwrap_or_default();
    match (ask.role, turns(ask)) {
        (Role::Coordinator, _) if ask.number == 0 => wide(),
        (Role::Coordinator, _) => Answer::call(
            "submit_plan",
            json!({"summary": "again", "subtasks": [
                        {"id": "again", "role": "coder", "brief": "BRIEF again.", "needs": []}]}),
        ),
        // Far beyond what a report may have: asked for again.
        (Role::Worker, 0) if id == "s0" => report("done", &"x".repeat(200_000)),
        (Role::Worker, _) if second => write_once(ask),
        (Role::Worker, _) => {
            let (summary, findings) = long(id);
            Answer::call(
                "submit_report",
                json!({"status": "done", "summary": summary, "findings": findings}),
            )
        }
        (Role::Verifier, 0) => Answer::call("list_files", json!({"pattern": "made.txt"})),
        (Role::Verifier, _) if ask.first.contains("made.txt") => passes(&["It is done"], "#1"),
        (Role::Verifier, _) => crate::world::verdict("fail", vec![("It is done", "fail", "#1")]),
        _ => Answer::text("All of it."),
    }
}

/// Reports as long as they may be: whoever reads them all gets a request within bounds, and none is lost.
#[tokio::test]
async fn many_long_reports_flood_nobody_and_are_kept_whole() {
    const FREE: &str = "version: 1\nname: wide\ntask: Do the work\nrun: {parallel: 4}\n";
    let world = World::new(&[("a.txt", "a\n")]);
    let ran = world.run(FREE, wide_script).await;
    let summary = &ran.summary;
    assert_eq!(summary.rounds, 2, "{}", summary.reason);
    assert_eq!(summary.subtasks.len(), 21);
    let requests = ran.server.requests();
    for body in &requests {
        let own = body["messages"].to_string().contains(&"x".repeat(1_000));
        let size = body["messages"].to_string().len();
        // The one that wrote 200,000 characters still has them in its own conversation.
        assert!(own || size < 150_000, "{size} bytes: {:.300}", body);
    }
    let of = |wanted: &str| {
        let tools = |body: &&serde_json::Value| body["tools"].to_string().contains(wanted);
        requests.iter().filter(tools).count()
    };
    assert_eq!(
        of("submit_plan"),
        2,
        "the second plan was made from the facts"
    );
    for subtask in &summary.subtasks {
        let kept = subtask.summary.as_deref().unwrap_or_default();
        let (whole, findings) = long(&subtask.id);
        let all = subtask.id == "again" || kept.contains(whole.trim());
        assert!(
            all && findings.iter().all(|f| kept.contains(f)),
            "{}",
            subtask.id
        );
    }
}

fn write_once(ask: &Ask) -> Answer {
    match turns(ask) {
        0 => write("made.txt", "made\n"),
        1 => Answer::call("bash", json!({"command": "test -f made.txt"})),
        _ => report("done", "made it"),
    }
}
