//! `wharf clean`: what dead runs left at the engine, and old runs' directories when asked.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::fault::Fault;
use super::wording::few;
use super::{out, state, text, value};
use crate::config::{Config, Flags};
use crate::ops::{self, Old};
use crate::run::Summary;

/// Remove containers and networks of dead runs and old cached images; directories of old runs only with --runs
///
/// A run that somebody works on, or of which that could not be told, is left and listed. Cached images go
/// oldest last use first until the rest fits the configuration's `cache`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf clean --runs --older-than 30d --dry-run")]
pub struct Args {
    /// Remove old runs' directories too: journal, store, result
    #[arg(long)]
    runs: bool,
    /// With --runs: how long a run must not have changed
    #[arg(long, value_name = "TIME", value_parser = value::duration, default_value = "30d", requires = "runs")]
    older_than: Duration,
    /// Say what would be removed and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Answer with one JSON object
    #[arg(long)]
    json: bool,
}

/// Removes and says what.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let config = state::settings(&Flags::default())?;
    let old = match args.runs {
        true => ops::old_runs(&config.state, args.older_than, SystemTime::now())
            .map_err(|error| Fault::io("read runs under", &config.state, &error))?,
        false => Vec::new(),
    };
    // Runs first: they can go without an engine.
    let (gone, kept): (Vec<Old>, Vec<Old>) = old.into_iter().partition(|old| old.removable);
    let branches: Vec<String> = gone.iter().filter_map(branch).collect();
    if !args.dry_run {
        for old in &gone {
            ops::remove_run(old).map_err(|error| Fault::io("remove", &old.dir, &error))?;
        }
    }
    let swept = sweep(&config, args.dry_run).await;
    if args.json {
        let swept = swept?;
        out::json(&json!({
            "dry_run": args.dry_run,
            "runs": ids(&gone), "runs_left": ids(&kept), "branches_left": branches,
            "removed": swept.removed, "left": swept.left,
        }))?;
        return Ok(0);
    }
    let runs = page(args.dry_run, &gone, &kept) + &stay(&branches);
    if !runs.is_empty() {
        out::print(&runs)?;
    }
    let swept = swept?;
    out::print(&engine_page(args.dry_run, &swept))?;
    Ok(0)
}

async fn sweep(config: &Config, dry_run: bool) -> Result<ops::Swept, Fault> {
    let engine = state::engine(config).await?;
    let mode = match dry_run {
        true => ops::Mode::Look,
        false => ops::Mode::Remove,
    };
    let swept = engine.sweep(&config.state, config.cache, mode).await;
    swept.map_err(Fault::from)
}

fn ids(runs: &[Old]) -> Vec<Value> {
    runs.iter()
        .map(|old| json!({"run": old.id, "bytes": old.bytes}))
        .collect()
}

fn page(dry_run: bool, gone: &[Old], kept: &[Old]) -> String {
    let verb = if dry_run { "would remove" } else { "removed" };
    let mut page = String::new();
    for old in gone {
        page.push_str(&format!(
            "{verb} run {} ({})\n",
            text::line(&old.id, 60),
            text::bytes(old.bytes)
        ));
    }
    for old in kept {
        page.push_str(&format!(
            "left run {}: somebody may work on it\n",
            text::line(&old.id, 60)
        ));
    }
    page
}

/// The branch of a run's result, which is the operator's own and stays.
fn branch(old: &Old) -> Option<String> {
    let bytes = std::fs::read(old.dir.join("result.json")).ok()?;
    let summary: Summary = serde_json::from_slice(&bytes).ok()?;
    summary.branch
}

fn stay(branches: &[String]) -> String {
    if branches.is_empty() {
        return String::new();
    }
    let shown = text::line(&few(branches, 5), 300);
    format!(
        "branches of removed runs stay in their repositories (`git branch -D` removes one): {shown}\n"
    )
}

fn engine_page(dry_run: bool, swept: &ops::Swept) -> String {
    let verb = if dry_run { "would remove" } else { "removed" };
    let mut page = String::new();
    for name in &swept.removed {
        page.push_str(&format!("{verb} {}\n", text::line(name, 200)));
    }
    for name in &swept.left {
        page.push_str(&format!("left {}\n", text::line(name, 200)));
    }
    if swept.removed.is_empty() && swept.left.is_empty() {
        page.push_str("nothing at the engine\n");
    }
    page
}
