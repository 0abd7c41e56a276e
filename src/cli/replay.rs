//! `wharf replay`: a run once more from its recorded answers, and where it came to something else.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::attend::{attend, noise};
use super::fault::Fault;
use super::live::{Look, Teller};
use super::{find, order, out, plan_file, state, text};
use crate::config::{Config, Flags};
use crate::plan::Plan;
use crate::run::{
    self, After, Comparison, Difference, Likeness, Replayable, Replayed, Replaying, Stopper, Tools,
};

/// Exit codes: it came to something else; it could not be told whether.
const DIFFERENT: i32 = 1;
const UNKNOWN: i32 = 4;
/// Facts that changed and are printed.
const SHOWN: usize = 20;

/// Run a run again from its recorded answers, and say where it comes to something else
///
/// Base, plan and answers are the recorded ones, and no model is asked. Tools run in containers anew,
/// or with `--tools recorded` come to what was recorded of them, which needs neither Docker nor
/// network. Nothing is delivered, and the recorded run is only read. Exit code 0 says that it came to
/// the same trees, statuses and verdict, 1 that it did not, 4 that it could not be told, as with a run
/// that was cut off.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  wharf replay last\n  wharf replay last --tools recorded --json"
)]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// Where tool results come from
    #[arg(long, value_enum, default_value_t = From::Live)]
    tools: From,
    /// Leave the replay's own run beside the others, for `wharf show`, `log` and `diff`
    #[arg(long)]
    keep: bool,
    /// Print the comparison as one JSON object
    #[arg(long)]
    json: bool,
    /// No progress, only the comparison
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Every turn of every agent, and diagnosis
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum From {
    /// Containers
    Live,
    /// The journal
    Recorded,
}

/// Replays the run and prints how it compares.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let look = Look {
        noise: noise(args.quiet, args.verbose),
        events: false,
    };
    let found = find::one(&state::directory()?, &args.run)?;
    let of = Replayable::open(&found.dir)?;
    let answers = of.answers();
    let work = async |teller: &Teller, stop: &Stopper| work(args, of, teller, stop).await;
    let replayed = attend(look, work).await?;
    let code = code(&replayed);
    if args.json {
        out::json(&object(&found.id, args, &replayed, code))?;
    } else {
        out::print(&page(&found.id, answers, &replayed))?;
    }
    Ok(code)
}

async fn work(
    args: &Args,
    of: Replayable,
    teller: &Teller,
    stop: &Stopper,
) -> Result<Replayed, Fault> {
    let mut config = state::settings(&Flags::default())?;
    let plan = plan(&of)?;
    let live = args.tools == From::Live;
    let engine = match live {
        true => {
            config.replay(&plan)?;
            let engine = state::engine(&config).await?;
            order::bury(&engine, &config, teller).await;
            Some(engine)
        }
        false => None,
    };
    let how = Replaying {
        plan,
        options: config.run_options(),
        tools: match &engine {
            Some(engine) => Tools::Live(engine.to_run()),
            None => Tools::Recorded,
        },
        watch: Arc::new(teller.clone()),
        stop: stop.clone(),
        secrets: config.secrets.clone(),
        after: match args.keep {
            true => After::Keep,
            false => After::Remove,
        },
    };
    let replayed = run::replay(of, how).await;
    if let Some(engine) = &engine {
        end(engine, &config, teller).await;
    }
    Ok(replayed?)
}

async fn end(engine: &crate::ops::Engine, config: &Config, teller: &Teller) {
    order::trim(engine, config.cache, teller).await;
}

/// The plan that the run kept, under what it was started with.
fn plan(of: &Replayable) -> Result<Plan, Fault> {
    let path = of.kept().plan_path.clone();
    let path = path.unwrap_or_else(|| PathBuf::from("plan.yaml"));
    let mut plan = plan_file::kept(&of.plan_text, &path, &of.plan_files)?;
    of.kept().lay(&mut plan);
    Ok(plan)
}

fn code(replayed: &Replayed) -> i32 {
    match (replayed.stopped, replayed.comparison.outcome) {
        (Some(signal), _) => signal,
        (None, Likeness::Different) => DIFFERENT,
        (None, _) if replayed.failed.is_some() => 3,
        (None, Likeness::Unknown) => UNKNOWN,
        (None, Likeness::Same) => 0,
    }
}

fn object(id: &str, args: &Args, replayed: &Replayed, code: i32) -> serde_json::Value {
    let mut value = json!({
        "run": id,
        "tools": match args.tools { From::Live => "live", From::Recorded => "recorded" },
        "exit_code": code,
        "kept": replayed.run,
    });
    if let (Some(fields), Ok(serde_json::Value::Object(more))) = (
        value.as_object_mut(),
        serde_json::to_value(&replayed.comparison),
    ) {
        fields.extend(more);
    }
    value
}

fn page(id: &str, answers: usize, replayed: &Replayed) -> String {
    let found = &replayed.comparison;
    let mut lines = vec![format!(
        "replayed {id}: {} recorded",
        text::plural(answers, "answer")
    )];
    let results = &found.results;
    lines.push(format!(
        "tool results: {} the same, {} other in digits alone, {} different",
        results.same, results.numbers, results.different
    ));
    match (&results.first, &results.first_in_numbers) {
        (Some(first), _) => lines.push(difference("first difference", first)),
        (None, Some(first)) => lines.push(difference("first difference, in digits alone", first)),
        (None, None) => {}
    }
    let requests = &found.requests;
    let asked = requests.same + requests.different;
    let mut line = format!("requests: {} of {asked} word for word", requests.same);
    if let Some(first) = &requests.first {
        line.push_str(&format!("; the first other one is {first}"));
    }
    lines.push(line);
    for call in &found.unanswered {
        lines.push(format!("not recorded: an answer to {call}"));
    }
    for changed in found.changed.iter().take(SHOWN) {
        lines.push(format!(
            "{}: {} then, {} now",
            text::line(&changed.what, 200),
            changed.recorded,
            changed.replayed
        ));
    }
    if found.changed.len() > SHOWN {
        lines.push(format!("and {} more", found.changed.len() - SHOWN));
    }
    if let Some(run) = &replayed.run {
        lines.push(format!("its own run is kept: wharf show {run}"));
    }
    lines.extend(last(found));
    lines.join("\n")
}

fn difference(title: &str, first: &Difference) -> String {
    let Difference {
        agent,
        role,
        round,
        call,
        tool,
        arguments,
        ..
    } = first;
    let side = |text: &str| text::block(text, "    ", 12);
    format!(
        "{title}: call #{call} of {agent} ({role}) in round {round}, {tool} {}\n  then:\n{}\n  now:\n{}",
        text::line(arguments, 200),
        side(&first.recorded).trim_end(),
        side(&first.replayed).trim_end(),
    )
}

/// The last lines: what the replay came to.
fn last(found: &Comparison) -> Vec<String> {
    let word = |likeness| match likeness {
        Likeness::Same => "the same",
        Likeness::Different => "DIFFERENT",
        Likeness::Unknown => "could not tell",
    };
    let mut lines = vec![format!(
        "trees: {}; statuses: {}; verdict: {}",
        word(found.trees),
        word(found.statuses),
        word(found.verdict)
    )];
    let why = found.untold.as_ref();
    let why = why.map_or(String::new(), |why| format!(": {}", text::line(why, 400)));
    lines.push(match found.outcome {
        Likeness::Same => "it came to the same".to_owned(),
        Likeness::Different => "it came to something else".to_owned(),
        Likeness::Unknown => format!("whether it comes to the same could not be told{why}"),
    });
    lines
}
