//! The end of a command, from the toolbox's words to the room's.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wharf_toolbox::message::{Ended, Printed, Ran, Reply};

use super::link_call::Call;
use super::remote::GRACE;
use super::{Error, Exit, Finished, Stream};

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
        Err(Error::Broken {
            reason: "a command could not be cancelled".into(),
        })
    })
}

/// Nothing when the lengths and the data do not agree.
pub(super) fn finished(ran: Ran, mut body: Bytes) -> Option<Finished> {
    let stdout = stream(ran.stdout, &mut body)?;
    let stderr = stream(ran.stderr, &mut body)?;
    let exit = match ran.exit {
        Ended::Code(code) => Exit::Code(code),
        Ended::TimedOut => Exit::TimedOut,
        Ended::Cancelled => Exit::Cancelled,
        Ended::OutOfMemory(code) => Exit::OutOfMemory(code),
        Ended::Running => Exit::Running,
    };
    let elapsed = Duration::from_millis(ran.elapsed_ms);
    body.is_empty().then_some(Finished {
        exit,
        stdout,
        stderr,
        elapsed,
        background: ran.background,
    })
}

fn stream(printed: Printed, body: &mut Bytes) -> Option<Stream> {
    let mut take = |bytes: u64| {
        let bytes = usize::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes <= body.len())?;
        Some(body.split_to(bytes))
    };
    let head = take(printed.head)?;
    let tail = take(printed.tail)?;
    Some(Stream {
        head,
        tail,
        total: printed.total,
        spool: printed.spool,
    })
}
