//! What an agent's loop reaches of the run: its model, its sandbox, its snapshots.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::accept::Accept;
use super::ask;
use super::board::Notice;
use super::bounds;
use super::keep::Kept;
use super::recall::Recalled;
use super::shared::Shared;
use super::trees::Standing;
use super::words;
use crate::agent::{Checkpoint, Stop, Turn};
use crate::id::CommitId;
use crate::journal::{Agent, Event};
use crate::model::{Model, Reply, Request};
use crate::sandbox::{self, Sandbox, Spec, Tree, Wanted};
use crate::trace::Span;

/// One agent's side of the run.
pub(super) struct Desk {
    pub shared: Arc<Shared>,
    pub who: Agent,
    models: Vec<Arc<dyn Model>>,
    pub spec: Spec,
    accept: Accept,
    pub now: watch::Sender<Now>,
    calls: AtomicU32,
    pub reopened: AtomicU32,
}

/// What changes while the agent works.
pub(super) struct Now {
    pub sandbox: Arc<dyn Sandbox>,
    pub snapshot: CommitId,
    /// The last snapshot that a turn was journaled with.
    journaled: CommitId,
    pub left_out: Vec<(String, String)>,
    /// Files that a full disk cut; and those that one cut before the sandbox was replaced.
    pub torn: BTreeSet<String>,
    pub owed: BTreeSet<String>,
    /// The ending call was taken: the snapshot is what it spoke of.
    pub handed_in: bool,
    /// The numbers of journaled results that a verdict may rest on.
    results: BTreeSet<u32>,
}

impl Desk {
    /// Opens the agent's sandbox at `start`.
    pub async fn open(
        shared: Arc<Shared>,
        who: Agent,
        spec: Spec,
        start: &Standing,
        models: Vec<Arc<dyn Model>>,
        accept: Accept,
    ) -> Result<Self, Stop> {
        let sandbox = open(&shared, &who, &spec, &start.tree).await?;
        let now = watch::Sender::new(Now {
            sandbox,
            snapshot: start.commit.clone(),
            journaled: start.commit.clone(),
            left_out: Vec::new(),
            torn: BTreeSet::new(),
            owed: BTreeSet::new(),
            handed_in: false,
            results: BTreeSet::new(),
        });
        let (calls, reopened) = (AtomicU32::new(0), AtomicU32::new(0));
        Ok(Self {
            shared,
            who,
            models,
            spec,
            accept,
            now,
            calls,
            reopened,
        })
    }

    /// Goes on from what an earlier process knew of the agent.
    pub fn recall(&self, recalled: &Recalled) {
        self.calls.store(recalled.calls, Ordering::SeqCst);
        self.accept.recall(recalled.bounces, recalled.repeated);
        self.now.send_modify(|now| {
            now.left_out.clone_from(&recalled.left_out);
            now.results.clone_from(&recalled.results);
        });
    }

    /// The last snapshot of what the agent made.
    pub fn snapshot(&self) -> CommitId {
        self.now.borrow().snapshot.clone()
    }

    /// True when the snapshot is what the agent handed in.
    pub fn is_handed_in(&self) -> bool {
        self.now.borrow().handed_in
    }

    /// The agent's own calls that have a result.
    pub fn calls_seen(&self) -> BTreeSet<u32> {
        self.now.borrow().results.clone()
    }

    /// Ends the sandbox; bounded.
    pub async fn close(&self) {
        let sandbox = self.now.borrow().sandbox.clone();
        sandbox.close().await;
    }

    async fn ask_model(&self, mut request: Request, span: &Span) -> Result<Reply, Stop> {
        request.key.round = self.who.round;
        request.key.subtask = self.who.subtask.to_string();
        request.key.role = self.who.role.to_string();
        request.key.call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.doing("thinking");
        ask::ask(&self.shared, &self.who, &self.models, &request, span).await
    }

    async fn turn_done(&self, turn: &Turn) -> Result<Vec<String>, Stop> {
        let kept = match turn.wrote && !self.is_handed_in() {
            true => self.keep().await?,
            false => Kept::All,
        };
        let mut left_out: Vec<String> = self
            .left_out()
            .iter()
            .map(|(path, why)| format!("{path}: {why}"))
            .collect();
        if let Kept::Lost(told) = kept {
            left_out.push(format!(
                "all that this turn changed: the sandbox broke after it. {told}"
            ));
        }
        let snapshot = {
            let now = self.now.borrow();
            (now.snapshot != now.journaled).then(|| now.snapshot.clone())
        };
        let results = turn
            .results
            .iter()
            .map(|r| serde_json::to_value(r).unwrap_or_default());
        let event = Event::TurnDone {
            agent: self.who.clone(),
            turn: turn.number,
            results: results.collect(),
            snapshot,
            left_out: left_out.clone(),
        };
        self.shared
            .journal
            .append(event)
            .await
            .map_err(|e| Stop::Environment {
                reason: e.to_string(),
            })?;
        self.now.send_modify(|now| {
            now.journaled = now.snapshot.clone();
            let showing = turn.results.iter().filter(|result| result.shows());
            now.results.extend(showing.map(|result| result.number));
        });
        self.shared
            .board
            .change(self.who.subtask.as_str(), |row| row.turn = turn.number);
        let doing = words::times(turn.results.iter().map(|result| result.tool.as_str()));
        self.shared.tell(&Notice::AgentTurn {
            agent: self.who.subtask.to_string(),
            role: self.who.role.to_string(),
            turn: turn.number,
            doing,
        });
        Ok(left_out)
    }
}

impl Checkpoint for Desk {
    fn ask<'a>(&'a self, request: Request, span: &'a Span) -> BoxFuture<'a, Result<Reply, Stop>> {
        Box::pin(self.ask_model(request, span))
    }

    fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.now.borrow().sandbox.clone()
    }

    fn reopen<'a>(&'a self, broken: sandbox::Error) -> BoxFuture<'a, Result<String, Stop>> {
        Box::pin(self.reopen_sandbox(broken))
    }

    fn turn<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Vec<String>, Stop>> {
        Box::pin(self.turn_done(turn))
    }

    fn accept<'a>(
        &'a self,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Result<(), String>, Stop>> {
        Box::pin(async move {
            let answer = self.accept.check(self, arguments).await?;
            if answer.is_err() {
                self.now.send_modify(|now| now.handed_in = false);
            }
            Ok(answer)
        })
    }

    fn doing(&self, line: &str) {
        self.shared
            .board
            .change(self.who.subtask.as_str(), |row| row.doing = line.to_owned());
    }

    fn cancel(&self) -> &CancellationToken {
        &self.shared.stop.cancel
    }
}

/// Opens a sandbox at a tree and journals it.
pub(super) async fn open(
    shared: &Shared,
    who: &Agent,
    spec: &Spec,
    tree: &Arc<Tree>,
) -> Result<Arc<dyn Sandbox>, Stop> {
    let since = tokio::time::Instant::now();
    spec.fits(tree).map_err(stop_of)?;
    let wanted = Wanted {
        spec,
        tree,
        warm: shared.warm(&who.role),
    };
    let opened = shared.pool.open(wanted, &shared.stop.cancel).await;
    let sandbox = opened.map_err(stop_of)?;
    bounds::see(shared, spec, sandbox.as_ref()).await?;
    shared.journal.note(Event::SandboxOpened {
        agent: who.clone(),
        container: sandbox.facts().container.clone(),
        image: sandbox.facts().image.clone(),
        seconds: since.elapsed().as_secs_f64(),
    });
    Ok(sandbox)
}

pub(super) fn stop_of(error: sandbox::Error) -> Stop {
    match error {
        sandbox::Error::Cancelled => Stop::Cancelled,
        other => Stop::Environment {
            reason: other.to_string(),
        },
    }
}
