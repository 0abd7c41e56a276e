//! Is the merged tree what was asked for? Facts by Wharf itself, then a verifier that saw none of the work.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::accept::{Accept, Witness};
use super::board::Notice;
use super::drive::Drive;
use super::summary::{Verdict, VerdictStatus};
use super::verdict::{self, Judged};
use super::worker::Job;
use super::{Error, desk, egress, first, settings};
use crate::agent::Stop;
use crate::id::{RoleName, SubtaskId, TreeId};
use crate::journal::{Agent, AgentKind, CommandRun, Event};
use crate::plan::{AcceptanceCommand, Kind};
use crate::sandbox::{self, Command, Exit, Sandbox};

/// Bytes of a command's output that are kept as evidence.
const TAIL: usize = 2000;

impl Drive {
    /// Verifies what is merged. Sets the verdict, or leaves it unknown with the reason.
    pub async fn verify(&mut self) -> Result<(), Error> {
        if !self.shared.options.verify {
            return Ok(());
        }
        let store = &self.shared.store;
        let source = |source| Error::Workspace { source };
        let tree = store.tree(&self.merged).await.map_err(source)?;
        let (base, protect) = (&self.shared.base.commit, &self.shared.plan.protect);
        let protected = store
            .protected(base, &self.merged, protect)
            .await
            .map_err(source)?;
        let commands = self.accept_commands().await?;
        let ran = Event::AcceptanceRan {
            round: self.round,
            tree: tree.clone(),
            commands: commands.clone(),
            protected_changes: protected.clone(),
        };
        self.shared.journal.append(ran).await?;
        if self.stopped() {
            return Ok(());
        }
        let judged = if self.facts.failed.is_empty() {
            let judged = self.ask_verifier(&commands, &protected).await?;
            self.grounded(judged, &tree)
        } else {
            unknown("the verifier is not asked while a subtask stands failed")
        };
        self.conclude(judged, commands, protected, tree).await
    }

    async fn conclude(
        &mut self,
        judged: Judged,
        commands: Vec<CommandRun>,
        protected_changes: Vec<String>,
        tree: TreeId,
    ) -> Result<(), Error> {
        let status = verdict::with_facts(judged.status, &commands, &protected_changes);
        let verdict = Verdict {
            status,
            summary: judged.summary,
            criteria: judged.criteria,
            commands,
            protected_changes,
            tree: tree.to_string(),
        };
        self.facts.verdict_reason = reason(&verdict, self.shared.plan.acceptance.criteria.len());
        self.facts.verdict = Some(status);
        self.shared.tell(&Notice::Verdict {
            status: word(status).to_owned(),
            summary: self.facts.verdict_reason.clone(),
        });
        let value = serde_json::to_value(&verdict).unwrap_or_default();
        self.shared
            .journal
            .append(Event::VerdictGiven {
                round: self.round,
                verdict: value,
            })
            .await?;
        self.verdict = Some(verdict);
        Ok(())
    }

    /// Runs the acceptance commands in a fresh sandbox at the merged tree; their exit codes are facts.
    async fn accept_commands(&mut self) -> Result<Vec<CommandRun>, Error> {
        let commands = self.shared.plan.acceptance.commands.clone();
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let who = Agent {
            round: self.round,
            subtask: SubtaskId::new("acceptance"),
            role: RoleName::new("acceptance"),
        };
        let opened = self.open_at_merged(&who).await;
        let sandbox = match opened {
            Ok(sandbox) => sandbox,
            Err(reason) => {
                self.halt(reason.clone());
                return Ok(commands.iter().map(|c| not_run(c, &reason)).collect());
            }
        };
        let mut runs = Vec::new();
        for command in &commands {
            let run = self.accept_command(sandbox.as_ref(), command).await;
            self.shared.tell(&Notice::Acceptance {
                command: run.command.clone(),
                exit_code: run.exit_code,
                seconds: run.seconds,
            });
            runs.push(run);
        }
        sandbox.close().await;
        Ok(runs)
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

    async fn ask_verifier(
        &mut self,
        commands: &[CommandRun],
        protected: &[String],
    ) -> Result<Judged, Error> {
        let Some(role) = self.role_of(Kind::Verifier).cloned() else {
            return Ok(unknown("the plan has no verifier"));
        };
        let image = match self.image(&role.sandbox).await {
            Ok(image) => image,
            Err(reason) => return Ok(self.not_verified(&Stop::Environment { reason })),
        };
        let asked = self.asked();
        let witness = Arc::new(Witness::new(&self.shared.store, &self.merged));
        let start = self.standing(&self.merged.clone()).await?;
        let first =
            first::verifier(self, &image, &role, &start, &asked, commands, protected).await?;
        let end = self
            .alone(Job {
                who: Agent {
                    round: self.round,
                    subtask: SubtaskId::new("verifier"),
                    role: role.name.clone(),
                },
                kind: AgentKind::Verifier,
                role,
                image,
                start,
                first,
                accept: Accept::verdict(asked.clone(), witness.clone()),
                parent: self.shared.span.clone(),
                needs: Vec::new(),
            })
            .await?;
        let Some(end) = end else {
            return Ok(unknown("the verifier was stopped"));
        };
        let judged = match &end.outcome.ended {
            Ok(arguments) => {
                let calls = end.outcome.results.iter().map(|r| r.number).collect();
                let seen = witness.seen(arguments, calls).await;
                let seen = seen.map_err(|source| Error::Workspace { source })?;
                let judged = verdict::judge(arguments, &asked, &seen);
                end.span.evaluated("verdict", word(judged.status));
                judged
            }
            Err(stop) => self.not_verified(stop),
        };
        end.span.end();
        Ok(judged)
    }

    /// A recorded verdict counts only for the tree that it judged.
    fn grounded(&self, judged: Judged, tree: &TreeId) -> Judged {
        let role = self.role_of(Kind::Verifier);
        let models = role
            .map(|role| self.shared.models_of(role))
            .unwrap_or_default();
        let Some(recorded) = models.iter().find_map(|model| model.about().recorded) else {
            return judged;
        };
        match recorded.judged.get(&self.round) {
            Some(then) if then == tree.as_str() => judged,
            Some(_) => unknown("the recorded verdict was given on another tree than this one"),
            None => unknown("the recording does not say which tree its verdict was given on"),
        }
    }

    fn not_verified(&mut self, stop: &Stop) -> Judged {
        self.note_stop(stop);
        unknown(&format!("the verifier gave no verdict: {stop}"))
    }

    /// The criteria to judge; without any, the task itself is one.
    fn asked(&self) -> Vec<String> {
        if self.criteria.is_empty() {
            vec!["The change does what the task asks for.".to_owned()]
        } else {
            self.criteria.clone()
        }
    }
}

fn word(status: VerdictStatus) -> &'static str {
    match status {
        VerdictStatus::Pass => "pass",
        VerdictStatus::Fail => "fail",
        VerdictStatus::Unknown => "unknown",
    }
}

fn unknown(reason: &str) -> Judged {
    Judged {
        status: VerdictStatus::Unknown,
        summary: reason.to_owned(),
        criteria: Vec::new(),
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

/// Why the verdict is what it is, in one line; the first `planned` criteria are the plan's.
fn reason(verdict: &Verdict, planned: usize) -> String {
    let mut reasons = Vec::new();
    for command in &verdict.commands {
        match command.exit_code {
            Some(0) => {}
            Some(code) => reasons.push(format!("`{}` exited with {code}", command.command)),
            None => {
                let note = command
                    .note
                    .as_deref()
                    .unwrap_or("its exit code is not known");
                reasons.push(format!("`{}`: {note}", command.command));
            }
        }
    }
    if !verdict.protected_changes.is_empty() {
        reasons.push(format!(
            "protected files changed: {}",
            verdict.protected_changes.join(", ")
        ));
    }
    // Where facts decided, what the verifier says stands apart from them, with the verdict.
    let decided = !reasons.is_empty();
    let mut by: BTreeMap<&str, usize> = BTreeMap::new();
    for criterion in &verdict.criteria {
        let word = match criterion.status {
            VerdictStatus::Pass => "passed",
            VerdictStatus::Fail => "failed",
            VerdictStatus::Unknown => "unknown",
        };
        *by.entry(word).or_default() += 1;
    }
    if !by.is_empty() {
        let counts: Vec<String> = by.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let added = match verdict.criteria.len().saturating_sub(planned) {
            0 => String::new(),
            added => format!(" ({added} of them added by the coordinator)"),
        };
        reasons.push(format!("criteria: {}{added}", counts.join(", ")));
    }
    if !decided && verdict.status != VerdictStatus::Pass && !verdict.summary.is_empty() {
        reasons.push(verdict.summary.clone());
    }
    reasons.join("; ")
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
