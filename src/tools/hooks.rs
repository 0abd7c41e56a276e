//! Hooks: programs of the operator's that see a call or an agent before or after, and may stop or change
//! it. The JSON they get and give has the shape that other agent tools use.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::program::{self, Ended, Program};
use super::{alias, clip, wild};

/// Characters of a reason.
const REASON: usize = 2_000;
/// Characters of what a hook adds to a result.
const CONTEXT: usize = 8_000;

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    PreToolUse,
    PostToolUse,
    SubagentStart,
    SubagentStop,
    Stop,
}

/// One hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    pub moment: Moment,
    /// Names with `|` between them, each with `*` where anything may stand: of tools, else of roles.
    /// None: all.
    pub matcher: Option<String>,
    pub command: String,
    pub timeout: Duration,
    /// Where it runs.
    pub dir: PathBuf,
}

/// What a hook said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    pub decision: Option<Decision>,
    pub reason: Option<String>,
    /// Other arguments for the call.
    pub input: Option<Map<String, Value>>,
    /// Another text for the result.
    pub output: Option<String>,
    /// What is added to the result.
    pub context: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No consent is needed beside.
    Allow,
    /// Consent is needed.
    Ask,
    Block,
}

impl Moment {
    pub fn word(self) -> &'static str {
        match self {
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
            Self::SubagentStart => "SubagentStart",
            Self::SubagentStop => "SubagentStop",
            Self::Stop => "Stop",
        }
    }
}

impl Hook {
    /// Is this its moment, with a tool or a role of this name?
    pub fn concerns(&self, moment: Moment, name: &str) -> bool {
        let Some(matcher) = self.matcher.as_ref().filter(|_| moment != Moment::Stop) else {
            return self.moment == moment;
        };
        let is = |pattern: &str| wild::matches(pattern, name) || meant(pattern) == Some(name);
        self.moment == moment && matcher.split('|').map(str::trim).any(is)
    }
}

/// The tool of ours that a name from elsewhere means, whatever its arguments.
fn meant(name: &str) -> Option<&'static str> {
    match alias::elsewhere(&name.to_ascii_lowercase(), &mut Map::new()) {
        Ok(alias::Understood::Tool(tool)) => Some(tool),
        _ => None,
    }
}

/// Runs one hook. `Err`: it cannot be told what it wants, which is never taken for consent.
pub async fn run(
    hook: &Hook,
    input: &Value,
    env: &[(String, String)],
    cancel: &CancellationToken,
) -> Result<Said, String> {
    let program = Program {
        line: &hook.command,
        dir: &hook.dir,
        env,
        limit: hook.timeout,
    };
    let input = serde_json::to_vec(input).map_err(|error| error.to_string())?;
    let ended = program::run(program, &input, cancel).await;
    read(&ended.map_err(|fault| fault.to_string())?)
}

/// What an ended hook said: exit code 2 blocks; with 0 its JSON counts, and no JSON means no objection.
fn read(ended: &Ended) -> Result<Said, String> {
    match ended.code {
        0 => {}
        2 => {
            let reason = clip::tail(String::from_utf8_lossy(&ended.stderr).trim(), REASON);
            return Ok(Said {
                decision: Some(Decision::Block),
                reason: (!reason.is_empty()).then_some(reason),
                ..Said::default()
            });
        }
        code => {
            let said = String::from_utf8_lossy(&ended.stderr);
            return Err(format!(
                "it exited with {code}: {}",
                clip::line(said.trim(), 200)
            ));
        }
    }
    let text = ended.stdout.trim_ascii();
    if !text.starts_with(b"{") {
        return Ok(Said::default());
    }
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("its answer is no JSON: {error}"))?;
    said(&value)
}

fn said(value: &Value) -> Result<Said, String> {
    let nothing = Value::Null;
    let own = value.get("hookSpecificOutput").unwrap_or(&nothing);
    let inner = text(own, "permissionDecision")?;
    let outer = text(value, "decision")?;
    let mut said = Said {
        decision: inner.or(outer).map(decision).transpose()?,
        reason: text(own, "permissionDecisionReason")?
            .or(text(value, "reason")?)
            .map(|reason| clip::tail(reason, REASON)),
        output: text(own, "updatedToolOutput")?.map(str::to_owned),
        context: text(own, "additionalContext")?.map(|context| clip::tail(context, CONTEXT)),
        input: None,
    };
    said.input = match own.get("updatedInput") {
        None | Some(Value::Null) => None,
        Some(Value::Object(input)) => Some(input.clone()),
        Some(_) => return Err("`updatedInput` of its answer is no object".to_owned()),
    };
    // Of two decisions the stricter one holds.
    if outer.map(decision).transpose()? == Some(Decision::Block) {
        said.decision = Some(Decision::Block);
    }
    match value.get("continue") {
        None | Some(Value::Null | Value::Bool(true)) => {}
        Some(Value::Bool(false)) => {
            said.decision = Some(Decision::Block);
            let stop = text(value, "stopReason")?.map(|reason| clip::tail(reason, REASON));
            said.reason = stop.or(said.reason);
        }
        Some(_) => return Err("`continue` of its answer is neither true nor false".to_owned()),
    }
    Ok(said)
}

fn decision(word: &str) -> Result<Decision, String> {
    match word {
        "allow" | "approve" => Ok(Decision::Allow),
        "ask" => Ok(Decision::Ask),
        "deny" | "block" => Ok(Decision::Block),
        other => Err(format!(
            "its answer has the unknown decision {}",
            clip::line(other, 40)
        )),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<Option<&'a str>, String> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` of its answer is no text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, stdout: &str, stderr: &str) -> Result<Said, String> {
        read(&Ended {
            code,
            stdout: stdout.as_bytes().to_vec(),
            stderr: stderr.as_bytes().to_vec(),
        })
    }

    #[test]
    fn an_end_is_no_objection_a_block_or_a_fault() {
        assert_eq!(ended(0, "", "").unwrap(), Said::default());
        assert_eq!(ended(0, "looked at it\n", "").unwrap(), Said::default());
        let blocked = ended(2, "{\"decision\":\"approve\"}", "not on Friday\n").unwrap();
        assert_eq!(
            (blocked.decision, blocked.reason.as_deref()),
            (Some(Decision::Block), Some("not on Friday"))
        );
        for code in [1, 3, 126, 127, 255] {
            assert!(ended(code, "{}", "").is_err(), "{code}");
        }
    }

    #[test]
    fn both_shapes_of_a_decision_are_read_and_the_stricter_holds() {
        let of = |text: &str| ended(0, text, "").map(|said| said.decision);
        let inner = |word: &str| {
            format!(
                r#"{{"hookSpecificOutput":{{"hookEventName":"PreToolUse","permissionDecision":"{word}"}}}}"#
            )
        };
        assert_eq!(of(r#"{"decision":"block"}"#), Ok(Some(Decision::Block)));
        assert_eq!(of(r#"{"decision":"approve"}"#), Ok(Some(Decision::Allow)));
        assert_eq!(of(&inner("allow")), Ok(Some(Decision::Allow)));
        assert_eq!(of(&inner("ask")), Ok(Some(Decision::Ask)));
        assert_eq!(of(&inner("deny")), Ok(Some(Decision::Block)));
        assert_eq!(of(r#"{"continue":false}"#), Ok(Some(Decision::Block)));
        assert_eq!(
            of(r#"{"suppressOutput":true,"systemMessage":"x"}"#),
            Ok(None)
        );
        let both = r#"{"decision":"block","hookSpecificOutput":{"permissionDecision":"allow"}}"#;
        assert_eq!(of(both), Ok(Some(Decision::Block)));
    }

    #[test]
    fn half_an_answer_is_none() {
        for text in [
            "{",
            "{\"decision\":\"approve\"",
            "{\"decision\":true}",
            "{\"decision\":\"yes\"}",
            "{\"continue\":\"no\"}",
            "{\"hookSpecificOutput\":{\"updatedInput\":\"ls\"}}",
            "{\"hookSpecificOutput\":{\"permissionDecision\":1}}",
            "{\"hookSpecificOutput\":{\"updatedToolOutput\":{}}}",
            "{} {}",
        ] {
            assert!(ended(0, text, "").is_err(), "{text}");
        }
    }

    #[test]
    fn a_matcher_names_tools_as_ours_or_as_others_call_them() {
        let hook = |matcher: Option<&str>| Hook {
            moment: Moment::PreToolUse,
            matcher: matcher.map(str::to_owned),
            command: String::new(),
            timeout: Duration::ZERO,
            dir: PathBuf::new(),
        };
        let concerns = |matcher, name| hook(matcher).concerns(Moment::PreToolUse, name);
        assert!(concerns(None, "bash") && concerns(Some("*"), "bash"));
        assert!(concerns(Some("bash|write_file"), "write_file"));
        assert!(
            concerns(Some("Bash"), "bash") && concerns(Some("Edit|MultiEdit|Write"), "edit_file")
        );
        assert!(concerns(Some("*_file"), "read_file"));
        assert!(!concerns(Some("bash"), "bashful") && !concerns(Some("Write"), "bash"));
        assert!(!hook(None).concerns(Moment::PostToolUse, "bash"));
    }
}
