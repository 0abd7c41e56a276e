//! A round's subtasks: fixed by the plan file, or submitted by the coordinator.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::id::SubtaskId;
use crate::journal::{self, Agent, AgentKind, Event};
use crate::plan::{self, Dag, Kind, Role};
use crate::run::Error;
use crate::run::board::Notice;
use crate::run::round::drive::{Drive, Node};
use crate::run::round::rounds::{self, Briefs};
use crate::run::work::accept::{Accept, PlanCheck};
use crate::run::work::first;
use crate::run::work::worker::{Begin, Job};
use crate::trace::{AgentStart, Span};

/// A plan as the journal has it.
struct Known {
    subtasks: Vec<plan::Subtask>,
    summary: String,
    criteria: Vec<String>,
}

impl Drive {
    /// Gives this round its subtasks; false when there are none and the run cannot go on.
    pub async fn plan(&mut self) -> Result<bool, Error> {
        if let Some(known) = self.plan_before() {
            return self.adopt_again(known).await;
        }
        let fixed = self.shared.plan.subtasks.clone();
        if !fixed.is_empty() {
            let limit = self.shared.plan.run.subtasks.max(fixed.len());
            return match Dag::new(fixed, limit, &self.shared.plan.roles) {
                Ok(dag) => self
                    .adopt(dag, String::new(), Vec::new())
                    .await
                    .map(|()| true),
                Err(error) => {
                    self.fail(format!("the plan's subtasks: {error}"));
                    Ok(false)
                }
            };
        }
        self.ask_coordinator().await
    }

    /// The plan of this round that an earlier process accepted.
    fn plan_before(&self) -> Option<Known> {
        let plans = &self.shared.past.state().plans;
        let known = plans.iter().find(|plan| plan.round == self.round)?;
        Some(Known {
            subtasks: known.subtasks.iter().map(planned).collect(),
            summary: known.summary.clone(),
            criteria: known.criteria.clone(),
        })
    }

    /// Takes an accepted plan in once more; false when the roles are no longer those it was made for.
    async fn adopt_again(&mut self, known: Known) -> Result<bool, Error> {
        let (roles, limit) = (&self.shared.plan.roles, known.subtasks.len());
        let dag = match &self.dag {
            None => Dag::new(known.subtasks, limit, roles),
            Some(before) => before.extend(known.subtasks, limit, roles),
        };
        match dag {
            Ok(dag) => self
                .adopt(dag, known.summary, known.criteria)
                .await
                .map(|()| true),
            Err(error) => {
                self.fail(format!("the plan of round {}: {error}", self.round));
                Ok(false)
            }
        }
    }

    async fn ask_coordinator(&mut self) -> Result<bool, Error> {
        let Some(role) = self.role_of(Kind::Coordinator).cloned() else {
            self.fail("the plan has neither subtasks nor a coordinator".to_owned());
            return Ok(false);
        };
        let image = match self.image(&role.sandbox).await {
            Ok(image) => image,
            Err(reason) => {
                self.halt(reason);
                return Ok(false);
            }
        };
        let span = self.plan_span(&role);
        let check = PlanCheck {
            before: self.dag.clone(),
            limit: self.shared.plan.run.subtasks,
            roles: self.shared.plan.roles.clone(),
            earlier: self.earlier(),
        };
        let start = self.standing(&self.merged.clone()).await?;
        let first = first::coordinator(self, &role, &image, &start);
        let job = Job {
            who: Agent {
                round: self.round,
                subtask: SubtaskId::new("coordinator"),
                role: role.name.clone(),
            },
            kind: AgentKind::Coordinator,
            role,
            image,
            start,
            first,
            accept: Accept::plan(check.clone()),
            parent: span.clone(),
            needs: Vec::new(),
            begin: Begin::AsRecorded,
        };
        let end = self.alone(job).await?;
        let planned = match end.map(|end| end.outcome.ended) {
            Some(Ok(arguments)) => self.take_plan(&check, &arguments).await?,
            Some(Err(stop)) => {
                self.note_stop(&stop);
                self.no_plan(&stop.to_string());
                false
            }
            None => {
                self.no_plan("the coordinator was stopped");
                false
            }
        };
        if !planned {
            span.fail("no_plan", "no valid plan");
        }
        span.end();
        Ok(planned)
    }

    fn plan_span(&self, role: &Role) -> Span {
        self.shared.span.plan(&AgentStart {
            run: self.shared.id.to_string(),
            role: role.name.to_string(),
            subtask: "coordinator".to_owned(),
            description: role.description.clone(),
            round: self.round,
            kind: "coordinator",
            ..AgentStart::default()
        })
    }

    async fn take_plan(&mut self, check: &PlanCheck, arguments: &Value) -> Result<bool, Error> {
        match check.check(arguments) {
            Ok(planned) if planned.repeats.is_some() => {
                let before = planned.repeats.unwrap_or_default();
                self.facts.standstill = Some(format!(
                    "the plan for round {} repeats that of round {before} although it was handed back once, \
                     so the run stopped",
                    self.round
                ));
                Ok(false)
            }
            Ok(planned) => {
                self.adopt(planned.dag, planned.summary, planned.criteria)
                    .await?;
                Ok(true)
            }
            Err(error) => {
                self.no_plan(&error);
                Ok(false)
            }
        }
    }

    /// What the plans of the rounds before asked for.
    fn earlier(&self) -> BTreeMap<u32, Briefs> {
        let mut earlier: BTreeMap<u32, Briefs> = BTreeMap::new();
        for node in self.nodes.values() {
            let briefs = earlier.entry(node.round).or_default();
            briefs.insert(rounds::brief(&node.subtask));
        }
        earlier
    }

    fn no_plan(&mut self, reason: &str) {
        let which = if self.round == 1 {
            "no valid plan"
        } else {
            "no valid plan for another round"
        };
        self.fail(format!("{which}: {reason}"));
    }

    /// Criteria are added and never taken away; how one is broken into lines makes no other of it.
    fn add_criteria(&mut self, criteria: &[String]) {
        for criterion in criteria {
            let words = || criterion.split_whitespace();
            let known = |known: &String| known.split_whitespace().eq(words());
            if !self.criteria.iter().any(known) {
                self.criteria.push(criterion.clone());
            }
        }
    }

    /// Takes a checked DAG in: its new nodes wait, and what failed in earlier rounds stops counting.
    async fn adopt(
        &mut self,
        dag: Dag,
        summary: String,
        criteria: Vec<String>,
    ) -> Result<(), Error> {
        let new: Vec<_> = dag
            .order()
            .iter()
            .filter(|id| !self.nodes.contains_key(*id))
            .cloned()
            .collect();
        let subtasks: Vec<_> = new.iter().filter_map(|id| dag.get(id).cloned()).collect();
        self.add_criteria(&criteria);
        let accepted = Event::PlanAccepted {
            round: self.round,
            summary,
            criteria,
            subtasks: subtasks
                .iter()
                .map(|s| journal::Subtask {
                    id: s.id.clone(),
                    role: s.role.clone(),
                    title: s.title.clone(),
                    brief: s.brief.clone(),
                    needs: s.needs.clone(),
                })
                .collect(),
        };
        self.shared.record(accepted).await?;
        self.found = first::facts(self);
        self.facts.failed.clear();
        self.facts.verdict = None;
        self.verdict = None;
        let shown = subtasks.iter().map(|s| {
            (
                s.id.to_string(),
                s.role.to_string(),
                s.needs.iter().map(ToString::to_string).collect(),
            )
        });
        self.shared.tell(&Notice::Planned {
            round: self.round,
            subtasks: shown.collect(),
        });
        self.schedule.add(
            subtasks
                .iter()
                .map(|s| (s.id.clone(), s.needs.iter().cloned().collect())),
        );
        for subtask in subtasks {
            let node = Node {
                subtask,
                round: self.round,
                done: None,
                failed: None,
            };
            self.nodes.insert(node.subtask.id.clone(), node);
        }
        self.dag = Some(dag);
        Ok(())
    }
}

fn planned(subtask: &journal::Subtask) -> plan::Subtask {
    plan::Subtask {
        id: subtask.id.clone(),
        role: subtask.role.clone(),
        title: subtask.title.clone(),
        brief: subtask.brief.clone(),
        needs: subtask.needs.clone(),
    }
}
