//! A thousand subtasks through the whole run room, over sandboxes in memory and a scripted model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf::model::{About, Call, Error, Finish, Meter, Model, Reply, Request, Usage};
use wharf::run::{Board, Delivery, Models, Notice, Options, Order, Stopper, Watch};
use wharf::sandbox::memory::Memory;
use wharf::trace::Tracer;
use wharf::workspace::Git;
use wharf::{id, plan, run};

use crate::world;

const SUBTASKS: usize = 1000;

/// Reports at once; as verifier it looks once and passes.
struct Scripted;

impl Model for Scripted {
    fn attempt<'a>(
        &'a self,
        request: &'a Request,
        _: Meter,
    ) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(async move { Ok(answer(request)) })
    }

    fn about(&self) -> About {
        About {
            name: "scripted/bench".to_owned(),
            provider: "scripted".to_owned(),
            context_window: 128_000,
            ..About::default()
        }
    }
}

fn answer(request: &Request) -> Reply {
    let verifies = request
        .tools
        .iter()
        .any(|tool| tool.name == "submit_verdict");
    let (name, arguments) = match (verifies, request.key.call) {
        (false, _) => (
            "submit_report",
            json!({"status": "done", "summary": "made it"}),
        ),
        (true, 1) => ("list_files", json!({})),
        (true, _) => (
            "submit_verdict",
            json!({"verdict": "pass", "summary": "done", "criteria":
                [{"criterion": "It is done", "status": "pass", "evidence": "#1"}]}),
        ),
    };
    reply(name, &arguments)
}

/// A reply with one call.
pub fn reply(name: &str, arguments: &Value) -> Reply {
    Reply {
        text: String::new(),
        calls: vec![Call {
            id: "call_1".to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        }],
        finish: Finish::Calls,
        usage: Usage {
            input: 100,
            output: 10,
            cached: 0,
            estimated: false,
        },
        model: None,
        id: None,
        native: None,
    }
}

struct Silent;

impl Watch for Silent {
    fn notice(&self, _: &Notice) {}

    fn board(&self, _: Arc<Board>) {}
}

pub async fn measure() -> Value {
    let before = world::peak_kib();
    // A small run first: what is made once is not counted for each.
    let small = one(10).await;
    let between = world::peak_kib();
    let seconds = one(SUBTASKS).await;
    let after = world::peak_kib();
    json!({
        "subtasks": SUBTASKS,
        "ms_a_subtask": world::rounded((seconds - small) * 1000.0 / (SUBTASKS - 10) as f64),
        "kib_a_subtask": world::rounded((after - between) as f64 / (SUBTASKS - 10) as f64),
        "peak_mib": world::rounded(after as f64 / 1024.0),
        "start_mib": world::rounded(before as f64 / 1024.0),
    })
}

/// Seconds of a whole run of so many subtasks.
async fn one(count: usize) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let since = Instant::now();
    whole(dir.path(), count).await;
    since.elapsed().as_secs_f64()
}

/// Layers of ten, each node needing two of the layer before, worked to the end under `dir`.
pub async fn whole(dir: &Path, count: usize) {
    let workspace = dir.join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(workspace.join("a.txt"), "a\n").unwrap();
    let mut text = String::from(
        "version: 1\nname: bench\ntask: Do it\nmodel: openai/bench\nsandbox: {image: wharf/base}\n\
         acceptance: {criteria: [It is done]}\nrun: {parallel: 8, subtasks: 2000}\nsubtasks:\n",
    );
    for n in 0..count {
        let needs = match n.checked_sub(10) {
            Some(above) => format!("n{above}, n{}", above / 10 * 10 + (above + 1) % 10),
            None => String::new(),
        };
        text.push_str(&format!(
            "  - {{id: n{n}, role: coder, brief: Do part {n}, needs: [{needs}]}}\n"
        ));
    }
    let summary = run::start(order(dir, text, Arc::new(Scripted)))
        .await
        .unwrap();
    assert_eq!(summary.exit_code, 0, "{}", summary.reason);
    assert_eq!(summary.subtasks.len(), count);
}

/// A plan over sandboxes in memory, its workspace and its state under `dir`.
pub fn order(dir: &Path, text: String, model: Arc<dyn Model>) -> Order {
    let plan = plan::parse(&text, "bench.yaml", &|_| Err(String::new())).unwrap();
    Order {
        plan,
        plan_text: text,
        task: "Do it".to_owned(),
        workspace: dir.join("workspace"),
        options: Options {
            state: dir.join("state"),
            machine: "bench".to_owned(),
            run_id: Some(id::RunId::new("bench")),
            delivery: Delivery::Default,
            apply: false,
            verify: true,
            plan_only: false,
            bootstrap: false,
            git: Git::at(env!("PATH")),
        },
        models: Models {
            default: vec![model],
            roles: BTreeMap::new(),
            summary: Vec::new(),
        },
        engine: Arc::new(Memory::default()),
        tracer: Tracer::none(),
        watch: Arc::new(Silent),
        stop: Stopper::default(),
        keep: run::Keep::default(),
        consent: run::Consent::default(),
    }
}
