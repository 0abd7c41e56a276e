//! How long a call may take whose bytes cross a line that may be slow: a time for the work itself, and more
//! for as long as they move.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// The slowest line that is waited for, in bytes a second.
const SLOWEST: u64 = 64 << 10;

/// Bytes of one call that have crossed, either way.
#[derive(Clone, Default)]
pub(super) struct Pace(Arc<AtomicU64>);

impl Pace {
    /// Notes bytes that the other side has taken or sent.
    pub(super) fn crossed(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Waits for `work` so long, and longer by what crosses meanwhile; gives the time that it was given when
    /// that was not enough.
    pub(super) async fn hold<T>(
        &self,
        work_time: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Duration> {
        let begun = Instant::now();
        let mut work = std::pin::pin!(work);
        let mut given = work_time;
        loop {
            if let Ok(done) = timeout_at(begun + given, &mut work).await {
                return Ok(done);
            }
            let earned = work_time + Duration::from_secs(self.0.load(Ordering::Relaxed) / SLOWEST);
            if earned <= given {
                return Err(given);
            }
            given = earned;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What comes of a minute's work whose bytes cross so fast, of which ten seconds are its own.
    async fn after(bytes_a_second: usize) -> Result<(), Duration> {
        let pace = Pace::default();
        let work = async {
            for _ in 0..60 {
                tokio::time::sleep(SECOND).await;
                pace.crossed(bytes_a_second);
            }
        };
        pace.hold(10 * SECOND, work).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_moves_is_waited_for_and_what_trickles_is_not() {
        assert_eq!(after(70 << 10).await, Ok(()));
        assert_eq!(after(0).await, Err(10 * SECOND));
        assert!(after(6 << 10).await.is_err_and(|given| given < 13 * SECOND));
    }
}
