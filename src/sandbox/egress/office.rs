//! One sandbox's ways out: how many there are at once, what they used up together, who is told.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wharf_toolbox::message::{Reach, Why};

use super::attend;
use super::decide::Refusal;
use super::passage::Knock;
use super::policy::{Decision, Policy, Step};
use super::{Exit, Way};

/// Connections that are told one by one; an agent can make more of them than a journal can bear.
const LISTED: u64 = 500;
/// How long connections may take to notice that their sandbox is gone.
const GRACE: Duration = Duration::from_secs(2);
/// Characters of a host's name that are told.
const NAMED: usize = 253;

/// What the connections of one sandbox share.
pub struct Office {
    pub(super) policy: Policy,
    pub(super) way: Way,
    /// Bytes both ways so far.
    spent: AtomicU64,
    unlisted: Mutex<Unlisted>,
}

#[derive(Default)]
struct Unlisted {
    allowed: u64,
    refused: u64,
    sent: u64,
    received: u64,
}

impl Office {
    pub fn new(exit: Exit) -> Office {
        Office {
            policy: exit.policy,
            way: exit.way,
            spent: AtomicU64::new(0),
            unlisted: Mutex::default(),
        }
    }

    /// Serves those who knock until the sandbox is gone; nobody waits for another.
    pub async fn serve(self, mut knocks: UnboundedReceiver<Knock>) {
        let over = CancellationToken::new();
        let office = Arc::new(self);
        let mut active = FuturesUnordered::new();
        let mut number = 0;
        loop {
            tokio::select! {
                knock = knocks.recv() => {
                    let Some(knock) = knock else { break };
                    number += 1;
                    if active.len() < office.policy.connections {
                        active.push(attend::attend(office.clone(), knock, number, over.clone()));
                    } else {
                        office.turn_away(knock, number);
                    }
                }
                Some(()) = active.next() => {}
            }
        }
        over.cancel();
        let rest = async { while active.next().await.is_some() {} };
        if timeout(GRACE, rest).await.is_err() {
            tracing::warn!("connections out of a sandbox did not end in time and were dropped");
        }
        office.sum_up();
    }

    fn turn_away(&self, knock: Knock, number: u64) {
        let refusal = Refusal {
            why: Why::Busy,
            reason: format!(
                "there are {} connections already, as many as the plan allows at once",
                self.policy.connections
            ),
            detail: String::new(),
        };
        self.refused(&knock.reach, number, &refusal);
        knock.passage.refuse(&refusal);
    }

    /// Takes up to `wanted` bytes of those that are left.
    pub(super) fn spend(&self, wanted: usize) -> usize {
        let most = self.policy.bytes;
        let add = |spent: u64| Some(spent.saturating_add(wanted as u64).min(most));
        let before = self
            .spent
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, add)
            .unwrap_or(most);
        let left = most.saturating_sub(before);
        wanted.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// True when no byte is left.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::SeqCst) >= self.policy.bytes
    }

    pub(super) fn refused(&self, reach: &Reach, number: u64, refusal: &Refusal) {
        let reason = refusal.whole();
        self.tell(reach, number, Step::Refused { reason });
    }

    /// Tells of a step, or only counts it.
    pub(super) fn tell(&self, reach: &Reach, number: u64, step: Step) {
        if number > LISTED {
            return self.count(&step);
        }
        self.policy.listener.tell(Decision {
            connection: number,
            host: reach.host.chars().take(NAMED).collect(),
            port: reach.port,
            step,
        });
    }

    fn count(&self, step: &Step) {
        let mut unlisted = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        match step {
            Step::Allowed { .. } => unlisted.allowed += 1,
            Step::Refused { .. } => unlisted.refused += 1,
            Step::Ended { sent, received, .. } => {
                unlisted.sent += sent;
                unlisted.received += received;
            }
            Step::Unlisted { .. } => {}
        }
    }

    fn sum_up(&self) {
        let unlisted =
            std::mem::take(&mut *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner));
        if unlisted.allowed + unlisted.refused > 0 {
            self.policy.listener.tell(Decision {
                connection: LISTED,
                host: String::new(),
                port: 0,
                step: Step::Unlisted {
                    allowed: unlisted.allowed,
                    refused: unlisted.refused,
                    sent: unlisted.sent,
                    received: unlisted.received,
                },
            });
        }
    }
}
