//! Ended spans on their way to the sender: a bounded queue, and the one thread that empties it.
//!
//! A span's end never waits: a full queue drops it and counts it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::oneshot;

use super::options::Target;
use super::send::Sender;

/// What the SDK hands ended spans to.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    orders: SyncSender<Order>,
    pub(super) facts: Arc<Facts>,
}

/// What went wrong so far.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The first failure in the sender's words.
    pub(super) failure: OnceLock<String>,
    /// Spans dropped from a full queue or lost with a failed export.
    pub(super) lost: AtomicU64,
    /// A flush did not end within its limit.
    pub(super) late: AtomicBool,
}

#[derive(Debug)]
enum Order {
    Span(Box<SpanData>),
    /// Answered with whether all that was queued before it went out.
    Flush(oneshot::Sender<bool>),
}

impl Queue {
    /// Starts the thread; the exporter is built there and a failure of that is told here.
    pub(super) fn start(target: Target, resource: Resource) -> Result<Self, super::Error> {
        let (orders, inbox) = mpsc::sync_channel(target.queue);
        let (built, ready) = mpsc::sync_channel(1);
        let facts = Arc::new(Facts::default());
        let shown = target.shown();
        let worker = Worker {
            batch: Vec::new(),
            due: None,
            limit: target.batch,
            delay: target.delay,
            facts: facts.clone(),
        };
        std::thread::Builder::new()
            .name("spans".to_owned())
            .spawn(move || {
                // The exporter's own log lines would tell the operator the same failure again and again.
                let silent = tracing::subscriber::NoSubscriber::default();
                tracing::subscriber::with_default(silent, || {
                    let sender = Sender::build(&target, &resource);
                    match sender {
                        Ok(sender) => {
                            let _ = built.send(Ok(()));
                            worker.run(&sender, &inbox);
                        }
                        Err(reason) => {
                            let _ = built.send(Err(reason));
                        }
                    }
                });
            })
            .map_err(|source| super::Error::Thread { source })?;
        let answer = ready
            .recv()
            .unwrap_or_else(|_| Err("the exporter ended while it was being built".to_owned()));
        answer.map_err(|reason| super::Error::Exporter {
            endpoint: shown,
            reason,
        })?;
        Ok(Self { orders, facts })
    }

    /// True once everything queued so far has been accepted by the receiver, within `limit`.
    pub(super) async fn flush(&self, limit: Duration) -> bool {
        let sent = tokio::time::timeout(limit, self.ask()).await;
        if sent.is_err() {
            self.facts.late.store(true, Ordering::Relaxed);
        }
        sent.unwrap_or(false)
    }

    async fn ask(&self) -> bool {
        let (ack, done) = oneshot::channel();
        let mut order = Order::Flush(ack);
        loop {
            match self.orders.try_send(order) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) => {
                    order = back;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        done.await.unwrap_or(false)
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _cx: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.orders.try_send(Order::Span(Box::new(span))).is_err() {
            self.facts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// Returns at once: the thread ends by itself when the last sender is gone.
    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

struct Worker {
    batch: Vec<SpanData>,
    /// When the oldest span of the batch has waited long enough.
    due: Option<Instant>,
    limit: usize,
    delay: Duration,
    facts: Arc<Facts>,
}

impl Worker {
    fn run(mut self, sender: &Sender, inbox: &Receiver<Order>) {
        loop {
            let patience = self.due.map_or(Duration::from_secs(3_600), |due| {
                due.saturating_duration_since(Instant::now())
            });
            match inbox.recv_timeout(patience) {
                Ok(Order::Span(span)) => {
                    self.batch.push(*span);
                    let delay = self.delay;
                    self.due.get_or_insert_with(|| Instant::now() + delay);
                    if self.batch.len() >= self.limit {
                        self.send(sender);
                    }
                }
                Ok(Order::Flush(ack)) => {
                    let sent = self.send(sender);
                    let _ = ack.send(sent);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.send(sender);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.send(sender);
                    return;
                }
            }
        }
    }

    /// True when nothing of the batch was lost.
    fn send(&mut self, sender: &Sender) -> bool {
        self.due = None;
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return true;
        }
        let count = batch.len() as u64;
        match sender.send(batch) {
            Ok(()) => true,
            Err(error) => {
                self.facts.lost.fetch_add(count, Ordering::Relaxed);
                let _ = self.facts.failure.set(error.to_string());
                false
            }
        }
    }
}
