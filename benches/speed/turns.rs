//! What a turn costs beside model and tools: processor time and memory, at 1, 16 and 256 agents at once,
//! over sandboxes in memory and a model without delay: a server of chat completions in a process of its
//! own, and for comparison one in this process, without HTTP and JSON between. And the memory of 16 agents
//! with shorter and longer conversations, which alone differ.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf::model::{self, About, Error, Meter, Model, Provider, Reply, Request};
use wharf::run;

use crate::{dag, world};

/// Turns of one agent before its report.
const TURNS: u32 = 30;
/// Agents at once.
const AGENTS: [usize; 3] = [1, 16, 256];
/// Turns over which memory is compared, and the agents that take them at once.
const LENGTHS: [u32; 2] = [30, 60];
const COMPARED: usize = 16;
/// What the model is called; the number after it is that of its turns.
const NAME: &str = "bench-";

/// Reads one file again and again, each time other lines of it, then reports.
struct Reader {
    turns: u32,
}

impl Model for Reader {
    fn attempt<'a>(
        &'a self,
        request: &'a Request,
        _: Meter,
    ) -> BoxFuture<'a, Result<Reply, Error>> {
        let call = request.key.call;
        Box::pin(async move {
            Ok(match call {
                call if call <= self.turns => dag::reply(
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

/// A server of chat completions without delay, in a process of its own; it ends with this value.
struct Server {
    child: Child,
    base_url: String,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--serve")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = child.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        let base_url = format!("http://127.0.0.1:{}/v1", line.trim());
        Self { child, base_url }
    }

    fn model(&self, turns: u32) -> Arc<dyn Model> {
        let provider = Provider::openai(Some(self.base_url.clone()), None);
        let providers = BTreeMap::from([("openai".to_owned(), provider)]);
        model::open(&format!("openai/{NAME}{turns}"), &providers).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What is gone already needs no end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Serves until the process is ended.
pub async fn serve() {
    let path = "/v1/chat/completions";
    let router = axum::Router::new()
        .route(path, axum::routing::post(answer))
        .layer(axum::extract::DefaultBodyLimit::disable());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    axum::serve(listener, router).await.unwrap();
}

/// As `Reader`, streamed in three events; how far the agent is, the results in its request tell, and how
/// far it goes the model's name.
async fn answer(body: String) -> impl IntoResponse {
    let turns = turns_of(&body);
    let done = body.matches("\"role\":\"tool\"").count() as u32;
    let (name, arguments) = if done < turns {
        let lines = json!({"path": "lines.txt", "offset": done + 1, "limit": 20});
        ("read_file", lines)
    } else {
        let report = json!({"status": "done", "summary": "read it"});
        ("submit_report", report)
    };
    let call = json!({"index": 0, "id": format!("call_{done}"), "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()}});
    let events = [
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": body.len() / 4, "completion_tokens": 30}}),
    ];
    let events: String = events.iter().map(|e| format!("data: {e}\n\n")).collect();
    let text = format!("{events}data: [DONE]\n\n");
    ([(CONTENT_TYPE, "text/event-stream")], text)
}

fn turns_of(body: &str) -> u32 {
    let (_, name) = body.split_once(NAME).unwrap();
    let digits = name.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

pub async fn measure() -> Value {
    let server = Server::start();
    // A first run is not counted: what is made once is made in it.
    whole(1, server.model(TURNS)).await;
    let mut figures = serde_json::Map::new();
    for agents in AGENTS {
        let turns = agents as f64 * f64::from(TURNS + 1);
        let (peak, cpu) = (world::peak_kib(), world::cpu_ms());
        whole(agents, server.model(TURNS)).await;
        let grown = world::peak_kib().saturating_sub(peak) as f64;
        let wire = world::cpu_ms();
        whole(agents, Arc::new(Reader { turns: TURNS })).await;
        let bare = world::cpu_ms();
        figures.insert(
            format!("agents_{agents}"),
            json!({
                "cpu_ms_a_turn": world::rounded((wire - cpu) / turns),
                "cpu_ms_a_turn_without_wire": world::rounded((bare - wire) / turns),
                "peak_kib_an_agent": world::rounded(grown / agents as f64),
            }),
        );
    }
    for turns in LENGTHS {
        let key = format!("agents_{COMPARED}_with_{turns}_turns");
        let peak = json!({"peak_kib_an_agent": apart(turns)});
        figures.insert(key, peak);
    }
    Value::Object(figures)
}

/// Memory of an agent with so many turns, in KiB, from a process of its own: a peak never falls again.
fn apart(turns: u32) -> Value {
    let program = std::env::current_exe().unwrap();
    let done = Command::new(program)
        .args(["--turns", &turns.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(done.status.success(), "{turns} turns: {}", done.status);
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Prints what `apart` reads.
pub async fn grow(turns: u32) {
    let server = Server::start();
    whole(1, server.model(1)).await;
    let peak = world::peak_kib();
    whole(COMPARED, server.model(turns)).await;
    let grown = world::peak_kib().saturating_sub(peak) as f64;
    println!("{}", world::rounded(grown / COMPARED as f64));
}

/// One run of so many agents at once, unverified.
async fn whole(agents: usize, model: Arc<dyn Model>) {
    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let lines: String = (0..200)
        .map(|n| format!("line {n} of some text to be read\n"))
        .collect();
    std::fs::write(workspace.join("lines.txt"), lines).unwrap();
    let mut text = format!(
        "version: 1\nname: bench\ntask: Do it\nmodel: openai/bench\nsandbox: {{image: wharf/base}}\n\
         agent: {{turns: 100, tool_calls: 200}}\nrun: {{parallel: {agents}, subtasks: 2000, tokens: 2000000000}}\nsubtasks:\n"
    );
    for n in 0..agents {
        text.push_str(&format!(
            "  - {{id: n{n}, role: coder, brief: Do part {n}}}\n"
        ));
    }
    let mut order = dag::order(dir.path(), text, model);
    order.options.verify = false;
    let summary = run::start(order).await.unwrap();
    assert_eq!(summary.exit_code, 0, "{}", summary.reason);
}
