//! Is the merged tree what was asked for? Facts by Wharf itself, then a verifier that saw none of the work.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::accept::{Accept, Witness};
use super::board::Notice;
use super::drive::Drive;
use super::summary::{Verdict, VerdictStatus};
use super::verdict::{self, Judged};
use super::worker::Job;
use super::{Error, first};
use crate::agent::Stop;
use crate::id::{SubtaskId, TreeId};
use crate::journal::{Agent, AgentKind, CommandRun, Event, WithBase};
use crate::plan::Kind;

/// What Wharf itself found at the merged tree.
pub(super) struct Checked {
    pub commands: Vec<CommandRun>,
    /// Protected paths that differ from the base, for display.
    pub protected: Vec<String>,
    pub with_base: Option<WithBase>,
}

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
        let (commands, with_base) = match self.accepted_before(&tree) {
            Some(known) => known,
            None => (self.accept_commands().await, self.accept_with_base().await?),
        };
        let checked = Checked {
            commands,
            protected,
            with_base,
        };
        let ran = Event::AcceptanceRan {
            round: self.round,
            tree: tree.clone(),
            commands: checked.commands.clone(),
            protected_changes: checked.protected.clone(),
            with_base_tests: checked.with_base.clone(),
        };
        self.shared.record(ran).await?;
        if self.stopped() {
            return Ok(());
        }
        let judged = if self.facts.failed.is_empty() {
            let judged = self.ask_verifier(&checked).await?;
            self.grounded(judged, &tree)
        } else {
            unknown("the verifier is not asked while a subtask stands failed")
        };
        self.conclude(judged, checked, tree).await
    }

    async fn conclude(
        &mut self,
        judged: Judged,
        checked: Checked,
        tree: TreeId,
    ) -> Result<(), Error> {
        let (commands, protected) = (checked.commands, checked.protected);
        let status = verdict::with_facts(judged.status, &commands, &protected);
        let verdict = Verdict {
            status,
            summary: judged.summary,
            criteria: judged.criteria,
            commands,
            protected_changes: protected,
            with_base_tests: checked.with_base,
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
            .record(Event::VerdictGiven {
                round: self.round,
                verdict: value,
            })
            .await?;
        self.verdict = Some(verdict);
        Ok(())
    }

    async fn ask_verifier(&mut self, checked: &Checked) -> Result<Judged, Error> {
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
        let told = first::Judging {
            asked: &asked,
            checked,
        };
        let first = first::verifier(self, &image, &role, &start, told).await?;
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
                let calls = end.outcome.results.iter().filter(|r| r.shows());
                let calls = calls.map(|r| r.number).collect();
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
        // A sandbox that breaks twice says nothing of the other agents' environment.
        if !matches!(stop, Stop::Broken { .. }) {
            self.note_stop(stop);
        }
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
