//! A sandbox from a warm pool against a cold one, at the same small tree and at one that differs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{Docker, Pool, Spec, Tree, Wanted};

use crate::{workspace, world};

const ROUNDS: usize = 12;
/// A small repository, and what another agent changed in it.
const FILES: usize = 200;
const SIZE: usize = 2_000;
const CHANGED: usize = 3;

pub async fn measure() -> Value {
    let (docker, image) = world::engine().await;
    let spec = world::spec(image);
    let tree = workspace::tree(FILES, SIZE, 0);
    let changed = workspace::tree(FILES, SIZE, CHANGED);
    let (mut cold, mut same, mut differs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        cold.push(acquire(&docker, &spec, &tree, None).await);
        same.push(acquire(&docker, &spec, &tree, Some(&tree)).await);
        differs.push(acquire(&docker, &spec, &changed, Some(&tree)).await);
    }
    let figures = [cold, same, differs].map(world::summary);
    let [cold, same, differs] = &figures;
    json!({
        "files": FILES,
        "cold": cold, "warm": same, "warm_3_files_differ": differs,
        "warm_to_cold": world::ratio(same, cold),
        "warm_3_files_differ_to_cold": world::ratio(differs, cold),
    })
}

/// The time until a sandbox at `tree` is open, after one at `before` left a warm one behind.
async fn acquire(
    docker: &Docker,
    spec: &Spec,
    tree: &Arc<Tree>,
    before: Option<&Arc<Tree>>,
) -> Duration {
    let cancel = CancellationToken::new();
    let pool = Pool::new(Arc::new(docker.clone()), &cancel);
    let open = async |tree: &Arc<Tree>, warm| {
        let wanted = Wanted { spec, tree, warm };
        pool.open(wanted, &cancel).await.unwrap()
    };
    let mut held = Vec::new();
    if let Some(before) = before {
        held.push(open(before, 1).await);
        while pool.ready(spec).await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let since = Instant::now();
    held.push(open(tree, 0).await);
    let took = since.elapsed();
    for sandbox in held {
        sandbox.close().await;
    }
    pool.close().await;
    took
}
