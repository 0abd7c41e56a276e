//! What an agent made is kept: snapshots, the last look before it hands in, and a fresh sandbox at
//! the last snapshot when one broke.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::agent::Stop;
use crate::id::CommitId;
use crate::journal::{Agent, Event};
use crate::run::shared::Shared;
use crate::run::work::desk::{Desk, open, stop_of};
use crate::run::work::{changes, trees};
use crate::sandbox;
use crate::workspace::Edit;

/// How often a sandbox that broke is replaced, for one agent and for the acceptance commands.
pub(in crate::run) const REOPENINGS: u32 = 1;

/// Why a file stands among what was left out.
const TORN: &str =
    "not whole: the disk was full while it was written; write it again, or remove it";

/// What a look found that changed.
struct Found {
    changes: sandbox::Changes,
    /// It was known before, from what a run recorded.
    recorded: bool,
}

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
        let mut left_out = self.now.borrow().stays.left_out();
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
        let Found { changes, recorded } = match self.changes(sandbox.as_ref(), &snapshot).await? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let (kept_out, rules) = (&self.shared.kept_out, &self.shared.base_rules);
        let taken = changes::take(changes, kept_out, rules);
        let mut new = false;
        self.now.send_modify(|now| {
            new = now.stays.enter(&taken);
            let written = |path: &String| taken.edits.iter().any(|e| changes::shown(e) == *path);
            now.owed.retain(|path| !written(path));
            now.torn.clone_from(&taken.torn);
        });
        if new {
            self.commit(taken.edits, recorded).await?;
        }
        Ok(Ok(()))
    }

    /// Commits what the agent changed, and above it what stays all the same. In a replay with recorded
    /// tools what was found holds that already.
    async fn commit(&self, edits: Vec<Edit>, recorded: bool) -> Result<(), Stop> {
        let (made, above) = {
            let now = self.now.borrow();
            (now.made.clone(), now.stays.edits())
        };
        let made = self.commit_on(made, &edits).await?;
        let snapshot = match recorded {
            true => made.clone(),
            false => self.commit_on(made.clone(), &above).await?,
        };
        self.now.send_modify(|now| {
            now.made = made;
            now.snapshot = snapshot;
        });
        Ok(())
    }

    async fn commit_on(&self, parent: CommitId, edits: &[Edit]) -> Result<CommitId, Stop> {
        if edits.is_empty() {
            return Ok(parent);
        }
        let message = format!("{} ({})", self.who.subtask, self.who.role);
        let commit = self.shared.store.commit(&[parent], edits, &message).await;
        commit.map_err(|error| Stop::Environment {
            reason: error.to_string(),
        })
    }

    /// What changed since `snapshot`: what is found in the sandbox, or in a replay with recorded tools
    /// what was found then.
    async fn changes(
        &self,
        sandbox: &dyn sandbox::Sandbox,
        snapshot: &CommitId,
    ) -> Result<Result<Found, sandbox::Error>, Stop> {
        if let Some(script) = &self.shared.script {
            let turn = (&self.who, self.now.borrow().turn + 1);
            let store = &self.shared.store;
            if let Some(known) = script.changes(store, turn, snapshot).await {
                let known = known.map_err(|error| Stop::Environment {
                    reason: error.to_string(),
                })?;
                return Ok(Ok(Found {
                    changes: known,
                    recorded: true,
                }));
            }
        }
        let scanned = sandbox.scan().await;
        Ok(scanned.map(|changes| Found {
            changes,
            recorded: false,
        }))
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
            now.made = now.snapshot.clone();
            now.stays.move_on();
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
