//! A sandbox until its first answer, against `docker run --rm IMAGE true`.

use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::Engine;

use crate::world;

const ROUNDS: usize = 12;

pub async fn measure() -> Value {
    let (docker, image) = world::engine().await;
    let cancel = CancellationToken::new();
    let (mut ready, mut closed, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let since = Instant::now();
        let sandbox = docker
            .open(&world::spec(image.clone()), &world::empty(), &cancel)
            .await
            .unwrap();
        sandbox.read("/etc/hostname", 0, 1).await.unwrap().ok();
        ready.push(since.elapsed());
        let since = Instant::now();
        sandbox.close().await;
        closed.push(since.elapsed());

        let since = Instant::now();
        let status = tokio::process::Command::new("docker")
            .args([
                "run",
                "--rm",
                "--network",
                "none",
                "--entrypoint",
                "true",
                &image.id,
            ])
            .stdin(Stdio::null())
            .status()
            .await
            .expect("the docker client");
        assert!(status.success());
        runs.push(since.elapsed());
    }
    let figures = [ready, closed, runs].map(world::summary);
    let [ready, closed, run] = &figures;
    json!({
        "ready": ready, "close": closed, "docker_run_true": run,
        "ready_to_docker_run": world::ratio(ready, run),
    })
}
