//! One gate a model server: a limit learnt by one agent slows all.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The first pace after a limit was learnt, at least.
const FIRST: Duration = Duration::from_millis(50);
/// The first pace after a limit was learnt, at most: a wait says when a server answers again, and
/// little of how often.
const FIRST_MOST: Duration = Duration::from_secs(2);
/// The slowest pace.
const SLOWEST: Duration = Duration::from_secs(30);
/// What is left of a pace after an answer.
const EASED: f64 = 0.9;
/// A pace below this is none.
const NONE: Duration = Duration::from_millis(20);

/// The gates of a run, by server.
pub(in crate::run) struct Gates(HashMap<String, watch::Sender<Gate>>);

/// How one server may be asked now.
#[derive(Clone, Copy, Debug)]
struct Gate {
    /// Nobody passes before.
    open: Instant,
    /// The time between two who pass; zero: they need not wait for each other.
    pace: Duration,
    /// When the next one may pass, where there is a pace.
    next: Instant,
    /// When the pace was last made slower.
    slowed: Instant,
}

impl Gate {
    fn new(now: Instant) -> Self {
        Self {
            open: now,
            pace: Duration::ZERO,
            next: now,
            slowed: now,
        }
    }

    /// When one who asks now may pass; a place in the row is taken by asking.
    fn place(&mut self, now: Instant) -> Instant {
        let earliest = self.open.max(now);
        if self.pace.is_zero() {
            return earliest;
        }
        let at = self.next.max(earliest);
        self.next = at + self.pace;
        at
    }

    /// A request sent at `sent` was refused for the next `wait`. Those that were under way together
    /// learn it once.
    fn limited(&mut self, now: Instant, sent: Instant, wait: Duration) {
        self.open = self.open.max(now + wait);
        if sent < self.slowed {
            return;
        }
        self.slowed = now;
        self.pace = match self.pace.is_zero() {
            true => (wait / 2).clamp(FIRST, FIRST_MOST),
            false => (self.pace * 2).min(SLOWEST),
        };
        self.next = self.next.max(self.open);
    }

    /// A request was answered.
    fn answered(&mut self) {
        let eased = self.pace.mul_f64(EASED);
        self.pace = if eased < NONE { Duration::ZERO } else { eased };
    }
}

impl Gates {
    /// A gate, open, for each server.
    pub fn new(servers: impl IntoIterator<Item = String>) -> Self {
        let now = Instant::now();
        let gate = |server| (server, watch::Sender::new(Gate::new(now)));
        Self(servers.into_iter().map(gate).collect())
    }

    /// A request that was sent at `sent` met a limit: nobody passes for `wait`, and then one after another.
    pub fn limited(&self, server: &str, sent: Instant, wait: Duration) {
        if let Some(gate) = self.0.get(server) {
            gate.send_modify(|gate| gate.limited(Instant::now(), sent, wait));
        }
    }

    /// A request was answered: the pace eases.
    pub fn answered(&self, server: &str) {
        if let Some(gate) = self.0.get(server) {
            gate.send_if_modified(|gate| {
                let paced = !gate.pace.is_zero();
                gate.answered();
                paced
            });
        }
    }

    /// How long one who asks now waits at least; zero when the gate is open.
    pub fn closed_for(&self, server: &str) -> Duration {
        let gate = self.0.get(server).map(|gate| *gate.borrow());
        gate.map_or(Duration::ZERO, |gate| {
            let at = match gate.pace.is_zero() {
                true => gate.open,
                false => gate.open.max(gate.next),
            };
            at.saturating_duration_since(Instant::now())
        })
    }

    /// Returns once the gate is open and it is this one's turn. Those who waited leave at the pace that
    /// the server was found to stand, each a little off, so that nobody runs in step.
    pub async fn pass(&self, server: &str) {
        let Some(gate) = self.0.get(server) else {
            return;
        };
        loop {
            let now = Instant::now();
            let (mut at, mut pace) = (now, Duration::ZERO);
            gate.send_if_modified(|gate| {
                at = gate.place(now);
                pace = gate.pace;
                false
            });
            if at <= now {
                return;
            }
            let spread = match pace.is_zero() {
                true => Duration::from_secs(1),
                false => pace / 4,
            };
            tokio::time::sleep_until(at + spread.mul_f64(jitter())).await;
            // Closed again meanwhile, by one who went before: the place is lost.
            if gate.borrow().open <= Instant::now() {
                return;
            }
        }
    }
}

/// A number in 0..1 that differs from call to call; only ever used to spread waits.
pub(in crate::run) fn jitter() -> f64 {
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_limit_slows_all_and_those_under_way_learn_it_once() {
        let began = Instant::now();
        let mut gate = Gate::new(began);
        assert_eq!(gate.place(began), began);
        let now = began + SECOND;
        gate.limited(now, began, SECOND);
        let pace = gate.pace;
        assert_eq!(pace, SECOND / 2);
        for later in 1..10 {
            gate.limited(now + Duration::from_millis(later), began, SECOND);
        }
        assert_eq!(gate.pace, pace);
        let first = gate.place(now);
        assert!(first >= now + SECOND);
        assert_eq!(gate.place(now), first + pace);
        assert_eq!(gate.place(now), first + pace * 2);
    }

    #[test]
    fn the_pace_slows_while_refused_and_eases_while_answered() {
        let began = Instant::now();
        let mut gate = Gate::new(began);
        let mut now = began;
        for _ in 0..20 {
            gate.limited(now + SECOND, now, Duration::ZERO);
            now += SECOND * 2;
        }
        assert_eq!(gate.pace, SLOWEST);
        for _ in 0..200 {
            gate.answered();
        }
        assert_eq!(gate.pace, Duration::ZERO);
        assert_eq!(gate.place(now), now);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_waited_leave_one_after_another() {
        let gates = Gates::new(["s".to_owned()]);
        gates.limited("s", Instant::now(), SECOND);
        let began = Instant::now();
        let leave = async |gates: &Gates| {
            gates.pass("s").await;
            began.elapsed()
        };
        let (a, b, c) = tokio::join!(leave(&gates), leave(&gates), leave(&gates));
        let mut left = [a, b, c];
        left.sort();
        assert!(left[0] >= SECOND, "{left:?}");
        for pair in left.windows(2) {
            assert!(pair[1] - pair[0] > SECOND / 4, "{left:?}");
        }
    }

    /// Sixteen agents at a server that takes one request a second: once that is learnt, no second sees a
    /// herd, and all are answered in about the time that there has to be.
    #[tokio::test(start_paused = true)]
    async fn once_a_limit_is_learnt_no_second_sees_a_herd() {
        let gates = Gates::new(["s".to_owned()]);
        let began = Instant::now();
        let asked = std::cell::RefCell::new(Vec::new());
        let free = std::cell::Cell::new(began);
        let agent = async || {
            loop {
                gates.pass("s").await;
                let sent = Instant::now();
                asked.borrow_mut().push((sent - began).as_secs_f64());
                if sent >= free.get() {
                    free.set(sent + SECOND);
                    return gates.answered("s");
                }
                gates.limited("s", sent, SECOND);
                tokio::time::sleep(SECOND.mul_f64(1.0 + jitter() / 10.0)).await;
            }
        };
        futures::future::join_all((0..16).map(|_| agent())).await;
        let took = began.elapsed();
        let asked = asked.into_inner();
        let herd = |from: usize| {
            let second = from as f64..(from + 1) as f64;
            asked.iter().filter(|at| second.contains(at)).count()
        };
        let seconds = took.as_secs() as usize;
        let most = (1..=seconds).map(herd).max();
        assert!(most <= Some(3), "{most:?} in one second: {asked:?}");
        assert!(took < SECOND * 60, "{took:?}");
        assert!(asked.len() <= 16 * 3, "{asked:?}");
    }
}
