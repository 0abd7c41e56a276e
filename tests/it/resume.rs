//! What a resumed run does, refuses and says.

use serde_json::json;
use wharf::journal::{Event, SubtaskStatus};
use wharf::run::{Error, Notice, Raised, Status};

use crate::again::{Again, Recorded, count, run_dir};
use crate::server::{Answer, Ask, Role};
use crate::world::{passes, put, report, write};

const FILES: &[(&str, &str)] = &[("a.txt", "a\n")];

fn plan(extra: &str, subtasks: &str) -> String {
    format!(
        "version: 1\nname: test\ntask: Do the work\nacceptance: {{criteria: [It is done]}}\n{extra}\n\
         subtasks: [{subtasks}]\n"
    )
}

const ONE: &str = "{id: a, role: coder, brief: BRIEF a.}";
const TWO: &str =
    "{id: a, role: coder, brief: BRIEF a.}, {id: b, role: coder, brief: BRIEF b., needs: [a]}";

/// Writes, looks, reports; as verifier looks once and passes.
fn diligent(ask: &Ask) -> Answer {
    let turns = ask
        .messages
        .iter()
        .filter(|m| m["role"] == "assistant")
        .count();
    match (ask.role, turns) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (Role::Other, _) => Answer::text("Done."),
        (_, 0) => write("made.txt", "made\n"),
        (_, 1) => Answer::call("bash", json!({"command": "echo more >> made.txt"})),
        _ => report("done", "made it"),
    }
}

/// The number of lines up to and with the first that is so.
fn after(whole: &Recorded, so: impl Fn(&Event) -> bool) -> usize {
    whole
        .lines
        .iter()
        .position(|line| so(&line.event))
        .expect("such a line")
        + 1
}

fn until(whole: &Recorded, lines: usize) -> &[u8] {
    &whole.journal[..whole.boundaries()[lines]]
}

fn turn(event: &Event, number: u32) -> bool {
    matches!(event, Event::TurnDone { turn, agent, .. } if *turn == number && agent.subtask.as_str() == "a")
}

fn starts(again: &Again) -> usize {
    count(
        &again.lines,
        |e| matches!(e, Event::AgentStarted { agent, .. } if agent.subtask.as_str() == "a"),
    )
}

#[tokio::test]
async fn an_agent_in_the_middle_goes_on_with_its_words_and_files_and_is_told_what_was_lost() {
    let whole = Recorded::of(FILES, &plan("", ONE), diligent).await;
    let cut = after(&whole, |e| turn(e, 2));
    let state = whole.killed(until(&whole, cut));
    let again = whole
        .resume(state, Raised::default(), diligent)
        .await
        .unwrap();
    again.ends(Status::Passed);
    assert_eq!(again.patch, whole.patch);
    assert_eq!(starts(&again), 1, "it did not begin again");
    let messages = again.requests[0]["messages"].as_array().unwrap().clone();
    let roles: Vec<_> = messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant", "tool", "assistant", "tool"]
    );
    let last = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(
        last.contains("fresh sandbox") && last.contains("Running processes"),
        "{last}"
    );
    assert!(
        again
            .notices
            .iter()
            .any(|n| matches!(n, Notice::Resumed { open: 1, .. }))
    );

    // Killed once more right after that: it is told once, where it was told.
    let lines = &again.lines;
    let more = lines.iter().rposition(|l| turn(&l.event, 3)).unwrap();
    let bytes = std::fs::read(run_dir(again.state.path()).join("journal.jsonl")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let told = |text: &str| text.matches("fresh sandbox").count();
    // The request as it was sent stands there too.
    let before = text.lines().take(more);
    let before = before.filter(|line| !line.contains("\"type\":\"request_made\""));
    assert_eq!(told(&before.collect::<String>()), 1);
}

/// The answer was paid for and journaled; its calls have no result.
/// The tokens that a notice tells of an agent are those of all processes that worked on it.
#[tokio::test]
async fn the_tokens_of_a_resumed_agent_count_from_its_beginning() {
    let whole = Recorded::of(FILES, &plan("", ONE), diligent).await;
    let cut = after(&whole, |e| turn(e, 2));
    let state = whole.killed(until(&whole, cut));
    let again = whole.resume(state, Raised::default(), diligent).await;
    let again = again.unwrap();
    let told = again.notices.iter().find_map(|notice| match notice {
        Notice::AgentEnded { agent, tokens, .. } if agent == "a" => Some(*tokens),
        _ => None,
    });
    let answers = again.lines.iter().filter_map(|line| match &line.event {
        Event::ModelAnswered { agent, usage, .. } if agent.subtask.as_str() == "a" => {
            Some(usage.input_tokens + usage.output_tokens)
        }
        _ => None,
    });
    let answers: Vec<u64> = answers.collect();
    assert_eq!(answers.len(), 3);
    assert_eq!(told, Some(answers.iter().sum()));
}

#[tokio::test]
async fn an_answer_that_was_paid_for_is_not_asked_for_again_and_its_calls_run_on_the_last_snapshot()
{
    let whole = Recorded::of(FILES, &plan("", ONE), diligent).await;
    // The second answer appends: run twice on one tree it would stand there twice.
    let cut = after(&whole, |e| {
        matches!(e, Event::ModelAnswered { call: 2, .. })
    });
    let state = whole.killed(until(&whole, cut));
    let again = whole
        .resume(state, Raised::default(), diligent)
        .await
        .unwrap();
    assert_eq!(again.patch, whole.patch);
    assert_eq!(again.requests.len(), whole.requests - 2);
    assert_eq!(again.summary.usage.calls, whole.summary.usage.calls);
}

#[tokio::test]
async fn what_was_in_flight_counts_as_spent() {
    let whole = Recorded::of(FILES, &plan("run: {tokens: 40000}", ONE), diligent).await;
    assert_eq!(
        whole.summary.status,
        Status::Passed,
        "{}",
        whole.summary.reason
    );
    let cut = after(&whole, |e| matches!(e, Event::ModelAsked { call: 1, .. }));
    let reserved = whole.lines.iter().find_map(|line| match &line.event {
        Event::ModelAsked {
            reserved_tokens, ..
        } => Some(*reserved_tokens),
        _ => None,
    });
    let again = whole
        .resume(
            whole.killed(until(&whole, cut)),
            Raised::default(),
            diligent,
        )
        .await
        .unwrap();
    let lost = again.notices.iter().find_map(|n| match n {
        Notice::Resumed { lost_tokens, .. } => Some(*lost_tokens),
        _ => None,
    });
    assert_eq!(lost, reserved);
    // A pot that holds one request and not two is empty after a crash in its first.
    let tight = Raised {
        tokens: reserved.map(|tokens| tokens + 100),
        ..Raised::default()
    };
    let again = whole
        .resume(whole.killed(until(&whole, cut)), tight, diligent)
        .await
        .unwrap();
    again.ends(Status::Limited);
    assert_eq!(again.requests.len(), 0);
}

#[tokio::test]
async fn a_limited_run_goes_on_only_when_its_limit_is_raised() {
    let plan = plan("run: {tokens: 20000}", TWO);
    let dear = |ask: &Ask| diligent(ask).usage(5_000, 100);
    let whole = Recorded::of(FILES, &plan, dear).await;
    assert_eq!(
        whole.summary.status,
        Status::Limited,
        "{}",
        whole.summary.reason
    );
    assert_eq!(
        whole.summary.next,
        "wharf resume run --budget-tokens 100000"
    );
    let same = whole
        .resume(whole.killed(&whole.journal), Raised::default(), dear)
        .await
        .unwrap();
    assert_eq!((same.summary.exit_code, same.requests.len()), (5, 0));
    let raised = Raised {
        tokens: Some(1_000_000),
        ..Raised::default()
    };
    let again = whole
        .resume(whole.killed(&whole.journal), raised, dear)
        .await
        .unwrap();
    again.ends(Status::Passed);
    assert_eq!(
        again.summary.usage.calls as usize,
        whole.requests + again.requests.len()
    );
    assert_eq!(starts(&again), 1, "the agent that was limited went on");
}

/// What a run says to type, stopped by a limit that its plan sets.
async fn told_to_raise(limit: &str) -> String {
    let whole = Recorded::of(FILES, &plan(limit, ONE), diligent).await;
    let summary = whole.summary;
    assert_eq!(summary.status, Status::Limited, "{}", summary.reason);
    summary.next
}

#[tokio::test]
async fn the_limit_that_stopped_a_run_is_the_one_to_raise() {
    for (limit, flag) in [
        ("run: {tokens: 10}", "--budget-tokens 100000"),
        ("run: {time: 0s}", "--timeout 1m"),
        ("run: {cost_usd: 0.001}", "--budget-usd 1"),
        ("run: {cost_usd: 3, tokens: 10}", "--budget-tokens 100000"),
        ("run: {cost_usd: 0.001, tokens: 9000000}", "--budget-usd 1"),
    ] {
        let told = told_to_raise(limit).await;
        assert_eq!(told, format!("wharf resume run {flag}"), "{limit}");
    }
}

/// Fails unless the server says otherwise.
fn first_fails(ask: &Ask) -> Answer {
    match ask.first.contains("BRIEF a.") {
        true => report("failed", "it cannot be done"),
        false => diligent(ask),
    }
}

#[tokio::test]
async fn failed_subtasks_are_worked_again_when_that_is_asked_for_and_others_are_not() {
    let three = format!("{TWO}, {{id: c, role: coder, brief: BRIEF c.}}");
    let whole = Recorded::of(FILES, &plan("", &three), first_fails).await;
    assert_eq!(whole.summary.status, Status::Failed);
    let end = async |raised| {
        let state = whole.killed(&whole.journal);
        whole.resume(state, raised, diligent).await.unwrap()
    };
    let same = end(Raised::default()).await;
    assert_eq!((same.summary.exit_code, same.requests.len()), (1, 0));
    let retry = Raised {
        retry_failed: true,
        ..Raised::default()
    };
    let again = end(retry).await;
    again.ends(Status::Passed);
    let asked = |id: &str| {
        let brief = format!("BRIEF {id}.");
        let asks = |r: &&serde_json::Value| {
            r["messages"][1]["content"]
                .as_str()
                .unwrap()
                .contains(&brief)
        };
        again.requests.iter().filter(asks).count()
    };
    assert!(asked("a") > 0 && asked("b") > 0);
    let c =
        |e: &Event| matches!(e, Event::AgentStarted { agent, .. } if agent.subtask.as_str() == "c");
    assert_eq!(count(&again.lines, c), 1, "c was done before");

    // Killed in the middle of that, it still knows what was to be worked again.
    let from = again
        .lines
        .iter()
        .rposition(|l| matches!(l.event, Event::Resumed { .. }))
        .unwrap();
    let bytes = std::fs::read(run_dir(again.state.path()).join("journal.jsonl")).unwrap();
    let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n');
    let cut = ends.map(|(at, _)| at + 1).nth(from).unwrap();
    let state = whole.killed(&bytes[..cut]);
    let third = whole
        .resume(state, Raised::default(), diligent)
        .await
        .unwrap();
    assert_eq!(
        third.summary.status,
        Status::Passed,
        "{}",
        third.summary.reason
    );
    assert_eq!(third.patch, again.patch);
}

#[tokio::test]
async fn a_cancelled_run_goes_on_and_its_subtasks_with_it() {
    let world = crate::world::World::new(FILES);
    let stop = world.stop.clone();
    let text = plan("", TWO);
    let stopping = move |ask: &Ask| {
        let turns = ask
            .messages
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        if ask.role == Role::Worker && turns == 1 {
            stop.exit_code
                .store(130, std::sync::atomic::Ordering::SeqCst);
            stop.cancel.cancel();
        }
        diligent(ask)
    };
    let ran = world.run(&text, stopping).await;
    assert_eq!(ran.summary.status, Status::Interrupted);
    assert_eq!(ran.summary.next, "wharf resume run");
    let journal = std::fs::read(world.state.join("runs/run/journal.jsonl")).unwrap();
    let requests = ran.server.requests().len();
    let whole = Recorded {
        plan: text.clone(),
        patch: None,
        summary: ran.summary,
        lines: ran.journal,
        requests,
        journal,
        world,
    };
    let again = whole
        .resume(whole.killed(&whole.journal), Raised::default(), diligent)
        .await
        .unwrap();
    again.ends(Status::Passed);
    for subtask in &again.summary.subtasks {
        assert_eq!(subtask.status, SubtaskStatus::Done, "{subtask:?}");
    }
    let plain = Recorded::of(FILES, &text, diligent).await;
    assert_eq!(again.patch, plain.patch);
    // The request that the signal broke off is asked once more, and no other.
    assert_eq!(requests + again.requests.len(), plain.requests + 1);
}

#[tokio::test]
async fn what_changed_since_the_run_began_is_said() {
    let whole = Recorded::of(FILES, &plan("", ONE), diligent).await;
    put(&whole.world.workspace.join("a.txt"), "changed meanwhile\n");
    let cut = after(&whole, |e| turn(e, 1));
    let again = whole
        .resume(
            whole.killed(until(&whole, cut)),
            Raised::default(),
            diligent,
        )
        .await
        .unwrap();
    again.ends(Status::Passed);
    let said = again.summary.warnings.join("\n");
    assert!(said.contains("changed since the run began"), "{said}");
    assert!(said.contains("openai/fake is asked at"), "{said}");
    assert_eq!(
        again.patch, whole.patch,
        "the result is made for the files it began with"
    );
}

/// Every file of a run's state, broken in every way: an error that says what, or a run that goes on;
/// never a panic and never a false end.
#[tokio::test]
async fn a_broken_state_file_is_an_error_or_makes_no_difference() {
    let whole = Recorded::of(FILES, &plan("", ONE), diligent).await;
    let cut = after(&whole, |e| turn(e, 1));
    for file in [
        "journal.jsonl",
        "plan.yaml",
        "lock",
        "result.json",
        "store.git",
        "store.git/HEAD",
        "store.git/config",
        "store.git/objects",
        "store.git/info/attributes",
        "plan.files.json",
        "report.md",
    ] {
        for how in ["empty", "garbage", "folder", "gone", "nul"] {
            let state = whole.killed(until(&whole, cut));
            let path = run_dir(state.path()).join(file);
            if path.is_dir() {
                std::fs::remove_dir_all(&path).unwrap();
            } else {
                drop(std::fs::remove_file(&path));
            }
            match how {
                "empty" => std::fs::write(&path, b"").unwrap(),
                "garbage" => std::fs::write(&path, b"\xff{garbage\nmore\n").unwrap(),
                "nul" => std::fs::write(&path, [0; 64]).unwrap(),
                "folder" => std::fs::create_dir(&path).unwrap(),
                _ => {}
            }
            let again = whole.resume(state, Raised::default(), diligent).await;
            let harmless = match file {
                "lock" => how != "folder",
                "result.json" | "report.md" => true,
                // The journal holds the plan too; one that was damaged is not passed over.
                "plan.yaml" | "plan.files.json" => how == "gone",
                // Wharf's own: written anew.
                "store.git/info/attributes" => how != "folder",
                // Without settings git takes the usual ones, which are those of the store.
                "store.git/config" => ["empty", "gone"].contains(&how),
                _ => false,
            };
            match again {
                Ok(again) => {
                    assert!(harmless, "{file} {how}: went on");
                    assert_eq!(again.patch, whole.patch, "{file} {how}");
                }
                Err(error) => {
                    assert!(!harmless, "{file} {how}: {error}");
                    assert!(!error.to_string().is_empty(), "{file} {how}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_damaged_line_stops_it_with_its_number_and_a_newer_journal_is_named_as_that() {
    let whole = Recorded::of(FILES, &plan("", ONE), diligent).await;
    let text = String::from_utf8(whole.journal.clone()).unwrap();
    let error = async |journal: String| {
        let state = whole.killed(journal.as_bytes());
        match whole.resume(state, Raised::default(), diligent).await {
            Err(Error::Journal(error)) => error.to_string(),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it went on from a damaged journal"),
        }
    };
    let edited = error(text.replacen("\"made.txt\"", "\"fake.txt\"", 1)).await;
    assert!(
        edited.contains(" line ") && edited.contains("changed"),
        "{edited}"
    );
    let nuls = text.replacen("{\"seq\":4,", &"\0".repeat(9), 1);
    let nuls = error(nuls).await;
    assert!(nuls.contains(" line 4"), "{nuls}");
    let newer = error(text.replacen("\"journal\":1", "\"journal\":9", 1)).await;
    assert!(
        newer.contains("version 9") && newer.contains("newer wharf"),
        "{newer}"
    );
}

#[tokio::test]
async fn an_output_that_is_gone_makes_its_agent_begin_again_and_is_said() {
    let large = |ask: &Ask| {
        let turns = ask
            .messages
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        match (ask.role, turns) {
            (Role::Worker, 0) => write("made.txt", &"made of many lines\n".repeat(1000)),
            (Role::Worker, 1) => Answer::call("read_file", json!({"path": "made.txt"})),
            (Role::Worker, 2) => Answer::call("bash", json!({"command": "true"})),
            _ => diligent(ask),
        }
    };
    let whole = Recorded::of(FILES, &plan("", ONE), large).await;
    let cut = after(&whole, |e| turn(e, 3));
    let kept = whole.killed(until(&whole, cut));
    let again = whole.resume(kept, Raised::default(), large).await.unwrap();
    let sent = again.requests[0]["messages"].to_string();
    assert!(
        sent.matches("made of many lines").count() > 1000,
        "the whole output is back"
    );
    assert_eq!((starts(&again), &again.patch), (1, &whole.patch));

    let state = whole.killed(until(&whole, cut));
    std::fs::remove_dir_all(run_dir(state.path()).join("calls")).unwrap();
    let again = whole.resume(state, Raised::default(), large).await.unwrap();
    again.ends(Status::Passed);
    assert_eq!((starts(&again), &again.patch), (2, &whole.patch));
    let said = again.summary.warnings.join("\n");
    assert!(said.contains("begins again"), "{said}");
}

#[tokio::test]
async fn a_secret_that_a_command_prints_is_in_no_file_of_the_run() {
    let secret = "tvly-canary-\"quoted\"";
    let world = crate::world::World::new(&[("config.txt", &format!("key {secret}\n"))]);
    let show = |ask: &Ask| {
        let turns = ask
            .messages
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        match (ask.role, turns) {
            (Role::Worker, 0) => Answer::call("bash", json!({"command": "cat config.txt"})),
            _ => diligent(ask),
        }
    };
    let server = crate::server::FakeModel::start(show).await;
    let mut order = world.order(&plan("", ONE), crate::world::connect(&server));
    order.keep.secrets = vec![secret.to_owned()];
    wharf::run::start(order).await.unwrap();
    let asked = server
        .requests()
        .iter()
        .any(|r| r.to_string().contains("tvly-canary"));
    assert!(asked, "the command printed it");
    let journal = std::fs::read_to_string(world.state.join("runs/run/journal.jsonl")).unwrap();
    assert!(journal.contains("[secret]") && !journal.contains("tvly-canary"));
    wharf::journal::read(&world.state.join("runs/run/journal.jsonl")).unwrap();
}

/// Handed back as often as that is done, the verdict is taken as it is; a new process counts on.
#[tokio::test]
async fn what_was_handed_back_before_is_counted() {
    let stubborn = |ask: &Ask| {
        let turns = ask
            .messages
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        match (ask.role, turns) {
            (Role::Verifier, 0) => Answer::call("list_files", json!({})),
            (Role::Verifier, _) => passes(&["It is done"], "I looked at it"),
            _ => diligent(ask),
        }
    };
    let whole = Recorded::of(FILES, &plan("", ONE), stubborn).await;
    assert_eq!(whole.summary.status, Status::Unverified);
    let cut = after(
        &whole,
        |e| matches!(e, Event::TurnDone { turn: 3, agent, .. } if agent.role.as_str() == "verifier"),
    );
    let state = whole.killed(until(&whole, cut));
    let again = whole
        .resume(state, Raised::default(), stubborn)
        .await
        .unwrap();
    assert_eq!(again.summary.status, Status::Unverified);
    assert_eq!(again.requests.len(), 1, "the third verdict is the last");
}

/// What a command did over the network before the crash nobody knows; on the tree alone it is made again.
#[tokio::test]
async fn a_call_that_could_reach_the_network_is_unknown_and_any_other_is_named_and_made_again() {
    for (network, again_made) in [("none", true), ("full", false), ("[example.com]", false)] {
        let roles = match network.strip_prefix('[') {
            Some(_) => "{allow: [example.com]}",
            None => network,
        };
        let extra = format!("roles: {{coder: {{sandbox: {{network: {roles}}}}}}}");
        let whole = Recorded::of(FILES, &plan(&extra, ONE), diligent).await;
        let cut = after(&whole, |e| {
            matches!(e, Event::ModelAnswered { call: 2, .. })
        });
        let state = whole.killed(until(&whole, cut));
        let again = whole
            .resume(state, Raised::default(), diligent)
            .await
            .unwrap();
        again.ends(Status::Passed);
        let patch = String::from_utf8(again.patch.clone().unwrap()).unwrap();
        assert_eq!(patch.contains("+more"), again_made, "{network}: {patch}");
        let sent = again.requests[0]["messages"].to_string();
        assert!(
            sent.contains("bash `echo more >> made.txt`"),
            "{network}: {sent}"
        );
        assert_eq!(
            sent.contains("it is not known whether this ran"),
            !again_made,
            "{network}: {sent}"
        );
        let said = again.summary.warnings.join("\n");
        assert_eq!(
            said.contains("it was not made again"),
            !again_made,
            "{network}: {said}"
        );
    }
}

/// A power loss may leave objects out of the store that the journal's lines name.
#[tokio::test]
async fn a_store_that_lost_objects_is_an_error_or_makes_no_difference() {
    let whole = Recorded::of(FILES, &plan("", ONE), diligent).await;
    let cut = after(&whole, |e| turn(e, 2));
    let objects = run_dir(&whole.world.state).join("store.git/objects");
    let mut files = Vec::new();
    for folder in std::fs::read_dir(&objects).unwrap() {
        let folder = folder.unwrap().path();
        for file in std::fs::read_dir(folder).unwrap() {
            files.push(
                file.unwrap()
                    .path()
                    .strip_prefix(&objects)
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    files.sort();
    assert!(files.len() > 4, "{files:?}");
    let (mut refused, step) = (0, files.len().div_ceil(10));
    for file in files.iter().step_by(step) {
        for how in ["gone", "zero"] {
            let state = whole.killed(until(&whole, cut));
            let path = run_dir(state.path()).join("store.git/objects").join(file);
            let length = path.metadata().unwrap().len() as usize;
            std::fs::remove_file(&path).unwrap();
            if how == "zero" {
                std::fs::write(&path, vec![0; length]).unwrap();
            }
            let at = format!("{} {how}", file.display());
            match whole.resume(state, Raised::default(), diligent).await {
                Ok(again) if again.summary.status == Status::Passed => {
                    assert_eq!(again.patch, whole.patch, "{at}");
                }
                Ok(again) => {
                    refused += 1;
                    assert_eq!(again.summary.exit_code, 3, "{at}: {}", again.summary.reason);
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty(), "{at}");
                }
            }
        }
    }
    assert!(refused > 0, "no object of {} was missed", files.len());
}

/// A server that gives every call the same id: each has one of its own in the conversation, also where
/// another process goes on with it.
#[tokio::test]
async fn ids_that_a_server_repeats_stay_apart_over_a_resume() {
    let repeated = |ask: &Ask| {
        let calls = match ask.results().len() {
            _ if ask.role != Role::Worker => return diligent(ask),
            done @ (0 | 2) => json!([
                {"index": 0, "id": "bash:0", "function": {"name": "bash", "arguments": format!("{{\"command\":\"echo first-{done}\"}}")}},
                {"index": 1, "id": "bash:0", "function": {"name": "bash", "arguments": format!("{{\"command\":\"echo second-{done}\"}}")}},
            ]),
            _ => json!([{"index": 0, "id": "bash:0", "function": {"name": "submit_report",
                "arguments": "{\"status\":\"done\",\"summary\":\"made it\"}"}}]),
        };
        let chunk =
            json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]});
        Answer::raw(&[&format!("data: {chunk}\n\n"), "data: [DONE]\n\n"])
    };
    let whole = Recorded::of(FILES, &plan("", ONE), repeated).await;
    assert_eq!(
        whole.summary.status,
        Status::Passed,
        "{}",
        whole.summary.reason
    );
    for number in [1, 2] {
        let cut = after(&whole, |event| turn(event, number));
        let again = whole
            .resume(
                whole.killed(until(&whole, cut)),
                Raised::default(),
                repeated,
            )
            .await
            .unwrap();
        again.ends(Status::Passed);
        let last = again.requests.iter().find(|body| {
            body["messages"].as_array().unwrap().len() >= 8
                && body["tools"].to_string().contains("submit_report")
        });
        let told = last.expect("the last request")["messages"].to_string();
        for word in ["first-0", "second-0", "first-2", "second-2"] {
            assert!(
                told.contains(&format!("stdout:\\n{word}")),
                "{word} in {told}"
            );
        }
    }
}
