//! What `wharf config show` lists: each value and where it comes from, secrets masked.

use super::layer::{Layer, Source};
use super::{Config, Provider};

/// One line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub key: &'static str,
    pub value: String,
    pub source: Source,
}

impl Config {
    /// Every value; those that a plan also has are final once `apply` has seen it.
    pub fn settings(&self) -> Vec<Setting> {
        let mut list = vec![
            self.place(
                "state",
                self.state.display().to_string(),
                &["WHARF_HOME", "XDG_STATE_HOME"],
            ),
            self.place("machine", self.machine.clone(), &[]),
        ];
        let plan = self.plan.as_ref();
        let plan = plan.map_or("built-in".to_owned(), |path| path.display().to_string());
        let source = self.plan_source.clone();
        list.push(Setting {
            key: "plan",
            value: plan,
            source,
        });
        if self.shown.is_empty() {
            list.extend(of_layers(&self.over, &self.under));
        } else {
            list.extend(self.shown.iter().cloned());
        }
        for (role, (models, source)) in self.under.role_models.iter().chain(&self.over.role_models)
        {
            let value = format!("{role}={}", models.join(", "));
            let source = source.clone();
            list.push(Setting {
                key: "role_model",
                value,
                source,
            });
        }
        for provider in self.providers.values() {
            list.push(self.place("provider", describe(provider), &[]));
        }
        let docker = match (&self.docker.host, self.docker.candidates.first()) {
            (Some(host), _) => host.clone(),
            (None, Some(one)) => format!("{} ({})", one.address, one.why),
            (None, None) => "the default socket".to_owned(),
        };
        list.push(self.place("docker", docker, &["DOCKER_HOST", "DOCKER_CONTEXT"]));
        list.push(Setting {
            key: "cache",
            value: crate::plan::show_size(self.cache),
            source: self.cache_source.clone(),
        });
        let trace = match (&self.trace.target, self.trace.disabled) {
            (_, true) => "disabled".to_owned(),
            (None, _) => "no endpoint".to_owned(),
            (Some(target), _) => self.masked(&target.endpoint),
        };
        let names = [
            "OTEL_SDK_DISABLED",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ];
        list.push(self.place("trace", trace, &names));
        list
    }

    /// A setting whose source is the first of these variables that is set.
    fn place(&self, key: &'static str, value: String, names: &[&'static str]) -> Setting {
        let set = names.iter().find(|name| self.env.path(name).is_some());
        let source = set.map_or(Source::BuiltIn, |name| Source::Environment(name));
        let value = self.masked(&value);
        Setting { key, value, source }
    }

    /// A text with every known secret masked.
    pub fn masked(&self, text: &str) -> String {
        let mut secrets: Vec<&String> = self.secrets.iter().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret.as_str(), "[masked]")
        })
    }
}

fn describe(provider: &Provider) -> String {
    let key = match (&provider.key, &provider.key_env) {
        (Some(_), Some(name)) => format!("key from {name}"),
        (Some(_), None) => "key set".to_owned(),
        (None, Some(name)) => format!("no key, {name} is unset"),
        (None, None) => "no key".to_owned(),
    };
    format!("{} at {} ({key})", provider.name, provider.base_url)
}

/// What is known without a plan.
fn of_layers(over: &Layer, under: &Layer) -> Vec<Setting> {
    let mut list = Vec::new();
    let mut add = |key, value: Option<(String, Source)>| {
        list.extend(value.map(|(value, source)| Setting { key, value, source }));
    };
    let text = |layer: &Layer| -> [(&'static str, Option<(String, Source)>); 6] {
        let layer = layer.clone();
        [
            ("model", layer.model.map(|(v, s)| (v.join(", "), s))),
            ("parallel", layer.parallel.map(|(v, s)| (v.to_string(), s))),
            (
                "budget_tokens",
                layer.tokens.map(|(v, s)| (v.to_string(), s)),
            ),
            (
                "budget_usd",
                layer.cost_usd.map(|(v, s)| (v.to_string(), s)),
            ),
            (
                "timeout",
                layer.time.map(|(v, s)| (crate::plan::show_duration(v), s)),
            ),
            (
                "mode",
                layer
                    .mode
                    .map(|(v, s)| (format!("{v:?}").to_lowercase(), s)),
            ),
        ]
    };
    for ((key, over), (_, under)) in text(over).into_iter().zip(text(under)) {
        add(key, over.or(under));
    }
    list
}
