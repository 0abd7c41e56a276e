//! The parts of a plan file beside roles and subtasks, each checked on its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::check;
use super::consent::{ApproverForm, Hook, Misfit, Step};
use super::error::Error;
use super::roles;
use super::yaml::At;
use super::{
    Acceptance, AcceptanceCommand, Compaction, History, OwnTool, PermissionMode, Permissions,
    Provider, Rule, RunLimits, Workspace, raw,
};
use crate::id::is_valid;

/// How long an acceptance command may take when the plan does not say.
const COMMAND_TIME: Duration = Duration::from_secs(600);

/// Verifiers that a plan may ask; each costs as much as the first.
const VOTES: u32 = 9;

/// Files that are withheld from agents unless a plan says otherwise.
const HIDE: [&str; 7] = [
    ".env*",
    "*.pem",
    "*id_rsa*",
    "**/.ssh/**",
    "**/.aws/**",
    "*credentials*",
    "**/secrets/**",
];

pub(super) fn run_limits(top: &At<'_>, run: Option<&raw::Run>) -> Result<RunLimits, Error> {
    let at = top.key("run");
    let mut limits = RunLimits {
        parallel: 4,
        subtasks: 20,
        rounds: 2,
        tokens: 20_000_000,
        cost_usd: None,
        time: Duration::from_secs(3600),
    };
    let Some(run) = run else {
        return Ok(limits);
    };
    check::count(&at.key("parallel"), run.parallel, 1, &mut limits.parallel)?;
    check::count(&at.key("subtasks"), run.subtasks, 1, &mut limits.subtasks)?;
    check::count(&at.key("rounds"), run.rounds, 1, &mut limits.rounds)?;
    check::count(&at.key("tokens"), run.tokens, 0, &mut limits.tokens)?;
    let cost = |usd| check::amount(&at.key("cost_usd"), usd, 0.0);
    limits.cost_usd = run.cost_usd.map(cost).transpose()?;
    check::time(
        &at.key("time"),
        run.time.as_ref(),
        Duration::ZERO,
        &mut limits.time,
    )?;
    Ok(limits)
}

pub(super) fn workspace(top: &At<'_>, workspace: raw::Workspace) -> Result<Workspace, Error> {
    let at = top.key("workspace");
    let path = workspace
        .path
        .map(|path| check::text(&at.key("path"), &path));
    let hide = workspace
        .hide
        .map(|hide| check::globs(&at.key("hide"), &hide));
    let include = workspace
        .include
        .map(|include| check::narrow(&at.key("include"), &include));
    let usual = || HIDE.iter().map(|&glob| glob.to_owned()).collect();
    Ok(Workspace {
        path: path.transpose()?,
        copy: workspace.copy.unwrap_or(false),
        history: workspace.history.unwrap_or(History::Recent),
        hide: hide.transpose()?.unwrap_or_else(usual),
        include: include.transpose()?.unwrap_or_default(),
    })
}

pub(super) fn permissions(
    top: &At<'_>,
    permissions: raw::Permissions,
    tools: &BTreeMap<String, OwnTool>,
) -> Result<Permissions, Error> {
    let list = top.key("permissions").key("rules");
    let mut rules = Vec::new();
    for (i, rule) in permissions
        .rules
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let at = list.item(i);
        if rule.tool != "*" {
            roles::known_tool(&at.key("tool"), &rule.tool, tools)?;
        }
        fits(&at, &rule)?;
        let raw::Rule {
            tool,
            command,
            path,
            action,
        } = rule;
        rules.push(Rule {
            tool,
            command,
            path,
            action,
        });
    }
    let mode = permissions.mode.unwrap_or(PermissionMode::Auto);
    let approver = permissions.approver.as_ref().map(ApproverForm::check);
    let at = top.key("permissions").key("approver");
    let approver = approver.transpose().map_err(|misfit| unfit(&at, &misfit))?;
    Ok(Permissions {
        mode,
        rules,
        approver,
    })
}

pub(super) fn hooks(
    top: &At<'_>,
    form: Option<&raw::HooksForm>,
    tools: &BTreeMap<String, OwnTool>,
) -> Result<Vec<Hook>, Error> {
    let own = tools.keys().map(String::as_str);
    let known: Vec<&str> = roles::TOOLS.into_iter().chain(own).collect();
    let hooks = form.map(|form| form.check(Some(&known)));
    let hooks = hooks
        .transpose()
        .map_err(|misfit| unfit(&top.key("hooks"), &misfit))?;
    Ok(hooks.unwrap_or_default())
}

fn unfit(at: &At<'_>, misfit: &Misfit) -> Error {
    let at = misfit.way.iter().fold(at.clone(), |at, step| match step {
        Step::Key(key) => at.key(key),
        Step::Item(n) => at.item(*n),
    });
    at.value_fault(&misfit.message, &misfit.hint)
}

/// A rule that could never match would be a hole that looks like a wall.
fn fits(at: &At<'_>, rule: &raw::Rule) -> Result<(), Error> {
    let files = ["read_file", "write_file", "edit_file"];
    let tool = rule.tool.as_str();
    if let Some(command) = &rule.command {
        check::text(&at.key("command"), command)?;
        if tool != "bash" && tool != "*" {
            let message = format!("a call of `{tool}` has no command line");
            return Err(at
                .key("command")
                .key_fault(message, "`command` goes with the tool `bash`"));
        }
    }
    if let Some(path) = &rule.path {
        check::glob(&at.key("path"), path)?;
        if tool != "*" && !files.contains(&tool) {
            let message = format!("a call of `{tool}` has no path");
            let hint = format!("`path` goes with the tools {}", files.join(", "));
            return Err(at.key("path").key_fault(message, hint));
        }
    }
    Ok(())
}

pub(super) fn acceptance(top: &At<'_>, acceptance: raw::Acceptance) -> Result<Acceptance, Error> {
    let at = top.key("acceptance");
    let mut commands = Vec::new();
    for (i, command) in acceptance.commands.unwrap_or_default().iter().enumerate() {
        let at = at.key("commands").item(i);
        let mut timeout = COMMAND_TIME;
        let run = match command {
            raw::Command::Line(line) => check::text(&at, line)?,
            raw::Command::Limited(limited) => {
                let time = limited.timeout.as_ref();
                check::time(
                    &at.key("timeout"),
                    time,
                    Duration::from_secs(1),
                    &mut timeout,
                )?;
                check::text(&at.key("run"), &limited.run)?
            }
        };
        commands.push(AcceptanceCommand { run, timeout });
    }
    let at = at.key("criteria");
    let criteria = check::texts(&at, &acceptance.criteria.unwrap_or_default())?;
    let mut seen = BTreeSet::new();
    for (i, criterion) in criteria.iter().enumerate() {
        if !seen.insert(criterion.trim()) {
            return Err(at
                .item(i)
                .value_fault("the criterion stands twice", "keep one of them"));
        }
    }
    Ok(Acceptance { commands, criteria })
}

pub(super) fn votes(top: &At<'_>, verify: raw::Verify) -> Result<u32, Error> {
    let at = top.key("verify").key("votes");
    let mut votes = 1;
    check::count(&at, verify.votes, 1, &mut votes)?;
    if votes > VOTES {
        let message = format!("`verify.votes` is {votes}, but may be {VOTES} at most");
        let hint = "3 is usual: each vote is a verifier with a sandbox of its own";
        return Err(at.value_fault(message, hint));
    }
    Ok(votes)
}

pub(super) fn compaction(top: &At<'_>, compaction: raw::Compaction) -> Result<Compaction, Error> {
    let at = top.key("compaction");
    let share = compaction.at.unwrap_or(0.7);
    if !(0.1..=1.0).contains(&share) {
        let message = "`compaction.at` must be a share from 0.1 to 1";
        return Err(at
            .key("at")
            .value_fault(message, "write a share of the context window such as 0.7"));
    }
    let mut keep = 6;
    check::count(&at.key("keep"), compaction.keep, 1, &mut keep)?;
    let usual = Compaction::default();
    let mut words = usual.words;
    check::count(&at.key("words"), compaction.words, 50, &mut words)?;
    if words > 5_000 {
        let message = format!("`compaction.words` is {words}: that is no summary");
        return Err(at.key("words").value_fault(message, "write 5000 or less"));
    }
    let model = compaction.model.as_ref();
    let model = model.map(|words| check::models(&at.key("model"), words));
    let mut messages = usual.messages.unwrap_or_default();
    let least = keep as u64 + 2;
    let many = compaction.messages.is_some();
    check::count(
        &at.key("messages"),
        compaction.messages,
        least.max(8),
        &mut messages,
    )?;
    Ok(Compaction {
        at: share,
        keep,
        words,
        model: model.transpose()?.unwrap_or_default(),
        messages: many.then_some(messages),
    })
}

pub(super) fn own_tools(
    top: &At<'_>,
    file: &raw::Plan,
) -> Result<BTreeMap<String, OwnTool>, Error> {
    let list = top.key("tools");
    let mut tools = BTreeMap::new();
    for (name, tool) in file.tools.iter().flatten() {
        let at = list.key(name);
        if !is_valid(name) {
            let hint = "use 1 to 40 of a-z, 0-9, _ and -, first a letter or digit";
            return Err(at.key_fault(format!("`{name}` is no name for a tool"), hint));
        }
        if roles::TOOLS.contains(&name.as_str()) || roles::ENDINGS.contains(&name.as_str()) {
            let message = format!("`{name}` is a tool of Wharf's own");
            return Err(at.key_fault(message, "choose another name"));
        }
        let mut per_minute: u32 = 0;
        check::count(&at.key("per_minute"), tool.per_minute, 1, &mut per_minute)?;
        let own = OwnTool {
            per_minute: (per_minute > 0).then_some(per_minute),
            description: check::text(&at.key("description"), &tool.description)?,
            schema: tool_schema(&at.key("schema"), tool.schema.as_ref())?,
            command: check::text(&at.key("command"), &tool.command)?,
        };
        tools.insert(name.clone(), own);
    }
    Ok(tools)
}

fn tool_schema(
    at: &At<'_>,
    schema: Option<&serde_json::Value>,
) -> Result<serde_json::Value, Error> {
    let Some(schema) = schema else {
        return Ok(
            serde_json::json!({"type": "object", "properties": {}, "additionalProperties": false}),
        );
    };
    let typed = schema.get("type").and_then(serde_json::Value::as_str);
    if !schema.is_object() || typed != Some("object") {
        let hint = "write `{type: object, properties: {…}}`";
        return Err(at.value_fault("the schema of a tool describes an object", hint));
    }
    Ok(schema.clone())
}

pub(super) fn providers(
    top: &At<'_>,
    list: BTreeMap<String, raw::Provider>,
) -> Result<BTreeMap<String, Provider>, Error> {
    let list_at = top.key("providers");
    let mut providers = BTreeMap::new();
    for (name, provider) in list {
        let at = list_at.key(&name);
        if !is_valid(&name) || ["openai", "anthropic", "replay"].contains(&name.as_str()) {
            let message = format!("`{name}` is no name for a provider of your own");
            let hint = "use a-z, 0-9, _ and -; openai, anthropic and replay are taken";
            return Err(at.key_fault(message, hint));
        }
        providers.insert(name, one_provider(&at, provider)?);
    }
    Ok(providers)
}

pub(super) fn prices(
    top: &At<'_>,
    list: BTreeMap<String, raw::Price>,
) -> Result<BTreeMap<String, (f64, f64, f64)>, Error> {
    let at = top.key("prices");
    let mut prices = BTreeMap::new();
    for (name, given) in list {
        let at = at.key(&name);
        if !name
            .split_once('/')
            .is_some_and(|(provider, model)| is_valid(provider) && !model.is_empty())
        {
            let message = format!("`{name}` names no model");
            return Err(at.key_fault(message, "write `provider/model`, as `model:` has it"));
        }
        let whole = price(&at, &given)?;
        prices.insert(name, whole);
    }
    Ok(prices)
}

fn price(at: &At<'_>, given: &raw::Price) -> Result<(f64, f64, f64), Error> {
    let part = |key: &str, usd| check::amount(&at.key(key), usd, 0.0);
    let cached = given.cached_input.unwrap_or(given.input);
    Ok((
        part("input", given.input)?,
        part("cached_input", cached)?,
        part("output", given.output)?,
    ))
}

fn one_provider(at: &At<'_>, provider: raw::Provider) -> Result<Provider, Error> {
    let url = &provider.base_url;
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    if rest.is_none_or(|rest| rest.is_empty() || rest.contains(char::is_whitespace)) {
        let message = format!("`{url}` is no address of a server");
        let hint = "write it with http:// or https://, such as `http://127.0.0.1:11434/v1`";
        return Err(at.key("base_url").value_fault(message, hint));
    }
    if let Some(name) = &provider.api_key_env {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            // The text is not repeated: it may be the key itself.
            let message = "`api_key_env` names no environment variable";
            let hint = "name the variable that holds the key; never write the key itself";
            let mut error = at.key("api_key_env").key_fault(message, hint);
            error.snippet.clear();
            return Err(error);
        }
    }
    let context_window = check::window(at, provider.context_window)?;
    let money = at.key("price");
    let price = provider.price.map(|given| price(&money, &given));
    Ok(Provider {
        kind: match provider.kind {
            raw::ProviderKind::Openai => "openai".to_owned(),
            raw::ProviderKind::OpenaiResponses => "openai-responses".to_owned(),
            raw::ProviderKind::Anthropic => "anthropic".to_owned(),
        },
        base_url: provider.base_url,
        api_key_env: provider.api_key_env,
        profile: provider.profile.and_then(word),
        context_window,
        price: price.transpose()?,
    })
}

/// The word of a profile as it is written.
fn word(profile: raw::Profile) -> Option<String> {
    let word = serde_json::to_value(profile).ok()?;
    word.as_str().map(str::to_owned)
}
