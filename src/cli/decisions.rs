//! Lines of the journal and of a run under way about consent and hooks.

use super::text;
use crate::journal::Event;
use crate::run::Notice;

/// The line of an event; empty for one that is about something else.
pub fn event(event: &Event) -> String {
    match event {
        Event::PermissionAsked {
            agent,
            tool,
            what,
            reason,
            of,
            seconds,
            ..
        } => asked(agent.subtask.as_str(), (tool, what), reason, (of, *seconds)),
        Event::PermissionDecided {
            agent,
            tool,
            what,
            allowed,
            by,
            reason,
            ..
        } => decided(
            agent.subtask.as_str(),
            (tool, what),
            *allowed,
            by.word(),
            reason.as_deref(),
        ),
        Event::HookRan {
            agent,
            moment,
            command,
            tool,
            outcome,
            reason,
            seconds,
        } => {
            let who = agent.as_ref().map_or("run", |agent| agent.subtask.as_str());
            let about = tool
                .as_ref()
                .map_or_else(String::new, |tool| format!(" {tool}"));
            let why = reason
                .as_ref()
                .map_or_else(String::new, |why| format!(": {why}"));
            let time = text::seconds(*seconds);
            format!(
                "{who} hook {moment}{about} `{command}` {} ({time}){why}",
                outcome.word()
            )
        }
        _ => String::new(),
    }
}

/// The line of a notice; empty for one that is about something else.
pub fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Asked {
            agent,
            tool,
            what,
            reason,
            of,
            seconds,
            ..
        } => asked(agent, (tool, what), reason, (of, *seconds)),
        Notice::Decided {
            agent,
            tool,
            what,
            allowed,
            by,
            reason,
            ..
        } => decided(agent, (tool, what), *allowed, by, reason.as_deref()),
        _ => String::new(),
    }
}

fn asked(agent: &str, call: (&str, &str), reason: &str, (of, seconds): (&str, f64)) -> String {
    let (tool, what) = call;
    let whom = match of {
        "terminal" => "you are asked",
        "command" => "the approver is asked",
        _ => "the approver's address is asked",
    };
    let time = text::seconds(seconds);
    format!("{agent} wants {tool} `{what}`: {reason}; {whom}, for {time}")
}

fn decided(
    agent: &str,
    (tool, what): (&str, &str),
    allowed: bool,
    by: &str,
    reason: Option<&str>,
) -> String {
    let word = if allowed { "allowed" } else { "refused" };
    let what = if what.is_empty() {
        String::new()
    } else {
        format!(" `{what}`")
    };
    let why = reason.map_or_else(String::new, |why| format!(": {why}"));
    format!("{agent} {tool}{what} {word} by {by}{why}")
}
