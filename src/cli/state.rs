//! The configuration as the verbs need it, and the engine it leads to.

use std::path::PathBuf;

use super::STATE;
use super::fault::Fault;
use crate::config::{self, Config, Flags};
use crate::ops;

/// The state directory.
pub fn directory() -> Result<PathBuf, Fault> {
    settings(&Flags::default()).map(|config| config.state)
}

/// Environment and user's file under these flags; warnings are told once.
pub fn settings(flags: &Flags) -> Result<Config, Fault> {
    let config = config::load(flags, &here()?)?;
    // A second call in one process finds the same directory.
    drop(STATE.set(config.state.clone()));
    Ok(config)
}

/// The engine that the configuration leads to, asked who it is.
pub async fn engine(config: &Config) -> Result<ops::Engine, Fault> {
    Ok(ops::Engine::connect(&config.engine_options()).await?)
}

/// The directory the operator stands in.
pub fn here() -> Result<PathBuf, Fault> {
    std::env::current_dir()
        .map_err(|error| Fault::environment(format!("find the current directory: {error}")))
}

impl From<config::Error> for Fault {
    fn from(error: config::Error) -> Self {
        let kind = if error.exit_code() == 2 {
            "configuration"
        } else {
            "environment"
        };
        Self::new(error.exit_code(), kind, error.to_string()).hint(error.hint())
    }
}

impl From<ops::Error> for Fault {
    fn from(error: ops::Error) -> Self {
        let hint = match error.kind() {
            "no_engine" | "engine" => format!("{}; `wharf doctor` checks it", error.hint()),
            _ => error.hint(),
        };
        Self::new(error.code(), error.kind(), error.to_string()).hint(hint)
    }
}
