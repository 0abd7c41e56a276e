//! What sandboxes reached: a step of one connection, and an agent's sums.

use serde::{Deserialize, Serialize};

/// What was decided about one connection out of a sandbox, or became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum EgressStep {
    /// Wharf connected to `address`; `injected` are names of headers it adds.
    Allowed {
        address: String,
        injected: Vec<String>,
    },
    Refused {
        reason: String,
    },
    /// Bytes that went out and came in, and how it ended.
    Ended {
        sent: u64,
        received: u64,
        milliseconds: u64,
        how: String,
    },
    /// So many connections more, too many to stand here one by one.
    Unlisted {
        allowed: u64,
        refused: u64,
        sent: u64,
        received: u64,
    },
}

/// What an agent's sandboxes reached, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Egress {
    /// Connections.
    pub allowed: u64,
    pub refused: u64,
    /// Bytes of the connections that ended.
    pub sent: u64,
    pub received: u64,
}

impl Egress {
    /// Adds one decision, or what became of it.
    pub fn take(&mut self, step: &EgressStep) {
        match step {
            EgressStep::Allowed { .. } => self.allowed += 1,
            EgressStep::Refused { .. } => self.refused += 1,
            EgressStep::Ended { sent, received, .. } => {
                self.sent += sent;
                self.received += received;
            }
            EgressStep::Unlisted {
                allowed,
                refused,
                sent,
                received,
            } => {
                self.allowed += allowed;
                self.refused += refused;
                self.sent += sent;
                self.received += received;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_hold_what_was_told_and_what_was_only_counted() {
        let lines = [
            r#"{"step":"allowed","address":"192.0.2.1:443","injected":[]}"#,
            r#"{"step":"ended","sent":10,"received":20,"milliseconds":5,"how":"both sides were done"}"#,
            r#"{"step":"refused","reason":"it is not on the list"}"#,
            r#"{"step":"unlisted","allowed":3,"refused":4,"sent":5,"received":6}"#,
        ];
        let mut sums = Egress::default();
        for line in lines {
            let step: EgressStep = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&step).unwrap(), line);
            sums.take(&step);
        }
        let wanted = Egress {
            allowed: 4,
            refused: 5,
            sent: 15,
            received: 26,
        };
        assert_eq!(sums, wanted);
    }
}
