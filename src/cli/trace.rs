//! `wharf trace`: a run's spans, sent again from its journal alone.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::fault::Fault;
use super::{find, out, plan_file, state, text};
use crate::config::Flags;
use crate::journal;
use crate::run;
use crate::trace::Tracer;

/// How long all spans together may take on their way.
const LIMIT: Duration = Duration::from_secs(60);

/// Send a run's trace again, made from its journal alone
///
/// It goes to the endpoint that OTEL_EXPORTER_OTLP_ENDPOINT names, with the names, times, tokens and
/// trace id that the run had. A backend that has the run's trace already gets its root span a second
/// time and the others beside the first ones. Works for a run that crashed too.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 wharf trace last"
)]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// Answer with one JSON object
    #[arg(long)]
    json: bool,
}

/// Sends the spans; exit code 3 when not all of them arrived.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let config = state::settings(&Flags::default())?;
    for warning in &config.warnings {
        out::note(&format!("warning: {warning}"));
    }
    let found = find::one(&config.state, &args.run)?;
    let lines = journal::read(&found.journal())?.lines;
    let mut options = config.trace.clone();
    let Some(target) = &mut options.target else {
        return Err(
            Fault::usage("no endpoint to send the trace to").hint(format!(
                "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 wharf trace {}",
                found.id
            )),
        );
    };
    // All of them are there at once.
    target.queue = target.queue.max(run::spans_of(&lines));
    let Some(origin) = run::origin_of(&lines) else {
        return Err(Fault::usage(format!("run {} has no trace", found.id))
            .hint("it was started with OTEL_SDK_DISABLED=true, or it never began"));
    };
    let trace = origin.trace.clone();
    options.origin = Some(origin);
    let told = Tracer::told(&options).map_err(|error| Fault::environment(error.to_string()))?;
    let plan = run::kept_plan(&found.dir).ok();
    let plan = plan.and_then(|kept| {
        let path = kept.kept.plan_path.clone();
        let path = path.as_deref().unwrap_or(Path::new("plan.yaml"));
        plan_file::kept(&kept.text, path, &kept.files).ok()
    });
    if plan.is_none() {
        out::note("warning: the run's plan cannot be read; descriptions of roles are left out");
    }
    run::retell(&lines, plan.as_ref(), &told);
    told.flush(LIMIT).await;
    if let Some(warning) = told.warning() {
        return Err(Fault::environment(warning).hint("send it again once the backend is there"));
    }
    match args.json {
        true => out::json(&json!({"run": found.id, "trace_id": trace}))?,
        false => out::print(&format!(
            "sent the trace {} of run {}\n",
            text::line(&trace, 40),
            text::line(&found.id, 40)
        ))?,
    }
    Ok(0)
}
