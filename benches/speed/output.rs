//! A command that prints 1 GB: how fast it goes, and what it costs in memory on either side.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{Command, Engine};

use crate::world;

const BYTES: u64 = 1 << 30;

pub async fn measure() -> Value {
    let (docker, image) = world::engine().await;
    let cancel = CancellationToken::new();
    let sandbox = docker
        .open(&world::spec(image), &world::empty(), &cancel)
        .await
        .unwrap();
    let command = |line: String| Command {
        line,
        timeout: Duration::from_secs(300),
        background: false,
        keep: 8000,
    };
    // What is needed once is there before it is measured.
    let small = command("head -c 1000000 /dev/zero | tr '\\0' x".to_owned());
    sandbox.run(&small, &cancel).await.unwrap();
    let before = world::peak_kib();
    let line = format!("head -c {BYTES} /dev/zero | tr '\\0' 'x'");
    let since = Instant::now();
    let done = sandbox.run(&command(line.clone()), &cancel).await.unwrap();
    let took = since.elapsed();
    assert_eq!(done.stdout.total, BYTES);
    let after = world::peak_kib();
    let since = Instant::now();
    let into_nothing = command(format!("{line} > /dev/null"));
    sandbox.run(&into_nothing, &cancel).await.unwrap();
    let bare = since.elapsed();
    let peak = command("grep VmHWM /proc/1/status | tr -dc 0-9".to_owned());
    let toolbox = sandbox.run(&peak, &cancel).await.unwrap();
    sandbox.close().await;
    let toolbox = String::from_utf8_lossy(&toolbox.stdout.head).into_owned();
    json!({
        "bytes": BYTES,
        "seconds": world::rounded(took.as_secs_f64()),
        "mib_a_second": world::rounded((BYTES >> 20) as f64 / took.as_secs_f64()),
        "seconds_to_dev_null": world::rounded(bare.as_secs_f64()),
        "wharf_peak_before_mib": world::rounded(before as f64 / 1024.0),
        "wharf_peak_after_mib": world::rounded(after as f64 / 1024.0),
        "toolbox_peak_kib": toolbox.trim().parse::<u64>().ok(),
    })
}
