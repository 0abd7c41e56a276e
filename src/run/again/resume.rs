//! A run of an earlier process goes on, from its journal alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::journal::{self, Event, Line, Read, RunStarted, State, Writer};
use crate::run::again::files::{PLAN, is_gone, plan_files, plan_text, remove};
use crate::run::again::past::Past;
use crate::run::begin::base;
use crate::run::begin::kept::{self, Kept};
use crate::run::begin::lock;
use crate::run::begin::price;
use crate::run::begin::start::{self, Begun, Opened};
use crate::run::board::Notice;
use crate::run::end::result;
use crate::run::{Error, Models, Order, Status, Summary};
use crate::trace::{Origin, RunStart};
use crate::workspace::Base;

/// What is asked for beside going on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Raised {
    pub tokens: Option<u64>,
    pub cost_usd: Option<f64>,
    pub time: Option<Duration>,
    /// Work the failed subtasks of the last round again.
    pub retry_failed: bool,
}

/// What a run's directory holds.
pub enum Found {
    /// A run that came to its end, with its result.
    Ended(Box<Summary>),
    Open(Box<Reopened>),
}

/// A run that can go on, locked for this process.
pub struct Reopened {
    dir: PathBuf,
    lock: File,
    read: Read,
    started: RunStarted,
    kept: Kept,
    raised: Raised,
    pub plan_text: String,
    /// The files that its plan names.
    pub plan_files: BTreeMap<String, String>,
}

/// Looks at a run's directory and takes its lock, unless the run has ended and nothing is raised.
pub fn reopen(dir: &Path, raised: Raised) -> Result<Found, Error> {
    let journal = dir.join("journal.jsonl");
    let state = State::of(&journal::read(&journal)?.lines);
    if let Some(summary) = finished(&state, dir, raised) {
        return Ok(Found::Ended(Box::new(summary)));
    }
    let lock = lock::take(dir)?;
    // Whoever held the lock until now may have written.
    let read = journal::read(&journal)?;
    let state = State::of(&read.lines);
    if let Some(summary) = finished(&state, dir, raised) {
        return Ok(Found::Ended(Box::new(summary)));
    }
    let Some((_, started)) = state.started else {
        return Err(not_begun(dir));
    };
    if let Some(of) = &started.replay_of {
        return Err(replay(&started, of));
    }
    let mut kept = kept_of(&read.lines, &started).map_err(|why| unreadable(dir, &why))?;
    kept.tokens = raised.tokens.unwrap_or(kept.tokens);
    kept.cost_usd = raised.cost_usd.or(kept.cost_usd);
    if let Some(time) = raised.time {
        kept.time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    }
    Ok(Found::Open(Box::new(Reopened {
        plan_text: plan_text(dir, &started)?,
        plan_files: plan_files(dir, &started)?,
        dir: dir.to_owned(),
        lock,
        read,
        started,
        kept,
        raised,
    })))
}

impl Reopened {
    pub fn id(&self) -> &crate::id::RunId {
        &self.started.run
    }

    pub fn task(&self) -> &str {
        &self.started.task
    }

    /// The operator's directory.
    pub fn workspace(&self) -> &Path {
        Path::new(&self.started.workspace)
    }

    /// How it was started, with the limits that are raised now.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Where its trace began.
    pub fn origin(&self) -> Option<Origin> {
        let ended = |line: &Line| matches!(line.event, Event::RunEnded { .. });
        Some(Origin {
            trace: self.started.trace_id.clone()?,
            root: self.started.root_span.clone(),
            ended: self.read.lines.iter().any(ended),
        })
    }

    /// What is not as it was when the run began, as far as it can be told from the order.
    fn differences(&self, order: &Order) -> Vec<String> {
        let mut said = Vec::new();
        if order.plan.hash != self.started.plan_hash {
            said.push(
                "the plan in the run's directory is not the one that the run began with".to_owned(),
            );
        }
        if is_gone(&self.dir, PLAN) {
            said.push(format!(
                "{PLAN} is gone from the run's directory; the run goes on with the plan in its journal"
            ));
        }
        if let Some(path) = &self.kept.plan_path
            && std::fs::read_to_string(path).is_ok_and(|now| now != self.plan_text)
        {
            said.push(format!(
                "{} changed since the run began; the run goes on with the plan it began with",
                path.display()
            ));
        }
        let now = kept::servers(&order.models);
        for (model, server) in &self.kept.servers {
            if let Some(other) = now.get(model).filter(|now| *now != server) {
                said.push(format!("{model} is asked at {other} now, not at {server}"));
            }
        }
        said
    }
}

/// Goes on with a run to its end.
pub async fn resume(reopened: Reopened, order: Order) -> Result<Summary, Error> {
    price::check(&order)?;
    let differences = reopened.differences(&order);
    let opened = open(reopened, order).await?;
    for text in differences {
        opened.shared.warn(text);
    }
    start::conduct(opened).await
}

async fn open(reopened: Reopened, order: Order) -> Result<Opened, Error> {
    let Reopened {
        dir,
        lock,
        read,
        started,
        kept,
        raised,
        ..
    } = reopened;
    // They tell of an end that is none any more.
    for name in ["result.json", "report.md"] {
        remove(&dir.join(name))?;
    }
    let secrets = &order.keep.secrets;
    let (writer, journal, torn) = Writer::masking(&dir.join("journal.jsonl"), secrets)?;
    let resumed = Event::Resumed {
        wharf_version: env!("CARGO_PKG_VERSION").to_owned(),
        retry_failed: raised.retry_failed,
        torn,
        options: serde_json::to_value(&kept).unwrap_or_default(),
    };
    let seq = writer.append(resumed.clone()).await?;
    let past = past(read, seq, resumed, &order.models);
    let span = order.tracer.run(&RunStart {
        run: started.run.to_string(),
        plan: order.plan.name.clone(),
    });
    order
        .watch
        .notice(&start::announcement(&order, &started.run, &dir));
    order.watch.notice(&going_on(&started, &past, torn));
    let based = match base_of(&past) {
        Some(base) => base::stored(&order, &dir, base).await?,
        None => {
            // What an unfinished start left in the store is known to nobody.
            remove(&dir.join("store.git"))?;
            base::taken(&order, &dir, &writer).await?
        }
    };
    let (usage, cost_usd, _) = past.state().totals();
    let begun = Begun {
        id: started.run,
        dir,
        journal: writer,
        span,
        past,
        script: None,
    };
    let shared = start::share(order, begun, based);
    shared.count(|totals| {
        totals.tokens = usage.input_tokens + usage.output_tokens;
        totals.cost_usd = cost_usd;
    });
    Ok(Opened {
        shared: Arc::new(shared),
        journal,
        lock,
    })
}

/// The journal as it is now, its newest line included.
fn past(read: Read, seq: u64, resumed: Event, models: &Models) -> Past {
    let mut lines = read.lines;
    lines.push(Line {
        seq,
        at: jiff::Timestamp::now(),
        prev: read.chain,
        event: resumed,
    });
    let abouts = models.all().map(|model| model.about());
    let priced = abouts.filter_map(|about| Some((about.name, about.price?)));
    let prices: BTreeMap<_, _> = priced.collect();
    Past::of(&lines, &|name| prices.get(name).copied())
}

fn going_on(started: &RunStarted, past: &Past, torn: u64) -> Notice {
    let (done, open) = past.count();
    Notice::Resumed {
        run: started.run.to_string(),
        done,
        open,
        torn,
        lost_tokens: past.lost.tokens as u64,
        seconds: past.active().as_secs_f64(),
    }
}

fn base_of(past: &Past) -> Option<Base> {
    let base = past.state().base.as_ref()?;
    serde_json::from_value(base.details.clone()).ok()
}

/// The result of a run that has nothing left to do.
fn finished(state: &State, dir: &Path, raised: Raised) -> Option<Summary> {
    let ended = state.ended.as_ref()?;
    let summary = serde_json::from_value(ended.result.clone());
    let summary: Summary = summary.unwrap_or_else(|_| result::of(state, dir));
    let higher = raised.tokens.is_some() || raised.cost_usd.is_some() || raised.time.is_some();
    let goes_on = match summary.status {
        Status::Interrupted | Status::Error => true,
        Status::Limited => higher,
        Status::Failed => raised.retry_failed,
        Status::Unverified => raised.retry_failed && summary.exit_code != 0,
        Status::Passed => false,
    };
    (!goes_on).then_some(summary)
}

/// How the run was started, or last resumed.
pub(in crate::run) fn kept_of(lines: &[Line], started: &RunStarted) -> Result<Kept, String> {
    let resumed = lines.iter().rev().find_map(|line| match &line.event {
        Event::Resumed { options, .. } if !options.is_null() => Some(options),
        _ => None,
    });
    let options = resumed.unwrap_or(&started.options);
    serde_json::from_value(options.clone()).map_err(|error| error.to_string())
}

fn name(dir: &Path) -> String {
    dir.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn replay(started: &RunStarted, of: &crate::id::RunId) -> Error {
    Error::Start {
        code: 2,
        kind: "run",
        message: format!(
            "the run {} is a replay of {of}, which does not go on",
            started.run
        ),
        hint: format!("wharf replay {of}"),
    }
}

pub(in crate::run) fn not_begun(dir: &Path) -> Error {
    Error::Start {
        code: 2,
        kind: "run",
        message: format!(
            "the run {} ended before its first record: nothing was asked of a model",
            name(dir)
        ),
        hint: "start the task again with wharf run".to_owned(),
    }
}

pub(in crate::run) fn unreadable(dir: &Path, why: &str) -> Error {
    Error::Start {
        code: 3,
        kind: "state",
        message: format!(
            "the run {} cannot go on: what it was started with cannot be read: {why}",
            name(dir)
        ),
        hint: format!("`wharf log {}` shows what it did", name(dir)),
    }
}
