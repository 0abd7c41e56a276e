//! A recorded run put back to where it stood after some bytes of its journal, and resumed from there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wharf::journal::{self, Event, Line};
use wharf::run::{self, Found, Raised, Status, Summary};
use wharf::workspace::Git;
use wharf::{id, plan};

use crate::counted::Counted;
use crate::server::{Answer, Ask, FakeModel};
use crate::world::{Seen, World, connect};

/// A run that went to its end, and everything it left.
pub struct Recorded {
    pub world: World,
    pub plan: String,
    pub summary: Summary,
    pub lines: Vec<Line>,
    /// The journal's bytes.
    pub journal: Vec<u8>,
    pub patch: Option<Vec<u8>>,
    pub requests: usize,
}

/// What a resumed run came to.
pub struct Again {
    pub summary: Summary,
    pub lines: Vec<Line>,
    pub requests: Vec<serde_json::Value>,
    pub patch: Option<Vec<u8>>,
    pub engine: Counted,
    pub notices: Vec<run::Notice>,
    /// Its state directory, held.
    pub state: tempfile::TempDir,
}

impl Again {
    /// It came to this end; the reason is said where it did not.
    #[track_caller]
    pub fn ends(&self, status: Status) {
        assert_eq!(self.summary.status, status, "{}", self.summary.reason);
    }
}

impl Recorded {
    /// Runs a plan to its end.
    pub async fn of(
        files: &[(&str, &str)],
        plan: &str,
        script: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let world = World::new(files);
        let ran = world.run(plan, script).await;
        let journal = std::fs::read(world.state.join("runs/run/journal.jsonl")).unwrap();
        Self {
            plan: plan.to_owned(),
            patch: patch_of(&ran.summary),
            summary: ran.summary,
            lines: ran.journal,
            requests: ran.server.requests().len(),
            journal,
            world,
        }
    }

    /// The byte after each line of the journal, the first of them 0.
    pub fn boundaries(&self) -> Vec<usize> {
        let ends = self.journal.iter().enumerate();
        let ends = ends
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at + 1);
        std::iter::once(0).chain(ends).collect()
    }

    /// A state directory as a process left it that was killed when the journal had these bytes. The
    /// store may hold more than it did then, which nothing refers to.
    pub fn killed(&self, journal: &[u8]) -> tempfile::TempDir {
        let state = in_memory();
        let dir = run_dir(state.path());
        copy(&self.world.state.join("runs/run"), &dir);
        for name in ["result.json", "report.md", "result.patch"] {
            drop(std::fs::remove_file(dir.join(name)));
        }
        std::fs::write(dir.join("journal.jsonl"), journal).unwrap();
        state
    }

    /// Resumes what `killed` left, against this script; the server's own checks must find nothing.
    pub async fn resume(
        &self,
        state: tempfile::TempDir,
        raised: Raised,
        script: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
    ) -> Result<Again, run::Error> {
        let server = FakeModel::start(script).await;
        let (engine, seen) = (Counted::default(), Arc::new(Seen::default()));
        let dir = run_dir(state.path());
        let summary = match run::reopen(&dir, raised)? {
            Found::Ended(summary) => *summary,
            Found::Open(reopened) => {
                let load = |path: &str| Err(format!("no file {path}"));
                let plan = plan::parse(&reopened.plan_text, "plan.yaml", &load);
                let mut plan = plan.map_err(|error| run::Error::Start {
                    code: 2,
                    kind: "plan",
                    message: error.to_string(),
                    hint: error.hint.clone(),
                })?;
                reopened.kept().lay(&mut plan);
                let mut order = self.world.order(&self.plan, connect(&server));
                order.options.state = state.path().to_owned();
                order.options.run_id = Some(id::RunId::new("run"));
                order.options.git = Git::at(env!("PATH"));
                order.plan = plan;
                order.engine = Arc::new(engine.clone());
                order.watch = seen.clone();
                order.stop = run::Stopper::default();
                run::resume(*reopened, order).await?
            }
        };
        assert_eq!(server.violations(), Vec::<String>::new());
        let read = journal::read(&dir.join("journal.jsonl")).unwrap();
        assert_eq!(read.torn, 0);
        let notices = seen.notices.lock().unwrap().clone();
        Ok(Again {
            patch: patch_of(&summary),
            summary,
            lines: read.lines,
            requests: server.requests(),
            engine,
            notices,
            state,
        })
    }
}

/// A directory that is in memory where the machine has such a place: the disk's own time is none of
/// what these tests are about.
fn in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match tempfile::tempdir_in(memory) {
        Ok(dir) => dir,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

pub fn run_dir(state: &Path) -> PathBuf {
    state.join("runs/run")
}

/// How many records are of a kind.
pub fn count(lines: &[Line], of: impl Fn(&Event) -> bool) -> usize {
    lines.iter().filter(|line| of(&line.event)).count()
}

fn patch_of(summary: &Summary) -> Option<Vec<u8>> {
    let path = summary.patch.as_ref()?;
    Some(std::fs::read(path).unwrap())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
