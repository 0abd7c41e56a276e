//! One gate a model server: a limit learnt by one agent slows all.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The gates of a run, by server.
pub(super) struct Gates(HashMap<String, watch::Sender<Instant>>);

impl Gates {
    /// A gate, open, for each server.
    pub fn new(servers: impl IntoIterator<Item = String>) -> Self {
        Self(
            servers
                .into_iter()
                .map(|s| (s, watch::Sender::new(Instant::now())))
                .collect(),
        )
    }

    /// Closes a server's gate for at least `wait` from now.
    pub fn close(&self, server: &str, wait: Duration) {
        if let Some(gate) = self.0.get(server) {
            let until = Instant::now() + wait;
            gate.send_if_modified(|open| {
                until > *open && {
                    *open = until;
                    true
                }
            });
        }
    }

    /// Returns once the gate is open. Those who waited leave one after another, spread over a second.
    pub async fn pass(&self, server: &str) {
        let Some(gate) = self.0.get(server) else {
            return;
        };
        loop {
            let open = *gate.borrow();
            let now = Instant::now();
            if open <= now {
                return;
            }
            tokio::time::sleep_until(open + Duration::from_secs(1).mul_f64(jitter())).await;
        }
    }
}

/// A number in 0..1 that differs from call to call; only ever used to spread waits.
pub(super) fn jitter() -> f64 {
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}
