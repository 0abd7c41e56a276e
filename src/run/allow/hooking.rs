//! Hooks at their moments: what they are told, what is journaled of them, and what their word leads to.
//! One that fails is never taken for consent.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::agent::Stop;
use crate::journal::{Agent, Event, HookOutcome};
use crate::run::shared::Shared;
use crate::run::work::desk::Desk;
use crate::tools::hooks::{self, Decision, Hook, Moment, Said};
use crate::tools::{Call, Output, Set, clip};

/// How often hooks may hand work back to its agent before it ends as failed.
const HANDED_BACK: u32 = 3;

/// What hooks made of a call before it runs.
pub(in crate::run) struct Before {
    pub call: Call,
    /// One of them consents to it.
    pub allowed: bool,
    /// One of them wants somebody to consent.
    pub asked: Option<String>,
    pub reason: Option<String>,
    pub told: Option<String>,
}

/// Why a call is not to run.
pub(in crate::run) struct Against {
    pub text: String,
    /// It could not be told what a hook wanted.
    pub failed: bool,
}

/// One hook's run.
struct Run<'a> {
    shared: &'a Shared,
    agent: Option<&'a Agent>,
    hook: &'a Hook,
    tool: Option<&'a str>,
}

impl Run<'_> {
    /// Runs it and journals what it came to. The inner `Err` is why that cannot be told.
    async fn run(&self, mut input: Value) -> Result<Result<Said, String>, Stop> {
        let (shared, hook) = (self.shared, self.hook);
        common(&mut input, shared, self.agent, hook.moment);
        let since = Instant::now();
        let cancel = &shared.stop.cancel;
        let said = hooks::run(hook, &input, &shared.consent.env, cancel).await;
        let (outcome, reason) = match &said {
            Ok(said) => (outcome(said), said.reason.clone()),
            Err(fault) => (HookOutcome::Failed, Some(fault.clone())),
        };
        shared.journal.note(Event::HookRan {
            agent: self.agent.cloned(),
            moment: hook.moment.word().to_owned(),
            command: clip::line(&hook.command, 200),
            tool: self.tool.map(str::to_owned),
            outcome,
            reason: reason.map(|reason| clip::line(&reason, 400)),
            seconds: since.elapsed().as_secs_f64(),
        });
        match cancel.is_cancelled() {
            true => Err(Stop::Cancelled),
            false => Ok(said),
        }
    }
}

fn outcome(said: &Said) -> HookOutcome {
    let changed = said.input.is_some() || said.output.is_some() || said.context.is_some();
    match said.decision {
        Some(Decision::Block) => HookOutcome::Blocked,
        Some(Decision::Ask) => HookOutcome::Asked,
        _ if changed => HookOutcome::Changed,
        Some(Decision::Allow) => HookOutcome::Allowed,
        None => HookOutcome::NoObjection,
    }
}

/// What every hook is told.
fn common(input: &mut Value, shared: &Shared, agent: Option<&Agent>, moment: Moment) {
    let mut add = |key: &str, value: Value| input[key] = value;
    add("session_id", json!(shared.id.to_string()));
    add("hook_event_name", json!(moment.word()));
    add("cwd", json!(shared.workspace.display().to_string()));
    add("permission_mode", json!(shared.plan.permissions.mode));
    if let Some(agent) = agent {
        add("subtask", json!(agent.subtask.to_string()));
        add("agent_type", json!(agent.role.to_string()));
        add("round", json!(agent.round));
    }
}

fn of<'a>(shared: &'a Shared, moment: Moment, name: &str) -> impl Iterator<Item = &'a Hook> {
    let hooks = shared.consent.hooks.iter();
    hooks.filter(move |hook| hook.concerns(moment, name))
}

/// Every hook before a call, each with what the one before made of it; the rules judge each change.
pub(in crate::run) async fn before(
    desk: &Desk,
    tools: &Set,
    call: Call,
    id: &str,
) -> Result<Result<Before, Against>, Stop> {
    let mut now = Before {
        call,
        allowed: false,
        asked: None,
        reason: None,
        told: None,
    };
    let tool = now.call.tool.clone();
    for hook in of(&desk.shared, Moment::PreToolUse, &tool) {
        let run = Run {
            shared: &desk.shared,
            agent: Some(&desk.who),
            hook,
            tool: Some(&tool),
        };
        let input = json!({"tool_name": tool, "tool_input": now.call.arguments, "tool_use_id": id});
        let said = match run.run(input).await? {
            Ok(said) => said,
            Err(fault) => {
                let text =
                    format!("a hook had to be asked, and it cannot be told what it wants: {fault}");
                return Ok(Err(Against { text, failed: true }));
            }
        };
        if said.decision == Some(Decision::Block) {
            let why = said
                .reason
                .unwrap_or_else(|| "it gave no reason".to_owned());
            let text = format!("a hook of the operator's blocked it: {why}");
            return Ok(Err(Against {
                text,
                failed: false,
            }));
        }
        if let Err(text) = take(&mut now, tools, said) {
            return Ok(Err(Against {
                text,
                failed: false,
            }));
        }
    }
    Ok(Ok(now))
}

/// What one hook said becomes part of what is known; its arguments are validated and judged anew.
fn take(now: &mut Before, tools: &Set, said: Said) -> Result<(), String> {
    if let Some(input) = said.input {
        let text = Value::Object(input).to_string();
        let made = tools.check(&now.call.tool, &text).map_err(|refused| {
            format!("a hook changed it into what may not run: {}", refused.text)
        })?;
        if made != now.call {
            now.told = Some(format!(
                "a hook of the operator's changed the arguments of this call to {}",
                clip::middle(&made.arguments.to_string(), 1_000)
            ));
            now.call = made;
            // A yes was about what stood there before.
            now.allowed = false;
        }
    }
    match said.decision {
        Some(Decision::Allow) => {
            now.allowed = true;
            now.reason = said.reason;
        }
        Some(Decision::Ask) => {
            let why = said
                .reason
                .unwrap_or_else(|| "it gives no reason".to_owned());
            now.asked = Some(format!("a hook asks for it: {}", clip::line(&why, 200)));
        }
        Some(Decision::Block) | None => {}
    }
    Ok(())
}

/// Every hook after a call. A result that a hook could not look at is withheld.
pub(in crate::run) async fn after(
    desk: &Desk,
    call: &Call,
    id: &str,
    mut output: Output,
) -> Result<Output, Stop> {
    for hook in of(&desk.shared, Moment::PostToolUse, &call.tool) {
        let run = Run {
            shared: &desk.shared,
            agent: Some(&desk.who),
            hook,
            tool: Some(&call.tool),
        };
        let input = json!({
            "tool_name": call.tool,
            "tool_input": call.arguments,
            "tool_use_id": id,
            "tool_response": {
                "text": output.text,
                "failed": output.failed,
                "exit_code": output.exit_code,
            },
        });
        match run.run(input).await? {
            Ok(said) => output = shown(output, said),
            Err(fault) => {
                let text = format!(
                    "the call ran, but its result is withheld: a hook had to look at it first, and that failed: \
                     {fault}"
                );
                return Ok(Output {
                    exit_code: output.exit_code,
                    ..Output::refused("denied", text)
                });
            }
        }
    }
    Ok(output)
}

fn shown(mut output: Output, said: Said) -> Output {
    if let Some(text) = said.output {
        output.text = text;
    }
    if let Some(context) = said.context {
        output.text = format!("{}\n[{context}]", output.text.trim_end());
    }
    if said.decision == Some(Decision::Block) {
        let why = said
            .reason
            .unwrap_or_else(|| "it gave no reason".to_owned());
        output.text = format!(
            "{}\n[a hook of the operator's objects to this: {why}]",
            output.text.trim_end()
        );
        output.failed = true;
        output.error_type = output.error_type.or(Some("denied"));
    }
    output
}

/// The hooks before an agent starts; a stop when one does not let it.
pub(in crate::run) async fn starting(shared: &Shared, who: &Agent) -> Result<(), Stop> {
    for hook in of(shared, Moment::SubagentStart, who.role.as_str()) {
        let run = Run {
            shared,
            agent: Some(who),
            hook,
            tool: None,
        };
        if let Some(reason) = against(run.run(json!({})).await?) {
            return Err(Stop::Hook { reason });
        }
    }
    Ok(())
}

/// The hooks when an agent hands in. One that blocks hands its work back, so often; then, or when one
/// fails, which the agent cannot mend, it ends.
pub(in crate::run) async fn ending(
    shared: &Shared,
    who: &Agent,
    moment: Moment,
    arguments: &Value,
    handed_back: &AtomicU32,
) -> Result<Result<(), String>, Stop> {
    let before = handed_back.load(Ordering::SeqCst);
    for hook in of(shared, moment, who.role.as_str()) {
        let run = Run {
            shared,
            agent: Some(who),
            hook,
            tool: None,
        };
        let input = json!({"stop_hook_active": before > 0, "handed_in": arguments});
        let said = run.run(input).await?;
        let failed = said.is_err();
        let Some(reason) = against(said) else {
            continue;
        };
        if failed || handed_back.fetch_add(1, Ordering::SeqCst) >= HANDED_BACK {
            return Err(Stop::Hook { reason });
        }
        let told =
            format!("not handed in: a hook of the operator's does not take it yet: {reason}");
        return Ok(Err(told));
    }
    Ok(Ok(()))
}

/// The hooks at the end of a run's work; what they object to becomes a warning and changes no status.
pub(in crate::run) async fn finished(shared: &Shared, status: &str) {
    for hook in of(shared, Moment::Stop, "") {
        let run = Run {
            shared,
            agent: None,
            hook,
            tool: None,
        };
        let Ok(said) = run
            .run(json!({"stop_hook_active": false, "status": status}))
            .await
        else {
            return;
        };
        if let Some(reason) = against(said) {
            shared.warn(format!("hook Stop: {reason}"));
        }
    }
}

/// Why a hook stands against something, or cannot be told to stand for it.
fn against(said: Result<Said, String>) -> Option<String> {
    match said {
        Ok(said) if said.decision == Some(Decision::Block) => Some(
            said.reason
                .unwrap_or_else(|| "it gave no reason".to_owned()),
        ),
        Ok(_) => None,
        Err(fault) => Some(format!("a hook failed: {fault}")),
    }
}
