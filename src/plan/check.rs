//! The keys of a plan file become checked values.

use std::time::Duration;

use globset::Glob;

use super::error::Error;
use super::yaml::At;
use super::{AgentLimits, Effort, Sandbox, bounds, image, network, raw, units};

/// The most containers kept ready for one kind of sandbox.
const MOST_WARM: usize = 16;

/// Limits and model settings of one agent, while layers are laid over each other.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub limits: AgentLimits,
    pub temperature: Option<f64>,
    pub effort: Option<Effort>,
    pub context_window: Option<u64>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            limits: AgentLimits {
                turns: 40,
                tokens: 4_000_000,
                time: Duration::from_secs(20 * 60),
                tool_calls: 200,
                tool_timeout: Duration::from_secs(30),
                output: 8000,
                reply_tokens: 8000,
            },
            temperature: None,
            effort: None,
            context_window: None,
        }
    }
}

/// A number of at least `least` that fits its type; absent keys leave the target as it is.
pub(super) fn count<T: TryFrom<u64>>(
    at: &At<'_>,
    number: Option<raw::Count>,
    least: u64,
    target: &mut T,
) -> Result<(), Error> {
    let Some(raw::Count(number)) = number else {
        return Ok(());
    };
    if number < least {
        let message = format!("`{at}` is {number}, but must be at least {least}");
        return Err(at.value_fault(message, format!("write {least} or more")));
    }
    *target = T::try_from(number)
        .map_err(|_| at.value_fault(format!("`{at}` is too large"), "write a smaller number"))?;
    Ok(())
}

/// A finite number of at least `least`.
pub(super) fn amount(at: &At<'_>, number: f64, least: f64) -> Result<f64, Error> {
    if number.is_finite() && number >= least {
        return Ok(number);
    }
    let message = format!("`{at}` must be a number of at least {least}");
    Err(at.value_fault(message, format!("write {least} or more")))
}

/// A duration of at least `least`.
pub(super) fn time(
    at: &At<'_>,
    time: Option<&raw::Time>,
    least: Duration,
    target: &mut Duration,
) -> Result<(), Error> {
    let Some(raw::Time(text)) = time else {
        return Ok(());
    };
    let read = units::duration(text)
        .map_err(|hint| at.value_fault(format!("`{text}` is no duration for `{at}`"), hint))?;
    if read < least {
        let least = units::show_duration(least);
        let message = format!("`{at}` must be at least {least}");
        return Err(at.value_fault(message, format!("write `{least}` or more")));
    }
    *target = read;
    Ok(())
}

/// A size; an absent key leaves the target as it is.
pub(super) fn size(at: &At<'_>, size: Option<&raw::Size>, target: &mut u64) -> Result<(), Error> {
    if let Some(raw::Size(text)) = size {
        *target = units::size(text)
            .map_err(|hint| at.value_fault(format!("`{text}` is no size for `{at}`"), hint))?;
    }
    Ok(())
}

/// Text that says something.
pub(super) fn text(at: &At<'_>, text: &str) -> Result<String, Error> {
    if text.trim().is_empty() {
        return Err(at.value_fault(
            format!("`{at}` is empty"),
            "write some text, or remove the key",
        ));
    }
    if text.contains('\0') {
        return Err(at.value_fault(format!("`{at}` holds a NUL character"), "remove it"));
    }
    Ok(text.to_owned())
}

/// A list of texts, none empty.
pub(super) fn texts(at: &At<'_>, list: &[String]) -> Result<Vec<String>, Error> {
    let each = list.iter().enumerate();
    each.map(|(i, item)| text(&at.item(i), item)).collect()
}

/// A list of path patterns; a leading `!` is allowed.
pub(super) fn globs(at: &At<'_>, list: &[String]) -> Result<Vec<String>, Error> {
    for (i, pattern) in list.iter().enumerate() {
        glob(&at.item(i), pattern)?;
    }
    Ok(list.to_vec())
}

/// Path patterns of which none takes in everything there is, secrets with it.
pub(super) fn narrow(at: &At<'_>, list: &[String]) -> Result<Vec<String>, Error> {
    for (i, pattern) in list.iter().enumerate() {
        let bare = pattern.trim_start_matches("./").trim_end_matches('/');
        if !bare.is_empty() && bare.bytes().all(|byte| matches!(byte, b'*' | b'/')) {
            return Err(at.item(i).value_fault(
                format!("`{pattern}` would show agents every ignored and hidden file"),
                "name what they need, such as `generated/**` or `.env.test`",
            ));
        }
    }
    globs(at, list)
}

/// One path pattern, relative to the workspace.
pub(super) fn glob(at: &At<'_>, pattern: &str) -> Result<(), Error> {
    text(at, pattern)?;
    let bare = pattern.strip_prefix('!').unwrap_or(pattern);
    if bare.starts_with('/') {
        let message = format!("`{pattern}` is an absolute path");
        return Err(at.value_fault(message, "write it relative to the workspace"));
    }
    if let Some((message, hint)) = unmatchable(pattern, bare) {
        return Err(at.value_fault(message, hint));
    }
    Glob::new(bare).map(|_| ()).map_err(|error| {
        let message = format!("`{pattern}` is no path pattern: {}", error.kind());
        at.value_fault(message, "write a glob such as `tests/**` or `*.pem`")
    })
}

/// Why no path of a workspace can ever match the pattern, with a hint; paths there have no empty part,
/// no `.` and no `..`.
fn unmatchable(pattern: &str, bare: &str) -> Option<(String, &'static str)> {
    let inside = bare.strip_prefix("./").unwrap_or(bare);
    let inside = inside.strip_suffix('/').unwrap_or(inside);
    let mut parts = inside.split('/');
    let message = match parts.clone().find(|part| matches!(*part, "." | "..")) {
        Some(part) => format!("`{pattern}` can match no file: `{part}` is part of no path here"),
        None if parts.any(str::is_empty) => {
            format!("`{pattern}` can match no file: a part of the path is empty")
        }
        None => return None,
    };
    Some((
        message,
        "name files inside the workspace, one `/` between two names, such as `tests/**`",
    ))
}

/// Models as `provider/model` or `replay:FILE`.
pub(super) fn models(at: &At<'_>, words: &raw::Words) -> Result<Vec<String>, Error> {
    let list = words.list();
    if list.is_empty() {
        return Err(at.value_fault(
            format!("`{at}` is an empty list"),
            "name a model, or remove the key",
        ));
    }
    for (i, model) in list.iter().enumerate() {
        let at = match words {
            raw::Words::One(_) => at.clone(),
            raw::Words::Many(_) => at.item(i),
        };
        let whole = |pair: (&str, &str)| !pair.0.trim().is_empty() && !pair.1.trim().is_empty();
        let replay = model.strip_prefix("replay:");
        let known = match replay {
            Some(file) => !file.trim().is_empty(),
            None => {
                model.split_once('/').is_some_and(whole) && !model.contains(char::is_whitespace)
            }
        };
        if !known {
            let hint =
                "write `provider/model`, such as `anthropic/claude-sonnet-5`, or `replay:FILE`";
            return Err(at.value_fault(format!("`{model}` names no model"), hint));
        }
    }
    Ok(list.to_vec())
}

/// Lays the keys of a `sandbox` map over what stands so far, and checks what comes out.
pub(super) fn lay_sandbox(
    at: &At<'_>,
    layer: Option<&raw::Sandbox>,
    below: &Sandbox,
) -> Result<Sandbox, Error> {
    let mut sandbox = below.clone();
    let Some(layer) = layer else {
        return Ok(sandbox);
    };
    if let Some(image) = &layer.image {
        sandbox.image = image::read(&at.key("image"), image)?;
    }
    sandbox.pull = layer.pull.unwrap_or(sandbox.pull);
    if let Some(setup) = &layer.setup {
        sandbox.setup = texts(&at.key("setup"), setup)?;
    }
    for (name, value) in layer.env.iter().flatten() {
        let at = at.key("env").key(name);
        env_name(&at, name)?;
        if value.contains('\0') {
            return Err(at.value_fault("the value holds a NUL character", "remove it"));
        }
        sandbox.env.insert(name.clone(), value.clone());
    }
    if let Some(network) = &layer.network {
        sandbox.network = network::read(&at.key("network"), network)?;
    }
    if let Some(runtime) = &layer.runtime {
        let runtime = text(&at.key("runtime"), runtime)?;
        sandbox.runtime = (runtime != "default").then_some(runtime);
    }
    count(&at.key("warm"), layer.warm, 0, &mut sandbox.warm)?;
    if sandbox.warm > MOST_WARM {
        let message = format!(
            "`{}` is {}, but must be at most {MOST_WARM}",
            at.key("warm"),
            sandbox.warm
        );
        return Err(at
            .key("warm")
            .value_fault(message, "each takes its memory and its place at the engine"));
    }
    bounds::lay(at, layer, &mut sandbox)?;
    Ok(sandbox)
}

/// Checks the name of an environment variable.
pub(super) fn env_name(at: &At<'_>, name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let digit = |c: char| c.is_ascii_digit();
    if name.is_empty() || !name.chars().all(plain) || name.starts_with(digit) {
        let message = "this is no name of an environment variable";
        return Err(at.key_fault(message, "use letters, digits and _, first a letter"));
    }
    Ok(())
}

/// Lays the keys of an `agent` map over what stands so far. A limit of zero allows nothing.
pub(super) fn lay_agent(
    at: &At<'_>,
    layer: Option<&raw::Agent>,
    below: &Agent,
) -> Result<Agent, Error> {
    let mut agent = below.clone();
    let Some(layer) = layer else {
        return Ok(agent);
    };
    let limits = &mut agent.limits;
    count(&at.key("turns"), layer.turns, 0, &mut limits.turns)?;
    count(&at.key("tokens"), layer.tokens, 0, &mut limits.tokens)?;
    count(
        &at.key("tool_calls"),
        layer.tool_calls,
        0,
        &mut limits.tool_calls,
    )?;
    count(&at.key("output"), layer.output, 1, &mut limits.output)?;
    count(
        &at.key("reply_tokens"),
        layer.reply_tokens,
        1,
        &mut limits.reply_tokens,
    )?;
    time(
        &at.key("time"),
        layer.time.as_ref(),
        Duration::ZERO,
        &mut limits.time,
    )?;
    let second = Duration::from_secs(1);
    let timeout = &mut limits.tool_timeout;
    time(
        &at.key("tool_timeout"),
        layer.tool_timeout.as_ref(),
        second,
        timeout,
    )?;
    agent.temperature = temperature(at, layer.temperature)?.or(agent.temperature);
    agent.effort = layer.effort.or(agent.effort);
    agent.context_window = window(at, layer.context_window)?.or(agent.context_window);
    Ok(agent)
}

fn temperature(at: &At<'_>, number: Option<f64>) -> Result<Option<f64>, Error> {
    let at = at.key("temperature");
    match number {
        Some(number) if !(0.0..=2.0).contains(&number) => {
            let message = format!("`{at}` must be a number from 0 to 2");
            Err(at.value_fault(message, "write a number such as 0.2"))
        }
        number => Ok(number),
    }
}

/// The context window of a model, where a map gives one. Tokens.
pub(super) fn window(at: &At<'_>, tokens: Option<raw::Count>) -> Result<Option<u64>, Error> {
    let mut window = 0;
    count(&at.key("context_window"), tokens, 1024, &mut window)?;
    Ok(tokens.map(|_| window))
}
