//! What a sandbox leaves behind however its end comes, who may remove what, and what is kept ready:
//! layers of large workspaces and warm containers, on a real engine.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and read what they were started with"
)]

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{
    self, Contents, Docker, Engine, Entry, Error, Layer, Mode, Network, Options, Pool, Sandbox,
    Spec, Tree, Wanted,
};

use crate::server::{Answer, Ask, FakeModel, Role};
use crate::world::{World, connect as connect_model, passes, put, report};

use crate::container::{Said, engine, left, machine, note, python, run, soon, spec};

/// A tree whose contents are named by themselves.
struct Literal;

impl Contents for Literal {
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        futures::stream::iter(ids.into_iter().map(|id| Ok(Bytes::from(id)))).boxed()
    }
}

fn tree(files: &[(&str, Mode, &str)]) -> Arc<Tree> {
    let entry = |mode: Mode, text: &str| Entry {
        mode,
        size: text.len() as u64,
        id: text.to_owned(),
    };
    Arc::new(Tree {
        entries: files
            .iter()
            .map(|(path, mode, text)| (path.as_bytes().to_vec(), entry(*mode, text)))
            .collect(),
        contents: Arc::new(Literal),
    })
}

async fn connect(change: impl FnOnce(&mut Options)) -> Docker {
    let mut options = Options {
        host: std::env::var("DOCKER_HOST").ok(),
        state: "/tmp/wharf-it-state".into(),
        machine: machine(),
        ..Options::default()
    };
    change(&mut options);
    sandbox::connect(&options).await.unwrap()
}

fn base() -> Arc<Tree> {
    tree(&[
        (".gitignore", Mode::File, "*.log\nout/\n"),
        ("kept.log", Mode::File, "carried though the rules say no\n"),
        ("src/a.py", Mode::File, "print(1)\n"),
        ("src/b.py", Mode::File, "print(2)\n"),
        ("src/deep/c.py", Mode::File, "print(3)\n"),
        ("tool.sh", Mode::Executable, "#!/bin/sh\n"),
        ("link", Mode::Link, "src/a.py"),
    ])
}

async fn layer_of(docker: &Docker, spec: &Spec, tree: &Arc<Tree>) -> Layer {
    let cancel = CancellationToken::new();
    docker
        .layer(spec, tree.clone(), &Said, &cancel)
        .await
        .unwrap()
}

async fn on_layer(docker: &Docker, spec: &Spec, layer: &Layer, tree: &Tree) -> Arc<dyn Sandbox> {
    let cancel = CancellationToken::new();
    let vacant = docker.start(spec, Some(layer), &cancel).await.unwrap();
    vacant.fill(tree, &cancel).await.unwrap()
}

fn puts(changes: &sandbox::Changes) -> BTreeSet<String> {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let puts = changes.puts.iter().map(|put| text(&put.path));
    let deletes = changes
        .deletes
        .iter()
        .map(|path| format!("-{}", text(path)));
    puts.chain(deletes).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn on_a_layer_an_agent_has_exactly_its_tree_and_every_change_is_seen() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let wanted = spec(python(&docker).await, "layered");
    let layer = layer_of(&docker, &wanted, &base()).await;
    assert_eq!(layer_of(&docker, &wanted, &base()).await.image, layer.image);
    assert_eq!(
        left(&look, "run-layered").await,
        (0, 0),
        "its makers are gone"
    );

    // The same tree: nothing is sent, nothing has changed, the history is one commit.
    let sandbox = on_layer(&docker, &wanted, &layer, &base()).await;
    let (_, seen) = run(
        sandbox.as_ref(),
        "git log --oneline | wc -l; git status --short; cat src/a.py link; ./tool.sh && echo ran; stat -c %U src/a.py",
    )
    .await;
    assert_eq!(seen, "1\nprint(1)\nprint(1)\nran\nagent\n");
    let first = sandbox.scan().await.unwrap();
    assert!(first.is_empty() && first.left_out.is_empty(), "{first:?}");
    run(
        sandbox.as_ref(),
        "printf 'print(9)\\n' > src/b.py; touch -d @1 src/b.py; chmod +x src/a.py; rm kept.log; \
         mv src/deep other; mkdir out; echo 1 > out/x; echo 2 > new.py",
    )
    .await;
    let changes = sandbox.scan().await.unwrap();
    let all = [
        "src/a.py",
        "src/b.py",
        "-kept.log",
        "other/c.py",
        "-src/deep/c.py",
        "new.py",
    ];
    assert_eq!(puts(&changes), set(&all), "{changes:?}");
    assert!(sandbox.scan().await.unwrap().is_empty());
    sandbox.close().await;
    assert_eq!(left(&look, "run-layered").await, (0, 0));
}

#[tokio::test]
async fn on_a_layer_another_tree_is_sent_as_what_differs() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let wanted = spec(python(&docker).await, "differs");
    let layer = layer_of(&docker, &wanted, &base()).await;
    let other = tree(&[
        (".gitignore", Mode::File, "*.log\nout/\n"),
        ("src/a.py", Mode::File, "print(1)\n"),
        ("src/b.py", Mode::Executable, "print(2)\n"),
        ("src/deep", Mode::File, "a file now\n"),
        ("tool.sh", Mode::Executable, "#!/bin/sh\nexit 3\n"),
        ("link", Mode::Link, "src/b.py"),
        ("more/x", Mode::File, "x\n"),
    ]);
    // Another role's environment is not in the image.
    let mut wanted = wanted;
    wanted.env.clear();
    let sandbox = on_layer(&docker, &wanted, &layer, &other).await;
    assert_eq!(run(sandbox.as_ref(), "echo $GREETING").await.1, "\n");
    let (_, seen) = run(
        sandbox.as_ref(),
        "git log --oneline | wc -l; git status --short; find . -path ./.git -prune -o ! -type d -printf '%P %m %l\\n' | sort; \
         cat src/deep more/x; ./tool.sh; echo $?",
    )
    .await;
    let there = "1\n.gitignore 644 \nlink 777 src/b.py\nmore/x 644 \nsrc/a.py 644 \nsrc/b.py 755 \nsrc/deep 644 \n\
                 tool.sh 755 \na file now\nx\n3\n";
    assert_eq!(seen, there);
    assert!(sandbox.scan().await.unwrap().is_empty());
    let listed = sandbox.list(None, 100).await.unwrap().unwrap();
    assert_eq!(listed.lines.len(), 7);
    sandbox.close().await;
    assert_eq!(left(&look, "run-differs").await, (0, 0));
}

/// What the image's setup left beside the tree stays the image's, whatever the rules become.
#[tokio::test]
async fn what_a_setup_left_is_no_change_on_a_layer_either() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let cancel = CancellationToken::new();
    let setup = crate::container::image_spec(
        &["mkdir -p dist && echo 1 > dist/made && echo 2 > by-setup"],
        &[],
    );
    let image = docker.prepare(&setup, &Said, &cancel).await.unwrap();
    let wanted = spec(image, "setup-layer");
    let ignoring = tree(&[
        (".gitignore", Mode::File, "dist/\n"),
        ("a", Mode::File, "a\n"),
    ]);
    let layer = layer_of(&docker, &wanted, &ignoring).await;
    for tree in [&ignoring, &tree(&[("a", Mode::File, "a\n")])] {
        let sandbox = on_layer(&docker, &wanted, &layer, tree).await;
        let changes = sandbox.scan().await.unwrap();
        assert!(
            changes.is_empty() && changes.left_out.is_empty(),
            "{changes:?}"
        );
        run(sandbox.as_ref(), "echo 3 > by-setup").await;
        assert_eq!(puts(&sandbox.scan().await.unwrap()), set(&["by-setup"]));
        sandbox.close().await;
    }
}

#[tokio::test]
async fn two_that_make_the_same_layer_do_not_disturb_each_other() {
    let Some((_, look)) = engine().await else {
        return;
    };
    // Two programs, each with a state directory of its own.
    let one = connect(|options| options.state = "/tmp/wharf-it-one".into()).await;
    let two = connect(|options| options.state = "/tmp/wharf-it-two".into()).await;
    let image = python(&one).await;
    let at = |state: &str, name: &str| {
        let mut spec = spec(image.clone(), name);
        spec.labels.state = state.to_owned();
        spec
    };
    let (first, second) = (
        at("/tmp/wharf-it-one", "one"),
        at("/tmp/wharf-it-two", "two"),
    );
    let unique = format!("{}", std::process::id());
    let tree = tree(&[("who", Mode::File, &unique), ("b", Mode::File, "b\n")]);
    let (layer, same) = tokio::join!(
        layer_of(&one, &first, &tree),
        layer_of(&two, &second, &tree)
    );
    assert_eq!(layer.image, same.image);
    // Each goes on after the other has tidied up.
    let gone = two.clean_images(u64::MAX).await.unwrap();
    assert!(
        gone.iter().all(|row| row.name == row.id),
        "only nameless ones: {gone:?}"
    );
    for (docker, spec, layer) in [(&one, &first, &layer), (&two, &second, &same)] {
        let sandbox = on_layer(docker, spec, layer, &tree).await;
        let (_, seen) = run(sandbox.as_ref(), "cat who b").await;
        assert_eq!(seen, format!("{unique}b\n"));
        assert!(sandbox.scan().await.unwrap().is_empty());
        let in_use = one.images().await.unwrap();
        assert!(
            in_use
                .iter()
                .any(|row| row.name == layer.image && row.in_use && row.cached)
        );
        sandbox.close().await;
    }
    // One that was used just now stays whatever the cap.
    let gone = one.spare_images(0).await.unwrap();
    assert!(gone.iter().all(|row| row.name != layer.image));
    look.remove_image(
        &layer.image,
        None::<bollard::query_parameters::RemoveImageOptions>,
        None,
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_layer_of_another_tree_or_image_is_refused() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let wanted = spec(python(&docker).await, "wrong");
    let layer = layer_of(&docker, &wanted, &base()).await;
    let mut elsewhere = wanted.clone();
    elsewhere.image.id = "sha256:0".into();
    let cancel = CancellationToken::new();
    let refused = docker.start(&elsewhere, Some(&layer), &cancel).await;
    assert!(matches!(refused, Err(Error::Engine { .. })));
    let lying = Layer {
        name: "another".into(),
        ..layer
    };
    let vacant = docker.start(&wanted, Some(&lying), &cancel).await.unwrap();
    let refused = vacant.fill(&base(), &cancel).await;
    assert!(matches!(refused, Err(Error::Broken { .. })));
    assert_eq!(left(&look, "run-wrong").await, (0, 0));
}

async fn from_pool(pool: &Pool, spec: &Spec, tree: &Arc<Tree>, warm: usize) -> Arc<dyn Sandbox> {
    let wanted = Wanted { spec, tree, warm };
    pool.open(wanted, &CancellationToken::new()).await.unwrap()
}

/// Seen at the engine, a container may not be greeted and filled yet.
async fn until_ready(pool: &Pool, spec: &Spec) {
    let limit = Instant::now() + Duration::from_secs(60);
    while pool.ready(spec).await == 0 {
        assert!(Instant::now() < limit, "none is ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Ids of a run's containers that nobody works in; waits for as many.
async fn warm(look: &bollard::Docker, run: &str, count: usize) -> Vec<String> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let labels = [
            format!("wharf.run={run}"),
            format!("wharf.machine={}", machine()),
            "wharf.subtask=warm".to_owned(),
        ];
        let options = bollard::query_parameters::ListContainersOptions {
            filters: Some(HashMap::from([("label".to_owned(), labels.to_vec())])),
            ..Default::default()
        };
        let list = look.list_containers(Some(options)).await.unwrap();
        let ids: Vec<String> = list.into_iter().filter_map(|summary| summary.id).collect();
        if ids.len() == count {
            return ids;
        }
        assert!(
            Instant::now() < limit,
            "{} are warm, not {count}",
            ids.len()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_warm_one_is_handed_out_at_the_tree_asked_for_and_all_end_with_the_pool() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let mut wanted = spec(python(&docker).await, "heated");
    wanted.network = Network::Full;
    let cancel = CancellationToken::new();
    let pool = Pool::new(Arc::new(docker.clone()), &cancel);
    let first = from_pool(&pool, &wanted, &base(), 1).await;
    let ready = warm(&look, "run-heated", 1).await;
    until_ready(&pool, &wanted).await;
    let other = tree(&[
        ("src/a.py", Mode::File, "print(7)\n"),
        ("z", Mode::File, "z\n"),
    ]);
    let second = from_pool(&pool, &wanted, &other, 1).await;
    assert_eq!(second.facts().container, ready[0]);
    let (_, seen) = run(
        second.as_ref(),
        "find . -path ./.git -prune -o ! -type d -print | sort; cat src/a.py; git log --oneline | wc -l; git status --short",
    )
    .await;
    assert_eq!(seen, "./src/a.py\n./z\nprint(7)\n1\n");
    assert!(second.scan().await.unwrap().is_empty());
    let again = warm(&look, "run-heated", 2).await;
    assert!(again.contains(&ready[0]), "the label stays as it was made");

    // One that was killed from outside is not handed out.
    let next = again.iter().find(|id| **id != ready[0]).unwrap();
    until_ready(&pool, &wanted).await;
    look.kill_container(next, None).await.unwrap();
    let third = from_pool(&pool, &wanted, &base(), 0).await;
    assert_ne!(third.facts().container, *next);
    let (_, seen) = run(third.as_ref(), "cat src/a.py").await;
    assert_eq!(seen, "print(1)\n");
    for sandbox in [first, second, third] {
        sandbox.close().await;
    }
    pool.close().await;
    soon(&look, "run-heated", (0, 0)).await;
}

#[tokio::test]
async fn a_cancelled_run_keeps_nothing_warm() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let wanted = spec(python(&docker).await, "warm-cancelled");
    let cancel = CancellationToken::new();
    let pool = Pool::new(Arc::new(docker), &cancel);
    let sandbox = from_pool(&pool, &wanted, &base(), 2).await;
    warm(&look, "run-warm-cancelled", 1).await;
    // One is there, the other on its way.
    cancel.cancel();
    sandbox.close().await;
    pool.close().await;
    assert_eq!(left(&look, "run-warm-cancelled").await, (0, 0));
}

/// Not a test by itself: the process that the tests below end, stop or abort.
#[tokio::test]
async fn holds_sandboxes_when_told() {
    let Ok(name) = std::env::var("WHARF_IT_HOLDS") else {
        return;
    };
    let lease = std::env::var("WHARF_IT_LEASE").ok();
    let docker = connect(|options| {
        options.lease = lease.map(|ms| Duration::from_millis(ms.parse().unwrap()));
    })
    .await;
    let mut wanted = spec(python(&docker).await, &name);
    wanted.network = Network::Full;
    let pool = Pool::new(Arc::new(docker), &CancellationToken::new());
    let _held = from_pool(&pool, &wanted, &base(), 1).await;
    let look = bollard::Docker::connect_with_defaults().unwrap();
    warm(&look, &format!("run-{name}"), 1).await;
    note("HELD");
    let mut line = String::new();
    tokio::io::BufReader::new(tokio::io::stdin())
        .read_line(&mut line)
        .await
        .unwrap();
    std::process::abort();
}

struct Holder {
    child: tokio::process::Child,
}

impl Holder {
    async fn start(name: &str, lease: Option<Duration>) -> Holder {
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "lifecycle::holds_sandboxes_when_told",
                "--nocapture",
            ])
            .env("WHARF_IT_HOLDS", name)
            .env("WHARF_IT_MACHINE", machine())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true);
        if let Some(lease) = lease {
            command.env("WHARF_IT_LEASE", lease.as_millis().to_string());
        }
        let mut child = command.spawn().unwrap();
        let mut lines = tokio::io::BufReader::new(child.stderr.take().unwrap()).lines();
        while lines.next_line().await.unwrap().expect("it holds two") != "HELD" {}
        // What it says from now on must find a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Holder { child }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// Removes networks of a run that nobody is left to remove; gives how many containers were left.
async fn bury(docker: &Docker, name: &str) -> usize {
    let dead = format!("run-{name}");
    let swept = docker.sweep(&|labels| labels.run == dead).await.unwrap();
    swept
        .removed
        .iter()
        .filter(|item| item.kind == sandbox::LeftoverKind::Container)
        .count()
}

#[tokio::test]
async fn an_abort_leaves_no_container_and_the_next_sweep_no_network() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let mut holder = Holder::start("aborted", None).await;
    let mut input = holder.child.stdin.take().unwrap();
    input.write_all(b"now\n").await.unwrap();
    let status = holder.child.wait().await.unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(6)
    );
    soon(&look, "run-aborted", (0, 2)).await;
    assert_eq!(bury(&docker, "aborted").await, 0);
    assert_eq!(left(&look, "run-aborted").await, (0, 0));
}

#[tokio::test]
async fn a_wharf_that_stands_still_longer_than_the_lease_loses_its_sandboxes() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let mut holder = Holder::start("stopped", Some(Duration::from_secs(3))).await;
    // While it runs, pings keep them, for longer than a lease.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(left(&look, "run-stopped").await.0, 2);
    holder.signal(rustix::process::Signal::STOP);
    soon(&look, "run-stopped", (0, 2)).await;
    holder.signal(rustix::process::Signal::CONT);
    holder.child.kill().await.unwrap();
    assert_eq!(bury(&docker, "stopped").await, 0);
    assert_eq!(left(&look, "run-stopped").await, (0, 0));
}

/// Passes connections to the engine on, until it is told to pass nothing more and keep all open.
struct Proxy {
    socket: PathBuf,
    frozen: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Proxy {
    fn start(engine: &'static str) -> Proxy {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let frozen = CancellationToken::new();
        let told = frozen.clone();
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((near, _)) = listener.accept().await {
                if told.is_cancelled() {
                    held.push(near);
                    continue;
                }
                let far = tokio::net::UnixStream::connect(engine).await.unwrap();
                tokio::spawn(pass(near, far, told.clone()));
            }
        });
        Proxy {
            socket,
            frozen,
            _dir: dir,
        }
    }
}

async fn pass(
    mut near: tokio::net::UnixStream,
    mut far: tokio::net::UnixStream,
    frozen: CancellationToken,
) {
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        // Both ends stay open, and neither hears of the other again.
        () = frozen.cancelled() => std::future::pending().await,
    }
}

#[tokio::test]
async fn a_half_open_connection_ends_on_both_sides() {
    let Some((direct, look)) = engine().await else {
        return;
    };
    let image = python(&direct).await;
    let proxy = Proxy::start("/var/run/docker.sock");
    let docker = connect(|options| {
        options.host = Some(format!("unix://{}", proxy.socket.display()));
        options.lease = Some(Duration::from_secs(3));
    })
    .await;
    let cancel = CancellationToken::new();
    let sandbox = docker
        .open(&spec(image, "half-open"), &base(), &cancel)
        .await
        .unwrap();
    proxy.frozen.cancel();
    soon(&look, "run-half-open", (0, 0)).await;
    let command = sandbox::Command {
        line: "true".into(),
        timeout: Duration::from_secs(60),
        background: false,
        keep: 100,
    };
    let answer =
        tokio::time::timeout(Duration::from_secs(60), sandbox.run(&command, &cancel)).await;
    assert!(
        matches!(answer.unwrap(), Err(Error::Broken { .. })),
        "a sandbox that is gone never answers a command"
    );
}

/// A state directory with runs; a live one's lock is held for the life of the value.
struct State {
    dir: tempfile::TempDir,
    held: Vec<std::fs::File>,
}

impl State {
    fn new() -> State {
        State {
            dir: tempfile::tempdir().unwrap(),
            held: Vec::new(),
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn run(&mut self, name: &str, alive: bool) {
        let dir = self.path().join("runs").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let file = std::fs::File::create(dir.join("lock")).unwrap();
        if alive {
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
            self.held.push(file);
        }
    }
}

/// The standard output of the program, which succeeds.
fn program(state: &State, args: &[&str]) -> String {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_wharf"))
        .args(args)
        .env("WHARF_HOME", state.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// How the program names this machine.
fn machine_of(state: &State) -> String {
    let shown = program(state, &["config", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let settings = shown["settings"].as_array().unwrap();
    let machine = settings.iter().find(|s| s["key"] == "machine").unwrap();
    machine["value"].as_str().unwrap().to_owned()
}

/// A running container and a network that Wharf did not make; id and name.
async fn foreign(
    look: &bollard::Docker,
    image: &str,
    name: &str,
    labels: HashMap<String, String>,
) -> (String, String) {
    let body = bollard::models::ContainerCreateBody {
        image: Some(image.to_owned()),
        labels: Some(labels.clone()),
        entrypoint: Some(vec!["sleep".into(), "600".into()]),
        ..Default::default()
    };
    let id = look.create_container(None, body).await.unwrap().id;
    look.start_container(&id, None).await.unwrap();
    let network = bollard::models::NetworkCreateRequest {
        name: format!("wharf-it-{}-{name}", std::process::id()),
        labels: Some(labels),
        ..Default::default()
    };
    let network_name = network.name.clone();
    look.create_network(network).await.unwrap();
    (id, network_name)
}

#[tokio::test]
async fn clean_removes_what_dead_runs_left_and_nothing_of_anybody_else() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let image = python(&docker).await;
    let (mut mine, mut other) = (State::new(), State::new());
    mine.run("dead", false);
    mine.run("alive", true);
    other.run("dead", false);
    let machine = machine_of(&mine);
    let labels = |state: &State, run: &str| sandbox::Labels {
        machine: machine.clone(),
        state: state.path().display().to_string(),
        run: run.to_owned(),
        subtask: "x".to_owned(),
    };
    let mut made = HashMap::new();
    for (name, map) in [
        ("dead", labels(&mine, "dead").to_map()),
        ("alive", labels(&mine, "alive").to_map()),
        ("other", labels(&other, "dead").to_map()),
        (
            "bystander",
            HashMap::from([("app".to_owned(), "1".to_owned())]),
        ),
    ] {
        made.insert(name, foreign(&look, &image.id, name, map).await);
    }
    let there = async |name: &str| {
        let (id, network) = &made[name];
        (
            look.inspect_container(id, None).await.is_ok(),
            look.inspect_network(network, None).await.is_ok(),
        )
    };
    let looked = program(&mine, &["clean", "--dry-run"]);
    assert!(
        looked.contains("would remove container") && looked.contains("of run dead"),
        "{looked}"
    );
    assert_eq!(there("dead").await, (true, true));
    let cleaned = program(&mine, &["clean"]);
    assert!(
        cleaned.contains("removed container") && cleaned.contains("run alive is alive"),
        "{cleaned}"
    );
    assert_eq!(there("dead").await, (false, false));
    for name in ["alive", "other", "bystander"] {
        assert_eq!(there(name).await, (true, true), "{name}");
    }
    for (id, network) in made.values() {
        let force = bollard::query_parameters::RemoveContainerOptionsBuilder::new()
            .force(true)
            .build();
        let _ = look.remove_container(id, Some(force)).await;
        let _ = look.remove_network(network).await;
    }
}

#[tokio::test]
async fn runs_beside_each_other_touch_only_their_own() {
    let Some((_, look)) = engine().await else {
        return;
    };
    let (mut mine, mut other) = (State::new(), State::new());
    mine.run("run-a", true);
    mine.run("run-b", false);
    other.run("run-a", false);
    let of = |state: &State| state.path().display().to_string();
    let first = connect(|options| options.state = mine.path().into()).await;
    let second = connect(|options| options.state = other.path().into()).await;
    let image = python(&first).await;
    let at = |state: &State, name: &str| {
        let mut spec = spec(image.clone(), name);
        spec.labels.state = of(state);
        spec
    };
    let cancel = CancellationToken::new();
    let (a, b, c) = (at(&mine, "a"), at(&mine, "b"), at(&other, "a"));
    let files = base();
    let (a, b, c) = tokio::join!(
        first.open(&a, &files, &cancel),
        first.open(&b, &files, &cancel),
        second.open(&c, &files, &cancel),
    );
    let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
    let dead = |state: PathBuf| {
        move |labels: &sandbox::Labels| {
            let lock = state.join("runs").join(&labels.run).join("lock");
            let file = std::fs::File::open(lock).unwrap();
            rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok()
        }
    };
    // The second state directory's sweep sees two runs of the same name, one of them its own.
    let swept = second.sweep(&dead(other.path().into())).await.unwrap();
    assert_eq!(ids(&swept), [c.facts().container.clone()]);
    for (sandbox, alive) in [(&a, true), (&b, true), (&c, false)] {
        let there = look
            .inspect_container(&sandbox.facts().container, None)
            .await;
        assert_eq!(there.is_ok(), alive);
    }
    // Two runs of one directory: the one that is dead goes, the other works on.
    let swept = first.sweep(&dead(mine.path().into())).await.unwrap();
    assert_eq!(ids(&swept), [b.facts().container.clone()]);
    assert_eq!(run(a.as_ref(), "cat src/a.py").await.1, "print(1)\n");
    for sandbox in [a, b, c] {
        sandbox.close().await;
    }
    assert_eq!(left(&look, "run-a").await, (0, 0));
}

fn ids(swept: &sandbox::Swept) -> Vec<String> {
    swept.removed.iter().map(|item| item.id.clone()).collect()
}

/// Containers, networks, volumes and named images of ours at the engine.
async fn count(look: &bollard::Docker, run: &str) -> (usize, usize, usize, BTreeSet<String>) {
    let (containers, networks) = left(look, run).await;
    let volumes = look
        .list_volumes(None::<bollard::query_parameters::ListVolumesOptions>)
        .await
        .unwrap();
    let images = look
        .list_images(None::<bollard::query_parameters::ListImagesOptions>)
        .await
        .unwrap();
    let ours = images.into_iter().flat_map(|image| image.repo_tags);
    let ours = ours.filter(|tag| tag.starts_with("wharf/")).collect();
    let volumes = volumes.volumes.map_or(0, |volumes| volumes.len());
    (containers, networks, volumes, ours)
}

#[tokio::test]
async fn a_hundred_sandboxes_leave_the_engine_as_it_was() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let image = python(&docker).await;
    let layer = layer_of(&docker, &spec(image.clone(), "cycles"), &base()).await;
    let before = count(&look, "run-cycles").await;
    let cancel = CancellationToken::new();
    let cycle = async |n: usize| {
        let mut wanted = spec(image.clone(), "cycles");
        if n.is_multiple_of(10) {
            wanted.network = Network::Full;
        }
        let layer = n.is_multiple_of(2).then_some(&layer);
        let vacant = docker.start(&wanted, layer, &cancel).await.unwrap();
        let sandbox = vacant.fill(&base(), &cancel).await.unwrap();
        run(sandbox.as_ref(), "echo x > x; mkdir -p y; cp -r src y").await;
        sandbox.close().await;
    };
    futures::stream::iter(0..100)
        .for_each_concurrent(4, cycle)
        .await;
    let after = count(&look, "run-cycles").await;
    assert_eq!((after.0, after.1), (0, 0));
    // Other tests may have volumes and images of their own coming and going: none of ours is more.
    assert!(
        after.2 <= before.2,
        "{} volumes, {} before",
        after.2,
        before.2
    );
    assert!(after.3.contains(&layer.image));
    let layers = |images: &BTreeSet<String>| {
        images
            .iter()
            .filter(|name| name.starts_with("wharf/layer"))
            .count()
    };
    note(&format!(
        "layers: {} before, {} after",
        layers(&before.3),
        layers(&after.3)
    ));
}

const LARGE_PLAN: &str = "version: 1\nname: test\ntask: Do it\nsandbox: {warm: 1}\n\
    acceptance: {criteria: [\"It is done\"]}\nsubtasks:\n\
    \x20 - {id: a, role: coder, brief: \"BRIEF a.\"}\n\
    \x20 - {id: b, role: coder, brief: \"BRIEF b.\", needs: [a]}\n";

fn large_answer(ask: &Ask, stands: bool) -> Answer {
    let bash = |line: String| Answer::call("bash", serde_json::json!({"command": line}));
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", serde_json::json!({"pattern": "made"})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, n) if ask.first.contains("BRIEF a.") => match (n, stands) {
            (0, _) => bash("echo made > made; ls /.wharf".into()),
            (n, false) if n < 38 => bash(format!("sleep 2; echo {n}")),
            _ => report("done", "made"),
        },
        (_, 0) => bash("ls /.wharf; cat made; find many -type f | wc -l".into()),
        (_, 1) => bash("mv many/7 elsewhere".into()),
        _ => report("done", "looked"),
    }
}

/// A run on a large workspace: its first agent works until the layer stands, the second stands on it.
#[tokio::test]
async fn a_large_workspace_is_layered_while_agents_work_and_they_are_told() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let mut world = World::new(&[]);
    for n in 0..5100 {
        put(
            &world.workspace.join(format!("many/{}/{n}", n / 100)),
            "x\n",
        );
    }
    world.engine = Arc::new(docker);
    world.options.machine = machine();
    world.options.state = "/tmp/wharf-it-state".into();
    world.options.run_id = Some(wharf::id::RunId::new(format!(
        "large-{}",
        std::process::id()
    )));
    let run_id = world.options.run_id.clone().unwrap().to_string();
    let seen = world.watch.clone();
    let stands = move || {
        let notices = seen.notices.lock().unwrap();
        notices.iter().any(|notice| {
            matches!(notice, wharf::run::Notice::Preparing { line } if line.starts_with("layer: ready"))
        })
    };
    let server = FakeModel::start(move |ask| large_answer(ask, stands())).await;
    let summary = wharf::run::start(world.order(LARGE_PLAN, connect_model(&server)))
        .await
        .unwrap();
    assert_eq!(summary.exit_code, 0, "{}", summary.reason);
    let requests = server.requests();
    let texts: Vec<String> = requests
        .iter()
        .map(|body| body["messages"].to_string())
        .collect();
    assert!(
        texts
            .iter()
            .any(|text| text.contains("BRIEF b.") && text.contains("EXDEV"))
    );
    let on_layer = |text: &String| text.contains("layer\\ntoolbox\\nmade\\n5100");
    assert!(texts.iter().any(on_layer), "{}", texts.last().unwrap());
    let run = summary.run_dir.clone();
    let patch = std::fs::read_to_string(summary.patch.expect("a patch")).unwrap();
    assert!(
        patch.contains("many/7/700") && patch.contains("elsewhere/700") && patch.contains("made")
    );
    soon(&look, &run_id, (0, 0)).await;
    std::fs::remove_dir_all(run).unwrap();
}
