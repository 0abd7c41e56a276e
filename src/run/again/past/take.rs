//! How a line of the journal adds to what was done.

use super::*;

impl Past {
    pub(super) fn take(&mut self, line: &Line, prices: Prices<'_>) {
        match &line.event {
            Event::Resumed { retry_failed, .. } => self.cut(*retry_failed),
            Event::RoundStarted { round } => self.round = *round,
            Event::Merged { inputs, commit } => {
                self.merges.insert((inputs.clone(), commit.clone()));
                self.work();
            }
            Event::AcceptanceRan { .. } => {
                if let Some((round, tree, accepted)) = Accepted::of(&line.event) {
                    self.accepted.insert(round, (tree, accepted));
                }
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
                usage,
                ..
            } => {
                self.spend(Amount {
                    tokens: *spent_tokens as f64,
                    cost_usd: *spent_usd,
                });
                self.talk(agent, line).failed(usage.unwrap_or_default());
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
    pub(super) fn talk(&mut self, agent: &Agent, line: &Line) -> &mut Talk {
        let fresh = || Talk::new(AgentKind::Coordinator, CommitId::new(""), line.at);
        let talk = self.talks.entry(agent.clone()).or_insert_with(fresh);
        talk.seen(line.at);
        talk
    }

    /// Something was done that the last words and the delivery may not know of.
    pub(super) fn work(&mut self) {
        self.summary = None;
        self.delivered = None;
        let nowhere = CommitId::new("");
        self.talks.retain(|_, talk| talk.start != nowhere);
    }

    pub(super) fn spend(&mut self, amount: Amount) {
        self.spent.tokens += amount.tokens;
        self.spent.cost_usd += amount.cost_usd;
    }

    /// A process ended and another took over: what was out is spent.
    pub(super) fn cut(&mut self, retry_failed: bool) {
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
