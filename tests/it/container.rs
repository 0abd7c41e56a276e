//! Containers on a real engine: images, profile, lifetime, sweep.
//!
//! Everything made here carries the machine label `it-PID`, and is gone at the end of its test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and say aloud what they skip"
)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{
    self, Contents, Docker, Engine, Error, FileLimits, Image, ImageSpec, Labels, Network, Options,
    Progress, Sandbox, Spec, Tree,
};

pub(crate) struct Said;

impl Progress for Said {
    fn say(&self, line: &str) {
        eprintln!("  {line}");
    }
}

struct Nothing;

impl Contents for Nothing {
    fn read(&self, _ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        futures::stream::empty().boxed()
    }
}

pub(crate) fn empty_tree() -> Tree {
    Tree {
        entries: BTreeMap::new(),
        contents: Arc::new(Nothing),
    }
}

/// The engine and a client of our own to look at what it did; None when tests go without one.
pub(crate) async fn engine() -> Option<(Docker, bollard::Docker)> {
    if std::env::var("WHARF_TEST_DOCKER").as_deref() == Ok("0") {
        eprintln!("SKIPPED: WHARF_TEST_DOCKER=0, nothing was asked of an engine");
        return None;
    }
    let host = std::env::var("DOCKER_HOST").ok();
    let ca_bundle = std::env::var("SSL_CERT_FILE").ok().map(Into::into);
    let options = Options {
        host,
        state: "/tmp/wharf-it-state".into(),
        machine: machine(),
        ca_bundle,
        ..Options::default()
    };
    let docker = sandbox::connect(&options)
        .await
        .expect("these tests need a container engine; WHARF_TEST_DOCKER=0 goes without");
    let look = bollard::Docker::connect_with_defaults().unwrap();
    Some((docker, look))
}

/// Tells these tests' things from those of other test processes; a child takes its parent's.
pub(crate) fn machine() -> String {
    std::env::var("WHARF_IT_MACHINE").unwrap_or_else(|_| format!("it-{}", std::process::id()))
}

/// A figure worth seeing in a test's output.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

pub(crate) fn image_spec(setup: &[&str], files: &[(&str, &'static str)]) -> ImageSpec {
    ImageSpec {
        image: "wharf/python".into(),
        setup: setup.iter().map(|line| (*line).to_owned()).collect(),
        setup_files: files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), Bytes::from_static(text.as_bytes())))
            .collect(),
        bootstrap: true,
        ..ImageSpec::default()
    }
}

pub(crate) async fn python(docker: &Docker) -> Image {
    let cancel = CancellationToken::new();
    docker
        .prepare(&image_spec(&[], &[]), &Said, &cancel)
        .await
        .unwrap()
}

pub(crate) fn spec(image: Image, subtask: &str) -> Spec {
    Spec {
        image,
        env: [("GREETING".to_owned(), "hello".to_owned())].into(),
        cpus: 1.0,
        memory: 512 << 20,
        pids: 128,
        disk: 1 << 30,
        files: FileLimits::default(),
        strict: false,
        history: None,
        network: Network::None,
        runtime: None,
        labels: Labels {
            machine: machine(),
            state: "/tmp/wharf-it-state".into(),
            run: format!("run-{subtask}"),
            subtask: subtask.to_owned(),
        },
    }
}

pub(crate) async fn open(docker: &Docker, spec: &Spec) -> Arc<dyn Sandbox> {
    let cancel = CancellationToken::new();
    docker.open(spec, &empty_tree(), &cancel).await.unwrap()
}

/// Compares what the engine says of a live container with the create body, field by field.
#[tokio::test]
async fn a_container_is_what_the_profile_says() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let spec = spec(python(&docker).await, "profile");
    let sandbox = open(&docker, &spec).await;
    let seen = look
        .inspect_container(&sandbox.facts().container, None)
        .await
        .unwrap();
    sandbox.close().await;
    let wanted = sandbox::profile(&spec, &docker.info().facts, None);
    let json = |value: serde_json::Value| value.as_object().cloned().unwrap();
    let mut asked = json(serde_json::to_value(&wanted).unwrap());
    let asked_host = json(asked.remove("HostConfig").unwrap());
    let got = json(serde_json::to_value(seen.config.unwrap()).unwrap());
    let got_host = json(serde_json::to_value(seen.host_config.unwrap()).unwrap());
    assert!(asked.len() > 12 && asked_host.len() > 16);
    for (key, value) in asked_host {
        assert!(
            holds(got_host.get(&key), &value),
            "HostConfig.{key}: {:?}",
            got_host.get(&key)
        );
    }
    for (key, value) in asked
        .iter()
        .filter(|(key, _)| *key != "Env" && *key != "Cmd" && *key != "Labels")
    {
        assert_eq!(got.get(key), Some(value), "{key}");
    }
    assert!(
        got.get("Cmd")
            .is_none_or(|cmd| cmd.is_null() || cmd == &serde_json::json!([]))
    );
    let labels = json(got["Labels"].clone());
    for (key, value) in json(asked["Labels"].clone()) {
        assert_eq!(labels.get(&key), Some(&value), "{key}");
    }
    let env: Vec<String> = serde_json::from_value(got["Env"].clone()).unwrap();
    for pair in wanted.env.unwrap() {
        assert!(env.contains(&pair), "{pair}");
    }
    assert_eq!(seen.mounts.map(|mounts| mounts.len()).unwrap_or(0), 0);
}

#[tokio::test]
async fn closing_leaves_nothing() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let full = Spec {
        network: Network::Full,
        ..spec(python(&docker).await, "closing")
    };
    let sandbox = open(&docker, &full).await;
    let id = sandbox.facts().container.clone();
    assert!(look.inspect_container(&id, None).await.is_ok());
    assert_eq!(left(&look, "run-closing").await, (1, 1));
    let (_, devices) = run(sandbox.as_ref(), "ls /sys/class/net").await;
    assert_eq!(devices, "eth0\nlo\n");
    sandbox.close().await;
    sandbox.close().await;
    assert!(look.inspect_container(&id, None).await.is_err());
    assert_eq!(left(&look, "run-closing").await, (0, 0));
}

/// Each process starts the next, leaves its group and ends, so that a look at the table may find none.
#[tokio::test]
async fn a_chain_that_moves_on_faster_than_it_can_be_counted_is_gone_or_the_sandbox_is_broken() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let sandbox = open(&docker, &spec(python(&docker).await, "chain")).await;
    let hop = "import os\nwhile True:\n    if os.fork():\n        os._exit(0)\n    os.setsid()\n";
    let command = sandbox::Command {
        line: format!("for i in 1 2 3; do python3 -c \"{hop}\" & done; sleep 30"),
        timeout: Duration::from_secs(2),
        background: false,
        keep: 1000,
    };
    match sandbox.run(&command, &CancellationToken::new()).await {
        Ok(finished) => {
            assert_eq!(finished.exit, sandbox::Exit::TimedOut);
            let (_, left) = run(
                sandbox.as_ref(),
                "cat /proc/[0-9]*/comm | grep -c python3; true",
            )
            .await;
            assert_eq!(left, "0\n");
        }
        Err(sandbox::Error::Broken { reason, .. }) => {
            assert!(reason.contains("could not be killed"), "{reason}");
        }
        Err(other) => panic!("{other}"),
    }
    sandbox.close().await;
    assert_eq!(left(&look, "run-chain").await, (0, 0));
}

/// The engine may add keys to an object; it may not change what was asked.
fn holds(got: Option<&serde_json::Value>, asked: &serde_json::Value) -> bool {
    match (got, asked.as_object()) {
        (Some(got), Some(keys)) => keys.iter().all(|(key, value)| holds(got.get(key), value)),
        (got, _) => got == Some(asked),
    }
}

/// How many containers and networks of a run the engine has.
pub(crate) async fn left(look: &bollard::Docker, run: &str) -> (usize, usize) {
    let filters: HashMap<String, Vec<String>> = [(
        "label".to_owned(),
        vec![
            format!("wharf.run={run}"),
            format!("wharf.machine={}", machine()),
        ],
    )]
    .into();
    let options = bollard::query_parameters::ListContainersOptions {
        all: true,
        filters: Some(filters.clone()),
        ..Default::default()
    };
    let containers = look.list_containers(Some(options)).await.unwrap();
    let options = bollard::query_parameters::ListNetworksOptions {
        filters: Some(filters),
    };
    let networks = look.list_networks(Some(options)).await.unwrap();
    (containers.len(), networks.len())
}

/// Asks until it is so; the engine clears up on its own time.
pub(crate) async fn soon(look: &bollard::Docker, run: &str, wanted: (usize, usize)) {
    let limit = Instant::now() + Duration::from_secs(20);
    while left(look, run).await != wanted {
        assert!(Instant::now() < limit, "{run}: {:?}", left(look, run).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_dropped_connection_ends_the_container() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let spec = spec(python(&docker).await, "dropped");
    let sandbox = open(&docker, &spec).await;
    assert_eq!(left(&look, "run-dropped").await.0, 1);
    drop(sandbox);
    soon(&look, "run-dropped", (0, 0)).await;
}

#[tokio::test]
async fn a_sweep_removes_only_the_dead() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let image = python(&docker).await;
    let alive = open(&docker, &spec(image.clone(), "alive")).await;
    let created = |labels: HashMap<String, String>| bollard::models::ContainerCreateBody {
        image: Some(image.id.clone()),
        labels: Some(labels),
        ..Default::default()
    };
    let dead = spec(image.clone(), "dead").labels;
    let other = Labels {
        machine: "another".into(),
        ..spec(image.clone(), "other").labels
    };
    let dead_id = look
        .create_container(None, created(dead.to_map()))
        .await
        .unwrap()
        .id;
    let other_id = look
        .create_container(None, created(other.to_map()))
        .await
        .unwrap()
        .id;
    let bystander = look
        .create_container(None, created(HashMap::new()))
        .await
        .unwrap()
        .id;
    let swept = docker
        .sweep(&|labels| labels.run == "run-dead")
        .await
        .unwrap();
    assert_eq!(
        swept
            .removed
            .iter()
            .map(|item| item.id.as_str())
            .collect::<Vec<_>>(),
        [&dead_id]
    );
    let reason = |id: &str| {
        let item = swept
            .left
            .iter()
            .find(|item| item.id == id)
            .expect("listed as left");
        item.reason.clone()
    };
    assert!(reason(&other_id).contains("another machine"));
    assert!(reason(&alive.facts().container).contains("alive"));
    assert!(look.inspect_container(&dead_id, None).await.is_err());
    for id in [&other_id, &bystander] {
        assert!(look.inspect_container(id, None).await.is_ok());
        look.remove_container(id, None).await.unwrap();
    }
    alive.close().await;
}

#[tokio::test]
async fn a_cancelled_or_refused_open_leaves_nothing() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let image = python(&docker).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let wanted = spec(image.clone(), "cancelled");
    let outcome = docker.open(&wanted, &empty_tree(), &cancel).await;
    assert!(matches!(outcome, Err(Error::Cancelled)));
    let runtime = Spec {
        runtime: Some("nosuch".into()),
        ..spec(image, "cancelled")
    };
    let outcome = docker
        .open(&runtime, &empty_tree(), &CancellationToken::new())
        .await;
    assert!(matches!(outcome, Err(Error::Engine { .. })));
    assert_eq!(left(&look, "run-cancelled").await, (0, 0));
}

/// Runs a line in a sandbox; its exit code and stdout.
pub(crate) async fn run(sandbox: &dyn Sandbox, line: &str) -> (sandbox::Exit, String) {
    let command = sandbox::Command {
        line: line.to_owned(),
        timeout: Duration::from_secs(60),
        background: false,
        keep: 20_000,
    };
    let done = sandbox
        .run(&command, &CancellationToken::new())
        .await
        .unwrap();
    let text = [done.stdout.head, done.stdout.tail, done.stderr.head].concat();
    (done.exit, String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn from_the_inside_there_is_no_way_out() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let sandbox = open(&docker, &spec(python(&docker).await, "inside")).await;
    let sandbox = sandbox.as_ref();
    let (_, status) = run(sandbox, "cat /proc/self/status").await;
    for wanted in [
        "CapBnd:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "Uid:\t1000\t1000",
    ] {
        assert!(status.contains(wanted), "{wanted}: {status}");
    }
    let said = async |line: &str| run(sandbox, line).await.1.trim().to_owned();
    assert_eq!(said("ls /sys/class/net").await, "lo");
    assert_eq!(
        said("ls /var/run/docker.sock /run/containerd /run/docker.sock 2>/dev/null").await,
        ""
    );
    assert_eq!(
        said("hostname; whoami; pwd; echo $HOME $TMPDIR $GREETING $LANG").await,
        "sandbox\nagent\n/workspace\n/home/agent /home/agent/.tmp hello C.UTF-8"
    );
    assert_eq!(
        said("touch /x /etc/x 2>/dev/null || echo no; touch a ~/b /tmp/c $TMPDIR/d && echo yes")
            .await,
        "no\nyes"
    );
    assert_eq!(said("ls -d /dev/shm 2>&1 | grep -c cannot").await, "1");
    // The variable is set in this test's own process by cargo.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
    assert!(
        !said("cat /proc/[0-9]*/environ | tr '\\0' '\\n'; env")
            .await
            .contains("CARGO_MANIFEST_DIR")
    );
    sandbox.close().await;
}

/// Not a test by itself: the process that `a_killed_wharf_leaves_no_container` kills.
#[tokio::test]
async fn holds_a_sandbox_when_told() {
    let Ok(run) = std::env::var("WHARF_IT_HOLD") else {
        return;
    };
    let Some((docker, _)) = engine().await else {
        return;
    };
    let _held = open(&docker, &spec(python(&docker).await, &run)).await;
    note("HELD");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_wharf_leaves_no_container() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    python(&docker).await;
    let mut holder = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "container::holds_a_sandbox_when_told",
            "--nocapture",
        ])
        .env("WHARF_IT_HOLD", "killed")
        .env("WHARF_IT_MACHINE", machine())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    use tokio::io::AsyncBufReadExt;
    let mut lines = tokio::io::BufReader::new(holder.stderr.take().unwrap()).lines();
    while lines.next_line().await.unwrap().expect("it holds one") != "HELD" {}
    assert_eq!(left(&look, "run-killed").await, (1, 0));
    holder.kill().await.unwrap();
    soon(&look, "run-killed", (0, 0)).await;
}
