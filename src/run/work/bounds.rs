//! Limits of sandboxes that may not hold: a warning for each kind and run, or with
//! `sandbox.strict` no sandbox.

use crate::agent::Stop;
use crate::plan::{Kind, Plan, show_size};
use crate::run::shared::Shared;
use crate::sandbox::{Doubt, Holds, Limit, Sandbox, Spec};

/// Looks at what was not seen to hold in a sandbox that was just opened; a refused one is closed.
pub(in crate::run) async fn see(
    shared: &Shared,
    spec: &Spec,
    sandbox: &dyn Sandbox,
) -> Result<(), Stop> {
    let doubts = &sandbox.facts().doubts;
    if let Some(reason) = refusal(spec, doubts) {
        sandbox.close().await;
        return Err(Stop::Environment { reason });
    }
    for doubt in doubts {
        if shared
            .doubted
            .send_if_modified(|known| known.insert(kind(doubt)))
        {
            shared.warn(doubt.text.clone());
        }
    }
    Ok(())
}

fn refusal(spec: &Spec, doubts: &[Doubt]) -> Option<String> {
    let not_held = |doubt: &&Doubt| spec.strict && doubt.holds != Holds::Yes;
    let texts: Vec<&str> = doubts
        .iter()
        .filter(not_held)
        .map(|doubt| doubt.text.as_str())
        .collect();
    (!texts.is_empty()).then(|| format!("{} (sandbox.strict)", texts.join("; ")))
}

/// What counts as the same warning: the limit, and of those without a name the text.
fn kind(doubt: &Doubt) -> String {
    match doubt.limit {
        Limit::Other => doubt.text.clone(),
        limit => limit.word().to_owned(),
    }
}

/// Says before the first agent that the sandboxes of a run may need more memory than there is.
pub(in crate::run) fn warn_of_memory(shared: &Shared) {
    let machine = shared.engine.memory();
    if let Some(text) = machine.and_then(|machine| too_much(&shared.plan, machine)) {
        shared.warn(text);
    }
}

fn too_much(plan: &Plan, machine: u64) -> Option<String> {
    let workers = plan
        .roles
        .values()
        .filter(|role| role.kind == Kind::Worker && used(plan, role.name.as_str()));
    let largest = workers.map(|role| role.sandbox.memory).max()?;
    let at_once = match plan.subtasks.len() {
        0 => plan.run.parallel,
        fixed => plan.run.parallel.min(fixed),
    };
    let all = largest.saturating_mul(u64::try_from(at_once).unwrap_or(u64::MAX));
    (all > machine).then(|| {
        format!(
            "{at_once} sandboxes of {} of memory may need more than the {} MiB that the engine's machine \
             has; lower run.parallel or sandbox.memory",
            show_size(largest),
            machine >> 20,
        )
    })
}

/// With fixed subtasks only their roles work; a coordinator may choose any.
fn used(plan: &Plan, role: &str) -> bool {
    plan.subtasks.is_empty() || plan.subtasks.iter().any(|one| one.role.as_str() == role)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        let text = format!("version: 1\n{text}");
        crate::plan::parse(&text, "p.yaml", &|path| Err(path.to_owned())).unwrap()
    }

    #[test]
    fn what_may_run_at_once_is_measured_against_the_machine() {
        let four = plan("run: {parallel: 4}\nsandbox: {memory: 2g}\n");
        assert_eq!(too_much(&four, 8 << 30), None);
        let text = too_much(&four, (8 << 30) - 1).unwrap();
        assert!(text.contains("4 sandboxes of 2g"), "{text}");
        let one = plan(
            "run: {parallel: 4}\nsandbox: {memory: 2g}\nroles: {reviewer: {sandbox: {memory: 900g}}}\n\
             subtasks: [{id: a, role: coder, brief: b}]\n",
        );
        assert_eq!(too_much(&one, 2 << 30), None);
        assert!(too_much(&one, 1 << 30).is_some());
    }
}
