//! The run's status, from facts alone: pure.

use crate::agent::Limit;
use crate::run::end::summary::{Status, VerdictStatus};

/// What decides a run's status.
#[derive(Clone, Debug, Default)]
pub(in crate::run) struct Facts {
    /// The exit code of the signal that stopped the run.
    pub interrupted: Option<i32>,
    /// Docker, the model's endpoint, the key or the disk failed.
    pub environment: Option<String>,
    /// A limit of the run.
    pub limited: Option<Limit>,
    /// Why subtasks of the last round failed, or why there was no plan.
    pub failed: Vec<String>,
    /// `--no-verify`.
    pub verify_off: bool,
    /// Only a plan was asked for, and it stands.
    pub plan_only: bool,
    pub verdict: Option<VerdictStatus>,
    /// What the verdict, or its absence, says in words.
    pub verdict_reason: String,
    /// Why no other round was worked although the last one failed.
    pub standstill: Option<String>,
}

impl Facts {
    /// What failed, and why nothing more was tried.
    fn failure(&self, reason: String) -> String {
        match &self.standstill {
            Some(why) => format!("{reason}; {why}"),
            None => reason,
        }
    }
}

/// Status, exit code and reason. When several hold: interrupted, environment, limit, failed, unverified.
pub(in crate::run) fn judge(facts: &Facts) -> (Status, i32, String) {
    if let Some(code) = facts.interrupted {
        return (Status::Interrupted, code, "stopped by a signal".to_owned());
    }
    if let Some(reason) = &facts.environment {
        return (Status::Error, 3, reason.clone());
    }
    if let Some(limit) = &facts.limited {
        return (
            Status::Limited,
            5,
            format!("the run came to its limit of {limit}"),
        );
    }
    if !facts.failed.is_empty() {
        return (Status::Failed, 1, facts.failure(facts.failed.join("; ")));
    }
    if facts.plan_only {
        return (
            Status::Unverified,
            0,
            "only a plan was asked for".to_owned(),
        );
    }
    match facts.verdict {
        Some(VerdictStatus::Fail) => {
            let reason = facts.failure(facts.verdict_reason.clone());
            (Status::Failed, 1, reason)
        }
        Some(VerdictStatus::Pass) => (Status::Passed, 0, facts.verdict_reason.clone()),
        Some(VerdictStatus::Unknown) => (Status::Unverified, 4, facts.verdict_reason.clone()),
        None if facts.verify_off => (
            Status::Unverified,
            0,
            "all subtasks are done; verification was switched off".to_owned(),
        ),
        None => (Status::Unverified, 4, facts.verdict_reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Resource;

    #[test]
    fn the_gravest_fact_decides() {
        let mut facts = Facts {
            verdict: Some(VerdictStatus::Pass),
            ..Facts::default()
        };
        assert_eq!(judge(&facts).1, 0);
        facts.failed.push("a failed".to_owned());
        assert_eq!(judge(&facts).0, Status::Failed);
        facts.limited = Some(Limit {
            of: Resource::Tokens,
            limit: "10 tokens".to_owned(),
        });
        assert_eq!(judge(&facts).1, 5);
        facts.environment = Some("no Docker".to_owned());
        assert_eq!(judge(&facts).1, 3);
        facts.interrupted = Some(143);
        assert_eq!(judge(&facts).1, 143);
    }

    #[test]
    fn nothing_but_a_pass_or_a_wish_gives_zero() {
        for verdict in [
            None,
            Some(VerdictStatus::Fail),
            Some(VerdictStatus::Unknown),
        ] {
            let facts = Facts {
                verdict,
                ..Facts::default()
            };
            assert_ne!(judge(&facts).1, 0, "{verdict:?}");
        }
        assert_eq!(
            judge(&Facts {
                verify_off: true,
                ..Facts::default()
            })
            .1,
            0
        );
    }
}
