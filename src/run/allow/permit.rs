//! May a call run? Rules, then hooks, rules again on what they made of it, then whoever consents.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{Checkpoint as _, Permit, Stop};
use crate::journal::{DecidedBy, Event};
use crate::run::allow::approver::{self, Sought};
use crate::run::allow::hooking;
use crate::run::board::Notice;
use crate::run::work::desk::Desk;
use crate::tools::approvals::{Answer, Grant, NOBODY, Need, refusal};
use crate::tools::hooks::Moment;
use crate::tools::{Call, Output, Ruling, Set, clip};

/// Characters of a command line or a path in questions and in the journal.
const WHAT: usize = 400;

/// Who decided about a call, and how.
struct Decided {
    allowed: bool,
    by: DecidedBy,
    reason: Option<String>,
    grants: Vec<Grant>,
    took: Duration,
}

impl Decided {
    fn no(by: DecidedBy, reason: impl Into<String>) -> Self {
        Self {
            allowed: false,
            by,
            reason: Some(reason.into()),
            grants: Vec::new(),
            took: Duration::ZERO,
        }
    }

    fn yes(by: DecidedBy, reason: Option<String>) -> Self {
        Self {
            allowed: true,
            by,
            reason,
            grants: Vec::new(),
            took: Duration::ZERO,
        }
    }
}

impl Desk {
    /// The whole way of a call. The inner `Err` is what the agent is told.
    pub async fn permit_call(
        &self,
        tools: &Set,
        call: Call,
        id: &str,
    ) -> Result<Result<Permit, Output>, Stop> {
        if let Ruling::Denied(reason) = tools.ruling(&call) {
            return Ok(Err(Output::refused("denied", reason)));
        }
        if let Some(output) = self.unknown(&call, id) {
            return Ok(Err(output));
        }
        let recorded = self.shared.script.as_ref();
        if let Some((allowed, reason)) = recorded.and_then(|s| s.decided(&self.who, id)) {
            let told = None;
            return Ok(match allowed {
                true => Ok(Permit { call, told }),
                false => Err(refusal(reason.as_deref().unwrap_or("it was refused"))),
            });
        }
        let before = hooking::before(self, tools, call.clone(), id).await?;
        let before = match before {
            Ok(before) => before,
            Err(reason) => {
                let by = match reason.failed {
                    true => DecidedBy::Fault,
                    false => DecidedBy::Hook,
                };
                let decided = Decided::no(by, &reason.text);
                self.decide(&call, id, &decided).await?;
                return Ok(Err(refusal(&reason.text)));
            }
        };
        let permit = Permit {
            call: before.call,
            told: before.told,
        };
        let need = match (tools.ruling(&permit.call), before.asked) {
            (Ruling::Denied(reason), _) => {
                let decided = Decided::no(DecidedBy::Rules, &reason);
                self.decide(&permit.call, id, &decided).await?;
                return Ok(Err(Output::refused("denied", reason)));
            }
            (Ruling::Asked(_), None) if before.allowed => {
                let decided = Decided::yes(DecidedBy::Hook, before.reason);
                self.decide(&permit.call, id, &decided).await?;
                return Ok(Ok(permit));
            }
            (Ruling::Asked(need), None) => need,
            (Ruling::Allowed, None) => return Ok(Ok(permit)),
            (ruling, Some(reason)) => with(ruling, reason),
        };
        let decided = self.consent(&permit.call, &need, id).await?;
        self.decide(&permit.call, id, &decided).await?;
        if decided.allowed {
            return Ok(Ok(permit));
        }
        let why = decided
            .reason
            .unwrap_or_else(|| "it was refused".to_owned());
        Ok(Err(refusal(&format!(
            "it needs consent ({}), and {why}",
            need.reason()
        ))))
    }

    /// The same, and then its turn, where the operator gave its tool a rate.
    pub async fn permit_in_turn(
        &self,
        tools: &Set,
        call: Call,
        id: &str,
    ) -> Result<Result<Permit, Output>, Stop> {
        let permitted = self.permit_call(tools, call, id).await?;
        if let (Ok(permit), None) = (&permitted, &self.shared.script) {
            let wait = self.shared.rates.wait(&permit.call.tool);
            if !wait.is_zero() {
                let tool = &permit.call.tool;
                self.doing(&format!("{tool}: waits {} s for its rate", wait.as_secs()));
                tokio::time::sleep(wait).await;
            }
        }
        Ok(permitted)
    }

    /// Somebody's word on a call that needs it.
    async fn consent(&self, call: &Call, need: &Need, id: &str) -> Result<Decided, Stop> {
        let office = &self.shared.consent;
        if need.covered(call, &office.grants.borrow()) {
            return Ok(Decided::yes(DecidedBy::Grant, None));
        }
        let key = format!("{} {}", call.tool, call.arguments);
        if self.asked.refused.borrow().contains(&key) {
            let reason = "the same call was refused before in this run";
            return Ok(Decided::no(DecidedBy::Grant, reason));
        }
        let Some(mut sought) = approver::seek(self, call, need) else {
            return Ok(Decided::no(DecidedBy::Nobody, NOBODY));
        };
        self.announce(call, need, id, &sought);
        self.doing(&format!("{}: waits for consent", call.tool));
        let since = Instant::now();
        let mut grants = office.grants.subscribe();
        let cancel = self.shared.stop.cancel.clone();
        let granted = grants.wait_for(|grants| need.covered(call, grants));
        let mut decided = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Stop::Cancelled),
            answer = &mut sought.answer => self.heard(call, need, &sought, answer),
            // Somebody said yes to as much while this question was open.
            Ok(_) = granted => Decided::yes(DecidedBy::Grant, None),
            () = tokio::time::sleep(sought.wait) => {
                let reason = format!("nobody answered within {} s", sought.limit.as_secs_f64());
                Decided::no(DecidedBy::Deadline, reason)
            }
        };
        decided.took = since.elapsed();
        if !decided.allowed {
            self.asked.refused.send_modify(|refused| {
                refused.insert(key);
            });
        }
        Ok(decided)
    }

    fn heard(
        &self,
        call: &Call,
        need: &Need,
        sought: &Sought,
        answer: Result<Answer, String>,
    ) -> Decided {
        match answer {
            Ok(Answer::Yes { scope, reason }) => Decided {
                grants: need.grants(call, scope),
                ..Decided::yes(sought.by, reason)
            },
            Ok(Answer::No { reason }) => {
                let who = sought.by.word();
                let why = reason.map_or_else(String::new, |reason| format!(": {reason}"));
                Decided::no(sought.by, format!("{who} refused it{why}"))
            }
            Err(fault) => {
                let who = sought.by.word();
                Decided::no(
                    DecidedBy::Fault,
                    format!("{who} gave no answer that counts: {fault}"),
                )
            }
        }
    }

    fn announce(&self, call: &Call, need: &Need, id: &str, sought: &Sought) {
        self.shared.journal.note(Event::PermissionAsked {
            agent: self.who.clone(),
            tool: call.tool.clone(),
            call_id: id.to_owned(),
            what: what(call),
            reason: need.reason(),
            of: sought.of.to_owned(),
            seconds: sought.limit.as_secs_f64(),
        });
        self.shared.tell(&Notice::Asked {
            agent: self.who.subtask.to_string(),
            role: self.who.role.to_string(),
            tool: call.tool.clone(),
            what: what(call),
            reason: need.reason(),
            of: sought.of.to_owned(),
            seconds: sought.limit.as_secs_f64(),
        });
    }

    /// On disk before the call runs; what was granted holds from here on.
    async fn decide(&self, call: &Call, id: &str, decided: &Decided) -> Result<(), Stop> {
        let grants = decided.grants.iter();
        let grants = grants.map(|grant| serde_json::to_value(grant).unwrap_or_default());
        let event = Event::PermissionDecided {
            agent: self.who.clone(),
            tool: call.tool.clone(),
            call_id: id.to_owned(),
            what: what(call),
            allowed: decided.allowed,
            by: decided.by,
            reason: decided.reason.clone(),
            grants: grants.collect(),
            seconds: decided.took.as_secs_f64(),
        };
        let appended = self.shared.journal.append(event).await;
        appended.map_err(|error| Stop::Environment {
            reason: error.to_string(),
        })?;
        if !decided.grants.is_empty() {
            let grants = &self.shared.consent.grants;
            grants.send_modify(|all| all.extend(decided.grants.iter().cloned()));
        }
        self.shared.tell(&Notice::Decided {
            agent: self.who.subtask.to_string(),
            role: self.who.role.to_string(),
            tool: call.tool.clone(),
            what: what(call),
            allowed: decided.allowed,
            by: decided.by.word().to_owned(),
            again: decided.by == DecidedBy::Grant,
            reason: decided.reason.clone(),
        });
        Ok(())
    }

    /// The rules refused a call before it came here.
    pub fn refused_call(&self, tool: &str, id: &str, reason: &str) {
        self.shared.journal.note(Event::PermissionDecided {
            agent: self.who.clone(),
            tool: clip::line(tool, 80),
            call_id: id.to_owned(),
            what: String::new(),
            allowed: false,
            by: DecidedBy::Rules,
            reason: Some(clip::line(reason, WHAT)),
            grants: Vec::new(),
            seconds: 0.0,
        });
    }

    /// The result as the operator's hooks let the agent see it.
    pub async fn seen_call(&self, call: &Call, id: &str, output: Output) -> Result<Output, Stop> {
        hooking::after(self, call, id, output).await
    }

    /// May an agent that owes nothing any more end? The inner `Err` is told to it.
    pub async fn may_stop(
        &self,
        arguments: &serde_json::Value,
    ) -> Result<Result<(), String>, Stop> {
        let handed_back = &self.asked.handed_back;
        hooking::ending(
            &self.shared,
            &self.who,
            Moment::SubagentStop,
            arguments,
            handed_back,
        )
        .await
    }
}

/// A hook's wish to ask, on top of what the rules say. Consent then holds for this call alone.
fn with(ruling: Ruling, reason: String) -> Need {
    let mut need = match ruling {
        Ruling::Asked(need) => need,
        Ruling::Allowed | Ruling::Denied(_) => Need::default(),
    };
    need.reasons.push(reason);
    need.listed = true;
    need
}

/// What a call is about, on one line.
pub(in crate::run) fn what(call: &Call) -> String {
    let named = ["command", "path", "pattern", "id"];
    let found = named.iter().find_map(|key| call.arguments.get(key));
    let text = match found {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => call.arguments.to_string(),
    };
    clip::line(&text, WHAT)
}
