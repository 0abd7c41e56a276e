//! The end of a command, from the toolbox's words to the room's.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wharf_toolbox::message::{Ended, Printed, Ran, Reply, Request};

use super::broken::broken;
use super::link_call::Call;
use super::remote::GRACE;
use super::{Cause, Error, Exit, Finished, Spooled, Stream};

/// The reply of a command; a cancel is passed on and the reply awaited all the same.
pub(super) async fn outcome(
    call: &mut Call,
    most: usize,
    cancel: &CancellationToken,
) -> Result<(Reply, Bytes), Error> {
    tokio::select! {
        reply = call.reply(most) => return reply,
        () = cancel.cancelled() => {}
    }
    call.cancel();
    timeout(GRACE, call.reply(most)).await.unwrap_or_else(|_| {
        let reason = "a command could not be cancelled";
        Err(broken(Cause::Silent, reason))
    })
}

const LENGTHS: &str = "lengths that its data does not have";

/// The end of a command in our own words, with its streams cut out of the data that came before.
pub(super) fn finished(ran: Ran, mut body: Bytes) -> Result<Finished, &'static str> {
    let stdout = stream(ran.stdout, &mut body)?;
    let stderr = stream(ran.stderr, &mut body)?;
    if !body.is_empty() {
        return Err(LENGTHS);
    }
    let exit = match ran.exit {
        Ended::Code(code) => Exit::Code(code),
        Ended::TimedOut => Exit::TimedOut,
        Ended::Cancelled => Exit::Cancelled,
        Ended::OutOfMemory(code) => Exit::OutOfMemory(code),
        Ended::Full(code) => Exit::Full(code),
        Ended::Running => Exit::Running,
    };
    Ok(Finished {
        exit,
        stdout,
        stderr,
        elapsed: Duration::from_millis(ran.elapsed_ms),
        background: ran.background,
    })
}

fn stream(printed: Printed, body: &mut Bytes) -> Result<Stream, &'static str> {
    let mut take = |bytes: u64| {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > body.len() {
            return Err(LENGTHS);
        }
        Ok(body.split_to(bytes))
    };
    let (head, tail) = (take(printed.head)?, take(printed.tail)?);
    let spool = printed.spool.map(|text| Spooled {
        path: text.path,
        bytes: text.bytes,
    });
    Ok(Stream {
        head,
        tail,
        total: printed.total,
        spool,
    })
}

/// A request in one word, for messages.
pub(super) fn verb(request: &Request) -> &'static str {
    match request {
        Request::Run { .. } => "run",
        Request::Process { .. } => "process",
        Request::Read { .. } => "read",
        Request::Write { .. } => "write",
        Request::List { .. } => "list",
        Request::Grep { .. } => "grep",
        Request::History { .. } => "history",
        Request::Upload { .. } => "upload",
        Request::Ledger => "ledger",
        Request::Scan => "scan",
    }
}
