//! The run from its first round to its last: plan, execute, verify, decide.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::{Limit, Resource};
use crate::id::{CommitId, RoleName, SubtaskId};
use crate::journal::{CommandRun, Dropped, Event, Progress};
use crate::plan::{self, Dag, Kind, Role, Subtask};
use crate::run::Error;
use crate::run::board::Notice;
use crate::run::end::summary::{Verdict, VerdictStatus};
use crate::run::judge::status::Facts;
use crate::run::round::merges::Merges;
use crate::run::round::rounds;
use crate::run::round::schedule::Schedule;
use crate::run::shared::Shared;
use crate::run::work::trees::Standing;
use crate::run::work::worker::End;
use crate::sandbox::{Image, ImageSpec};
use crate::trace::Span;
use crate::workspace::{Conflict, Globs};

/// How long an image is taken for ready. Asking again says that it is in use, before an hour is over
/// after which other runs may remove it.
const KNOWN: Duration = Duration::from_secs(1200);
/// Lists of files that are kept.
const STANDING: usize = 8;

/// The one owner of a run's changing state.
pub(in crate::run) struct Drive {
    pub shared: Arc<Shared>,
    pub dag: Option<Dag>,
    pub schedule: Schedule,
    pub merges: Merges,
    pub nodes: BTreeMap<SubtaskId, Node>,
    pub conflicts: BTreeMap<SubtaskId, ConflictNode>,
    pub running: JoinSet<End>,
    /// Ready images, and since when that is known.
    pub images: HashMap<ImageSpec, (Image, Instant)>,
    /// The commits that agents last started from, newest first; a few, for they may be large.
    pub standing: VecDeque<Arc<Standing>>,
    /// The base, then what each round merged.
    pub merged: CommitId,
    pub round: u32,
    pub facts: Facts,
    /// How one would know that the task is done: the plan's criteria, then the coordinator's.
    pub criteria: Vec<String>,
    /// What the last round's verification found.
    pub verdict: Option<Verdict>,
    /// How far each round came.
    pub progress: BTreeMap<u32, Progress>,
    /// What the verification of the round before found, for those who are to mend it.
    pub found: Vec<String>,
    /// The acceptance commands at the base, once they were run there.
    pub at_base: Vec<CommandRun>,
    /// No agent may be started any more: none could be asked, or the pot is empty.
    pub halted: bool,
    /// Something was worked in this process: last words and delivery of an earlier one are out of date.
    pub fresh: bool,
}

/// A planned subtask.
pub(in crate::run) struct Node {
    pub subtask: Subtask,
    pub round: u32,
    pub done: Option<Done>,
    pub failed: Option<String>,
}

/// What a finished subtask leaves to those that need it.
pub(in crate::run) struct Done {
    pub snapshot: CommitId,
    pub report: Value,
    pub span: Span,
    /// What it made and its snapshot lacks, with the reason.
    pub left_out: Vec<(String, String)>,
}

/// A conflict and, once it ended, what became of it.
pub(in crate::run) struct ConflictNode {
    pub conflict: Arc<Conflict>,
    pub report: Option<Value>,
    pub lost: Option<String>,
    /// What the resolution holds no more of either side.
    pub dropped: Vec<Dropped>,
    /// Paths it changed beyond those in conflict.
    pub beyond: Vec<String>,
}

/// What a round leads to.
enum Next {
    Round,
    End,
}

impl Drive {
    pub fn new(shared: Arc<Shared>) -> Self {
        let merged = shared.base.commit.clone();
        let criteria = shared.plan.acceptance.criteria.clone();
        let facts = Facts {
            verify_off: !shared.options.verify,
            ..Facts::default()
        };
        Self {
            shared,
            dag: None,
            schedule: Schedule::default(),
            merges: Merges::default(),
            nodes: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            running: JoinSet::new(),
            images: HashMap::new(),
            standing: VecDeque::new(),
            merged,
            round: 0,
            facts,
            criteria,
            verdict: None,
            progress: BTreeMap::new(),
            found: Vec::new(),
            at_base: Vec::new(),
            halted: false,
            fresh: false,
        }
        .recalling()
    }

    /// Knows the merges that earlier processes made.
    fn recalling(mut self) -> Self {
        let shared = self.shared.clone();
        for (inputs, commit) in &shared.past.state().merges {
            self.merges.recall(inputs, commit);
        }
        self
    }

    /// Recorded words are about the files they were recorded on; on others the reports may not hold.
    fn warn_of_recording(&self) {
        let models = &self.shared.models;
        let all = models.default.iter().chain(models.roles.values().flatten());
        let base = self.shared.base.tree.as_str();
        let elsewhere = all
            .filter_map(|model| model.about().recorded)
            .any(|recorded| recorded.base.as_deref() != Some(base));
        if elsewhere {
            self.shared.warn(
                "the answers were recorded on other files than these: reports are recorded words and \
                 may not fit",
            );
        }
    }

    /// A pattern of `protect` without a file is often a slip of the pen, and then guards nothing.
    fn warn_of_idle_patterns(&self) -> Result<(), Error> {
        let patterns = &self.shared.plan.protect;
        let globs = Globs::new(patterns).map_err(|source| Error::Workspace { source })?;
        let paths = self.shared.base_paths.iter();
        for idle in globs.idle(paths.map(|path| path.as_bytes())) {
            let pattern = &patterns[idle];
            self.shared.warn(format!(
                "protect: `{pattern}` matches no file of the workspace that agents see"
            ));
        }
        Ok(())
    }

    /// Runs rounds until one needs no other, none remain, or something stops the run.
    pub async fn run(&mut self) -> Result<(), Error> {
        if !self.shared.past.resumed() {
            self.warn_of_recording();
            crate::run::work::bounds::warn_of_memory(&self.shared);
            let warnings = self.shared.plan.warnings();
            warnings.into_iter().for_each(|text| self.shared.warn(text));
            self.warn_of_idle_patterns()?;
        }
        loop {
            self.round += 1;
            self.shared
                .record(Event::RoundStarted { round: self.round })
                .await?;
            self.shared.tell(&Notice::Round { round: self.round });
            if !self.plan().await? || self.shared.options.plan_only {
                self.facts.plan_only =
                    self.facts.failed.is_empty() && self.shared.options.plan_only;
                return match self.facts.standstill.is_some() {
                    true => self.summarise().await,
                    false => Ok(()),
                };
            }
            self.execute().await?;
            if self.stopped() {
                return self.gather().await;
            }
            self.verify().await?;
            if self.stopped() || matches!(self.end_round().await?, Next::End) {
                return self.summarise().await;
            }
        }
    }

    /// Journals how far the round came. A run that stops getting better stops.
    async fn end_round(&mut self) -> Result<Next, Error> {
        let progress = rounds::progress(self.verdict.as_ref(), self.facts.failed.len());
        let mut next = self.next();
        if matches!(next, Next::Round) {
            let most = self.shared.plan.run.rounds;
            let stopped = rounds::standstill(self.round, most, &progress, &self.progress);
            if stopped.is_some() {
                (self.facts.standstill, next) = (stopped, Next::End);
            }
        }
        self.progress.insert(self.round, progress.clone());
        let ended = Event::RoundEnded {
            round: self.round,
            progress,
            stopped: self.facts.standstill.clone(),
        };
        self.shared.record(ended).await?;
        Ok(next)
    }

    /// A failed subtask or a failing verdict opens another round while rounds remain.
    fn next(&self) -> Next {
        let fails =
            !self.facts.failed.is_empty() || self.facts.verdict == Some(VerdictStatus::Fail);
        let fixed = !self.shared.plan.subtasks.is_empty();
        let sound = self.facts.environment.is_none();
        if fails && sound && !fixed && self.round < self.shared.plan.run.rounds {
            Next::Round
        } else {
            Next::End
        }
    }

    /// True when no agent may be started any more, whatever the subtasks came to.
    pub fn stopped(&mut self) -> bool {
        if let Some(code) = self.shared.signal() {
            self.facts.interrupted = Some(code);
        }
        self.halted || self.shared.stop.cancel.is_cancelled()
    }

    /// The run's time is over.
    pub fn out_of_time(&mut self) {
        let limit = crate::plan::show_duration(self.shared.plan.run.time);
        self.facts.limited = Some(Limit {
            of: Resource::Time,
            limit: format!("{limit} of time"),
        });
        self.shared.stop.cancel.cancel();
    }

    /// The environment failed in a way that no other agent would escape.
    pub fn halt(&mut self, reason: String) {
        // While the run is told to stop, a failed wait is a consequence and no cause.
        if !self.shared.stop.cancel.is_cancelled() {
            self.facts.environment.get_or_insert(reason);
            self.halted = true;
        }
    }

    /// The role that plays a part; a plan that drops the built-ins may have none.
    pub fn role_of(&self, kind: Kind) -> Option<&Role> {
        self.shared
            .plan
            .roles
            .values()
            .find(|role| role.kind == kind)
    }

    /// A role by name; the DAG's check has made sure of it.
    pub fn role(&self, name: &RoleName) -> Option<&Role> {
        self.shared.plan.roles.get(name)
    }

    /// A commit as agents start from it; read once for all that start there.
    pub async fn standing(&mut self, commit: &CommitId) -> Result<Arc<Standing>, Error> {
        if let Some(known) = self.standing.iter().find(|known| known.commit == *commit) {
            return Ok(known.clone());
        }
        let read = Standing::of(&self.shared.store, commit).await;
        let read = Arc::new(read.map_err(|source| Error::Workspace { source })?);
        self.standing.truncate(STANDING - 1);
        self.standing.push_front(read.clone());
        Ok(read)
    }

    /// Journals an image, and says so when it is another one than an earlier process used.
    fn note_image(&self, image: &Image) {
        let (name, id) = (image.name.clone(), image.id.clone());
        if self.shared.past.other_image(&name, &id).is_some() {
            self.shared.warn(format!(
                "the image {name} changed since the run began: what is worked from here on sees the new one"
            ));
        }
        let describes = image.describes.clone();
        self.shared.note(Event::ImageReady {
            name,
            id,
            describes,
        });
    }

    /// The ready image of a role's sandbox.
    pub async fn image(&mut self, sandbox: &plan::Sandbox) -> Result<Image, String> {
        let shared = self.shared.clone();
        let spec = crate::run::work::settings::image(&shared, sandbox).await;
        let spec = spec.map_err(|error| error.to_string())?;
        let known = self.images.get(&spec);
        if let Some((image, _)) = known.filter(|(_, since)| since.elapsed() < KNOWN) {
            return Ok(image.clone());
        }
        let progress = Saying(shared.clone());
        let ready = shared
            .engine
            .prepare(&spec, &progress, &shared.stop.cancel)
            .await;
        let image = ready.map_err(|error| describe(&error))?;
        self.note_image(&image);
        self.images.insert(spec, (image.clone(), Instant::now()));
        self.layer(sandbox, image.clone()).await;
        Ok(image)
    }

    /// Has a large workspace put into a layer of the image meanwhile, so that agents do not wait for it.
    async fn layer(&mut self, sandbox: &plan::Sandbox, image: Image) {
        let base = self.shared.base.commit.clone();
        // Whoever starts there reads it again and is told what is wrong with it.
        let Ok(standing) = self.standing(&base).await else {
            return;
        };
        if standing.tree.is_large() {
            // Nothing runs in the container that is filled.
            let network = crate::sandbox::Network::None;
            let spec =
                crate::run::work::settings::spec(&self.shared, sandbox, image, "layer", network);
            let saying = Arc::new(Saying(self.shared.clone()));
            self.shared.pool.layer(&spec, standing.tree.clone(), saying);
        }
    }
}

/// An engine's error with what a person can do about it.
fn describe(error: &crate::sandbox::Error) -> String {
    match error {
        crate::sandbox::Error::Image { hint, .. } if !hint.is_empty() => format!("{error}; {hint}"),
        crate::sandbox::Error::Setup { output, .. } => format!("{error}\n{output}"),
        other => other.to_string(),
    }
}

struct Saying(Arc<Shared>);

impl crate::sandbox::Progress for Saying {
    fn say(&self, line: &str) {
        self.0.tell(&Notice::Preparing {
            line: line.to_owned(),
        });
    }
}
