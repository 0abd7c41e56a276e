//! A small world for whole runs: a workspace, a state directory, a scripted model, a watcher.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use wharf::run::{Board, Delivery, Models, Notice, Options, Order, Stopper, Summary, Watch};
use wharf::sandbox::Engine;
use wharf::sandbox::memory::Memory;
use wharf::trace::Tracer;
use wharf::{journal, model, plan, run};

use crate::server::{Answer, Ask, FakeModel};

/// Everything a run leaves behind, under one temporary directory.
pub struct World {
    /// Held for its life: all of the above lies in it.
    _dir: tempfile::TempDir,
    pub state: PathBuf,
    pub workspace: PathBuf,
    pub engine: Arc<dyn Engine>,
    pub tracer: Tracer,
    pub watch: Arc<Seen>,
    pub stop: Stopper,
    pub options: Options,
}

/// A run that ended.
pub struct Ran {
    pub summary: Summary,
    pub server: FakeModel,
    pub notices: Vec<Notice>,
    pub journal: Vec<journal::Line>,
}

/// A watcher that keeps what it was told.
#[derive(Default)]
pub struct Seen {
    pub notices: Mutex<Vec<Notice>>,
}

impl Watch for Seen {
    fn notice(&self, notice: &Notice) {
        self.notices.lock().unwrap().push(notice.clone());
    }

    fn board(&self, _: Arc<Board>) {}
}

impl World {
    /// A world over the in-memory sandbox, its workspace holding these files.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (state, workspace) = (dir.path().join("state"), dir.path().join("workspace"));
        std::fs::create_dir(&workspace).unwrap();
        for (path, text) in files {
            put(&workspace.join(path), text);
        }
        let options = Options {
            state: state.clone(),
            machine: "test".to_owned(),
            run_id: Some(wharf::id::RunId::new("run")),
            delivery: Delivery::Default,
            apply: false,
            verify: true,
            plan_only: false,
            bootstrap: false,
            git: wharf::workspace::Git::at(env!("PATH")),
        };
        Self {
            _dir: dir,
            state,
            workspace,
            engine: Arc::new(Memory::default()),
            tracer: Tracer::none(),
            watch: Arc::default(),
            stop: Stopper::default(),
            options,
        }
    }

    /// An order for a plan's text with one model for all roles.
    pub fn order(&self, plan_text: &str, model: Arc<dyn model::Model>) -> Order {
        let plan = plan::parse(plan_text, "plan.yaml", &|path| {
            Err(format!("no file {path}"))
        });
        let plan = plan.unwrap_or_else(|error| panic!("{error}"));
        Order {
            task: plan
                .task
                .clone()
                .unwrap_or_else(|| "Do the work".to_owned()),
            plan,
            plan_text: plan_text.to_owned(),
            workspace: self.workspace.clone(),
            options: self.options.clone(),
            models: Models {
                default: vec![model],
                roles: BTreeMap::new(),
                summary: Vec::new(),
            },
            engine: self.engine.clone(),
            tracer: self.tracer.clone(),
            watch: self.watch.clone(),
            stop: self.stop.clone(),
            keep: run::Keep::default(),
            consent: run::Consent::default(),
        }
    }

    /// Runs a plan against a scripted server. The server's own checks must find nothing.
    pub async fn run(
        &self,
        plan_text: &str,
        script: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
    ) -> Ran {
        let server = FakeModel::start(script).await;
        let ran = run::start(self.order(plan_text, connect(&server))).await;
        let summary = ran.unwrap_or_else(|error| panic!("the run did not start: {error}"));
        assert_eq!(server.violations(), Vec::<String>::new());
        let path = self.state.join("runs/run/journal.jsonl");
        let journal = journal::read(&path).unwrap();
        assert_eq!(journal.torn, 0);
        let notices = self.watch.notices.lock().unwrap().clone();
        Ran {
            summary,
            server,
            notices,
            journal: journal.lines,
        }
    }
}

/// The model of a scripted server.
pub fn connect(server: &FakeModel) -> Arc<dyn model::Model> {
    // A second installation in one process is refused and changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut openai = model::Provider::openai(Some(server.base_url()), None);
    // Dollars per million tokens.
    openai.price = Some(model::Price {
        input: 1.0,
        cached_input: 1.0,
        output: 1.0,
    });
    let providers = BTreeMap::from([("openai".to_owned(), openai)]);
    model::open("openai/fake", &providers).unwrap()
}

/// Writes a file and the folders above it.
pub fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// `submit_report` with this status.
pub fn report(status: &str, summary: &str) -> Answer {
    Answer::call(
        "submit_report",
        serde_json::json!({"status": status, "summary": summary}),
    )
}

/// `write_file`.
pub fn write(path: &str, content: &str) -> Answer {
    Answer::call(
        "write_file",
        serde_json::json!({"path": path, "content": content}),
    )
}

/// A verdict that passes every criterion of the first message with `evidence`.
pub fn passes(criteria: &[&str], evidence: &str) -> Answer {
    verdict(
        "pass",
        criteria.iter().map(|c| (*c, "pass", evidence)).collect(),
    )
}

/// `submit_verdict` with these criteria: text, status, evidence.
pub fn verdict(verdict: &str, criteria: Vec<(&str, &str, &str)>) -> Answer {
    let criteria: Vec<Value> = criteria
        .into_iter()
        .map(|(criterion, status, evidence)| {
            serde_json::json!({"criterion": criterion, "status": status, "evidence": evidence})
        })
        .collect();
    Answer::call(
        "submit_verdict",
        serde_json::json!({"verdict": verdict, "summary": "looked at it", "criteria": criteria}),
    )
}
