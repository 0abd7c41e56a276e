//! Hooks and the approver of permissions, as a plan and the user's own file write them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::forms::Time;
use super::units;

/// How long a person or an approver may take when nothing is said.
pub const ANSWER: Duration = Duration::from_secs(120);
/// How long a hook may take when nothing is said.
const HOOK: Duration = Duration::from_secs(60);
/// The longest that anybody may take.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Names of tools as other agent tools write them.
const ELSEWHERE: [&str; 8] = [
    "Bash",
    "Read",
    "Write",
    "Edit",
    "MultiEdit",
    "Glob",
    "Grep",
    "LS",
];

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    PreToolUse,
    PostToolUse,
    SubagentStart,
    SubagentStop,
    Stop,
}

/// One hook, checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hook {
    pub moment: Moment,
    /// None: every tool, or every role.
    pub matcher: Option<String>,
    /// A line for the shell of this machine.
    pub command: String,
    pub timeout: Duration,
}

/// Who consents to calls, and how long that may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Approver {
    pub by: By,
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum By {
    /// The person at the terminal, where there is one.
    Terminal,
    /// A line for the shell of this machine: the question as JSON on standard input, the answer as JSON.
    Command(String),
    /// The question is posted as JSON, the answer is JSON.
    Url(String),
}

/// Programs of the operator's, run on this machine at their moments.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HooksForm {
    /// Before a tool call runs: may stop it or change its arguments.
    #[serde(rename = "PreToolUse")]
    pre_tool_use: Option<Vec<HookGroup>>,
    /// After a tool call ran: may change its result or add to it.
    #[serde(rename = "PostToolUse")]
    post_tool_use: Option<Vec<HookGroup>>,
    /// Before an agent starts: may stop it.
    #[serde(rename = "SubagentStart")]
    subagent_start: Option<Vec<HookGroup>>,
    /// When an agent hands in its work: may hand it back.
    #[serde(rename = "SubagentStop")]
    subagent_stop: Option<Vec<HookGroup>>,
    /// When the run's work is done, before anything is delivered.
    #[serde(rename = "Stop")]
    stop: Option<Vec<HookGroup>>,
}

/// Hooks for the same tools or roles.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HookGroup {
    /// Names of tools (of roles for agents) with `|` between them, `*` for anything; default: all.
    #[serde(default)]
    matcher: Option<String>,
    hooks: Vec<HookEntry>,
}

/// One hook.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HookEntry {
    /// `command`, the only kind.
    #[serde(default, rename = "type")]
    kind: HookKind,
    /// A line for `/bin/sh`, run where this file stands.
    command: String,
    /// A number means seconds; default: 60s.
    #[serde(default)]
    timeout: Option<Limit>,
}

/// Seconds as a number, or a duration such as `30s` or `2m`.
#[derive(Clone, Debug, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("type" = ["string", "integer"]))]
struct Limit(
    #[schemars(regex(pattern = "^([0-9]+|([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$"))]
    String,
);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Time::deserialize(deserializer).map(|Time(text)| Self(text))
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum HookKind {
    #[default]
    Command,
}

/// Who is asked for consent in place of the person at the terminal.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApproverForm {
    /// A line for `/bin/sh`, run where this file stands: question and answer are JSON.
    command: Option<String>,
    /// An address that the question is posted to as JSON.
    url: Option<String>,
    /// A number means seconds; default: 2m.
    timeout: Option<Limit>,
}

/// What is wrong, and under which keys from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    pub way: Vec<Step>,
    pub message: String,
    pub hint: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Key(&'static str),
    Item(usize),
}

impl Moment {
    /// As the file writes it.
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

impl Misfit {
    fn at(way: &[Step], message: impl Into<String>, hint: &str) -> Self {
        Self {
            way: way.to_vec(),
            message: message.into(),
            hint: hint.to_owned(),
        }
    }

    /// The keys as one word, such as `PreToolUse[0].matcher`.
    pub fn place(&self) -> String {
        let mut place = String::new();
        for step in &self.way {
            match step {
                Step::Key(key) if place.is_empty() => place.push_str(key),
                Step::Key(key) => place.push_str(&format!(".{key}")),
                Step::Item(n) => place.push_str(&format!("[{n}]")),
            }
        }
        place
    }
}

impl HooksForm {
    /// The hooks in order. A matcher that names a tool which is none of Wharf's and none of `tools` can
    /// match nothing and is refused; without `tools` only its form is looked at.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn check(&self, tools: Option<&[&str]>) -> Result<Vec<Hook>, Misfit> {
        let moments = [
            (Moment::PreToolUse, &self.pre_tool_use),
            (Moment::PostToolUse, &self.post_tool_use),
            (Moment::SubagentStart, &self.subagent_start),
            (Moment::SubagentStop, &self.subagent_stop),
            (Moment::Stop, &self.stop),
        ];
        let mut hooks = Vec::new();
        for (moment, groups) in moments {
            for (n, group) in groups.iter().flatten().enumerate() {
                let way = [Step::Key(moment.word()), Step::Item(n)];
                group.matched(moment, tools, &way)?;
                for (n, entry) in group.hooks.iter().enumerate() {
                    let way = [&way[..], &[Step::Key("hooks"), Step::Item(n)]].concat();
                    hooks.push(entry.hook(moment, group.matcher.clone(), &way)?);
                }
            }
        }
        Ok(hooks)
    }
}

impl HookGroup {
    fn matched(&self, moment: Moment, tools: Option<&[&str]>, way: &[Step]) -> Result<(), Misfit> {
        let at = [way, &[Step::Key("matcher")]].concat();
        let Some(matcher) = &self.matcher else {
            return Ok(());
        };
        if moment == Moment::Stop {
            let message = "`Stop` is about the whole run and has no matcher";
            return Err(Misfit::at(&at, message, "remove the key"));
        }
        let about_tools = matches!(moment, Moment::PreToolUse | Moment::PostToolUse);
        for name in matcher.split('|').map(str::trim) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-*".contains(c);
            if name.is_empty() && matcher.trim().is_empty() {
                continue;
            }
            if name.is_empty() || !name.chars().all(plain) {
                let message = format!("`{matcher}` is no matcher");
                let hint = "write names with `|` between them, such as `bash|write_file`; `*` stands for anything";
                return Err(Misfit::at(&at, message, hint));
            }
            let known = |tools: &&[&str]| tools.contains(&name) || ELSEWHERE.contains(&name);
            if about_tools && !name.contains('*') && tools.is_some_and(|tools| !known(&tools)) {
                let message = format!("no tool is named `{name}`, so the hook would never run");
                let hint = super::error::suggest(name, tools.unwrap_or_default().iter().copied());
                return Err(Misfit::at(&at, message, &hint));
            }
        }
        Ok(())
    }
}

impl HookEntry {
    fn hook(&self, moment: Moment, matcher: Option<String>, way: &[Step]) -> Result<Hook, Misfit> {
        let HookKind::Command = self.kind;
        line(&self.command, &[way, &[Step::Key("command")]].concat())?;
        let matcher = matcher.filter(|matcher| !matcher.trim().is_empty());
        Ok(Hook {
            moment,
            matcher,
            command: self.command.clone(),
            timeout: time(self.timeout.as_ref(), HOOK, way)?,
        })
    }
}

impl ApproverForm {
    /// The approver.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn check(&self) -> Result<Approver, Misfit> {
        let by = match (&self.command, &self.url) {
            (Some(_), Some(_)) => {
                let message = "an approver has `command` or `url`, not both";
                return Err(Misfit::at(
                    &[Step::Key("url")],
                    message,
                    "remove one of them",
                ));
            }
            (Some(command), None) => {
                line(command, &[Step::Key("command")])?;
                By::Command(command.clone())
            }
            (None, Some(url)) => {
                address(url)?;
                By::Url(url.clone())
            }
            (None, None) => By::Terminal,
        };
        Ok(Approver {
            by,
            timeout: time(self.timeout.as_ref(), ANSWER, &[])?,
        })
    }
}

fn address(url: &str) -> Result<(), Misfit> {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    if rest.is_none_or(|rest| rest.is_empty() || rest.contains(char::is_whitespace)) {
        let message = format!("`{url}` is no address of a server");
        let hint = "write it with http:// or https://";
        return Err(Misfit::at(&[Step::Key("url")], message, hint));
    }
    Ok(())
}

fn line(command: &str, way: &[Step]) -> Result<(), Misfit> {
    if command.trim().is_empty() || command.contains('\0') {
        let message = "`command` holds no command line";
        return Err(Misfit::at(way, message, "write a line for the shell"));
    }
    Ok(())
}

fn time(time: Option<&Limit>, usual: Duration, way: &[Step]) -> Result<Duration, Misfit> {
    let Some(Limit(text)) = time else {
        return Ok(usual);
    };
    let way = [way, &[Step::Key("timeout")]].concat();
    let plain = text.chars().all(|c| c.is_ascii_digit());
    let read = match plain {
        true => units::duration(&format!("{text}s")),
        false => units::duration(text),
    };
    let read = read.map_err(|hint| Misfit::at(&way, format!("`{text}` is no duration"), &hint))?;
    if read.is_zero() || read > LONGEST {
        let message = format!("`{text}` is no time to wait for an answer");
        return Err(Misfit::at(
            &way,
            message,
            "write a time up to 1d, such as 30s",
        ));
    }
    Ok(read)
}

/// Hooks as the key's value is written.
pub(super) fn hooks(hooks: &[Hook]) -> Option<Value> {
    let mut keys = Map::new();
    for hook in hooks {
        let time = units::show_duration(hook.timeout);
        let entry = json!({"type": "command", "command": hook.command, "timeout": time});
        let mut group = Map::new();
        if let Some(matcher) = &hook.matcher {
            group.insert("matcher".to_owned(), json!(matcher));
        }
        group.insert("hooks".to_owned(), json!([entry]));
        let groups = keys.entry(hook.moment.word()).or_insert_with(|| json!([]));
        groups
            .as_array_mut()
            .into_iter()
            .for_each(|list| list.push(json!(group)));
    }
    (!keys.is_empty()).then_some(Value::Object(keys))
}

/// An approver as the key's value is written.
pub(super) fn approver(approver: &Approver) -> Value {
    let time = units::show_duration(approver.timeout);
    match &approver.by {
        By::Terminal => json!({"timeout": time}),
        By::Command(command) => json!({"command": command, "timeout": time}),
        By::Url(url) => json!({"url": url, "timeout": time}),
    }
}
