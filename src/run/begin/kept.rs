//! What a run remembers of how it was started, so that it can be resumed without being told again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::RoleName;
use crate::plan::{PermissionMode, Plan};
use crate::run::{Delivery, Models, Order};

/// Every value that shapes a run and stands in neither its plan nor its task; the `options` of its
/// first record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    #[serde(flatten)]
    pub wishes: Wishes,
    pub delivery: Delivery,
    pub parallel: usize,
    pub tokens: u64,
    pub cost_usd: Option<f64>,
    /// The run's time, in milliseconds.
    pub time_ms: u64,
    pub mode: PermissionMode,
    /// The default models as they were opened; those of a role, where it has its own.
    pub model: Vec<String>,
    pub role_models: BTreeMap<RoleName, Vec<String>>,
    /// Those that sum up conversations.
    #[serde(default)]
    pub summary_models: Vec<String>,
    /// Where the plan file stood; None for the built-in plan.
    pub plan_path: Option<PathBuf>,
    /// Where each model was asked, `host:port` by the model's name.
    pub servers: BTreeMap<String, String>,
}

/// The yes-or-no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Wishes {
    pub apply: bool,
    pub verify: bool,
    pub plan_only: bool,
    pub bootstrap: bool,
    pub copy: bool,
}

impl Kept {
    /// What an order is made of.
    pub(in crate::run) fn of(order: &Order) -> Self {
        let (plan, options) = (&order.plan, &order.options);
        let own = plan.roles.iter().filter(|(_, role)| !role.model.is_empty());
        Self {
            wishes: Wishes {
                apply: options.apply,
                verify: options.verify,
                plan_only: options.plan_only,
                bootstrap: options.bootstrap,
                copy: plan.workspace.copy,
            },
            delivery: options.delivery.clone(),
            parallel: plan.run.parallel,
            tokens: plan.run.tokens,
            cost_usd: plan.run.cost_usd,
            time_ms: u64::try_from(plan.run.time.as_millis()).unwrap_or(u64::MAX),
            mode: plan.permissions.mode,
            model: plan.model.clone(),
            role_models: own
                .map(|(name, role)| (name.clone(), role.model.clone()))
                .collect(),
            summary_models: plan.compaction.model.clone(),
            plan_path: order.keep.plan_path.clone(),
            servers: servers(&order.models),
        }
    }

    /// Lays it over the plan that was read anew from the run's directory.
    pub fn lay(&self, plan: &mut Plan) {
        plan.run.parallel = self.parallel;
        plan.run.tokens = self.tokens;
        plan.run.cost_usd = self.cost_usd;
        plan.run.time = Duration::from_millis(self.time_ms);
        plan.permissions.mode = self.mode;
        plan.model.clone_from(&self.model);
        plan.compaction.model.clone_from(&self.summary_models);
        for (name, role) in &mut plan.roles {
            role.model = self.role_models.get(name).cloned().unwrap_or_default();
        }
    }
}

/// `host:port` of every model that is asked over the network.
pub(in crate::run) fn servers(models: &Models) -> BTreeMap<String, String> {
    let all = models.all();
    let place = |about: crate::model::About| {
        let host = about.host?;
        let port = about.port.map_or(String::new(), |port| format!(":{port}"));
        Some((about.name, format!("{host}{port}")))
    };
    all.filter_map(|model| place(model.about())).collect()
}
