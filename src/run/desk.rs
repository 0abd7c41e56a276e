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
use super::shared::Shared;
use super::trees::{self, Standing, Taken};
use super::words;
use crate::agent::{Checkpoint, Stop, Turn};
use crate::id::CommitId;
use crate::journal::{Agent, Event};
use crate::model::{Model, Reply, Request};
use crate::sandbox::{self, Sandbox, Spec, Tree, Wanted};
use crate::trace::Span;

/// How often one agent's sandbox is reopened after it broke.
const REOPENINGS: u32 = 1;

/// One agent's side of the run.
pub(super) struct Desk {
    pub shared: Arc<Shared>,
    pub who: Agent,
    models: Vec<Arc<dyn Model>>,
    spec: Spec,
    accept: Accept,
    now: watch::Sender<Now>,
    calls: AtomicU32,
    reopened: AtomicU32,
}

#[derive(Clone)]
struct Now {
    sandbox: Arc<dyn Sandbox>,
    snapshot: CommitId,
    left_out: Vec<(String, String)>,
    /// The numbers of results that were journaled.
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
            left_out: Vec::new(),
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

    /// The last snapshot of what the agent made.
    pub fn snapshot(&self) -> CommitId {
        self.now.borrow().snapshot.clone()
    }

    /// What was left out of the snapshots, with the reason.
    pub fn left_out(&self) -> Vec<(String, String)> {
        self.now.borrow().left_out.clone()
    }

    /// The agent's own calls that have a result.
    pub fn calls_seen(&self) -> BTreeSet<u32> {
        self.now.borrow().results.clone()
    }

    /// Scans the sandbox into the store; None when nothing changed since the last snapshot.
    pub async fn take_snapshot(&self) -> Result<Option<CommitId>, Stop> {
        let Now {
            sandbox, snapshot, ..
        } = self.now.borrow().clone();
        let changes = sandbox.scan().await.map_err(stop_of)?;
        let Taken { edits, left_out } = trees::take(changes, &self.shared.hidden);
        if !left_out.is_empty() {
            self.now.send_modify(|now| {
                now.left_out.extend(left_out);
                now.left_out.sort();
                now.left_out.dedup();
            });
        }
        if edits.is_empty() {
            return Ok(None);
        }
        let message = format!("{} ({})", self.who.subtask, self.who.role);
        let store = &self.shared.store;
        let commit = store
            .commit(&[snapshot], &edits, &message)
            .await
            .map_err(|error| Stop::Environment {
                reason: error.to_string(),
            })?;
        self.now.send_modify(|now| now.snapshot = commit.clone());
        Ok(Some(commit))
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

    async fn reopen_sandbox(&self, broken: sandbox::Error) -> Result<String, Stop> {
        let reason = broken.to_string();
        if matches!(broken, sandbox::Error::Cancelled) {
            return Err(Stop::Cancelled);
        }
        let reopened = self.reopened.fetch_add(1, Ordering::SeqCst) < REOPENINGS;
        let event = Event::SandboxBroken {
            agent: self.who.clone(),
            reason: reason.clone(),
            reopened,
        };
        self.shared
            .journal
            .append(event)
            .await
            .map_err(|e| Stop::Environment {
                reason: e.to_string(),
            })?;
        self.close().await;
        if !reopened {
            return Err(Stop::Environment { reason });
        }
        self.shared.warn(format!(
            "{}: {reason}; reopened at its last snapshot",
            self.who.subtask
        ));
        let tree = trees::tree(&self.shared.store, &self.snapshot()).await;
        let tree = tree.map_err(|error| Stop::Environment {
            reason: error.to_string(),
        })?;
        let sandbox = open(&self.shared, &self.who, &self.spec, &Arc::new(tree)).await?;
        self.now.send_modify(|now| now.sandbox = sandbox);
        Ok(format!(
            "The sandbox broke ({reason}) and was replaced by a fresh one that holds your files as they \
             were after your last finished turn. Running processes, installed packages and files outside \
             /workspace are gone. If your last command caused this, do it differently."
        ))
    }

    async fn turn_done(&self, turn: &Turn) -> Result<Vec<String>, Stop> {
        let snapshot = if turn.wrote {
            self.take_snapshot().await?
        } else {
            None
        };
        let left_out: Vec<String> = self
            .left_out()
            .iter()
            .map(|(path, why)| format!("{path}: {why}"))
            .collect();
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
        self.now
            .send_modify(|now| now.results.extend(turn.results.iter().map(|r| r.number)));
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

    fn accept<'a>(&'a self, arguments: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.accept.check(self, arguments))
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
    let wanted = Wanted {
        spec,
        tree,
        warm: shared.warm(&who.role),
    };
    let opened = shared.pool.open(wanted, &shared.stop.cancel).await;
    let sandbox = opened.map_err(stop_of)?;
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
