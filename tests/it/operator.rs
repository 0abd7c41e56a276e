//! An operator at a terminal: a home, a repository with everything a repository can hold, and the
//! real program run in them.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests ask the environment for their engine, and say aloud what they skip"
)]

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::FakeModel;
use crate::world::put;

/// How long any one thing may take before a test gives up on it.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Values that stand in Wharf's own environment and may be seen nowhere else.
pub const CANARIES: [&str; 2] = ["canary-123", "canary-456"];

/// Where `wharf` is typed; everything in it is gone with it.
pub struct Operator {
    dir: tempfile::TempDir,
    /// Further variables of the program.
    pub env: Vec<(String, String)>,
}

/// What the program said, and its exit code.
#[derive(Debug)]
pub struct Said {
    /// None: a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// The one object of `--json`.
    pub fn object(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// True when these tests are to go without an engine; said aloud.
pub fn skipped() -> bool {
    let skipped = std::env::var("WHARF_TEST_DOCKER").as_deref() == Ok("0");
    if skipped {
        eprintln!("SKIPPED: WHARF_TEST_DOCKER=0, nothing was asked of an engine");
    }
    skipped
}

impl Operator {
    /// An operator with an empty directory `work`.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let env = Vec::new();
        Self { dir, env }
    }

    /// The directory worked on, and where the program is started.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// A file beside the workspace, never in it.
    pub fn beside(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        put(&path, text);
        path.display().to_string()
    }

    /// A file of the run `run`.
    pub fn of_run(&self, name: &str) -> String {
        let path = self.state().join("runs/run").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The program with an environment of its own; killed when it is dropped.
    pub fn command(&self, server: Option<&FakeModel>, args: &[&str]) -> tokio::process::Command {
        // Whoever started the tests may have had signals ignored (nohup, a shell's background), and the
        // program keeps to that.
        let mut command = tokio::process::Command::new("/usr/bin/env");
        command
            .args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_wharf")])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.dir.path())
            .env("WHARF_HOME", self.state())
            .env("OPENAI_API_KEY", CANARIES[0])
            .env("AWS_SECRET_ACCESS_KEY", CANARIES[1])
            .current_dir(self.work())
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for name in ["DOCKER_HOST", "SSL_CERT_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if let Some(server) = server {
            command.env("OPENAI_BASE_URL", server.base_url());
        }
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Runs the program to its end.
    pub async fn wharf(&self, server: Option<&FakeModel>, args: &[&str]) -> Said {
        let child = self.command(server, args).spawn().unwrap();
        finish(child).await
    }

    /// `wharf run --run-id run --json` with this plan and these further arguments.
    pub async fn run(&self, server: &FakeModel, plan: &str, more: &[&str]) -> Said {
        let plan = self.beside("plan.yaml", plan);
        let mut args = vec!["run", "-f", &plan, "-C", ".", "--run-id", "run", "--json"];
        args.extend(more);
        self.wharf(Some(server), &args).await
    }

    /// Git's answer in the workspace; it takes no lock and writes no index.
    pub fn git(&self, args: &[&str]) -> String {
        let out = std::process::Command::new("git")
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.dir.path())
            .env("GIT_OPTIONAL_LOCKS", "0")
            .current_dir(self.work())
            .args(["-c", "user.name=Op", "-c", "user.email=op@example.org"])
            .args(args)
            .output()
            .unwrap();
        assert!(out.status.success(), "git {args:?}: {out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// A repository with tracked, changed, staged, half-staged, removed, untracked, ignored and
    /// hidden files, and one that may be executed.
    pub fn dirty_repository(&self) {
        let at = |name: &str| self.work().join(name);
        self.git(&["init", "-q", "-b", "main"]);
        put(&at("list.txt"), LINES);
        put(&at("tracked.txt"), "committed\n");
        put(&at("gone.txt"), "to be removed\n");
        put(&at("bin/tool.sh"), "#!/bin/sh\necho tool\n");
        std::fs::set_permissions(at("bin/tool.sh"), PermissionsExt::from_mode(0o755)).unwrap();
        put(&at(".gitignore"), "*.log\n");
        self.git(&["add", "."]);
        self.git(&["commit", "-q", "-m", "first"]);
        put(&at("tracked.txt"), "changed, not staged\n");
        put(&at("staged.txt"), "staged\n");
        put(&at("half.txt"), "staged half\n");
        self.git(&["add", "staged.txt", "half.txt"]);
        put(&at("half.txt"), "staged half\nand the other\n");
        std::fs::remove_file(at("gone.txt")).unwrap();
        put(&at("untracked/new.txt"), "new\n");
        put(&at("ignored.log"), "noise\n");
        put(&at(".env"), "TOKEN=canary-789\n");
        std::fs::set_permissions(at(".env"), PermissionsExt::from_mode(0o600)).unwrap();
    }

    /// Every path of the workspace with mode, modification time and bytes; of `.git` only what is
    /// the operator's: HEAD, index, configuration and the branch they stand on.
    pub fn photograph(&self) -> BTreeMap<PathBuf, String> {
        let mut seen = BTreeMap::new();
        look(&self.work(), &self.work(), &mut seen);
        for name in ["HEAD", "index", "config", "refs/heads/main"] {
            let path = self.work().join(".git").join(name);
            if path.exists() {
                seen.insert(path.clone(), portrait(&path));
            }
        }
        seen
    }
}

/// Nine lines, so that first and last do not touch.
pub const LINES: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n";

fn look(root: &Path, folder: &Path, seen: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path == root.join(".git") {
            continue;
        }
        seen.insert(path.clone(), portrait(&path));
        if path.is_dir() {
            look(root, &path, seen);
        }
    }
}

fn portrait(path: &Path) -> String {
    let about = std::fs::symlink_metadata(path).unwrap();
    let bytes = if about.is_file() {
        std::fs::read(path).unwrap()
    } else {
        Vec::new()
    };
    let (seconds, nanos) = (about.mtime(), about.mtime_nsec());
    let text = String::from_utf8_lossy(&bytes);
    format!("{:o} {seconds}.{nanos} {text}", about.mode())
}

/// Waits for the program's end.
pub async fn finish(child: tokio::process::Child) -> Said {
    let ended = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
    let out = ended.expect("it ends within the limit").unwrap();
    Said {
        code: out.status.code(),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

/// A client of our own at the engine that the program uses.
pub fn engine() -> bollard::Docker {
    bollard::Docker::connect_with_defaults().unwrap()
}

/// The containers of an operator's runs, dead ones too.
pub async fn containers(
    engine: &bollard::Docker,
    operator: &Operator,
) -> Vec<bollard::models::ContainerSummary> {
    let label = format!("wharf.state={}", operator.state().display());
    let options = bollard::query_parameters::ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), vec![label])])),
        ..Default::default()
    };
    engine.list_containers(Some(options)).await.unwrap()
}

/// The names of the networks of an operator's runs.
pub async fn networks(engine: &bollard::Docker, operator: &Operator) -> Vec<String> {
    let label = format!("wharf.state={}", operator.state().display());
    let options = bollard::query_parameters::ListNetworksOptions {
        filters: Some(HashMap::from([("label".to_owned(), vec![label])])),
    };
    let all = engine.list_networks(Some(options)).await.unwrap();
    all.into_iter().filter_map(|network| network.name).collect()
}

/// Asks until it is so; `what` is said when it never is.
pub async fn until<F: Future<Output = bool>>(limit: Duration, what: &str, so: impl Fn() -> F) {
    let end = Instant::now() + limit;
    while !so().await {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
