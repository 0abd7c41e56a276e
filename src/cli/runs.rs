//! `wharf runs`: the table of runs.

use serde::Serialize;

use super::fault::Fault;
use super::find::{self, Found};
use super::story::Story;
use super::{out, result, show, state, text};
use crate::journal;

/// What is said below the table of the first run with such a status.
const HINTS: [(&str, &str); 2] = [
    (
        "stopped",
        "crashed before its end; `wharf resume RUN` goes on with it",
    ),
    (
        "damaged",
        "its journal is not as it was written; `wharf log RUN --check` says where",
    ),
];

/// List runs, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf runs --limit 5\n\n\
Of runs without an end: running; stopped (it crashed or was killed); unknown (that could not be told);\n\
damaged (its journal was changed); unreadable. An interrupted run ended in order, on a signal.")]
pub struct Args {
    /// Show at most this many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print one JSON object with a `runs` list
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    run: String,
    status: String,
    exit_code: Option<i32>,
    started_at: String,
    seconds: f64,
    tokens: u64,
    cost_usd: Option<f64>,
    #[serde(skip)]
    answers: text::Answers,
    task: String,
}

/// Prints the table.
pub fn act(args: &Args) -> Result<i32, Fault> {
    let state = state::directory()?;
    let runs = find::all(&state)?;
    let more = runs.len().saturating_sub(args.limit);
    let rows: Vec<Row> = runs.iter().take(args.limit).map(row).collect();
    if args.json {
        out::json(&serde_json::json!({ "runs": rows, "more": more }))?;
        return Ok(0);
    }
    if runs.is_empty() {
        out::note(&format!(
            "no runs in {} yet\nhint: `wharf run \"TASK\"` starts one; `wharf doctor` says what it needs",
            state.display()
        ));
        return Ok(0);
    }
    let width = rows
        .iter()
        .map(|row| row.run.len())
        .max()
        .unwrap_or(3)
        .max(3);
    let mut table = format!(
        "{:<width$}  {:<11} {:<16} {:>7} {:>8} {:>12}  TASK\n",
        "RUN", "STATUS", "STARTED", "TIME", "TOKENS", "COST"
    );
    for row in &rows {
        table.push_str(&format!(
            "{:<width$}  {:<11} {:<16} {:>7} {:>8} {:>12}  {}\n",
            row.run,
            row.status,
            row.started_at
                .get(..16)
                .unwrap_or(&row.started_at)
                .replace('T', " "),
            text::seconds(row.seconds),
            text::short(row.tokens),
            row.answers.cost(row.cost_usd),
            text::line(&row.task, 60)
        ));
    }
    if more > 0 {
        table.push_str(&format!("… {more} older; --limit shows more\n"));
    }
    for (word, hint) in HINTS {
        // The newest of them, as it would be typed.
        if let Some(row) = rows.iter().find(|row| row.status == word) {
            let run = text::line(&row.run, 60);
            table.push_str(&format!("{word}: {}\n", hint.replace("RUN", &run)));
        }
    }
    out::print(&table)?;
    Ok(0)
}

/// A finished run from its result, any other from the rest of its journal; one that cannot be read to
/// its end says so, whatever result.json says.
fn row(found: &Found) -> Row {
    let salvaged = journal::salvage(&found.journal());
    let (lines, broken) = match salvaged {
        Ok((read, None)) => (read.lines, None),
        Ok((read, Some(journal::Error::Damaged { .. }))) => (read.lines, Some("damaged")),
        Ok((read, Some(_))) => (read.lines, Some("unreadable")),
        Err(_) => (Vec::new(), Some("unreadable")),
    };
    if let (None, Some(summary)) = (broken, find::result(&lines)) {
        return Row {
            run: found.id.clone(),
            status: result::status(summary.status).to_owned(),
            exit_code: Some(summary.exit_code),
            started_at: summary.started_at,
            seconds: summary.seconds,
            tokens: summary
                .usage
                .input_tokens
                .saturating_add(summary.usage.output_tokens),
            cost_usd: summary.cost_usd,
            answers: text::Answers::of(&summary.models),
            task: summary.task,
        };
    }
    let mut story = Story::of(&lines);
    if broken.is_some() {
        story.ended = None;
    }
    let status = match (broken, &story.ended) {
        (Some(word), _) => word.to_owned(),
        (None, Some(ended)) => ended.status.clone(),
        (None, None) => show::standing(found, &story).to_owned(),
    };
    Row {
        run: found.id.clone(),
        status,
        exit_code: story.ended.as_ref().map(|ended| ended.exit_code),
        started_at: found.started.to_string(),
        seconds: story.seconds,
        tokens: story.tokens,
        cost_usd: story.spent.usd(),
        answers: text::Answers::of(&story.models),
        task: story.task,
    }
}
