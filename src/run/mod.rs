//! Many subtasks: schedule, workers, rounds, merges, verification, delivery.
//!
//! Owns: the order of things, the pot, the gate, the live board, every event of the journal.
//! Takes: an `Order` from `cli`.
//! Gives: a `Summary`, which is result.json.
//! Never: prints, builds a prompt.

mod again;
mod allow;
mod begin;
mod board;
mod call;
mod end;
mod judge;
mod replay;
mod retell;
mod round;
mod shared;
mod visit;
mod work;

pub use again::resume::{Found, Raised, Reopened, reopen, resume};
pub use allow::consent::{Answer, Consent, Question, Reply, Scope};
pub use begin::kept::{Kept, Wishes};
pub use begin::price::unpriced;
pub use begin::start::start;
pub use board::{Board, Notice, Row, Totals, Watch};
pub use call::sent::{Asked, SUMMARIES, To, requests};
pub use end::apply::{Put, apply};
pub use end::patch::Root;
pub use end::remade::{Remade, remade};
pub use end::result::of as result_of;
pub use end::summary::*;
pub use replay::{
    After, Changed, Comparison, Difference, Likeness, Replayable, Replayed, Replaying, Requests,
    Results, Tools, replay,
};
pub use retell::{origin_of, retell, spans_of};
pub use visit::{About, KeptPlan, Said, Stream, Visit, Visiting, kept_plan, visit};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::{model, plan, sandbox, trace, workspace};

/// Everything a run is started with.
pub struct Order {
    pub plan: plan::Plan,
    /// The plan's text, kept as `plan.yaml` in the run's directory.
    pub plan_text: String,
    pub task: String,
    /// The operator's directory, absolute.
    pub workspace: PathBuf,
    pub options: Options,
    pub models: Models,
    pub engine: Arc<dyn sandbox::Engine>,
    pub tracer: trace::Tracer,
    pub watch: Arc<dyn Watch>,
    pub stop: Stopper,
    pub keep: Keep,
    pub consent: Consent,
}

/// What a run's directory keeps beside the plan's text, and what may not stand in it.
#[derive(Clone, Default)]
pub struct Keep {
    /// Where the plan file stands, absolute; None for the built-in plan.
    pub plan_path: Option<PathBuf>,
    /// The files that the plan names, by the name it gives them.
    pub plan_files: BTreeMap<String, String>,
    /// Values that the journal must not hold.
    pub secrets: Vec<String>,
}

/// What flags and configuration decide beside the plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// `$XDG_STATE_HOME/wharf` or `WHARF_HOME`.
    pub state: PathBuf,
    /// Names this machine in container labels.
    pub machine: String,
    /// None: one is made from the time.
    pub run_id: Option<RunId>,
    pub delivery: Delivery,
    /// Put the result into the working tree when it passed.
    pub apply: bool,
    pub verify: bool,
    /// Stop after the plan is accepted.
    pub plan_only: bool,
    pub bootstrap: bool,
    /// The git program that the run's store and the operator's repository are used with.
    pub git: workspace::Git,
}

/// Where the result goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// A branch in a repository, else a patch.
    Default,
    Branch(String),
    Patch(PathBuf),
}

/// The models of a run: each role's list in order of fall-back, first the default one.
#[derive(Clone)]
pub struct Models {
    pub default: Vec<Arc<dyn model::Model>>,
    pub roles: BTreeMap<String, Vec<Arc<dyn model::Model>>>,
    /// Who sums up long conversations; empty: each agent's own models.
    pub summary: Vec<Arc<dyn model::Model>>,
}

impl Models {
    /// All of them, the default ones first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn model::Model>> {
        let roles = self.roles.values().flatten();
        self.default.iter().chain(roles).chain(&self.summary)
    }
}

/// How the run is told to stop: gently (kill what runs, save, resumable) or at once.
#[derive(Clone, Default)]
pub struct Stopper {
    pub cancel: tokio_util::sync::CancellationToken,
    /// The signal's exit code (130, 143, 129), set before `cancel` fires.
    pub exit_code: Arc<std::sync::atomic::AtomicI32>,
}

/// How long the run waits for a closing sandbox or a last journal line when told to stop.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);

/// What keeps a run from starting or from ending in order.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The run could not start; nothing was asked of a model. `code` is the exit code it maps to.
    #[error("{message}")]
    Start {
        code: i32,
        kind: &'static str,
        message: String,
        hint: String,
    },
    /// The run's own store, or the operator's directory.
    #[error("{source}")]
    Workspace { source: crate::workspace::Error },
    #[error(transparent)]
    Journal(#[from] crate::journal::Error),
    #[error("{operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}
