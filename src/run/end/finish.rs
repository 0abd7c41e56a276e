//! A run's last steps: summary, delivery, result.json, report.md, the journal's last line.

use std::sync::Arc;

use crate::agent;
use crate::id::{RoleName, SubtaskId};
use crate::journal::{self, Agent, Event, State};
use crate::model::{Key, Request};
use crate::plan::Kind;
use crate::run::allow::hooking;
use crate::run::call::sent::Sent;
use crate::run::end::{deliver, next, remade, result, words};
use crate::run::judge::{additions, status};
use crate::run::round::drive::Drive;
use crate::run::shared::Shared;
use crate::run::{Error, Models, Summary};
use crate::workspace::Force;

impl Drive {
    /// The coordinator's words on the whole, from the reports alone; without an answer, the reports joined.
    pub async fn summarise(&mut self) -> Result<(), Error> {
        if !self.fresh && self.shared.past.summary() {
            return Ok(());
        }
        let reports: Vec<(String, String)> = self
            .reports()
            .into_iter()
            .map(|(id, done)| (id.to_string(), words::report(&done.report)))
            .collect();
        let joined = reports
            .iter()
            .map(|(id, text)| format!("{id}: {text}"))
            .collect::<Vec<_>>();
        let coordinator = self
            .role_of(Kind::Coordinator)
            .filter(|_| self.shared.plan.subtasks.is_empty());
        let mut text = None;
        if let (Some(role), false) = (coordinator.cloned(), reports.is_empty()) {
            text = self.ask_summary(&role, &reports).await;
        }
        let by_model = text.is_some();
        let text = text.unwrap_or_else(|| joined.join("\n\n"));
        self.shared
            .journal
            .append(Event::Summarised { text, by_model })
            .await?;
        Ok(())
    }

    async fn ask_summary(
        &self,
        role: &crate::plan::Role,
        reports: &[(String, String)],
    ) -> Option<String> {
        let who = Agent {
            round: self.round,
            subtask: SubtaskId::new("summary"),
            role: RoleName::new(role.name.as_str()),
        };
        let key = Key {
            round: self.round,
            subtask: who.subtask.to_string(),
            role: who.role.to_string(),
            call: 1,
        };
        // An answer that was paid for is not asked for again.
        if let Some(answer) = self.shared.past.answer(&who).filter(|_| !self.fresh) {
            let text = answer.text.trim().to_owned();
            return (!text.is_empty()).then_some(text);
        }
        let facts = self.facts.failed.join("\n");
        let request = Request {
            key,
            messages: agent::summary(&self.shared.task, reports, &facts),
            tools: Vec::new(),
            reply_tokens: role.limits.reply_tokens.min(2000),
            temperature: role.temperature,
            effort: agent::effort(role),
        };
        let made = Sent::default().event(&who, &request);
        self.shared.journal.note(made);
        let models = self.shared.models_of(role);
        let asked =
            crate::run::call::ask::ask(&self.shared, &who, models, &request, &self.shared.span)
                .await;
        let text = asked.ok()?.text.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// Ends a run in order: delivers what merged, writes the result.
pub(in crate::run) async fn end(drive: &mut Drive) -> Result<Summary, Error> {
    drive.stopped();
    drive.void_elsewhere().await?;
    let shared = drive.shared.clone();
    let may_deliver = drive.facts.interrupted.is_none() && !shared.options.plan_only;
    let delivered = !drive.fresh && shared.past.delivered();
    if may_deliver && !delivered {
        // Before anything of an agent's can lie in the operator's directory.
        let (status, ..) = status::judge(&drive.facts);
        let status = serde_json::to_value(status).unwrap_or_default();
        hooking::finished(&shared, status.as_str().unwrap_or_default()).await;
    }
    if may_deliver && !delivered {
        additions::tell(drive).await;
        match deliver::deliver(drive).await {
            Ok(delivered) => {
                shared.journal.append(delivered.event).await?;
                if let Some(failed) = delivered.failed {
                    drive.facts.environment.get_or_insert(failed);
                }
            }
            Err(error) => {
                drive
                    .facts
                    .environment
                    .get_or_insert(format!("the result could not be delivered: {error}"));
            }
        }
    }
    let (status, exit_code, reason) = status::judge(&drive.facts);
    // Ends of subtasks may still be on their way to the journal that the result is read from.
    shared.journal.flush().await?;
    let mut summary = written(&shared)?;
    (summary.status, summary.exit_code, summary.reason) = (status, exit_code, reason);
    summary.snapshot = Some(drive.merged.to_string());
    summary.verdict.clone_from(&drive.verdict);
    summary.seconds = shared.elapsed().as_secs_f64();
    let before = shared.past.state().applied.as_ref();
    let mut applied = !drive.fresh && before.is_some_and(|(_, refused)| refused.is_empty());
    if shared.options.apply && status == crate::run::Status::Passed && !applied {
        applied = apply(&shared, drive, &mut summary).await?;
    }
    summary.next = match applied {
        // It is where it was wanted.
        true => format!("wharf show {}", summary.run),
        false => next::command(&summary, &shared.plan, drive.facts.limited.as_ref()),
    };
    close(&shared, summary).await
}

/// Ends a run whose own records or store failed: says so as far as it still can.
pub(in crate::run) async fn broken(drive: &mut Drive, error: Error) -> Result<Summary, Error> {
    drive.shared.stop.cancel.cancel();
    drive.running.abort_all();
    while drive.running.join_next().await.is_some() {}
    drive.facts.environment = Some(error.to_string());
    let shared = drive.shared.clone();
    let Ok(mut summary) = written(&shared) else {
        return Err(error);
    };
    (summary.status, summary.exit_code, summary.reason) = status::judge(&drive.facts);
    summary.snapshot = Some(drive.merged.to_string());
    summary.next = next::command(&summary, &shared.plan, drive.facts.limited.as_ref());
    close(&shared, summary).await.map_err(|_| error)
}

/// The summary as far as the journal tells it.
fn written(shared: &Shared) -> Result<Summary, Error> {
    let read = journal::read(&shared.dir.join("journal.jsonl"))?;
    Ok(result::of(&State::of(&read.lines), &shared.dir))
}

/// Puts a result into the operator's directory; true when it is there.
async fn apply(shared: &Shared, drive: &mut Drive, summary: &mut Summary) -> Result<bool, Error> {
    if shared.plan.workspace.copy {
        summary
            .warnings
            .push("--apply was ignored: the plan works on a copy".to_owned());
        return Ok(false);
    }
    let (base, merged) = (&shared.base.commit, &drive.merged);
    let applied = shared
        .store
        .apply(&shared.workspace, base, merged, Force::No)
        .await;
    match applied {
        Ok(crate::workspace::Applied::Done { paths }) => {
            shared
                .journal
                .append(Event::Applied {
                    paths,
                    refused: Vec::new(),
                })
                .await?;
            return Ok(true);
        }
        Ok(crate::workspace::Applied::Refused { paths }) => {
            let refused: Vec<String> = paths
                .iter()
                .map(|(path, why)| format!("{path}: {why}"))
                .collect();
            refuse(summary, &refused.join("; "));
            shared
                .journal
                .append(Event::Applied {
                    paths: Vec::new(),
                    refused,
                })
                .await?;
        }
        Err(error) => refuse(summary, &error.to_string()),
    }
    Ok(false)
}

/// The status stays `passed`; what could not be applied stands on the branch or in the patch.
fn refuse(summary: &mut Summary, why: &str) {
    summary.exit_code = 1;
    summary.reason = format!(
        "verified, but --apply changed nothing, so the exit code is 1: {why}; commit or undo your \
         changes there and apply it again"
    );
}

/// Writes the end of a run: both files, then the journal's last line. Gives the result as it stands there.
async fn close(shared: &Arc<Shared>, summary: Summary) -> Result<Summary, Error> {
    let (summary, value) = remade::journaled(&summary, &shared.journal);
    let files = remade::files(&summary, &value);
    crate::run::begin::start::write(&shared.dir.join("report.md"), files.report.as_bytes())?;
    crate::run::begin::start::write(&shared.dir.join("result.json"), files.result.as_bytes())?;
    let ended = Event::RunEnded {
        status: value["status"].as_str().unwrap_or("error").to_owned(),
        exit_code: summary.exit_code,
        reason: summary.reason.clone(),
        result: value,
    };
    shared.journal.append(ended).await?;
    // Exit 0 without a verdict is what `--no-verify` and `--plan-only` ask for.
    if summary.exit_code != 0
        && let Some((word, message)) = failure(summary.status)
    {
        shared.span.fail(word, message);
    }
    Ok(summary)
}

/// What the run's span says of its status. The reason may quote reports and verdicts, and what models
/// wrote stands in no span.
pub(in crate::run) fn failure(status: crate::run::Status) -> Option<(&'static str, &'static str)> {
    use crate::run::Status;
    match status {
        Status::Passed => None,
        Status::Failed => Some((
            "verification_failed",
            "a subtask or the verification failed",
        )),
        Status::Unverified => Some(("not_verified", "the result was not verified")),
        Status::Limited => Some(("budget_exceeded", "a limit of the run stopped it")),
        Status::Interrupted => Some(("cancelled", "stopped by a signal")),
        Status::Error => Some(("_OTHER", "the run could not go on")),
    }
}

/// The names of a run's models, each once, the default ones first.
pub(in crate::run) fn model_names(models: &Models) -> Vec<String> {
    let mut names = Vec::new();
    for name in models.all().map(|m| m.about().name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
