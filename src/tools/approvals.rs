//! Consent to one call: what is needed, what was granted before, and how an answer is read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Call, Kind, Output, clip};

/// Characters of a reason.
const REASON: usize = 300;

/// Told to an agent when nobody can be asked.
pub const NOBODY: &str = "nobody can be asked in this run";

/// What an agent is told of a call that may not run.
pub fn refusal(reason: &str) -> Output {
    Output::refused("denied", words(reason))
}

pub(super) fn words(reason: &str) -> String {
    format!("not allowed: {reason}; do not try it in another way, go on without it or report it")
}

/// Why a call needs consent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Never empty where consent is needed.
    pub reasons: Vec<String>,
    /// The commands that it is needed for, of a command line.
    pub commands: Vec<String>,
    /// It is sensitive or dangerous: consent holds for this call alone.
    pub listed: bool,
}

/// How far a yes goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Once,
    /// The same commands, or the same tool, as long as the run lasts.
    Run,
    /// Calls of the same kind on paths in the same folder, as long as the run lasts.
    Directory,
}

/// What somebody answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes {
        scope: Scope,
        reason: Option<String>,
    },
    No {
        reason: Option<String>,
    },
}

/// What was consented to for longer than one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "grant", rename_all = "snake_case")]
pub enum Grant {
    Command { tool: String, command: String },
    Tool { tool: String },
    Directory { kind: Kind, directory: String },
}

impl Need {
    pub(super) fn add(&mut self, reason: &str) {
        if !self.reasons.iter().any(|known| known == reason) {
            self.reasons.push(reason.to_owned());
        }
    }

    /// Why, on one line.
    pub fn reason(&self) -> String {
        clip::line(&self.reasons.join("; "), REASON)
    }

    /// How far a yes to this call may go.
    pub fn scopes(&self, call: &Call) -> Vec<Scope> {
        let mut scopes = vec![Scope::Once];
        if !self.listed {
            scopes.push(Scope::Run);
            scopes.extend(path(call).map(|_| Scope::Directory));
        }
        scopes
    }

    /// What a yes of this scope grants.
    pub fn grants(&self, call: &Call, scope: Scope) -> Vec<Grant> {
        match (scope, path(call)) {
            (Scope::Once, _) => Vec::new(),
            _ if self.listed => Vec::new(),
            (Scope::Directory, Some(path)) => vec![Grant::Directory {
                kind: call.kind,
                directory: folder(path).to_owned(),
            }],
            _ if self.commands.is_empty() => vec![Grant::Tool {
                tool: call.tool.clone(),
            }],
            _ => {
                let tool = &call.tool;
                let grant = |command: &String| Grant::Command {
                    tool: tool.clone(),
                    command: command.clone(),
                };
                self.commands.iter().map(grant).collect()
            }
        }
    }

    /// Do these grants give all the consent that is needed?
    pub fn covered(&self, call: &Call, grants: &[Grant]) -> bool {
        if self.listed {
            return false;
        }
        let wide = grants.iter().any(|grant| match grant {
            Grant::Tool { tool } => *tool == call.tool && self.commands.is_empty(),
            Grant::Directory { kind, directory } => {
                let inside = |path: &str| {
                    let rest = path.strip_prefix(directory.as_str());
                    let rest = rest.and_then(|rest| rest.strip_prefix('/'));
                    rest.is_some() || (directory == "." && !path.starts_with('/'))
                };
                *kind == call.kind && path(call).is_some_and(inside)
            }
            Grant::Command { .. } => false,
        });
        let granted = |command: &String| {
            grants.iter().any(|grant| {
                matches!(grant, Grant::Command { tool, command: own } if *tool == call.tool && own == command)
            })
        };
        wide || (!self.commands.is_empty() && self.commands.iter().all(granted))
    }
}

/// Reads an approver's answer, `{"decision": "allow" | "deny", "scope"?, "reason"?}`. `Err`: it cannot
/// be told what was meant.
pub fn answer(text: &[u8]) -> Result<Answer, String> {
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("its answer is no JSON: {error}"))?;
    let word = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) => Ok(Some(word.as_str())),
        Some(_) => Err(format!("`{key}` of its answer is no text")),
    };
    let reason = word("reason")?.map(|reason| clip::line(reason, REASON));
    let scope = match word("scope")? {
        None | Some("once") => Scope::Once,
        Some("run") => Scope::Run,
        Some("directory") => Scope::Directory,
        Some(other) => {
            return Err(format!(
                "its answer has the unknown scope {}",
                clip::line(other, 40)
            ));
        }
    };
    match word("decision")? {
        Some("allow") => Ok(Answer::Yes { scope, reason }),
        Some("deny") => Ok(Answer::No { reason }),
        Some(other) => Err(format!(
            "its answer has the unknown decision {}",
            clip::line(other, 40)
        )),
        None => Err("its answer has no decision".to_owned()),
    }
}

fn path(call: &Call) -> Option<&str> {
    call.arguments.get("path").and_then(Value::as_str)
}

/// The folder that a path stands in; the workspace's own is `.`.
fn folder(path: &str) -> &str {
    match path.rsplit_once('/') {
        None => ".",
        Some((folder, _)) => folder,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(path: &str) -> Call {
        Call {
            tool: "write_file".to_owned(),
            kind: Kind::Write,
            arguments: json!({"path": path, "content": ""}),
        }
    }

    fn bash(line: &str) -> Call {
        Call {
            tool: "bash".to_owned(),
            kind: Kind::Execute,
            arguments: json!({"command": line}),
        }
    }

    fn need(commands: &[&str]) -> Need {
        Need {
            reasons: vec!["why".to_owned()],
            commands: commands.iter().map(ToString::to_string).collect(),
            listed: false,
        }
    }

    #[test]
    fn a_directory_covers_what_is_in_it_and_no_neighbour() {
        let grants = need(&[]).grants(&write("src/a.rs"), Scope::Directory);
        let covered = |path: &str| need(&[]).covered(&write(path), &grants);
        assert!(covered("src/a.rs") && covered("src/deep/b.rs"));
        for path in ["src2/a.rs", "srca", "a.rs", "/src/a.rs", "src"] {
            assert!(!covered(path), "{path}");
        }
        let top = need(&[]).grants(&write("a.rs"), Scope::Directory);
        assert!(need(&[]).covered(&write("src/a.rs"), &top));
        assert!(!need(&[]).covered(&write("/etc/passwd"), &top));
    }

    #[test]
    fn a_command_is_granted_word_for_word_and_never_the_whole_shell() {
        let grants = need(&["make", "make lint"]).grants(&bash("make; make lint"), Scope::Run);
        assert!(need(&["make lint"]).covered(&bash("make lint"), &grants));
        assert!(!need(&["make", "rm x"]).covered(&bash("make; rm x"), &grants));
        assert!(!need(&[]).covered(&bash("make"), &grants));
        let tool = [Grant::Tool {
            tool: "bash".to_owned(),
        }];
        assert!(!need(&["rm x"]).covered(&bash("rm x"), &tool));
    }

    #[test]
    fn what_is_listed_is_granted_once() {
        let mut need = need(&["git push"]);
        need.listed = true;
        let call = bash("git push");
        assert_eq!(need.scopes(&call), [Scope::Once]);
        assert!(need.grants(&call, Scope::Run).is_empty());
        let grants = [Grant::Command {
            tool: "bash".to_owned(),
            command: "git push".to_owned(),
        }];
        assert!(!need.covered(&call, &grants));
    }

    #[test]
    fn only_a_whole_answer_is_one() {
        let yes = answer(br#"{"decision":"allow"}"#).unwrap();
        assert_eq!(
            yes,
            Answer::Yes {
                scope: Scope::Once,
                reason: None
            }
        );
        assert!(matches!(
            answer(br#"{"decision":"deny","reason":"no"}"#),
            Ok(Answer::No { .. })
        ));
        for odd in [
            "",
            "yes",
            "allow",
            "{}",
            r#"{"decision":true}"#,
            r#"{"decision":"maybe"}"#,
            r#"{"decision":"allow","scope":"ever"}"#,
            r#"{"decision":"allow"} x"#,
            r#"["allow"]"#,
            r#"{"decision":"Allow"}"#,
        ] {
            assert!(answer(odd.as_bytes()).is_err(), "{odd}");
        }
    }
}
