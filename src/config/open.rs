//! What is configured, in the words of the rooms that use it: model servers and the engine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Config, Provider, Wire};
use crate::{model, sandbox, workspace};

impl Config {
    /// Model servers as the model room takes them.
    pub fn model_providers(&self) -> BTreeMap<String, model::Provider> {
        let named = |provider: &Provider| (provider.name.clone(), of_model(provider));
        self.providers.values().map(named).collect()
    }

    /// The git program of the operator's search path.
    pub fn git(&self) -> workspace::Git {
        let search = self.env.path("PATH").map(PathBuf::into_os_string);
        workspace::Git::at(search.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()))
    }

    /// How the sandbox room reaches the engine.
    pub fn engine_options(&self) -> sandbox::Options {
        sandbox::Options {
            host: self.docker.host.clone(),
            tls: self.docker.tls.clone(),
            candidates: self.docker.candidates.clone(),
            ssh: None,
            state: self.state.clone(),
            machine: self.machine.clone(),
            proxies: self.docker.proxies.clone(),
            ca_bundle: self.docker.ca_bundle.clone(),
            credentials: self
                .credentials
                .iter()
                .map(|(name, value)| (name.clone(), sandbox::egress::Credential::new(value)))
                .collect(),
            lease: None,
        }
    }
}

fn of_model(provider: &Provider) -> model::Provider {
    model::Provider {
        name: provider.name.clone(),
        kind: match provider.wire {
            Wire::OpenAi => model::Wire::OpenAi,
            Wire::Anthropic => model::Wire::Anthropic,
        },
        base_url: provider.base_url.clone(),
        api_key: provider
            .key
            .as_ref()
            .map(|key| model::Secret::new(key.expose())),
        context_window: provider.context_window,
        price: provider.price.map(|price| model::Price {
            input: price.input,
            cached_input: price.cached_input,
            output: price.output,
        }),
    }
}
