//! Docker run by an ordinary user in a user namespace: what it cannot limit is told, and refused where a plan
//! is strict. It has a network namespace, a root and a socket to itself.
//!
//! Opt-in, since it needs root to become that user, `dockerd`, `rootlesskit` and the user's ranges of ids
//! (/etc/subuid, /etc/subgid): `WHARF_TEST_USER=NAME` and `-- --ignored`.

#![expect(
    clippy::disallowed_methods,
    reason = "tests ask the environment which user they may become"
)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use wharf::run::Status;
use wharf::sandbox::{self, Docker, Limit, Options};

use crate::battery::let_through;
use crate::container::{left, machine, note, open, python, run, spec};
use crate::operator::Operator;
use crate::podman::carry;
use crate::second::needs;
use crate::world::{World, report};

/// How long the daemon may take to answer after its start.
const START: Duration = Duration::from_secs(60);

/// A daemon of our own; it is ended with its containers when this is dropped.
struct Rootless {
    dir: tempfile::TempDir,
    child: Child,
}

/// The user to become.
fn named() -> String {
    let user = std::env::var("WHARF_TEST_USER").ok();
    user.expect("WHARF_TEST_USER names an ordinary user who may run a rootless dockerd")
}

/// What the user's process does once it has namespaces of its own: the links to the engine's own folders
/// lead out of them.
const INSIDE: &str = "rm -f /run/docker /run/containerd /run/xtables.lock; exec dockerd \"$@\"";

impl Rootless {
    async fn start(user: &str) -> Rootless {
        needs(&["dockerd", "rootlesskit", "setpriv", "unshare"]);
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        std::fs::write(dir.path().join("daemon.json"), "{}").unwrap();
        let owned = Command::new("chown")
            .args(["-R", user, &at("")])
            .status()
            .unwrap();
        assert!(owned.success());
        let apart = "ip link set lo up && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", apart, "sh"])
            .args([
                "setpriv",
                "--reuid",
                user,
                "--regid",
                user,
                "--clear-groups",
            ])
            .args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"])
            .arg(format!("HOME={}", at("")))
            .arg(format!("XDG_RUNTIME_DIR={}", at("run")))
            .args([
                "rootlesskit",
                "--net=host",
                "--copy-up=/etc",
                "--copy-up=/run",
            ])
            .args(["--propagation=rslave", "--state-dir", &at("state")])
            .args([
                "sh",
                "-c",
                INSIDE,
                "dockerd",
                "--config-file",
                &at("daemon.json"),
            ])
            .args(["--data-root", &at("root"), "--exec-root", &at("exec")])
            .args([
                "--pidfile",
                &at("pid"),
                "-H",
                &format!("unix://{}", at("docker.sock")),
            ])
            .args(["--bridge", "none", "--iptables=false", "--ip-forward=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = command.spawn().unwrap();
        let mut rootless = Rootless { dir, child };
        rootless.answers().await;
        rootless
    }

    fn address(&self) -> String {
        format!("unix://{}", self.dir.path().join("docker.sock").display())
    }

    async fn connect(&self) -> Result<Docker, sandbox::Error> {
        let options = Options {
            host: Some(self.address()),
            state: "/tmp/wharf-it-state".into(),
            machine: machine(),
            ..Options::default()
        };
        sandbox::connect(&options).await
    }

    fn look(&self) -> bollard::Docker {
        bollard::Docker::connect_with_unix(&self.address(), 60, bollard::API_DEFAULT_VERSION)
            .unwrap()
    }

    async fn answers(&mut self) {
        let end = Instant::now() + START;
        while self.connect().await.is_err() {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap();
            assert!(self.child.try_wait().unwrap().is_none(), "{}", log());
            assert!(Instant::now() < end, "{}", log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for Rootless {
    fn drop(&mut self) {
        // The daemon's own process ends the rest; its number is that of the machine in the file's namespace.
        let pid = rustix::process::Pid::from_child(&self.child);
        if let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::TERM) {
            note(&format!("the daemon is gone already: {error}"));
        }
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "opt-in: starts an ordinary user's engine (root, dockerd, rootlesskit, WHARF_TEST_USER)"]
async fn a_sandbox_holds_in_rootless_docker_and_what_it_does_not_limit_is_told() {
    let rootless = Rootless::start(&named()).await;
    carry(&rootless.address()).await;
    let docker = rootless.connect().await.unwrap();
    let sandbox = open(&docker, &spec(python(&docker).await, "rootless")).await;
    let doubts = sandbox.facts().doubts.clone();
    note(&format!("not held: {doubts:?}"));
    // Where control groups are delegated there are none.
    let limits = [Limit::Memory, Limit::Swap, Limit::Cpus, Limit::Processes];
    let told = |doubt: &sandbox::Doubt| limits.contains(&doubt.limit);
    assert!(doubts.iter().all(told), "{doubts:?}");
    for row in [14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 36] {
        let passed = let_through(sandbox.clone(), row).await;
        assert_eq!(passed, Vec::<String>::new(), "row {row}");
    }
    let (_, said) = run(sandbox.as_ref(), "cat /proc/self/uid_map").await;
    assert!(!said.contains("4294967295"), "a user namespace: {said}");
    sandbox.close().await;
    assert_eq!(left(&rootless.look(), "run-rootless").await, (0, 0));

    let mut world = World::new(&[("a.txt", "one\n")]);
    world.engine = Arc::new(docker);
    let plan = "version: 1\ntask: Do it\nsandbox: {strict: true}\n\
                subtasks: [{id: a, role: coder, brief: A}]\n";
    let ran = world.run(plan, |_| report("done", "nothing to do")).await;
    let refused = ran.summary.status == Status::Error;
    assert_eq!(refused, !doubts.is_empty(), "{}", ran.summary.reason);
    quickstart(&rootless, doubts.len()).await;
}

/// The README's first command, with a warning for each limit that is not held.
async fn quickstart(rootless: &Rootless, doubts: usize) {
    let mut operator = Operator::new();
    operator.env = vec![("DOCKER_HOST".to_owned(), rootless.address())];
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/quickstart.yaml");
    let plan = plan.display().to_string();
    let said = operator
        .wharf(None, &["run", "--plan", &plan, "--run-id", "run", "--json"])
        .await;
    let result = said.object();
    assert_eq!(said.code, Some(0), "{result:#} {}", said.stderr);
    assert_eq!(result["status"], json!("passed"));
    let warnings = result["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), doubts, "{warnings:?}");
    let limit = |warning: &serde_json::Value| warning.as_str().unwrap().contains("limit");
    assert!(warnings.iter().all(limit), "{warnings:?}");
}
