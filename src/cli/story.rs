//! What a journal tells so far: the DAG and its agents, also of a run that is still going or crashed.

use serde::Serialize;
use serde_json::Value;

use crate::journal::{Agent, AgentEnd, AgentKind, CommandRun, Egress, Event, Line, Subtask, Usage};

use super::wording::status_word;

/// A run as its journal has it.
#[derive(Debug, Default, Serialize)]
pub struct Story {
    pub run: String,
    pub task: String,
    pub models: Vec<String>,
    pub started_at: String,
    /// From the first to the last record.
    pub seconds: f64,
    pub rounds: u32,
    pub nodes: Vec<Node>,
    pub agents: Vec<Conversation>,
    pub commands: Vec<CommandRun>,
    pub verdict: Option<Value>,
    pub warnings: Vec<String>,
    pub tokens: u64,
    pub spent: Spent,
    pub branch: Option<String>,
    pub patch: Option<String>,
    pub ended: Option<Ended>,
}

/// Money so far; unknown as soon as one answer has no price.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spent {
    usd: f64,
    unpriced: bool,
}

/// How a run ended in order.
#[derive(Debug, Serialize)]
pub struct Ended {
    pub status: String,
    pub exit_code: i32,
    pub reason: String,
}

/// A subtask or conflict node and where it stands.
#[derive(Debug, Default, Serialize)]
pub struct Node {
    pub id: String,
    pub role: String,
    pub title: Option<String>,
    pub needs: Vec<String>,
    pub round: u32,
    /// `waiting`, `running`, or how it ended.
    pub state: &'static str,
    pub reason: Option<String>,
    pub changed_files: Vec<String>,
    pub conflict: bool,
}

/// One agent's work.
#[derive(Debug, Serialize)]
pub struct Conversation {
    pub round: u32,
    pub subtask: String,
    pub role: String,
    pub kind: AgentKind,
    pub model: String,
    pub turns: u32,
    pub tool_calls: u32,
    pub tokens: u64,
    pub spent: Spent,
    /// What its sandboxes reached.
    pub egress: Egress,
    pub seconds: Option<f64>,
    pub running: bool,
    pub reason: Option<String>,
    /// What it said in its ending call.
    pub summary: Option<String>,
}

impl Spent {
    /// US dollars, or None where a price is missing.
    pub fn usd(self) -> Option<f64> {
        (!self.unpriced).then_some(self.usd)
    }

    fn add(&mut self, cost: Option<f64>) {
        match cost {
            Some(cost) => self.usd += cost,
            None => self.unpriced = true,
        }
    }
}

impl Story {
    /// Tells the records of a journal in order.
    pub fn of(lines: &[Line]) -> Self {
        let mut story = Self::default();
        if let (Some(first), Some(last)) = (lines.first(), lines.last()) {
            story.started_at = first.at.to_string();
            story.seconds = last.at.duration_since(first.at).as_secs_f64();
        }
        for line in lines {
            story.tell(&line.event);
        }
        story
    }

    /// Says of whoever was at work that nobody is: the run's process is gone.
    pub fn stop(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.state == "running") {
            node.state = "stopped";
        }
        self.agents
            .iter_mut()
            .for_each(|agent| agent.running = false);
    }

    /// The last conversation about a node.
    pub fn conversation(&self, node: &Node) -> Option<&Conversation> {
        self.agents
            .iter()
            .rev()
            .find(|agent| agent.subtask == node.id && agent.round == node.round)
    }

    fn tell(&mut self, event: &Event) {
        match event {
            Event::RunStarted(start) => {
                self.run = start.run.to_string();
                self.task.clone_from(&start.task);
                self.models.clone_from(&start.models);
            }
            Event::RoundStarted { round } => self.rounds = *round,
            Event::PlanAccepted {
                round, subtasks, ..
            } => {
                self.nodes
                    .extend(subtasks.iter().map(|task| planned(task, *round)));
            }
            Event::ConflictFound { id, files, .. } => self.nodes.push(Node {
                id: id.to_string(),
                role: "merger".to_owned(),
                title: Some(format!("conflict in {}", files.join(", "))),
                round: self.rounds,
                state: "waiting",
                conflict: true,
                ..Node::default()
            }),
            Event::SubtaskEnded {
                id,
                status,
                reason,
                changed_files,
                ..
            } => {
                if let Some(node) = self.node(id.as_str()) {
                    node.state = status_word(*status);
                    node.reason.clone_from(reason);
                    node.changed_files.clone_from(changed_files);
                }
            }
            Event::AcceptanceRan { commands, .. } => self.commands.clone_from(commands),
            Event::VerdictGiven { verdict, .. } => self.verdict = Some(verdict.clone()),
            Event::Warned { text } => self.warnings.push(text.clone()),
            Event::Delivered { branch, patch, .. } => {
                self.branch.clone_from(branch);
                self.patch.clone_from(patch);
            }
            Event::RunEnded {
                status,
                exit_code,
                reason,
                ..
            } => {
                self.ended = Some(Ended {
                    status: status.clone(),
                    exit_code: *exit_code,
                    reason: reason.clone(),
                });
            }
            Event::Resumed { .. } => self.ended = None,
            of_agent => self.tell_agent(of_agent),
        }
    }

    fn tell_agent(&mut self, event: &Event) {
        match event {
            Event::AgentStarted {
                agent, kind, model, ..
            } => {
                if let Some(node) = self.node(agent.subtask.as_str()) {
                    node.state = "running";
                }
                self.agents.push(begun(agent, *kind, model));
            }
            Event::ModelAnswered {
                agent,
                usage,
                cost_usd,
                ..
            } => {
                self.spend(agent, *usage, *cost_usd);
            }
            Event::TurnDone {
                agent,
                turn,
                results,
                ..
            } => {
                if let Some(at) = self.of_agent(agent) {
                    at.turns = *turn;
                    at.tool_calls += u32::try_from(results.len()).unwrap_or(u32::MAX);
                }
            }
            Event::Egress { agent, step, .. } => {
                if let Some(at) = self.of_agent(agent) {
                    at.egress.take(step);
                }
            }
            Event::AgentEnded { agent, end } => {
                if let Some(at) = self.of_agent(agent) {
                    at.end(end);
                }
            }
            _ => {}
        }
    }

    fn spend(&mut self, agent: &Agent, usage: Usage, cost: Option<f64>) {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        self.tokens = self.tokens.saturating_add(tokens);
        self.spent.add(cost);
        if self.of_agent(agent).is_none() {
            // The summary is one question without a beginning of its own.
            self.agents.push(Conversation {
                running: false,
                ..begun(agent, AgentKind::Coordinator, "")
            });
        }
        if let Some(at) = self.of_agent(agent) {
            at.tokens = at.tokens.saturating_add(tokens);
            at.spent.add(cost);
        }
    }

    fn node(&mut self, id: &str) -> Option<&mut Node> {
        self.nodes.iter_mut().rev().find(|node| node.id == id)
    }

    fn of_agent(&mut self, agent: &Agent) -> Option<&mut Conversation> {
        self.agents.iter_mut().rev().find(|at| {
            at.round == agent.round
                && at.subtask == agent.subtask.as_str()
                && at.role == agent.role.as_str()
        })
    }
}

impl Conversation {
    fn end(&mut self, end: &AgentEnd) {
        self.running = false;
        self.turns = end.turns;
        self.tool_calls = end.tool_calls;
        self.seconds = Some(end.seconds);
        self.reason.clone_from(&end.reason);
        let said = end.ended.as_ref().and_then(|call| call["summary"].as_str());
        self.summary = said.map(str::to_owned);
    }
}

fn planned(task: &Subtask, round: u32) -> Node {
    Node {
        id: task.id.to_string(),
        role: task.role.to_string(),
        title: task.title.clone(),
        needs: task.needs.iter().map(ToString::to_string).collect(),
        round,
        state: "waiting",
        ..Node::default()
    }
}

fn begun(agent: &Agent, kind: AgentKind, model: &str) -> Conversation {
    Conversation {
        round: agent.round,
        subtask: agent.subtask.to_string(),
        role: agent.role.to_string(),
        kind,
        model: model.to_owned(),
        turns: 0,
        tool_calls: 0,
        tokens: 0,
        spent: Spent::default(),
        egress: Egress::default(),
        seconds: None,
        running: true,
        reason: None,
        summary: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(events: serde_json::Value) -> Vec<Line> {
        let events = events.as_array().unwrap().clone();
        let line = |(n, mut event): (usize, Value)| {
            event["seq"] = json!(n + 1);
            event["at"] = json!(format!("2026-01-01T00:00:{n:02}Z"));
            event["prev"] = json!("");
            serde_json::from_value(event).unwrap()
        };
        events.into_iter().enumerate().map(line).collect()
    }

    fn half_done() -> serde_json::Value {
        let agent = json!({"round": 1, "subtask": "a", "role": "coder"});
        json!([
            {"type": "run_started", "wharf_version": "0", "run": "r", "task": "t", "plan_name": "p",
             "plan_hash": "h", "workspace": "/w", "models": ["m"], "options": {}, "trace_id": null},
            {"type": "round_started", "round": 1},
            {"type": "plan_accepted", "round": 1, "summary": "s", "criteria": [], "subtasks": [
                {"id": "a", "role": "coder", "title": null, "brief": "b", "needs": []},
                {"id": "b", "role": "coder", "title": null, "brief": "b", "needs": ["a"]}]},
            {"type": "agent_started", "agent": agent, "kind": "worker", "model": "m", "start": "c"},
            {"type": "model_answered", "agent": agent, "call": 1, "reply": {}, "cost_usd": 0.5,
             "usage": {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 0, "estimated": false},
             "seconds": 1.0},
            {"type": "turn_done", "agent": agent, "turn": 1, "results": [1, 2], "snapshot": null, "left_out": []},
        ])
    }

    #[test]
    fn a_run_cut_in_the_middle_shows_who_runs_and_who_waits() {
        let story = Story::of(&lines(half_done()));
        let states: Vec<_> = story
            .nodes
            .iter()
            .map(|n| (n.id.as_str(), n.state))
            .collect();
        assert_eq!(states, [("a", "running"), ("b", "waiting")]);
        let at = story.conversation(&story.nodes[0]).unwrap();
        assert_eq!(
            (at.turns, at.tool_calls, at.tokens, at.running),
            (1, 2, 15, true)
        );
        assert_eq!(story.spent.usd(), Some(0.5));
        assert!(story.ended.is_none());
        assert!((story.seconds - 5.0).abs() < 1e-9);
    }

    #[test]
    fn one_answer_without_a_price_makes_the_cost_unknown() {
        let mut spent = Spent::default();
        spent.add(Some(1.0));
        spent.add(None);
        assert_eq!(spent.usd(), None);
    }

    #[test]
    fn an_ended_subtask_has_its_state_and_a_resumed_run_has_not_ended() {
        let mut events = half_done();
        let list = events.as_array_mut().unwrap();
        list.push(
            json!({"type": "subtask_ended", "id": "a", "round": 1, "status": "failed",
            "reason": "turns", "snapshot": null, "changed_files": ["x"]}),
        );
        list.push(json!({"type": "run_ended", "status": "failed", "exit_code": 1, "reason": "r", "result": {}}));
        let story = Story::of(&lines(events.clone()));
        assert_eq!(story.nodes[0].state, "failed");
        assert_eq!(story.ended.as_ref().unwrap().exit_code, 1);
        events
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "resumed", "wharf_version": "0"}));
        assert!(Story::of(&lines(events)).ended.is_none());
    }
}
