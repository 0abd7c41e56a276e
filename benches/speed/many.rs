//! Sixty-four sandboxes at once: until the last is ready, and until the last is gone.

use std::time::Instant;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{Command, Engine};

use crate::world;

const SANDBOXES: usize = 64;

pub async fn measure() -> Value {
    let (docker, image) = world::engine().await;
    let spec = world::spec(image);
    let cancel = CancellationToken::new();
    let empty = world::empty();
    let before = world::memory_available();
    let since = Instant::now();
    let opened = join_all((0..SANDBOXES).map(|_| async {
        let sandbox = docker.open(&spec, &empty, &cancel).await.unwrap();
        (sandbox, since.elapsed())
    }))
    .await;
    let ready = since.elapsed();
    let used = before.saturating_sub(world::memory_available());

    let since = Instant::now();
    let command = Command {
        line: "true".to_owned(),
        timeout: std::time::Duration::from_secs(60),
        background: false,
        keep: 1000,
    };
    join_all(opened.iter().map(|(sandbox, _)| async {
        sandbox.run(&command, &cancel).await.unwrap();
    }))
    .await;
    let ran = since.elapsed();
    let since = Instant::now();
    join_all(opened.iter().map(|(sandbox, _)| sandbox.close())).await;
    let closed = since.elapsed();
    json!({
        "sandboxes": SANDBOXES,
        "all_ready_s": world::rounded(ready.as_secs_f64()),
        "ready_each_s": world::rounded(ready.as_secs_f64() / SANDBOXES as f64),
        "first_ready_s": opened.iter().map(|(_, at)| *at).min().map(|at| world::rounded(at.as_secs_f64())),
        "a_command_in_each_at_once_s": world::rounded(ran.as_secs_f64()),
        "all_closed_s": world::rounded(closed.as_secs_f64()),
        "host_mib_each": world::rounded(used as f64 / 1024.0 / SANDBOXES as f64),
    })
}
