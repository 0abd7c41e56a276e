//! `wharf config show`: each value and where it comes from.

use std::path::PathBuf;

use super::fault::Fault;
use super::{out, plan_file, state, text};
use crate::config::Flags;

/// Show the configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf config show")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show each value and where it comes from: flag, environment, plan, user config, built-in
    #[command(
        after_help = "Example:\n  WHARF_PARALLEL=2 wharf config show --plan plans/quickstart.yaml"
    )]
    Show {
        /// The plan file [default: wharf.yaml here, else the built-in one]
        #[arg(long, short = 'f', value_name = "FILE")]
        plan: Option<PathBuf>,
        /// Print one JSON object with a `settings` list
        #[arg(long)]
        json: bool,
    },
}

/// Prints every value; secrets are masked.
pub fn act(args: Args) -> Result<i32, Fault> {
    let Verb::Show { plan, json } = args.verb;
    let flags = Flags {
        plan,
        ..Flags::default()
    };
    let mut config = state::settings(&flags)?;
    let mut file = plan_file::find(config.plan.as_deref())?;
    let (text, path) = (file.text.clone(), file.path.clone());
    config.apply(&mut file.plan, &text, path.as_deref())?;
    let settings = config.settings();
    if json {
        let list: Vec<_> = settings
            .iter()
            .map(|s| serde_json::json!({"key": s.key, "value": s.value, "source": s.source.to_string()}))
            .collect();
        out::json(&serde_json::json!({ "settings": list, "warnings": config.warnings }))?;
        return Ok(0);
    }
    let mut page = String::new();
    for setting in settings {
        let value = text::line(&setting.value, 200);
        page.push_str(&format!(
            "{:<14} {value}  [{}]\n",
            setting.key, setting.source
        ));
    }
    config
        .warnings
        .iter()
        .for_each(|warning| out::note(&format!("warning: {warning}")));
    out::print(&page)?;
    Ok(0)
}
