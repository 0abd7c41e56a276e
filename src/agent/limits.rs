//! An agent's own limits: what is used, what is left, and when to say so.

use std::time::Duration;

use crate::plan::AgentLimits;

/// Turns before the last at which an agent is asked to hand in what it has.
const NEAR: u32 = 3;
/// Share of tokens or time after which it is told.
const MOST: f64 = 0.9;
/// A limit of at least so many turns is also told of on the way.
const LONG: u32 = 12;

/// What an agent used so far.
#[derive(Clone, Debug, Default)]
pub struct Used {
    pub turns: u32,
    /// Of its answers, and of attempts that came to none.
    pub tokens: u64,
    pub unanswered: u64,
    pub tool_calls: u32,
    pub time: Duration,
    /// The one turn that is left after the last tool call was given.
    pub last_chance: bool,
    /// Quarters of its time that were told of.
    pub told_time: u32,
}

impl Used {
    /// The limit that forbids another turn, in words.
    pub fn over(&self, limits: &AgentLimits) -> Option<String> {
        if self.turns >= limits.turns {
            return Some(format!("{} turns", limits.turns));
        }
        if self.all_tokens() >= limits.tokens {
            return Some(format!("{} tokens", limits.tokens));
        }
        if self.time >= limits.time {
            return Some(format!("{} s", limits.time.as_secs()));
        }
        if self.tool_calls >= limits.tool_calls && self.last_chance {
            return Some(format!("{} tool calls", limits.tool_calls));
        }
        None
    }

    fn all_tokens(&self) -> u64 {
        self.tokens.saturating_add(self.unanswered)
    }

    /// May another tool call run?
    pub fn may_call(&self, limits: &AgentLimits) -> bool {
        self.tool_calls < limits.tool_calls
    }

    /// What to tell the agent before its next turn, when a limit is near.
    pub fn near(&self, limits: &AgentLimits, ending: &str) -> Option<String> {
        let left = limits.turns.saturating_sub(self.turns);
        let short = if left == 0 {
            return None;
        } else if left <= NEAR {
            match left {
                1 => "this is your last turn".to_string(),
                left => format!("{left} turns are left"),
            }
        } else if !self.may_call(limits) {
            "no tool call is left".to_string()
        } else if self.all_tokens() as f64 >= limits.tokens as f64 * MOST {
            "nearly all your tokens are used".to_string()
        } else if self.time.as_secs_f64() >= limits.time.as_secs_f64() * MOST {
            "nearly all your time is used".to_string()
        } else {
            return None;
        };
        Some(format!(
            "[{short}: finish and call {ending} with what you have; {} of your time are left]",
            self.left(limits)
        ))
    }

    /// What to tell it on the way: at half and three quarters of its turns or its time.
    pub fn marks(&mut self, limits: &AgentLimits) -> Option<String> {
        let (used, all) = (u64::from(self.turns), u64::from(limits.turns));
        let turn = [2, 3].into_iter().any(|part| used == all * part / 4);
        let share = self.time.as_secs_f64() / limits.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let quarter = (share * 4.0).floor().clamp(0.0, 4.0) as u32;
        let time = quarter >= 2 && quarter > self.told_time;
        self.told_time = self.told_time.max(quarter);
        (limits.turns >= LONG && (turn || time)).then(|| {
            let time = self.left(limits);
            let turns = limits.turns.saturating_sub(self.turns);
            format!("[{turns} of your {all} turns and {time} of your time are left]")
        })
    }

    /// The time that is left.
    fn left(&self, limits: &AgentLimits) -> String {
        let seconds = limits.time.saturating_sub(self.time).as_secs();
        match seconds {
            0..120 => format!("{seconds} s"),
            _ => format!("{} min", seconds / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> AgentLimits {
        AgentLimits {
            turns: 5,
            tokens: 1_000,
            time: Duration::from_secs(60),
            tool_calls: 2,
            tool_timeout: Duration::from_secs(30),
            output: 8_000,
            reply_tokens: 100,
        }
    }

    #[test]
    fn a_limit_of_zero_allows_nothing() {
        let none = Used::default();
        assert_eq!(none.over(&limits()), None);
        assert_eq!(
            none.over(&AgentLimits {
                turns: 0,
                ..limits()
            }),
            Some("0 turns".into())
        );
        assert_eq!(
            none.over(&AgentLimits {
                tokens: 0,
                ..limits()
            }),
            Some("0 tokens".into())
        );
        assert_eq!(
            none.over(&AgentLimits {
                time: Duration::ZERO,
                ..limits()
            }),
            Some("0 s".into())
        );
    }

    #[test]
    fn after_the_last_tool_call_one_turn_is_left() {
        let mut used = Used {
            tool_calls: 2,
            ..Used::default()
        };
        assert!(!used.may_call(&limits()) && used.over(&limits()).is_none());
        used.last_chance = true;
        assert_eq!(used.over(&limits()), Some("2 tool calls".into()));
    }

    #[test]
    fn the_last_three_turns_are_told() {
        let near = |turns| {
            Used {
                turns,
                ..Used::default()
            }
            .near(&limits(), "submit_report")
        };
        assert_eq!(near(1), None);
        assert!(
            near(2).is_some_and(|t| t.contains("3 turns are left") && t.contains("submit_report"))
        );
        assert!(near(4).is_some_and(|t| t.contains("last turn")));
        assert_eq!(near(5), None);
    }

    #[test]
    fn on_the_way_half_and_three_quarters_are_told_once_each() {
        let limits = AgentLimits {
            turns: 40,
            time: Duration::from_secs(1_200),
            ..limits()
        };
        let mut used = Used::default();
        let mut told = Vec::new();
        for turn in 1..=36 {
            used.turns = turn;
            used.time = Duration::from_secs(if turn < 25 { 10 } else { 620 });
            told.extend(used.marks(&limits));
        }
        assert_eq!(
            told,
            [
                "[20 of your 40 turns and 19 min of your time are left]",
                "[15 of your 40 turns and 9 min of your time are left]",
                "[10 of your 40 turns and 9 min of your time are left]",
            ]
        );
    }
}
