//! When what a span says happened: now, or for a trace that is told again, when it did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

#[derive(Debug)]
pub(super) enum Clock {
    Now,
    /// Nanoseconds since the epoch.
    Told(AtomicU64),
}

impl Clock {
    pub(super) fn told() -> Self {
        Self::Told(AtomicU64::new(0))
    }

    /// What is told from now on happened then; of no effect on what happens now.
    pub(super) fn set(&self, at: SystemTime) {
        if let Self::Told(time) = self {
            let since = at
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            let nanoseconds = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            time.store(nanoseconds, Ordering::Relaxed);
        }
    }

    /// None: now.
    pub(super) fn time(&self) -> Option<SystemTime> {
        match self {
            Self::Now => None,
            Self::Told(time) => {
                let since = Duration::from_nanos(time.load(Ordering::Relaxed));
                Some(SystemTime::UNIX_EPOCH + since)
            }
        }
    }
}
