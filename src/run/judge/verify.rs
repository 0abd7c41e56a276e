//! Is the merged tree what was asked for? Facts by Wharf itself, then verifiers that saw none of the work.

use crate::id::TreeId;
use crate::journal::Event;
use crate::plan::Kind;
use crate::run::Error;
use crate::run::board::Notice;
use crate::run::end::summary::{Criterion, Verdict, VerdictStatus, Vote};
use crate::run::judge::acceptance::Checked;
use crate::run::judge::verdict::{self, Judged};
use crate::run::judge::{outcome, tally};
use crate::run::round::drive::Drive;

impl Drive {
    /// Verifies what is merged. Sets the verdict, or leaves it unknown with the reason.
    pub async fn verify(&mut self) -> Result<(), Error> {
        if !self.shared.options.verify {
            return Ok(());
        }
        let tree = self.shared.store.tree(&self.merged).await;
        let tree = tree.map_err(|source| Error::Workspace { source })?;
        let checked = self.check_result(&tree).await?;
        let accepted = &checked.accepted;
        let ran = Event::AcceptanceRan {
            round: self.round,
            tree: tree.clone(),
            commands: accepted.commands.clone(),
            protected_changes: checked.protected.clone(),
            with_base_tests: accepted.with_base.clone(),
            at_base: accepted.at_base.clone(),
        };
        self.shared.record(ran).await?;
        if self.stopped() {
            return Ok(());
        }
        if let Some(known) = self.judged_before(&tree) {
            return self.conclude(known).await;
        }
        let (judged, votes) = if self.facts.failed.is_empty() {
            self.judge(&checked, &tree).await?
        } else {
            let why = "the verifier is not asked while a subtask stands failed";
            (self.untold(why), Vec::new())
        };
        self.conclude(found(judged, votes, checked, &tree)).await
    }

    /// A verdict on this very tree that an earlier process came to. One that could not be told may be
    /// told now, and one without a criterion that was judged may never have been asked for; where it was,
    /// its verifier's conversation is taken in as it was recorded and nothing is paid again.
    fn judged_before(&self, tree: &TreeId) -> Option<Verdict> {
        let known = self.shared.past.verdict(self.round, tree)?;
        let known: Verdict = serde_json::from_value(known.clone()).ok()?;
        let judged = |criterion: &Criterion| criterion.status != VerdictStatus::Unknown;
        let told = known.status != VerdictStatus::Unknown && known.criteria.iter().any(judged);
        (told && self.facts.failed.is_empty()).then_some(known)
    }

    async fn judge(
        &mut self,
        checked: &Checked,
        tree: &TreeId,
    ) -> Result<(Judged, Vec<Vote>), Error> {
        let ballot = self.ask_verifiers(checked).await?;
        let judged = tally::count(&self.asked(), &ballot.votes);
        let judged = self.grounded(judged, tree);
        // What kept one verifier from a verdict is no matter of the run when the others decided.
        if judged.status == VerdictStatus::Unknown {
            ballot.stops.iter().for_each(|stop| self.note_stop(stop));
        }
        Ok((judged, ballot.votes))
    }

    async fn conclude(&mut self, verdict: Verdict) -> Result<(), Error> {
        let outcomes = outcome::all(&verdict.commands, &verdict.at_base);
        let named = verdict::Named {
            plan: self.shared.plan.acceptance.criteria.len(),
            all: self.criteria.len(),
        };
        self.facts.verdict_reason = verdict::reason(&verdict, &outcomes, named);
        self.facts.verdict = Some(verdict.status);
        self.shared.tell(&Notice::Verdict {
            status: verdict::word(verdict.status).to_owned(),
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
            Some(_) => self.untold("the recorded verdict was given on another tree than this one"),
            None => self.untold("the recording does not say which tree its verdict was given on"),
        }
    }

    /// No verdict, and why: each criterion is unknown for that reason.
    fn untold(&self, why: &str) -> Judged {
        Judged {
            status: VerdictStatus::Unknown,
            summary: why.to_owned(),
            criteria: verdict::unanswered(&self.asked(), why),
        }
    }

    /// The criteria to judge; without any, the task itself is one.
    pub fn asked(&self) -> Vec<String> {
        if self.criteria.is_empty() {
            vec!["The change does what the task asks for.".to_owned()]
        } else {
            self.criteria.clone()
        }
    }

    /// A verdict stands for the tree it judged and for no other: on another one it is none.
    pub async fn void_elsewhere(&mut self) -> Result<(), Error> {
        let Some(verdict) = &mut self.verdict else {
            return Ok(());
        };
        let tree = self.shared.store.tree(&self.merged).await;
        let tree = tree.map_err(|source| Error::Workspace { source })?;
        if verdict.tree != tree.as_str() {
            let why = "the verdict was given on another tree than the one to be delivered";
            verdict.status = VerdictStatus::Unknown;
            self.facts.verdict = Some(VerdictStatus::Unknown);
            self.facts.verdict_reason = why.to_owned();
        }
        Ok(())
    }
}

/// The verdict that facts and verifiers come to together.
fn found(judged: Judged, votes: Vec<Vote>, checked: Checked, tree: &TreeId) -> Verdict {
    let accepted = checked.accepted;
    let outcomes = outcome::all(&accepted.commands, &accepted.at_base);
    let votes = if votes.len() > 1 { votes } else { Vec::new() };
    Verdict {
        status: verdict::with_facts(judged.status, &outcomes, &checked.protected),
        summary: judged.summary,
        criteria: judged.criteria,
        votes,
        test_losses: outcome::losses(&accepted.commands, &accepted.at_base),
        commands: accepted.commands,
        at_base: accepted.at_base,
        changed_checks: checked.checks,
        protected_changes: checked.protected,
        with_base_tests: accepted.with_base,
        tree: tree.to_string(),
    }
}
