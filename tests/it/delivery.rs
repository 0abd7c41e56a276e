//! Where a result goes when it cannot go where it should: nothing is lost, and it is said.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use serde_json::json;
use wharf::journal::Event;
use wharf::run::{Delivery, Error, Status};
use wharf::workspace::{Applied, Force, Step};

use crate::server::{Answer, Ask, Role};
use crate::workspace::fixture;
use crate::world::{Ran, World, connect, passes, report, write};

const PLAN: &str = "version: 1\nname: test\ntask: Do the work\nacceptance: {criteria: [\"It is done\"]}\n\
                    subtasks:\n  - {id: a, role: coder, title: \"Write b\", brief: \"Write b.txt.\"}\n";

fn script(ask: &Ask) -> Answer {
    match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, 0) => write("b.txt", "made\n"),
        (_, 1) => Answer::call("bash", json!({"command": "true"})),
        _ => report("done", "wrote it"),
    }
}

/// A world whose workspace is a repository with one commit.
fn repository() -> World {
    let world = World::new(&[("a.txt", "a\n")]);
    fixture::init(&world.workspace);
    fixture::git(&world.workspace, &["add", "-A"]);
    fixture::git(&world.workspace, &["commit", "-q", "-m", "first"]);
    world
}

fn warned(ran: &Ran) -> String {
    let texts = ran.journal.iter().filter_map(|line| match &line.event {
        Event::Warned { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The result is a patch in the run's directory that git applies to the workspace.
fn is_a_patch(world: &World, ran: &Ran) {
    assert_eq!(ran.summary.branch, None);
    let patch = ran.summary.patch.clone().expect("a patch");
    assert_eq!(Path::new(&patch), world.state.join("runs/run/result.patch"));
    assert!(warned(ran).contains(&patch), "{}", warned(ran));
    fixture::git(&world.workspace, &["apply", "--check", &patch]);
}

#[tokio::test]
async fn a_branch_names_subtask_and_role_and_wharf_alone() {
    let world = repository();
    let ran = world.run(PLAN, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let format = "%s|%an <%ae>|%cn <%ce>|%(trailers:key=Wharf-Subtask,valueonly,separator=)|\
                  %(trailers:key=Wharf-Role,valueonly,separator=)";
    let log = fixture::git(
        &world.workspace,
        &["log", &format!("--format={format}"), "main..wharf/run"],
    );
    let wharf = "Wharf <wharf@localhost>";
    assert_eq!(log.trim(), format!("Write b|{wharf}|{wharf}|a|coder"));
    let own = fixture::git(&world.workspace, &["config", "--local", "user.name"]);
    assert_eq!(own.trim(), "Op");
}

#[tokio::test]
async fn a_branch_that_is_taken_leaves_a_patch_and_says_so() {
    let world = repository();
    fixture::git(&world.workspace, &["branch", "wharf/run"]);
    let ran = world.run(PLAN, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    is_a_patch(&world, &ran);
    assert!(warned(&ran).contains("wharf/run"));
}

#[tokio::test]
async fn a_branch_asked_for_by_name_is_refused_at_the_start_when_it_is_there() {
    for name in ["main", "a..b"] {
        let mut world = repository();
        world.options.delivery = Delivery::Branch(name.to_owned());
        let server = crate::server::FakeModel::start(script).await;
        let error = wharf::run::start(world.order(PLAN, connect(&server))).await;
        match error {
            Err(Error::Start { code, message, .. }) => assert_eq!(code, 2, "{message}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(server.requests().len(), 0);
    }
}

#[tokio::test]
async fn what_was_asked_for_by_name_and_cannot_be_is_a_fault_and_the_patch_is_there() {
    let mut world = repository();
    world.options.delivery = Delivery::Patch("/nonexistent/folder/p".into());
    let ran = world.run(PLAN, script).await;
    assert_eq!(ran.summary.exit_code, 3);
    assert!(
        ran.summary.reason.contains("/nonexistent/folder/p"),
        "{}",
        ran.summary.reason
    );
    is_a_patch(&world, &ran);

    // Somebody takes the name while the run is at work.
    let mut world = repository();
    world.options.delivery = Delivery::Branch("mine".to_owned());
    let workspace = world.workspace.clone();
    let ran = world
        .run(PLAN, move |ask| {
            if ask.role == Role::Verifier && ask.ordinal == 0 {
                fixture::git(&workspace, &["branch", "mine"]);
            }
            script(ask)
        })
        .await;
    assert_eq!(ran.summary.exit_code, 3);
    assert!(
        ran.summary.reason.contains("mine"),
        "{}",
        ran.summary.reason
    );
    is_a_patch(&world, &ran);
}

#[tokio::test]
async fn a_repository_at_work_gets_its_branch_all_the_same() {
    let world = repository();
    std::fs::write(world.workspace.join(".git/index.lock"), "").unwrap();
    let workspace = world.workspace.clone();
    let ran = world
        .run(PLAN, move |ask| {
            // The operator detaches HEAD and goes on meanwhile; the lock does not concern them.
            if ask.role == Role::Verifier && ask.ordinal == 0 {
                std::fs::remove_file(workspace.join(".git/index.lock")).unwrap();
                fixture::git(&workspace, &["checkout", "-q", "--detach"]);
                std::fs::write(workspace.join("later.txt"), "later\n").unwrap();
                fixture::git(&workspace, &["add", "-A"]);
                fixture::git(&workspace, &["commit", "-q", "-m", "later"]);
                std::fs::write(workspace.join(".git/index.lock"), "").unwrap();
            }
            script(ask)
        })
        .await;
    assert_eq!(
        ran.summary.branch.as_deref(),
        Some("wharf/run"),
        "{}",
        warned(&ran)
    );
    let names = fixture::git(
        &world.workspace,
        &["diff", "--name-status", "main", "wharf/run"],
    );
    assert_eq!(names, "A\tb.txt\n");
    assert!(world.workspace.join(".git/index.lock").exists());
    assert!(world.workspace.join("later.txt").exists());
}

#[tokio::test]
async fn beside_an_operator_who_commits_all_the_time_branches_are_whole() {
    let world = fixture::World::new().await;
    let dir = world.repository("repo", &[("a", "1\n")]);
    let base = world.base(&dir).await;
    let one = world.child(&base.commit, &[fixture::put("b", "2\n")]).await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let committing = {
        let (dir, stop) = (dir.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let more = ["commit", "-q", "--allow-empty", "-m", "more"];
                fixture::git(&dir, &more);
            }
        })
    };
    for n in 0..8 {
        let steps = [Step {
            commit: one.clone(),
            message: format!("step {n}"),
        }];
        let name = format!("wharf/r{n}");
        let made = world.store.deliver_branch(&dir, &base, &name, &steps).await;
        made.unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    committing.join().unwrap();
    fixture::git(&dir, &["fsck", "--full", "--strict"]);
    let branches = fixture::git(&dir, &["for-each-ref", "refs/heads/wharf"]);
    assert_eq!(branches.lines().count(), 8);
}

/// Runs one of the tests below again as a person without rights, whose files are private.
fn as_nobody(test: &str) {
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "umask 077; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", test])
        .current_dir("/");
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("1 passed"), "{said}");
}

fn chmod_all(dir: &Path, folders: u32) {
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let at = entry.unwrap().path();
            if at.is_dir() {
                open.push(at);
            }
        }
        fixture::chmod(&folder, ".", folders);
    }
}

#[test]
fn without_rights_a_read_only_repository_gives_a_patch() {
    as_nobody("delivery::inner_read_only_repository");
}

#[tokio::test]
#[ignore = "run by the test above, as somebody without rights"]
async fn inner_read_only_repository() {
    assert!(!rustix::process::geteuid().is_root());
    let world = repository();
    chmod_all(&world.workspace.join(".git"), 0o555);
    let ran = world.run(PLAN, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    is_a_patch(&world, &ran);
    chmod_all(&world.workspace.join(".git"), 0o755);
}

#[test]
fn without_rights_an_apply_changes_all_or_nothing_and_stays_private() {
    as_nobody("delivery::inner_apply");
}

#[tokio::test]
#[ignore = "run by the test above, as somebody without rights"]
async fn inner_apply() {
    assert!(!rustix::process::geteuid().is_root());
    let world = fixture::World::new().await;
    let dir = world.repository("repo", &[("a", "1\n"), ("d/b", "2\n"), ("d/c", "3\n")]);
    let base = world.base(&dir).await;
    let edits = [
        fixture::put("a", "one\n"),
        fixture::put("d/b", "two\n"),
        fixture::put("n/new", "new\n"),
    ];
    let result = world.child(&base.commit, &edits).await;
    fixture::chmod(&dir, "d", 0o555);
    let before = fixture::state(&dir.join("d"));
    let apply = async || {
        world
            .store
            .apply(&dir, &base.commit, &result, Force::No)
            .await
    };
    apply().await.unwrap_err();
    assert_eq!(fixture::state(&dir.join("d")), before);
    assert_eq!(fixture::read(&dir, "a"), "1\n");
    assert!(!dir.join("n").exists());
    fixture::chmod(&dir, "d", 0o755);
    let applied = apply().await.unwrap();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    assert_eq!(fixture::permissions(&dir, "n/new"), 0o600);
    assert_eq!(fixture::permissions(&dir, "n"), 0o700);
    let steps = [Step {
        commit: result,
        message: "m".into(),
    }];
    let made = world.store.deliver_branch(&dir, &base, "r", &steps).await;
    made.unwrap();
    fixture::git(&dir, &["fsck", "--full"]);
}

/// The program at a run's state, from anywhere.
fn wharf(world: &World, args: &str, through: Through) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_wharf");
    let line = format!("{program} {args}");
    let mut command = match through {
        Through::Pipe => std::process::Command::new("sh"),
        Through::Terminal => std::process::Command::new("script"),
    };
    match through {
        Through::Pipe => command.args(["-c", &line]),
        Through::Terminal => command.args(["-qec", &line, "/dev/null"]),
    };
    let home = world.state.join("home");
    let command = command
        .env_clear()
        .env("PATH", env!("PATH"))
        .env("HOME", home)
        .env("WHARF_HOME", &world.state)
        .stdin(std::process::Stdio::null())
        .current_dir("/");
    command.output().unwrap()
}

#[derive(Clone, Copy)]
enum Through {
    Pipe,
    /// A terminal, which `script` of util-linux pretends to be.
    Terminal,
}

const ODD: &str = "odd\n\u{e9} name";

#[tokio::test]
async fn a_diff_carries_everything_to_a_program_and_nothing_that_a_terminal_obeys() {
    let world = repository();
    let ran = world
        .run(PLAN, |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, _) => script(ask),
            (_, 0) => Answer::calls(vec![
                ("write_file", json!({"path": ODD, "content": "x\n"})),
                (
                    "write_file",
                    json!({"path": "esc.txt", "content": "a\u{1b}[2Jb\n"}),
                ),
                (
                    "write_file",
                    json!({"path": "bin", "content": "\u{0}\u{1}binary"}),
                ),
            ]),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "wrote them"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let whole = wharf(&world, "diff run", Through::Pipe);
    let one = wharf(&world, "diff run a", Through::Pipe);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    assert_eq!(whole.stdout, one.stdout);
    let patch = world.state.join("p");
    std::fs::write(&patch, &whole.stdout).unwrap();
    fixture::git(&world.workspace, &["apply", patch.to_str().unwrap()]);
    let read = |name: &str| std::fs::read(world.workspace.join(name)).unwrap();
    assert_eq!(read(ODD), b"x\n");
    assert_eq!(read("esc.txt"), b"a\x1b[2Jb\n");
    assert_eq!(read("bin"), b"\0\x01binary");

    let shown = wharf(&world, "diff run", Through::Terminal);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("[2Jb"), "{shown:?}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[tokio::test]
async fn an_apply_that_was_cut_off_is_undone_and_said_before_the_next() {
    let world = repository();
    let ran = world.run(PLAN, script).await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    // As a process leaves it that is killed when its first file is in place.
    let mark = "File 5d41402abc4b2a76b9719d911017c592ae2a1b1f1a6f3a6bbd4f1a6a6c1f3b2e";
    let bytes = |text: &str| json!(text.as_bytes());
    let moves = json!({
        "directory": bytes(world.workspace.to_str().unwrap()),
        "moves": [{"path": bytes("gone.txt"), "beside": bytes(".wharf-1-0.tmp"), "old": null, "new": mark}],
        "folders": [],
    });
    let ledger = world.state.join("runs/run/store.git/apply.json");
    std::fs::write(&ledger, format!("{moves}\nready\n")).unwrap();
    std::fs::write(world.workspace.join(".wharf-1-0.tmp"), "half").unwrap();
    let applied = wharf(&world, "apply run", Through::Pipe);
    let said = String::from_utf8_lossy(&applied.stderr);
    assert_eq!(applied.status.code(), Some(0), "{said}");
    assert!(
        said.contains("had been cut off and was undone first"),
        "{said}"
    );
    assert!(!ledger.exists());
    assert!(!world.workspace.join(".wharf-1-0.tmp").exists());
    assert_eq!(fixture::read(&world.workspace, "b.txt"), "made\n");
}
