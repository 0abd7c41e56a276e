//! The operator's acceptance commands, run by Wharf itself at a tree nobody can change any more.

use std::sync::Arc;

use tokio::time::Instant;

use super::board::Notice;
use super::drive::Drive;
use super::{Error, desk, egress, settings};
use crate::id::{CommitId, RoleName, SubtaskId};
use crate::journal::{Agent, CommandRun, WithBase};
use crate::plan::AcceptanceCommand;
use crate::sandbox::{self, Command, Exit, Sandbox};
use crate::workspace;

/// Bytes of a command's output that are kept as evidence.
const TAIL: usize = 2000;

impl Drive {
    /// Runs the commands in a fresh sandbox at the merged tree; their exit codes are facts.
    pub async fn accept_commands(&mut self) -> Vec<CommandRun> {
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

    /// Runs them again with the base's version of the files that `protect` lets agents change by a
    /// `!`, where any was: evidence that decides nothing.
    pub async fn accept_with_base(&mut self) -> Result<Option<WithBase>, Error> {
        let shared = self.shared.clone();
        let commands = &shared.plan.acceptance.commands;
        if commands.is_empty() || self.stopped() {
            return Ok(None);
        }
        let (store, base) = (&shared.store, &shared.base.commit);
        let source = |source| Error::Workspace { source };
        let released = store.released(base, &self.merged, &shared.plan.protect);
        let released = released.await.map_err(source)?;
        if released.is_empty() {
            return Ok(None);
        }
        let tree = store.put_back(&self.merged, base, &released).await;
        let tree = tree.map_err(source)?;
        let ran = self.run_commands("acceptance-base", &tree, &|_| {}).await;
        let runs = match ran {
            Ok(runs) => runs,
            Err(reason) => commands.iter().map(|c| not_run(c, &reason)).collect(),
        };
        Ok(Some(WithBase {
            paths: released
                .iter()
                .map(|path| workspace::display(path))
                .collect(),
            commands: runs,
        }))
    }

    /// Runs every command in one sandbox at a commit's tree; `Err` when there is no sandbox.
    async fn run_commands(
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
        let sandbox = self.open_at(&who, commit).await?;
        let mut runs = Vec::new();
        for command in &commands {
            let run = self.accept_command(sandbox.as_ref(), command).await;
            tell(&run);
            runs.push(run);
        }
        sandbox.close().await;
        Ok(runs)
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
    ) -> CommandRun {
        let since = Instant::now();
        let line = Command {
            line: command.run.clone(),
            timeout: command.timeout,
            background: false,
            keep: TAIL,
        };
        let ran = sandbox.run(&line, &self.shared.stop.cancel).await;
        let seconds = since.elapsed().as_secs_f64();
        match ran {
            Ok(finished) => {
                let (exit_code, note) = told(finished.exit, command);
                let output_tail = tail(&finished);
                CommandRun {
                    command: command.run.clone(),
                    exit_code,
                    seconds,
                    output_tail,
                    note,
                }
            }
            Err(error) => CommandRun {
                seconds,
                ..not_run(command, &error.to_string())
            },
        }
    }
}

fn not_run(command: &AcceptanceCommand, reason: &str) -> CommandRun {
    CommandRun {
        command: command.run.clone(),
        exit_code: None,
        seconds: 0.0,
        output_tail: String::new(),
        note: Some(format!("not run: {reason}")),
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
        Exit::TimedOut => (
            None,
            Some(format!("killed after {} s", command.timeout.as_secs())),
        ),
        Exit::Cancelled => (None, Some("the run was stopped".to_owned())),
        Exit::Running => (None, Some("it did not end".to_owned())),
    }
}

fn tail(finished: &sandbox::Finished) -> String {
    let end = |stream: &sandbox::Stream| {
        let bytes = if stream.tail.is_empty() {
            &stream.head
        } else {
            &stream.tail
        };
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
