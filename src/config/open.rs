//! What is configured, in the words of the rooms that use it: model servers and the engine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Config, Price, Provider, Wire};
use crate::{model, ops, sandbox, workspace};

impl Config {
    /// Model servers as the model room takes them.
    pub fn model_providers(&self) -> BTreeMap<String, model::Provider> {
        let named = |provider: &Provider| (provider.name.clone(), of_model(provider));
        self.providers.values().map(named).collect()
    }

    /// Models at the prices that plan and user gave for their names; the others as they are.
    pub fn priced(&self, models: Vec<Arc<dyn model::Model>>) -> Vec<Arc<dyn model::Model>> {
        let at = |model: Arc<dyn model::Model>| match self.prices.get(&model.about().name) {
            Some(price) => model::price::at(model, to_model(price)),
            None => model,
        };
        models.into_iter().map(at).collect()
    }

    /// The git program of the operator's search path.
    pub fn git(&self) -> workspace::Git {
        let search = self.env.path("PATH").map(PathBuf::into_os_string);
        workspace::Git::at(search.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()))
    }

    /// What of this machine a recording must not tell; `workspace` is where its run worked.
    ///
    /// `servers` are those that the run itself used.
    pub fn places(&self, workspace: Option<String>, servers: Vec<String>) -> ops::Places {
        // Where the kernel does not say, there is no name to be found in a text either.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let docker = [self.docker.host.clone(), self.env.text("DOCKER_HOST")];
        let docker = docker.into_iter().flatten();
        let docker = docker.filter(|address| !address.starts_with("unix:"));
        ops::Places {
            home: self.env.text("HOME"),
            host,
            workspace,
            user: self.env.text("USER").or_else(|| self.env.text("LOGNAME")),
            servers: servers.into_iter().chain(docker).collect(),
        }
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
            Wire::Responses => model::Wire::Responses,
        },
        base_url: provider.base_url.clone(),
        api_key: provider
            .key
            .as_ref()
            .map(|key| model::Secret::new(key.expose())),
        profile: provider.profile.clone(),
        learned: model::profile::Learned::default(),
        context_window: provider.context_window,
        price: provider.price.as_ref().map(to_model),
    }
}

fn to_model(price: &Price) -> model::Price {
    model::Price {
        input: price.input,
        cached_input: price.cached_input,
        output: price.output,
    }
}
