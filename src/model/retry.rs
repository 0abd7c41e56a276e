//! Whether a failed attempt is made again, and after how long. Pure: `run` waits and counts.

use std::time::Duration;

use super::{Error, StatusKind};

/// Seconds before each retry at zero jitter; full jitter adds a third, so the waits lie in 1..=80 s.
const STEPS: [f64; 5] = [1.0, 3.0, 8.0, 22.0, 60.0];

/// How many times a call is asked again at most after faults.
pub const RETRIES: u32 = STEPS.len() as u32;
/// How many times a call is asked again at most after refusals for asking too often. Whoever shares a
/// limit with many others is refused more often, through no fault of the call.
pub const LIMITS: u32 = 20;
/// The longest wait that a server may ask for; past it nobody waits in silence.
pub const LONGEST: Duration = Duration::from_secs(120);

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask again after this long.
    Again(Duration),
    /// Asking again cannot help, or was done often enough.
    Stop,
}

/// The failed attempts of one call, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    pub faults: u32,
    pub limits: u32,
}

impl Failures {
    /// The same with one more.
    pub fn and(self, error: &Error) -> Self {
        match is_limit(error) {
            true => Self {
                limits: self.limits + 1,
                ..self
            },
            false => Self {
                faults: self.faults + 1,
                ..self
            },
        }
    }
}

/// Decides after `error`, which `failures` counts already. `jitter` is drawn from 0.0..=1.0.
pub fn next(error: &Error, failures: Failures, jitter: f64) -> Next {
    let (count, most) = match is_limit(error) {
        true => (failures.limits, LIMITS),
        false => (failures.faults, RETRIES),
    };
    if !can_help(error) || count == 0 || count > most {
        return Next::Stop;
    }
    let jitter = if jitter.is_finite() {
        jitter.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let step = STEPS[(count as usize).min(STEPS.len()) - 1];
    let seconds = match asked(error) {
        Some(wait) if wait > LONGEST => return Next::Stop,
        Some(wait) => wait.as_secs_f64() * (1.0 + jitter / 10.0) + jitter / 2.0,
        None => step * (1.0 + jitter / 3.0),
    };
    Next::Again(Duration::from_secs_f64(seconds))
}

/// True when the server refused for being asked too often.
pub fn is_limit(error: &Error) -> bool {
    matches!(
        error,
        Error::Status {
            kind: StatusKind::Limited,
            ..
        }
    )
}

/// True when the same request may succeed later.
pub fn can_help(error: &Error) -> bool {
    match error {
        Error::Connect { .. } | Error::Timeout { .. } | Error::Cut { .. } => true,
        Error::Status { kind, .. } => match kind {
            StatusKind::Limited | StatusKind::Server => true,
            StatusKind::Key
            | StatusKind::Quota
            | StatusKind::ContextOverflow
            | StatusKind::Refused => false,
        },
        Error::NotRecorded { .. } | Error::Setup { .. } => false,
    }
}

fn asked(error: &Error) -> Option<Duration> {
    match error {
        Error::Status { retry_after, .. } => *retry_after,
        Error::Connect { .. }
        | Error::Timeout { .. }
        | Error::Cut { .. }
        | Error::NotRecorded { .. }
        | Error::Setup { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status(kind: StatusKind, retry_after: Option<Duration>) -> Error {
        Error::Status {
            url: "http://h/".into(),
            status: 429,
            message: "m".into(),
            kind,
            retry_after,
        }
    }

    fn cut() -> Error {
        Error::Cut {
            url: "http://h/".into(),
            reason: "r".into(),
        }
    }

    fn after(error: &Error, count: u32, jitter: f64) -> Next {
        let failures = (0..count).fold(Failures::default(), |all, _| all.and(error));
        next(error, failures, jitter)
    }

    #[test]
    fn waits_grow_from_one_to_eighty_seconds_and_end() {
        let seconds = |attempt, jitter| match after(&cut(), attempt, jitter) {
            Next::Again(wait) => Some(wait.as_secs_f64()),
            Next::Stop => None,
        };
        assert_eq!(seconds(1, 0.0), Some(1.0));
        assert_eq!(seconds(RETRIES, 1.0), Some(80.0));
        assert_eq!(seconds(RETRIES + 1, 0.5), None);
        assert_eq!(seconds(0, 0.5), None);
    }

    #[test]
    fn refusals_for_asking_too_often_are_counted_apart_and_end_too() {
        let limited = status(StatusKind::Limited, None);
        assert_ne!(after(&limited, LIMITS, 0.0), Next::Stop);
        assert_eq!(after(&limited, LIMITS + 1, 0.0), Next::Stop);
        let many = (0..LIMITS).fold(Failures::default(), |all, _| all.and(&limited));
        let fault = next(&cut(), many.and(&cut()), 0.0);
        assert_eq!(fault, Next::Again(Duration::from_secs(1)));
    }

    #[test]
    fn a_wait_beyond_the_longest_is_not_waited_for() {
        let at = |seconds| status(StatusKind::Limited, Some(Duration::from_secs(seconds)));
        assert_eq!(after(&at(120), 1, 0.0), Next::Again(LONGEST));
        assert_eq!(after(&at(121), 1, 0.0), Next::Stop);
        let busy = status(StatusKind::Server, Some(Duration::from_secs(3600)));
        assert_eq!(after(&busy, 1, 0.0), Next::Stop);
    }

    #[test]
    fn what_cannot_help_stops_at_once() {
        let hopeless = [
            status(StatusKind::Key, None),
            status(StatusKind::Quota, Some(Duration::from_secs(1))),
            status(StatusKind::Refused, None),
            status(StatusKind::ContextOverflow, None),
            Error::NotRecorded {
                file: "f".into(),
                key: "k".into(),
            },
            Error::Setup {
                what: "w".into(),
                hint: "h".into(),
            },
        ];
        for error in hopeless {
            assert_eq!(after(&error, 1, 0.5), Next::Stop, "{error}");
        }
    }

    #[test]
    fn the_server_s_wait_wins_over_the_table() {
        let limited = status(StatusKind::Limited, Some(Duration::from_secs(30)));
        assert_eq!(
            after(&limited, 1, 0.0),
            Next::Again(Duration::from_secs(30))
        );
        assert_eq!(
            after(&limited, 1, 1.0),
            Next::Again(Duration::from_millis(33_500))
        );
        let now = status(StatusKind::Server, Some(Duration::ZERO));
        assert_eq!(after(&now, 5, 0.0), Next::Again(Duration::ZERO));
    }

    proptest! {
        #[test]
        fn waits_stay_in_bounds(attempt in 0u32..12, jitter in any::<f64>()) {
            match after(&cut(), attempt, jitter) {
                Next::Again(wait) => prop_assert!((1.0..=80.0).contains(&wait.as_secs_f64())),
                Next::Stop => prop_assert!(attempt == 0 || attempt > RETRIES),
            }
        }
    }
}
