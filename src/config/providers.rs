//! Model servers by name, each with its key where the environment has one.

use std::collections::BTreeMap;
use std::fmt;

use super::file::{FileKind, FilePrice, FileProvider};
use super::{Env, Error};
use crate::plan;

/// One model server.
#[derive(Clone, Debug)]
pub struct Provider {
    pub name: String,
    pub wire: Wire,
    /// As the wire wants it: with `/v1` for openai, without for anthropic.
    pub base_url: String,
    pub key: Option<Secret>,
    /// The variable that holds, or would hold, the key.
    pub key_env: Option<String>,
    /// How the server differs from others of its kind; None: what its host tells.
    pub profile: Option<String>,
    pub context_window: Option<u64>,
    pub price: Option<Price>,
}

/// Chat completions, messages or responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    OpenAi,
    Anthropic,
    Responses,
}

/// US dollars a million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    pub input: f64,
    pub cached_input: f64,
    pub output: f64,
}

/// A text that neither `Debug` nor `Display` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one header it belongs in.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[masked]")
    }
}

/// The two vendors and the user's own servers.
pub(super) fn known(
    own: &BTreeMap<String, FileProvider>,
    env: &Env,
) -> Result<BTreeMap<String, Provider>, Error> {
    let mut providers = BTreeMap::new();
    let vendors = [
        (
            "openai",
            Wire::OpenAi,
            "https://api.openai.com/v1",
            ["OPENAI_BASE_URL", "OPENAI_API_KEY"],
        ),
        (
            "anthropic",
            Wire::Anthropic,
            "https://api.anthropic.com",
            ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"],
        ),
    ];
    for (name, wire, url, [url_env, key_env]) in vendors {
        let given = env.text(url_env);
        if let Some(given) = &given {
            check_url(url_env, given)?;
        }
        let provider = Provider {
            name: name.to_owned(),
            wire,
            base_url: trimmed(given.as_deref().unwrap_or(url)),
            key: key(env, Some(key_env)),
            key_env: Some(key_env.to_owned()),
            profile: None,
            context_window: None,
            price: None,
        };
        providers.insert(name.to_owned(), provider);
    }
    for (name, own) in own {
        check_url(&format!("`providers.{name}.base_url`"), &own.base_url)?;
        let named = || format!("`providers.{name}.price`");
        let price = own.price.map(|given| price(named(), given)).transpose()?;
        let provider = Provider {
            name: name.clone(),
            wire: match own.kind {
                FileKind::Openai => Wire::OpenAi,
                FileKind::Anthropic => Wire::Anthropic,
                FileKind::OpenaiResponses => Wire::Responses,
            },
            base_url: trimmed(&own.base_url),
            key: key(env, own.api_key_env.as_deref()),
            key_env: own.api_key_env.clone(),
            profile: own.profile.clone(),
            context_window: own.context_window,
            price,
        };
        providers.insert(name.clone(), provider);
    }
    Ok(providers)
}

/// A plan's provider; its name beats the same name of the user's file.
pub(super) fn of_plan(name: &str, provider: &plan::Provider, env: &Env) -> Result<Provider, Error> {
    check_url(
        &format!("`providers.{name}.base_url` of the plan"),
        &provider.base_url,
    )?;
    let wire = match provider.kind.as_str() {
        "anthropic" => Wire::Anthropic,
        "openai" => Wire::OpenAi,
        "openai-responses" => Wire::Responses,
        other => {
            return Err(Error::Value {
                name: format!("`providers.{name}.kind` of the plan"),
                value: other.to_owned(),
                why: "the kinds are openai, openai-responses and anthropic".to_owned(),
            });
        }
    };
    Ok(Provider {
        name: name.to_owned(),
        wire,
        base_url: trimmed(&provider.base_url),
        key: key(env, provider.api_key_env.as_deref()),
        key_env: provider.api_key_env.clone(),
        profile: provider.profile.clone(),
        context_window: provider.context_window,
        price: provider.price.map(|(input, cached_input, output)| Price {
            input,
            cached_input,
            output,
        }),
    })
}

fn key(env: &Env, name: Option<&str>) -> Option<Secret> {
    let value = env.text(name?)?;
    let value = value.trim();
    (!value.is_empty()).then(|| Secret::new(value))
}

fn trimmed(url: &str) -> String {
    url.trim().trim_end_matches('/').to_owned()
}

fn check_url(name: &str, url: &str) -> Result<(), Error> {
    let lower = url.trim().to_ascii_lowercase();
    let host = lower
        .strip_prefix("http://")
        .or_else(|| lower.strip_prefix("https://"));
    if host.is_some_and(|host| !host.is_empty() && !host.starts_with(['/', ':', '?'])) {
        return Ok(());
    }
    Err(Error::Value {
        name: name.to_owned(),
        value: url.to_owned(),
        why: "write an address such as http://127.0.0.1:11434/v1".to_owned(),
    })
}

/// The user's prices of models.
pub(super) fn prices(own: &BTreeMap<String, FilePrice>) -> Result<BTreeMap<String, Price>, Error> {
    let whole = |(name, given): (&String, &FilePrice)| {
        Ok((name.clone(), price(format!("`prices.{name}`"), *given)?))
    };
    own.iter().map(whole).collect()
}

fn price(key: String, given: FilePrice) -> Result<Price, Error> {
    let price = Price {
        input: given.input,
        cached_input: given.cached_input.unwrap_or(given.input),
        output: given.output,
    };
    let parts = [price.input, price.cached_input, price.output];
    match parts.iter().find(|part| !part.is_finite() || **part < 0.0) {
        None => Ok(price),
        Some(part) => Err(Error::Value {
            name: key,
            value: part.to_string(),
            why: "a price is a number of US dollars, zero or more".to_owned(),
        }),
    }
}
