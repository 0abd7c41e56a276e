//! The plan between its two layers: what flags and environment say goes over it, what the user's
//! file says fills what the plan leaves open.

use std::path::Path;

use serde_json::Value;

use super::layer::{self, Source, Sourced, absolute_replay};
use super::{Config, Error, Price, Setting, providers};
use crate::id::RoleName;
use crate::plan::{Network, Plan};

impl Config {
    /// Completes the plan, and this config by the plan's providers. `text` is the plan's own text,
    /// which alone tells what it left open; `file` is where it stands, None for the built-in one.
    ///
    /// # Errors
    /// A `--role-model` for a role the plan has not, a provider without a usable address, a credential
    /// that is not set.
    pub fn apply(&mut self, plan: &mut Plan, text: &str, file: Option<&Path>) -> Result<(), Error> {
        let written = Written(serde_saphyr::from_str::<Value>(text).unwrap_or_default());
        self.shown.clear();
        self.limits(plan, &written);
        self.models(plan, file)?;
        self.keys(plan)
    }

    /// The servers and the credentials that a plan names, read from the environment of now.
    pub(super) fn keys(&mut self, plan: &Plan) -> Result<(), Error> {
        for (name, provider) in &plan.providers {
            let provider = providers::of_plan(name, provider, &self.env)?;
            self.providers.insert(name.clone(), provider);
        }
        for (name, (input, cached_input, output)) in &plan.prices {
            let price = Price {
                input: *input,
                cached_input: *cached_input,
                output: *output,
            };
            self.prices.insert(name.clone(), price);
        }
        self.injected(plan)?;
        self.collect_secrets();
        Ok(())
    }

    /// Reads the credentials that the plan's roles add to requests. One that is not set is an error now
    /// rather than a refused request in the middle of a run.
    pub(super) fn injected(&mut self, plan: &Plan) -> Result<(), Error> {
        let roles = plan.roles.values().map(|role| &role.sandbox);
        for sandbox in roles.chain([&plan.sandbox]) {
            let Network::Allow(reach) = &sandbox.network else {
                continue;
            };
            for inject in &reach.inject {
                let value = self.env.text(&inject.env).ok_or_else(|| Error::Value {
                    name: inject.env.clone(),
                    value: String::new(),
                    why: format!(
                        "the plan adds it to requests for {}, and it is not set",
                        inject.host
                    ),
                })?;
                if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                    return Err(Error::Value {
                        name: inject.env.clone(),
                        value: "[masked]".to_owned(),
                        why: "it holds what cannot stand in a header".to_owned(),
                    });
                }
                self.credentials.insert(inject.env.clone(), value);
            }
        }
        Ok(())
    }

    fn limits(&mut self, plan: &mut Plan, written: &Written) {
        let (over, under) = (self.over.clone(), self.under.clone());
        let run = &mut plan.run;
        let mut keep = |key, value: String, source| self.shown.push(Setting { key, value, source });

        let source = lay(
            &mut run.parallel,
            over.parallel,
            written.has("run", "parallel"),
            under.parallel,
        );
        keep("parallel", run.parallel.to_string(), source);

        let source = lay(
            &mut run.tokens,
            over.tokens,
            written.has("run", "tokens"),
            under.tokens,
        );
        keep("budget_tokens", run.tokens.to_string(), source);

        let some = |value: Sourced<f64>| value.map(|(number, source)| (Some(number), source));
        let said = written.has("run", "cost_usd");
        let source = lay(
            &mut run.cost_usd,
            some(over.cost_usd),
            said,
            some(under.cost_usd),
        );
        let amount = run
            .cost_usd
            .map_or("none".to_owned(), |usd| usd.to_string());
        keep("budget_usd", amount, source);

        let source = lay(
            &mut run.time,
            over.time,
            written.has("run", "time"),
            under.time,
        );
        keep("timeout", crate::plan::show_duration(run.time), source);

        let mode = &mut plan.permissions.mode;
        let source = lay(
            mode,
            over.mode,
            written.has("permissions", "mode"),
            under.mode,
        );
        keep("mode", format!("{mode:?}").to_lowercase(), source);
    }

    fn models(&mut self, plan: &mut Plan, file: Option<&Path>) -> Result<(), Error> {
        let base = file.and_then(Path::parent).unwrap_or(&self.cwd);
        let state = self.state.clone();
        let found = |list: &mut Vec<String>| {
            for model in list {
                *model = absolute_replay(model, base, Some(&state));
            }
        };
        found(&mut plan.model);
        plan.roles
            .values_mut()
            .for_each(|role| found(&mut role.model));
        found(&mut plan.compaction.model);

        let said = !plan.model.is_empty();
        let source = lay(
            &mut plan.model,
            self.over.model.clone(),
            said,
            self.under.model.clone(),
        );
        self.shown.push(Setting {
            key: "model",
            value: match plan.model.as_slice() {
                [] => "none: give --model, WHARF_MODEL or `model:`".to_owned(),
                models => models.join(", "),
            },
            source,
        });
        for (name, (models, source)) in &self.over.role_models {
            let Some(role) = plan.roles.get_mut(&RoleName::new(name)) else {
                let names: Vec<&str> = plan.roles.keys().map(RoleName::as_str).collect();
                return Err(Error::Value {
                    name: layer::name(source),
                    value: name.clone(),
                    why: format!("the plan has no such role; it has {}", names.join(", ")),
                });
            };
            role.model.clone_from(models);
        }
        for (name, (models, _)) in &self.under.role_models {
            let role = plan.roles.get_mut(&RoleName::new(name));
            if let Some(role) = role.filter(|role| role.model.is_empty()) {
                role.model.clone_from(models);
            }
        }
        Ok(())
    }
}

/// The plan's keys as they were written.
struct Written(Value);

impl Written {
    fn has(&self, part: &str, key: &str) -> bool {
        let value = self.0.get(part).and_then(|part| part.get(key));
        value.is_some_and(|value| !value.is_null())
    }
}

/// Puts the winner into `value` and says where it came from.
fn lay<T>(value: &mut T, over: Sourced<T>, said: bool, under: Sourced<T>) -> Source {
    let winner = match (over, under) {
        (Some(over), _) => Some(over),
        (None, Some(under)) if !said => Some(under),
        _ => None,
    };
    match winner {
        Some((new, source)) => {
            *value = new;
            source
        }
        None if said => Source::Plan,
        None => Source::BuiltIn,
    }
}
