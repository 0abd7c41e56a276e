//! `wharf doctor`: whether a run could start here, and what to do where not.

use super::fault::Fault;
use super::{order, out, plan_file, state, text, wording};
use crate::config::{Config, Flags};
use crate::ops::{self, Check, State};
use crate::workspace::{Git, Version};

/// Check everything a run needs; each failing line says what to do next
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf doctor --model openai/gpt-4.1")]
pub struct Args {
    /// Make one small call to this model; without it the plan's or the configured one is only set up
    #[arg(long, short, value_name = "M")]
    model: Option<String>,
    /// Print one JSON object with a `checks` list
    #[arg(long)]
    json: bool,
}

/// Runs every check; exit 3 when one does not pass.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let flags = Flags {
        model: args.model.clone(),
        ..Flags::default()
    };
    let mut config = state::settings(&flags)?;
    let mut checks = engine(&config).await;
    checks.push(git(&config.git()).await);
    checks.push(ops::state_directory(&config.state));
    checks.push(ops::disk(&config.state));
    let (more, models) = plan_and_model(&mut config);
    checks.extend(more);
    if args.model.is_some() {
        for model in models {
            checks.push(ops::call(&model).await);
        }
    }
    let passed = checks.iter().all(Check::passes);
    if args.json {
        out::json(&serde_json::json!({ "ok": passed, "checks": checks }))?;
    } else {
        out::print(&page(&checks))?;
    }
    Ok(if passed { 0 } else { 3 })
}

async fn engine(config: &Config) -> Vec<Check> {
    let name = "container engine";
    let engine = match ops::Engine::connect(&config.engine_options()).await {
        Ok(engine) => engine,
        Err(error) => return vec![Check::failed(name, error.to_string(), error.hint())],
    };
    let about = engine.about();
    let cgroup = match about.cgroup.trim_start_matches('v') {
        "" => "cgroup version not told".to_owned(),
        version => format!("cgroup v{version}"),
    };
    let found = format!(
        "{} {} at {} ({}), API {}, {cgroup}, {}, {}, runtimes {}",
        about.product,
        about.version,
        about.address,
        about.found_by,
        about.api,
        about.storage,
        about.arch,
        about.runtimes.join(" ")
    );
    let mut checks = vec![ops::engine_api(name, found, &about.api)];
    checks.extend(ops::engine_place(&about));
    checks.push(ops::limits(&about.unable));
    checks.push(match engine.images().await {
        Ok(images) => ops::base_images(images.iter().map(|image| image.name.as_str())),
        Err(error) => Check::new("images", State::Unknown, error.to_string(), error.hint()),
    });
    checks
}

/// Only the workspace room starts git; it says which one it finds.
async fn git(git: &Git) -> Check {
    let next = "install git 2.38 or newer";
    match git.version().await {
        Ok(version) => {
            let found = format!("version {}.{}", version.major, version.minor);
            if version >= Version::NEEDED {
                Check::ok("git", found)
            } else {
                Check::failed("git", format!("{found} is too old"), next)
            }
        }
        Err(error) => Check::failed("git", error.to_string(), next),
    }
}

/// The checks, and the models that are set up, in order of fall-back.
fn plan_and_model(config: &mut Config) -> (Vec<Check>, Vec<ops::OpenModel>) {
    let path = config.plan.clone();
    let mut file = match plan_file::find(path.as_deref()) {
        Ok(file) => file,
        Err(fault) => {
            return (
                vec![Check::failed("plan", fault.message, fault.hint)],
                vec![],
            );
        }
    };
    let place = path.map_or_else(
        || "the built-in plan".to_owned(),
        |p| p.display().to_string(),
    );
    let text = file.text.clone();
    if let Err(error) = config.apply(&mut file.plan, &text, file.path.clone().as_deref()) {
        let check = Check::failed("plan", error.to_string(), error.hint());
        return (vec![check], vec![]);
    }
    let (model, opened) = match order::models(config, &file.plan, Some(&file)) {
        Ok(models) => {
            let found = format!("{} is set up", file.plan.model.join(", "));
            (Check::ok("model", found), models.default)
        }
        Err(fault) => (Check::failed("model", fault.message, fault.hint), vec![]),
    };
    (vec![Check::ok("plan", place), model], opened)
}

fn page(checks: &[Check]) -> String {
    let mut page = String::new();
    for check in checks {
        let sign = match check.state {
            State::Ok => wording::mark("done"),
            State::Note => wording::mark("note"),
            State::Failed => wording::mark("failed"),
            State::Unknown => wording::mark("unknown"),
        };
        page.push_str(&format!(
            "{sign} {:<17} {}\n",
            check.name,
            text::line(&check.found, 300)
        ));
        if !check.next.is_empty() {
            page.push_str(&text::block(&check.next, "    next: ", 4));
        }
    }
    page
}
