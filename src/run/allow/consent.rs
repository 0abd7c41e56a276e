//! What a run lets others decide: the hooks and the approver of its plan and of the user, and what was
//! consented to for as long as the run lasts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::plan;
use crate::tools::approvals::Grant;
use crate::tools::hooks::{Hook, Moment};

pub use crate::tools::approvals::{Answer, Scope};

/// What the operator's own configuration says of it, beside the plan.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    pub hooks: Vec<plan::Hook>,
    pub approver: Option<plan::Approver>,
    /// Where the configuration stands; its programs run there.
    pub dir: PathBuf,
    /// All of the environment that hooks and approvers get.
    pub env: Vec<(String, String)>,
}

/// A question to the person at the terminal.
#[derive(Clone, Debug)]
pub struct Question {
    pub agent: String,
    pub role: String,
    pub tool: String,
    /// The command line or the path.
    pub what: String,
    pub reason: String,
    /// How far a yes may go.
    pub scopes: Vec<Scope>,
    /// When it is too late.
    pub until: Instant,
}

/// Where an answer arrives; dropped by whoever cannot ask any more.
pub type Reply = oneshot::Sender<Answer>;

/// Who decides, and what was decided for long.
pub(in crate::run) struct Office {
    /// The user's before the plan's.
    pub hooks: Vec<Hook>,
    pub approver: plan::Approver,
    pub dir: PathBuf,
    pub env: Vec<(String, String)>,
    pub grants: watch::Sender<Vec<Grant>>,
}

/// What one agent was refused, and what hooks handed back to it.
#[derive(Default)]
pub(in crate::run) struct Asked {
    pub refused: watch::Sender<BTreeSet<String>>,
    pub handed_back: AtomicU32,
}

impl Office {
    /// `own` is where the plan stands. What earlier processes were granted still holds.
    pub fn new(
        plan: &plan::Plan,
        own: &Path,
        consent: Consent,
        granted: &[serde_json::Value],
    ) -> Self {
        let users = consent.hooks.iter().map(|hook| here(hook, &consent.dir));
        let plans = plan.hooks.iter().map(|hook| here(hook, own));
        let (approver, dir) = match (&plan.permissions.approver, consent.approver) {
            (Some(approver), _) => (approver.clone(), own.to_owned()),
            (None, Some(approver)) => (approver, consent.dir.clone()),
            (None, None) => (person(), own.to_owned()),
        };
        // A grant that cannot be read is none: its call is asked about again.
        let read = |value: &serde_json::Value| serde_json::from_value(value.clone()).ok();
        Self {
            hooks: users.chain(plans).collect(),
            approver,
            dir,
            env: consent.env,
            grants: watch::Sender::new(granted.iter().filter_map(read).collect()),
        }
    }
}

fn person() -> plan::Approver {
    plan::Approver {
        by: plan::By::Terminal,
        timeout: plan::ANSWER,
    }
}

fn here(hook: &plan::Hook, dir: &Path) -> Hook {
    Hook {
        moment: match hook.moment {
            plan::Moment::PreToolUse => Moment::PreToolUse,
            plan::Moment::PostToolUse => Moment::PostToolUse,
            plan::Moment::SubagentStart => Moment::SubagentStart,
            plan::Moment::SubagentStop => Moment::SubagentStop,
            plan::Moment::Stop => Moment::Stop,
        },
        matcher: hook.matcher.clone(),
        command: hook.command.clone(),
        timeout: hook.timeout,
        dir: dir.to_owned(),
    }
}

impl Question {
    /// The time that is left for an answer.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}
