//! From a model's name as written to the model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::client::{Client, Parts};
use super::profile::{self, Learned, Profile};
use super::{
    About, Error, Limits, Model, Price, Recording, Replay, Secret, Wire, http, price, secret,
};

/// Where OpenAI's own models are.
pub const OPENAI: &str = "https://api.openai.com/v1";
/// Where Anthropic's own models are.
pub const ANTHROPIC: &str = "https://api.anthropic.com";
/// What a model of unknown name is taken to hold.
const CONTEXT_WINDOW: u64 = 128_000;

/// A server of models.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    pub name: String,
    pub kind: Wire,
    /// OpenAI's with `/v1`, Anthropic's without.
    pub base_url: String,
    pub api_key: Option<Secret>,
    /// One of `profile::names`; None: what the host tells.
    pub profile: Option<String>,
    /// None: by the model's name, else 128,000.
    pub context_window: Option<u64>,
    /// None: by the model's name for `openai` and `anthropic`, else unknown.
    pub price: Option<Price>,
    /// What was found out about the server; clones share it.
    pub learned: Learned,
}

impl Provider {
    /// The provider `openai`; `base_url` None is OpenAI's own.
    pub fn openai(base_url: Option<String>, api_key: Option<Secret>) -> Self {
        Self::vendor("openai", Wire::OpenAi, base_url, OPENAI, api_key)
    }

    /// The provider `anthropic`; `base_url` None is Anthropic's own.
    pub fn anthropic(base_url: Option<String>, api_key: Option<Secret>) -> Self {
        Self::vendor("anthropic", Wire::Anthropic, base_url, ANTHROPIC, api_key)
    }

    fn vendor(
        name: &str,
        kind: Wire,
        base_url: Option<String>,
        own: &str,
        api_key: Option<Secret>,
    ) -> Self {
        let given = base_url.filter(|url| !url.trim().is_empty());
        Self {
            name: name.to_owned(),
            kind,
            base_url: given.unwrap_or_else(|| own.to_owned()),
            api_key,
            profile: None,
            context_window: None,
            price: None,
            learned: Learned::default(),
        }
    }

    /// Its address as messages show it: no user, no query.
    pub fn shown(&self) -> String {
        let url = reqwest::Url::parse(self.base_url.trim());
        url.map_or_else(|_| "no address".to_owned(), |url| http::shown(&url))
    }

    /// How its server differs from others, as far as that is known.
    pub fn profile(&self) -> Result<&'static Profile, Error> {
        match &self.profile {
            Some(name) => profile::named(name, self.kind),
            None => {
                let url = reqwest::Url::parse(self.base_url.trim()).ok();
                let host = url.as_ref().and_then(|url| url.host_str());
                Ok(profile::of_host(self.kind, host.unwrap_or_default()))
            }
        }
    }
}

/// Opens `openai/NAME`, `anthropic/NAME`, `PROVIDER/NAME` or `replay:FILE`; nothing is connected yet.
/// `openai` and `anthropic` need not stand in `providers`.
pub fn open(spec: &str, providers: &BTreeMap<String, Provider>) -> Result<Arc<dyn Model>, Error> {
    open_with(spec, providers, Limits::default())
}

/// `open` with other limits.
pub fn open_with(
    spec: &str,
    providers: &BTreeMap<String, Provider>,
    limits: Limits,
) -> Result<Arc<dyn Model>, Error> {
    if let Some(file) = spec.strip_prefix("replay:") {
        return Ok(Arc::new(Replay::new(Recording::load(Path::new(file))?)));
    }
    let (name, model) = match spec.split_once('/') {
        Some((name, model)) if !name.is_empty() && !model.is_empty() => (name, model),
        _ => {
            return Err(Error::Setup {
                what: "its name has no provider".to_owned(),
                hint: "write PROVIDER/NAME, for example openai/gpt-4.1, or replay:FILE".to_owned(),
            });
        }
    };
    let provider = match (providers.get(name), name) {
        (Some(provider), _) => provider.clone(),
        (None, "openai") => Provider::openai(None, None),
        (None, "anthropic") => Provider::anthropic(None, None),
        (None, _) => return Err(unknown(name, providers)),
    };
    let opened = connect(spec, model, &provider, limits)?;
    let keys = providers.values().filter_map(|other| other.api_key.clone());
    Ok(secret::masked(opened, keys.collect()))
}

fn connect(
    spec: &str,
    model: &str,
    provider: &Provider,
    limits: Limits,
) -> Result<Arc<dyn Model>, Error> {
    let key = provider.api_key.as_ref().filter(|key| !key.is_empty());
    if key.is_none() {
        check_key(provider)?;
    }
    let known = price::known(model);
    let is_vendor = matches!(provider.name.as_str(), "openai" | "anthropic");
    let listed = known.filter(|_| is_vendor).map(|known| known.price);
    let about = About {
        name: spec.to_owned(),
        provider: provider.name.clone(),
        host: None,
        port: None,
        context_window: provider
            .context_window
            .or(known.map(|known| known.context_window))
            .unwrap_or(CONTEXT_WINDOW),
        price: provider.price.or(listed),
        recorded: None,
    };
    let parts = Parts {
        wire: provider.kind,
        profile: provider.profile()?,
        learned: provider.learned.of_model(),
        model,
        key,
        about,
    };
    let base = provider.base_url.trim();
    Ok(Arc::new(Client::open(base, parts, limits)?))
}

/// The vendors' own servers answer nobody without a key; others may.
fn check_key(provider: &Provider) -> Result<(), Error> {
    let url = reqwest::Url::parse(provider.base_url.trim()).ok();
    let host = url.as_ref().and_then(|url| url.host_str());
    let variable = match host {
        Some("api.openai.com") => "OPENAI_API_KEY",
        Some("api.anthropic.com") => "ANTHROPIC_API_KEY",
        _ => return Ok(()),
    };
    Err(Error::Setup {
        what: format!("there is no key for the provider {}", provider.name),
        hint: match provider.name.as_str() {
            "openai" | "anthropic" => format!("set {variable}, or name another model with --model"),
            name => format!("set `api_key_env` of providers.{name} to a variable that holds a key"),
        },
    })
}

fn unknown(name: &str, providers: &BTreeMap<String, Provider>) -> Error {
    let names = ["openai", "anthropic"].into_iter();
    let names = names.chain(providers.keys().map(String::as_str));
    let nearest = names
        .map(|other| (distance(name, other), other))
        .min()
        .filter(|&(far, other)| far * 3 <= other.len().max(3));
    Error::Setup {
        what: format!("there is no provider {name:?}"),
        hint: match nearest {
            Some((_, other)) => format!("did you mean {other}/…?"),
            None => format!(
                "define providers.{name} with kind and base_url in the plan or the configuration, or use openai/… or anthropic/…"
            ),
        },
    }
}

/// How many characters must be put in, left out or changed between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// True when `base_url` is on this machine.
pub fn is_local(base_url: &str) -> bool {
    reqwest::Url::parse(base_url).is_ok_and(|url| http::is_loopback(&url))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(spec: &str, providers: &[Provider]) -> (String, String) {
        let providers = providers
            .iter()
            .map(|p| (p.name.clone(), p.clone()))
            .collect();
        match open(spec, &providers).map(|model| model.about()) {
            Err(Error::Setup { what, hint }) => (what, hint),
            other => panic!("{other:?}"),
        }
    }

    fn local(name: &str, base_url: &str) -> Provider {
        Provider {
            name: name.into(),
            ..Provider::openai(Some(base_url.into()), None)
        }
    }

    #[test]
    fn a_missing_key_names_its_variable() {
        assert!(refused("openai/gpt-4o", &[]).1.contains("OPENAI_API_KEY"));
        assert!(
            refused("anthropic/claude-haiku-4-5", &[])
                .1
                .contains("ANTHROPIC_API_KEY")
        );
        let empty = Provider::openai(None, Some(Secret::new(" ")));
        assert!(
            refused("openai/gpt-4o", &[empty])
                .1
                .contains("OPENAI_API_KEY")
        );
    }

    #[test]
    fn an_unknown_provider_gets_the_nearest_name() {
        assert!(refused("opanai/x", &[]).1.contains("openai/…"));
        assert!(
            refused("loca/x", &[local("local", "http://127.0.0.1:1/v1")])
                .1
                .contains("local/…")
        );
        assert!(refused("vertex/x", &[]).1.contains("providers.vertex"));
        assert!(refused("gpt-4o", &[]).1.contains("PROVIDER/NAME"));
        assert!(
            refused("local/x", &[local("local", "127.0.0.1:80")])
                .0
                .contains("address")
        );
    }

    #[test]
    fn a_named_server_needs_no_key_and_has_no_price() {
        let provider = Provider {
            context_window: Some(4096),
            ..local("local", "http://127.0.0.1:8082/v1/")
        };
        let providers = BTreeMap::from([("local".to_owned(), provider)]);
        let about = open("local/org/gpt-4o", &providers).unwrap().about();
        assert_eq!(
            (about.name.as_str(), about.provider.as_str()),
            ("local/org/gpt-4o", "local")
        );
        assert_eq!(
            (about.host.as_deref(), about.port),
            (Some("127.0.0.1"), Some(8082))
        );
        assert_eq!((about.context_window, about.price), (4096, None));
    }

    #[test]
    fn a_vendor_s_model_is_priced_by_name() {
        let providers = BTreeMap::from([(
            "openai".to_owned(),
            Provider::openai(Some("http://localhost:1/v1".into()), None),
        )]);
        let about = open("openai/gpt-4.1-mini", &providers).unwrap().about();
        assert_eq!(about.context_window, 1_047_576);
        assert_eq!(about.price.map(|price| price.output), Some(1.6));
        assert_eq!(
            open("openai/bridge", &providers).unwrap().about().price,
            None
        );
    }
}
