//! A resumed run's configuration: what shapes the run is the run's own; keys, servers and the engine are
//! those of now.

use super::{Config, Error, number};
use crate::plan::Plan;
use crate::run::{Kept, Raised};

impl Config {
    /// Completes this config by a kept plan's providers, and takes what the run was started with. The
    /// environment's wishes for a new run count for nothing.
    ///
    /// # Errors
    /// A provider without a usable address, a credential that is not set.
    pub fn resume(&mut self, plan: &Plan, kept: &Kept) -> Result<(), Error> {
        self.keys(plan)?;
        self.delivery = kept.delivery.clone();
        self.apply = kept.wishes.apply;
        self.verify = kept.wishes.verify;
        self.plan_only = kept.wishes.plan_only;
        self.bootstrap = kept.wishes.bootstrap;
        Ok(())
    }
}

impl Config {
    /// As `resume`, for a replay with live tools: no model is asked, so no server or key is looked up.
    ///
    /// # Errors
    /// A credential of a sandbox's network that is not set.
    pub fn replay(&mut self, plan: &Plan) -> Result<(), Error> {
        self.injected(plan)?;
        self.collect_secrets();
        Ok(())
    }
}

/// The limits of `wharf resume`, as typed.
///
/// # Errors
/// A number that makes no sense.
pub fn raised(
    tokens: Option<&str>,
    dollars: Option<&str>,
    time: Option<&str>,
) -> Result<Raised, Error> {
    Ok(Raised {
        tokens: read("--budget-tokens", tokens, number::tokens)?,
        cost_usd: read("--budget-usd", dollars, number::dollars)?,
        time: read("--timeout", time, number::duration)?,
        retry_failed: false,
    })
}

fn read<T>(
    name: &str,
    text: Option<&str>,
    reader: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Error> {
    let wrong = |why| Error::Value {
        name: name.to_owned(),
        value: text.unwrap_or_default().to_owned(),
        why,
    };
    text.map(|text| reader(text.trim()))
        .transpose()
        .map_err(wrong)
}
