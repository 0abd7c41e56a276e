//! What a run's journal says was done already, so that a resumed run goes the same way and does none of
//! it again. Empty for a run that begins.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use super::acceptance::Accepted;
use super::bill;
use super::pot::Amount;
use super::talk::{Talk, Turn};
use crate::id::{CommitId, SubtaskId, TreeId};
use crate::journal::{Agent, AgentEnd, AgentKind, Event, Line, State, SubtaskState, SubtaskStatus};
use crate::model::{self, Price};

/// The journal of earlier processes.
#[derive(Default)]
pub(super) struct Past {
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
pub(super) type Prices<'a> = &'a dyn Fn(&str) -> Option<Price>;

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

    fn take(&mut self, line: &Line, prices: Prices<'_>) {
        match &line.event {
            Event::Resumed { retry_failed, .. } => self.cut(*retry_failed),
            Event::RoundStarted { round } => self.round = *round,
            Event::Merged { inputs, commit } => {
                self.merges.insert((inputs.clone(), commit.clone()));
                self.work();
            }
            Event::AcceptanceRan {
                round,
                tree,
                commands,
                with_base_tests,
                at_base,
                ..
            } => {
                let accepted = Accepted {
                    commands: commands.clone(),
                    with_base: with_base_tests.clone(),
                    at_base: at_base.clone(),
                };
                self.accepted.insert(*round, (tree.clone(), accepted));
                self.work();
            }
            Event::VerdictGiven { round, verdict } => {
                self.verdicts.insert(*round, verdict.clone());
            }
            Event::ImageReady { name, id, .. } => {
                self.images.insert(name.clone(), id.clone());
            }
            Event::PermissionDecided { grants, .. } => self.grants.extend_from_slice(grants),
            Event::Summarised { .. } => self.summary = Some(line.event.clone()),
            Event::Delivered { branch, .. } => {
                self.branches.extend(branch.clone());
                self.delivered = Some(line.event.clone());
            }
            other => self.take_agent(line, other, prices),
        }
    }

    fn take_agent(&mut self, line: &Line, event: &Event, prices: Prices<'_>) {
        let at = line.at;
        match event {
            Event::AgentStarted {
                agent, kind, start, ..
            } => {
                self.work();
                let talk = Talk::new(*kind, start.clone(), at);
                self.talks.insert(agent.clone(), talk);
            }
            Event::AgentResumed {
                agent, after, told, ..
            } => {
                self.work();
                if let Some(talk) = self.talks.get_mut(agent) {
                    talk.resumed(*after, told.clone(), at);
                }
            }
            Event::TurnDone {
                agent,
                results,
                snapshot,
                left_out,
                ..
            } => {
                if let Some(talk) = self.talks.get_mut(agent) {
                    talk.seen(at);
                    talk.turn(Turn {
                        results: results.clone(),
                        snapshot: snapshot.clone(),
                        left_out: left_out.clone(),
                    });
                }
            }
            Event::Compacted {
                agent, after, how, ..
            } => {
                if let Some(talk) = self.talks.get_mut(agent) {
                    talk.seen(at);
                    talk.shorten(*after, how);
                }
            }
            Event::AgentEnded { agent, end } => {
                if let Some(talk) = self.talks.get_mut(agent) {
                    talk.seen(at);
                    talk.end(end.clone());
                }
            }
            other => self.take_call(line, other, prices),
        }
    }

    fn take_call(&mut self, line: &Line, event: &Event, prices: Prices<'_>) {
        match event {
            Event::ModelAsked {
                agent,
                call,
                reserved_tokens,
                reserved_usd,
                model,
                ..
            } => {
                self.asked.insert((agent.clone(), *call), model.clone());
                let worst = Amount {
                    tokens: *reserved_tokens as f64,
                    cost_usd: *reserved_usd,
                };
                self.talk(agent, line).asked(*call, worst);
            }
            Event::ModelFailed {
                agent,
                spent_tokens,
                spent_usd,
                ..
            } => {
                self.spend(Amount {
                    tokens: *spent_tokens as f64,
                    cost_usd: *spent_usd,
                });
                self.talk(agent, line).failed();
            }
            Event::ModelAnswered {
                agent,
                call,
                reply,
                usage,
                cost_usd,
                ..
            } => {
                let asked = self.asked.remove(&(agent.clone(), *call));
                let price = asked.and_then(|name| prices(&name));
                let usage = model::Usage {
                    input: usage.input_tokens,
                    output: usage.output_tokens,
                    cached: usage.cached_tokens,
                    estimated: usage.estimated,
                };
                self.spend(Amount {
                    tokens: bill::used(usage, price).tokens,
                    cost_usd: cost_usd.unwrap_or_default(),
                });
                self.talk(agent, line).answered(*call, reply.clone());
            }
            _ => {}
        }
    }

    /// An agent's conversation; the run's summary is one question without a beginning of its own.
    fn talk(&mut self, agent: &Agent, line: &Line) -> &mut Talk {
        let fresh = || Talk::new(AgentKind::Coordinator, CommitId::new(""), line.at);
        let talk = self.talks.entry(agent.clone()).or_insert_with(fresh);
        talk.seen(line.at);
        talk
    }

    /// Something was done that the last words and the delivery may not know of.
    fn work(&mut self) {
        self.summary = None;
        self.delivered = None;
        let nowhere = CommitId::new("");
        self.talks.retain(|_, talk| talk.start != nowhere);
    }

    fn spend(&mut self, amount: Amount) {
        self.spent.tokens += amount.tokens;
        self.spent.cost_usd += amount.cost_usd;
    }

    /// A process ended and another took over: what was out is spent.
    fn cut(&mut self, retry_failed: bool) {
        self.resumed = true;
        for talk in self.talks.values_mut() {
            if let Some(worst) = talk.cut() {
                self.spent.tokens += worst.tokens;
                self.spent.cost_usd += worst.cost_usd;
                self.lost.tokens += worst.tokens;
                self.lost.cost_usd += worst.cost_usd;
            }
        }
        if retry_failed {
            let round = self.round;
            self.talks
                .retain(|who, talk| who.round != round || !failed(talk));
            self.summary = None;
            self.delivered = None;
        }
    }
}

/// An agent that came to an end of its own which is no success.
fn failed(talk: &Talk) -> bool {
    talk.ended.as_ref().is_some_and(|end| match &end.ended {
        Some(report) => report["status"] == "failed",
        None => true,
    })
}
