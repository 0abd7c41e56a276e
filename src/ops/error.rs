//! What keeps an operator's wish from being done, by what can be done about it.

use crate::{model, sandbox};

/// A fault with its exit code and the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Engine(#[from] sandbox::Error),
    /// A model's name leads to no server or recording.
    #[error("model {name:?}: {reason}")]
    Model {
        name: String,
        reason: String,
        hint: String,
        /// The key is missing, and only that.
        key: bool,
    },
}

impl Error {
    /// 2 for what was written wrong, 3 for what is missing around Wharf.
    pub fn code(&self) -> i32 {
        match self {
            Self::Model { key: false, .. } => 2,
            Self::Model { key: true, .. } | Self::Engine(_) => 3,
        }
    }

    /// A stable word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Engine(sandbox::Error::NoEngine { .. }) => "no_engine",
            Self::Engine(sandbox::Error::Image { .. } | sandbox::Error::Setup { .. }) => "image",
            Self::Engine(_) => "engine",
            Self::Model { key: true, .. } => "key",
            Self::Model { key: false, .. } => "model",
        }
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Engine(sandbox::Error::NoEngine { denied: true, .. }) => {
                "join the group docker (`sudo usermod -aG docker $USER`, then log in again)"
                    .to_owned()
            }
            Self::Engine(sandbox::Error::NoEngine { .. }) => {
                "start Docker, or name its address by DOCKER_HOST (or a context by DOCKER_CONTEXT)"
                    .to_owned()
            }
            Self::Engine(sandbox::Error::Image { hint, .. }) | Self::Model { hint, .. } => {
                hint.clone()
            }
            Self::Engine(sandbox::Error::Setup { output, .. }) => {
                format!("its last output was:\n{output}")
            }
            Self::Engine(_) => {
                "see whether `docker info` answers, and the engine's own log".to_owned()
            }
        }
    }
}

/// Opens models in order of fall-back; none of `secrets` is ever sent to one.
pub fn open_models(
    names: &[String],
    providers: &std::collections::BTreeMap<String, model::Provider>,
    secrets: &[String],
) -> Result<Vec<std::sync::Arc<dyn model::Model>>, Error> {
    names
        .iter()
        .map(|name| {
            let opened = open_model(name, providers)?;
            let secrets = secrets.iter().map(|text| model::Secret::new(text));
            Ok(model::masked(opened, secrets.collect()))
        })
        .collect()
}

fn open_model(
    name: &str,
    providers: &std::collections::BTreeMap<String, model::Provider>,
) -> Result<std::sync::Arc<dyn model::Model>, Error> {
    model::open(name, providers).map_err(|error| {
        let (reason, hint) = match error {
            model::Error::Setup { what, hint } => (what, hint),
            other => (other.to_string(), String::new()),
        };
        // A server that is known and yet cannot be opened lacks its key.
        let server = name.split_once('/').map(|(server, _)| server);
        let known =
            server.is_some_and(|s| s == "openai" || s == "anthropic" || providers.contains_key(s));
        let key = known && !name.starts_with("replay:");
        Error::Model {
            name: name.to_owned(),
            reason,
            hint,
            key,
        }
    })
}
