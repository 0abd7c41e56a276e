//! Interrupts: the first asks the run to stop, the second does not wait for it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::fault::Fault;
use crate::run::Stopper;

/// A signal that comes this soon after the first is the same wish: a wrapper (`timeout`, a CI runner)
/// hands on what the terminal has sent to the whole group already.
const ECHO: Duration = Duration::from_millis(500);

/// INT, TERM and HUP of this process, each with its number.
pub struct Signals {
    heard: Vec<(i32, Signal)>,
}

impl Signals {
    /// Starts to listen. A signal that the caller chose to ignore (nohup) stays ignored.
    pub fn listen() -> Result<Self, Fault> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut heard = Vec::new();
        for (number, kind) in [
            (2, SignalKind::interrupt()),
            (15, SignalKind::terminate()),
            (1, SignalKind::hangup()),
        ] {
            if !is_ignored(&status, number) {
                let stream = signal(kind)
                    .map_err(|error| Fault::environment(format!("listen for signals: {error}")))?;
                heard.push((number, stream));
            }
        }
        Ok(Self { heard })
    }

    /// Cancels `stop` on the first signal and returns the exit code on the second.
    pub async fn second(mut self, stop: &Stopper, tell: impl Fn(&str)) -> i32 {
        let next = async || (self.next().await, Instant::now());
        second(next, stop, tell).await
    }

    /// The exit code of the next signal.
    async fn next(&mut self) -> i32 {
        let waits = self.heard.iter_mut().map(|(number, stream)| {
            let number = *number;
            Box::pin(async move {
                match stream.recv().await {
                    Some(()) => number,
                    // The runtime ends; nothing more will come from this stream.
                    None => std::future::pending().await,
                }
            })
        });
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        128 + futures::future::select_all(waits).await.0
    }
}

/// `Signals::second` over whatever gives the next exit code and when it came.
async fn second(
    mut next: impl AsyncFnMut() -> (i32, Instant),
    stop: &Stopper,
    tell: impl Fn(&str),
) -> i32 {
    let (code, first) = next().await;
    stop.exit_code.store(code, Ordering::SeqCst);
    tell("stopping: closing the sandboxes and saving (again to stop at once)");
    stop.cancel.cancel();
    loop {
        let (code, at) = next().await;
        if at.duration_since(first) >= ECHO {
            return code;
        }
    }
}

/// Reads the mask of ignored signals from the text of /proc/self/status.
fn is_ignored(status: &str, number: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_and_its_echo_are_one_wish_and_a_later_one_is_the_second() {
        let stop = Stopper::default();
        let start = Instant::now();
        let mut heard = [(130, 0), (130, 5), (143, 400), (129, 600), (130, 900)].into_iter();
        let next = async || {
            let (code, after) = heard.next().expect("no more are waited for");
            (code, start + Duration::from_millis(after))
        };
        assert_eq!(second(next, &stop, |_| {}).await, 129);
        assert!(stop.cancel.is_cancelled());
        assert_eq!(stop.exit_code.load(Ordering::SeqCst), 130);
        assert_eq!(heard.len(), 1);
    }

    #[test]
    fn an_ignored_hangup_is_read_from_the_mask() {
        let nohup = "Name:\twharf\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(nohup, 1));
        assert!(!is_ignored(nohup, 2));
        assert!(!is_ignored("", 1));
    }
}
