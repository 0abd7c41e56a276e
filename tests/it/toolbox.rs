//! The embedded toolbox, run as a plain child of the test in a temporary folder: the same program,
//! stream and host side as in a container, without an engine.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::remote::{self, Remote, Start};
use wharf::sandbox::{
    Changes, Command, Contents, Entry, Error, Exit, Facts, Finished, Mode, ProcessAction, Sandbox,
    Search, Tree,
};
use wharf_toolbox::message::{HostHello, Request, ToolboxHello};
use wharf_toolbox::seal::{self, Key, Seals, Side};
use wharf_toolbox::wire::{Frame, Kind, VERSION};

/// A toolbox over its own folders.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) remote: Remote,
    pub(crate) cancel: CancellationToken,
    pub(crate) pid: u32,
}

pub(crate) struct Setting {
    pub(crate) path: &'static str,
    pub(crate) disk: u64,
    pub(crate) inodes: u64,
    pub(crate) git: bool,
}

pub(crate) const PLAIN: Setting = Setting {
    path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    disk: 4 << 30,
    inodes: 500_000,
    git: false,
};

impl World {
    pub(crate) async fn new() -> World {
        World::with(PLAIN).await
    }

    pub(crate) async fn with(setting: Setting) -> World {
        let folder = tempfile::tempdir().unwrap();
        for name in ["workspace", "home", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut child = tokio::process::Command::new(env!("WHARF_TOOLBOX"))
            .args(["workspace", "home", "tmp"].map(|name| folder.path().join(name)))
            .env_clear()
            .env("PATH", setting.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (reader, writer) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let pid = child.id().unwrap();
        let (gone, ended) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(async move {
            let status = child.wait().await.unwrap();
            let _ = gone.send(status.to_string());
        });
        let start = Start {
            facts: Facts::default(),
            tree_base: None,
            git: setting.git,
            disk: setting.disk,
            inodes: setting.inodes,
            egress: None,
            closer: Box::new(|| Box::pin(async { waiting.await.unwrap() })),
        };
        let ended = async { ended.await.unwrap_or_else(|_| "lost".into()) };
        let remote = remote::start(reader, writer, start, ended).await.unwrap();
        World {
            folder,
            remote,
            cancel: CancellationToken::new(),
            pid,
        }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    pub(crate) async fn run(&self, line: &str) -> Finished {
        self.run_for(line, Duration::from_secs(20)).await
    }

    pub(crate) async fn run_for(&self, line: &str, timeout: Duration) -> Finished {
        let command = Command {
            line: line.into(),
            timeout,
            background: false,
            keep: 4000,
        };
        self.remote.run(&command, &self.cancel).await.unwrap()
    }

    pub(crate) async fn background(&self, line: &str) -> u32 {
        let timeout = Duration::from_secs(20);
        let command = Command {
            line: line.into(),
            timeout,
            background: true,
            keep: 4000,
        };
        let finished = self.remote.run(&command, &self.cancel).await.unwrap();
        assert_eq!(finished.exit, Exit::Running);
        finished.background.unwrap()
    }

    pub(crate) async fn scan(&self) -> Changes {
        self.remote.scan().await.unwrap()
    }
}

/// A tree of files in memory.
struct Given(BTreeMap<String, Bytes>);

impl Contents for Given {
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        let parts: Vec<_> = ids.iter().map(|id| Ok(self.0[id].clone())).collect();
        futures::stream::iter(parts).boxed()
    }
}

pub(crate) fn tree(files: &[(&[u8], Mode, &str)]) -> Tree {
    let entry = |mode: Mode, content: &str| Entry {
        mode,
        size: content.len() as u64,
        id: content.to_owned(),
    };
    Tree {
        entries: files
            .iter()
            .map(|(path, mode, c)| (path.to_vec(), entry(*mode, c)))
            .collect(),
        contents: Arc::new(Given(
            files
                .iter()
                .map(|(.., c)| ((*c).to_owned(), Bytes::copy_from_slice(c.as_bytes())))
                .collect(),
        )),
    }
}

pub(crate) fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Living processes whose command line holds the marker.
pub(crate) fn alive(marker: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(marker))
        .collect()
}

/// Ends whoever holds the marker: where process 1 is a plain child, nobody else ends what outlives it.
pub(crate) fn end(marker: &str) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let pid = number.and_then(rustix::process::Pid::from_raw);
        if let (true, Some(pid)) = (String::from_utf8_lossy(&line).contains(marker), pid) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// A number that no other process has on its command line.
pub(crate) fn marker(of: u32) -> String {
    format!("{}.{:07}", 90_000 + of, std::process::id())
}

fn puts(changes: &Changes) -> Vec<(&[u8], Mode, &[u8])> {
    changes
        .puts
        .iter()
        .map(|p| (p.path.as_slice(), p.mode, p.content.as_ref()))
        .collect()
}

#[tokio::test]
async fn a_command_answers_with_its_streams_apart_and_its_status() {
    let world = World::new().await;
    assert_eq!(world.remote.facts().shell.as_deref(), Some("bash"));
    let finished = world.run("echo out; echo err >&2; pwd; exit 7").await;
    assert_eq!(finished.exit, Exit::Code(7));
    assert_eq!(
        text(&finished.stdout.head),
        format!("out\n{}\n", world.workspace().display())
    );
    assert_eq!(text(&finished.stderr.head), "err\n");
    assert_eq!(world.run("kill -TERM $$").await.exit, Exit::Code(143));
    assert_eq!(world.run("no-such-command").await.exit, Exit::Code(127));
    world.remote.close().await;
    world.remote.close().await;
    let command = Command {
        line: "true".into(),
        timeout: Duration::from_secs(1),
        background: false,
        keep: 1,
    };
    let after = world.remote.run(&command, &world.cancel).await;
    assert!(matches!(after, Err(Error::Broken { .. })), "{after:?}");
    assert!(!Path::new(&format!("/proc/{}", world.pid)).exists());
}

#[tokio::test]
async fn a_timeout_kills_whatever_the_command_did_to_stay() {
    let world = World::new().await;
    let mark = marker(1);
    let line = format!(
        "echo partial; trap '' TERM INT HUP; setsid sleep {mark} & (setsid sh -c '(sleep {mark} &)' &); \
         env -i setsid -f sleep {mark}; (trap '' TERM; while :; do sleep {mark}; done) & wait"
    );
    let finished = world.run_for(&line, Duration::from_secs(1)).await;
    assert_eq!(finished.exit, Exit::TimedOut);
    assert_eq!(text(&finished.stdout.head), "partial\n");
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert_eq!(world.run("echo next").await.exit, Exit::Code(0));
    world.remote.close().await;
}

#[tokio::test]
async fn a_cancel_kills_and_says_so_and_a_dropped_call_kills_too() {
    let world = World::new().await;
    let mark = marker(2);
    let command = Command {
        line: format!("echo begun; touch begun; setsid sleep {mark} & wait"),
        timeout: Duration::from_secs(30),
        background: false,
        keep: 100,
    };
    let begun = async {
        while !world.workspace().join("begun").exists() {
            tokio::task::yield_now().await;
        }
        world.cancel.cancel();
    };
    let (finished, ()) = tokio::join!(world.remote.run(&command, &world.cancel), begun);
    let finished = finished.unwrap();
    assert_eq!(finished.exit, Exit::Cancelled);
    assert_eq!(text(&finished.stdout.head), "begun\n");
    assert_eq!(alive(&mark), Vec::<String>::new());

    std::fs::remove_file(world.workspace().join("begun")).unwrap();
    let fresh = CancellationToken::new();
    tokio::select! {
        _ = world.remote.run(&command, &fresh) => panic!("it sleeps for a day"),
        () = async { while !world.workspace().join("begun").exists() { tokio::task::yield_now().await; } } => {}
    }
    // The next command begins only when the dropped one is gone.
    let next = Command {
        line: "true".into(),
        ..command
    };
    assert_eq!(
        world.remote.run(&next, &fresh).await.unwrap().exit,
        Exit::Code(0)
    );
    assert_eq!(alive(&mark), Vec::<String>::new());
    world.remote.close().await;
}

#[tokio::test]
async fn what_reads_standard_input_ends_at_once() {
    let world = World::new().await;
    assert_eq!(world.run("cat").await.exit, Exit::Code(0));
    let finished = world.run("read -p 'ok? ' x; echo got=$x").await;
    assert_eq!(text(&finished.stdout.head), "got=\n");
    world.remote.close().await;
}

#[tokio::test]
async fn long_output_is_clipped_counted_and_spooled_and_memory_stays_flat() {
    let world = World::new().await;
    let finished = world.run("yes 0123456 | head -c 50M; echo end").await;
    assert_eq!(finished.exit, Exit::Code(0));
    assert_eq!(finished.stdout.total, (50 << 20) + 4);
    assert_eq!(
        (finished.stdout.head.len(), finished.stdout.tail.len()),
        (4000, 4000)
    );
    assert!(finished.stdout.tail.ends_with(b"end\n"));
    let told = finished.stdout.spool.unwrap();
    let spool = told.path;
    let size = std::fs::metadata(&spool).unwrap().len();
    assert_eq!((size, told.bytes), (16 << 20, 16 << 20));
    let read = world
        .remote
        .read(&spool, 1 << 20, 16)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (text(&read.bytes), read.size),
        ("0123456\n0123456\n", 16 << 20)
    );
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.pid)).unwrap();
    let peak: u64 = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        })
        .unwrap();
    assert!(peak < 16 * 1024, "{peak} kB");
    world.remote.close().await;
}

#[tokio::test]
async fn bytes_that_are_no_text_come_through_unchanged() {
    let world = World::new().await;
    let finished = world.run("printf 'a\\xff\\xc3\\n'").await;
    assert_eq!(finished.stdout.head.as_ref(), b"a\xff\xc3\n");
    world.remote.close().await;
}

#[tokio::test]
async fn orphans_are_reaped() {
    let world = World::new().await;
    let mark = marker(3);
    let line = format!(
        "for i in $(seq 200); do (sh -c 'exit 0' {mark} &); done; sleep 0.5; \
         grep -l 'State:.Z' /proc/[0-9]*/status | while read f; do \
         grep PPid $f; done | grep -c \"PPid:.$PPID$\""
    );
    let finished = world.run(&line).await;
    assert_eq!(text(&finished.stdout.head), "0\n");
    world.remote.close().await;
}

#[tokio::test]
async fn what_a_command_leaves_running_serves_the_next_and_ends_with_the_sandbox() {
    let world = World::new().await;
    let mark = marker(4);
    let line = format!(
        "(while [ ! -e stop ]; do sleep 0.05; echo tick; done; echo stopped > seen; sleep {mark}) & echo started"
    );
    let finished = world.run(&line).await;
    assert_eq!(finished.exit, Exit::Code(0));
    assert!(text(&finished.stdout.head).starts_with("started\n"));
    assert!(finished.elapsed < Duration::from_secs(5));
    let next = world
        .run("touch stop; until [ -e seen ]; do sleep 0.05; done; cat seen")
        .await;
    assert_eq!(text(&next.stdout.head), "stopped\n");
    world.remote.close().await;
    assert_eq!(alive(&mark), Vec::<String>::new());
}

#[tokio::test]
async fn a_background_command_is_heard_and_stopped() {
    let world = World::new().await;
    let mark = marker(5);
    let id = world
        .background(&format!("echo up; touch up; setsid sleep {mark} & wait"))
        .await;
    world.run("until [ -e up ]; do sleep 0.02; done").await;
    let so_far = world
        .remote
        .process(id, ProcessAction::Output)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (so_far.exit, text(&so_far.stdout.head)),
        (Exit::Running, "up\n")
    );
    let stopped = world
        .remote
        .process(id, ProcessAction::Stop)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stopped.exit, Exit::Code(137));
    assert_eq!(alive(&mark), Vec::<String>::new());
    let unknown = world
        .remote
        .process(99, ProcessAction::Output)
        .await
        .unwrap();
    assert_eq!(unknown.unwrap_err(), "there is no background process 99");
    world.remote.close().await;
}

#[tokio::test]
async fn killing_the_watcher_above_a_command_is_no_success() {
    let world = World::new().await;
    let mark = marker(6);
    let finished = world
        .run(&format!(
            "setsid sleep {mark} & kill -9 $PPID; sleep {mark}"
        ))
        .await;
    assert_eq!(finished.exit, Exit::Code(137));
    assert!(text(&finished.stderr.tail).contains("was killed"));
    assert_eq!(alive(&mark), Vec::<String>::new());
    world.remote.close().await;
}

#[tokio::test]
async fn a_full_disk_kills_the_command_and_says_why() {
    let world = World::with(Setting {
        disk: 8 << 20,
        ..PLAIN
    })
    .await;
    let finished = world.run("head -c 32M /dev/zero > big; sleep 60").await;
    assert_eq!(finished.exit, Exit::Full(137));
    assert!(
        text(&finished.stderr.tail).contains("disk limit 8 MiB reached"),
        "{finished:?}"
    );
    assert_eq!(world.run("rm big").await.exit, Exit::Code(0));
    world.remote.close().await;
}

#[tokio::test]
async fn an_image_without_a_shell_says_so() {
    let world = World::with(Setting {
        path: "/nowhere",
        ..PLAIN
    })
    .await;
    assert_eq!(world.remote.facts().shell, None);
    let finished = world.run("true").await;
    assert_eq!(finished.exit, Exit::Code(127));
    assert!(text(&finished.stderr.head).contains("this image has no shell"));
    world
        .remote
        .write("a/b", "x".into())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        puts(&world.scan().await),
        [(b"a/b".as_slice(), Mode::File, b"x".as_slice())]
    );
    world.remote.close().await;
}

#[tokio::test]
async fn a_tree_arrives_whole_and_only_changes_come_back() {
    let world = World::new().await;
    let odd: [&[u8]; 3] = [b"new\nline", b"\xff\xfe", b"-rf"];
    let before = tree(&[
        (odd[0], Mode::File, "1"),
        (odd[1], Mode::File, "2"),
        (odd[2], Mode::Executable, "3"),
        (b"d/e/f", Mode::File, "deep"),
        (b"empty", Mode::File, ""),
        (b"link", Mode::Link, "d/e/f"),
        (b"outside", Mode::Link, "/etc/passwd"),
        (b"swap", Mode::File, "file"),
        (b"turn/x", Mode::File, "in a folder"),
    ]);
    world.remote.upload(None, &before).await.unwrap();
    assert!(world.scan().await.is_empty());
    let mode = std::fs::metadata(world.workspace().join("-rf"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);

    let line = "touch d/e/f; chmod +x empty; rm link; ln -s elsewhere link; rm swap; mkdir swap; \
                echo in > swap/in; rm -r turn; echo flat > turn; rm ./-rf; printf '\\377' > $'a\\nb'; mkfifo pipe";
    assert_eq!(world.run(line).await.exit, Exit::Code(0));
    let changes = world.scan().await;
    let expected: Vec<(&[u8], Mode, &[u8])> = vec![
        (b"a\nb", Mode::File, b"\xff"),
        (b"empty", Mode::Executable, b""),
        (b"link", Mode::Link, b"elsewhere"),
        (b"swap/in", Mode::File, b"in\n"),
        (b"turn", Mode::File, b"flat\n"),
    ];
    assert_eq!(puts(&changes), expected);
    assert_eq!(
        changes.deletes,
        [b"-rf".to_vec(), b"swap".to_vec(), b"turn/x".to_vec()]
    );
    assert_eq!(
        changes.left_out,
        [(b"pipe".to_vec(), "neither file nor link".to_owned())]
    );
    assert!(world.scan().await.is_empty());
    world.remote.close().await;
}

#[tokio::test]
async fn a_layer_is_not_sent_again_and_what_it_has_too_much_goes() {
    let world = World::new().await;
    let layer = tree(&[
        (b"keep", Mode::File, "kept"),
        (b"old/a", Mode::File, "old"),
        (b"was", Mode::File, "file"),
    ]);
    world.remote.upload(None, &layer).await.unwrap();
    let mut next = tree(&[
        (b"keep", Mode::File, "kept"),
        (b"new", Mode::File, "new"),
        (b"was/now", Mode::File, "folder"),
    ]);
    next.contents = Arc::new(Given(
        ["new", "folder"]
            .map(|c| (c.to_owned(), Bytes::from(c)))
            .into_iter()
            .collect(),
    ));
    world.remote.upload(Some(&layer), &next).await.unwrap();
    let listing = world.remote.list(None, 10).await.unwrap().unwrap();
    assert_eq!(listing.lines, ["keep", "new", "was/now"]);
    assert!(!world.workspace().join("old").exists());
    // A layer that does not hold what it is said to hold is found out.
    std::fs::write(world.workspace().join("keep"), "longer than before").unwrap();
    let wrong = world.remote.upload(Some(&next), &next).await;
    assert!(matches!(wrong, Err(Error::Broken { .. })), "{wrong:?}");
    assert!(world.remote.scan().await.is_err());
    world.remote.close().await;
}

#[tokio::test]
async fn links_lead_nowhere_else() {
    let world = World::new().await;
    let outside = world.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("x"), "secret").unwrap();
    symlink(&outside, world.workspace().join("d")).unwrap();
    symlink("nothing", world.workspace().join("dangling")).unwrap();
    for path in ["d/x", "../outside/x", "/etc/hostname", "d/../../outside/x"] {
        let read = world.remote.read(path, 0, 100).await.unwrap();
        assert!(read.is_err(), "{path}: {read:?}");
        let written = world.remote.write(path, "evil".into()).await.unwrap();
        assert!(written.is_err(), "{path}");
    }
    assert!(
        world
            .remote
            .write("dangling", "evil".into())
            .await
            .unwrap()
            .is_err()
    );
    assert!(
        world
            .remote
            .write("d/new", "evil".into())
            .await
            .unwrap()
            .is_err()
    );
    assert_eq!(
        std::fs::read_to_string(outside.join("x")).unwrap(),
        "secret"
    );
    let into = tree(&[(b"d/x", Mode::File, "evil")]);
    assert!(world.remote.upload(None, &into).await.is_err());
    assert_eq!(
        std::fs::read_to_string(outside.join("x")).unwrap(),
        "secret"
    );
    world.remote.close().await;
}

#[tokio::test]
async fn a_repository_is_never_carried_nor_what_tools_leave_behind() {
    let world = World::new().await;
    let before = tree(&[
        (b".gitignore", Mode::File, "*.log\n/build/\n"),
        (b"build/tracked", Mode::File, "t"),
        (b"kept.log", Mode::File, "k"),
    ]);
    world.remote.upload(None, &before).await.unwrap();
    let line = "mkdir -p .git a/.GIT build/sub src/__pycache__ node_modules/x target; echo x | tee .git/config a/.GIT/hook \
                build/tracked build/new build/sub/new kept.log new.log src/__pycache__/m src/m.pyc node_modules/x/y \
                target/kept >/dev/null; git init -q nested 2>/dev/null; echo y > nested/f";
    assert_eq!(world.run(line).await.exit, Exit::Code(0));
    let changes = world.scan().await;
    let paths: Vec<&[u8]> = changes.puts.iter().map(|put| put.path.as_slice()).collect();
    let expected: Vec<&[u8]> = vec![b"build/tracked", b"kept.log", b"nested/f", b"target/kept"];
    assert_eq!(paths, expected);
    let left_out: Vec<&[u8]> = changes
        .left_out
        .iter()
        .map(|(path, _)| path.as_slice())
        .collect();
    let expected: Vec<&[u8]> = vec![
        b"a/.GIT/",
        b"build/",
        b"nested/.git/",
        b"new.log",
        b"node_modules/",
        b"src/__pycache__/",
        b"src/m.pyc",
    ];
    assert_eq!(left_out, expected);
    world.remote.close().await;
}

/// A file of the tree is carried whatever rules say, also when it was away for a while; a rule and what
/// tools make anew are told apart.
#[tokio::test]
async fn a_file_of_the_tree_that_comes_again_is_carried() {
    let world = World::new().await;
    let before = tree(&[
        (b".gitignore", Mode::File, "*.log\n/build/\n"),
        (b"build/tracked", Mode::File, "t"),
        (b"kept.log", Mode::File, "k"),
    ]);
    world.remote.upload(None, &before).await.unwrap();
    assert_eq!(world.run("rm -r build kept.log").await.exit, Exit::Code(0));
    let changes = world.scan().await;
    assert_eq!(
        changes.deletes,
        [b"build/tracked".to_vec(), b"kept.log".to_vec()]
    );
    let line = "mkdir build; echo t2 > build/tracked; echo x > build/new; echo k2 > kept.log; echo x > new.log; \
                echo x > a.pyc; mkdir cache; touch cache/.gitignore cache/CACHEDIR.TAG cache/x";
    assert_eq!(world.run(line).await.exit, Exit::Code(0));
    let changes = world.scan().await;
    let expected: Vec<(&[u8], Mode, &[u8])> = vec![
        (b"build/tracked", Mode::File, b"t2\n"),
        (b"kept.log", Mode::File, b"k2\n"),
    ];
    assert_eq!(puts(&changes), expected);
    let left_out = [
        ("a.pyc", "ignored"),
        ("build/", wharf::sandbox::BY_RULES),
        ("cache/", "ignored"),
        ("new.log", wharf::sandbox::BY_RULES),
    ];
    let left_out = left_out.map(|(path, why)| (path.as_bytes().to_vec(), why.to_owned()));
    assert_eq!(changes.left_out, left_out);
    world.remote.close().await;
}

#[tokio::test]
async fn the_agents_own_repository_begins_clean() {
    let world = World::with(Setting { git: true, ..PLAIN }).await;
    world
        .remote
        .upload(None, &tree(&[(b"a", Mode::File, "1\n")]))
        .await
        .unwrap();
    let finished = world
        .run("git log --format=%s && git status --short && echo 2 > a && git diff --stat")
        .await;
    assert_eq!(finished.exit, Exit::Code(0), "{finished:?}");
    assert!(
        text(&finished.stdout.head).starts_with("start\n a | 2 +-"),
        "{finished:?}"
    );
    let facts = world
        .run("git fsck --strict && git rev-parse --abbrev-ref HEAD && git log --format=%an && git config user.name")
        .await;
    assert_eq!(facts.exit, Exit::Code(0), "{facts:?}");
    assert_eq!(text(&facts.stdout.head), "main\nwharf\nagent\n");
    let own = world
        .run("git checkout -q -b try && git commit -qam two && git log --format=%an -1 && git stash list && git gc -q")
        .await;
    assert_eq!(own.exit, Exit::Code(0), "{own:?}");
    assert_eq!(text(&own.stdout.head), "agent\n");
    assert_eq!(world.scan().await.puts.len(), 1);
    world.remote.close().await;
}

#[tokio::test]
async fn files_are_read_written_listed_and_searched() {
    let world = World::new().await;
    let write = |path, content: &'static str| world.remote.write(path, Bytes::from(content));
    write("src/a.rs", "one\ntwo\n").await.unwrap().unwrap();
    write("/workspace/b.txt", "two\n").await.unwrap().unwrap();
    world.run("chmod +x b.txt; printf 'two\\0' > bin").await;
    write("b.txt", "TWO two\n").await.unwrap().unwrap();
    let mode = std::fs::metadata(world.workspace().join("b.txt"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    let read = world.remote.read("src/a.rs", 4, 2).await.unwrap().unwrap();
    assert_eq!((text(&read.bytes), read.size), ("tw", 8));
    let missing = world.remote.read("nope", 0, 1).await.unwrap();
    assert_eq!(missing.unwrap_err(), "nope: no such file");
    let folder = world.remote.read("src", 0, 1).await.unwrap();
    assert_eq!(folder.unwrap_err(), "src: is a directory");
    assert!(write("src", "x").await.unwrap().is_err());
    let listing = world
        .remote
        .list(Some("**/*.rs"), 10)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(listing.lines, ["src/a.rs"]);
    let cut = world.remote.list(None, 2).await.unwrap().unwrap();
    assert_eq!((cut.lines.len(), cut.cut), (2, true));
    let search = |pattern: &str, glob: Option<&str>| Search {
        pattern: pattern.into(),
        glob: glob.map(str::to_owned),
        limit: 10,
    };
    let found = world
        .remote
        .grep(&search("^two", None))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (found.lines, found.cut),
        (vec!["src/a.rs:2:two".to_owned()], false)
    );
    let found = world
        .remote
        .grep(&search("two", Some("*.txt")))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.lines, ["b.txt:1:TWO two"]);
    assert!(
        world
            .remote
            .grep(&search("(", None))
            .await
            .unwrap()
            .is_err()
    );
    world.remote.close().await;
}

#[tokio::test]
async fn a_large_file_goes_both_ways() {
    let world = World::new().await;
    let content = Bytes::from(vec![7; 5 << 20]);
    world
        .remote
        .write("large", content.clone())
        .await
        .unwrap()
        .unwrap();
    let read = world
        .remote
        .read("large", 0, 10 << 20)
        .await
        .unwrap()
        .unwrap();
    assert!(read.bytes == content);
    let changes = world.scan().await;
    assert!(changes.puts[0].content == content);
    world.remote.close().await;
}

#[tokio::test]
async fn a_toolbox_that_dies_breaks_every_call_with_the_reason() {
    let world = World::new().await;
    let finished = Command {
        line: format!("kill -9 {}; sleep 5", world.pid),
        timeout: Duration::from_secs(20),
        background: false,
        keep: 10,
    };
    let broken = world
        .remote
        .run(&finished, &world.cancel)
        .await
        .unwrap_err();
    assert!(broken.to_string().contains("signal: 9"), "{broken}");
    let again = world.remote.read("a", 0, 1).await.unwrap_err();
    assert!(again.to_string().contains("signal: 9"), "{again}");
    world.remote.close().await;
}

#[tokio::test]
async fn a_toolbox_that_is_no_toolbox_is_an_error() {
    let closer = || -> remote::Closer { Box::new(|| Box::pin(async {})) };
    let start = || Start {
        facts: Facts::default(),
        tree_base: None,
        git: false,
        disk: 1,
        inodes: 1000,
        egress: None,
        closer: closer(),
    };
    for noise in [b"{\"hello\":1}\n".as_slice(), b"\x00\x00\x00\x00\x09", b""] {
        let (mut near, far) = tokio::io::duplex(1024);
        tokio::io::AsyncWriteExt::write_all(&mut near, noise)
            .await
            .unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut near).await.unwrap();
        let (reader, writer) = tokio::io::split(far);
        let started =
            remote::start(reader, writer, start(), std::future::pending::<String>()).await;
        assert!(
            matches!(started.err(), Some(Error::Broken { .. })),
            "{noise:?}"
        );
    }
}

#[test]
fn an_answer_leaves_process_1_in_one_write() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["workspace", "home", "tmp"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("workspace/lines.txt"), "one\ntwo\n").unwrap();
    // A datagram socket keeps the writes apart that a pipe would run together.
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut child = std::process::Command::new(env!("WHARF_TOOLBOX"))
        .args(["workspace", "home", "tmp"].map(|name| folder.path().join(name)))
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &greeting_of_wharf(None)).unwrap();
    let mut bytes = [0; 4096];
    let greeted = ours.recv(&mut bytes).unwrap();
    let (greeting, _) = Frame::decode(&bytes[..greeted]).unwrap().unwrap();
    let mut seals = seals(&greeting);

    let read = Request::Read {
        path: "lines.txt".into(),
        offset: 0,
        limit: 100,
    };
    let mut sent = Vec::new();
    let open = Frame::json(Kind::Open, 1, &read).unwrap();
    seal::encode(&open, &mut seals[0], &mut sent);
    std::io::Write::write_all(&mut input, &sent).unwrap();
    let got = ours.recv(&mut bytes).unwrap();
    let (data, used) = seal::decode(&bytes[..got], &mut seals[1]).unwrap().unwrap();
    assert_eq!(data, Frame::data(1, b"one\ntwo\n".to_vec()));
    let (close, rest) = seal::decode(&bytes[used..got], &mut seals[1])
        .unwrap()
        .unwrap();
    assert_eq!((close.kind, used + rest), (Kind::Close, got));
    drop(input);
    assert!(child.wait().unwrap().success());
}

const KEY: Key = Key([9; 32]);

fn greeting_of_wharf(lease_ms: Option<u64>) -> Vec<u8> {
    let hello = HostHello {
        version: VERSION,
        disk: 1 << 30,
        inodes: 1000,
        key: Some(KEY),
        lease_ms,
        ..HostHello::default()
    };
    let mut sent = Vec::new();
    Frame::json(Kind::Hello, 0, &hello)
        .unwrap()
        .encode(&mut sent);
    sent
}

/// The seals of Wharf's frames and of the toolbox's, where it says that it wants them.
fn seals(greeting: &Frame) -> [Option<Seals>; 2] {
    assert_eq!(greeting.kind, Kind::Hello);
    let greeting: ToolboxHello = greeting.parse().unwrap();
    // Only a process that no other can look into keeps its streams to itself.
    assert_eq!(greeting.sealed, greeting.held.streams != Some(0));
    [Side::Wharf, Side::Toolbox].map(|from| greeting.sealed.then(|| Seals::new(&KEY, from)))
}

/// A toolbox that has greeted, its output, and the seals of Wharf's frames and of its own.
fn raw(
    lease_ms: Option<u64>,
) -> (
    tempfile::TempDir,
    std::process::Child,
    std::process::ChildStdout,
    [Option<Seals>; 2],
) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["workspace", "home", "tmp"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let mut child = std::process::Command::new(env!("WHARF_TOOLBOX"))
        .args(["workspace", "home", "tmp"].map(|name| folder.path().join(name)))
        .env_clear()
        .env("PATH", PLAIN.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.as_mut().unwrap();
    std::io::Write::write_all(input, &greeting_of_wharf(lease_ms)).unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut bytes = Vec::new();
    let greeting = loop {
        let mut byte = [0];
        std::io::Read::read_exact(&mut output, &mut byte).unwrap();
        bytes.push(byte[0]);
        if let Some((frame, _)) = Frame::decode(&bytes).unwrap() {
            break frame;
        }
    };
    let seals = seals(&greeting);
    (folder, child, output, seals)
}

/// A command that is killed because process 1 gives up has not ended by itself: nobody is told that it has.
#[test]
fn a_toolbox_that_gives_up_answers_nothing_more() {
    let nonsense = vec![0, 0, 0, 0, 99, 0, 0, 0, 0];
    for (lease, said, code) in [(Some(1500), Vec::new(), 75), (None, nonsense, 70)] {
        let (folder, mut child, mut output, mut seals) = raw(lease);
        let mut input = child.stdin.take().unwrap();
        let run = Request::Run {
            line: "touch begun; sleep 600".into(),
            timeout_ms: 600_000,
            background: false,
            keep: 100,
        };
        let mut sent = Vec::new();
        let open = Frame::json(Kind::Open, 1, &run).unwrap();
        seal::encode(&open, &mut seals[0], &mut sent);
        seal::encode(&Frame::end(1), &mut seals[0], &mut sent);
        std::io::Write::write_all(&mut input, &sent).unwrap();
        while !folder.path().join("workspace/begun").exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::io::Write::write_all(&mut input, &said).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut output, &mut bytes).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let mut rest = bytes.as_slice();
        while let Some((frame, used)) = seal::decode(rest, &mut seals[1]).unwrap() {
            assert_ne!(frame.kind, Kind::Close, "{frame:?}");
            rest = &rest[used..];
        }
    }
}

/// Root may take up any process's streams, so under root this toolbox seals: a frame of somebody else's ends it,
/// and it does nothing of what that frame asked for.
#[test]
fn a_frame_that_wharf_did_not_send_ends_process_1() {
    let (folder, mut child, _output, seals) = raw(None);
    let mut input = child.stdin.take().unwrap();
    if seals[0].is_none() {
        drop(input);
        assert!(child.wait().unwrap().success());
        return crate::container::note("SKIPPED: nobody here may take up another's streams");
    }
    let write = Request::Write {
        path: "made.txt".into(),
    };
    let mut sent = Vec::new();
    for frame in [
        Frame::json(Kind::Open, 1, &write).unwrap(),
        Frame::end(1),
        Frame::data(1, vec![0; 100]),
    ] {
        frame.encode(&mut sent);
    }
    std::io::Write::write_all(&mut input, &sent).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(70));
    assert!(!folder.path().join("workspace/made.txt").exists());
}
