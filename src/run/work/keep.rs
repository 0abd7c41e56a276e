//! What an agent made is kept: snapshots, the last look before it hands in, and a fresh sandbox at
//! the last snapshot when one broke.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::agent::Stop;
use crate::id::CommitId;
use crate::journal::{Agent, Event};
use crate::run::shared::Shared;
use crate::run::work::desk::{Desk, open, stop_of};
use crate::run::work::trees::{self, Taken};
use crate::sandbox;

/// How often a sandbox that broke is replaced, for one agent and for the acceptance commands.
pub(in crate::run) const REOPENINGS: u32 = 1;

/// Why a file stands among what was left out.
const TORN: &str =
    "not whole: the disk was full while it was written; write it again, or remove it";

/// What became of a look at the sandbox.
pub(in crate::run) enum Looked {
    /// The last snapshot holds what stands there.
    All,
    /// It broke, and a fresh one stands at the last snapshot; what to tell the agent.
    Lost(String),
}

impl Desk {
    /// Scans the sandbox into the store, on top of the last snapshot.
    pub async fn take_snapshot(&self) -> Result<(), Stop> {
        self.scan().await?.map_err(stop_of)
    }

    /// As `take_snapshot`; a sandbox that breaks over it is replaced while it may be.
    pub async fn keep(&self) -> Result<Looked, Stop> {
        match self.scan().await? {
            Ok(()) => Ok(Looked::All),
            Err(broken) => self.reopen_sandbox(broken).await.map(Looked::Lost),
        }
    }

    /// The last look before an agent's work counts as done: everything is in the snapshot, and whole.
    pub async fn hand_in(&self) -> Result<Result<(), String>, Stop> {
        if let Looked::Lost(told) = self.keep().await? {
            return Ok(Err(format!(
                "not handed in: the sandbox broke before your changes were taken. {told} What this turn \
                 changed is lost with it."
            )));
        }
        let torn: Vec<String> = self.torn().into_iter().collect();
        if !torn.is_empty() {
            return Ok(Err(format!(
                "not handed in: the disk was full while these files were written, and they are not whole: \
                 {}. Make room, then write each of them again or remove it; or report that it failed.",
                torn.join(", ")
            )));
        }
        self.now.send_modify(|now| now.handed_in = true);
        Ok(Ok(()))
    }

    /// What was left out of the snapshots, with the reason.
    pub fn left_out(&self) -> Vec<(String, String)> {
        let mut left_out = self.now.borrow().left_out.clone();
        let torn = self.torn().into_iter();
        left_out.extend(torn.map(|path| (path, TORN.to_owned())));
        left_out
    }

    fn torn(&self) -> std::collections::BTreeSet<String> {
        let now = self.now.borrow();
        now.torn.union(&now.owed).cloned().collect()
    }

    /// The inner error is the sandbox's.
    async fn scan(&self) -> Result<Result<(), sandbox::Error>, Stop> {
        let (sandbox, snapshot) = {
            let now = self.now.borrow();
            (now.sandbox.clone(), now.snapshot.clone())
        };
        let Taken {
            edits,
            left_out,
            torn,
        } = match self.changes(sandbox.as_ref(), &snapshot).await? {
            Ok(changes) => trees::take(changes, &self.shared.kept_out),
            Err(error) => return Ok(Err(error)),
        };
        self.now.send_modify(|now| {
            now.left_out.extend(left_out);
            now.left_out.sort();
            now.left_out.dedup();
            let written = |path: &String| edits.iter().any(|edit| trees::shown(edit) == *path);
            now.owed.retain(|path| !written(path));
            now.torn = torn;
        });
        if edits.is_empty() {
            return Ok(Ok(()));
        }
        let message = format!("{} ({})", self.who.subtask, self.who.role);
        let store = &self.shared.store;
        let commit = store.commit(&[snapshot], &edits, &message).await;
        let commit: CommitId = commit.map_err(|error| Stop::Environment {
            reason: error.to_string(),
        })?;
        self.now.send_modify(|now| now.snapshot = commit);
        Ok(Ok(()))
    }

    /// What changed since `snapshot`: what is found in the sandbox, or in a replay with recorded tools
    /// what was found then.
    async fn changes(
        &self,
        sandbox: &dyn sandbox::Sandbox,
        snapshot: &CommitId,
    ) -> Result<Result<sandbox::Changes, sandbox::Error>, Stop> {
        if let Some(script) = &self.shared.script {
            let turn = (&self.who, self.now.borrow().turn + 1);
            let store = &self.shared.store;
            if let Some(known) = script.changes(store, turn, snapshot).await {
                return known.map(Ok).map_err(|error| Stop::Environment {
                    reason: error.to_string(),
                });
            }
        }
        Ok(sandbox.scan().await)
    }

    /// Replaces a sandbox that broke; gives what to tell the agent. The second break ends it.
    pub async fn reopen_sandbox(&self, broken: sandbox::Error) -> Result<String, Stop> {
        if matches!(broken, sandbox::Error::Cancelled) {
            return Err(Stop::Cancelled);
        }
        let before = self.reopened.fetch_add(1, Ordering::SeqCst);
        let reason = record(&self.shared, &self.who, &broken, before < REOPENINGS).await?;
        self.close().await;
        if before >= REOPENINGS {
            return Err(Stop::Broken { reason });
        }
        let tree = trees::tree(&self.shared.store, &self.snapshot()).await;
        let tree = tree.map_err(|error| Stop::Environment {
            reason: error.to_string(),
        })?;
        let sandbox = open(&self.shared, &self.who, &self.spec, &Arc::new(tree))
            .await
            .map_err(|stop| after(&reason, stop))?;
        self.now.send_modify(|now| {
            now.sandbox = sandbox;
            now.owed.append(&mut now.torn);
        });
        Ok(format!(
            "A fresh sandbox took its place ({reason}). It holds your files as they were after your last \
             finished turn. Background processes, what was in /tmp and in the home folder, and anything \
             installed by hand are gone. If your last command caused this, do it differently: a second \
             break ends your work."
        ))
    }
}

/// Journals and tells that a sandbox broke; gives the reason in words.
pub(in crate::run) async fn record(
    shared: &Shared,
    who: &Agent,
    broken: &sandbox::Error,
    reopened: bool,
) -> Result<String, Stop> {
    let reason = broken.reason();
    let event = Event::SandboxBroken {
        agent: who.clone(),
        cause: broken.cause().word().to_owned(),
        reason: reason.clone(),
        reopened,
    };
    let appended = shared.journal.append(event).await;
    appended.map_err(|error| Stop::Environment {
        reason: error.to_string(),
    })?;
    let then = match reopened {
        true => "a fresh one takes its place",
        false => "it is not replaced a second time",
    };
    shared.warn(format!(
        "{}: the sandbox broke: {reason}; {then}",
        who.subtask
    ));
    Ok(reason)
}

/// Why no fresh sandbox could be opened stands beside why one was needed.
fn after(first: &str, stop: Stop) -> Stop {
    match stop {
        Stop::Environment { reason } => Stop::Environment {
            reason: format!("{first}; and then no other could be opened: {reason}"),
        },
        other => other,
    }
}
