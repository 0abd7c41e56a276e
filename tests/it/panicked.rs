//! A fault of our own, a panic in the middle of a run: the run ends as an error that says whose it is, nothing
//! hangs, nothing stays behind, and it can be gone on with.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf::run::{self, Found};
use wharf::sandbox::{
    Answer as Told, Changes, Command, Engine, Error, Facts, Finished, Image, ImageSpec, Layer,
    Listing, ProcessAction, Progress, Read, Sandbox, Search, Spec, Tree, Vacant,
};

use crate::container::{engine, machine, soon};
use crate::counted::Counted;
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::world::{Ran, World, connect, passes, report};

/// An engine whose sandboxes panic, in the task that asks, when files of this name are to be listed.
struct Faulty<E> {
    inner: E,
    word: &'static str,
}

impl<E: Engine> Engine for Faulty<E> {
    fn prepare<'a>(
        &'a self,
        image: &'a ImageSpec,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Image, Error>> {
        self.inner.prepare(image, progress, cancel)
    }

    fn start<'a>(
        &'a self,
        spec: &'a Spec,
        layer: Option<&'a Layer>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Box<dyn Vacant>, Error>> {
        Box::pin(async move {
            let inner = self.inner.start(spec, layer, cancel).await?;
            let vacant: Box<dyn Vacant> = Box::new(Empty {
                inner,
                word: self.word,
            });
            Ok(vacant)
        })
    }

    fn layer<'a>(
        &'a self,
        spec: &'a Spec,
        tree: Arc<Tree>,
        progress: &'a dyn Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Layer, Error>> {
        self.inner.layer(spec, tree, progress, cancel)
    }
}

struct Empty {
    inner: Box<dyn Vacant>,
    word: &'static str,
}

impl Vacant for Empty {
    fn furnish<'a>(
        &'a mut self,
        tree: Arc<Tree>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.furnish(tree, cancel)
    }

    fn fill<'a>(
        self: Box<Self>,
        tree: &'a Tree,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, Error>> {
        Box::pin(async move {
            let inner = self.inner.fill(tree, cancel).await?;
            let one: Arc<dyn Sandbox> = Arc::new(One {
                inner,
                word: self.word,
            });
            Ok(one)
        })
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.inner.close()
    }
}

struct One {
    inner: Arc<dyn Sandbox>,
    word: &'static str,
}

impl Sandbox for One {
    fn run<'a>(
        &'a self,
        command: &'a Command,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Finished, Error>> {
        self.inner.run(command, cancel)
    }

    fn process(
        &self,
        id: u32,
        action: ProcessAction,
    ) -> BoxFuture<'_, Result<Told<Finished>, Error>> {
        self.inner.process(id, action)
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Told<Read>, Error>> {
        self.inner.read(path, offset, limit)
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Result<Told<()>, Error>> {
        self.inner.write(path, content)
    }

    fn list<'a>(
        &'a self,
        pattern: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Told<Listing>, Error>> {
        assert!(pattern != Some(self.word), "the fault of this test");
        self.inner.list(pattern, limit)
    }

    fn grep<'a>(&'a self, search: &'a Search) -> BoxFuture<'a, Result<Told<Listing>, Error>> {
        self.inner.grep(search)
    }

    fn scan(&self) -> BoxFuture<'_, Result<Changes, Error>> {
        self.inner.scan()
    }

    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
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
        (at, 1) if at == role => Answer::call("list_files", json!({"pattern": "PANIC"})),
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
        world.engine = Arc::new(Faulty {
            inner: counted.clone(),
            word: "PANIC",
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
    world.engine = Arc::new(Faulty {
        inner: docker.clone(),
        word: "PANIC",
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
