//! A run's trace told again from its journal alone, by the calls that told it while it ran.
//!
//! Owns: which lines of a journal begin and end which span.
//! Takes: lines, the run's plan for what its roles say of themselves, a tracer that is told the time.
//! Gives: the spans, to the tracer.
//! Never: a fact; what the journal does not hold is left out of the trace and not made up.

mod agents;
mod chat;
mod graph;

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::id::SubtaskId;
use crate::journal::{Event, Line, RunStarted, State, SubtaskStatus};
use crate::plan::Plan;
use crate::run::Status;
use crate::run::end::finish;
use crate::run::judge::verdict;
use crate::run::work::worker;
use crate::trace::{AgentStart, Origin, RunStart, Span, Tracer};

use agents::Agents;
use graph::Graph;

/// Where the trace that these lines tell began; None for a run that was told to make none.
pub fn origin_of(lines: &[Line]) -> Option<Origin> {
    let (_, started) = State::of(lines).started?;
    Some(Origin {
        trace: started.trace_id?,
        root: started.root_span,
        ended: false,
    })
}

/// At most so many spans come of these lines.
pub fn spans_of(lines: &[Line]) -> usize {
    let of = |line: &Line| match &line.event {
        Event::TurnDone { results, .. } => 2 * results.len(),
        Event::RunStarted(_) | Event::ModelAsked { .. } => 1,
        // The first agent of a round may stand below a plan.
        Event::AgentStarted { .. } | Event::AgentResumed { .. } => 2,
        _ => 0,
    };
    lines.iter().map(of).sum()
}

/// Tells the trace to a tracer of `Tracer::told`. None for lines that begin no run.
pub fn retell(lines: &[Line], plan: Option<&Plan>, tracer: &Tracer) -> Option<()> {
    let last = lines.iter().rposition(|line| ends(&line.event));
    let resumed = lines.iter().rposition(|line| resumes(&line.event));
    let end = last.filter(|end| resumed.is_none_or(|resumed| resumed < *end));
    let lines = end.map_or(lines, |end| &lines[..=end]);
    let (first, rest) = lines.split_first()?;
    let Event::RunStarted(started) = &first.event else {
        return None;
    };
    tracer.at(moment(first.at));
    let mut told = Told::new(started, plan, tracer, lines);
    for line in rest {
        tracer.at(moment(line.at));
        told.take(line, tracer);
    }
    told.close(lines.last().map(|line| &line.event));
    Some(())
}

fn ends(event: &Event) -> bool {
    matches!(event, Event::RunEnded { .. })
}

fn resumes(event: &Event) -> bool {
    matches!(event, Event::Resumed { .. })
}

/// The trace as far as it was told.
struct Told<'a> {
    run: String,
    plan: Option<&'a Plan>,
    root: Span,
    /// The coordinator at work on a plan.
    planning: Option<Span>,
    agents: Agents,
    graph: Graph,
    /// Spans of what is done.
    done: BTreeMap<SubtaskId, Span>,
}

impl<'a> Told<'a> {
    fn new(started: &RunStarted, plan: Option<&'a Plan>, tracer: &Tracer, lines: &[Line]) -> Self {
        let root = tracer.run(&RunStart {
            run: started.run.to_string(),
            plan: started.plan_name.clone(),
        });
        Self {
            run: started.run.to_string(),
            plan,
            agents: Agents::new(root.clone(), started.run.to_string(), lines),
            root,
            planning: None,
            graph: Graph::default(),
            done: BTreeMap::new(),
        }
    }

    fn take(&mut self, line: &Line, tracer: &Tracer) {
        self.graph.take(&line.event);
        match &line.event {
            Event::AgentStarted { agent, kind, .. } => {
                let start = AgentStart {
                    run: self.run.clone(),
                    role: agent.role.to_string(),
                    subtask: agent.subtask.to_string(),
                    description: self.described(agent.role.as_str()),
                    round: agent.round,
                    kind: worker::kind_word(*kind),
                    ..AgentStart::default()
                };
                let parent = match start.kind {
                    "coordinator" => self.plan_span(&start),
                    _ => self.root.clone(),
                };
                let needs = self.graph.needs(&agent.subtask, &self.done);
                self.agents.begin(line, &parent, start, &needs);
            }
            Event::PlanAccepted { .. } => {
                if let Some(span) = self.planning.take() {
                    span.end();
                }
            }
            Event::SubtaskEnded { id, status, .. } if *status == SubtaskStatus::Done => {
                if let Some(span) = self.agents.last_of(id) {
                    self.done.insert(id.clone(), span);
                }
            }
            Event::ConflictResolved { id, .. } => {
                if let Some(span) = self.agents.last_of(id) {
                    self.done.insert(id.clone(), span);
                }
            }
            Event::RoundEnded { .. } => self.no_plan(),
            Event::VerdictGiven { verdict, .. } => self.judged(verdict),
            Event::Egress { agent, .. } if self.agents.is_no_agent(agent) => {
                agents::tell_egress(&self.root, &line.event);
            }
            _ => self.agents.take(line, tracer),
        }
    }

    fn described(&self, role: &str) -> String {
        let roles = self.plan.map(|plan| &plan.roles);
        let role = roles.and_then(|roles| roles.iter().find(|(name, _)| name.as_str() == role));
        role.map(|(_, role)| role.description.clone())
            .unwrap_or_default()
    }

    /// The span of a round's planning, which the coordinator's own stands below.
    fn plan_span(&mut self, start: &AgentStart) -> Span {
        self.no_plan();
        let span = self.root.plan(start);
        self.planning = Some(span.clone());
        span
    }

    /// What was to be planned was not.
    fn no_plan(&mut self) {
        if let Some(span) = self.planning.take() {
            span.fail("no_plan", "no valid plan");
            span.end();
        }
    }

    /// Each verifier's own word, as far as its criteria bear it out.
    fn judged(&mut self, given: &serde_json::Value) {
        let votes = given["votes"].as_array().cloned().unwrap_or_default();
        for (name, judge, own) in self.agents.judges() {
            let vote = votes.iter().find(|vote| vote["agent"] == name.as_str());
            let label = match (vote, own) {
                (Some(vote), Some(_)) => vote["status"].as_str().map(str::to_owned),
                (None, Some(own)) => {
                    let criteria = serde_json::from_value::<Vec<_>>(given["criteria"].clone());
                    let status = verdict::sum(&own, &criteria.unwrap_or_default());
                    Some(verdict::word(status).to_owned())
                }
                _ => None,
            };
            if let Some(label) = label {
                judge.evaluated("verdict", &label);
            }
            judge.end();
        }
    }

    fn close(mut self, last: Option<&Event>) {
        self.no_plan();
        self.agents.close();
        match last {
            Some(Event::RunEnded {
                status, exit_code, ..
            }) if *exit_code != 0 => {
                let status = serde_json::from_value::<Status>(status.as_str().into());
                if let Some((word, message)) = status.ok().and_then(finish::failure) {
                    self.root.fail(word, message);
                }
            }
            Some(Event::RunEnded { .. }) => {}
            _ => self.root.fail("_OTHER", "the journal has no end"),
        }
        self.root.end();
    }
}

fn moment(at: jiff::Timestamp) -> SystemTime {
    let since = std::time::Duration::try_from(at.duration_since(jiff::Timestamp::UNIX_EPOCH));
    SystemTime::UNIX_EPOCH + since.unwrap_or_default()
}

/// So many seconds later; nonsense is no time at all.
fn later(time: SystemTime, seconds: f64) -> SystemTime {
    let wait = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    time.checked_add(wait).unwrap_or(time)
}
