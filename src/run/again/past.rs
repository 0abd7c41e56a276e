//! What a run's journal says was done already, so that a resumed run goes the same way and does none of
//! it again. Empty for a run that begins.

mod take;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use crate::id::{CommitId, SubtaskId, TreeId};
use crate::journal::{Agent, AgentEnd, AgentKind, Event, Line, State, SubtaskState, SubtaskStatus};
use crate::model::{self, Price};
use crate::run::again::talk::{Talk, Turn};
use crate::run::call::bill;
use crate::run::call::pot::Amount;
use crate::run::judge::acceptance::Accepted;

/// The journal of earlier processes.
#[derive(Default)]
pub(in crate::run) struct Past {
    state: State,
    /// True once `Resumed` stands in the journal.
    resumed: bool,
    /// The round that the lines taken so far are of.
    round: u32,
    talks: HashMap<Agent, Talk>,
    merges: HashSet<(Vec<CommitId>, CommitId)>,
    /// What all calls cost, those without an answer at their worst.
    pub spent: Amount,
    /// Of that, what was out without an answer when a process ended.
    pub lost: Amount,
    /// The model that a call was asked of.
    asked: HashMap<(Agent, u32), String>,
    images: BTreeMap<String, String>,
    /// The last of each round.
    accepted: BTreeMap<u32, (TreeId, Accepted)>,
    verdicts: BTreeMap<u32, Value>,
    /// The last words and the delivery, while no work was done after them.
    summary: Option<Event>,
    delivered: Option<Event>,
    branches: Vec<String>,
    /// What was consented to for as long as the run lasts.
    pub grants: Vec<Value>,
}

/// What a model costs, by its name.
pub(in crate::run) type Prices<'a> = &'a dyn Fn(&str) -> Option<Price>;

impl Past {
    /// What these lines say.
    pub fn of(lines: &[Line], prices: Prices<'_>) -> Self {
        let mut past = Self {
            state: State::of(lines),
            ..Self::default()
        };
        for line in lines {
            past.take(line, prices);
        }
        past
    }

    /// The same as the fold that results are made of.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether the run goes on from an earlier process.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Tokens of each agent's attempts that came to no answer.
    pub fn unanswered(&self) -> BTreeMap<Agent, u64> {
        let talks = self.talks.iter();
        let lost = talks.map(|(who, talk)| (who.clone(), talk.unanswered));
        lost.filter(|(_, tokens)| *tokens > 0).collect()
    }

    /// Time in which earlier processes worked on the run.
    pub fn active(&self) -> Duration {
        let seconds = if self.resumed {
            self.state.seconds()
        } else {
            0.0
        };
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// True when a fact stands in the journal as the last word on its matter.
    pub fn holds(&self, event: &Event) -> bool {
        let state = &self.state;
        match event {
            Event::RoundStarted { round } => *round <= state.round,
            Event::PlanAccepted { round, .. } => state.plans.iter().any(|p| p.round == *round),
            Event::Merged { inputs, commit } => {
                self.merges.contains(&(inputs.clone(), commit.clone()))
            }
            Event::ConflictFound { id, .. } => state.conflicts.iter().any(|c| c.id == *id),
            Event::ConflictResolved {
                id,
                commit,
                dropped,
                beyond,
                ..
            } => state.conflicts.iter().any(|c| {
                c.id == *id
                    && (&c.resolved, &c.dropped, &c.beyond)
                        == (&Some(commit.clone()), dropped, beyond)
            }),
            Event::SubtaskEnded {
                id,
                status,
                reason,
                snapshot,
                changed_files,
                ..
            } => state.subtasks.get(id).is_some_and(|ended| {
                (
                    ended.status,
                    &ended.reason,
                    &ended.snapshot,
                    &ended.changed_files,
                ) == (*status, reason, snapshot, changed_files)
            }),
            Event::AcceptanceRan {
                round,
                tree,
                commands,
                with_base_tests,
                at_base,
                ..
            } => self.acceptance(*round, tree).is_some_and(|known| {
                (&known.commands, &known.with_base, &known.at_base)
                    == (commands, with_base_tests, at_base)
            }),
            Event::RoundEnded {
                round, progress, ..
            } => state.progress.get(round) == Some(progress),
            Event::VerdictGiven { round, verdict } => self.verdicts.get(round) == Some(verdict),
            Event::ImageReady { name, id, .. } => self.images.get(name) == Some(id),
            _ => false,
        }
    }

    /// How an agent ended that has nothing left to do, and its conversation; only where it began at
    /// the same commit, for elsewhere its work would be about other files.
    pub fn ended(&self, who: &Agent, start: &CommitId) -> Option<(&AgentEnd, &Talk)> {
        let talk = self.talk_at(who, start)?;
        Some((talk.ended.as_ref()?, talk))
    }

    /// A conversation that can go on.
    pub fn open(&self, who: &Agent, start: &CommitId) -> Option<&Talk> {
        self.talk_at(who, start).filter(|talk| talk.ended.is_none())
    }

    fn talk_at(&self, who: &Agent, start: &CommitId) -> Option<&Talk> {
        self.talks.get(who).filter(|talk| talk.start == *start)
    }

    /// How a node ended, as it was journaled.
    pub fn subtask(&self, id: &SubtaskId) -> Option<&SubtaskState> {
        self.state.subtasks.get(id)
    }

    /// The acceptance commands' results on this very tree.
    pub fn acceptance(&self, round: u32, tree: &TreeId) -> Option<&Accepted> {
        let (on, accepted) = self.accepted.get(&round)?;
        (on == tree).then_some(accepted)
    }

    /// The verdict of a round on this very tree.
    pub fn verdict(&self, round: u32, tree: &TreeId) -> Option<&Value> {
        let verdict = self.verdicts.get(&round)?;
        (verdict["tree"] == tree.as_str()).then_some(verdict)
    }

    /// An answer that was paid for and is not part of a conversation with tools.
    pub fn answer(&self, who: &Agent) -> Option<model::Reply> {
        let reply = self.talks.get(who)?.replies.last()?;
        serde_json::from_value(reply.clone()).ok()
    }

    /// The run's last words, when nothing was done since.
    pub fn summary(&self) -> bool {
        self.summary.is_some()
    }

    /// The delivery, when nothing was done since.
    pub fn delivered(&self) -> bool {
        self.delivered.is_some()
    }

    /// The name for a branch: one that was delivered before is left as it is, and a number tells the
    /// later one apart.
    pub fn branch(&self, name: &str) -> String {
        match self.branches.len() {
            0 => name.to_owned(),
            before => format!("{name}-{}", before + 1),
        }
    }

    /// The id that an image had, when it is another one now.
    pub fn other_image(&self, name: &str, id: &str) -> Option<&str> {
        let known = self.images.get(name)?;
        (known != id).then_some(known.as_str())
    }

    /// How many subtasks ended for good, and how many agents go on.
    pub fn count(&self) -> (usize, usize) {
        let done = |ended: &&SubtaskState| ended.status == SubtaskStatus::Done;
        let open = self.talks.values().filter(|talk| talk.ended.is_none());
        let open = open.filter(|talk| !talk.start.as_str().is_empty());
        (
            self.state.subtasks.values().filter(done).count(),
            open.count(),
        )
    }
}
