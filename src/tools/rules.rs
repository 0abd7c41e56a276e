//! What mode, rules, protected paths and the shipped list say of a call. They guide an agent; the
//! container is the boundary.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

pub use super::globs::Globs;

use super::approvals::{Need, words as denied};
use super::commands::{self, Line, Part};
use super::listed::Listed;
use super::{Action, Call, Error, Kind, Mode, Options, clip, wild};

/// Mode, rules and protected paths of one agent.
#[derive(Clone, Debug)]
pub struct Policy {
    mode: Mode,
    rules: Vec<Compiled>,
    protect: Globs,
    existing: Arc<BTreeSet<String>>,
    listed: Arc<Listed>,
}

/// What the policy says of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    Allowed,
    /// Somebody has to consent.
    Asked(Need),
    /// Why not, for the agent.
    Denied(String),
}

#[derive(Clone, Debug)]
struct Compiled {
    tool: String,
    command: Option<String>,
    path: Option<(String, Globs)>,
    action: Action,
}

/// A call as it is judged.
struct Seen<'a> {
    call: &'a Call,
    path: Option<&'a str>,
    line: Line,
}

impl Policy {
    /// Compiles the rules, the protected patterns and the shipped list.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for rule in &options.rules {
            let path = match &rule.path {
                Some(pattern) => {
                    let globs = Globs::new("permissions.rules", std::slice::from_ref(pattern))?;
                    Some((pattern.clone(), globs))
                }
                None => None,
            };
            rules.push(Compiled {
                tool: rule.tool.clone(),
                command: rule.command.clone(),
                path,
                action: rule.action,
            });
        }
        Ok(Self {
            mode: options.mode,
            rules,
            protect: Globs::new("protect", &options.protect)?,
            existing: options.protected_paths.clone(),
            listed: Listed::shipped()?,
        })
    }

    /// Judges a call; deny wins wherever it stands.
    pub fn judge(&self, call: &Call) -> Ruling {
        if call.kind == Kind::Meta {
            return Ruling::Allowed;
        }
        let text = |key| call.arguments.get(key).and_then(Value::as_str);
        let nothing = || Line {
            parts: vec![Part {
                forms: vec![String::new()],
                ..Part::default()
            }],
            obscure: false,
        };
        let seen = Seen {
            call,
            path: text("path"),
            line: text("command").map_or_else(nothing, commands::read),
        };
        if let Some(reason) = self.forbidden(&seen) {
            return Ruling::Denied(reason);
        }
        match self.needed(&seen) {
            Ok(None) => Ruling::Allowed,
            Ok(Some(need)) => Ruling::Asked(need),
            Err(reason) => Ruling::Denied(denied(&reason)),
        }
    }

    /// Why nobody's consent could help.
    fn forbidden(&self, seen: &Seen<'_>) -> Option<String> {
        if let Some(path) = seen.path.filter(|_| seen.call.kind == Kind::Write)
            && self.existing.contains(path)
            && self.protect.covers(path)
        {
            return Some(format!(
                "{path} is protected in this run and may not be changed or removed; add a new file instead, \
                 or say in your report why it has to change"
            ));
        }
        for part in &seen.line.parts {
            if let Some(rule) = self.first(seen, part, |action| action == Action::Deny) {
                let what = rule.what(part);
                return Some(denied(&format!("a rule on {what} forbids it")));
            }
        }
        if self.mode == Mode::Plan && seen.call.kind != Kind::Read {
            return Some(denied("this run only plans and reads"));
        }
        None
    }

    /// What consent a call needs that nothing forbids; `Err` is why it cannot have it.
    fn needed(&self, seen: &Seen<'_>) -> Result<Option<Need>, String> {
        let mut need = Need::default();
        self.secret(seen, &mut need)?;
        let ruled = |rule: &Compiled| {
            let about = rule.tool == "*" || rule.tool == seen.call.tool;
            about && rule.action == Action::Deny && rule.command.is_some()
        };
        if seen.line.obscure && self.rules.iter().any(ruled) {
            need.add(
                "what it runs cannot be told from its text, and a rule forbids some commands (write each \
                 command by its name, not from a variable or a pipe)",
            );
            need.listed = true;
        }
        for part in seen.line.parts.iter().filter(|part| !part.leads) {
            let rule = self.first(seen, part, |action| action != Action::Deny);
            let asked = match (rule, self.mode, seen.call.kind) {
                (Some(rule), _, _) if rule.action == Action::Ask => {
                    Some(format!("a rule on {} asks for it", rule.what(part)))
                }
                (Some(_), _, _) | (None, Mode::Auto, _) => None,
                (None, Mode::Ask | Mode::Plan, Kind::Read) => None,
                (None, Mode::Deny, _) => {
                    return Err("no rule allows it and the mode is deny".to_owned());
                }
                (None, _, _) => Some("the mode is ask".to_owned()),
            };
            if let Some(asked) = asked {
                need.add(&asked);
                need.commands
                    .extend(part.forms.first().filter(|form| !form.is_empty()).cloned());
            }
        }
        if self.mode == Mode::Ask {
            self.listed(seen, &mut need);
        }
        Ok((!need.reasons.is_empty()).then_some(need))
    }

    /// Paths where secrets stand, unless a rule allows that path.
    fn secret(&self, seen: &Seen<'_>, need: &mut Need) -> Result<(), String> {
        let Some((path, why)) = seen
            .path
            .and_then(|path| Some((path, self.listed.secret(path)?)))
        else {
            return Ok(());
        };
        let part = seen.line.parts.first();
        let rule = part.and_then(|part| self.first(seen, part, |action| action != Action::Deny));
        if rule.is_some_and(|rule| rule.action == Action::Allow && rule.path.is_some()) {
            return Ok(());
        }
        let reason = format!("{path} is a sensitive path: {why}");
        if self.mode != Mode::Ask {
            return Err(format!(
                "{reason}, and no rule of the operator's allows that path"
            ));
        }
        need.add(&reason);
        need.listed = true;
        Ok(())
    }

    /// What a person is asked about though a wider rule allows it.
    fn listed(&self, seen: &Seen<'_>, need: &mut Need) {
        for part in &seen.line.parts {
            let rule = self.first(seen, part, |action| action != Action::Deny);
            if rule.is_some_and(|rule| rule.names(part, seen.path)) {
                continue;
            }
            let words = part.words.iter().map(|word| super::path::normal(word));
            let path = seen
                .path
                .map(str::to_owned)
                .filter(|_| seen.call.kind != Kind::Read);
            let paths = words.chain(path).find_map(|path| {
                let why = self
                    .listed
                    .path(&path)
                    .or_else(|| self.listed.secret(&path))?;
                Some(format!("{path} is a sensitive path: {why}"))
            });
            let command = part.forms.iter().find_map(|form| {
                let why = self.listed.command(form)?;
                Some(format!(
                    "`{}` is a dangerous command: {why}",
                    clip::line(form, 80)
                ))
            });
            for reason in paths.into_iter().chain(command) {
                need.add(&reason);
                need.listed = true;
            }
        }
    }

    fn first(&self, seen: &Seen<'_>, part: &Part, wanted: fn(Action) -> bool) -> Option<&Compiled> {
        let mut rules = self.rules.iter();
        rules.find(|rule| wanted(rule.action) && rule.matches(&seen.call.tool, part, seen.path))
    }
}

impl Compiled {
    fn matches(&self, tool: &str, part: &Part, path: Option<&str>) -> bool {
        let named = self.tool == "*" || self.tool == tool;
        let commanded = match &self.command {
            Some(pattern) => part.forms.iter().any(|form| wild::matches(pattern, form)),
            None => true,
        };
        let placed = match &self.path {
            Some((_, globs)) => path.is_some_and(|path| globs.covers(path)),
            None => true,
        };
        named && commanded && placed
    }

    /// The rule allows this very command or path, word for word.
    fn names(&self, part: &Part, path: Option<&str>) -> bool {
        let command = self
            .command
            .as_ref()
            .is_some_and(|own| part.forms.contains(own));
        let path = self
            .path
            .as_ref()
            .is_some_and(|(own, _)| Some(own.as_str()) == path);
        self.action == Action::Allow && (command || path)
    }

    fn what(&self, part: &Part) -> String {
        let form = part.forms.first().map_or("", String::as_str);
        match (&self.command, &self.path) {
            (Some(pattern), _) => format!("`{pattern}` (here `{}`)", clip::line(form, 80)),
            (None, Some((pattern, _))) => format!("`{pattern}`"),
            (None, None) => self.tool.clone(),
        }
    }
}
