//! What an agent's loop reaches of the run: its model, its sandbox, its snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::agent::{Checkpoint, Permit, Shortened, Stop, Turn};
use crate::id::CommitId;
use crate::journal::{Agent, Event};
use crate::model::{Key, Model, Reply, Request};
use crate::run::again::recall::Recalled;
use crate::run::allow::consent::Asked;
use crate::run::board::Notice;
use crate::run::call::ask;
use crate::run::call::sent::Sent;
use crate::run::end::words;
use crate::run::judge::witness::Calls;
use crate::run::shared::Shared;
use crate::run::work::accept::Accept;
use crate::run::work::bounds;
use crate::run::work::keep::Looked;
use crate::run::work::left_out;
use crate::run::work::stays::Stays;
use crate::run::work::trees::Standing;
use crate::sandbox::{self, Sandbox, Spec, Tree, Wanted};
use crate::tools::{Call, Output, Set};
use crate::trace::Span;

/// One agent's side of the run.
pub(in crate::run) struct Desk {
    pub shared: Arc<Shared>,
    pub who: Agent,
    models: Vec<Arc<dyn Model>>,
    pub spec: Spec,
    accept: Accept,
    pub now: watch::Sender<Now>,
    calls: AtomicU32,
    pub reopened: AtomicU32,
    pub asked: Asked,
}

/// What changes while the agent works.
pub(in crate::run) struct Now {
    pub sandbox: Arc<dyn Sandbox>,
    /// Everything that it changed and that a commit can hold.
    pub made: CommitId,
    /// The same with what stays of its start.
    pub snapshot: CommitId,
    /// The last snapshot that a turn was journaled with.
    journaled: CommitId,
    pub stays: Stays,
    /// Files that a full disk cut; and those that one cut before the sandbox was replaced.
    pub torn: BTreeSet<String>,
    pub owed: BTreeSet<String>,
    /// The ending call was taken: the snapshot is what it spoke of.
    pub handed_in: bool,
    /// The numbers of journaled results, and of each whether a verdict may rest on it.
    results: Calls,
    /// Summaries of its conversation that an earlier process paid for.
    summaries: BTreeMap<u32, Reply>,
    /// Its last own request, as the journal has it.
    sent: Sent,
    /// The last turn that was journaled.
    pub turn: u32,
    /// Calls that an earlier process may have made.
    pub unknown: BTreeSet<String>,
}

impl Desk {
    /// Opens the sandbox of an agent that began at `start` and stands `at`.
    pub async fn open(
        shared: Arc<Shared>,
        who: Agent,
        spec: Spec,
        (start, at): (&Standing, &Standing),
        models: Vec<Arc<dyn Model>>,
        accept: Accept,
    ) -> Result<Self, Stop> {
        let sandbox = open(&shared, &who, &spec, &at.tree).await?;
        let now = watch::Sender::new(Now {
            sandbox,
            made: at.commit.clone(),
            snapshot: at.commit.clone(),
            journaled: at.commit.clone(),
            stays: Stays::new(&start.tree, &at.tree),
            torn: BTreeSet::new(),
            owed: BTreeSet::new(),
            handed_in: false,
            results: Calls::new(),
            summaries: BTreeMap::new(),
            sent: Sent::default(),
            turn: 0,
            unknown: BTreeSet::new(),
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
            asked: Asked::default(),
        })
    }

    /// Goes on from what an earlier process knew of the agent.
    pub fn recall(&self, recalled: &Recalled) {
        self.calls.store(recalled.calls, Ordering::SeqCst);
        self.accept.recall(recalled.bounces, recalled.repeated);
        self.doubt(&recalled.unfinished);
        self.now.send_modify(|now| {
            now.stays.recall(&recalled.left_out);
            now.results.clone_from(&recalled.results);
            now.summaries.clone_from(&recalled.summaries);
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
    pub fn calls_seen(&self) -> Calls {
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
        let call = self.calls.load(Ordering::SeqCst) + 1;
        request.key.call = call;
        let script = self.shared.script.as_ref();
        if let Some(stop) = script.and_then(|s| s.stop(&self.shared, &self.who, call)) {
            return Err(stop);
        }
        self.doing("thinking");
        let made = self.now.borrow().sent.event(&self.who, &request);
        self.shared.journal.note(made);
        let asked = ask::ask(&self.shared, &self.who, &self.models, &request, span).await;
        // A call that came to nothing leaves its number to the next: recordings have no gap.
        if asked.is_ok() {
            self.calls.store(call, Ordering::SeqCst);
        }
        self.now
            .send_modify(|now| now.sent = Sent::of(request.messages, request.tools));
        asked
    }

    async fn ask_summary(
        &self,
        number: u32,
        mut request: Request,
        span: &Span,
    ) -> Result<Reply, Stop> {
        let paid = self.now.borrow().summaries.get(&number).cloned();
        if let Some(reply) = paid {
            return Ok(reply);
        }
        let models = match self.shared.models.summary.as_slice() {
            [] => &self.models,
            own => own,
        };
        request.key.round = self.who.round;
        request.key.subtask = self.who.subtask.to_string();
        request.key.role = self.who.role.to_string();
        request.key.call = Key::SUMMARIES + number;
        let made = Sent::default().event(&self.who, &request);
        self.shared.journal.note(made);
        ask::ask(&self.shared, &self.who, models, &request, span).await
    }

    async fn journal_shortened(&self, how: &Shortened) -> Result<(), Stop> {
        let event = Event::Compacted {
            agent: self.who.clone(),
            after: how.after,
            how: serde_json::to_value(&how.way).unwrap_or_default(),
            messages: (how.before.messages, how.then.messages),
            tokens: (how.before.tokens, how.then.tokens),
        };
        if !how.way.is_recorded() {
            self.shared.journal.note(event);
            return Ok(());
        }
        let written = self.shared.journal.append(event).await;
        written.map(|_| ()).map_err(|error| Stop::Environment {
            reason: error.to_string(),
        })
    }

    async fn turn_done(&self, turn: &Turn) -> Result<Vec<String>, Stop> {
        let kept = match turn.wrote && !self.is_handed_in() {
            true => self.keep().await?,
            false => Looked::All,
        };
        let mut left: Vec<String> = self.left_out().iter().map(left_out::line).collect();
        if let Looked::Lost(told) = kept {
            let why = format!("the sandbox broke after it. {told}");
            left.push(left_out::line(&(
                "all that this turn changed".to_owned(),
                why,
            )));
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
            left_out: left.clone(),
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
            now.turn = turn.number;
            let results = turn.results.iter();
            now.results
                .extend(results.map(|result| (result.number, result.shows())));
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
        Ok(left)
    }
}

impl Checkpoint for Desk {
    fn ask<'a>(&'a self, request: Request, span: &'a Span) -> BoxFuture<'a, Result<Reply, Stop>> {
        Box::pin(self.ask_model(request, span))
    }

    fn condense<'a>(
        &'a self,
        number: u32,
        request: Request,
        span: &'a Span,
    ) -> BoxFuture<'a, Result<Reply, Stop>> {
        Box::pin(self.ask_summary(number, request, span))
    }

    fn shortened<'a>(&'a self, how: &'a Shortened) -> BoxFuture<'a, Result<(), Stop>> {
        Box::pin(self.journal_shortened(how))
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

    fn permit<'a>(
        &'a self,
        tools: &'a Set,
        call: Call,
        call_id: &'a str,
    ) -> BoxFuture<'a, Result<Result<Permit, Output>, Stop>> {
        Box::pin(self.permit_in_turn(tools, call, call_id))
    }

    fn seen<'a>(
        &'a self,
        call: &'a Call,
        call_id: &'a str,
        output: Output,
    ) -> BoxFuture<'a, Result<Output, Stop>> {
        Box::pin(self.seen_call(call, call_id, output))
    }

    fn refused(&self, tool: &str, call_id: &str, reason: &str) {
        self.refused_call(tool, call_id, reason);
    }

    fn accept<'a>(
        &'a self,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Result<(), String>, Stop>> {
        Box::pin(async move {
            let answer = match self.accept.check(self, arguments).await? {
                Ok(()) => self.may_stop(arguments).await?,
                refused => refused,
            };
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

    fn unanswered(&self) -> u64 {
        let known = self.shared.unanswered.borrow();
        known.get(&self.who).copied().unwrap_or_default()
    }

    fn cancel(&self) -> &CancellationToken {
        &self.shared.stop.cancel
    }
}

/// Opens a sandbox at a tree and journals it.
pub(in crate::run) async fn open(
    shared: &Shared,
    who: &Agent,
    spec: &Spec,
    tree: &Arc<Tree>,
) -> Result<Arc<dyn Sandbox>, Stop> {
    let since = tokio::time::Instant::now();
    let script = shared.script.as_ref();
    if let Some(sandbox) = script.and_then(|script| script.sandbox(who, &spec.image)) {
        return Ok(sandbox);
    }
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
        shell: sandbox.facts().shell.clone().unwrap_or_default(),
        runtime: sandbox.facts().runtime.clone(),
    });
    Ok(sandbox)
}

pub(in crate::run) fn stop_of(error: sandbox::Error) -> Stop {
    match error {
        sandbox::Error::Cancelled => Stop::Cancelled,
        other => Stop::Environment {
            reason: other.to_string(),
        },
    }
}
