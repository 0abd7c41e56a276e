//! From the start of `wharf resume` to its first agent: a run of a thousand subtasks, killed in the middle.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{dag, world};

const SUBTASKS: usize = 1000;
const ROUNDS: usize = 10;
/// How long one start may take before the bench gives up.
const LIMIT: Duration = Duration::from_secs(60);

pub async fn measure() -> Value {
    let dir = tempfile::tempdir().unwrap();
    dag::whole(dir.path(), SUBTASKS).await;
    let journal = dir.path().join("state/runs/bench/journal.jsonl");
    let whole = std::fs::read_to_string(&journal).unwrap();
    // Nine of ten subtasks are done, and some agents are in the middle.
    let ended = whole.match_indices("\"type\":\"agent_ended\"");
    let (at, _) = ended.clone().nth(ended.count() * 9 / 10).unwrap();
    let cut = at + whole[at..].find('\n').unwrap() + 1;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        std::fs::write(&journal, &whole[..cut]).unwrap();
        times.push(first_agent(dir.path(), &journal, cut));
    }
    json!({
        "subtasks": SUBTASKS,
        "journal_mib": (whole[..cut].len() as f64 / 10_485.76).round() / 100.0,
        "first_agent_ms": world::summary(times),
    })
}

/// One start of the program until its journal names an agent.
fn first_agent(dir: &Path, journal: &Path, from: usize) -> Duration {
    let since = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_wharf"))
        .args(["resume", "bench", "--quiet"])
        .env("WHARF_HOME", dir.join("state"))
        .env("OPENAI_API_KEY", "none-is-needed")
        // Nobody answers there: the agent starts, and that is all that is measured.
        .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = loop {
        let bytes = std::fs::read(journal).unwrap();
        let new = String::from_utf8_lossy(&bytes[from.min(bytes.len())..]).into_owned();
        if new.contains("\"type\":\"agent_started\"") || new.contains("\"type\":\"agent_resumed\"")
        {
            break since.elapsed();
        }
        assert!(since.elapsed() < LIMIT, "no agent was started: {new}");
        std::thread::sleep(Duration::from_millis(2));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    started
}
