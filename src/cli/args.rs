//! The verbs, and nothing about how they work.

use clap::{Parser, Subcommand};

use super::fault::Fault;
use super::{
    apply, clean, completions, config, diff, doctor, images, init, log, models, plan, record,
    replay, resume, run, runs, shell, show, trace,
};

/// Splits a large task among agents, each in its own disposable container, merges what they made
/// and has it judged by an agent that saw none of the work.
#[derive(Debug, Parser)]
#[command(
    name = "wharf",
    version = version(),
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done and verified, 1 a subtask or the verdict failed, 2 usage, plan or \
configuration, 3 environment, 4 not verified, 5 a limit stopped it, 130/143/129 interrupted.\n\n\
Example:\n  wharf run --plan plans/quickstart.yaml"
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    Run(Box<run::Args>),
    Resume(resume::Args),
    Init(init::Args),
    Plan(plan::Args),
    Images(images::Args),
    Models(models::Args),
    Runs(runs::Args),
    Show(show::Args),
    Diff(diff::Args),
    Shell(shell::Args),
    Log(log::Args),
    Trace(trace::Args),
    Apply(apply::Args),
    Replay(replay::Args),
    Record(record::Args),
    Clean(clean::Args),
    Config(config::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
}

impl Verb {
    /// Does what the verb says; the number is the exit code.
    pub async fn act(self) -> Result<i32, Fault> {
        match self {
            Self::Run(args) => run::act(*args).await,
            Self::Resume(args) => resume::act(&args).await,
            Self::Init(args) => init::act(&args),
            Self::Plan(args) => plan::act(args),
            Self::Images(args) => images::act(args).await,
            Self::Models(args) => models::act(&args).await,
            Self::Runs(args) => runs::act(&args),
            Self::Show(args) => show::act(&args),
            Self::Diff(args) => diff::act(&args).await,
            Self::Shell(args) => shell::act(&args).await,
            Self::Log(args) => log::act(&args).await,
            Self::Trace(args) => trace::act(&args).await,
            Self::Apply(args) => apply::act(&args).await,
            Self::Replay(args) => replay::act(&args).await,
            Self::Record(args) => record::act(&args),
            Self::Clean(args) => clean::act(&args).await,
            Self::Config(args) => config::act(args),
            Self::Doctor(args) => doctor::act(&args).await,
            Self::Completions(args) => completions::act(&args),
        }
    }
}

/// The version with the commit it was built from, where the build knew one.
fn version() -> &'static str {
    static VERSION: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    VERSION.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        match option_env!("WHARF_COMMIT") {
            Some(commit) if !commit.is_empty() => format!("{version} ({commit})"),
            _ => version.to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed_and_every_verb_ends_with_an_example() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for verb in command.get_subcommands().filter(|v| v.get_name() != "help") {
            let after = verb.get_after_help().map(ToString::to_string);
            assert!(
                after.is_some_and(|text| text.starts_with("Example")),
                "{} has no example",
                verb.get_name()
            );
        }
    }
}
