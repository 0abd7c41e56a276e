//! `wharf models`: what the configured model servers have.

use super::fault::Fault;
use super::{out, plan_file, state, text, wording};
use crate::config::Flags;
use crate::ops::{self, Asked};

/// List the models of each configured provider
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf models openai\n\n\
Each provider is asked once. One that has no list is told as unknown: it may still answer, which\n\
`wharf doctor --model PROVIDER/NAME` tries. Exit 3 when a provider could not be asked.")]
pub struct Args {
    /// Ask only these [default: all that need no key, or have one]
    #[arg(value_name = "PROVIDER")]
    names: Vec<String>,
    /// The plan whose providers are asked too
    #[arg(long, short, value_name = "FILE")]
    plan: Option<std::path::PathBuf>,
    /// Print one JSON object with a `providers` list
    #[arg(long)]
    json: bool,
}

/// Asks, and prints what came.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let flags = Flags {
        plan: args.plan.clone(),
        ..Flags::default()
    };
    let mut config = state::settings(&flags)?;
    let mut file = plan_file::find(config.plan.as_deref())?;
    let (whole, path) = (file.text.clone(), file.path.clone());
    config.apply(&mut file.plan, &whole, path.as_deref())?;
    let servers = config.model_providers();
    if let Some(name) = args.names.iter().find(|name| !servers.contains_key(*name)) {
        let known: Vec<&str> = servers.keys().map(String::as_str).collect();
        return Err(Fault::usage(format!("there is no provider {name:?}"))
            .hint(format!("the providers are {}", known.join(", "))));
    }
    let mut answers = Vec::new();
    for (name, server) in &servers {
        let named = args.names.contains(name);
        if !args.names.is_empty() && !named {
            continue;
        }
        let key_env = config.providers.get(name).and_then(|p| p.key_env.clone());
        let asked = match key_env {
            Some(variable) if server.api_key.is_none() && !named => Asked::Unknown {
                reason: format!("not asked: {variable} is unset"),
                hint: format!("set {variable} to use it"),
            },
            _ => ops::models(server).await,
        };
        answers.push((name.clone(), server.shown(), asked));
    }
    let failed = |(_, _, asked): &(String, String, Asked)| matches!(asked, Asked::Failed { .. });
    let code = if answers.iter().any(failed) { 3 } else { 0 };
    if args.json {
        let list: Vec<_> = answers.iter().map(object).collect();
        out::json(&serde_json::json!({ "ok": code == 0, "providers": list }))?;
    } else {
        let page: String = answers.iter().map(page).collect();
        out::print(&page)?;
    }
    Ok(code)
}

fn object((name, url, asked): &(String, String, Asked)) -> serde_json::Value {
    match asked {
        Asked::Has(models) => serde_json::json!({
            "name": name, "base_url": url, "state": "ok", "models": models,
        }),
        Asked::Unknown { reason, hint } => serde_json::json!({
            "name": name, "base_url": url, "state": "unknown", "reason": reason, "next": hint,
        }),
        Asked::Failed { reason, hint } => serde_json::json!({
            "name": name, "base_url": url, "state": "failed", "reason": reason, "next": hint,
        }),
    }
}

fn page((name, url, asked): &(String, String, Asked)) -> String {
    let head = |mark: &str, what: &str| {
        format!(
            "{mark} {name} at {}: {}\n",
            text::line(url, 100),
            text::line(what, 400)
        )
    };
    match asked {
        Asked::Has(models) => {
            let mut page = head(&wording::mark("done"), &format!("{} models", models.len()));
            for model in models {
                let window = model
                    .context_window
                    .map_or_else(|| "?".to_owned(), text::short);
                let price = model.price.map_or_else(String::new, |price| {
                    format!("  ${}/{} a million tokens", price.input, price.output)
                });
                let id = text::line(&format!("{name}/{}", model.id), 120);
                page.push_str(&format!("    {id:<48} {window:>7}{price}\n"));
            }
            page
        }
        Asked::Unknown { reason, hint } => {
            head(&wording::mark("unknown"), reason) + &text::block(hint, "    next: ", 4)
        }
        Asked::Failed { reason, hint } => {
            head(&wording::mark("failed"), reason) + &text::block(hint, "    next: ", 4)
        }
    }
}
