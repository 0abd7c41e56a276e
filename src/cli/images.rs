//! `wharf images`: build and list what agents live in.

use tokio_util::sync::CancellationToken;

use super::fault::Fault;
use super::{out, state, text};
use crate::config::Flags;
use crate::ops::Bootstrap;

/// Build or list the images agents live in
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf images build wharf/python")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make images ready ahead of a run
    #[command(after_help = "Example:\n  wharf images build wharf/python")]
    Build {
        /// Names as a plan's `sandbox.image` has them
        #[arg(value_name = "IMAGE", default_values = ["wharf/base", "wharf/python"])]
        names: Vec<String>,
        /// Never make a missing base from Debian's packages
        #[arg(long)]
        no_bootstrap: bool,
        /// Answer with one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List the images that Wharf made
    #[command(after_help = "Example:\n  wharf images list")]
    List {
        /// Print one JSON object with an `images` list
        #[arg(long)]
        json: bool,
    },
}

/// Builds or lists.
pub async fn act(args: Args) -> Result<i32, Fault> {
    match args.verb {
        Verb::Build {
            names,
            no_bootstrap,
            json,
        } => build(&names, no_bootstrap, json).await,
        Verb::List { json } => list(json).await,
    }
}

async fn build(names: &[String], no_bootstrap: bool, json: bool) -> Result<i32, Fault> {
    let config = state::settings(&Flags {
        no_bootstrap,
        ..Flags::default()
    })?;
    let engine = state::engine(&config).await?;
    let bootstrap = match config.bootstrap {
        true => Bootstrap::Allowed,
        false => Bootstrap::Refused,
    };
    let cancel = CancellationToken::new();
    let mut built = Vec::new();
    for name in names {
        let say = |line: &str| out::note(&text::line(line, 160));
        let id = engine.build(name, bootstrap, &say, &cancel).await?;
        if !json {
            out::print(&format!(
                "{name} is ready ({})",
                id.get(..19).unwrap_or(&id)
            ))?;
        }
        built.push(serde_json::json!({"name": name, "id": id}));
    }
    if json {
        out::json(&serde_json::json!({ "images": built }))?;
    }
    Ok(0)
}

async fn list(json: bool) -> Result<i32, Fault> {
    let config = state::settings(&Flags::default())?;
    let images = state::engine(&config).await?.images().await?;
    if json {
        out::json(&serde_json::json!({ "images": images, "cache_bytes": config.cache }))?;
        return Ok(0);
    }
    if images.is_empty() {
        out::note("no images yet; `wharf images build` makes them");
        return Ok(0);
    }
    let width = images
        .iter()
        .map(|image| image.name.len())
        .max()
        .unwrap_or(0);
    let mut page = String::new();
    for image in &images {
        let made_for = image.made_for.as_deref().map_or_else(String::new, |name| {
            format!("  for {}", text::line(name, 80))
        });
        let used = if image.in_use { "  in use" } else { "" };
        let last = match image.cached {
            true => format!(
                "  {:>9} own  used {}",
                text::bytes(image.own_bytes),
                text::line(&image.last_used, 20)
            ),
            false => String::new(),
        };
        page.push_str(&format!(
            "{:<width$}  {:>9}{last}{made_for}{used}\n",
            text::line(&image.name, 200),
            text::bytes(image.bytes)
        ));
    }
    let cached: u64 = images
        .iter()
        .filter(|image| image.cached)
        .map(|image| image.own_bytes)
        .sum();
    page.push_str(&format!(
        "cached: {} of {} (`cache` in the configuration)\n",
        text::bytes(cached),
        text::bytes(config.cache)
    ));
    out::print(&page)?;
    Ok(0)
}
