//! Permission rules, decided before a call runs. They guide an agent; the container is the boundary.

use std::collections::BTreeSet;
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;

use super::{Action, Call, Error, Kind, Mode, Options, clip};

/// Mode, rules and protected paths of one agent.
#[derive(Clone, Debug)]
pub struct Policy {
    mode: Mode,
    rules: Vec<Compiled>,
    protect: Globs,
    existing: Arc<BTreeSet<String>>,
}

#[derive(Clone, Debug)]
struct Compiled {
    tool: String,
    command: Option<String>,
    path: Option<Globs>,
    action: Action,
}

impl Policy {
    /// Compiles the rules and the protected patterns.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for rule in &options.rules {
            let path = match &rule.path {
                Some(pattern) => Some(Globs::new(
                    "permissions.rules",
                    std::slice::from_ref(pattern),
                )?),
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
        })
    }

    /// May the call run? `Err` is the reason, for the agent.
    pub fn decide(&self, call: &Call) -> Result<(), String> {
        if call.kind == Kind::Meta {
            return Ok(());
        }
        let path = call.arguments.get("path").and_then(Value::as_str);
        if call.kind == Kind::Write
            && let Some(path) = path
            && self.existing.contains(path)
            && self.protect.covers(path)
        {
            return Err(format!(
                "{path} is protected in this run and may not be changed or removed; add a new file instead, \
                 or say in your report why it has to change"
            ));
        }
        let parts = match call.arguments.get("command").and_then(Value::as_str) {
            Some(command) => parts(command),
            None => vec![String::new()],
        };
        for part in &parts {
            if let Some(rule) = self.first(call, part, path, |a| a == Action::Deny) {
                return Err(denied(&format!("a rule on {} forbids it", rule.what(part))));
            }
        }
        for part in &parts {
            match self.first(call, part, path, |a| a != Action::Deny) {
                Some(rule) if rule.action == Action::Ask => return Err(denied(NOBODY)),
                Some(_) => {}
                None => self.by_mode(call.kind)?,
            }
        }
        Ok(())
    }

    fn first(
        &self,
        call: &Call,
        part: &str,
        path: Option<&str>,
        wanted: fn(Action) -> bool,
    ) -> Option<&Compiled> {
        self.rules
            .iter()
            .find(|rule| wanted(rule.action) && rule.matches(&call.tool, part, path))
    }

    fn by_mode(&self, kind: Kind) -> Result<(), String> {
        match (self.mode, kind) {
            (Mode::Auto, _) | (_, Kind::Read | Kind::Meta) => Ok(()),
            (Mode::Plan, _) => Err(denied("this run only plans and reads")),
            (Mode::Ask, _) => Err(denied(NOBODY)),
            (Mode::Deny, _) => Err(denied("no rule allows it and the mode is deny")),
        }
    }
}

const NOBODY: &str = "it needs a person's consent and nobody can be asked in this run";

fn denied(reason: &str) -> String {
    format!("not allowed: {reason}; do not try it in another way, go on without it or report it")
}

impl Compiled {
    fn matches(&self, tool: &str, part: &str, path: Option<&str>) -> bool {
        let named = self.tool == "*" || self.tool == tool;
        let commanded = match &self.command {
            Some(pattern) => wild(pattern, part) || wild(pattern, &plain(part)),
            None => true,
        };
        let placed = match &self.path {
            Some(globs) => path.is_some_and(|path| globs.covers(path)),
            None => true,
        };
        named && commanded && placed
    }

    fn what(&self, part: &str) -> String {
        match &self.command {
            Some(pattern) => format!("`{pattern}` (here `{}`)", clip::line(part, 80)),
            None => self.tool.clone(),
        }
    }
}

/// Path patterns in order: a later `!pattern` takes a path out again; one without `/` matches at any
/// depth, one that begins with `/` at the top alone, and a folder covers what is in it. The workspace
/// room reads the same patterns for the last check of a result; both must agree.
#[derive(Clone, Debug, Default)]
pub struct Globs {
    patterns: Vec<(bool, Vec<GlobMatcher>)>,
}

impl Globs {
    /// Compiles them; `of` names their key in the error.
    pub fn new(of: &'static str, patterns: &[String]) -> Result<Self, Error> {
        let mut compiled = Vec::new();
        for pattern in patterns {
            let (takes_in, body) = match pattern.strip_prefix('!') {
                Some(body) => (false, body),
                None => (true, pattern.as_str()),
            };
            let body = body.trim_end_matches('/');
            let body = match body.strip_prefix('/').or_else(|| body.strip_prefix("./")) {
                Some(anchored) => anchored.to_string(),
                None if body.contains('/') || body == "**" => body.to_string(),
                None => format!("**/{body}"),
            };
            let mut matchers = Vec::new();
            for form in [body.clone(), format!("{body}/**")] {
                let glob = GlobBuilder::new(&form).literal_separator(true).build();
                let glob = glob.map_err(|error| Error::Pattern {
                    of,
                    pattern: pattern.clone(),
                    reason: error.kind().to_string(),
                })?;
                matchers.push(glob.compile_matcher());
            }
            compiled.push((takes_in, matchers));
        }
        Ok(Self { patterns: compiled })
    }

    /// Does the last pattern that matches the path take it in?
    pub fn covers(&self, path: &str) -> bool {
        let last = self
            .patterns
            .iter()
            .rev()
            .find(|(_, forms)| forms.iter().any(|m| m.is_match(path)));
        last.is_some_and(|(takes_in, _)| *takes_in)
    }
}

/// The commands of a line: cut at `&&`, `||`, `;`, `|`, `&`, newline, brackets and substitutions, outside
/// quotes but for substitutions, which a double quote does not hide.
pub fn parts(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    // Whether a double quote is open, for each level of `$(`.
    let mut doubles = vec![false];
    let mut single = false;
    let mut ticked = false;
    let mut previous = ' ';
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let double = doubles.last().copied().unwrap_or(false) && !ticked;
        let before = std::mem::replace(&mut previous, c);
        let cut = match c {
            '\\' if !single => {
                push(&mut parts, c);
                if let Some(next) = chars.next() {
                    push(&mut parts, next);
                }
                continue;
            }
            '$' if !single && chars.next_if_eq(&'(').is_some() => {
                doubles.push(false);
                true
            }
            ')' if !single && !double => {
                if doubles.len() > 1 {
                    doubles.pop();
                }
                true
            }
            '`' if !single => {
                ticked = !ticked;
                true
            }
            c => !single && !double && separates(c, before, chars.peek().copied()),
        };
        if cut {
            parts.push(String::new());
            continue;
        }
        match c {
            '\'' if !double => single = !single,
            '"' if !single => {
                if let Some(last) = doubles.last_mut() {
                    *last = !*last;
                }
            }
            _ => {}
        }
        push(&mut parts, c);
    }
    let empty = |part: &str| part.chars().all(|c| c.is_whitespace() || c == '"');
    let found: Vec<String> = parts
        .iter()
        .filter(|part| !empty(part))
        .map(|part| part.trim().to_string())
        .collect();
    if found.is_empty() {
        vec![String::new()]
    } else {
        found
    }
}

/// Does an unquoted character begin a new command? `2>&1` and `&>file` redirect, `${x}` is a name.
fn separates(c: char, before: char, after: Option<char>) -> bool {
    match c {
        '&' => before != '>' && after != Some('>'),
        '{' => before != '$' && after.is_some_and(char::is_whitespace),
        '}' => before.is_whitespace(),
        ';' | '|' | '\n' | '(' => true,
        _ => false,
    }
}

fn push(parts: &mut [String], c: char) {
    if let Some(last) = parts.last_mut() {
        last.push(c);
    }
}

/// The command less what stands before its name: a bracket, assignments, `sudo`, `env` and the like.
fn plain(part: &str) -> String {
    const WRAPPERS: [&str; 10] = [
        "sudo", "env", "command", "exec", "nohup", "time", "then", "do", "else", "!",
    ];
    let words: Vec<&str> = part
        .trim_start_matches(['(', '"', ' '])
        .split_whitespace()
        .collect();
    let skipped = words
        .iter()
        .take_while(|word| {
            let name = word.split('=').next().unwrap_or_default();
            let assigns = word.contains('=')
                && !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            assigns || WRAPPERS.contains(word)
        })
        .count();
    words[skipped..].join(" ")
}

/// `*` stands for any characters, `?` for one; nothing else is special.
fn wild(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compound_line_is_judged_by_each_of_its_commands() {
        assert_eq!(parts("a && b; c | d"), ["a", "b", "c", "d"]);
        assert_eq!(parts("echo 'x; y' \"p | q\""), ["echo 'x; y' \"p | q\""]);
        assert!(
            parts("echo \"$(git push)\"")
                .iter()
                .any(|p| p.starts_with("git push"))
        );
        assert!(parts("echo \"$(true && git push)\"").contains(&"git push".to_string()));
        assert_eq!(parts("echo $(ls) && make"), ["echo", "ls", "make"]);
        assert!(parts("x=`git push`").contains(&"git push".to_string()));
        assert_eq!(
            parts("make 2>&1 | tee ${LOG} &>x"),
            ["make 2>&1", "tee ${LOG} &>x"]
        );
        assert_eq!(parts("{ git push; }"), ["git push"]);
        assert_eq!(parts("sleep 1 & git push"), ["sleep 1", "git push"]);
        assert_eq!(parts(""), [""]);
    }

    #[test]
    fn a_command_is_known_behind_what_stands_before_it() {
        assert_eq!(plain("A=1 sudo git push origin"), "git push origin");
        assert_eq!(plain("(git push"), "git push");
    }

    #[test]
    fn wildcards_span_anything() {
        assert!(wild("git push*", "git push origin/main"));
        assert!(wild("*", ""));
        assert!(wild("a*b?d", "axxbcd"));
        assert!(!wild("git push*", "git pull"));
        assert!(!wild("git", "git push"));
    }

    #[test]
    fn a_later_exclamation_takes_a_path_out_of_protection() {
        let list = ["tests/**", "conftest.py", "!tests/new/**"].map(String::from);
        let globs = Globs::new("protect", &list).unwrap();
        assert!(globs.covers("tests/a.py") && globs.covers("tests/x/b.py"));
        assert!(globs.covers("a/b/conftest.py"));
        assert!(!globs.covers("tests/new/c.py") && !globs.covers("src/a.py"));
        assert!(
            Globs::new("protect", &["tests".to_string()])
                .unwrap()
                .covers("tests/deep/a.py")
        );
        assert!(Globs::new("protect", &["a[".to_string()]).is_err());
    }
}
