//! Runs `images/base/bootstrap.sh`: the base image from Debian's packages, without a registry.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio_util::io::ReaderStream;

use super::Error;
use super::build::{self, Stage, Tail};
use super::docker::Docker;

pub(super) const SCRIPT: &str = include_str!("../../images/base/bootstrap.sh");
pub(super) const PACKAGES: &str = include_str!("../../images/base/packages");
/// Longest time the script may take; it takes about half a minute on two cores.
const LIMIT: Duration = Duration::from_secs(900);

/// Makes `repo:tag` from Debian's packages. Root only, since it unpacks a system.
pub(super) async fn base(
    docker: &Docker,
    repo: &str,
    tag: &str,
    stage: &mut Stage<'_>,
) -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Image {
            image: repo.to_owned(),
            reason: "no registry is reached, and making it from Debian's packages needs root"
                .to_owned(),
            hint: "run once: sudo wharf images build".to_owned(),
        });
    }
    let dir = tempfile::tempdir().map_err(|e| failed(repo, e.to_string()))?;
    write(dir.path(), "bootstrap.sh", SCRIPT).map_err(|e| failed(repo, e.to_string()))?;
    write(dir.path(), "packages", PACKAGES).map_err(|e| failed(repo, e.to_string()))?;
    run(dir.path(), stage)
        .await
        .map_err(|reason| failed(repo, reason))?;
    let out = tokio::fs::File::open(dir.path().join("root.tar"))
        .await
        .map_err(|e| failed(repo, e.to_string()))?;
    stage.line("importing");
    build::import(docker, repo, tag, ReaderStream::with_capacity(out, 1 << 18)).await
}

fn write(dir: &Path, name: &str, text: &str) -> std::io::Result<()> {
    std::fs::write(dir.join(name), text)
}

/// Asks a process group to end: the script's children clear up after themselves on TERM, not on KILL.
struct Group(Option<rustix::process::Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(group) = self.0 else { return };
        let signal = rustix::process::Signal::TERM;
        if let Err(error) = rustix::process::kill_process_group(group, signal) {
            tracing::trace!(%error, "the bootstrap script is gone already");
        }
    }
}

/// Runs the script to its end; a dropped future ends it.
async fn run(dir: &Path, stage: &mut Stage<'_>) -> Result<(), String> {
    let mut child = Command::new("sh")
        .args(["bootstrap.sh", "packages", "root.tar"])
        .current_dir(dir)
        .env("TMPDIR", dir)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("bootstrap.sh did not start: {e}"))?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let mut group = Group(pid.and_then(rustix::process::Pid::from_raw));
    let mut tail = Tail::default();
    let work = async {
        if let Some(stderr) = child.stderr.take() {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                tail.push(&line);
                tail.push("\n");
                stage.line(&line);
            }
        }
        child.wait().await
    };
    let ended = tokio::time::timeout(LIMIT, work).await;
    if matches!(ended, Ok(Ok(_))) {
        group.0 = None;
    }
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("bootstrap.sh ended with {status}\n{}", tail.text())),
        Ok(Err(e)) => Err(format!("bootstrap.sh could not be waited for: {e}")),
        Err(_) => Err(format!(
            "bootstrap.sh took longer than {} s",
            LIMIT.as_secs()
        )),
    }
}

fn failed(image: &str, reason: String) -> Error {
    Error::Image {
        image: image.to_owned(),
        reason,
        hint: "the host needs Debian's apt and a way to Debian's mirrors, or the engine a registry"
            .to_owned(),
    }
}
