//! What the measurements share: an engine, an image, an empty tree, medians.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{
    self, Contents, Docker, Engine, FileLimits, Image, ImageSpec, Labels, Network, Progress, Spec,
    Tree,
};

/// Nobody listens.
pub struct Quiet;

impl Progress for Quiet {
    fn say(&self, _: &str) {}
}

struct Nothing;

impl Contents for Nothing {
    fn read(&self, _: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        stream::empty().boxed()
    }
}

/// The engine of this machine and the image `wharf/base`, ready.
pub async fn engine() -> (Docker, Image) {
    let options = sandbox::Options {
        state: "/tmp/wharf-bench".into(),
        machine: "bench".to_owned(),
        ..sandbox::Options::default()
    };
    let docker = sandbox::connect(&options)
        .await
        .expect("the bench needs a container engine");
    let spec = ImageSpec {
        image: "wharf/base".to_owned(),
        setup: Vec::new(),
        setup_files: Vec::new(),
        bootstrap: true,
        ..ImageSpec::default()
    };
    let image = docker
        .prepare(&spec, &Quiet, &CancellationToken::new())
        .await
        .unwrap();
    (docker, image)
}

/// A sandbox as a plan's defaults have it.
pub fn spec(image: Image) -> Spec {
    Spec {
        image,
        env: BTreeMap::new(),
        cpus: 2.0,
        memory: 2 << 30,
        pids: 256,
        disk: 4 << 30,
        files: FileLimits::default(),
        strict: false,
        history: None,
        network: Network::None,
        runtime: None,
        labels: Labels {
            machine: "bench".to_owned(),
            state: "/tmp/wharf-bench".to_owned(),
            run: "bench".to_owned(),
            subtask: "bench".to_owned(),
        },
    }
}

pub fn empty() -> Tree {
    Tree {
        entries: BTreeMap::new(),
        contents: Arc::new(Nothing),
    }
}

/// Median and 95th percentile in milliseconds.
pub fn summary(mut times: Vec<Duration>) -> Value {
    times.sort();
    let at = |share: f64| {
        let index = ((times.len() - 1) as f64 * share).round() as usize;
        (times[index].as_secs_f64() * 1e6).round() / 1e3
    };
    json!({"median": at(0.5), "p5": at(0.05), "p95": at(0.95), "rounds": times.len()})
}

/// How many times `a`'s median is `b`'s.
pub fn ratio(a: &Value, b: &Value) -> Value {
    json!(rounded(median(a) / median(b)))
}

/// The median of a summary.
pub fn median(summary: &Value) -> f64 {
    summary["median"].as_f64().unwrap_or(f64::NAN)
}

/// With three digits behind the point.
pub fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

/// Milliseconds of processor time that this process has used, in steps of a hundredth of a second.
pub fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name in brackets may hold blanks; user and system time are the 12th and 13th word after it.
    let after = stat.rsplit_once(") ").unwrap().1;
    let ticks = after.split(' ').skip(11).take(2);
    ticks.map(|word| word.parse::<f64>().unwrap()).sum::<f64>() * 10.0
}

/// The process's peak resident memory, KiB.
pub fn peak_kib() -> u64 {
    kib("/proc/self/status", "VmHWM:")
}

/// Memory that the host could still give, KiB.
pub fn memory_available() -> u64 {
    kib("/proc/meminfo", "MemAvailable:")
}

fn kib(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
