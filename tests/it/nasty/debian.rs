//! The git of Debian 12 (2.39) in a container of Debian's packages: the same trees, merges and branches.
//!
//! Each git that Wharf starts is a `docker exec` there, over a directory that both see. Skipped, aloud,
//! where these tests go without an engine, or where the engine does not see this machine's directories.

#![expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test says aloud what it skips, and asks the environment for its engine"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tokio_util::sync::CancellationToken;
use wharf::sandbox::{Engine as _, ImageSpec};
use wharf::workspace::{Applied, Force, Git, Merged, Reach, Step, Version};

use crate::container::{Said, engine};
use crate::workspace::fixture::*;

/// A container that sleeps, and ends with the test.
struct Container(String);

impl Container {
    /// One of this image that sees a directory under its own name.
    fn start(image: &str, dir: &Path) -> Self {
        let mount = format!("{0}:{0}", dir.display());
        let label = format!("wharf.machine=it-{}", std::process::id());
        let id = docker_cli(&[
            "run",
            "-d",
            "--rm",
            "--network",
            "none",
            "--user",
            "0",
            "--label",
            &label,
            "-v",
            &mount,
            "--entrypoint",
            "sleep",
            image,
            "600",
        ]);
        Self(
            id.expect("a container of the base image starts")
                .trim()
                .to_owned(),
        )
    }

    fn sees(&self, path: &Path) -> bool {
        docker_cli(&["exec", &self.0, "test", "-e", path.to_str().unwrap()]).is_some()
    }

    /// A `git` that runs in the container, in the directory and environment it is started with.
    fn git(&self, dir: &Path) -> Git {
        let host = std::env::var("DOCKER_HOST").map(|host| format!("DOCKER_HOST='{host}' "));
        let text = format!(
            "#!/bin/sh\nset -- -w \"$PWD\" {id} git \"$@\"\n\
             for name in $(env | sed -n 's/^\\(GIT_[A-Z_]*\\|LC_ALL\\)=.*/\\1/p'); do\n\
             set -- -e \"$name\" \"$@\"\ndone\n\
             {host}exec docker exec -i -e HOME=/nonexistent \"$@\"\n",
            id = self.0,
            host = host.unwrap_or_default(),
        );
        let bin = dir.join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("git"), text).unwrap();
        std::fs::set_permissions(bin.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
        Git::at(format!("{}:{}", bin.display(), env!("PATH")))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        docker_cli(&["kill", &self.0]);
    }
}

/// What the client printed; None when it failed.
fn docker_cli(args: &[&str]) -> Option<String> {
    let out = Command::new("docker").args(args).output().ok()?;
    if !out.status.success() {
        eprintln!("docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        return None;
    }
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[tokio::test]
async fn debian_12_s_git_does_all_of_it() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let wanted = ImageSpec {
        image: "wharf/base".into(),
        setup: Vec::new(),
        setup_files: Vec::new(),
        bootstrap: true,
    };
    let image = docker
        .prepare(&wanted, &Said, &CancellationToken::new())
        .await
        .unwrap();
    if docker_cli(&["--version"]).is_none() {
        eprintln!("SKIPPED: there is no docker client, which runs that git");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let container = Container::start(&image.id, dir.path());
    if !container.sees(dir.path()) {
        eprintln!("SKIPPED: the engine does not see {}", dir.path().display());
        return;
    }
    let theirs = container.git(dir.path());
    assert_eq!(
        theirs.version().await.unwrap(),
        Version {
            major: 2,
            minor: 39
        }
    );
    let ours = World::new().await;
    let world = World::of(dir, theirs).await;
    let repo = nasty(world.dir.path());
    let (before, status_before) = (state(&repo), status(&repo));
    let base = world.base(&repo).await;
    let newer = ours.base(&repo).await;
    assert_eq!(base.commit, newer.commit, "both gits take the same");
    let reach = Reach {
        commits: 20,
        bytes: 8 << 20,
    };
    let history = world
        .store
        .history(&source(&repo), &base, reach)
        .await
        .unwrap();
    assert_eq!(
        history.unwrap().tip,
        ours.store
            .history(&source(&repo), &newer, reach)
            .await
            .unwrap()
            .unwrap()
            .tip
    );

    let one = world
        .child(
            &base.commit,
            &[put("tracked.txt", "ONE\ndirty\n"), put("new", "1\n")],
        )
        .await;
    let two = world
        .child(
            &base.commit,
            &[put("tracked.txt", "one\nDIRTY\n"), delete("crlf.txt")],
        )
        .await;
    assert!(matches!(
        world.store.merge(&one, &two).await.unwrap(),
        Merged::Conflict(_)
    ));
    let three = world
        .child(&base.commit, &[put("staged.txt", "three\n")])
        .await;
    let folded = world.store.merge_all(&[one, three]).await.unwrap();
    let Merged::Clean(merged) = folded.merged else {
        panic!("{folded:?}");
    };
    let out = world.path("p.patch");
    world
        .store
        .deliver_patch(&base.commit, &merged, "", &out)
        .await
        .unwrap();
    assert!(std::fs::metadata(&out).unwrap().len() > 0);
    assert_eq!(state(&repo), before);
    assert_eq!(status(&repo), status_before);
    let steps = [Step {
        commit: merged.clone(),
        message: "m".into(),
    }];
    world
        .store
        .deliver_branch(&repo, &base, "r", &steps)
        .await
        .unwrap();
    assert_eq!(git(&repo, &["show", "r:new"]), "1\n");
    git(&repo, &["fsck", "--connectivity-only"]);
    let applied = world
        .store
        .apply(&repo, &base.commit, &merged, Force::No)
        .await
        .unwrap();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    assert_eq!(read(&repo, "tracked.txt"), "ONE\ndirty\n");
}
