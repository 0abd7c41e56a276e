//! Answers in a row that lead nowhere: how many, and the true reason of the stop that they come to.

use super::{Stop, words};

/// What an answer lacked that led nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// No call that could be used, and why.
    Call(String),
    /// It handed in, and that was handed back with these words.
    Taken(String),
}

/// The answers since the last usable call.
#[derive(Debug, Default)]
pub(super) struct Barren {
    answers: u32,
    handed_back: u32,
    /// What was said when the last one was handed back, or else what the last answer lacked.
    why: String,
}

impl Barren {
    /// One more.
    pub fn add(&mut self, lack: Lack) {
        self.answers += 1;
        match lack {
            Lack::Taken(why) => {
                self.handed_back += 1;
                self.why = why;
            }
            Lack::Call(why) if self.handed_back == 0 => self.why = why,
            Lack::Call(_) => {}
        }
    }

    /// The stop, where there were as many as may be.
    pub fn stop(&self) -> Option<Stop> {
        let (answers, why) = (self.answers, self.why.clone());
        (answers >= words::NO_CALL).then_some(match self.handed_back {
            0 => Stop::NoCall { answers, why },
            times => Stop::HandedBack {
                answers,
                times,
                why,
            },
        })
    }
}

/// The words of a stop after `times` of `answers` were handed back.
pub(super) fn handed_back(answers: u32, times: u32, why: &str) -> String {
    match times == answers {
        true => format!("what the agent handed in was handed back {times} times in a row ({why})"),
        false => format!(
            "{answers} answers of the model in a row led nowhere: {times} handed in and were handed back \
             ({why}), the others made no usable tool call"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(lacks: &[Lack]) -> Option<String> {
        let mut barren = Barren::default();
        lacks.iter().for_each(|lack| barren.add(lack.clone()));
        barren.stop().map(|stop| stop.to_string())
    }

    #[test]
    fn the_reason_is_what_led_nowhere_and_not_always_a_missing_call() {
        let call = || Lack::Call("text alone".to_owned());
        let taken = || Lack::Taken("no evidence".to_owned());
        assert_eq!(after(&[call(), call(), taken(), taken()]), None);
        let said = |lacks: &[Lack]| after(lacks).unwrap();
        let all = said(&[call(), call(), call(), call(), call()]);
        assert_eq!(
            all,
            "the model gave no usable tool call 5 times in a row (text alone)"
        );
        let all = said(&[taken(), taken(), taken(), taken(), taken()]);
        assert_eq!(
            all,
            "what the agent handed in was handed back 5 times in a row (no evidence)"
        );
        let both = said(&[taken(), call(), call(), taken(), call()]);
        assert!(
            both.contains("2 handed in and were handed back (no evidence)"),
            "{both}"
        );
    }
}
