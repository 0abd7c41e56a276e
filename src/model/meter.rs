//! What one attempt came to so far, known also when it is dropped in the middle.

use tokio::sync::watch;

use super::{Error, Usage};

/// Bytes a token, the rule of thumb for text and code.
const BYTES: usize = 4;

/// Counts one attempt; a clone is the same meter.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    reading: watch::Sender<Reading>,
}

/// What a meter shows: the request that is out, and what the attempt asked before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes of the request; 0: nothing is out.
    pub sent: usize,
    /// Bytes of the answer, whatever they are.
    pub received: usize,
    /// Bytes of it that the model wrote: text, thoughts, arguments of calls.
    pub written: usize,
    /// The answer is not read by its events: all that came of it counts as written.
    pub plain: bool,
    /// The server's own figures.
    pub told: Option<Told>,
    /// What requests before this one used whose answers were none.
    pub before: Option<Usage>,
}

/// The figures of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub usage: Usage,
    /// They are of the whole answer, and not of its beginning.
    pub whole: bool,
}

/// How much of an answer was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the model wrote.
    pub written: usize,
    pub told: Option<Told>,
}

impl Meter {
    /// A request of so many bytes goes out. One that went out before it had no answer.
    pub(super) fn sending(&self, bytes: usize) {
        self.reading.send_modify(|reading| {
            *reading = Reading {
                sent: bytes,
                before: reading.usage(),
                ..Reading::default()
            };
        });
    }

    /// Nobody read the request, or whoever did would not answer it.
    pub(super) fn refused(&self) {
        self.reading.send_modify(|reading| {
            *reading = Reading {
                before: reading.before,
                ..Reading::default()
            };
        });
    }

    /// The request came to this. A refusal before the first word of an answer is billed by nobody.
    pub(super) fn failed(&self, error: &Error) {
        let refusal = match error {
            Error::Status { .. } => true,
            Error::Connect { .. } | Error::NotRecorded { .. } | Error::Setup { .. } => true,
            Error::Timeout { .. } | Error::Cut { .. } => false,
        };
        if refusal && !self.reading.borrow().is_begun() {
            self.refused();
        }
    }

    /// So many bytes of the answer came.
    pub(super) fn received(&self, bytes: usize) {
        self.reading
            .send_modify(|reading| reading.received += bytes);
    }

    /// The answer comes as one object.
    pub(super) fn plain(&self) {
        self.reading.send_modify(|reading| reading.plain = true);
    }

    /// So much of the answer was read, and `rest` bytes of what goes on with it.
    pub(super) fn read(&self, progress: Progress, rest: usize) {
        self.reading.send_modify(|reading| {
            reading.written = progress.written + rest;
            reading.told = progress.told;
        });
    }

    pub fn reading(&self) -> Reading {
        *self.reading.borrow()
    }
}

impl Reading {
    /// What an attempt used that came to no answer; None: nothing.
    pub fn usage(&self) -> Option<Usage> {
        match (self.before, self.now()) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => before.or(now),
        }
    }

    /// The model began to write.
    fn is_begun(&self) -> bool {
        self.written > 0 || self.told.is_some()
    }

    fn now(&self) -> Option<Usage> {
        if self.sent == 0 {
            return None;
        }
        let written = match self.plain && self.written == 0 {
            true => self.received,
            false => self.written,
        };
        let written = tokens(written);
        Some(match self.told {
            Some(told) if told.whole => told.usage,
            // The figures of its beginning know what was read, and not what was written since.
            Some(told) => Usage {
                output: told.usage.output.max(written),
                estimated: true,
                ..told.usage
            },
            None => Usage {
                input: tokens(self.sent),
                output: written,
                cached: 0,
                estimated: true,
            },
        })
    }
}

fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES) as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::StatusKind;

    fn usage(input: u64, output: u64, estimated: bool) -> Option<Usage> {
        Some(Usage {
            input,
            output,
            cached: 0,
            estimated,
        })
    }

    fn told(input: u64, output: u64, whole: bool) -> Option<Told> {
        let usage = Usage::told(input, output, 0)?;
        Some(Told { usage, whole })
    }

    fn cut() -> Error {
        Error::Cut {
            url: "http://h/".into(),
            reason: "it broke".into(),
        }
    }

    fn status() -> Error {
        Error::Status {
            url: "http://h/".into(),
            status: 503,
            message: "busy".into(),
            kind: StatusKind::Server,
            retry_after: None,
        }
    }

    fn read(progress: Progress, error: &Error) -> Option<Usage> {
        let meter = Meter::default();
        meter.sending(400);
        meter.read(progress, 0);
        meter.failed(error);
        meter.reading().usage()
    }

    #[test]
    fn what_was_sent_and_written_counts_and_the_server_s_figures_before_it() {
        let at = |written, told| read(Progress { written, told }, &cut());
        assert_eq!(at(0, None), usage(100, 0, true));
        assert_eq!(at(1_000, None), usage(100, 250, true));
        assert_eq!(at(1_000, told(90, 7, true)), usage(90, 7, false));
        assert_eq!(at(1_000, told(90, 7, false)), usage(90, 250, true));
        assert_eq!(at(4, told(90, 7, false)), usage(90, 7, true));
    }

    #[test]
    fn a_refusal_costs_nothing_before_the_first_word_and_what_was_written_after_it() {
        let nothing = Progress::default();
        assert_eq!(read(nothing, &status()), None);
        let connect = Error::Connect {
            url: "http://h/".into(),
            reason: "refused".into(),
        };
        assert_eq!(read(nothing, &connect), None);
        let begun = Progress {
            written: 40,
            told: None,
        };
        assert_eq!(read(begun, &status()), usage(100, 10, true));
        let silent = Error::Timeout {
            url: "http://h/".into(),
            limit: Duration::from_secs(1),
        };
        assert_eq!(read(nothing, &silent), usage(100, 0, true));
    }

    #[test]
    fn a_request_after_one_without_an_answer_is_counted_beside_it() {
        let meter = Meter::default();
        assert_eq!(meter.reading().usage(), None);
        meter.sending(400);
        meter.received(20);
        meter.sending(800);
        assert_eq!(meter.reading().before, usage(100, 0, true));
        assert_eq!(meter.reading().usage(), usage(300, 0, true));
        meter.refused();
        assert_eq!(meter.reading().usage(), usage(100, 0, true));
        // A clone is the same meter: it is read after its attempt was dropped.
        meter.clone().sending(40);
        assert_eq!(meter.reading().usage(), usage(110, 0, true));
    }

    #[test]
    fn all_that_came_of_one_object_counts_until_it_is_read() {
        let meter = Meter::default();
        meter.sending(400);
        meter.plain();
        meter.received(1_000);
        assert_eq!(meter.reading().usage(), usage(100, 250, true));
        let progress = Progress {
            written: 80,
            told: told(90, 20, true),
        };
        meter.read(progress, 0);
        assert_eq!(meter.reading().usage(), usage(90, 20, false));
    }
}
