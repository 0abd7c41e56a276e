//! The acceptance commands once more, as evidence: at the base, and with the base's version of changed checks.

use std::time::Duration;

use tokio::time::Instant;

use crate::id::TreeId;
use crate::journal::{CommandRun, WithBase};
use crate::run::Error;
use crate::run::judge::acceptance::not_run;
use crate::run::judge::outcome;
use crate::run::judge::suspects::{ADDED, Suspect};
use crate::run::round::drive::Drive;
use crate::workspace;

/// Time that must be left for evidence, in times of what the same commands took before.
const MARGIN: f64 = 1.5;

impl Drive {
    /// Runs the commands at the base too, where they count tests or could not be run: evidence of what
    /// the change took away. The base never changes, so once is enough for all rounds.
    pub(super) async fn accept_at_base(
        &mut self,
        tree: &TreeId,
        runs: &[CommandRun],
    ) -> Vec<CommandRun> {
        if !self.at_base.is_empty() {
            return self.at_base.clone();
        }
        let shared = self.shared.clone();
        let wanted = runs.iter().any(outcome::asks_for_base);
        if *tree == shared.base.tree || !wanted || self.stopped() || !self.has_time(runs) {
            return Vec::new();
        }
        let base = shared.base.commit.clone();
        match self
            .run_commands("acceptance-at-base", &base, &|_| {})
            .await
        {
            Ok(runs) => runs,
            Err(reason) => {
                shared.warn(format!(
                    "the tests could not be counted at the base, so nothing is known of lost ones: {reason}"
                ));
                Vec::new()
            }
        }
    }

    /// True while the run's time is enough to do once more what took this long; said when it is not.
    fn has_time(&self, runs: &[CommandRun]) -> bool {
        let took: f64 = runs.iter().map(|run| run.seconds).sum();
        let took = Duration::try_from_secs_f64(took * MARGIN).unwrap_or_default();
        let enough = Instant::now() + took < self.shared.deadline();
        if !enough {
            self.shared.warn(
                "the acceptance commands were not run on the base or with its tests: too little of the run's \
                 time was left",
            );
        }
        enough
    }

    /// Runs them again with the base's version of changed checks, and of the files that `protect` lets
    /// agents change by a `!`, where any was: evidence that decides nothing.
    pub(super) async fn accept_with_base(
        &mut self,
        runs: &[CommandRun],
        checks: &[Suspect],
    ) -> Result<Option<WithBase>, Error> {
        let shared = self.shared.clone();
        let commands = &shared.plan.acceptance.commands;
        if commands.is_empty() || self.stopped() {
            return Ok(None);
        }
        let (store, base) = (&shared.store, &shared.base.commit);
        let source = |source| Error::Workspace { source };
        let released = store.released(base, &self.merged, &shared.plan.protect);
        let mut released = released.await.map_err(source)?;
        let checks: Vec<&Suspect> = checks.iter().filter(|suspect| suspect.speaks).collect();
        released.extend(checks.iter().map(|suspect| suspect.path.clone()));
        released.sort();
        released.dedup();
        if released.is_empty() || !self.has_time(runs) {
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
            paths: released.iter().map(|path| shown(path, &checks)).collect(),
            commands: runs,
        }))
    }
}

/// A path that was put back; one that the base does not have was taken out.
fn shown(path: &[u8], checks: &[&Suspect]) -> String {
    let added = |suspect: &&&Suspect| suspect.path == path && suspect.check.change == ADDED;
    match checks.iter().find(added) {
        Some(_) => format!("{} (taken out)", workspace::display(path)),
        None => workspace::display(path),
    }
}
