//! Names for what this program makes at the engine: known before the engine answers, so that what it
//! made while its answer was lost can be removed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::image::short_hash;

/// A name that nothing else has.
pub(super) fn name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let hash = short_hash(&[
        &now.as_nanos().to_be_bytes(),
        &count.to_be_bytes(),
        &std::process::id().to_be_bytes(),
    ]);
    format!("wharf-{hash}")
}
