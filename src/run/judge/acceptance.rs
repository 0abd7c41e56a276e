//! The operator's acceptance commands, run by Wharf itself at a tree nobody can change any more.

use std::sync::Arc;

use tokio::time::Instant;

use crate::id::{CommitId, RoleName, SubtaskId, TreeId};
use crate::journal::{Agent, CommandRun, Event, TestCount, WithBase};
use crate::plan::AcceptanceCommand;
use crate::run::Error;
use crate::run::allow::egress;
use crate::run::board::Notice;
use crate::run::end::summary::ChangedCheck;
use crate::run::judge::outcome::{self, Outcome};
use crate::run::judge::{collected, suspects};
use crate::run::round::drive::Drive;
use crate::run::work::desk;
use crate::run::work::keep::{self, REOPENINGS};
use crate::run::work::settings;
use crate::sandbox::{self, Command, Exit, Sandbox};

/// Bytes of a command's output that are kept as evidence.
const TAIL: usize = 2000;
/// Bytes of the beginning and of the end of each stream that are read for what they say of tests.
const READ: usize = 256 << 10;

/// Notes of commands that have no result.
const NOT_RUN: &str = "not run: ";
const STOPPED: &str = "the run was stopped";
const NO_END: &str = "it did not end";

/// What Wharf itself found at the merged tree.
pub(in crate::run) struct Checked {
    pub accepted: Accepted,
    /// Protected paths that differ from the base, for display.
    pub protected: Vec<String>,
    pub checks: Vec<ChangedCheck>,
}

/// What the acceptance commands came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::run) struct Accepted {
    pub commands: Vec<CommandRun>,
    /// Again with the base's version of released files.
    pub with_base: Option<WithBase>,
    /// At the base.
    pub at_base: Vec<CommandRun>,
}

impl Accepted {
    /// True when there are commands and each of them ran and passed.
    pub fn all_passed(&self) -> bool {
        let outcomes = outcome::all(&self.commands, &self.at_base);
        !outcomes.is_empty() && outcomes.iter().all(|o| matches!(o, Outcome::Passed))
    }

    /// What an event says of it, with the round and the tree that it is about.
    pub fn of(event: &Event) -> Option<(u32, TreeId, Self)> {
        match event {
            Event::AcceptanceRan {
                round,
                tree,
                commands,
                with_base_tests,
                at_base,
                ..
            } => {
                let accepted = Self {
                    commands: commands.clone(),
                    with_base: with_base_tests.clone(),
                    at_base: at_base.clone(),
                };
                Some((*round, tree.clone(), accepted))
            }
            _ => None,
        }
    }
}

/// Where one pass over the commands ended.
struct Pass {
    runs: Vec<CommandRun>,
    /// Why the rest could not be run.
    broken: Option<sandbox::Error>,
}

impl Drive {
    /// What Wharf itself finds at the merged tree, or found there in an earlier process.
    pub async fn check_result(&mut self, tree: &TreeId) -> Result<Checked, Error> {
        let shared = self.shared.clone();
        let source = |source| Error::Workspace { source };
        let (base, protect) = (&shared.base.commit, &shared.plan.protect);
        let protected = shared.store.protected(base, &self.merged, protect).await;
        let protected = protected.map_err(source)?;
        let checks = suspects::of(&shared, &self.merged).await.map_err(source)?;
        let accepted = match self.accepted_before(tree) {
            Some(known) => known,
            None => {
                let commands = self.accept_commands().await;
                Accepted {
                    with_base: self.accept_with_base(&commands, &checks).await?,
                    at_base: self.accept_at_base(tree, &commands).await,
                    commands,
                }
            }
        };
        if !accepted.at_base.is_empty() {
            self.at_base.clone_from(&accepted.at_base);
        }
        Ok(Checked {
            accepted,
            protected,
            checks: checks.into_iter().map(|suspect| suspect.check).collect(),
        })
    }

    /// What the acceptance commands came to on this very tree in an earlier process, where each of them
    /// came to something: one that was stopped or never ran has no result yet. In a replay with recorded
    /// tools, what was recorded of them.
    fn accepted_before(&self, tree: &TreeId) -> Option<Accepted> {
        let commands = &self.shared.plan.acceptance.commands;
        let script = self.shared.script.as_ref();
        if let Some(known) = script.and_then(|s| s.accepted(self.round, tree, commands)) {
            return Some(known);
        }
        let known = self.shared.past.acceptance(self.round, tree)?;
        let beside = known.with_base.iter().flat_map(|with| &with.commands);
        let mut all = known.commands.iter().chain(beside).chain(&known.at_base);
        all.all(is_told).then(|| known.clone())
    }

    /// Runs the commands in a fresh sandbox at the merged tree; their exit codes are facts.
    async fn accept_commands(&mut self) -> Vec<CommandRun> {
        let merged = self.merged.clone();
        let shared = self.shared.clone();
        let tell = |run: &CommandRun| {
            shared.tell(&Notice::Acceptance {
                command: run.command.clone(),
                exit_code: run.exit_code,
                seconds: run.seconds,
            });
        };
        match self.run_commands("acceptance", &merged, &tell).await {
            Ok(runs) => runs,
            Err(reason) => {
                self.halt(reason.clone());
                let commands = &self.shared.plan.acceptance.commands;
                commands.iter().map(|c| not_run(c, &reason)).collect()
            }
        }
    }

    /// Runs every command in one sandbox at a commit's tree; `Err` when there is no sandbox. When it
    /// breaks, all of them run once more in another: what the first ones left for the later ones is
    /// gone with it.
    pub(super) async fn run_commands(
        &mut self,
        name: &str,
        commit: &CommitId,
        tell: &(dyn Fn(&CommandRun) + Sync),
    ) -> Result<Vec<CommandRun>, String> {
        let commands = self.shared.plan.acceptance.commands.clone();
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let who = Agent {
            round: self.round,
            subtask: SubtaskId::new(name),
            role: RoleName::new("acceptance"),
        };
        self.fresh = true;
        let mut before = 0;
        loop {
            let sandbox = match self.open_at(&who, commit).await {
                Ok(sandbox) => sandbox,
                // The environment may have failed for a moment: once more, unless the run is to stop.
                Err(reason) if before < REOPENINGS && !self.stopped() => {
                    self.shared.warn(format!(
                        "the sandbox of the acceptance commands could not be opened and is tried once more: {reason}"
                    ));
                    before += 1;
                    continue;
                }
                Err(reason) => return Err(reason),
            };
            let Pass { mut runs, broken } = self.pass(sandbox.as_ref(), &commands, tell).await;
            sandbox.close().await;
            let Some(broken) = broken else {
                return Ok(runs);
            };
            let told = keep::record(&self.shared, &who, &broken, before < REOPENINGS).await;
            let reason = told.unwrap_or_else(|stop| stop.to_string());
            if before >= REOPENINGS {
                let reason = format!("the sandbox broke again after it was replaced: {reason}");
                let rest = commands.iter().skip(runs.len());
                runs.extend(rest.map(|command| not_run(command, &reason)));
                return Ok(runs);
            }
            before += 1;
        }
    }

    async fn pass(
        &self,
        sandbox: &dyn Sandbox,
        commands: &[AcceptanceCommand],
        tell: &(dyn Fn(&CommandRun) + Sync),
    ) -> Pass {
        let mut runs = Vec::new();
        for command in commands {
            match self.accept_command(sandbox, command).await {
                Ok(run) => {
                    tell(&run);
                    runs.push(run);
                }
                // The run is told to stop: no fault of the sandbox's.
                Err(error @ sandbox::Error::Cancelled) => {
                    runs.push(not_run(command, &error.to_string()));
                }
                Err(error) => {
                    let broken = Some(error);
                    return Pass { runs, broken };
                }
            }
        }
        Pass { runs, broken: None }
    }

    async fn open_at(
        &mut self,
        who: &Agent,
        commit: &CommitId,
    ) -> Result<Arc<dyn Sandbox>, String> {
        let plan = self.shared.plan.sandbox.clone();
        let image = self.image(&plan).await?;
        let network = egress::network(&self.shared, &plan.network, who, &self.shared.span);
        let spec = settings::spec(&self.shared, &plan, image, who.subtask.as_str(), network);
        let standing = self.standing(commit).await;
        let standing = standing.map_err(|error| error.to_string())?;
        let opened = desk::open(&self.shared, who, &spec, &standing.tree).await;
        opened.map_err(|stop| stop.to_string())
    }

    async fn accept_command(
        &self,
        sandbox: &dyn Sandbox,
        command: &AcceptanceCommand,
    ) -> Result<CommandRun, sandbox::Error> {
        let since = Instant::now();
        let line = Command {
            line: command.run.clone(),
            timeout: command.timeout,
            background: false,
            keep: READ,
        };
        let finished = sandbox.run(&line, &self.shared.stop.cancel).await?;
        let (exit_code, note) = told(finished.exit, command);
        Ok(CommandRun {
            command: command.run.clone(),
            exit_code,
            seconds: since.elapsed().as_secs_f64(),
            output_tail: tail(&finished),
            note,
            tests: tests(&finished),
        })
    }
}

pub(super) fn not_run(command: &AcceptanceCommand, reason: &str) -> CommandRun {
    CommandRun {
        command: command.run.clone(),
        exit_code: None,
        seconds: 0.0,
        output_tail: String::new(),
        note: Some(format!("{NOT_RUN}{reason}")),
        tests: None,
    }
}

/// The exit code, or why it cannot be told.
fn told(exit: Exit, command: &AcceptanceCommand) -> (Option<i32>, Option<String>) {
    match exit {
        Exit::Code(code) => (Some(code), None),
        // A shell may answer 0 although what it ran was killed: then nothing is known of the rest.
        Exit::OutOfMemory(code) => (
            (code != 0).then_some(code),
            Some("the memory limit killed a process of it".to_owned()),
        ),
        Exit::Full(_) => (None, Some("killed: the disk was full".to_owned())),
        Exit::TimedOut => (
            None,
            Some(format!("killed after {} s", command.timeout.as_secs())),
        ),
        Exit::Cancelled => (None, Some(STOPPED.to_owned())),
        Exit::Running => (None, Some(NO_END.to_owned())),
    }
}

/// True when a command ran to its end or to a limit of its own.
fn is_told(run: &CommandRun) -> bool {
    let cut = |note: &str| note.starts_with(NOT_RUN) || note == STOPPED || note == NO_END;
    run.exit_code.is_some() || run.note.as_deref().is_some_and(|note| !cut(note))
}

/// What the output says of tests; of one that is not all there nothing can be told.
fn tests(finished: &sandbox::Finished) -> Option<TestCount> {
    let mut text = String::new();
    for stream in [&finished.stdout, &finished.stderr] {
        let kept = stream.head.len() + stream.tail.len();
        if stream.total > kept as u64 {
            return None;
        }
        text.push_str(&String::from_utf8_lossy(&stream.head));
        text.push_str(&String::from_utf8_lossy(&stream.tail));
        text.push('\n');
    }
    collected::of(&text)
}

fn tail(finished: &sandbox::Finished) -> String {
    let end = |stream: &sandbox::Stream| {
        let bytes = [&stream.head[..], &stream.tail[..]].concat();
        let from = bytes.len().saturating_sub(TAIL);
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    };
    let both = format!("{}{}", end(&finished.stdout), end(&finished.stderr));
    let from = both.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
    both[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_an_exit_code_that_is_known_is_one() {
        let command = AcceptanceCommand {
            run: "make test".to_owned(),
            timeout: Duration::from_secs(60),
        };
        let code = |exit| told(exit, &command).0;
        assert_eq!(code(Exit::Code(0)), Some(0));
        assert_eq!(code(Exit::OutOfMemory(137)), Some(137));
        for unknown in [
            Exit::OutOfMemory(0),
            Exit::Full(137),
            Exit::TimedOut,
            Exit::Cancelled,
            Exit::Running,
        ] {
            let (code, note) = told(unknown, &command);
            assert_eq!(code, None, "{unknown:?}");
            assert!(note.is_some(), "{unknown:?}");
        }
    }
}
