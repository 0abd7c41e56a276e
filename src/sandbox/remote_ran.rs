//! The end of a command as it crosses the stream, made into what callers know.

use std::time::Duration;

use bytes::Bytes;
use wharf_toolbox::message::{Ended, Printed, Ran};

use super::{Exit, Finished, Stream};

/// Nothing when the lengths and the data do not agree.
pub(super) fn finished(ran: Ran, mut body: Bytes) -> Option<Finished> {
    let stdout = stream(ran.stdout, &mut body)?;
    let stderr = stream(ran.stderr, &mut body)?;
    let exit = match ran.exit {
        Ended::Code(code) => Exit::Code(code),
        Ended::TimedOut => Exit::TimedOut,
        Ended::Cancelled => Exit::Cancelled,
        Ended::OutOfMemory(code) => Exit::OutOfMemory(code),
        Ended::Full(code) => Exit::Full(code),
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
