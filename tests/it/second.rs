//! A second engine for what the first one cannot be asked to suffer: restarted in the middle, killed, spoken
//! to over its own TLS, with runtimes of its own. It has a network namespace, a root and sockets to itself.
//!
//! Opt-in, since it needs root, `dockerd`, for one test `runsc`, and half a minute: `-- --ignored`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::json;
use wharf::journal::Event;
use wharf::sandbox::{self, Docker, Engine, Error, ImageSpec, Options};

use crate::container::{Said, empty_tree, left, machine, note, run, soon, spec};
use crate::faulty::socket;
use crate::server::Answer;
use crate::world::{World, report};

/// How long a daemon may take to answer after its start.
const START: Duration = Duration::from_secs(60);

/// A daemon of our own; it is ended with its containers when this is dropped.
struct Daemon {
    dir: tempfile::TempDir,
    more: Vec<String>,
    child: Child,
}

/// Whoever asks for these tests has what they need; without it they fail and say what is missing.
pub(crate) fn needs(programs: &[&str]) {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    let missing: Vec<_> = programs.iter().filter(|it| which(it).is_none()).collect();
    assert!(missing.is_empty(), "this test needs {missing:?}");
}

impl Daemon {
    async fn start(more: &[String]) -> Daemon {
        needs(&["dockerd", "unshare"]);
        let dir = tempfile::tempdir().unwrap();
        let runsc = which("runsc");
        let runtimes = runsc.map(|path| {
            json!({"runsc": {"path": path, "runtimeArgs": ["--platform=ptrace", "--network=none"]}})
        });
        // What suits this machine's disk is known to the engine that is there.
        let first = crate::container::engine().await.unwrap().0;
        let config = json!({
            "runtimes": runtimes.unwrap_or(json!({})),
            "storage-driver": first.info().storage,
        });
        std::fs::write(dir.path().join("daemon.json"), config.to_string()).unwrap();
        let child = spawn(dir.path(), more);
        let mut daemon = Daemon {
            dir,
            more: more.to_vec(),
            child,
        };
        daemon.answers().await;
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("docker.sock")
    }

    fn options(&self) -> Options {
        Options {
            host: Some(format!("unix://{}", self.socket().display())),
            state: "/tmp/wharf-it-state".into(),
            machine: machine(),
            ..Options::default()
        }
    }

    fn look(&self) -> bollard::Docker {
        let path = self.socket().display().to_string();
        bollard::Docker::connect_with_unix(&path, 60, bollard::API_DEFAULT_VERSION).unwrap()
    }

    async fn answers(&mut self) {
        let end = Instant::now() + START;
        while sandbox::connect(&self.options()).await.is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "{}", self.log());
            assert!(Instant::now() < end, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Ends it in the given way and starts it again.
    async fn restart(&mut self, signal: rustix::process::Signal) {
        self.end(signal);
        forget_containerd(self.dir.path()).await;
        self.child = spawn(self.dir.path(), &self.more);
        self.answers().await;
    }

    fn end(&mut self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end(rustix::process::Signal::TERM);
        }
        // Storage drivers leave mounts of their own where the engine was killed.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = self.dir.path().display().to_string();
        let mine: Vec<&str> = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .filter(|place| place.starts_with(&own))
            .collect();
        for place in mine.iter().rev() {
            drop(Command::new("umount").args(["-l", place]).status());
        }
    }
}

pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let places = ["/usr/local/bin", "/usr/bin", "/usr/sbin"];
    let mut paths = places.iter().map(|place| Path::new(place).join(name));
    paths.find(|path| path.exists())
}

/// A daemon that is killed takes its containerd with it; whoever is process 1 of this machine may take its
/// time to bury that one, and a new daemon would wait for the dead.
async fn forget_containerd(dir: &Path) {
    let file = dir.join("exec/containerd/containerd.pid");
    let Ok(pid) = std::fs::read_to_string(&file) else {
        return;
    };
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    let end = Instant::now() + START;
    while alive() {
        assert!(Instant::now() < end, "containerd {pid} outlives its daemon");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(std::fs::remove_file(file));
}

/// A network namespace of its own: a daemon rules over the bridges of the one it is in.
fn spawn(dir: &Path, more: &[String]) -> Child {
    let at = |name: &str| dir.join(name).display().to_string();
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    drop(std::fs::remove_file(dir.join("pid")));
    let inside = "ip link set lo up && exec dockerd \"$@\"";
    Command::new("unshare")
        .args(["--net", "sh", "-c", inside, "dockerd"])
        .args(["--config-file", &at("daemon.json")])
        .args(["--data-root", &at("root"), "--exec-root", &at("exec")])
        .args(["--pidfile", &at("pid")])
        .args(["-H", &format!("unix://{}", at("docker.sock"))])
        .args(["--bridge", "none", "--iptables=false", "--ip-forward=false"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// The first engine's image with a shell, carried over.
async fn carried(daemon: &Daemon, docker: &Docker) -> sandbox::Image {
    let first = crate::container::engine().await.unwrap().0;
    crate::container::python(&first).await;
    let line = format!(
        "docker -H unix://{} save wharf/base | docker -H unix://{} load",
        socket().display(),
        daemon.socket().display()
    );
    let done = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let wanted = ImageSpec {
        image: "wharf/base:latest".to_owned(),
        ..ImageSpec::default()
    };
    let cancel = tokio_util::sync::CancellationToken::new();
    docker.prepare(&wanted, &Said, &cancel).await.unwrap()
}

/// A run whose engine is restarted between two commands, in this way.
async fn outlives(signal: rustix::process::Signal) {
    let daemon = Daemon::start(&[]).await;
    let docker = sandbox::connect(&daemon.options()).await.unwrap();
    carried(&daemon, &docker).await;
    let look = daemon.look();
    let mut world = World::new(&[("a.txt", "one\n")]);
    world.options.verify = false;
    world.options.machine = machine();
    world.engine = Arc::new(docker);
    let plan = "version: 1\ntask: Do it\nsandbox: {image: 'wharf/base:latest'}\n\
                subtasks: [{id: a, role: coder, brief: A}]\n";
    let daemon = Arc::new(Mutex::new(Some(daemon)));
    let held = daemon.clone();
    let ran = world
        .run(plan, move |ask| match ask.ordinal {
            0 => Answer::call("bash", json!({"command": "echo first > b.txt; echo here"})),
            1 => {
                let mut daemon = held.lock().unwrap().take().unwrap();
                let runtime = tokio::runtime::Handle::current();
                let again = std::thread::spawn(move || {
                    runtime.block_on(daemon.restart(signal));
                    daemon
                });
                *held.lock().unwrap() = Some(again.join().unwrap());
                Answer::call("bash", json!({"command": "cat b.txt; echo again"}))
            }
            _ => {
                let seen = ask.last();
                if seen.contains("this call has no result") {
                    return Answer::call("bash", json!({"command": "cat b.txt; echo again"}));
                }
                assert!(seen.contains("first") && seen.contains("again"), "{seen}");
                report("done", "it is there")
            }
        })
        .await;
    assert_eq!(ran.summary.exit_code, 0, "{}", ran.summary.reason);
    let broken = ran.journal.iter().filter_map(|line| match &line.event {
        Event::SandboxBroken { reopened, .. } => Some(*reopened),
        _ => None,
    });
    assert_eq!(broken.collect::<Vec<_>>(), [true]);
    soon(&look, "run", (0, 0)).await;
    drop(daemon.lock().unwrap().take());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "opt-in: starts a second engine (root, dockerd)"]
async fn a_run_outlives_a_daemon_that_is_restarted() {
    outlives(rustix::process::Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "opt-in: starts a second engine (root, dockerd)"]
async fn a_run_outlives_a_daemon_that_is_killed() {
    outlives(rustix::process::Signal::KILL).await;
}

/// What a command can do with the streams of process 1, where its runtime lets it have them.
const TRICKS: [(&str, &str); 4] = [
    ("noise", "printf 'exit code 0' > /proc/1/fd/1; sleep 20"),
    // Well-formed ends of the first forty calls: length, kind, channel, body.
    (
        "an answer of its own",
        r#"for n in $(seq 40); do
            printf "\x12\0\0\0\x05\x$(printf %02x $n)\0\0\0{\"done\":\"written\"}"
        done > /proc/1/fd/1; sleep 20"#,
    ),
    (
        "a request of its own",
        r#"printf "\x0d\0\0\0\x02\x4d\0\0\0{\"do\":\"scan\"}" > /proc/1/fd/0; sleep 20"#,
    ),
    (
        "what Wharf says",
        "timeout 15 head -c 200 /proc/1/fd/0 > /tmp/x; sleep 20",
    ),
];

/// gVisor as the daemon has it: a sandbox works in it, and whoever takes up the streams of process 1 there
/// breaks it and is never taken for it.
#[tokio::test]
#[ignore = "opt-in: starts a second engine (root, dockerd, runsc)"]
async fn under_gvisor_a_sandbox_works_and_nobody_speaks_in_the_name_of_process_1() {
    needs(&["runsc"]);
    let daemon = Daemon::start(&[]).await;
    let docker = sandbox::connect(&daemon.options()).await.unwrap();
    assert!(docker.info().facts.runtimes.contains("runsc"));
    let image = carried(&daemon, &docker).await;
    let mut spec = spec(image, "gvisor");
    (spec.runtime, spec.pids) = (Some("runsc".to_owned()), 1024);
    let cancel = tokio_util::sync::CancellationToken::new();
    let mut broken = 0;
    for (name, line) in TRICKS {
        let sandbox = docker.open(&spec, &empty_tree(), &cancel).await.unwrap();
        // Its own kernel tells of routes, too.
        let doubts = &sandbox.facts().doubts;
        let network = doubts.iter().find(|doubt| doubt.text.contains("network"));
        assert_eq!(network, None);
        let honest = "uname -r; echo made > made; (: < /proc/1/fd/0) 2>/dev/null && echo open";
        let (_, said) = run(sandbox.as_ref(), honest).await;
        let changes = sandbox.scan().await.unwrap();
        assert!(said.starts_with("4.4.0"), "{said}");
        assert_eq!(changes.puts.len(), 1, "{changes:?}");
        let command = sandbox::Command {
            line: line.to_owned(),
            timeout: Duration::from_secs(40),
            background: false,
            keep: 1000,
        };
        let outcome = sandbox.run(&command, &cancel).await;
        sandbox.close().await;
        note(&format!("{name}: {outcome:?}"));
        // One that is told that it may not has changed nothing.
        let refused = |done: &sandbox::Finished| {
            String::from_utf8_lossy(&done.stderr.head).contains("write error")
        };
        match &outcome {
            Err(Error::Broken { .. }) => broken += 1,
            Ok(done) => assert!(!said.contains("open") || refused(done), "{name}: {done:?}"),
            Err(other) => panic!("{name}: {other}"),
        }
    }
    note(&format!(
        "{broken} of {} tricks broke their sandbox",
        TRICKS.len()
    ));
    assert_eq!(left(&daemon.look(), "run-gvisor").await, (0, 0));
}

/// Containers, networks, volumes and images of a daemon, and the bytes its own folder takes on the disk.
async fn holds(daemon: &Daemon, look: &bollard::Docker) -> ([usize; 4], u64) {
    let containers = bollard::query_parameters::ListContainersOptions {
        all: true,
        ..Default::default()
    };
    let images = bollard::query_parameters::ListImagesOptions {
        all: true,
        ..Default::default()
    };
    let volumes = look
        .list_volumes(None::<bollard::query_parameters::ListVolumesOptions>)
        .await
        .unwrap();
    let networks = look
        .list_networks(None::<bollard::query_parameters::ListNetworksOptions>)
        .await
        .unwrap();
    let counts = [
        look.list_containers(Some(containers)).await.unwrap().len(),
        networks.len(),
        volumes.volumes.map_or(0, |all| all.len()),
        look.list_images(Some(images)).await.unwrap().len(),
    ];
    let root = daemon.dir.path().join("root");
    let done = Command::new("du")
        .args(["-s", "-x", "--block-size=1"])
        .arg(root)
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let bytes = text.split_whitespace().next().unwrap().parse().unwrap();
    (counts, bytes)
}

/// A run whose one agent writes two megabytes.
async fn tiny(docker: &Docker, n: usize) {
    let text = format!("{n}\n");
    let mut world = World::new(&[("a.txt", &text)]);
    world.options.machine = machine();
    world.options.verify = false;
    world.engine = Arc::new(docker.clone());
    let plan = "version: 1\ntask: Do it\nsandbox: {image: 'wharf/base:latest'}\n\
        subtasks: [{id: a, role: coder, brief: A}]\n";
    let ran = world
        .run(plan, |ask| match ask.ordinal {
            0 => {
                let line = "head -c 2000000 /dev/urandom > made; cp made /tmp/x";
                Answer::call("bash", json!({"command": line}))
            }
            _ => report("done", "made"),
        })
        .await;
    assert_eq!(ran.summary.exit_code, 0, "{}", ran.summary.reason);
    if n.is_multiple_of(10) {
        note(&format!("run {n} has ended"));
    }
}

/// What a hundred runs add to the disk of a daemon that serves nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "opt-in: starts a second engine (root, dockerd)"]
async fn a_hundred_runs_add_nothing_to_the_daemon_s_disk() {
    let daemon = Daemon::start(&[]).await;
    let docker = sandbox::connect(&daemon.options()).await.unwrap();
    carried(&daemon, &docker).await;
    let look = daemon.look();
    tiny(&docker, 0).await;
    let before = holds(&daemon, &look).await;
    futures::stream::iter(1..=100)
        .for_each_concurrent(4, |n| tiny(&docker, n))
        .await;
    let after = holds(&daemon, &look).await;
    let grown = after.1.saturating_sub(before.1);
    note(&format!(
        "a hundred runs: {} bytes before, {} after, {grown} more; {:?} containers, networks, volumes, images",
        before.1, after.1, after.0
    ));
    assert_eq!(after.0, before.0);
    assert!(grown < 1 << 20, "{grown} bytes");
}

/// The real program in the daemon's own network, over the daemon's own TLS.
#[tokio::test]
#[ignore = "opt-in: starts a second engine (root, dockerd)"]
async fn the_daemons_own_tls_is_spoken() {
    let dir = crate::engines::certificates();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let more = [
        "-H=tcp://127.0.0.1:2376".to_owned(),
        "--tlsverify".to_owned(),
        format!("--tlscacert={}", at("ca.pem")),
        format!("--tlscert={}", at("server.pem")),
        format!("--tlskey={}", at("server-key.pem")),
    ];
    let daemon = Daemon::start(&more).await;
    let net = format!("--net=/proc/{}/ns/net", daemon.child.id());
    for (folder, passes) in [("client.d", true), ("other.d", false)] {
        let out = tokio::process::Command::new("nsenter")
            .arg(&net)
            .args([env!("CARGO_BIN_EXE_wharf"), "doctor", "--json"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", dir.path())
            .env("DOCKER_HOST", "tcp://127.0.0.1")
            .env("DOCKER_TLS_VERIFY", "1")
            .env("DOCKER_CERT_PATH", dir.path().join(folder))
            .output()
            .await
            .unwrap();
        let told = String::from_utf8_lossy(&out.stdout).into_owned();
        let found =
            told.contains("Docker 20") || told.contains("at tcp://127.0.0.1 (DOCKER_HOST), API");
        assert_eq!(found, passes, "{folder}: {told}");
    }
}
