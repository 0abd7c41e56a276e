//! One bell for all that threads wait for: rung on every event, after which each looks again.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts its rings, so that none is missed between a look and a wait.
#[derive(Default)]
pub struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// How often it rang; to be taken before looking.
    pub fn count(&self) -> u64 {
        *lock(&self.rings)
    }

    /// Wakes everyone.
    pub fn ring(&self) {
        *lock(&self.rings) += 1;
        self.rung.notify_all();
    }

    /// Until it rings after `seen`, at most `limit`.
    pub fn wait(&self, seen: u64, limit: Duration) {
        let rings = lock(&self.rings);
        drop(
            self.rung
                .wait_timeout_while(rings, limit, |rings| *rings == seen),
        );
    }
}

/// Locks, also where a thread ended badly: every state here is whole between statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
