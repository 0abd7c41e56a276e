//! The one pot of a run: tokens and money, reserved before a call and settled after it.

use std::collections::VecDeque;

use tokio::sync::{mpsc, oneshot};

use crate::agent::{Limit, Resource};

/// What a run may spend.
#[derive(Clone, Copy, Debug)]
pub(in crate::run) struct Limits {
    pub tokens: u64,
    pub cost_usd: Option<f64>,
}

/// An amount of both currencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::run) struct Amount {
    /// Cached input counted at its price weight.
    pub tokens: f64,
    pub cost_usd: f64,
}

/// A handle on the pot; cheap to clone. Its task ends with the last handle.
#[derive(Clone)]
pub(in crate::run) struct Pot {
    queue: mpsc::UnboundedSender<Ask>,
}

/// A part of the pot that is held for one call. Dropping it unsettled counts it as spent: the
/// request may have reached the model.
pub(in crate::run) struct Held {
    amount: Amount,
    queue: mpsc::UnboundedSender<Ask>,
    settled: bool,
}

/// Why nothing was reserved.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::run) enum Refusal {
    /// A limit is used up.
    Limit(Limit),
    /// The run is over, and its pot with it.
    Ended,
}

enum Ask {
    Reserve {
        amount: Amount,
        answer: oneshot::Sender<Result<(), Limit>>,
    },
    Settle {
        held: Amount,
        used: Amount,
    },
}

impl Pot {
    /// A full pot less what was spent before. The task is returned for `run` to spawn.
    pub fn new(limits: Limits, spent: Amount) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, asks) = mpsc::unbounded_channel();
        let keeper = Keeper {
            limits,
            used: spent,
            held: Amount::default(),
            holders: 0,
            waiting: VecDeque::new(),
        };
        (Self { queue }, keeper.keep(asks))
    }

    /// Reserves the worst case of one call. Waits while others hold; `Err` names the limit that is used up.
    pub async fn reserve(&self, amount: Amount) -> Result<Held, Refusal> {
        let (answer, granted) = oneshot::channel();
        self.queue
            .send(Ask::Reserve { amount, answer })
            .map_err(|_| Refusal::Ended)?;
        let mut asked = Asked {
            amount,
            granted,
            queue: self.queue.clone(),
        };
        let granted = (&mut asked.granted).await.map_err(|_| Refusal::Ended)?;
        granted.map_err(Refusal::Limit)?;
        Ok(Held {
            amount,
            queue: self.queue.clone(),
            settled: false,
        })
    }
}

/// A question for a part of the pot. What was granted to one that is gone is given back.
struct Asked {
    amount: Amount,
    granted: oneshot::Receiver<Result<(), Limit>>,
    queue: mpsc::UnboundedSender<Ask>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.granted.close();
        if let Ok(Ok(())) = self.granted.try_recv() {
            drop(self.queue.send(Ask::Settle {
                held: self.amount,
                used: Amount::default(),
            }));
        }
    }
}

impl Held {
    /// Gives back what was not used.
    pub fn settle(mut self, used: Amount) {
        self.settled = true;
        // A pot whose task ended has nobody left to spend.
        drop(self.queue.send(Ask::Settle {
            held: self.amount,
            used,
        }));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.settled {
            drop(self.queue.send(Ask::Settle {
                held: self.amount,
                used: self.amount,
            }));
        }
    }
}

struct Keeper {
    limits: Limits,
    used: Amount,
    held: Amount,
    holders: usize,
    waiting: VecDeque<(Amount, oneshot::Sender<Result<(), Limit>>)>,
}

impl Keeper {
    async fn keep(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) {
        while let Some(ask) = asks.recv().await {
            match ask {
                Ask::Reserve { amount, answer } => self.waiting.push_back((amount, answer)),
                Ask::Settle { held, used } => {
                    self.held.tokens -= held.tokens;
                    self.held.cost_usd -= held.cost_usd;
                    self.holders -= 1;
                    self.used.tokens += used.tokens;
                    self.used.cost_usd += used.cost_usd;
                }
            }
            self.serve();
        }
    }

    /// First come, first served: a large request is not starved by small ones behind it.
    fn serve(&mut self) {
        while let Some((amount, answer)) = self.waiting.pop_front() {
            match self.lacks(amount) {
                None if answer.is_closed() => {}
                None => {
                    self.held.tokens += amount.tokens;
                    self.held.cost_usd += amount.cost_usd;
                    self.holders += 1;
                    if answer.send(Ok(())).is_err() {
                        self.held.tokens -= amount.tokens;
                        self.held.cost_usd -= amount.cost_usd;
                        self.holders -= 1;
                    }
                }
                Some(_) if self.holders > 0 => {
                    self.waiting.push_front((amount, answer));
                    return;
                }
                // Nobody holds anything: nothing will ever be given back. Who asked may be gone.
                Some(limit) => drop(answer.send(Err(limit))),
            }
        }
    }

    fn lacks(&self, amount: Amount) -> Option<Limit> {
        let tokens = self.used.tokens + self.held.tokens + amount.tokens;
        if tokens > self.limits.tokens as f64 {
            let (limit, may) = (self.limits.tokens, amount.tokens.round());
            let left = (limit as f64 - self.used.tokens).max(0.0).round();
            return Some(Limit {
                of: Resource::Tokens,
                limit: format!(
                    "{limit} tokens: the next call may need {may}, only {left} are left"
                ),
            });
        }
        let cost = self.used.cost_usd + self.held.cost_usd + amount.cost_usd;
        let limit = self.limits.cost_usd?;
        // A budget of zero allows nothing, whatever a call costs.
        let over = cost > limit || limit <= 0.0;
        let left = (limit - self.used.cost_usd).max(0.0);
        let may = amount.cost_usd;
        over.then(|| Limit {
            of: Resource::Money,
            limit: format!("{limit} USD: the next call may cost {may:.4}, only {left:.4} are left"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(tokens: f64) -> Amount {
        Amount {
            tokens,
            cost_usd: 0.0,
        }
    }

    fn pot(limit: u64, cost: Option<f64>) -> Pot {
        let (pot, keeper) = Pot::new(
            Limits {
                tokens: limit,
                cost_usd: cost,
            },
            Amount::default(),
        );
        tokio::spawn(keeper);
        pot
    }

    #[tokio::test]
    async fn who_cannot_reserve_waits_while_others_hold_and_is_then_served_or_limited() {
        let pot = pot(1000, None);
        let first = pot.reserve(tokens(800.0)).await.unwrap();
        let other = pot.clone();
        let waiting = tokio::spawn(async move {
            other
                .reserve(tokens(500.0))
                .await
                .map(|held| held.settle(tokens(450.0)))
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        first.settle(tokens(100.0));
        waiting.await.unwrap().unwrap();
        let refused = pot.reserve(tokens(500.0)).await.err().unwrap();
        let limit = "1000 tokens: the next call may need 500, only 450 are left".to_owned();
        let of = Resource::Tokens;
        assert_eq!(refused, Refusal::Limit(Limit { of, limit }));
    }

    #[tokio::test]
    async fn what_is_dropped_unsettled_counts_as_spent() {
        let pot = pot(1000, None);
        drop(pot.reserve(tokens(900.0)).await.unwrap());
        assert!(pot.reserve(tokens(200.0)).await.is_err());
    }

    #[tokio::test]
    async fn a_grant_that_nobody_waits_for_any_more_is_given_back() {
        let pot = pot(1000, None);
        let mut asking = Box::pin(pot.reserve(tokens(900.0)));
        assert!(futures::poll!(&mut asking).is_pending());
        // The pot grants it meanwhile.
        tokio::task::yield_now().await;
        drop(asking);
        assert!(pot.reserve(tokens(900.0)).await.is_ok());
    }

    #[tokio::test]
    async fn zero_allows_nothing() {
        assert!(pot(0, None).reserve(tokens(1.0)).await.is_err());
        assert!(pot(1000, Some(0.0)).reserve(tokens(1.0)).await.is_err());
    }
}
