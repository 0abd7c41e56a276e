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
use wharf::id::CommitId;
use wharf::sandbox::{Engine as _, ImageSpec};
use wharf::workspace::{Applied, Base, Edit, Force, Git, Merged, Reach, Step, Version};

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

/// A container of Debian 12 that sees a new directory of this machine; None where there can be none.
async fn container() -> Option<(Container, tempfile::TempDir)> {
    let (docker, _) = engine().await?;
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
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let container = Container::start(&image.id, dir.path());
    if !container.sees(dir.path()) {
        eprintln!("SKIPPED: the engine does not see {}", dir.path().display());
        return None;
    }
    Some((container, dir))
}

#[tokio::test]
async fn debian_12_s_git_does_all_of_it() {
    let Some((container, dir)) = container().await else {
        return;
    };
    let theirs = container.git(dir.path());
    let (major, minor) = (2, 39);
    assert_eq!(theirs.version().await.unwrap(), Version { major, minor });
    let world = World::of(dir, theirs).await;
    let repo = nasty(world.dir.path());
    let (before, status_before) = (state(&repo), status(&repo));
    let base = same_as_ours(&world, &repo).await;
    let merged = merges(&world, &base).await;
    let out = world.path("p.patch");
    let patched = world.store.deliver_patch(&base.commit, &merged, "", &out);
    patched.await.unwrap();
    assert!(std::fs::metadata(&out).unwrap().len() > 0);
    assert_eq!(state(&repo), before);
    assert_eq!(status(&repo), status_before);

    let steps = [Step {
        commit: merged.clone(),
        message: "m".into(),
    }];
    let delivered = world.store.deliver_branch(&repo, &base, "r", &steps);
    delivered.await.unwrap();
    assert_eq!(git(&repo, &["show", "r:new"]), "1\n");
    git(&repo, &["fsck", "--connectivity-only"]);
    let applied = world.store.apply(&repo, &base.commit, &merged, Force::No);
    let applied = applied.await.unwrap();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    assert_eq!(read(&repo, "tracked.txt"), "ONE\ndirty\n");
}

/// The base and history that both gits take.
async fn same_as_ours(world: &World, repo: &Path) -> Base {
    let (ours, source) = (World::new().await, source(repo));
    let reach = Reach {
        commits: 20,
        bytes: 8 << 20,
    };
    let (base, newer) = (world.base(repo).await, ours.base(repo).await);
    assert_eq!(base.commit, newer.commit);
    let history = world.store.history(&source, &base, reach).await.unwrap();
    let newer = ours.store.history(&source, &newer, reach).await.unwrap();
    assert_eq!(history.unwrap().tip, newer.unwrap().tip);
    base
}

/// A merge that conflicts, and the commit of one that does not.
async fn merges(world: &World, base: &Base) -> CommitId {
    let child = async |edits: &[Edit]| world.child(&base.commit, edits).await;
    let one = child(&[put("tracked.txt", "ONE\ndirty\n"), put("new", "1\n")]).await;
    let two = child(&[put("tracked.txt", "one\nDIRTY\n"), delete("crlf.txt")]).await;
    let merged = world.store.merge(&one, &two).await.unwrap();
    assert!(matches!(merged, Merged::Conflict(_)), "{merged:?}");
    let three = child(&[put("staged.txt", "three\n")]).await;
    match world.store.merge_all(&[one, three]).await.unwrap().merged {
        Merged::Clean(commit) => commit,
        conflict => panic!("{conflict:?}"),
    }
}
