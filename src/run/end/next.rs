//! The command that an operator types next: pure.

use std::time::Duration;

use crate::agent::{Limit, Resource};
use crate::plan::{Plan, RunLimits, show_duration};
use crate::run::end::summary::{Status, Summary};

/// What the operator does next, as a command. `limited` is the limit that stopped the run.
pub(in crate::run) fn command(summary: &Summary, plan: &Plan, limited: Option<&Limit>) -> String {
    let (run, copy) = (&summary.run, plan.workspace.copy);
    let passed = summary.has_passed();
    match summary.status {
        Status::Limited => match limited {
            Some(limit) => format!("wharf resume {run} {}", raised(limit.of, &plan.run)),
            None => format!("wharf resume {run}"),
        },
        Status::Interrupted => format!("wharf resume {run}"),
        // What passed and could not be delivered needs no further work.
        Status::Error if passed && copy => format!("wharf diff {run} > {run}.patch"),
        Status::Error if passed => format!("wharf apply {run}"),
        Status::Error => format!("wharf resume {run}"),
        // It passed and could not be applied to files that changed meanwhile.
        Status::Passed if summary.exit_code != 0 => format!("wharf apply {run}"),
        Status::Passed if summary.branch.is_none() && summary.patch.is_none() => {
            format!("wharf show {run}")
        }
        // The directory itself was never meant to change.
        Status::Passed if copy => format!("wharf diff {run}"),
        Status::Passed => match &summary.branch {
            // Git refuses to merge over files that are not committed, and the branch holds them too.
            Some(branch) if !summary.dirty => format!("git merge {branch}"),
            _ => format!("wharf apply {run}"),
        },
        Status::Failed | Status::Unverified => format!("wharf show {run}"),
    }
}

/// Twice the limit that stopped the run, as a flag: raising another would let it stop there again.
fn raised(of: Resource, limits: &RunLimits) -> String {
    match of {
        Resource::Time => {
            let time = limits.time.saturating_mul(2).max(Duration::from_secs(60));
            format!("--timeout {}", show_duration(time))
        }
        Resource::Money => {
            let usd = limits.cost_usd.unwrap_or_default();
            format!("--budget-usd {}", (usd * 2.0).max(1.0))
        }
        Resource::Tokens => format!(
            "--budget-tokens {}",
            limits.tokens.saturating_mul(2).max(100_000)
        ),
    }
}
