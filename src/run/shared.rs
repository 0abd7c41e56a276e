//! What every task of a run may read: set once, before the first agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::board::{Board, Notice, Totals, Watch};
use super::gate::Gates;
use super::pot::Pot;
use super::{Models, Options, Stopper};
use crate::id::{RoleName, RunId};
use crate::journal::{Event, Writer};
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
    /// Paths of the base that exist, for protection; paths withheld from agents.
    pub base_paths: Arc<BTreeSet<String>>,
    pub hidden: BTreeSet<String>,
    pub journal: Writer,
    pub engine: Arc<dyn sandbox::Engine>,
    /// Where agents' sandboxes come from.
    pub pool: sandbox::Pool,
    pub models: Models,
    pub pot: Pot,
    pub gates: Gates,
    /// Models that nobody asks any more, each with reason and hint: the key, the quota or the address failed.
    pub hopeless: watch::Sender<BTreeMap<String, (String, String)>>,
    pub board: Arc<Board>,
    pub watch: Arc<dyn Watch>,
    pub stop: Stopper,
    pub span: trace::Span,
    pub started: tokio::time::Instant,
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

    /// Adds to the totals that the person sees.
    pub fn count(&self, change: impl FnOnce(&mut Totals)) {
        let elapsed = self.started.elapsed();
        self.board.count(|totals| {
            change(totals);
            totals.elapsed = elapsed;
        });
    }
}
