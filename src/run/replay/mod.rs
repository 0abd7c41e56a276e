//! A run once more from its journal: the same base and the recorded answers, with tools that run in
//! containers again or came to what was recorded.
//!
//! Owns: where a replay and the recorded run are held against each other.
//! Takes: a run's directory, and where tool results come from.
//! Gives: a comparison, and the replay's own run where it is kept.
//! Never: asks a model, delivers anything, writes to the recorded run.

mod answers;
mod compare;
mod likeness;
mod order;
mod recorded;
mod still;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::agent::Stop;
use crate::id::{RunId, TreeId};
use crate::journal::{self, Agent, Event, Line, RunStarted, State, Writer};
use crate::run::again::past::Past;
use crate::run::again::{files, resume};
use crate::run::begin::base;
use crate::run::begin::fresh::Fresh;
use crate::run::begin::kept::Kept;
use crate::run::begin::lock;
use crate::run::begin::start::{self, Begun, Opened};
use crate::run::shared::Shared;
use crate::run::{Delivery, Error, Models, Options, Order, Status, Stopper, Watch};
use crate::sandbox::{self, Changes, Engine, Image, Sandbox};
use crate::trace::{RunStart, Tracer};
use crate::workspace::{self, Base, Store};
use crate::{model, plan};
use answers::{Answers, Beyond, Ends};
use order::{decisions, order};
use recorded::{Recorded, Stage};

pub use compare::{Difference, Requests, Results};
pub use likeness::{Changed, Comparison, Likeness};

/// Characters of the recorded run's id in that of its replay.
const PREFIX: usize = 28;

/// A run that can be replayed; nobody else works on it meanwhile.
pub struct Replayable {
    dir: PathBuf,
    _lock: File,
    lines: Vec<Line>,
    started: RunStarted,
    kept: Kept,
    pub plan_text: String,
    /// The files that its plan names.
    pub plan_files: BTreeMap<String, String>,
}

/// What answers the agents' calls.
pub enum Tools {
    /// Containers of this engine.
    Live(Arc<dyn Engine>),
    /// The journal.
    Recorded,
}

/// How a run is replayed.
pub struct Replaying {
    pub plan: plan::Plan,
    pub options: Options,
    pub tools: Tools,
    pub watch: Arc<dyn Watch>,
    pub stop: Stopper,
    /// Values that its journal must not hold.
    pub secrets: Vec<String>,
    /// Whether the replay's own run stays.
    pub after: After,
}

/// What becomes of the replay's own run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Remove,
    Keep,
}

/// What a replay came to.
pub struct Replayed {
    pub comparison: Comparison,
    /// Why it could not go on, when Docker or the disk failed it.
    pub failed: Option<String>,
    /// The signal's exit code, when one stopped it.
    pub stopped: Option<i32>,
    /// Its own run, when that was to stay.
    pub run: Option<RunId>,
}

impl Replayable {
    /// Takes the lock of a run's directory and reads what it was started with.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let lock = lock::take(dir)?;
        let lines = journal::read(&dir.join("journal.jsonl"))?.lines;
        let Some((_, started)) = State::of(&lines).started else {
            return Err(resume::not_begun(dir));
        };
        if let Some(of) = &started.replay_of {
            return Err(refused(
                format!("the run {} is itself a replay of {of}", started.run),
                format!("wharf replay {of}"),
            ));
        }
        let kept = resume::kept_of(&lines, &started);
        let kept = kept.map_err(|why| resume::unreadable(dir, &why))?;
        Ok(Self {
            plan_text: files::plan_text(dir, &started)?,
            plan_files: files::plan_files(dir, &started)?,
            dir: dir.to_owned(),
            _lock: lock,
            lines,
            started,
            kept,
        })
    }

    pub fn id(&self) -> &RunId {
        &self.started.run
    }

    /// How it was started.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// How many answers of a model it holds.
    pub fn answers(&self) -> usize {
        let answered = |line: &&Line| matches!(line.event, Event::ModelAnswered { .. });
        self.lines.iter().filter(answered).count()
    }

    /// The snapshot of the operator's directory that it began with.
    fn base(&self) -> Result<Base, Error> {
        let state = State::of(&self.lines);
        let details = state.base.map(|base| base.details).unwrap_or_default();
        serde_json::from_value(details).map_err(|_| {
            refused(
                format!("the run {} took no base snapshot", self.started.run),
                format!("wharf show {}", self.started.run),
            )
        })
    }
}

/// What a run asks of the recording that it is a replay of.
pub(super) struct Script {
    ends: Ends,
    answers: Arc<Answers>,
    recorded: Option<Arc<Recorded>>,
    /// What was decided about calls, by agent and call id: nobody is asked again, and no hook runs.
    decided: HashMap<(Agent, String), (bool, Option<String>)>,
    /// Fires where the recording ends and the run does not.
    over: tokio::sync::watch::Sender<bool>,
}

impl Script {
    /// How a call ends that no answer was recorded of; None where one was, or never could be.
    pub fn stop(&self, shared: &Shared, who: &Agent, call: u32) -> Option<Stop> {
        match self.ends.beyond(who, call)? {
            Beyond::Stopped(stop) => Some(stop),
            Beyond::Astray => None,
            Beyond::Over => {
                self.over.send_replace(true);
                shared.stop.cancel.cancel();
                Some(Stop::Cancelled)
            }
        }
    }

    /// What was decided about a call, and why.
    pub fn decided(&self, who: &Agent, id: &str) -> Option<&(bool, Option<String>)> {
        self.decided.get(&(who.clone(), id.to_owned()))
    }

    /// The sandbox of an agent, where its tools are recorded.
    pub fn sandbox(&self, who: &Agent, image: &Image) -> Option<Arc<dyn Sandbox>> {
        let recorded = self.recorded.as_ref()?;
        Some(recorded.sandbox(who, image))
    }

    /// What an agent's turn changed, where its tools are recorded.
    pub async fn changes(
        &self,
        store: &Store,
        turn: (&Agent, u32),
        from: &crate::id::CommitId,
    ) -> Option<Result<Changes, workspace::Error>> {
        let recorded = self.recorded.as_ref()?;
        Some(recorded.changes(store, turn, from).await)
    }

    /// What the acceptance commands came to, where tools are recorded.
    pub fn accepted(
        &self,
        round: u32,
        tree: &TreeId,
        commands: &[plan::AcceptanceCommand],
    ) -> Option<crate::run::judge::acceptance::Accepted> {
        let recorded = self.recorded.as_ref()?;
        Some(recorded.accepted(round, tree, commands))
    }
}

/// Runs it again to its end, or to where the recording ends, and compares both.
pub async fn replay(of: Replayable, how: Replaying) -> Result<Replayed, Error> {
    let (after, stop) = (how.after, how.stop.clone());
    let id = id_of(&of.started.run);
    let (dir, lock) = start::make_dir(&how.options.state, &id)?;
    // Gone again when it does not begin, and when it is over unless it is to stay.
    let fresh = Fresh::new(&dir);
    let (opened, script) = open(&of, how, (&id, &dir), lock).await?;
    let store = opened.shared.store.clone();
    let summary = start::conduct(opened).await?;
    let signal = stop.exit_code.load(std::sync::atomic::Ordering::SeqCst);
    let stopped = (signal != 0 && stop.cancel.is_cancelled()).then_some(signal);
    let unanswered = script.answers.missing();
    let recorded_failed = State::of(&of.lines)
        .ended
        .is_some_and(|e| e.status == "error");
    let failed = (summary.status == Status::Error && unanswered.is_empty() && !recorded_failed)
        .then(|| summary.reason.clone());
    let cut = match (stopped, &failed) {
        (Some(_), _) => Some("the replay was stopped by a signal".to_owned()),
        (None, Some(reason)) => Some(format!("the replay could not go on: {reason}")),
        (None, None) if *script.over.borrow() || !is_whole(&of.lines) => {
            Some("the recorded run was cut off before its end".to_owned())
        }
        (None, None) => None,
    };
    let mut comparison = compared(&of, &dir, &store, cut).await?;
    comparison.unanswered = unanswered;
    let run = (after == After::Keep).then(|| {
        fresh.begun();
        id
    });
    Ok(Replayed {
        comparison,
        failed,
        stopped,
        run,
    })
}

async fn open(
    of: &Replayable,
    how: Replaying,
    (id, dir): (&RunId, &Path),
    lock: File,
) -> Result<(Opened, Arc<Script>), Error> {
    let base = of.base()?;
    let script = Arc::new(script(of, &how.tools)?);
    let order = order(of, how, (id, dir), &script);
    start::write(&dir.join("plan.yaml"), order.plan_text.as_bytes())?;
    start::keep_files(&order, dir)?;
    let secrets = &order.keep.secrets;
    let (writer, journal, _) = Writer::masking(&dir.join("journal.jsonl"), secrets)?;
    let span = order.tracer.run(&RunStart {
        run: id.to_string(),
        plan: order.plan.name.clone(),
    });
    let started = RunStarted {
        replay_of: Some(of.started.run.clone()),
        ..start::started(&order, id, &span)
    };
    writer.append(Event::RunStarted(started)).await?;
    order.watch.notice(&start::announcement(&order, id, dir));
    let source = |source| Error::Workspace { source };
    let git = order.options.git.clone();
    let below = Store::open(git.clone(), of.dir.join("store.git")).map_err(source)?;
    Store::over(git, dir.join("store.git"), &below)
        .await
        .map_err(source)?;
    let taken = of.lines.iter().find_map(|line| match &line.event {
        taken @ Event::BaseTaken { .. } => Some(taken.clone()),
        _ => None,
    });
    if let Some(taken) = taken {
        writer.append(taken).await?;
    }
    let based = base::stored(&order, dir, base).await?;
    let begun = Begun {
        id: id.clone(),
        dir: dir.to_owned(),
        journal: writer,
        span,
        past: Past::default(),
        script: Some(script.clone()),
    };
    let shared = Arc::new(start::share(order, begun, based));
    let opened = Opened {
        shared,
        journal,
        lock,
    };
    Ok((opened, script))
}

fn script(of: &Replayable, tools: &Tools) -> Result<Script, Error> {
    let path = of.dir.join("journal.jsonl");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Io {
        operation: "read",
        path: path.clone(),
        source,
    })?;
    let answers = Answers::of(&path.display().to_string(), &text);
    let answers = answers.map_err(|error| {
        refused(
            format!("the run {} cannot be replayed: {error}", of.started.run),
            format!("wharf log {}", of.started.run),
        )
    })?;
    let recorded = match tools {
        Tools::Live(_) => None,
        Tools::Recorded => Some(Arc::new(Recorded::of(&of.lines, &of.dir)?)),
    };
    Ok(Script {
        ends: Ends::of(&of.lines),
        answers: Arc::new(answers),
        recorded,
        decided: decisions(&of.lines),
        over: tokio::sync::watch::Sender::new(false),
    })
}

async fn compared(
    of: &Replayable,
    dir: &Path,
    store: &Store,
    cut: Option<String>,
) -> Result<Comparison, Error> {
    let source = |source| Error::Workspace { source };
    let lines = journal::read(&dir.join("journal.jsonl"))?.lines;
    let was = likeness::Ends::of(&State::of(&of.lines), store).await;
    let is = likeness::Ends::of(&State::of(&lines), store).await;
    let (was, is) = (was.map_err(source)?, is.map_err(source)?);
    let is_cut = cut.is_some();
    let mut comparison = likeness::compare(&was, &is, likeness::Cut(cut));
    let text = |dir: &Path, value: &serde_json::Value| {
        journal::whole(dir, value).unwrap_or_else(|_| value.clone())
    };
    let before = |value: &serde_json::Value| text(&of.dir, value);
    let now = |value: &serde_json::Value| text(dir, value);
    comparison.results = compare::results((&of.lines, &before), (&lines, &now), is_cut);
    comparison.requests = compare::requests(&of.lines, &lines);
    Ok(comparison)
}

/// True for a run that came to an end of its own.
fn is_whole(lines: &[Line]) -> bool {
    let ended = State::of(lines).ended;
    ended.is_some_and(|ended| ended.status != "interrupted")
}

fn id_of(run: &RunId) -> RunId {
    let salt = (crate::run::call::gate::jitter() * 65536.0) as u32;
    let prefix: String = run.as_str().chars().take(PREFIX).collect();
    RunId::new(format!("{prefix}-replay-{salt:04x}"))
}

fn refused(message: String, hint: String) -> Error {
    Error::Start {
        code: 2,
        kind: "run",
        message,
        hint,
    }
}
