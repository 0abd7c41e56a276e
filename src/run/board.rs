//! The live board: what every agent does now, and the notices a person or a program follows.

use std::time::{Duration, Instant};

use dashmap::DashMap;
use serde::Serialize;

use crate::run::allow::consent::{Answer, Question};

/// Receives what happens as it happens; must return at once.
pub trait Watch: Send + Sync {
    /// Something that is worth a line of its own.
    fn notice(&self, notice: &Notice);

    /// Called once, before the first notice.
    fn board(&self, board: std::sync::Arc<Board>);

    /// Asks the person for consent; None where nobody can be asked. The asker may drop the receiver: then
    /// the question is over.
    fn ask(&self, _question: Question) -> Option<tokio::sync::oneshot::Receiver<Answer>> {
        None
    }
}

/// One line of `--events`, one line on stderr without a terminal.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Notice {
    /// `model` and `recorded` are what the first line says.
    Started {
        run: String,
        task: String,
        model: String,
        recorded: bool,
        run_dir: String,
        network: Vec<String>,
    },
    /// An earlier process worked on the run: what of it stands, and who goes on.
    Resumed {
        run: String,
        done: usize,
        open: usize,
        /// Bytes of an unfinished last record that were cut off.
        torn: u64,
        /// Tokens of requests that were out; they count as spent.
        lost_tokens: u64,
        seconds: f64,
    },
    Preparing {
        line: String,
    },
    Base {
        files: usize,
        bytes: u64,
        dirty: bool,
        hidden: Vec<String>,
        /// Shown although git ignores them or `hide` withholds them.
        included: Vec<String>,
        left_out: Vec<(String, String)>,
    },
    Round {
        round: u32,
    },
    Planned {
        round: u32,
        subtasks: Vec<(String, String, Vec<String>)>,
    },
    AgentStarted {
        agent: String,
        role: String,
        round: u32,
    },
    AgentTurn {
        agent: String,
        role: String,
        turn: u32,
        doing: String,
    },
    AgentEnded {
        agent: String,
        role: String,
        status: String,
        reason: Option<String>,
        changed_files: usize,
        turns: u32,
        tokens: u64,
        cost_usd: Option<f64>,
        seconds: f64,
    },
    /// A call failed; try number `attempt` of at most `attempts` comes after `seconds`.
    Waiting {
        agent: String,
        attempt: u32,
        attempts: u32,
        reason: String,
        seconds: f64,
    },
    /// A call needs consent, and somebody is asked for it.
    Asked {
        agent: String,
        role: String,
        tool: String,
        what: String,
        reason: String,
        /// `terminal`, `command` or `url`.
        of: String,
        seconds: f64,
    },
    /// It was decided whether a call runs.
    Decided {
        agent: String,
        role: String,
        tool: String,
        what: String,
        allowed: bool,
        by: String,
        /// By what was consented to before.
        again: bool,
        reason: Option<String>,
    },
    Blocked {
        subtask: String,
        reason: String,
    },
    Conflict {
        subtask: String,
        files: Vec<String>,
    },
    Merged {
        inputs: usize,
    },
    Acceptance {
        command: String,
        exit_code: Option<i32>,
        seconds: f64,
    },
    Verdict {
        status: String,
        summary: String,
    },
    Warning {
        text: String,
    },
    Stopping {
        reason: String,
    },
}

/// What runs now; the one lock-free shared state of the program.
#[derive(Debug, Default)]
pub struct Board {
    rows: DashMap<String, Row>,
    totals: DashMap<(), Totals>,
}

/// One agent at work.
#[derive(Clone, Debug)]
pub struct Row {
    pub agent: String,
    pub role: String,
    pub doing: String,
    /// Turns that ended.
    pub turn: u32,
    /// Turns it may take.
    pub turns: u32,
    pub tokens: u64,
    pub cost_usd: Option<f64>,
    pub since: Instant,
}

/// The run so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub tokens: u64,
    pub cost_usd: Option<f64>,
    pub done: usize,
    pub of: usize,
    pub elapsed: Duration,
}

impl Board {
    /// Puts or replaces an agent's row.
    pub fn put(&self, row: Row) {
        self.rows.insert(row.agent.clone(), row);
    }

    /// Changes an agent's row, if it is there.
    pub fn change(&self, agent: &str, change: impl FnOnce(&mut Row)) {
        if let Some(mut row) = self.rows.get_mut(agent) {
            change(&mut row);
        }
    }

    /// Takes an agent's row away and gives it back.
    pub fn remove(&self, agent: &str) -> Option<Row> {
        self.rows.remove(agent).map(|(_, row)| row)
    }

    /// The rows now, oldest first.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.rows.iter().map(|r| r.value().clone()).collect();
        rows.sort_by(|a, b| (a.since, &a.agent).cmp(&(b.since, &b.agent)));
        rows
    }

    /// Changes the totals.
    pub fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.totals.entry(()).or_default());
    }

    /// The totals now.
    pub fn totals(&self) -> Totals {
        self.totals.get(&()).map(|t| *t).unwrap_or_default()
    }
}
