//! The order of a replay: that of the recorded run, but that nobody is asked and nothing delivered.

use super::*;

pub(super) fn decisions(
    lines: &[journal::Line],
) -> HashMap<(Agent, String), (bool, Option<String>)> {
    let of = |line: &journal::Line| match &line.event {
        Event::PermissionDecided {
            agent,
            call_id,
            allowed,
            reason,
            ..
        } => Some(((agent.clone(), call_id.clone()), (*allowed, reason.clone()))),
        _ => None,
    };
    lines.iter().filter_map(of).collect()
}

/// The order of the recorded run, but that it delivers nothing and sends no span.
pub(super) fn order(
    of: &Replayable,
    how: Replaying,
    (id, dir): (&RunId, &Path),
    script: &Script,
) -> Order {
    let answers: Arc<dyn model::Model> = script.answers.clone();
    let engine: Arc<dyn sandbox::Engine> = match (how.tools, &script.recorded) {
        (Tools::Live(engine), _) => engine,
        (Tools::Recorded, recorded) => Arc::new(Stage(recorded.clone().unwrap_or_default())),
    };
    let wishes = of.kept.wishes;
    let mut plan = how.plan;
    // The operator's programs saw the run when it was one.
    plan.hooks.clear();
    Order {
        plan,
        plan_text: of.plan_text.clone(),
        task: of.started.task.clone(),
        workspace: PathBuf::from(&of.started.workspace),
        options: Options {
            run_id: Some(id.clone()),
            delivery: Delivery::Patch(dir.join("result.patch")),
            apply: false,
            verify: wishes.verify,
            plan_only: wishes.plan_only,
            bootstrap: wishes.bootstrap,
            ..how.options
        },
        models: Models {
            default: vec![answers],
            roles: BTreeMap::new(),
            summary: Vec::new(),
        },
        consent: crate::run::Consent::default(),
        engine,
        tracer: Tracer::none(),
        watch: how.watch,
        stop: how.stop,
        keep: crate::run::Keep {
            plan_path: of.kept.plan_path.clone(),
            plan_files: of.plan_files.clone(),
            secrets: how.secrets,
        },
    }
}
