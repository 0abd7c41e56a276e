//! A recorded run again: from the answers alone with live tools, and from the journal alone.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use wharf::journal::{self, Event};
use wharf::plan;
use wharf::run::{
    self, After, Comparison, Likeness, Replayable, Replayed, Replaying, Status, Stopper, Tools,
};
use wharf::sandbox::memory::Memory;

use crate::again::{Recorded, run_dir};
use crate::crash;
use crate::server::{Answer, Ask, Role};
use crate::world::{Seen, World, passes, report, write};

/// An engine of which a replay with recorded tools must ask nothing.
fn live() -> Tools {
    Tools::Live(Arc::new(Memory::default()))
}

async fn replay_in(state: &Path, tools: Tools, after: After) -> Replayed {
    let of = Replayable::open(&run_dir(state)).unwrap();
    let load = |path: &str| Err(format!("no file {path}"));
    let mut plan = plan::parse(&of.plan_text, "plan.yaml", &load).unwrap();
    of.kept().lay(&mut plan);
    let mut options = World::new(&[]).options.clone();
    options.state = state.to_owned();
    let how = Replaying {
        plan,
        options,
        tools,
        watch: Arc::new(Seen::default()),
        stop: Stopper::default(),
        secrets: Vec::new(),
        after,
    };
    run::replay(of, how).await.unwrap()
}

async fn replay(state: &Path, tools: Tools) -> Comparison {
    replay_in(state, tools, After::Remove).await.comparison
}

fn same(found: &Comparison) {
    assert_eq!(found.changed, [], "{found:?}");
    assert_eq!(found.outcome, Likeness::Same, "{found:?}");
    assert_eq!((found.results.different, found.results.numbers), (0, 0));
    assert!(found.results.same > 0);
    assert_eq!(found.unanswered, [""; 0]);
    assert_eq!(found.requests.different, 0, "{:?}", found.requests);
}

/// Everything below a directory with its bytes.
pub fn photograph(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(photograph(&path)),
            false => found.push((path.clone(), std::fs::read(path).unwrap())),
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn two_rounds_with_a_conflict_come_to_the_same_again_with_either_tools() {
    let whole = crash::recorded().await;
    let state = &whole.world.state;
    let before = photograph(&run_dir(state));
    let workspace = photograph(&whole.world.workspace);
    for tools in [live(), Tools::Recorded] {
        same(&replay(state, tools).await);
    }
    // The recorded run is only read, nothing is delivered, and no other run stays.
    assert_eq!(photograph(&run_dir(state)), before);
    assert_eq!(photograph(&whole.world.workspace), workspace);
    assert_eq!(std::fs::read_dir(state.join("runs")).unwrap().count(), 1);
}

const PLAN: &str = "version: 1
name: one
task: Do the work
run: {rounds: 1}
acceptance: {commands: [\"test -f made.txt\"], criteria: [\"It is done\"]}
subtasks:
  - {id: fix, role: coder, brief: \"BRIEF fix.\", needs: []}
";

/// A coder that reads, writes and looks at what it wrote, and a verifier that passes it.
fn script(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => Answer::call("bash", json!({"command": "cat tool"})),
        (_, 1) => write("made.txt", "made\n"),
        (_, 2) => Answer::call("bash", json!({"command": "cat made.txt"})),
        (_, _) => report("done", "made it"),
    }
}

async fn one() -> Recorded {
    let whole = Recorded::of(&[("tool", "version 1.20\n")], PLAN, script).await;
    assert_eq!(whole.summary.status, Status::Passed);
    whole
}

/// Rewrites a journal's lines with their chain, as a run with these facts would have written it.
pub fn rewrite(state: &Path, change: impl Fn(&mut Value)) {
    let path = run_dir(state).join("journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut events = Vec::new();
    for line in text.lines() {
        let mut event: Value = serde_json::from_str(line).unwrap();
        change(&mut event);
        for key in ["seq", "at", "prev", "sum"] {
            event.as_object_mut().unwrap().remove(key);
        }
        events.push(event);
    }
    let home = tempfile::tempdir().unwrap();
    let dir = crate::cli::write_run(home.path(), "run", &events);
    std::fs::copy(dir.join("journal.jsonl"), path).unwrap();
}

#[tokio::test]
async fn the_first_result_that_differs_is_named_and_digits_are_told_apart() {
    let whole = one().await;
    // What was recorded is another version of the tool, then other words of it.
    for (said, numbers) in [("version 1.19", true), ("release 1.20", false)] {
        rewrite(&whole.world.state, |event| {
            let text = event.pointer("/results/0/text").and_then(Value::as_str);
            let Some(text) = text.filter(|text| text.contains(" 1.")) else {
                return;
            };
            let at = text.find(" 1.").unwrap();
            let start = text[..at].rfind(|c: char| !c.is_alphabetic()).unwrap() + 1;
            let end = at + " 1.20".len();
            event["results"][0]["text"] =
                json!(format!("{}{said}{}", &text[..start], &text[end..]));
        });
        let found = replay(&whole.world.state, live()).await;
        assert_eq!(found.outcome, Likeness::Same, "{found:?}");
        let results = &found.results;
        let (first, other) = match numbers {
            true => (&results.first_in_numbers, &results.first),
            false => (&results.first, &results.first_in_numbers),
        };
        assert_eq!(*other, None, "{results:?}");
        let first = first.as_ref().unwrap();
        assert_eq!((first.agent.as_str(), first.call), ("fix", 1));
        assert_eq!(first.tool, "bash");
        assert!(first.recorded.contains(said), "{first:?}");
        assert!(first.replayed.contains("version 1.20"), "{first:?}");
    }
}

#[tokio::test]
async fn other_files_and_another_verdict_are_a_difference() {
    let whole = one().await;
    rewrite(&whole.world.state, |event| {
        let reply = event["reply"].to_string();
        if reply.contains("made.txt") && reply.contains("write_file") {
            let changed = reply.replace("made.txt", "mode.txt");
            event["reply"] = serde_json::from_str(&changed).unwrap();
        }
    });
    let found = replay(&whole.world.state, live()).await;
    assert_eq!(found.outcome, Likeness::Different);
    let likenesses = (found.trees, found.statuses, found.verdict);
    assert_eq!(
        likenesses,
        (
            Likeness::Different,
            Likeness::Different,
            Likeness::Different
        ),
        "{found:?}"
    );
    let first = found.results.first.unwrap();
    assert_eq!((first.agent.as_str(), first.call), ("fix", 2));
    // The journal's own results are of another call then, and none is made up for it.
    let found = replay(&whole.world.state, Tools::Recorded).await;
    assert_eq!(found.outcome, Likeness::Same, "{:?}", found.changed);
    let first = found.results.first.unwrap();
    assert!(first.replayed.contains("another call here"), "{first:?}");
}

#[tokio::test]
async fn large_outputs_and_what_the_loop_said_beside_them_come_again() {
    let big = "much to read\n".repeat(1000);
    let plan = PLAN.replace("run:", "agent: {turns: 8}\nrun:");
    let whole = Recorded::of(&[("big", &big), ("made.txt", "")], &plan, |ask| {
        match (ask.role, ask.ordinal) {
            (Role::Verifier, _) => script(ask),
            (_, 0..=3) => Answer::call("read_file", json!({"path": "big"})),
            (_, 4) => Answer::text("thinking"),
            (_, 5) => write("big", "small\n"),
            (_, 6) => Answer::call("bash", json!({"command": "false"})),
            (_, _) => report("done", "read it"),
        }
    })
    .await;
    assert_eq!(whole.summary.status, Status::Passed);
    let mut text = String::from_utf8(whole.journal.clone()).unwrap();
    // A large output is kept beside the journal with what was said at its end.
    for (_, beside) in photograph(&run_dir(&whole.world.state).join("calls")) {
        text.push_str(&String::from_utf8_lossy(&beside));
    }
    for part in ["text_file", "gave the same result", "turns are left"] {
        assert!(text.contains(part), "{part}");
    }
    for tools in [live(), Tools::Recorded] {
        same(&replay(&whole.world.state, tools).await);
    }
}

#[tokio::test]
async fn an_agent_that_a_limit_stopped_is_stopped_there_again() {
    let plan = PLAN.replace("run:", "agent: {turns: 2}\nrun:");
    let whole = Recorded::of(&[("tool", "t\n")], &plan, script).await;
    assert_eq!(whole.summary.status, Status::Failed);
    for tools in [live(), Tools::Recorded] {
        same(&replay(&whole.world.state, tools).await);
    }
    // One that ran out of time would go on here; what was recorded of its end counts.
    rewrite(&whole.world.state, |event| {
        if event["type"] == "agent_ended" {
            event["end"]["stop"]["limit"] = json!("60 s");
        }
        if event["type"] == "run_started" {
            let plan = event["plan"].as_str().unwrap();
            event["plan"] = json!(plan.replace("turns: 2", "turns: 9"));
        }
    });
    // The plan is taken from the journal where its own file is gone.
    std::fs::remove_file(run_dir(&whole.world.state).join("plan.yaml")).unwrap();
    let found = replay(&whole.world.state, live()).await;
    assert_eq!(found.outcome, Likeness::Same, "{found:?}");
}

#[tokio::test]
async fn a_run_that_was_cut_off_comes_to_the_same_only_as_far_as_it_went() {
    let whole = crash::recorded().await;
    let boundaries = whole.boundaries();
    let last = boundaries.len() - 1;
    for cut in [last - 1, last / 2, last / 3, 12] {
        let state = whole.killed(&whole.journal[..boundaries[cut]]);
        for tools in [live(), Tools::Recorded] {
            let of = Replayable::open(&run_dir(state.path()));
            drop(of);
            let found = replay(state.path(), tools).await;
            assert_eq!(found.outcome, Likeness::Unknown, "{cut}: {found:?}");
            assert_eq!(found.results.different, 0, "{cut}: {found:?}");
            assert!(found.untold.is_some());
        }
    }
}

#[tokio::test]
async fn a_kept_replay_is_a_run_of_its_own_that_does_not_go_on() {
    let whole = one().await;
    let state = &whole.world.state;
    let replayed = replay_in(state, live(), After::Keep).await;
    let id = replayed.run.unwrap();
    let dir = state.join("runs").join(id.as_str());
    let lines = journal::read(&dir.join("journal.jsonl")).unwrap().lines;
    let Event::RunStarted(started) = &lines[0].event else {
        panic!("{lines:?}")
    };
    assert_eq!(started.replay_of.as_ref().unwrap().as_str(), "run");
    assert!(matches!(
        Replayable::open(&dir),
        Err(run::Error::Start { code: 2, .. })
    ));
    // Cut off, it is not resumed either.
    let text = std::fs::read(dir.join("journal.jsonl")).unwrap();
    std::fs::write(dir.join("journal.jsonl"), &text[..text.len() / 2]).unwrap();
    assert!(matches!(
        run::reopen(&dir, run::Raised::default()),
        Err(run::Error::Start { code: 2, .. })
    ));
    // `last` means the run that somebody started.
    let home = state.parent().unwrap();
    let (code, stdout, stderr) = crate::cli::run(home, &["show", "last", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(crate::cli::object(&stdout)["run"], "run");
}

#[tokio::test]
async fn the_verb_says_in_its_last_lines_and_its_exit_code_what_it_came_to() {
    let whole = one().await;
    let home = whole.world.state.parent().unwrap();
    let args = ["replay", "last", "--tools", "recorded"];
    let (code, stdout, stderr) = crate::cli::run(home, &args);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let last: Vec<&str> = stdout.lines().rev().take(2).collect();
    assert_eq!(last[0], "it came to the same");
    assert_eq!(
        last[1],
        "trees: the same; statuses: the same; verdict: the same"
    );
    let (code, stdout, _) =
        crate::cli::run(home, &["replay", "last", "--tools", "recorded", "--json"]);
    let object = crate::cli::object(&stdout);
    assert_eq!(code, 0);
    assert_eq!(
        (&object["outcome"], &object["tools"]),
        (&json!("same"), &json!("recorded"))
    );

    rewrite(&whole.world.state, |event| {
        if event["type"] == "subtask_ended" {
            event["status"] = json!("failed");
        }
    });
    let (code, stdout, _) = crate::cli::run(home, &args);
    assert_eq!(code, 1);
    assert!(
        stdout.contains("subtask fix: failed then, done now"),
        "{stdout}"
    );
    assert!(stdout.ends_with("it came to something else\n"), "{stdout}");

    let path = run_dir(&whole.world.state).join("journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let cut = text.trim_end().rfind('\n').unwrap();
    std::fs::write(&path, &text[..=cut]).unwrap();
    rewrite(&whole.world.state, |event| {
        if event["type"] == "subtask_ended" {
            event["status"] = json!("done");
        }
    });
    let (code, stdout, _) = crate::cli::run(home, &args);
    assert_eq!(code, 4, "{stdout}");
    assert!(stdout.contains("could not be told"), "{stdout}");
}
