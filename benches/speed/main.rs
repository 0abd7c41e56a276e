//! Figures side by side in one run, as one JSON object: `cargo bench --bench speed`.
//!
//! A tool call in a sandbox against a bare echo over an attached stream and against `docker exec`; a
//! sandbox ready against `docker run --rm IMAGE true`; a thousand subtasks over sandboxes in memory;
//! sixty-four sandboxes at once; a warm sandbox against a cold one; 1 GB of output; starts and scans at
//! a workspace of 1 GB in 100,000 files, whose layer stays at the engine until it is cleaned; the time
//! until a resumed run of a thousand subtasks starts its first agent; what a turn of an agent costs in
//! processor time and memory at 1, 16 and 256 agents, and how memory grows with their turns.
//! `--only NAME` measures one of them: turns, calls, starts, dag, many, warm, output, large, resume.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench stops at its first surprise, and prints"
)]

mod calls;
mod dag;
mod large;
mod many;
mod output;
mod resume;
mod starts;
mod turns;
mod warm;
mod workspace;
mod world;

use serde_json::{Map, Value};

const PARTS: [&str; 9] = [
    "turns", "dag", "output", "calls", "starts", "many", "warm", "large", "resume",
];
/// Those whose figures hold the process's peak memory.
const APART: [&str; 3] = ["turns", "dag", "output"];

fn main() {
    let only = std::env::args().skip_while(|a| a != "--only").nth(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    if std::env::args().any(|argument| argument == "--serve") {
        return runtime.block_on(turns::serve());
    }
    if let Some(turns) = std::env::args().skip_while(|a| a != "--turns").nth(1) {
        return runtime.block_on(turns::grow(turns.parse().unwrap()));
    }
    let mut figures = Map::new();
    for name in PARTS {
        if only.is_none() && APART.contains(&name) {
            figures.append(&mut apart(name));
        } else if only.as_deref().is_none_or(|only| only == name) {
            let (key, figure) = runtime.block_on(part(name));
            figures.insert(key.to_owned(), figure);
        }
    }
    println!(
        "{}",
        serde_json::to_string_pretty(&Value::Object(figures)).unwrap()
    );
}

/// One part's name in the answer, and its figures.
async fn part(name: &str) -> (&'static str, Value) {
    match name {
        "turns" => ("overhead_a_turn", turns::measure().await),
        "dag" => ("dag_of_1000", dag::measure().await),
        "output" => ("output_of_1_gib", output::measure().await),
        "calls" => ("tool_call_ms", calls::measure().await),
        "starts" => ("sandbox_ready_ms", starts::measure().await),
        "many" => ("many_at_once", many::measure().await),
        "warm" => ("warm_ms", warm::measure().await),
        "resume" => ("resume_of_1000", resume::measure().await),
        _ => ("large_workspace_ms", large::measure().await),
    }
}

/// One part in a process of its own: its peak memory is one of the figures.
fn apart(name: &str) -> Map<String, Value> {
    let program = std::env::current_exe().unwrap();
    let done = std::process::Command::new(program)
        .args(["--only", name])
        .stderr(std::process::Stdio::inherit())
        .output()
        .unwrap();
    assert!(done.status.success(), "{name} stopped: {}", done.status);
    serde_json::from_slice(&done.stdout).unwrap()
}
