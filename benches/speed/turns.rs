//! What a turn costs beside model and tools: processor time and memory, at 1, 16 and 256 agents at once,
//! over a model without delay and sandboxes in memory.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf::model::{About, Error, Model, Reply, Request};
use wharf::run;

use crate::{dag, world};

/// Turns of one agent before its report.
const TURNS: u32 = 30;
/// Agents at once.
const AGENTS: [usize; 3] = [1, 16, 256];

/// Reads one file again and again, each time other lines of it, then reports.
struct Reader;

impl Model for Reader {
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Reply, Error>> {
        let call = request.key.call;
        Box::pin(async move {
            Ok(match call {
                ..=TURNS => dag::reply(
                    "read_file",
                    &json!({"path": "lines.txt", "offset": call, "limit": 20}),
                ),
                _ => dag::reply(
                    "submit_report",
                    &json!({"status": "done", "summary": "read it"}),
                ),
            })
        })
    }

    fn about(&self) -> About {
        About {
            name: "scripted/turns".to_owned(),
            provider: "scripted".to_owned(),
            context_window: 128_000,
            ..About::default()
        }
    }
}

pub async fn measure() -> Value {
    // A first run is not counted: what is made once is made in it.
    whole(1).await;
    let mut figures = serde_json::Map::new();
    for agents in AGENTS {
        let (peak, cpu) = (world::peak_kib(), world::cpu_ms());
        whole(agents).await;
        let turns = agents as f64 * f64::from(TURNS + 1);
        let grown = world::peak_kib().saturating_sub(peak) as f64;
        figures.insert(
            format!("agents_{agents}"),
            json!({
                "cpu_ms_a_turn": world::rounded((world::cpu_ms() - cpu) / turns),
                "peak_kib_an_agent": world::rounded(grown / agents as f64),
            }),
        );
    }
    Value::Object(figures)
}

/// One run of so many agents at once, unverified.
async fn whole(agents: usize) {
    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let lines: String = (0..200)
        .map(|n| format!("line {n} of some text to be read\n"))
        .collect();
    std::fs::write(workspace.join("lines.txt"), lines).unwrap();
    let mut text = format!(
        "version: 1\nname: bench\ntask: Do it\nmodel: openai/bench\nsandbox: {{image: wharf/base}}\n\
         run: {{parallel: {agents}, subtasks: 2000, tokens: 2000000000}}\nsubtasks:\n"
    );
    for n in 0..agents {
        text.push_str(&format!(
            "  - {{id: n{n}, role: coder, brief: Do part {n}}}\n"
        ));
    }
    let mut order = dag::order(dir.path(), text, Arc::new(Reader));
    order.options.verify = false;
    let summary = run::start(order).await.unwrap();
    assert_eq!(summary.exit_code, 0, "{}", summary.reason);
}
