//! The acceptance commands, run by Wharf itself: their exit codes are facts.

use std::sync::Arc;

use tokio::time::Instant;

use super::board::Notice;
use super::drive::Drive;
use super::keep::{self, REOPENINGS};
use super::{Error, desk, egress, settings};
use crate::id::{RoleName, SubtaskId};
use crate::journal::{Agent, CommandRun};
use crate::plan::AcceptanceCommand;
use crate::sandbox::{self, Command, Exit, Sandbox};

/// Bytes of a command's output that are kept as evidence.
const TAIL: usize = 2000;

/// Where a round of the commands ended.
struct Round {
    runs: Vec<CommandRun>,
    /// Why the rest could not be run.
    broken: Option<sandbox::Error>,
}

impl Drive {
    /// Runs the acceptance commands in a fresh sandbox at the merged tree. When it breaks, all of them
    /// run once more in another: what the first ones left for the later ones is gone with it.
    pub async fn accept_commands(&mut self) -> Result<Vec<CommandRun>, Error> {
        let commands = self.shared.plan.acceptance.commands.clone();
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let who = Agent {
            round: self.round,
            subtask: SubtaskId::new("acceptance"),
            role: RoleName::new("acceptance"),
        };
        let mut before = 0;
        loop {
            let sandbox = match self.open_at_merged(&who).await {
                Ok(sandbox) => sandbox,
                Err(reason) => {
                    self.halt(reason.clone());
                    return Ok(commands.iter().map(|c| not_run(c, &reason)).collect());
                }
            };
            let Round { mut runs, broken } = self.accept_round(sandbox.as_ref(), &commands).await;
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

    async fn accept_round(&self, sandbox: &dyn Sandbox, commands: &[AcceptanceCommand]) -> Round {
        let mut runs = Vec::new();
        for command in commands {
            match self.accept_command(sandbox, command).await {
                Ok(run) => {
                    self.shared.tell(&Notice::Acceptance {
                        command: run.command.clone(),
                        exit_code: run.exit_code,
                        seconds: run.seconds,
                    });
                    runs.push(run);
                }
                // The run is told to stop: no fault of the sandbox's.
                Err(error @ sandbox::Error::Cancelled) => {
                    runs.push(not_run(command, &error.to_string()));
                }
                Err(error) => {
                    let broken = Some(error);
                    return Round { runs, broken };
                }
            }
        }
        Round { runs, broken: None }
    }

    async fn open_at_merged(&mut self, who: &Agent) -> Result<Arc<dyn Sandbox>, String> {
        let plan = self.shared.plan.sandbox.clone();
        let image = self.image(&plan).await?;
        let network = egress::network(&self.shared, &plan.network, who, &self.shared.span);
        let spec = settings::spec(&self.shared, &plan, image, who.subtask.as_str(), network);
        let standing = self.standing(&self.merged.clone()).await;
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
            keep: TAIL,
        };
        let finished = sandbox.run(&line, &self.shared.stop.cancel).await?;
        let (exit_code, note) = told(finished.exit, command);
        Ok(CommandRun {
            command: command.run.clone(),
            exit_code,
            seconds: since.elapsed().as_secs_f64(),
            output_tail: tail(&finished),
            note,
        })
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
        Exit::Full(_) => (None, Some("killed: the disk was full".to_owned())),
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
