//! Figures side by side in one run, as one JSON object: `cargo bench --bench speed`.
//!
//! A tool call in a sandbox against a bare echo over an attached stream and against `docker exec`; a
//! sandbox ready against `docker run --rm IMAGE true`; a thousand subtasks over sandboxes in memory;
//! the time until a resumed run of a thousand subtasks starts its first agent. `--only
//! calls|starts|dag|resume` measures one of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench stops at its first surprise, and prints"
)]

mod calls;
mod dag;
mod resume;
mod starts;
mod world;

use serde_json::{Map, Value};

fn main() {
    let only = std::env::args().skip_while(|a| a != "--only").nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut figures = Map::new();
    if only.is_none() {
        figures.append(&mut apart("dag"));
    } else if wanted("dag") {
        figures.insert("dag_of_1000".to_owned(), runtime.block_on(dag::measure()));
    }
    if wanted("calls") {
        figures.insert(
            "tool_call_ms".to_owned(),
            runtime.block_on(calls::measure()),
        );
    }
    if wanted("starts") {
        figures.insert(
            "sandbox_ready_ms".to_owned(),
            runtime.block_on(starts::measure()),
        );
    }
    if wanted("resume") {
        figures.insert(
            "resume_of_1000".to_owned(),
            runtime.block_on(resume::measure()),
        );
    }
    println!(
        "{}",
        serde_json::to_string_pretty(&Value::Object(figures)).unwrap()
    );
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
