//! A round's subtasks: fixed by the plan file, or submitted by the coordinator.

use serde_json::Value;

use super::accept::{Accept, PlanCheck};
use super::board::Notice;
use super::drive::{Drive, Node};
use super::worker::Job;
use super::{Error, first};
use crate::id::SubtaskId;
use crate::journal::{self, Agent, AgentKind, Event};
use crate::plan::{Dag, Kind, Role};
use crate::trace::{AgentStart, Span};

impl Drive {
    /// Gives this round its subtasks; false when there are none and the run cannot go on.
    pub async fn plan(&mut self) -> Result<bool, Error> {
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
        };
        let first = first::coordinator(self, &role, &image).await?;
        let job = Job {
            who: Agent {
                round: self.round,
                subtask: SubtaskId::new("coordinator"),
                role: role.name.clone(),
            },
            kind: AgentKind::Coordinator,
            role,
            image,
            start: self.merged.clone(),
            first,
            accept: Accept::Plan(Box::new(check.clone())),
            parent: span.clone(),
            needs: Vec::new(),
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

    fn no_plan(&mut self, reason: &str) {
        let which = if self.round == 1 {
            "no valid plan"
        } else {
            "no valid plan for another round"
        };
        self.fail(format!("{which}: {reason}"));
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
        for criterion in &criteria {
            if !self.criteria.contains(criterion) {
                self.criteria.push(criterion.clone());
            }
        }
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
        self.shared.journal.append(accepted).await?;
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
