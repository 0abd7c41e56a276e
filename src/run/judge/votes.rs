//! Verifiers asked beside each other: each with a sandbox and a conversation of its own, none told of another.

use std::sync::Arc;

use crate::agent::Stop;
use crate::id::SubtaskId;
use crate::journal::{Agent, AgentKind};
use crate::plan::{Kind, Role};
use crate::run::Error;
use crate::run::end::summary::{VerdictStatus, Vote};
use crate::run::judge::acceptance::Checked;
use crate::run::judge::verdict;
use crate::run::judge::witness::Witness;
use crate::run::round::drive::Drive;
use crate::run::work::accept::Accept;
use crate::run::work::first::{self, Judging};
use crate::run::work::trees::Standing;
use crate::run::work::worker::{Begin, End, Job};
use crate::sandbox::Image;

/// All votes, and what kept verifiers from theirs.
pub(in crate::run) struct Ballot {
    pub votes: Vec<Vote>,
    pub stops: Vec<Stop>,
}

/// What each vote's job is made from.
struct Booth<'a> {
    role: Role,
    image: Image,
    start: Arc<Standing>,
    asked: Vec<String>,
    witness: Arc<Witness>,
    checked: &'a Checked,
}

impl Drive {
    /// Asks as many verifiers as the plan wants. One whose environment failed is asked once more.
    pub async fn ask_verifiers(&mut self, checked: &Checked) -> Result<Ballot, Error> {
        let Some(role) = self.role_of(Kind::Verifier).cloned() else {
            return Ok(self.nobody("the plan has no verifier", None));
        };
        let image = match self.image_for_verdict(&role).await {
            Ok(image) => image,
            Err(reason) => {
                let stop = Stop::Environment { reason };
                return Ok(self.nobody(&no_verdict(&stop), Some(stop)));
            }
        };
        let start = self.standing(&self.merged.clone()).await?;
        let booth = Booth {
            role,
            image,
            asked: self.asked(),
            witness: Arc::new(Witness::new(
                start.tree.clone(),
                checked.accepted.all_passed(),
            )),
            start,
            checked,
        };
        let all: Vec<u32> = (1..=self.shared.plan.votes).collect();
        let mut ends = self.vote(&booth, &all, Begin::AsRecorded).await?;
        let lost = |end: &Option<End>| end.as_ref().is_some_and(failed_by_environment);
        let again: Vec<u32> = all
            .iter()
            .zip(&ends)
            .filter(|(_, end)| lost(end))
            .map(|(number, _)| *number)
            .collect();
        if !again.is_empty() && !self.stopped() {
            for number in &again {
                let name = name(*number);
                self.shared.warn(format!(
                    "{name}: it had no sandbox to judge in and is asked once more"
                ));
            }
            let others = self.vote(&booth, &again, Begin::Anew).await?;
            for (number, end) in again.iter().zip(others) {
                let before = std::mem::replace(&mut ends[*number as usize - 1], end);
                before.iter().for_each(|end| end.span.end());
            }
        }
        self.count(&booth, ends).await
    }

    /// The verifier's image; an engine that failed for a moment is asked once more.
    async fn image_for_verdict(&mut self, role: &Role) -> Result<Image, String> {
        match self.image(&role.sandbox).await {
            Err(_) if !self.stopped() => self.image(&role.sandbox).await,
            image => image,
        }
    }

    async fn vote(
        &mut self,
        booth: &Booth<'_>,
        numbers: &[u32],
        begin: Begin,
    ) -> Result<Vec<Option<End>>, Error> {
        let mut jobs = Vec::new();
        for number in numbers {
            let told = Judging {
                asked: &booth.asked,
                checked: booth.checked,
                vote: (*number, self.shared.plan.votes),
            };
            let first =
                first::verifier(self, &booth.image, &booth.role, &booth.start, told).await?;
            jobs.push(Job {
                who: Agent {
                    round: self.round,
                    subtask: SubtaskId::new(name(*number)),
                    role: booth.role.name.clone(),
                },
                kind: AgentKind::Verifier,
                role: booth.role.clone(),
                image: booth.image.clone(),
                start: booth.start.clone(),
                first,
                accept: Accept::verdict(booth.asked.clone(), booth.witness.clone()),
                parent: self.shared.span.clone(),
                needs: Vec::new(),
                begin,
            });
        }
        self.together(jobs).await
    }

    /// Nobody could be asked.
    fn nobody(&self, why: &str, stop: Option<Stop>) -> Ballot {
        Ballot {
            votes: vec![lost(name(1), why, &self.asked())],
            stops: stop.into_iter().collect(),
        }
    }

    async fn count(&self, booth: &Booth<'_>, ends: Vec<Option<End>>) -> Result<Ballot, Error> {
        let (mut votes, mut stops) = (Vec::new(), Vec::new());
        for (number, end) in (1..).zip(ends) {
            let agent = name(number);
            let Some(end) = end else {
                votes.push(lost(agent, "the verifier was stopped", &booth.asked));
                continue;
            };
            match &end.outcome.ended {
                Ok(arguments) => {
                    let calls = end.outcome.results.iter();
                    let calls = calls.map(|r| (r.number, r.shows())).collect();
                    let seen = booth.witness.seen(arguments, calls).await;
                    let seen = seen.map_err(|source| Error::Io {
                        operation: "read the judged tree in",
                        path: self.shared.dir.join("store.git"),
                        source,
                    })?;
                    let judged = verdict::judge(arguments, &booth.asked, &seen);
                    end.span.evaluated("verdict", verdict::word(judged.status));
                    votes.push(Vote {
                        agent,
                        status: judged.status,
                        reason: None,
                        summary: judged.summary,
                        criteria: judged.criteria,
                    });
                }
                Err(stop) => {
                    votes.push(lost(agent, &no_verdict(stop), &booth.asked));
                    // A sandbox that breaks twice says nothing of the other agents' environment.
                    if !matches!(stop, Stop::Broken { .. }) {
                        stops.push(stop.clone());
                    }
                }
            }
            end.span.end();
        }
        Ok(Ballot { votes, stops })
    }
}

/// The first bears the name that it has where it is the only one.
fn name(number: u32) -> String {
    match number {
        1 => "verifier".to_owned(),
        number => format!("verifier-{number}"),
    }
}

/// True when there was no sandbox to judge in; one that broke was replaced already.
fn failed_by_environment(end: &End) -> bool {
    matches!(end.outcome.ended, Err(Stop::Environment { .. }))
}

fn no_verdict(stop: &Stop) -> String {
    format!("the verifier gave no verdict: {stop}")
}

fn lost(agent: String, why: &str, asked: &[String]) -> Vote {
    Vote {
        agent,
        status: VerdictStatus::Unknown,
        reason: Some(why.to_owned()),
        summary: String::new(),
        criteria: verdict::unanswered(asked, why),
    }
}
