//! A program of the operator's own on this machine: JSON on its standard input, bounded output, a time
//! limit, and an end for all of its process group.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// Bytes that a program may print on each of its two streams.
pub const PRINTED: usize = 1 << 20;
/// How long its streams may stay open after it ended, for what it left running.
const AFTER: Duration = Duration::from_millis(500);

/// What is run and how.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// A line for `/bin/sh`.
    pub line: &'a str,
    pub dir: &'a Path,
    /// All of its environment.
    pub env: &'a [(String, String)],
    pub limit: Duration,
}

/// How it ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Why it has no end of its own.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("it could not be started in {}: {source}", dir.display())]
    Start {
        dir: PathBuf,
        source: std::io::Error,
    },
    #[error("it did not end within {} s and was killed", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("it printed more than {} KiB and was killed", PRINTED >> 10)]
    TooMuch,
    #[error("a signal ended it")]
    Signalled,
    #[error("its output could not be read: {0}")]
    Io(std::io::Error),
    #[error("it was killed: the run is told to stop")]
    Cancelled,
}

/// Runs a program to its end. Whatever the end, nothing of its process group is left.
pub async fn run(
    program: Program<'_>,
    input: &[u8],
    cancel: &CancellationToken,
) -> Result<Ended, Fault> {
    let mut group = start(&program)?;
    let worked = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Fault::Cancelled),
        ended = work(&mut group.child, input) => ended,
        () = tokio::time::sleep(program.limit) => Err(Fault::TimedOut(program.limit)),
    };
    group.kill();
    worked
}

fn start(program: &Program<'_>) -> Result<Group, Fault> {
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(program.line)
        .current_dir(program.dir)
        .env_clear()
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| Fault::Start {
            dir: program.dir.to_owned(),
            source,
        })?;
    Ok(Group {
        leader: child.id().and_then(|id| i32::try_from(id).ok()),
        child,
    })
}

async fn work(child: &mut Child, input: &[u8]) -> Result<Ended, Fault> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that does not want to know closes its end.
            drop(stdin.write_all(input).await);
        }
        std::future::pending::<()>().await;
    };
    let read = async { tokio::try_join!(all(stdout), all(stderr)) };
    tokio::pin!(feed, read);
    let mut printed = None;
    let status: ExitStatus = loop {
        tokio::select! {
            out = &mut read, if printed.is_none() => printed = Some(out?),
            status = child.wait() => break status.map_err(Fault::Io)?,
            () = &mut feed => {}
        }
    };
    let (stdout, stderr) = match printed {
        Some(printed) => printed,
        // What it left running holds the streams open and is killed with the group.
        None => tokio::time::timeout(AFTER, read)
            .await
            .map_err(|_| Fault::TimedOut(AFTER))??,
    };
    Ok(Ended {
        code: status.code().ok_or(Fault::Signalled)?,
        stdout,
        stderr,
    })
}

async fn all(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    if let Some(stream) = stream {
        let mut bounded = stream.take(PRINTED as u64 + 1);
        bounded.read_to_end(&mut out).await.map_err(Fault::Io)?;
    }
    match out.len() > PRINTED {
        true => Err(Fault::TooMuch),
        false => Ok(out),
    }
}

/// A started program and everything it starts.
struct Group {
    child: Child,
    leader: Option<i32>,
}

impl Group {
    fn kill(&mut self) {
        let leader = self.leader.take().and_then(rustix::process::Pid::from_raw);
        if let Some(leader) = leader {
            // None of it may be left by now, which is as good.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Group {
    /// For an agent's task that is dropped in the middle.
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn line(line: &str, limit: Duration, cancel: &CancellationToken) -> Result<Ended, Fault> {
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let program = Program {
            line,
            dir: Path::new("/"),
            env: &env,
            limit,
        };
        run(program, b"{\"a\":1}", cancel).await
    }

    async fn sh(text: &str) -> Result<Ended, Fault> {
        line(text, Duration::from_secs(20), &CancellationToken::new()).await
    }

    #[tokio::test]
    async fn it_gets_its_input_and_an_environment_of_its_own() {
        let ended = sh("cat; env | sort | cut -d= -f1 >&2; exit 3")
            .await
            .unwrap();
        assert_eq!(
            (ended.code, ended.stdout.as_slice()),
            (3, &b"{\"a\":1}"[..])
        );
        let names = String::from_utf8(ended.stderr).unwrap();
        assert!(
            names
                .lines()
                .all(|name| ["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name)),
            "{names}"
        );
        assert_eq!(sh("exec <&-; exit 0").await.unwrap().code, 0);
    }

    #[tokio::test]
    async fn too_much_a_signal_and_no_folder_are_faults() {
        assert!(matches!(sh("yes").await, Err(Fault::TooMuch)));
        assert!(matches!(sh("yes >&2").await, Err(Fault::TooMuch)));
        assert!(matches!(sh("kill -9 $$").await, Err(Fault::Signalled)));
        let program = Program {
            line: "true",
            dir: Path::new("/nowhere"),
            env: &[],
            limit: Duration::from_secs(5),
        };
        let started = run(program, b"", &CancellationToken::new()).await;
        assert!(matches!(started, Err(Fault::Start { .. })));
    }

    /// True once nothing runs any more that has this in its command line.
    async fn gone(mark: &str) -> bool {
        for _ in 0..100 {
            let mut found = false;
            for entry in std::fs::read_dir("/proc").unwrap().flatten() {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found |= String::from_utf8_lossy(&line).contains(mark);
            }
            if !found {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    #[tokio::test]
    async fn what_it_started_ends_with_it() {
        let cancel = CancellationToken::new();
        let slow = line(
            "sleep 4711.1 & sleep 4711.1",
            Duration::from_millis(200),
            &cancel,
        );
        assert!(matches!(slow.await, Err(Fault::TimedOut(_))));
        assert!(gone("4711.1").await);
        // It ends in order and leaves a child that holds its streams.
        assert!(matches!(
            sh("sleep 4712.2 & exit 0").await,
            Err(Fault::TimedOut(_))
        ));
        assert!(gone("4712.2").await);
        assert_eq!(
            sh("sleep 4713.3 >/dev/null 2>&1 & exit 0")
                .await
                .unwrap()
                .code,
            0
        );
        assert!(gone("4713.3").await);
        let running = line("sleep 4714.4", Duration::from_secs(20), &cancel);
        let (ended, ()) = tokio::join!(running, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cancel.cancel();
        });
        assert!(matches!(ended, Err(Fault::Cancelled)));
        assert!(gone("4714.4").await);
        // Dropped in the middle.
        let dropped = tokio::time::timeout(Duration::from_millis(200), sh("sleep 4715.5 & wait"));
        assert!(dropped.await.is_err());
        assert!(gone("4715.5").await);
    }
}
