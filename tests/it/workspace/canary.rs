//! Nothing a repository's configuration can start is ever started.

use std::path::Path;

use wharf::workspace::{Error, Force, Step};

use super::fixture::*;

/// Hooks, filters, drivers and monitors that would each leave a file.
pub fn arm(dir: &Path, canaries: &Path) {
    let touch = |name: &str| format!("touch {}/{name}; cat", canaries.display());
    for (key, name) in [
        ("core.fsmonitor", "fsmonitor"),
        ("filter.x.clean", "clean"),
        ("filter.x.smudge", "smudge"),
        ("filter.x.process", "process"),
        ("diff.external", "external"),
        ("diff.x.textconv", "textconv"),
        ("merge.x.driver", "driver"),
        ("core.pager", "pager"),
        ("core.sshCommand", "ssh"),
        ("core.alternateRefsCommand", "alternates"),
        ("gpg.program", "gpg"),
        ("uploadpack.packObjectsHook", "pack"),
        ("credential.helper", "credential"),
    ] {
        git(dir, &["config", key, &touch(name)]);
    }
    git(dir, &["config", "commit.gpgSign", "true"]);
    let hooks = dir.join(".git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "pre-commit",
        "post-commit",
        "post-checkout",
        "reference-transaction",
        "post-merge",
        "pre-auto-gc",
        "post-index-change",
        "post-rewrite",
        "fsmonitor-watchman",
        "update",
    ] {
        let text = format!("#!/bin/sh\ntouch {}/hook-{hook}\n", canaries.display());
        std::fs::write(hooks.join(hook), text).unwrap();
        chmod(&hooks, hook, 0o755);
    }
    write(dir, b".gitattributes", b"* filter=x diff=x merge=x\n");
}

#[tokio::test]
async fn no_hook_filter_or_monitor_fires() {
    let world = World::new().await;
    let canaries = world.path("canaries");
    std::fs::create_dir(&canaries).unwrap();
    let dir = world.repository("repo", &[("a.txt", "1\n2\n3\n4\n5\n6\n7\n")]);
    arm(&dir, &canaries);
    write(&dir, b"dirty.txt", b"d\n");
    let base = world.base(&dir).await;
    let one = world
        .child(&base.commit, &[put("a.txt", "1\n2\n3\n4\n5\n6\nseven\n")])
        .await;
    let two = world
        .child(&base.commit, &[put("a.txt", "one\n2\n3\n4\n5\n6\n7\n")])
        .await;
    let merged = world.store.merge(&one, &two).await.unwrap();
    assert!(matches!(merged, wharf::workspace::Merged::Clean(_)));
    world
        .store
        .patch(&base.commit, &one, "", 1 << 20)
        .await
        .unwrap();
    world
        .store
        .deliver_patch(&base.commit, &one, "", &world.path("p"))
        .await
        .unwrap();
    let steps = [Step {
        commit: one.clone(),
        message: "m".into(),
    }];
    let refused = world.store.deliver_branch(&dir, &base, "r", &steps).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    write(&dir, b".gitattributes", b"* diff=x merge=x\n");
    world
        .store
        .deliver_branch(&dir, &base, "r", &steps)
        .await
        .unwrap();
    write(&dir, b".gitattributes", b"* filter=x diff=x merge=x\n");
    write(&dir, b"a.txt", b"one\n2\n3\n4\n5\n6\n7\n");
    world
        .store
        .apply(&dir, &base.commit, &one, Force::No)
        .await
        .unwrap();
    assert_eq!(read(&dir, "a.txt"), "one\n2\n3\n4\n5\n6\nseven\n");
    let fired: Vec<_> = std::fs::read_dir(&canaries)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(fired.is_empty(), "{fired:?}");

    // The trap works: the operator's own git springs it.
    git(&dir, &["checkout", "-q", "-b", "sprung"]);
    assert!(std::fs::read_dir(&canaries).unwrap().next().is_some());
}
