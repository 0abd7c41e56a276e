//! A workspace of 1 GB in 100,000 files: its layer, starts on it, the scan of a turn.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{Docker, Engine, Layer, Sandbox, Spec, Tree};

use crate::{workspace, world};

const FILES: usize = 100_000;
const SIZE: usize = 10_000;
const ROUNDS: usize = 10;
/// Files that differ where an agent starts after others.
const CHANGED: usize = 100;
const SCANS: usize = 10;

pub async fn measure() -> Value {
    let (docker, image) = world::engine().await;
    let spec = world::spec(image);
    let tree = workspace::tree(FILES, SIZE, 0);
    let cancel = CancellationToken::new();
    let since = Instant::now();
    let layer = docker
        .layer(&spec, tree.clone(), &world::Quiet, &cancel)
        .await
        .unwrap();
    let made = since.elapsed();
    // Made before by another bench, it was only found.
    let fresh = made.as_secs() > 5;

    let changed = workspace::tree(FILES, SIZE, CHANGED);
    let empty = world::empty();
    let (mut bare, mut same, mut differs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(start(&docker, &spec, None, &empty).await);
        same.push(start(&docker, &spec, Some(&layer), &tree).await);
        differs.push(start(&docker, &spec, Some(&layer), &changed).await);
    }
    let scans = scans(&docker, &spec, &layer, &tree).await;
    let figures = [bare, same, differs].map(world::summary);
    let [bare, same, differs] = &figures;
    let added = |figure: &Value| world::rounded(world::median(figure) / world::median(bare) - 1.0);
    json!({
        "files": FILES, "bytes": FILES * SIZE,
        "layer_seconds": fresh.then(|| world::rounded(made.as_secs_f64())),
        "ready_empty": bare, "ready_on_layer": same, "ready_on_layer_100_changed": differs,
        "added_share": added(same), "added_share_100_changed": added(differs),
        "scan": scans,
    })
}

async fn start(
    docker: &Docker,
    spec: &Spec,
    layer: Option<&Layer>,
    tree: &Tree,
) -> std::time::Duration {
    let since = Instant::now();
    let sandbox = open(docker, spec, layer, tree).await;
    sandbox.read("/etc/hostname", 0, 1).await.unwrap().ok();
    let took = since.elapsed();
    sandbox.close().await;
    took
}

async fn open(
    docker: &Docker,
    spec: &Spec,
    layer: Option<&Layer>,
    tree: &Tree,
) -> Arc<dyn Sandbox> {
    let cancel = CancellationToken::new();
    let vacant = docker.start(spec, layer, &cancel).await.unwrap();
    vacant.fill(tree, &cancel).await.unwrap()
}

/// The first scan of a sandbox, and those after it, each behind a change to one file.
async fn scans(docker: &Docker, spec: &Spec, layer: &Layer, tree: &Tree) -> Value {
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let sandbox = open(docker, spec, Some(layer), tree).await;
        for n in 0..=SCANS {
            let path = format!("new{n}");
            let written = sandbox.write(&path, "x\n".into()).await.unwrap();
            written.unwrap();
            let since = Instant::now();
            let changes = sandbox.scan().await.unwrap();
            let took = since.elapsed();
            // Written a moment before the last scan, the file of then is read once more and is the same.
            assert_eq!((changes.puts.len(), changes.deletes.len()), (1, 0));
            if n == 0 {
                first.push(took)
            } else {
                later.push(took)
            }
        }
        sandbox.close().await;
    }
    json!({"first": world::summary(first), "later": world::summary(later)})
}
