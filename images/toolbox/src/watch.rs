//! The watch: the lease that Wharf's pings extend, strays, and the size of what was written.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::bell::{Bell, lock};
use crate::command::Commands;
use crate::room::Room;
use crate::torn::Torn;

/// Without a ping for so long, Wharf is gone.
pub const LEASE: Duration = Duration::from_secs(60);
const ROUND: Duration = Duration::from_millis(500);
/// A look at the disk may take this part of the time.
const SHARE: u32 = 20;
/// The longest pause between two looks, however long they take: what is written meanwhile is not seen.
const BLIND: Duration = Duration::from_secs(5);

/// When the last ping came, and how long one lasts.
pub struct Lease {
    last: Mutex<Instant>,
    length: Duration,
}

impl Lease {
    /// One that begins now; never longer than `LEASE`.
    pub fn of(milliseconds: Option<u64>) -> Lease {
        Lease {
            last: Mutex::new(Instant::now()),
            length: milliseconds.map_or(LEASE, |ms| Duration::from_millis(ms).min(LEASE)),
        }
    }

    /// A ping came.
    pub fn extend(&self) {
        *lock(&self.last) = Instant::now();
    }

    fn over(&self) -> bool {
        lock(&self.last).elapsed() > self.length
    }
}

/// The sentence on a limit of the disk that was passed, until the next command.
#[derive(Default)]
pub struct Over(Mutex<Option<String>>);

impl Over {
    /// The limit that was passed since the last `clear`.
    pub fn said(&self) -> Option<String> {
        lock(&self.0).clone()
    }

    /// A new command begins.
    pub fn clear(&self) {
        *lock(&self.0) = None;
    }
}

/// The thread that watches.
pub struct Watch {
    /// Extended by pings.
    pub lease: Arc<Lease>,
    /// Told when a limit is passed.
    pub over: Arc<Over>,
    /// Killed when it is.
    pub commands: Arc<Commands>,
    /// What is counted.
    pub room: Arc<Room>,
    /// Told which files a kill cuts.
    pub torn: Arc<Torn>,
    /// Rung when a limit is passed.
    pub bell: Arc<Bell>,
}

impl Watch {
    /// Watches until the lease is over.
    pub fn keep(&self) {
        let mut due = Instant::now();
        while !self.lease.over() {
            std::thread::sleep(ROUND);
            if !self.commands.any() {
                continue;
            }
            self.commands.kill_strays();
            if Instant::now() < due {
                continue;
            }
            let begun = Instant::now();
            let (last, used) = self.room.look();
            due = Instant::now() + (begun.elapsed() * SHARE).min(BLIND);
            let grown = used.bytes > last.bytes || used.inodes > last.inodes;
            // Over the limit and shrinking is an agent that cleans up.
            if let Some(limit) = self.room.passed(used).filter(|_| grown) {
                if let Some(workspace) = self.room.workspace() {
                    self.torn.before_kill(workspace);
                }
                *lock(&self.over.0) = Some(limit);
                self.bell.ring();
                self.commands.kill_all();
            }
        }
    }
}
