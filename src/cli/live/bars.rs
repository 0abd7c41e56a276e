//! The moving part of the terminal: a header and a line for each agent at work.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::text::{self, Answers};
use crate::run::{Board, Row, Totals};

/// Lines under everything that scrolls.
pub struct Bars {
    lines: MultiProgress,
    style: ProgressStyle,
    header: ProgressBar,
    rows: BTreeMap<String, ProgressBar>,
    /// Stands last while somebody is asked.
    prompt: Option<ProgressBar>,
    run: String,
    answers: Answers,
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
            prompt: None,
            run: String::new(),
            answers: Answers::Asked,
        })
    }

    /// Names the run in the header, and the models that it asks.
    pub fn name(&mut self, run: &str, models: &str) {
        self.run = text::line(run, 40);
        self.answers = Answers::of(&models.split(", ").collect::<Vec<_>>());
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
                let below = usize::from(self.prompt.is_some());
                let bar = ProgressBar::no_length().with_style(self.style.clone());
                self.lines.insert_from_back(below, bar)
            });
            bar.set_message(row_line(row, width()));
        }
        // On a narrow terminal the run's name would push the figures out.
        let run = if width() < SOME { "" } else { &self.run };
        let header = header_line(run, &board.totals(), self.answers, elapsed);
        self.header.set_message(header);
    }

    /// Shows a question below everything, or takes it away.
    pub fn prompt(&mut self, text: Option<String>) {
        match (text, &self.prompt) {
            (Some(text), Some(bar)) => bar.set_message(text::line(&text, width())),
            (Some(text), None) => {
                let bar = ProgressBar::no_length().with_style(self.style.clone());
                let bar = self.lines.add(bar);
                bar.set_message(text::line(&text, width()));
                self.prompt = Some(bar);
            }
            (None, Some(bar)) => {
                bar.finish_and_clear();
                self.lines.remove(bar);
                self.prompt = None;
            }
            (None, None) => {}
        }
    }

    /// Takes the moving part away.
    pub fn clear(self) {
        drop(self.lines.clear());
    }
}

/// Columns of the terminal.
fn width() -> usize {
    usize::from(console::Term::stderr().size().1)
}

fn header_line(run: &str, totals: &Totals, answers: Answers, elapsed: Duration) -> String {
    format!(
        "{} {run}  {}  {}  {} of {} subtasks",
        console::style("wharf").cyan().bold().for_stderr(),
        text::elapsed(elapsed),
        answers.spent(&text::short(totals.tokens), totals.cost_usd),
        totals.done,
        totals.of
    )
}

/// Columns from which a row has all of its parts, and from which it says what the agent does.
const WHOLE: usize = 90;
const SOME: usize = 60;

/// A row that says what its numbers are and fits: on a narrow terminal it says less, and never half
/// a number.
fn row_line(row: &Row, width: usize) -> String {
    // The one it is in, which comes after those that ended.
    let turn = row.turn.saturating_add(1).min(row.turns);
    let turn = format!("turn {turn}/{}", row.turns);
    let agent = text::line(&row.agent, 18);
    if width < SOME {
        let room = width.saturating_sub(turn.chars().count() + 3);
        return format!("  {} {turn}", text::line(&row.agent, room.clamp(4, 18)));
    }
    let tokens = format!("{} tokens", text::short(row.tokens));
    let time = text::elapsed(row.since.elapsed());
    let (left, right) = if width < WHOLE {
        (format!("  {agent:<18} {turn:<10}"), format!("{time:>7}"))
    } else {
        let role = text::line(&row.role, 10);
        let left = format!("  {role:<10} {agent:<18} {turn:<10}");
        (left, format!("{tokens:>13} {time:>7}"))
    };
    let taken = left.chars().count() + right.chars().count() + 3;
    let room = width.saturating_sub(taken).clamp(8, 60);
    format!("{left} {:<room$} {right}", text::line(&row.doing, room))
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
            turn: 3,
            turns: 40,
            tokens: 12_340,
            cost_usd: None,
            since: Instant::now(),
        };
        assert_eq!(
            row_line(&row, 100),
            "  coder      fix-discount       turn 4/40  bash: pytest -q �[2J                12.3k tokens      0s"
        );
        assert_eq!(
            row_line(&row, 70),
            "  fix-discount       turn 4/40  bash: pytest -q �[2J               0s"
        );
        assert_eq!(row_line(&row, 38), "  fix-discount turn 4/40");
        for width in [1, 10, 38, 59, 60, 89, 90, 200] {
            let line = row_line(&row, width);
            assert!(line.contains("turn 4/40"), "{width}: {line}");
            let fits = line.chars().count() < width.max(17);
            assert!(fits, "{width}: {line}");
        }
    }

    #[test]
    fn the_header_says_what_the_end_will_say() {
        let totals = Totals {
            tokens: 12_340,
            cost_usd: Some(0.0),
            done: 1,
            of: 2,
            ..Totals::default()
        };
        let header = header_line("r", &totals, Answers::Recorded, Duration::from_secs(7));
        assert!(
            header.ends_with("r  7s  12.3k tokens recorded  1 of 2 subtasks"),
            "{header}"
        );
    }
}
