//! What every task of a run may read: set once, before the first agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use crate::id::{RoleName, RunId};
use crate::journal::{self, Agent, Event, Writer};
use crate::run::again::past::Past;
use crate::run::allow::consent::Office;
use crate::run::allow::rate::Rates;
use crate::run::board::{Board, Notice, Totals, Watch};
use crate::run::call::gate::Gates;
use crate::run::call::pot::Pot;
use crate::run::replay::Script;
use crate::run::work::changes::KeptOut;
use crate::run::work::ignored::BaseRules;
use crate::run::{Models, Options, Stopper};
use crate::sandbox;
use crate::workspace::{Base, Store};
use crate::{model, plan, trace};

pub(super) struct Shared {
    pub id: RunId,
    /// The run's directory.
    pub dir: PathBuf,
    pub plan: plan::Plan,
    pub task: String,
    pub workspace: PathBuf,
    pub options: Options,
    pub store: Store,
    pub base: Base,
    /// What agents' own repositories begin with.
    pub history: Option<Arc<sandbox::History>>,
    /// Paths of the base that exist, for protection.
    pub base_paths: Arc<BTreeSet<String>>,
    /// Paths that no work of an agent's can change.
    pub kept_out: KeptOut,
    /// What the base's `.gitignore` files name.
    pub base_rules: BaseRules,
    pub journal: Writer,
    /// What earlier processes did of the run.
    pub past: Past,
    /// The recording that this run is a replay of.
    pub script: Option<Arc<Script>>,
    pub engine: Arc<dyn sandbox::Engine>,
    /// Where agents' sandboxes come from.
    pub pool: sandbox::Pool,
    pub models: Models,
    pub pot: Pot,
    pub gates: Gates,
    /// How often tools of the operator's may be called.
    pub rates: Rates,
    /// Models that nobody asks any more, each with reason and hint: the key, the quota or the address failed.
    pub hopeless: watch::Sender<BTreeMap<String, (String, String)>>,
    /// Tokens of each agent's attempts that came to no answer, in earlier processes too.
    pub unanswered: watch::Sender<BTreeMap<Agent, u64>>,
    /// Limits that were warned of, each once for the whole run.
    pub doubted: watch::Sender<BTreeSet<String>>,
    /// Who consents, and what hooks run.
    pub consent: Office,
    pub board: Arc<Board>,
    pub watch: Arc<dyn Watch>,
    pub stop: Stopper,
    pub span: trace::Span,
    pub started: tokio::time::Instant,
    /// Time that earlier processes worked on the run.
    pub spent: Duration,
}

impl Shared {
    /// Tells whoever watches.
    pub fn tell(&self, notice: &Notice) {
        self.watch.notice(notice);
    }

    /// A warning: to the journal and to whoever watches.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        self.journal.note(Event::Warned { text: text.clone() });
        self.tell(&Notice::Warning { text });
    }

    /// The models of a role, in order of fall-back.
    pub fn models_of(&self, role: &plan::Role) -> &[Arc<dyn model::Model>] {
        self.models
            .roles
            .get(role.name.as_str())
            .map_or(&self.models.default, |own| own)
    }

    /// Containers that are kept ready for a role; Wharf's own commands run in the plan's sandbox.
    pub fn warm(&self, role: &RoleName) -> usize {
        let role = self.plan.roles.get(role);
        role.map_or(self.plan.sandbox.warm, |role| role.sandbox.warm)
    }

    /// The exit code of the signal that stops the run, once one came.
    pub fn signal(&self) -> Option<i32> {
        let code = self.stop.exit_code.load(Ordering::SeqCst);
        (self.stop.cancel.is_cancelled() && code != 0).then_some(code)
    }

    /// Journals a fact, unless it stands there from an earlier process.
    pub async fn record(&self, event: Event) -> Result<(), journal::Error> {
        if self.past.holds(&event) {
            return Ok(());
        }
        self.journal.append(event).await.map(|_| ())
    }

    /// `record` for a fact that follows from others: its loss in a crash would change nothing.
    pub fn note(&self, event: Event) {
        if !self.past.holds(&event) {
            self.journal.note(event);
        }
    }

    /// How long the run has been worked on.
    pub fn elapsed(&self) -> Duration {
        self.spent + self.started.elapsed()
    }

    /// When its time is over.
    pub fn deadline(&self) -> tokio::time::Instant {
        self.started + self.plan.run.time.saturating_sub(self.spent)
    }

    /// Adds to the totals that the person sees.
    pub fn count(&self, change: impl FnOnce(&mut Totals)) {
        let elapsed = self.elapsed();
        self.board.count(|totals| {
            change(totals);
            totals.elapsed = elapsed;
        });
    }
}
