//! Streams of progress read to their end, given up when nothing moves any more in either direction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bollard::errors::Error as Fault;
use futures::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::call;

/// When something of a request's body last went out.
pub(super) struct Pulse {
    from: Instant,
    /// Milliseconds after that.
    last: Arc<AtomicU64>,
}

impl Pulse {
    /// Nothing has gone out yet.
    pub(super) fn new() -> Pulse {
        Pulse {
            from: Instant::now(),
            last: Arc::default(),
        }
    }

    /// The same body, each part of which counts as it is taken to be sent.
    pub(super) fn beaten_by<S: Stream + Send + 'static>(
        &self,
        body: S,
    ) -> impl Stream<Item = S::Item> + Send + 'static {
        let (from, last) = (self.from, self.last.clone());
        body.inspect(move |_| {
            let now = u64::try_from(from.elapsed().as_millis()).unwrap_or(u64::MAX);
            last.store(now, Ordering::Relaxed);
        })
    }

    fn last(&self) -> Instant {
        self.from + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

/// Reads a stream of progress to its end; the first fault in it, or silence, is the outcome.
pub(super) async fn drain<T>(
    stream: impl Stream<Item = Result<T, Fault>>,
    silence: Duration,
    each: impl FnMut(T),
) -> Result<(), String> {
    drain_sent(stream, silence, &Pulse::new(), each).await
}

/// The same for the answer to a request whose body is on its way: while that moves, nobody is silent.
pub(super) async fn drain_sent<T>(
    stream: impl Stream<Item = Result<T, Fault>>,
    silence: Duration,
    pulse: &Pulse,
    mut each: impl FnMut(T),
) -> Result<(), String> {
    let mut stream = std::pin::pin!(stream);
    let mut heard = Instant::now();
    loop {
        let end = heard.max(pulse.last()) + silence;
        match timeout_at(end, stream.next()).await {
            Ok(Some(Ok(item))) => {
                heard = Instant::now();
                each(item);
            }
            Ok(Some(Err(fault))) => return Err(call::words(&fault)),
            Ok(None) => return Ok(()),
            Err(_) if pulse.last() + silence > end => {}
            Err(_) => return Err(format!("nothing was heard for {} s", silence.as_secs())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_falls_silent_is_given_up() {
        let stream = futures::stream::pending::<Result<(), Fault>>();
        let outcome = drain(stream, SILENCE, |()| ()).await;
        assert_eq!(outcome, Err("nothing was heard for 30 s".to_owned()));
    }

    #[tokio::test]
    async fn an_error_inside_a_stream_is_the_outcome() {
        let fault = Fault::DockerStreamError {
            error: "denied".into(),
        };
        let stream = futures::stream::iter([Ok(()), Err(fault), Ok(())]);
        let mut seen = 0;
        let outcome = drain(stream, SILENCE, |()| seen += 1).await;
        assert_eq!((outcome, seen), (Err("denied".to_owned()), 1));
    }

    /// A body of a hundred parts, one in twenty seconds; the answer comes when all are there, or never.
    async fn sent(parts: u64, answered: bool) -> (Result<(), String>, u64) {
        let (pulse, began) = (Pulse::new(), Instant::now());
        let every = Duration::from_secs(20);
        let body = futures::stream::iter(0..parts).then(move |n| async move {
            tokio::time::sleep(every).await;
            n
        });
        let body = pulse.beaten_by(body);
        let answer = futures::stream::once(async move {
            assert_eq!(body.count().await as u64, parts);
            if !answered {
                std::future::pending::<()>().await;
            }
            Ok::<(), Fault>(())
        });
        let outcome = drain_sent(answer, SILENCE, &pulse, |()| ()).await;
        (outcome, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_upload_is_no_silence_and_what_follows_it_may_be_one() {
        assert_eq!(sent(100, true).await, (Ok(()), 2000));
        let silent = Err("nothing was heard for 30 s".to_owned());
        assert_eq!(sent(100, false).await, (silent, 2030));
    }
}
