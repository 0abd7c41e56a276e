//! Podman's service as the engine: it reads the list of system calls from a file, has no word for some of
//! what Docker takes, and clears up in its own way. It has a network namespace, a root and a socket to itself.
//!
//! Opt-in, since it needs root, `podman` and a minute: `-- --ignored`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{self, Docker, Engine as _, Error, Image, Network, Options, Spec};

use crate::battery::let_through;
use crate::container::{empty_tree, left, machine, note, open, python, run, soon, spec};
use crate::faulty::socket;
use crate::operator::Operator;
use crate::proxy::{Proxy, Rule};
use crate::second::needs;
use crate::world::put;

/// How long the service may take to answer after its start.
const START: Duration = Duration::from_secs(60);

/// A service of our own; it is ended with its containers when this is dropped.
struct Podman {
    dir: tempfile::TempDir,
    child: Child,
}

impl Podman {
    async fn start() -> Podman {
        needs(&["podman", "runc", "unshare"]);
        let dir = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let runtime = dir.path().join("bin/runc");
        put(&runtime, WITHIN_RIGHTS);
        std::fs::set_permissions(&runtime, PermissionsExt::from_mode(0o755)).unwrap();
        let socket = format!("unix://{}", dir.path().join("podman.sock").display());
        let inside = "ip link set lo up && exec podman \"$@\"";
        let child = Command::new("unshare")
            .args(["--net", "sh", "-c", inside, "podman"])
            .args(places(dir.path()))
            .args(["system", "service", "--time", "0", &socket])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut podman = Podman { dir, child };
        podman.answers().await;
        podman
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("podman.sock")
    }

    fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Its own state directory: the file that the service reads lies in it.
    fn options(&self, host: String) -> Options {
        Options {
            host: Some(host),
            state: self.dir.path().join("state"),
            machine: machine(),
            ..Options::default()
        }
    }

    async fn connect(&self) -> Docker {
        sandbox::connect(&self.options(self.address()))
            .await
            .unwrap()
    }

    fn look(&self) -> bollard::Docker {
        let path = self.socket().display().to_string();
        bollard::Docker::connect_with_unix(&path, 60, bollard::API_DEFAULT_VERSION).unwrap()
    }

    async fn answers(&mut self) {
        let end = Instant::now() + START;
        while sandbox::connect(&self.options(self.address()))
            .await
            .is_err()
        {
            assert!(self.child.try_wait().unwrap().is_none(), "{}", self.log());
            assert!(Instant::now() < end, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// The first engine's images, carried over to the one at this address.
pub(crate) async fn carry(address: &str) {
    let first = crate::container::engine().await.unwrap().0;
    python(&first).await;
    let line = format!(
        "docker -H unix://{} save wharf/base wharf/python | docker -H {address} load",
        socket().display()
    );
    let done = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// runc, less what Podman asks for without being told: more open files and processes than root may have that
/// lacks the right to raise limits, as in many a virtual machine.
const WITHIN_RIGHTS: &str = r#"#!/bin/sh
for word in "$@"; do
    case $before in
        --bundle) sed -i 's/:1048576\b/:20000/g' "$word/config.json" ;;
        --process) sed -i 's/:1048576\b/:20000/g' "$word" ;;
    esac
    before=$word
done
exec runc "$@"
"#;

/// What keeps it apart from any other Podman of this machine; and runc, which works with every layout of
/// control groups.
fn places(dir: &Path) -> Vec<String> {
    let at = |name: &str| dir.join(name).display().to_string();
    let words = [
        "--root",
        &at("root"),
        "--runroot",
        &at("runroot"),
        "--tmpdir",
        &at("tmp"),
        "--network-config-dir",
        &at("networks"),
        "--cgroup-manager",
        "cgroupfs",
        "--events-backend",
        "file",
        "--runtime",
        &at("bin/runc"),
    ];
    words.map(str::to_owned).to_vec()
}

impl Drop for Podman {
    fn drop(&mut self) {
        let mut clear = Command::new("podman");
        clear
            .args(places(self.dir.path()))
            .args(["rm", "--all", "--force", "--time", "0"]);
        drop(clear.output());
        let pid = rustix::process::Pid::from_child(&self.child);
        if let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::TERM) {
            note(&format!("the service is gone already: {error}"));
        }
        drop(self.child.wait());
        let own = self.dir.path().display().to_string();
        end_watchers(&own);
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mine = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let mine: Vec<&str> = mine.filter(|place| place.starts_with(&own)).collect();
        for place in mine.iter().rev() {
            drop(Command::new("umount").args(["-l", place]).status());
        }
    }
}

/// Podman keeps a process for each exec for five minutes, which then clears up and makes these folders again.
fn end_watchers(own: &str) {
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let pid = process
            .file_name()
            .to_str()
            .and_then(|pid| pid.parse().ok());
        let ours = String::from_utf8_lossy(&line).contains(own);
        if let Some(pid) = pid
            .and_then(rustix::process::Pid::from_raw)
            .filter(|_| ours)
        {
            let ended = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            assert!(ended.is_ok() || !process.path().exists(), "{pid:?}");
        }
    }
}

async fn opened(docker: &Docker, spec: &Spec) -> Result<String, Error> {
    let sandbox = docker
        .open(spec, &empty_tree(), &CancellationToken::new())
        .await?;
    let (_, said) = run(sandbox.as_ref(), "echo it works").await;
    sandbox.close().await;
    Ok(said)
}

/// What is behind any list but Wharf's is refused, and a file that was changed is put right.
async fn only_wharfs_list(podman: &Podman, image: &Image) {
    let wanted = spec(image.clone(), "list");
    let docker = podman.connect().await;
    let folder = podman.dir.path().join("state/seccomp");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    let file = files[0].as_ref().unwrap().path();
    let open = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["reboot"], "action": "SCMP_ACT_ERRNO"}]});
    std::fs::write(&file, open.to_string()).unwrap();
    let told = opened(&docker, &wanted).await.unwrap_err().to_string();
    assert!(told.contains("another list than Wharf's"), "{told}");
    std::fs::remove_file(&file).unwrap();
    let told = opened(&docker, &wanted).await.unwrap_err().to_string();
    assert!(told.contains("seccomp"), "{told}");
    assert_eq!(
        opened(&podman.connect().await, &wanted).await.unwrap(),
        "it works\n"
    );

    let dropped = Rule::request("/containers/create", |body| {
        let options = body["HostConfig"]["SecurityOpt"].as_array_mut().unwrap();
        options.retain(|option| !option.as_str().unwrap().starts_with("seccomp="));
    });
    let proxy = Proxy::start(podman.socket(), vec![dropped]);
    let docker = sandbox::connect(&podman.options(proxy.address()))
        .await
        .unwrap();
    let told = opened(&docker, &wanted).await.unwrap_err().to_string();
    assert!(told.contains("another list than Wharf's"), "{told}");
    soon(&podman.look(), "run-list", (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "opt-in: starts Podman's service (root, podman, runc)"]
async fn a_sandbox_holds_in_podman_and_leaves_nothing_there() {
    let podman = Podman::start().await;
    carry(&podman.address()).await;
    let docker = podman.connect().await;
    assert_eq!(docker.info().product, "Podman");
    let image = python(&docker).await;
    let strict = Spec {
        strict: true,
        ..spec(image.clone(), "podman")
    };
    let sandbox = open(&docker, &strict).await;
    assert_eq!(sandbox.facts().doubts, []);
    for row in [14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 36] {
        let passed = let_through(sandbox.clone(), row).await;
        assert_eq!(passed, Vec::<String>::new(), "row {row}");
    }
    let (_, said) = run(sandbox.as_ref(), "env; echo made > made").await;
    assert!(
        !said.contains("CARGO") && !said.to_lowercase().contains("proxy"),
        "{said}"
    );
    assert_eq!(sandbox.scan().await.unwrap().puts.len(), 1);
    sandbox.close().await;
    let look = podman.look();
    assert_eq!(left(&look, "run-podman").await, (0, 0));
    // Podman has no word for a stdin that closes with its one client.
    drop(open(&docker, &strict).await);
    soon(&look, "run-podman", (0, 0)).await;
    let full = Spec {
        network: Network::Full,
        ..strict
    };
    let sandbox = open(&docker, &full).await;
    let (_, devices) = run(sandbox.as_ref(), "ls /sys/class/net").await;
    assert_eq!(devices, "eth0\nlo\n");
    assert_eq!(left(&look, "run-podman").await, (1, 1));
    sandbox.close().await;
    assert_eq!(left(&look, "run-podman").await, (0, 0));
    only_wharfs_list(&podman, &image).await;
}

/// The README's first command there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "opt-in: starts Podman's service (root, podman, runc)"]
async fn the_quickstart_passes_in_podman() {
    let podman = Podman::start().await;
    carry(&podman.address()).await;
    let mut operator = Operator::new();
    operator.env = vec![("DOCKER_HOST".to_owned(), podman.address())];
    let said = operator.wharf(None, &["doctor", "--json"]).await;
    assert!(said.stdout.contains("Podman"), "{said:?}");
    let plan = format!("{}/plans/quickstart.yaml", env!("CARGO_MANIFEST_DIR"));
    let args = ["run", "--plan", &plan, "--run-id", "run", "--json"];
    let said = operator.wharf(None, &args).await;
    let result = said.object();
    assert_eq!(said.code, Some(0), "{result:#} {}", said.stderr);
    assert_eq!(
        (&result["status"], &result["warnings"]),
        (&json!("passed"), &json!([]))
    );
    let said = operator.wharf(None, &["clean", "--json"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let all = bollard::query_parameters::ListContainersOptions {
        all: true,
        ..Default::default()
    };
    let there = podman.look().list_containers(Some(all)).await.unwrap();
    assert_eq!(there.len(), 0, "{there:?}");
}
