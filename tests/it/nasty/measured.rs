//! A workspace is measured before it is read, refused with its figures, and told while it is read.

use std::path::Path;
use std::sync::{Arc, Mutex};

use wharf::workspace::{Source, Taking};

use crate::workspace::fixture::*;

/// A file of holes: large to whoever reads it, and no burden to the disk.
fn holes(dir: &Path, name: &str, mib: u64) {
    write(dir, name.as_bytes(), b"");
    let file = std::fs::File::options().write(true).open(dir.join(name));
    file.unwrap().set_len(mib << 20).unwrap();
}

fn large(dir: &Path) -> Source {
    Source {
        max_file: 128 << 20,
        max_total: 100 << 20,
        ..source(dir)
    }
}

#[tokio::test]
async fn too_much_is_refused_before_any_of_it_is_read() {
    let world = World::new().await;
    let dir = world.path("plain");
    write(&dir, b"a", b"1");
    for name in ["x", "y", "z"] {
        holes(&dir, name, 90);
    }
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    let tell = Arc::new(move |_: Taking| *count.lock().unwrap() += 1);
    let error = world
        .store
        .base_told(&large(&dir), Some(tell))
        .await
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("270 MiB in 4 files, more than 100 MiB"),
        "{error}"
    );
    assert_eq!(*told.lock().unwrap(), 0);
    // What is withheld or past the limit of a file does not count.
    std::fs::rename(dir.join("x"), dir.join(".env")).unwrap();
    holes(&dir, "y", 200);
    assert_eq!(world.store.base(&large(&dir)).await.unwrap().files, 2);
}

#[tokio::test]
async fn what_takes_long_says_how_far_it_is() {
    let world = World::new().await;
    let dir = world.path("plain");
    for at in 0..20 {
        holes(&dir, &format!("f{at:02}"), 4);
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    let tell = Arc::new(move |taking: Taking| kept.lock().unwrap().push(taking));
    let base = world
        .store
        .base_told(&large(&dir), Some(tell))
        .await
        .unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 11, "{told:?}");
    assert!(
        told.windows(2)
            .all(|two| two[0].taken.bytes < two[1].taken.bytes)
    );
    let last = told[10];
    assert_eq!(
        (last.taken, last.of.files, last.of.bytes),
        (last.of, 20, 80 << 20)
    );
    assert_eq!(base.bytes, 80 << 20);
}
