//! Several verifiers' verdicts become one: pure. What more than half of them say holds, all else is unknown.

use crate::run::end::summary::{Criterion, Verdict, VerdictStatus, Vote};
use crate::run::judge::verdict::Judged;

/// One verdict of several; a vote that could not be had counts as unknown for each criterion.
pub(in crate::run) fn count(asked: &[String], votes: &[Vote]) -> Judged {
    if let [only] = votes {
        let said = only.reason.as_ref().unwrap_or(&only.summary);
        return Judged {
            status: only.status,
            summary: said.clone(),
            criteria: only.criteria.clone(),
        };
    }
    let criteria: Vec<Criterion> = asked.iter().map(|text| one(text, votes)).collect();
    let any = |status| criteria.iter().any(|c| c.status == status);
    let whole: Vec<VerdictStatus> = votes.iter().map(|vote| vote.status).collect();
    let whole = majority(&whole);
    let status = if any(VerdictStatus::Fail) || whole == VerdictStatus::Fail {
        VerdictStatus::Fail
    } else if any(VerdictStatus::Unknown) || whole == VerdictStatus::Unknown || criteria.is_empty()
    {
        VerdictStatus::Unknown
    } else {
        VerdictStatus::Pass
    };
    // One that could be had says why, and of several the first that agrees with the whole.
    let had = |vote: &&Vote| vote.reason.is_none();
    let agrees = votes.iter().filter(had).find(|vote| vote.status == status);
    let speaks = agrees.or_else(|| votes.iter().find(had));
    let said = match speaks {
        Some(vote) => format!(" {} says: {}", vote.agent, vote.summary),
        None => String::new(),
    };
    Judged {
        status,
        summary: format!("{}.{said}", split(votes.iter().map(|vote| vote.status))),
        criteria,
    }
}

fn one(text: &str, votes: &[Vote]) -> Criterion {
    let given: Vec<Option<&Criterion>> = votes.iter().map(|vote| on(vote, text)).collect();
    let status = |given: &Option<&Criterion>| given.map_or(VerdictStatus::Unknown, |c| c.status);
    let statuses: Vec<VerdictStatus> = given.iter().map(status).collect();
    let whole = majority(&statuses);
    let mut both = votes.iter().zip(&given);
    let speaks = both.find_map(|(vote, given)| {
        // One that could not be had says nothing of the criterion itself.
        if vote.reason.is_some() {
            return None;
        }
        let given = given.filter(|given| given.status == whole)?;
        Some((vote.agent.clone(), given.evidence.clone()))
    });
    let (by, evidence) = match speaks {
        Some((agent, evidence)) => (Some(agent), evidence),
        None => (
            None,
            format!("no majority: {}", split(statuses.into_iter())),
        ),
    };
    Criterion {
        text: text.to_owned(),
        status: whole,
        evidence,
        by,
    }
}

fn on<'a>(vote: &'a Vote, text: &str) -> Option<&'a Criterion> {
    vote.criteria.iter().find(|given| given.text == text)
}

/// What more than half say; without such, unknown.
fn majority(all: &[VerdictStatus]) -> VerdictStatus {
    let most = |status| all.iter().filter(|s| **s == status).count() * 2 > all.len();
    [VerdictStatus::Pass, VerdictStatus::Fail]
        .into_iter()
        .find(|status| most(*status))
        .unwrap_or(VerdictStatus::Unknown)
}

/// `2 pass, 1 fail`.
fn split(all: impl Iterator<Item = VerdictStatus>) -> String {
    let all: Vec<VerdictStatus> = all.collect();
    let words = [
        (VerdictStatus::Pass, "pass"),
        (VerdictStatus::Fail, "fail"),
        (VerdictStatus::Unknown, "unknown"),
    ];
    let counted = words.into_iter().filter_map(|(status, word)| {
        let number = all.iter().filter(|s| **s == status).count();
        (number > 0).then(|| format!("{number} {word}"))
    });
    counted.collect::<Vec<_>>().join(", ")
}

impl Verdict {
    /// True when nobody answered a single criterion: each has the reason that the verdict has.
    pub fn is_unanswered(&self) -> bool {
        let unknown = |criterion: &Criterion| criterion.status == VerdictStatus::Unknown;
        let same = |criterion: &Criterion| criterion.evidence == self.summary;
        self.criteria.iter().all(|c| unknown(c) && same(c))
    }

    /// How the votes on a criterion differ, such as `2 pass, 1 fail`; None where all agree.
    pub fn split(&self, text: &str) -> Option<String> {
        let status = |vote| on(vote, text).map_or(VerdictStatus::Unknown, |c| c.status);
        let statuses: Vec<VerdictStatus> = self.votes.iter().map(status).collect();
        let differ = statuses.windows(2).any(|pair| pair[0] != pair[1]);
        differ.then(|| split(statuses.into_iter()))
    }

    /// How far apart the votes are: a sentence where they do not all agree or one could not be had.
    pub fn disagreement(&self) -> Option<String> {
        let statuses = || self.votes.iter().map(|vote| vote.status);
        let apart: Vec<&str> = self
            .criteria
            .iter()
            .filter(|c| self.split(&c.text).is_some())
            .map(|c| c.text.as_str())
            .collect();
        let differ = statuses().any(|status| Some(status) != statuses().next());
        if !differ && apart.is_empty() {
            return None;
        }
        let lost = self.votes.iter().filter_map(|vote| {
            let reason = vote.reason.as_ref()?;
            Some(format!("; {} could not be had: {reason}", vote.agent))
        });
        let lost: String = lost.collect();
        let on = match apart.as_slice() {
            [] => String::new(),
            apart => format!(" on: {}", apart.join("; ")),
        };
        Some(format!(
            "the verifiers disagree ({}){on}{lost}",
            split(statuses())
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use VerdictStatus::{Fail, Pass, Unknown};

    fn vote(number: u32, status: VerdictStatus, criteria: &[(&str, VerdictStatus)]) -> Vote {
        let criteria = criteria.iter().map(|(text, status)| Criterion {
            text: (*text).to_owned(),
            status: *status,
            evidence: format!("#{number}"),
            by: None,
        });
        Vote {
            agent: format!("verifier-{number}"),
            status,
            reason: None,
            summary: format!("said by {number}"),
            criteria: criteria.collect(),
        }
    }

    fn lost(number: u32) -> Vote {
        Vote {
            reason: Some("it crashed".to_owned()),
            summary: String::new(),
            ..vote(number, Unknown, &[])
        }
    }

    fn whole(votes: &[Vote]) -> VerdictStatus {
        count(&["A".to_owned()], votes).status
    }

    #[test]
    fn more_than_half_decide_and_nothing_less_does() {
        let by = |n, status| vote(n, status, &[("A", status)]);
        let cases: [(&[Vote], VerdictStatus); 9] = [
            (&[by(1, Pass)], Pass),
            (&[by(1, Pass), by(2, Pass), by(3, Fail)], Pass),
            (&[by(1, Fail), by(2, Pass), by(3, Fail)], Fail),
            (&[by(1, Pass), by(2, Fail), by(3, Unknown)], Unknown),
            (&[by(1, Pass), by(2, Pass), lost(3)], Pass),
            (&[by(1, Pass), by(2, Fail), lost(3)], Unknown),
            (&[by(1, Pass), lost(2), lost(3)], Unknown),
            (&[by(1, Pass), by(2, Fail)], Unknown),
            (&[by(1, Pass), lost(2)], Unknown),
        ];
        for (votes, want) in cases {
            assert_eq!(whole(votes), want, "{votes:?}");
        }
    }

    /// Each finds another fault: no criterion has a majority against it, the whole has.
    #[test]
    fn verifiers_who_fail_different_criteria_fail_the_whole() {
        let asked = ["A", "B", "C"].map(str::to_owned);
        let votes = [
            vote(1, Fail, &[("A", Fail), ("B", Pass), ("C", Pass)]),
            vote(2, Fail, &[("A", Pass), ("B", Fail), ("C", Pass)]),
            vote(3, Fail, &[("A", Pass), ("B", Pass), ("C", Fail)]),
        ];
        let judged = count(&asked, &votes);
        assert_eq!(judged.status, Fail);
        assert!(judged.criteria.iter().all(|c| c.status == Pass));
        assert_eq!(judged.criteria[0].by.as_deref(), Some("verifier-2"));
        assert_eq!(judged.summary, "3 fail. verifier-1 says: said by 1");
    }

    #[test]
    fn a_criterion_without_a_majority_is_unknown_whatever_the_whole_says() {
        let asked = ["A", "B"].map(str::to_owned);
        let votes = [
            vote(1, Pass, &[("A", Pass), ("B", Pass)]),
            vote(2, Pass, &[("A", Pass), ("B", Fail)]),
            vote(3, Pass, &[("A", Pass)]),
        ];
        let judged = count(&asked, &votes);
        assert_eq!(judged.status, Unknown);
        assert_eq!(
            judged.criteria[1].evidence,
            "no majority: 1 pass, 1 fail, 1 unknown"
        );
    }

    #[test]
    fn disagreement_is_said_with_what_it_is_about() {
        let verdict = |votes: Vec<Vote>| {
            let judged = count(&["A".to_owned()], &votes);
            Verdict {
                status: judged.status,
                criteria: judged.criteria,
                votes,
                ..Verdict::default()
            }
        };
        let by = |n, status| vote(n, status, &[("A", status)]);
        assert_eq!(verdict(vec![by(1, Pass), by(2, Pass)]).disagreement(), None);
        assert_eq!(verdict(vec![]).disagreement(), None);
        let apart = verdict(vec![by(1, Pass), by(2, Pass), lost(3)]);
        assert_eq!(apart.split("A").as_deref(), Some("2 pass, 1 unknown"));
        let said = apart.disagreement().unwrap();
        assert_eq!(
            said,
            "the verifiers disagree (2 pass, 1 unknown) on: A; verifier-3 could not be had: it crashed"
        );
    }
}
