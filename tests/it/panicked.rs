//! A fault of our own, a panic in the middle of a run: the run ends as an error that says whose it is, nothing
//! hangs, nothing stays behind, and it can be gone on with.

use std::sync::Arc;

use serde_json::json;
use wharf::run::{self, Found};
use wharf::sandbox::Spec;

use crate::around::{Around, Look};
use crate::container::{engine, machine, soon};
use crate::counted::Counted;
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::world::{Ran, World, connect, passes, report};

/// Sandboxes that panic, in the task that asks, when files of this name are to be listed.
struct Faulty;

const WORD: &str = "PANIC";

impl Look for Faulty {
    type Place = ();

    fn started(&self, _spec: &Spec) {}

    fn listing(_place: &(), pattern: Option<&str>) {
        assert!(pattern != Some(WORD), "the fault of this test");
    }
}

const TWO: &str = "version: 1\ntask: Do it\nacceptance: {criteria: [It is done]}\n\
    subtasks: [{id: a, role: coder, brief: BRIEF a.}, {id: b, role: coder, brief: BRIEF b.}]\n";
const OPEN: &str = "version: 1\ntask: Do it\nacceptance: {criteria: [It is done]}\n";

fn bash(line: &str) -> Answer {
    Answer::call("bash", json!({"command": line}))
}

/// Whoever has `role` asks for the list that panics; what a worker did before is kept.
fn script(ask: &Ask, role: Role) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Worker, 0) if role == Role::Worker => bash("echo kept > a.txt"),
        (at, 0) if at == role => Answer::call("list_files", json!({})),
        (at, 1) if at == role => Answer::call("list_files", json!({"pattern": WORD})),
        (Role::Coordinator, _) => Answer::call(
            "submit_plan",
            json!({"summary": "one", "subtasks": [{"id": "a", "role": "coder", "brief": "BRIEF a.", "needs": []}]}),
        ),
        (Role::Worker, _) => report("done", "made it"),
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (Role::Other, _) => Answer::text("It was made."),
    }
}

fn is_told_as_ours(ran: &Ran) {
    let summary = &ran.summary;
    assert_eq!(summary.exit_code, 3, "{}", summary.reason);
    assert!(
        summary.reason.contains("fault of Wharf"),
        "{}",
        summary.reason
    );
}

/// The panic meets a coordinator, a worker, a verifier: none of these is taken for a plan, a report or a verdict.
#[tokio::test]
async fn whoever_meets_it_has_decided_nothing_and_no_sandbox_stays_open() {
    for (role, plan) in [
        (Role::Coordinator, OPEN),
        (Role::Worker, TWO),
        (Role::Verifier, TWO),
    ] {
        let mut world = World::new(&[("keep.txt", "keep\n")]);
        let counted = Counted::default();
        world.engine = Arc::new(Around {
            inner: counted.clone(),
            look: Faulty,
        });
        let ran = world.run(plan, move |ask| script(ask, role)).await;
        is_told_as_ours(&ran);
        assert_eq!(counted.open(), 0, "{role:?}");
    }
}

/// Over a real engine: the container of whoever panicked goes with its connection, the other agent ends its work,
/// and the run is resumed to its end.
#[tokio::test]
async fn its_containers_go_and_the_run_goes_on_afterwards() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let mut world = World::new(&[("keep.txt", "keep\n")]);
    world.engine = Arc::new(Around {
        inner: docker.clone(),
        look: Faulty,
    });
    world.options.machine = machine();
    let name = format!("panicked-{}", std::process::id());
    world.options.run_id = Some(wharf::id::RunId::new(&name));
    let server = FakeModel::start(|ask| match (ask.first.contains("BRIEF b."), ask.ordinal) {
        (true, 0) => bash("sleep 3; echo of b > b.txt"),
        (true, _) => report("done", "made b.txt"),
        _ => script(ask, Role::Worker),
    })
    .await;
    let summary = wharf::run::start(world.order(TWO, connect(&server)))
        .await
        .unwrap();
    assert_eq!(summary.exit_code, 3, "{}", summary.reason);
    soon(&look, &name, (0, 0)).await;

    // Nobody answers again for what was done: the second worker had ended.
    let second = FakeModel::start(|ask| {
        assert!(
            !ask.first.contains("BRIEF b.") || ask.role != Role::Worker,
            "b is asked again"
        );
        script(ask, Role::Other)
    })
    .await;
    world.engine = Arc::new(docker);
    let order = world.order(TWO, connect(&second));
    let summary = match run::reopen(summary.run_dir.as_ref(), run::Raised::default()).unwrap() {
        Found::Open(reopened) => run::resume(*reopened, order).await.unwrap(),
        Found::Ended(summary) => panic!("it was taken for ended: {}", summary.reason),
    };
    assert_eq!(summary.exit_code, 0, "{}", summary.reason);
    let patch = std::fs::read_to_string(summary.patch.unwrap()).unwrap();
    assert!(patch.contains("of b"), "{patch}");
    assert!(
        patch.contains("kept"),
        "what it had done before is not lost: {patch}"
    );
    soon(&look, &name, (0, 0)).await;
}
