//! `wharf resume`: a run goes on from where an earlier process left it.

use std::path::Path;
use std::sync::Arc;

use super::attend::{attend, noise};
use super::fault::Fault;
use super::find;
use super::live::{Look, Teller};
use super::out::Form;
use super::run::{Done, flush, print};
use super::{order, out, plan_file, state, text};
use crate::config::{Config, Flags, raised};
use crate::plan::Plan;
use crate::run::{self, Keep, Order, Raised, Reopened, Stopper};

/// Go on with a run that was interrupted or crashed, or that a limit stopped
///
/// Plan, task, workspace, models and flags are those it was started with; keys are read anew. What is
/// finished is not done again, and nothing that was answered is paid for twice. A run that has ended
/// prints its result and exits with its code, unless a limit is raised or failed subtasks are to be
/// worked again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  wharf resume last\n  wharf resume last --budget-usd 20\n  wharf resume last --retry-failed"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// Tokens of all model calls together, those already spent included
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    budget_tokens: Option<String>,
    /// US dollars of all model calls together, those already spent included
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    budget_usd: Option<String>,
    /// The run's time, that already used included, such as 2h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<String>,
    /// Work the failed subtasks of the last round again
    #[arg(long)]
    retry_failed: bool,
    /// Print the result as one JSON object
    #[arg(long, conflicts_with = "events")]
    json: bool,
    /// Print each event as a JSON object a line, the result last
    #[arg(long)]
    events: bool,
    /// No progress, only the result
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Every turn of every agent, and diagnosis
    #[arg(long, short)]
    verbose: bool,
}

/// Goes on with the run and prints what it came to.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let look = Look {
        noise: noise(args.quiet, args.verbose),
        events: args.events,
    };
    let found = find::one(&state::directory()?, &args.run)?;
    let wish = raised(
        args.budget_tokens.as_deref(),
        args.budget_usd.as_deref(),
        args.timeout.as_deref(),
    )?;
    let wish = Raised {
        retry_failed: args.retry_failed,
        ..wish
    };
    let done = match run::reopen(&found.dir, wish)? {
        run::Found::Ended(summary) => {
            if !args.quiet {
                let run = text::line(&summary.run, 80);
                out::note(&format!(
                    "run {run} has ended: nothing is left to do, this is its result"
                ));
            }
            Done {
                summary: *summary,
                plan_text: None,
            }
        }
        run::Found::Open(reopened) => {
            let work = async |teller: &Teller, stop: &Stopper| work(*reopened, teller, stop).await;
            attend(look, work).await?
        }
    };
    print(Form::wanted(args.json, args.events), None, &done)?;
    Ok(done.summary.exit_code)
}

async fn work(reopened: Reopened, teller: &Teller, stop: &Stopper) -> Result<Done, Fault> {
    let mut config = state::settings(&Flags::default())?;
    let plan = settle(&mut config, &reopened, teller)?;
    for line in config.told(&plan, teller.can_ask()) {
        teller.text(&line);
    }
    let models = order::models(&config, &plan, None)?;
    let engine = state::engine(&config).await?;
    // What its earlier process left at the engine goes first: nobody has two containers at a time.
    let run = reopened.id().as_str();
    let gone = engine.bury_before(&config.state, run).await?;
    gone.iter()
        .for_each(|line| teller.text(&format!("removed {line}")));
    let order = Order {
        keep: Keep {
            plan_path: reopened.kept().plan_path.clone(),
            plan_files: reopened.plan_files.clone(),
            secrets: config.secrets.clone(),
        },
        plan_text: reopened.plan_text.clone(),
        task: reopened.task().to_owned(),
        workspace: reopened.workspace().to_owned(),
        options: config.run_options(),
        consent: config.consent(reopened.workspace()),
        tracer: order::tracer(&config.trace, teller),
        plan,
        models,
        engine: engine.to_run(),
        watch: Arc::new(teller.clone()),
        stop: stop.clone(),
    };
    let (plan, tracer, plan_only) = (
        order.plan.clone(),
        order.tracer.clone(),
        order.options.plan_only,
    );
    let summary = run::resume(reopened, order).await;
    flush(&tracer, teller).await;
    // What the earlier process had asked of the engine may have come to be after its end.
    order::bury(&engine, &config, teller).await;
    order::trim(&engine, config.cache, teller).await;
    let summary = summary?;
    let plan_text = match plan_only {
        true => order::plan_text(&plan, &summary)?,
        false => None,
    };
    Ok(Done { summary, plan_text })
}

/// The run's plan as it was kept, and this machine's configuration with what the run was started with.
fn settle(config: &mut Config, reopened: &Reopened, teller: &Teller) -> Result<Plan, Fault> {
    for warning in &config.warnings {
        teller.text(&format!("warning: {warning}"));
    }
    let kept = reopened.kept();
    let path = kept.plan_path.as_deref();
    let path = path.unwrap_or(Path::new("plan.yaml"));
    let mut plan = plan_file::kept(&reopened.plan_text, path, &reopened.plan_files)?;
    kept.lay(&mut plan);
    config.resume(&plan, kept)?;
    config.run_id = Some(reopened.id().clone());
    config.trace.origin = reopened.origin();
    Ok(plan)
}
