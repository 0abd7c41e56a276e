//! A run's beginning and end: its directory, lock, journal, store and base; then its result.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::id::RunId;
use crate::journal::{self, Event, RunStarted, Writer};
use crate::run::again::changed;
use crate::run::again::past::Past;
use crate::run::allow::consent::Office;
use crate::run::allow::egress;
use crate::run::allow::rate::Rates;
use crate::run::begin::base::{self, Based};
use crate::run::begin::fresh::Fresh;
use crate::run::begin::kept::Kept;
use crate::run::begin::lock;
use crate::run::begin::price::check;
use crate::run::board::{Board, Notice};
use crate::run::call::gate::Gates;
use crate::run::call::pot::{Limits, Pot};
use crate::run::end::finish;
use crate::run::replay::Script;
use crate::run::round::drive::Drive;
use crate::run::shared::Shared;
use crate::run::work::changes::KeptOut;
use crate::run::{Error, Order, Summary};
use crate::sandbox::Pool;
use crate::trace::{RunStart, Span};

/// The files that a plan names, beside `plan.yaml` in the run's directory.
pub(in crate::run) const PLAN_FILES: &str = "plan.files.json";

/// Runs a task under a plan to its end. An error means that the run could not start, or that its
/// own records failed; everything else is in the summary.
pub async fn start(order: Order) -> Result<Summary, Error> {
    check(&order)?;
    let opened = open(order).await?;
    conduct(opened).await
}

/// A run from wherever it stands to its end.
pub(in crate::run) async fn conduct(opened: Opened) -> Result<Summary, Error> {
    let Opened {
        shared,
        journal,
        lock,
    } = opened;
    let mut drive = Drive::new(shared.clone());
    let driven = match shared.past.resumed() {
        false => drive.run().await,
        true => beside(drive.run(), changed::workspace(&shared), &shared).await,
    };
    let ended = match driven {
        Ok(()) => finish::end(&mut drive).await,
        Err(error) => finish::broken(&mut drive, error).await,
    };
    shared.pool.close().await;
    shared.span.end();
    drop(drive);
    drop(shared);
    journal.close().await;
    drop(lock);
    ended
}

/// Runs while something is looked up that may be worth a warning; nothing waits for that.
async fn beside<T>(
    run: impl Future<Output = T>,
    look: impl Future<Output = Option<String>>,
    shared: &Shared,
) -> T {
    tokio::pin!(run, look);
    tokio::select! {
        done = &mut run => return done,
        found = &mut look => if let Some(text) = found {
            shared.warn(text);
        },
    }
    run.await
}

/// A run that is ready to go.
pub(in crate::run) struct Opened {
    pub shared: Arc<Shared>,
    pub journal: journal::Handle,
    pub lock: File,
}

/// A run's own records, open.
pub(in crate::run) struct Begun {
    pub id: RunId,
    pub dir: PathBuf,
    pub journal: Writer,
    pub span: Span,
    pub past: Past,
    pub script: Option<Arc<Script>>,
}

async fn open(order: Order) -> Result<Opened, Error> {
    let id = order.options.run_id.clone().unwrap_or_else(new_id);
    let (dir, lock) = make_dir(&order.options.state, &id)?;
    let fresh = Fresh::new(&dir);
    write(&dir.join("plan.yaml"), order.plan_text.as_bytes())?;
    keep_files(&order, &dir)?;
    let secrets = &order.keep.secrets;
    let (writer, journal, _) = Writer::masking(&dir.join("journal.jsonl"), secrets)?;
    let span = order.tracer.run(&RunStart {
        run: id.to_string(),
        plan: order.plan.name.clone(),
    });
    writer
        .append(Event::RunStarted(started(&order, &id, &span)))
        .await?;
    fresh.begun();
    order.watch.notice(&announcement(&order, &id, &dir));
    let based = base::taken(&order, &dir, &writer).await?;
    let begun = Begun {
        id,
        dir,
        journal: writer,
        span,
        past: Past::default(),
        script: None,
    };
    Ok(Opened {
        shared: Arc::new(share(order, begun, based)),
        journal,
        lock,
    })
}

/// The files that the plan names, as they were read; a resumed run reads its plan from these.
pub(in crate::run) fn keep_files(order: &Order, dir: &Path) -> Result<(), Error> {
    if order.keep.plan_files.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_vec_pretty(&order.keep.plan_files).unwrap_or_default();
    write(&dir.join(PLAN_FILES), &text)
}

/// Everything that the tasks of the run may read; what the base had to tell is told.
pub(in crate::run) fn share(order: Order, begun: Begun, mut based: Based) -> Shared {
    let told = based.told.take();
    let shared = gathered(order, begun, based);
    if let Some(text) = told {
        shared.warn(text);
    }
    shared
}

fn gathered(order: Order, begun: Begun, based: Based) -> Shared {
    let limits = Limits {
        tokens: order.plan.run.tokens,
        cost_usd: order.plan.run.cost_usd,
    };
    let (pot, keeper) = Pot::new(limits, begun.past.spent);
    tokio::spawn(keeper);
    let gates = Gates::new(order.models.all().map(|m| m.about().provider));
    let names = based
        .tree
        .entries
        .keys()
        .map(|p| String::from_utf8_lossy(p).into_owned());
    let board = Arc::new(Board::default());
    order.watch.board(board.clone());
    let own = order.keep.plan_path.as_deref().and_then(Path::parent);
    let own = own.unwrap_or(&order.workspace).to_owned();
    let consent = Office::new(&order.plan, &own, order.consent, &begun.past.grants);
    Shared {
        rates: Rates::new(&order.plan.tools),
        consent,
        base_paths: Arc::new(names.collect()),
        kept_out: KeptOut::of(&based.base),
        base_rules: based.rules,
        id: begun.id,
        dir: begun.dir,
        plan: order.plan,
        task: order.task,
        workspace: order.workspace,
        options: order.options,
        store: based.store,
        base: based.base,
        history: based.history,
        journal: begun.journal,
        spent: begun.past.active(),
        unanswered: tokio::sync::watch::Sender::new(begun.past.unanswered()),
        past: begun.past,
        script: begun.script,
        pool: Pool::new(order.engine.clone(), &order.stop.cancel),
        engine: order.engine,
        models: order.models,
        pot,
        gates,
        hopeless: tokio::sync::watch::Sender::new(BTreeMap::new()),
        doubted: tokio::sync::watch::Sender::default(),
        board,
        watch: order.watch,
        stop: order.stop,
        span: begun.span,
        started: tokio::time::Instant::now(),
    }
}

pub(in crate::run) fn started(order: &Order, id: &RunId, span: &Span) -> RunStarted {
    RunStarted {
        wharf_version: env!("CARGO_PKG_VERSION").to_owned(),
        journal: journal::VERSION,
        run: id.clone(),
        task: order.task.clone(),
        plan_name: order.plan.name.clone(),
        plan_hash: order.plan.hash.clone(),
        workspace: order.workspace.display().to_string(),
        models: finish::model_names(&order.models),
        options: serde_json::to_value(Kept::of(order)).unwrap_or_default(),
        plan: order.plan_text.clone(),
        plan_files: order.keep.plan_files.clone(),
        replay_of: None,
        trace_id: span.trace_id(),
        root_span: span.span_id(),
    }
}

pub(in crate::run) fn announcement(order: &Order, id: &RunId, dir: &Path) -> Notice {
    let names = finish::model_names(&order.models);
    Notice::Started {
        run: id.to_string(),
        task: order.task.clone(),
        recorded: names.iter().any(|name| name.starts_with("replay:")),
        model: names.join(", "),
        run_dir: dir.display().to_string(),
        network: egress::announced(&order.plan),
    }
}

/// UTC to the second, and four hex digits to tell runs of one second apart.
fn new_id() -> RunId {
    let now = jiff::Timestamp::now();
    let salt = (crate::run::call::gate::jitter() * 65536.0) as u32;
    RunId::new(format!("{}-{salt:04x}", now.strftime("%Y%m%d-%H%M%S")))
}

/// Makes the run's directory and takes its lock; the lock is what tells a live run from a dead one.
pub(in crate::run) fn make_dir(state: &Path, id: &RunId) -> Result<(PathBuf, File), Error> {
    let runs = state.join("runs");
    let dir = runs.join(id.as_str());
    let failed = |error: std::io::Error| Error::Start {
        code: 3,
        kind: "state",
        message: format!("cannot make {}: {error}", dir.display()),
        hint: "set WHARF_HOME to a directory that can be written".to_owned(),
    };
    let there = runs.ancestors().find(|folder| folder.is_dir());
    let there = there.map(Path::to_owned);
    std::fs::create_dir_all(&runs).map_err(failed)?;
    std::fs::create_dir(&dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::Start {
            code: 2,
            kind: "run_id",
            message: format!("there is a run {id} already"),
            hint: "choose another --run-id".to_owned(),
        },
        _ => failed(error),
    })?;
    let fresh = Fresh::new(&dir);
    let lock = lock::create(&dir).map_err(failed)?;
    // Its name, and those of the folders above it that are new, last as long as what is in it.
    for folder in runs.ancestors() {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed)?;
        if there.as_deref() == Some(folder) {
            break;
        }
    }
    fresh.begun();
    Ok((dir, lock))
}

/// Writes a file whole or not at all: beside it, synced, then renamed.
pub(in crate::run) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    use std::io::Write as _;
    let io = |operation| {
        let path = path.to_owned();
        move |source| Error::Io {
            operation,
            path,
            source,
        }
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io("write"))?;
    file.write_all(bytes).map_err(io("write"))?;
    file.as_file().sync_all().map_err(io("sync"))?;
    file.persist(path)
        .map_err(|error| io("rename")(error.error))?;
    // The name is on disk too: after a power loss the file is the old one or this one.
    let folder = File::open(folder).map_err(io("sync the folder of"))?;
    folder.sync_all().map_err(io("sync the folder of"))
}
