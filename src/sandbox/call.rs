//! Engine calls with a limit, and their faults in this room's words.

use std::future::Future;
use std::time::Duration;

use bollard::errors::Error as Fault;
use tokio_util::sync::CancellationToken;

use super::Error;

/// How long a call that only asks or tells may take.
pub(super) const SHORT: Duration = Duration::from_secs(15);
/// How long a call that makes the engine work (create, start, commit) may take on a loaded machine.
pub(super) const LONG: Duration = Duration::from_secs(120);

/// Awaits one engine call for at most `limit`.
pub(super) async fn bounded<T>(
    operation: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(fault)) => Err(engine(operation, &fault)),
        Err(_) => Err(silent(operation, limit)),
    }
}

/// As `bounded`, with "no such thing" as an answer.
pub(super) async fn found<T>(
    operation: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, Fault>>,
) -> Result<Option<T>, Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(value)) => Ok(Some(value)),
        Ok(Err(Fault::DockerResponseServerError {
            status_code: 404, ..
        })) => Ok(None),
        Ok(Err(fault)) => Err(engine(operation, &fault)),
        Err(_) => Err(silent(operation, limit)),
    }
}

/// Lets the cancel token end a wait.
pub(super) async fn unless<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match cancel.run_until_cancelled(work).await {
        Some(done) => done,
        None => Err(Error::Cancelled),
    }
}

/// An engine's fault with the operation it broke.
pub(super) fn engine(operation: &'static str, fault: &Fault) -> Error {
    Error::Engine {
        operation,
        reason: words(fault),
    }
}

/// What a fault says, with the causes that its own text leaves out.
pub(super) fn words(fault: &Fault) -> String {
    if let Fault::DockerResponseServerError { message, .. } = fault {
        return message.trim().to_owned();
    }
    if let Fault::DockerStreamError { error } = fault {
        return error.trim().to_owned();
    }
    // What the system says is the whole of it; the layers between are nobody's business.
    if let Some(cause) = cause(fault) {
        return cause.to_string();
    }
    if let Fault::HyperLegacyError { err } = fault {
        return innermost(err).to_string();
    }
    let mut text = fault.to_string();
    let mut next = std::error::Error::source(fault);
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

/// The system's own error among the causes of a fault.
pub(super) fn cause(fault: &Fault) -> Option<&std::io::Error> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(fault);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn innermost<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    let mut inner = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    inner
}

/// An engine that took too long.
pub(super) fn silent(operation: &'static str, limit: Duration) -> Error {
    Error::Engine {
        operation,
        reason: format!("the engine did not answer within {} s", limit.as_secs()),
    }
}
