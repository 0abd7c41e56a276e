//! The limits of a sandbox: refused when they cannot work, seen to hold inside, doubted aloud when
//! the engine does not hold them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf::run::{Notice, Status};
use wharf::sandbox::memory::Memory;
use wharf::sandbox::{
    self, Command, Docker, Doubt, Engine as _, Exit, FileLimits, Holds, Limit, Options, Sandbox,
    Spec,
};

use crate::container::{empty_tree, engine, left, open, python, run, spec};
use crate::proxy::{Proxy, Rule};
use crate::server::{Ask, Role};
use crate::world::{Ran, World, report};

const TWO: &str = "version: 1\ntask: Do it\nrun: {parallel: 1}\nsubtasks:\n  \
                   - {id: a, role: coder, brief: A}\n  - {id: b, role: coder, brief: B}\n";

#[tokio::test]
async fn what_is_asked_holds_inside_and_nothing_is_doubted() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let wanted = Spec {
        memory: 320 << 20,
        pids: 32,
        cpus: 0.5,
        files: FileLimits {
            inodes: 4000,
            size: 32 << 20,
            open: (200, 200),
        },
        strict: true,
        ..spec(python(&docker).await, "held")
    };
    let sandbox = open(&docker, &wanted).await;
    assert_eq!(sandbox.facts().doubts, []);
    let said = async |line: &str| run(sandbox.as_ref(), line).await;
    let group = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max \
                 /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/pids/pids.max 2>/dev/null";
    assert_eq!(said(group).await.1, "335544320\n32\n");
    assert_eq!(
        said("ulimit -Hn; ulimit -Sn; ulimit -c").await.1,
        "200\n200\n0\n"
    );
    // The least that a plan may give is enough for a pipe, a shell in it, and the commands after.
    let (exit, text) =
        said("seq 9 | sort -r | (read -r x; echo $x; wc -l) | cat; date | wc -l").await;
    assert_eq!((exit, text.as_str()), (Exit::Code(0), "9\n8\n1\n"));
    let (exit, text) =
        said("head -c 40000000 /dev/zero > big; echo $?; truncate -s 1T sparse; echo $?").await;
    assert_eq!(exit, Exit::Code(0), "{text}");
    assert!(
        text.contains("153"),
        "SIGXFSZ or an error, and a status that is not 0: {text}"
    );
    let (_, sizes) = said("stat -c %s big; stat -c %s sparse 2>/dev/null; true").await;
    assert!(
        sizes
            .lines()
            .all(|size| size.parse::<u64>().unwrap() <= 32 << 20),
        "{sizes}"
    );
    sandbox.close().await;
}

#[tokio::test]
async fn too_many_files_end_the_command_with_the_reason_and_the_sandbox_goes_on() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let mut wanted = spec(python(&docker).await, "inodes");
    wanted.files.inodes = 3000;
    let sandbox = open(&docker, &wanted).await;
    let line = "mkdir d; cd d; i=0; while :; do i=$((i+1)); : > f$i; done";
    let ended = one(sandbox.as_ref(), line).await;
    assert_eq!(ended.exit, Exit::Full(137));
    let said = [ended.stderr.head, ended.stderr.tail].concat();
    assert!(
        String::from_utf8_lossy(&said).contains("limit of 3000 files"),
        "{said:?}"
    );
    let (exit, count) = run(sandbox.as_ref(), "ls d | wc -l; rm -rf d; ls | wc -l").await;
    assert_eq!(exit, Exit::Code(0), "an agent may clean up: {count}");
    sandbox.close().await;
}

/// An engine that takes limits and drops them, with a warning for each.
fn deaf() -> Vec<Rule> {
    let drop_limits = Rule::request("/containers/create", |body| {
        let host = body["HostConfig"].as_object_mut().unwrap();
        for key in ["Memory", "MemorySwap", "PidsLimit"] {
            host.remove(key);
        }
    });
    let warn = Rule::answer("/containers/create", |body| {
        body["Warnings"] = json!([
            "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
            "Your kernel does not support pids limit capabilities or the cgroup is not mounted. PIDs limit discarded.",
        ]);
    });
    vec![drop_limits, warn]
}

async fn behind(proxy: &Proxy) -> Docker {
    let options = Options {
        host: Some(proxy.address()),
        state: "/tmp/wharf-it-state".into(),
        machine: format!("it-{}", std::process::id()),
        ..Options::default()
    };
    sandbox::connect(&options).await.unwrap()
}

#[tokio::test]
async fn a_limit_that_the_engine_drops_is_warned_of_once_a_run_and_refused_when_strict() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    python(&docker).await;
    let proxy = Proxy::start("/var/run/docker.sock".into(), deaf());
    let mut world = World::new(&[("a.txt", "one\n")]);
    world.engine = Arc::new(behind(&proxy).await);
    let ran = world.run(TWO, |_| report("done", "nothing to do")).await;
    assert_eq!(ran.summary.subtasks.len(), 2);
    let about = |word: &str| {
        let warnings = ran.summary.warnings.iter();
        warnings
            .filter(|text| text.contains(&format!("limit {word} of")))
            .count()
    };
    assert_eq!(
        (about("memory"), about("pids")),
        (1, 1),
        "{:?}",
        ran.summary.warnings
    );
    assert!(
        ran.summary
            .warnings
            .iter()
            .any(|text| text.contains("PIDs limit discarded"))
    );
    let told = |notice: &&Notice| matches!(notice, Notice::Warning { text } if text.contains("does not hold"));
    // Swap is not limited either where the machine has some.
    assert!(
        (2..=3).contains(&ran.notices.iter().filter(told).count()),
        "{:?}",
        ran.notices
    );

    let mut world = World::new(&[("a.txt", "one\n")]);
    world.engine = Arc::new(behind(&proxy).await);
    let strict = format!("{TWO}sandbox: {{strict: true}}\n");
    let ran = world.run(&strict, |_| panic!("nobody is asked")).await;
    refused(&ran, "does not hold the limit memory");
}

/// What an engine makes of the host's part of a create body.
type Way = fn(&mut Value);

/// What an engine makes of a container in its own way, and what is said of it.
const OWN_WAYS: [(&str, Way, &str); 4] = [
    (
        "a list of its own",
        |host| {
            let options = host["SecurityOpt"].as_array_mut().unwrap();
            options.retain(|option| !option.as_str().unwrap().starts_with("seccomp="));
        },
        "another list than Wharf's",
    ),
    (
        "no list",
        |host| host["SecurityOpt"] = json!(["no-new-privileges:true", "seccomp=unconfined"]),
        "system calls are not filtered",
    ),
    (
        "a network",
        |host| host["NetworkMode"] = json!("bridge"),
        "none was asked for",
    ),
    (
        "capabilities",
        |host| host["CapDrop"] = json!([]),
        "capabilities were not dropped",
    ),
];

/// What would let code out is no doubt that a plan may live with.
#[tokio::test]
async fn what_an_engine_makes_in_its_own_way_is_refused_and_leaves_nothing() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let wanted = spec(python(&docker).await, "own-way");
    for (name, way, reason) in OWN_WAYS {
        let rule = Rule::request("/containers/create", move |body| {
            way(&mut body["HostConfig"])
        });
        let proxy = Proxy::start("/var/run/docker.sock".into(), vec![rule]);
        let cancel = CancellationToken::new();
        let opened = behind(&proxy)
            .await
            .open(&wanted, &empty_tree(), &cancel)
            .await;
        let told = opened.err().expect(name).to_string();
        assert!(told.contains(reason), "{name}: {told}");
        assert_eq!(left(&look, "run-own-way").await, (0, 0));
    }
}

/// Refused before any agent was asked: the environment's fault.
fn refused(ran: &Ran, reason: &str) {
    assert_eq!(
        (ran.summary.status, ran.summary.exit_code),
        (Status::Error, 3)
    );
    assert!(
        ran.summary.reason.contains(reason),
        "{}",
        ran.summary.reason
    );
    assert!(
        ran.summary.reason.contains("sandbox.strict"),
        "{}",
        ran.summary.reason
    );
    assert_eq!(ran.server.requests().len(), 0);
}

fn unread(holds: Holds) -> Memory {
    Memory {
        doubts: vec![Doubt {
            limit: Limit::Memory,
            holds,
            text: "whether the limit memory of 2048 MiB holds could not be read".into(),
        }],
        ..Memory::default()
    }
}

#[tokio::test]
async fn what_could_not_be_read_is_said_and_never_counts_as_held() {
    let mut world = World::new(&[]);
    world.engine = Arc::new(unread(Holds::Unknown));
    let ran = world.run(TWO, |_| report("done", "nothing to do")).await;
    let said = ran
        .summary
        .warnings
        .iter()
        .filter(|text| text.contains("could not be read"));
    assert_eq!(said.count(), 1, "{:?}", ran.summary.warnings);

    let strict = format!("{TWO}sandbox: {{strict: true}}\n");
    let mut world = World::new(&[]);
    world.engine = Arc::new(unread(Holds::Unknown));
    let ran = world.run(&strict, |_| panic!("nobody is asked")).await;
    refused(&ran, "could not be read");

    // Seen to hold in spite of the engine's warning: said, and no reason to refuse.
    let mut world = World::new(&[]);
    world.engine = Arc::new(unread(Holds::Yes));
    let ran = world
        .run(&strict, |_| report("done", "nothing to do"))
        .await;
    assert_eq!(ran.summary.warnings.len(), 1);
    assert_ne!(ran.summary.exit_code, 3, "{}", ran.summary.reason);
}

#[tokio::test]
async fn more_memory_at_once_than_the_machine_has_is_a_warning_before_anything_starts() {
    let run = async |machine: Option<u64>| {
        let mut world = World::new(&[]);
        world.engine = Arc::new(Memory {
            memory: machine,
            ..Memory::default()
        });
        let plan = TWO.replace("parallel: 1", "parallel: 2");
        let ran = world.run(&plan, |_| report("done", "nothing to do")).await;
        ran.summary.warnings
    };
    assert_eq!(run(Some(4 << 30)).await, Vec::<String>::new());
    assert_eq!(run(None).await, Vec::<String>::new());
    let said = run(Some(3 << 30)).await;
    assert!(
        said[0].contains("2 sandboxes of 2g") && said[0].contains("3072 MiB"),
        "{said:?}"
    );
}

/// Runs a line; all of how it ended.
async fn one(sandbox: &dyn Sandbox, line: &str) -> sandbox::Finished {
    let command = Command {
        line: line.into(),
        timeout: Duration::from_secs(60),
        background: false,
        keep: 4000,
    };
    sandbox
        .run(&command, &tokio_util::sync::CancellationToken::new())
        .await
        .unwrap()
}

/// As the model sees it: the memory, the limit, and that the shell's own 0 is no success.
#[tokio::test]
async fn out_of_memory_is_named_with_its_limit_whoever_was_killed() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    python(&docker).await;
    let mut world = World::new(&[]);
    world.engine = Arc::new(docker);
    let plan = "version: 1\ntask: Do it\nsandbox: {memory: 320m}\n\
                subtasks: [{id: a, role: coder, brief: A}]\n";
    let child = "python3 -c 'b=bytearray(400<<20)'; echo after=$?";
    let shell = "exec python3 -c 'b=bytearray(400<<20)'";
    let ran = world
        .run(plan, move |ask: &Ask| {
            assert_eq!(ask.role, Role::Worker);
            let command =
                |line: &str| crate::server::Answer::call("bash", json!({"command": line}));
            match ask.ordinal {
                0 => command(child),
                1 => {
                    let seen = ask.last();
                    for part in ["exit code: 0", "out of memory", "320 MiB", "after=137"] {
                        assert!(seen.contains(part), "{part} in {seen}");
                    }
                    command(shell)
                }
                _ => {
                    let seen = ask.last();
                    for part in ["exit code: 137", "out of memory", "320 MiB"] {
                        assert!(seen.contains(part), "{part} in {seen}");
                    }
                    report("failed", "there is too little memory")
                }
            }
        })
        .await;
    assert_eq!(ran.server.requests().len(), 3);
}

/// A workspace that could never lie in its sandbox is refused with the key to change, before a model
/// is asked.
#[tokio::test]
async fn a_workspace_larger_than_its_sandbox_is_refused_by_the_key() {
    let large = "x".repeat(17 << 20);
    for (keys, reason) in [
        ("disk: 16m", "sandbox.disk allows (16 MiB)"),
        ("fsize: 16m", "sandbox.fsize allows (16 MiB)"),
        ("inodes: 1000", "sandbox.inodes allows (1000)"),
    ] {
        let many: Vec<(String, &str)> = (0..1001).map(|n| (format!("f{n}"), "x")).collect();
        let files: Vec<(&str, &str)> = match keys {
            "inodes: 1000" => many
                .iter()
                .map(|(name, text)| (name.as_str(), *text))
                .collect(),
            _ => vec![("large", large.as_str())],
        };
        let world = World::new(&files);
        let plan = format!("{TWO}sandbox: {{{keys}}}\n");
        let ran = world.run(&plan, |_| panic!("nobody is asked")).await;
        assert_eq!(
            (ran.summary.status, ran.summary.exit_code),
            (Status::Error, 3)
        );
        assert!(
            ran.summary.reason.contains(reason),
            "{}",
            ran.summary.reason
        );
    }
}

/// What the engine keeps of a live container beside what was asked, and what its kernel shows inside.
#[tokio::test]
async fn nothing_of_the_host_is_shared_and_the_engines_masks_stand() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let sandbox = open(&docker, &spec(python(&docker).await, "masks")).await;
    let seen = look
        .inspect_container(&sandbox.facts().container, None)
        .await
        .unwrap();
    let inside = async |line: &str| run(sandbox.as_ref(), line).await.1;
    let host = seen.host_config.unwrap();
    let none = |list: Option<Vec<String>>| list.unwrap_or_default().is_empty();
    assert_eq!(host.privileged, Some(false));
    assert!(
        none(host.binds) && none(host.cap_add) && none(host.group_add) && none(host.volumes_from)
    );
    assert!(host.devices.unwrap_or_default().is_empty());
    assert!(host.device_requests.unwrap_or_default().is_empty());
    for mode in [
        host.pid_mode,
        host.uts_mode,
        host.userns_mode,
        host.cgroup_parent,
    ] {
        assert_eq!(mode.unwrap_or_default(), "");
    }
    assert!(!host.init.unwrap_or(false), "process 1 is the toolbox");
    assert!(!host.oom_kill_disable.unwrap_or(false));
    assert_eq!(host.oom_score_adj, Some(500));
    assert!(
        host.masked_paths
            .unwrap()
            .iter()
            .any(|path| path == "/proc/kcore")
    );
    assert!(
        host.readonly_paths
            .unwrap()
            .iter()
            .any(|path| path == "/proc/sys")
    );
    assert_eq!(host.log_config.unwrap().typ.as_deref(), Some("none"));
    assert_eq!(inside("cat /proc/1/oom_score_adj").await, "500\n");
    assert_eq!(
        inside("cut -d: -f3 /proc/self/cgroup | sort -u").await,
        "/\n",
        "a group namespace of its own"
    );
    assert_eq!(
        inside("ls -d /dev/shm 2>/dev/null; ls /sys/fs/bpf 2>/dev/null; true").await,
        ""
    );
    sandbox.close().await;
}
