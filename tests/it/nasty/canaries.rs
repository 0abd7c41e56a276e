//! What a repository could start or lead to, in whole runs that deliver and apply: nothing of it happens.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use wharf::run::{Delivery, Status};

use super::runs::PLAN;
use crate::server::{Answer, Ask, Role};
use crate::workspace::canary::arm;
use crate::workspace::fixture::{chmod, git, init, read, repository, write};
use crate::world::{World, passes, report, write as write_file};

/// Traps in a configuration that another one includes, and in what a tree itself says.
fn lay(dir: &Path, canaries: &Path) {
    arm(dir, canaries);
    let touch = |name: &str| format!("touch {}/{name}; cat", canaries.display());
    let included = dir.join(".git/included");
    let text = format!(
        "[core]\n\tfsmonitor = \"{}\"\n\thooksPath = {}\n\tgitProxy = \"{}\"\n[filter \"y\"]\n\tclean = \"{}\"\n\trequired = true\n[log]\n\tshowSignature = true\n",
        touch("included"),
        dir.join("hooks").display(),
        touch("proxy"),
        touch("included-filter"),
    );
    std::fs::write(&included, text).unwrap();
    git(dir, &["config", "include.path", included.to_str().unwrap()]);
    git(
        dir,
        &[
            "config",
            "includeIf.gitdir:/.path",
            included.to_str().unwrap(),
        ],
    );
    for hook in [
        "pre-commit",
        "post-checkout",
        "reference-transaction",
        "post-index-change",
    ] {
        let text = format!("#!/bin/sh\ntouch {}/hooks-{hook}\n", canaries.display());
        write(dir, format!("hooks/{hook}").as_bytes(), text.as_bytes());
        chmod(dir, &format!("hooks/{hook}"), 0o755);
    }
    let update = format!("!touch {}/submodule", canaries.display());
    write(
        dir,
        b".gitmodules",
        format!("[submodule \"s\"]\n\tpath = s\n\turl = ext::sh -c \"touch {}/url\"\n\tupdate = {update}\n", canaries.display()).as_bytes(),
    );
    git(dir, &["config", "submodule.s.update", &update]);
    write(
        dir,
        b".gitattributes",
        b"* filter=x diff=x merge=x\n*.y filter=y\n",
    );
    write(dir, b"a.y", b"1\n");
}

fn coder(ask: &Ask) -> Answer {
    let edit = |path: &str, content: &str| {
        Answer::call("write_file", json!({"path": path, "content": content}))
    };
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => edit("a.txt", "changed\n"),
        (_, 1) => edit("a.y", "2\n"),
        (_, 2) => edit("out/made", "never outside\n"),
        (_, 3) => edit("nested/inner", "2\n"),
        (_, 4) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "changed them"),
    }
}

/// How a result comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Branch,
    Patch,
    Apply,
}

#[tokio::test]
async fn no_run_springs_a_trap_or_follows_a_link() {
    for way in [Way::Branch, Way::Patch, Way::Apply] {
        let apply = way == Way::Apply;
        let dir = tempfile::tempdir().unwrap();
        let (canaries, outside) = (dir.path().join("canaries"), dir.path().join("outside"));
        std::fs::create_dir(&canaries).unwrap();
        std::fs::create_dir(&outside).unwrap();
        write(&outside, b"kept", b"outside\n");
        let work = repository(
            &dir.path().join("work"),
            &[("a.txt", "1\n"), ("b.txt", "2\n")],
        );
        symlink(&outside, work.join("out")).unwrap();
        let nested = work.join("nested");
        init(&nested);
        write(&nested, b"inner", b"1\n");
        lay(&nested, &canaries);
        lay(&work, &canaries);
        write(&work, b"b.txt", b"dirty\n");
        if way == Way::Branch {
            // With a filter for everything, there is no branch.
            write(&work, b".gitattributes", b"* diff=x merge=x\n");
            write(&nested, b".gitattributes", b"* diff=x merge=x\n");
        }

        let mut world = World::new(&[]);
        world.workspace.clone_from(&work);
        world.options.apply = apply;
        if apply {
            world.options.delivery = Delivery::Patch(dir.path().join("result.patch"));
        }
        let ran = world
            .run(PLAN, move |ask| match (way, ask.role, ask.ordinal) {
                // What belongs to a repository of its own is on no branch.
                (Way::Branch, Role::Worker, 3) => write_file("c.txt", "3\n"),
                _ => coder(ask),
            })
            .await;
        assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
        assert_eq!(ran.summary.branch.is_some(), way == Way::Branch, "{way:?}");
        let fired: Vec<_> = std::fs::read_dir(&canaries)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(fired.is_empty(), "{fired:?}");
        assert_eq!(
            std::fs::read_dir(&outside).unwrap().count(),
            1,
            "nothing new outside"
        );
        assert_eq!(read(&outside, "kept"), "outside\n");
        assert_eq!(read(&work, "b.txt"), "dirty\n");
        if !apply {
            assert_eq!(read(&work, "a.txt"), "1\n");
        }
        // The trap works: the operator's own git springs it.
        git(&work, &["checkout", "-q", "-b", "sprung"]);
        assert!(std::fs::read_dir(&canaries).unwrap().next().is_some());
    }
}
