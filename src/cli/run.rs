//! `wharf run`: one task under one plan, from the flags to the exit code.

use std::path::{Path, PathBuf};

use super::attend::{attend, noise};
use super::fault::Fault;
use super::live::{Look, Teller};
use super::order;
use super::out::{self, Form};
use super::result;
use crate::run::{self, Stopper, Summary};

/// Run a task: plan it, work it in containers, merge, verify, deliver
///
/// The result is a branch `wharf/RUN` in your repository, or a patch where there is none; your own
/// files are touched only by --apply or `wharf apply`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  wharf run \"Fix the failing tests\" --model anthropic/claude-sonnet-5\n  \
wharf run --plan plans/quickstart.yaml --json"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Args {
    /// What is to be done
    #[arg(conflicts_with = "task_file")]
    pub task: Option<String>,
    /// Read the task from a file, or from standard input for `-`
    #[arg(long, value_name = "FILE")]
    pub task_file: Option<PathBuf>,
    /// The plan file [default: wharf.yaml here, else a built-in one]
    #[arg(long, short = 'f', value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// The directory to work on [default: the plan's, else the current one]
    #[arg(long, short = 'C', value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// The model: provider/model, or replay:FILE
    #[arg(long, short, value_name = "M")]
    pub model: Option<String>,
    /// Another model for one role; may be given again
    #[arg(long, value_name = "ROLE=M")]
    pub role_model: Vec<String>,
    /// Stop once the plan of subtasks is accepted, and print it as a plan file
    #[arg(long)]
    pub plan_only: bool,
    /// Write the plan of --plan-only to a new file
    #[arg(long, short, value_name = "FILE", requires = "plan_only")]
    pub output: Option<PathBuf>,
    /// How many agents work at a time
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub parallel: Option<String>,
    /// Tokens of all model calls together; 0 allows none
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub budget_tokens: Option<String>,
    /// US dollars of all model calls together; 0 allows none
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub budget_usd: Option<String>,
    /// The run's time, such as 30m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub timeout: Option<String>,
    /// What agents may do without being asked about
    #[arg(long, value_name = "auto|ask|plan|deny")]
    pub mode: Option<String>,
    /// Skip acceptance commands and verifier; the result then says `unverified`
    #[arg(long)]
    pub no_verify: bool,
    /// Put a passed result into the working tree
    #[arg(long, group = "delivery")]
    pub apply: bool,
    /// Name the branch of the result
    #[arg(long, value_name = "NAME", group = "delivery")]
    pub branch: Option<String>,
    /// Write the result as a patch to a file
    #[arg(long, value_name = "FILE", group = "delivery")]
    pub patch: Option<PathBuf>,
    /// Name the run
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// Never build a missing base image from Debian's packages
    #[arg(long)]
    pub no_bootstrap: bool,
    /// Print the result as one JSON object
    #[arg(long, conflicts_with = "events")]
    pub json: bool,
    /// Print each event as a JSON object a line, the result last
    #[arg(long)]
    pub events: bool,
    /// No progress, only the result
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Every turn of every agent, and diagnosis
    #[arg(long, short)]
    pub verbose: bool,
}

impl Args {
    fn look(&self) -> Look {
        Look {
            noise: noise(self.quiet, self.verbose),
            events: self.events,
        }
    }

    fn form(&self) -> Form {
        Form::wanted(self.json, self.events)
    }
}

/// Runs the task and prints what it came to.
pub async fn act(args: Args) -> Result<i32, Fault> {
    let done = attend(args.look(), async |teller, stop| {
        work(&args, teller, stop).await
    });
    let done = done.await?;
    if let (Some(path), Some(text)) = (&args.output, &done.plan_text) {
        super::record::write_new(path, text)?;
    }
    let printed = print(args.form(), args.output.as_deref(), &done);
    printed.map_err(|fault| beyond(fault, &done.summary))?;
    Ok(done.summary.exit_code)
}

/// What a run left: its result and, for --plan-only, the plan as a file's text.
pub struct Done {
    pub summary: Summary,
    pub plan_text: Option<String>,
}

async fn work(args: &Args, teller: &Teller, stop: &Stopper) -> Result<Done, Fault> {
    let order::Ready {
        order,
        engine,
        cache,
    } = order::ready(order::place(args).await?, teller, stop).await?;
    let (plan, tracer) = (order.plan.clone(), order.tracer.clone());
    let summary = run::start(order).await;
    order::trim(&engine, cache, teller).await;
    flush(&tracer, teller).await;
    let summary = summary?;
    let plan_text = match args.plan_only {
        true => order::plan_text(&plan, &summary)?,
        false => None,
    };
    Ok(Done { summary, plan_text })
}

/// A result that could not be printed is still there.
fn beyond(fault: Fault, summary: &Summary) -> Fault {
    let hint = format!(
        "the run is {}; `wharf show {} --json` prints its result",
        result::status(summary.status),
        summary.run
    );
    fault.hint(hint)
}

/// Sends the last spans, and says so when some were lost.
pub async fn flush(tracer: &crate::trace::Tracer, teller: &Teller) {
    tracer.flush(order::FLUSH_LIMIT).await;
    if let Some(warning) = tracer.warning() {
        teller.text(&format!("warning: {warning}"));
    }
}

/// Prints what a run came to; `written` is where its plan went.
pub fn print(form: Form, written: Option<&Path>, done: &Done) -> Result<(), Fault> {
    let object = |first: Option<&str>| -> Result<serde_json::Value, Fault> {
        let mut fields = serde_json::Map::new();
        if let Some(word) = first {
            fields.insert("type".to_owned(), word.into());
        }
        let summary = serde_json::to_value(&done.summary)
            .map_err(|error| Fault::new(3, "bug", format!("encode the result: {error}")))?;
        if let serde_json::Value::Object(summary) = summary {
            fields.extend(summary);
        }
        if let Some(text) = &done.plan_text {
            fields.insert("plan".to_owned(), text.as_str().into());
        }
        Ok(fields.into())
    };
    match form {
        Form::Json => out::json(&object(None)?),
        Form::Events => out::json(&object(Some("result"))?),
        Form::Text => match (&done.plan_text, written) {
            (Some(_), Some(path)) => out::print(&format!(
                "plan written to {}\nnext: wharf run --plan {}",
                path.display(),
                path.display()
            )),
            (Some(text), None) => out::print(text),
            (None, _) => out::print(&result::lines(&done.summary)),
        },
    }
}
