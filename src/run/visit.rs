//! A sandbox at what a subtask left, for a person to look around in; nothing done there reaches the run.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::id::{CommitId, RoleName, RunId};
use crate::journal::{self, State};
use crate::plan::{self, Plan};
use crate::run::again::{files, resume};
use crate::run::begin::kept::Kept;
use crate::run::begin::lock;
use crate::run::work::settings;
use crate::run::work::trees;
use crate::run::{Error, Options};
use crate::sandbox::{self, Command, Engine, Exit, Labels, Network, Progress, Sandbox};
use crate::workspace::Store;

/// Bytes kept of the beginning and of the end of each stream of a line.
const KEEP: usize = 1 << 20;
/// Where a line's shell leaves the directory that the next one begins in.
const WHERE: &str = "/home/agent/.tmp/.wharf-shell-directory";
/// Bytes of a path.
const PATH: u64 = 4096;
/// Where a shell begins.
const WORKSPACE: &str = "/workspace";
/// Names of trees beside those of agents.
const BASE: &str = "base";
const RESULT: &str = "result";

/// What is looked at, and with what.
pub struct Visiting<'a> {
    /// The run's directory.
    pub dir: &'a Path,
    /// A subtask or another agent of the run, `base` or `result`.
    pub place: &'a str,
    /// The run's plan.
    pub plan: &'a Plan,
    pub options: Options,
    pub engine: Arc<dyn Engine>,
    pub say: &'a (dyn Fn(&str) + Send + Sync),
}

/// An open sandbox.
pub struct Visit {
    sandbox: Arc<dyn Sandbox>,
    directory: String,
    pub about: About,
    /// Held while it stands, so that nobody takes its container for a dead run's.
    _lock: Option<File>,
}

/// What is looked at.
#[derive(Clone, Debug)]
pub struct About {
    pub run: RunId,
    pub commit: CommitId,
    pub files: usize,
    pub image: String,
    pub network: &'static str,
    /// Another process works on the run.
    pub goes_on: bool,
}

/// What a line came to.
#[derive(Clone, Debug)]
pub struct Said {
    pub stdout: Stream,
    pub stderr: Stream,
    /// As a shell shows it; 124 for one that ran out of time, 130 for one that was cancelled.
    pub code: i32,
    /// What there is to say beside the code.
    pub note: Option<String>,
}

/// What was printed.
#[derive(Clone, Debug)]
pub struct Stream {
    pub head: Bytes,
    /// Bytes that are not shown, and where inside they are.
    pub cut: Option<(u64, Option<String>)>,
    pub tail: Bytes,
}

/// The plan as a run kept it, and what it was started with.
pub struct KeptPlan {
    pub text: String,
    /// The files that it names.
    pub files: BTreeMap<String, String>,
    pub kept: Kept,
}

/// Reads them from a run's directory.
pub fn kept_plan(dir: &Path) -> Result<KeptPlan, Error> {
    let lines = journal::read(&dir.join("journal.jsonl"))?.lines;
    let Some((_, started)) = State::of(&lines).started else {
        return Err(resume::not_begun(dir));
    };
    let kept = resume::kept_of(&lines, &started);
    Ok(KeptPlan {
        text: files::plan_text(dir, &started)?,
        files: files::plan_files(dir, &started)?,
        kept: kept.map_err(|why| resume::unreadable(dir, &why))?,
    })
}

/// Opens a sandbox at the place that is meant, made as that of its agent.
pub async fn visit(how: Visiting<'_>, cancel: &CancellationToken) -> Result<Visit, Error> {
    let lock = match lock::take(how.dir) {
        Ok(lock) => Some(lock),
        Err(Error::Start {
            kind: "running", ..
        }) => None,
        Err(error) => return Err(error),
    };
    let state = State::of(&journal::read(&how.dir.join("journal.jsonl"))?.lines);
    let (Some((_, started)), Some(base)) = (&state.started, &state.base) else {
        return Err(refused(
            "the run took no base snapshot".to_owned(),
            "`wharf runs` lists the runs".to_owned(),
        ));
    };
    let (commit, role) = place(&state, how.place)?;
    let role = role.and_then(|role| how.plan.roles.get(&role));
    let wanted = role.map_or(&how.plan.sandbox, |role| &role.sandbox);
    let source = |source| Error::Workspace { source };
    let store = how.dir.join("store.git");
    let store = Store::open(how.options.git.clone(), store).map_err(source)?;
    let tree = trees::tree(&store, &commit).await.map_err(source)?;
    let spec = settings::image_of(&store, &base.commit, wanted, how.options.bootstrap);
    let spec = spec.await.map_err(source)?;
    let image = how.engine.prepare(&spec, &Saying(how.say), cancel).await;
    let image = image.map_err(|error| environment(&error))?;
    let (network, words) = network(&wanted.network);
    let labels = Labels {
        machine: how.options.machine.clone(),
        state: how.options.state.display().to_string(),
        run: started.run.to_string(),
        subtask: "shell".to_owned(),
    };
    let about = About {
        run: started.run.clone(),
        commit,
        files: tree.entries.len(),
        image: image.name.clone(),
        network: words,
        goes_on: lock.is_none(),
    };
    let spec = settings::spec_of(wanted, image, labels, network);
    let sandbox = how.engine.open(&spec, &tree, cancel).await;
    Ok(Visit {
        sandbox: sandbox.map_err(|error| environment(&error))?,
        directory: WORKSPACE.to_owned(),
        about,
        _lock: lock,
    })
}

impl Visit {
    /// Where the next line begins.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Runs one line as a shell's own, in the directory that the last one ended in. An error means that
    /// the sandbox is gone.
    pub async fn line(
        &mut self,
        line: &str,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> Result<Said, Error> {
        let command = Command {
            line: wrapped(&self.directory, line),
            timeout,
            background: false,
            keep: KEEP,
        };
        let finished = self.sandbox.run(&command, cancel).await;
        let finished = finished.map_err(|error| environment(&error))?;
        let read = self.sandbox.read(WHERE, 0, PATH).await;
        if let Ok(Ok(left)) = read
            && let Ok(text) = String::from_utf8(left.bytes.to_vec())
            && text.starts_with('/')
        {
            text.trim_end_matches('\n').clone_into(&mut self.directory);
        }
        let (code, note) = told(finished.exit, timeout);
        Ok(Said {
            stdout: stream(finished.stdout),
            stderr: stream(finished.stderr),
            code,
            note,
        })
    }

    /// Ends the sandbox, and with it all that was done in it.
    pub async fn close(self) {
        self.sandbox.close().await;
    }
}

/// The commit of a place by its name, and the role of the agent that left it.
fn place(state: &State, name: &str) -> Result<(CommitId, Option<RoleName>), Error> {
    let mut agents = state.agents.iter().rev();
    let agent = agents.find(|(agent, _)| agent.subtask.as_str() == name);
    if let Some((agent, known)) = agent {
        let ended = state.subtasks.get(&agent.subtask);
        let left = ended.and_then(|ended| ended.snapshot.clone());
        let commit = left.or_else(|| known.snapshot.clone());
        if let Some(commit) = commit.or_else(|| known.start.clone()) {
            return Ok((commit, Some(agent.role.clone())));
        }
    }
    let base = state.base.as_ref().map(|base| base.commit.clone());
    let result = state.ended.as_ref().map(|ended| &ended.result["snapshot"]);
    let result = result.and_then(|value| value.as_str().map(CommitId::new));
    let found = match name {
        BASE => base,
        RESULT => result,
        _ => None,
    };
    if let Some(commit) = found {
        return Ok((commit, None));
    }
    let mut known: Vec<&str> = vec![BASE, RESULT];
    // The run's summary is asked for without a sandbox.
    let began = state.agents.iter().filter(|(_, a)| a.start.is_some());
    known.extend(began.map(|(agent, _)| agent.subtask.as_str()));
    known.sort_unstable();
    known.dedup();
    Err(refused(
        format!("the run has nothing named {name} that a sandbox could be opened at"),
        format!("it has {}", known.join(", ")),
    ))
}

/// A shell's own line; what it does to the shell itself, `exit` included, stays in it.
fn wrapped(directory: &str, line: &str) -> String {
    let quoted = directory.replace('\'', r"'\''");
    format!("trap 'pwd >{WHERE}' EXIT\ncd -- '{quoted}' || exit\n{line}\n")
}

fn told(exit: Exit, timeout: Duration) -> (i32, Option<String>) {
    match exit {
        Exit::Code(code) => (code, None),
        Exit::TimedOut => {
            let limit = plan::show_duration(timeout);
            (124, Some(format!("killed after {limit}")))
        }
        Exit::Cancelled => (130, Some("killed".to_owned())),
        Exit::OutOfMemory(code) => {
            let said = "the memory limit killed a process of it".to_owned();
            (if code == 0 { 137 } else { code }, Some(said))
        }
        Exit::Full(code) => {
            let said = "killed: the disk was full".to_owned();
            (if code == 0 { 137 } else { code }, Some(said))
        }
        Exit::Running => (125, Some("it did not end".to_owned())),
    }
}

fn stream(stream: sandbox::Stream) -> Stream {
    let shown = (stream.head.len() + stream.tail.len()) as u64;
    let cut = stream.total.saturating_sub(shown);
    let spool = stream.spool.map(|spool| spool.path);
    Stream {
        head: stream.head,
        cut: (cut > 0).then_some((cut, spool)),
        tail: stream.tail,
    }
}

/// A person's sandbox has no credentials to hand out and no journal to tell of connections.
fn network(network: &plan::Network) -> (Network, &'static str) {
    match network {
        plan::Network::Full => (Network::Full, "full network"),
        plan::Network::None => (Network::None, "no network"),
        plan::Network::Allow(_) => (
            Network::None,
            "no network (the role's list of hosts is not open here)",
        ),
    }
}

struct Saying<'a>(&'a (dyn Fn(&str) + Send + Sync));

impl Progress for Saying<'_> {
    fn say(&self, line: &str) {
        (self.0)(line);
    }
}

fn environment(error: &sandbox::Error) -> Error {
    let (code, kind) = match error {
        sandbox::Error::Cancelled => (130, "interrupted"),
        _ => (3, "sandbox"),
    };
    let hint = match error {
        sandbox::Error::Image { hint, .. } if !hint.is_empty() => hint.clone(),
        sandbox::Error::Setup { output, .. } => format!("its last output was:\n{output}"),
        _ => "`wharf doctor` checks the engine; open another shell".to_owned(),
    };
    Error::Start {
        code,
        kind,
        message: error.to_string(),
        hint,
    }
}

fn refused(message: String, hint: String) -> Error {
    Error::Start {
        code: 2,
        kind: "run",
        message,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_runs_in_its_directory_whatever_that_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("it's $HOME \"here\"");
        std::fs::create_dir(&odd).unwrap();
        let line = wrapped(&odd.display().to_string(), "pwd; exit 7")
            .replace(WHERE, &dir.path().join("left").display().to_string());
        for shell in ["sh", "bash"] {
            let out = std::process::Command::new(shell)
                .args(["-c", &line])
                .output()
                .unwrap();
            assert_eq!(out.status.code(), Some(7), "{out:?}");
            let printed = String::from_utf8(out.stdout).unwrap();
            assert_eq!(printed.trim_end(), odd.display().to_string());
            let left = std::fs::read_to_string(dir.path().join("left")).unwrap();
            assert_eq!(left, printed);
        }
    }

    #[test]
    fn what_did_not_end_well_is_never_zero() {
        let limit = Duration::from_secs(60);
        for exit in [
            Exit::TimedOut,
            Exit::Cancelled,
            Exit::OutOfMemory(0),
            Exit::Full(0),
            Exit::Running,
        ] {
            let (code, note) = told(exit, limit);
            assert!(code != 0 && note.is_some(), "{exit:?}");
        }
        assert_eq!(told(Exit::Code(3), limit), (3, None));
    }
}
