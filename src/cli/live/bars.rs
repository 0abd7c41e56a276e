//! The moving part of the terminal: a header and a line for each agent at work.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::text;
use crate::run::{Board, Row};

/// Lines under everything that scrolls.
pub struct Bars {
    lines: MultiProgress,
    style: ProgressStyle,
    header: ProgressBar,
    rows: BTreeMap<String, ProgressBar>,
    run: String,
}

impl Bars {
    /// None where standard error is no terminal that can move its cursor.
    pub fn on_terminal() -> Option<Self> {
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        if lines.is_hidden() {
            return None;
        }
        let style = ProgressStyle::with_template("{wide_msg}").ok()?;
        let header = lines.add(ProgressBar::no_length().with_style(style.clone()));
        Some(Self {
            lines,
            style,
            header,
            rows: BTreeMap::new(),
            run: String::new(),
        })
    }

    /// Names the run in the header.
    pub fn name(&mut self, run: &str) {
        self.run = text::line(run, 40);
    }

    /// Puts a line above the moving part, for good.
    pub fn above(&self, line: &str) {
        // A terminal that went away is noticed by whoever reads the signal.
        drop(self.lines.println(line));
    }

    /// Draws the board as it is now.
    pub fn draw(&mut self, board: &Board, elapsed: Duration) {
        let rows = board.rows();
        self.rows.retain(|agent, bar| {
            let stays = rows.iter().any(|row| row.agent == *agent);
            if !stays {
                bar.finish_and_clear();
                self.lines.remove(bar);
            }
            stays
        });
        for row in &rows {
            let bar = self.rows.entry(row.agent.clone()).or_insert_with(|| {
                self.lines
                    .add(ProgressBar::no_length().with_style(self.style.clone()))
            });
            bar.set_message(row_line(row));
        }
        self.header
            .set_message(header_line(&self.run, board, elapsed));
    }

    /// Takes the moving part away.
    pub fn clear(self) {
        drop(self.lines.clear());
    }
}

fn header_line(run: &str, board: &Board, elapsed: Duration) -> String {
    let totals = board.totals();
    format!(
        "{} {run}  {}  {} tokens  {}  {} of {} subtasks",
        console::style("wharf").cyan().bold().for_stderr(),
        text::elapsed(elapsed),
        text::short(totals.tokens),
        text::cost(totals.cost_usd),
        totals.done,
        totals.of
    )
}

fn row_line(row: &Row) -> String {
    format!(
        "  {:<10} {:<18} {:>7}  {:<44} {:>8} {:>7}",
        text::line(&row.role, 10),
        text::line(&row.agent, 18),
        format!("{}/{}", row.turn, row.turns),
        text::line(&row.doing, 44),
        text::short(row.tokens),
        text::elapsed(row.since.elapsed())
    )
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_row_holds_what_the_agent_does_on_one_line() {
        let row = Row {
            agent: "fix-discount".into(),
            role: "coder".into(),
            doing: "bash: pytest -q\n\u{1b}[2J".into(),
            turn: 4,
            turns: 40,
            tokens: 12_340,
            cost_usd: None,
            since: Instant::now(),
        };
        assert_eq!(
            row_line(&row),
            "  coder      fix-discount          4/40  bash: pytest -q �[2J                            12.3k      0s"
        );
    }
}
