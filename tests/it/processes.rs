//! What becomes of processes and their output, whatever a command does to stay, to hide or to drown
//! the rest: process 1 as a plain child first, then real containers, then whole runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{Command, Exit, Finished, ProcessAction, Sandbox};

use crate::container::{engine, open, python, run, spec};
use crate::operator::{Operator, skipped};
use crate::server::{Answer, FakeModel};
use crate::toolbox::{World, alive, end, marker, text};
use crate::world::report;

/// Python that changes the limit on open files of process 1 from inside: the soft one, or both.
fn lower(world: &World, hard: &str) -> String {
    let (pid, which) = (world.pid, "r.RLIMIT_NOFILE");
    format!(
        "python3 -c 'import resource as r; h = r.prlimit({pid}, {which})[1]; r.prlimit({pid}, {which}, (3, {hard}))'"
    )
}

/// The note of ours at the end of a command's errors.
fn note(finished: &Finished) -> String {
    String::from_utf8_lossy(&[finished.stderr.head.clone(), finished.stderr.tail.clone()].concat())
        .into_owned()
}

#[tokio::test]
async fn a_soft_limit_lowered_from_inside_is_put_back_before_anything_is_looked_for() {
    let world = World::new().await;
    let mark = marker(20);
    // Without descriptors the process table cannot be read, and nobody in it is seen; nor can the
    // kernel be asked which pipe has something, so a long output must be found by trying.
    let line = format!(
        "echo before; {}; setsid sleep {mark} & head -c 300000 /dev/zero | tr '\\0' x; echo after; \
         sleep {mark}",
        lower(&world, "h")
    );
    let finished = world.run_for(&line, Duration::from_secs(4)).await;
    assert_eq!(finished.exit, Exit::TimedOut);
    assert_eq!(finished.stdout.total, 300_013, "{finished:?}");
    assert!(finished.stdout.tail.ends_with(b"xafter\n"));
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert_eq!(world.run("echo next").await.exit, Exit::Code(0));
    world.run("echo kept > file").await;
    world.run(&lower(&world, "h")).await;
    let changes = world.scan().await;
    assert_eq!(changes.puts.len(), 1, "{changes:?}");
    assert!(changes.left_out.is_empty(), "{changes:?}");
    world.remote.close().await;
}

#[tokio::test]
async fn a_hard_limit_lowered_from_inside_breaks_the_sandbox_and_is_no_answer() {
    for call in ["run", "scan"] {
        let world = World::new().await;
        let mark = marker(21);
        let lower = lower(&world, "3");
        let line = format!("{lower}; setsid sleep {mark} & sleep {mark}");
        let command = Command {
            line: if call == "run" { line } else { lower },
            timeout: Duration::from_secs(3),
            background: false,
            keep: 4000,
        };
        let first = world.remote.run(&command, &world.cancel).await;
        let error = match call {
            "run" => first.unwrap_err(),
            _ => world.remote.scan().await.unwrap_err(),
        };
        assert!(error.to_string().contains("resource limit"), "{error}");
        world.remote.close().await;
        // In a container they would be gone with process 1.
        end(&mark);
    }
}

#[tokio::test]
async fn a_reaper_stopped_or_killed_from_inside_delays_nothing_and_hides_nobody() {
    let world = World::new().await;
    let mark = marker(22);
    for signal in ["STOP", "KILL"] {
        let line = format!(
            "setsid sleep {mark} & (setsid sh -c '(sleep {mark} &)' &) ; kill -{signal} $PPID; sleep {mark}"
        );
        let finished = world.run_for(&line, Duration::from_secs(2)).await;
        assert_ne!(finished.exit, Exit::Code(0), "{signal}");
        assert_eq!(alive(&mark), Vec::<String>::new(), "{signal}");
    }
    assert_eq!(world.run("echo next").await.exit, Exit::Code(0));
    world.remote.close().await;
}

#[tokio::test]
async fn what_was_printed_before_the_end_is_there_whoever_holds_the_stream() {
    let world = World::new().await;
    let mark = marker(24);
    // More than the collector takes in one read, and a holder that never lets the stream end.
    for _ in 0..10 {
        let line =
            format!("sleep {mark} & head -c 300000 /dev/zero | tr '\\0' x; echo END; exit 3");
        let finished = world.run(&line).await;
        assert_eq!(finished.exit, Exit::Code(3));
        assert_eq!(finished.stdout.total, 300_004);
        assert!(finished.stdout.tail.ends_with(b"xEND\n"));
    }
    world.remote.close().await;
    assert_eq!(alive(&mark), Vec::<String>::new());
}

#[tokio::test]
async fn a_holder_that_never_stops_printing_does_not_keep_the_answer() {
    let world = World::new().await;
    let finished = world.run("yes & echo started").await;
    assert_eq!(finished.exit, Exit::Code(0));
    let id = world.background("yes no").await;
    for _ in 0..3 {
        let seen = world.remote.process(id, ProcessAction::Output).await;
        let seen = seen.unwrap().unwrap();
        assert_eq!(seen.exit, Exit::Running);
    }
    world.remote.close().await;
}

#[tokio::test]
async fn a_spool_that_cannot_hold_all_says_how_much_it_holds() {
    let world = World::new().await;
    let flood = "yes 0123456 | head -c 20M";
    let mut spools = Vec::new();
    for _ in 0..6 {
        let finished = world.run(flood).await;
        assert_eq!(finished.stdout.total, 20 << 20);
        let told = finished.stdout.spool.unwrap();
        assert_eq!(told.bytes, 16 << 20);
        assert_eq!(std::fs::metadata(&told.path).unwrap().len(), told.bytes);
        spools.push(told.path);
    }
    // 64 MiB in all: of six texts of 16 MiB the four newest are left.
    let left: Vec<bool> = spools
        .iter()
        .map(|path| std::path::Path::new(path).exists())
        .collect();
    assert_eq!(left, [false, false, true, true, true, true]);
    // A folder that cannot be written costs the text, not the command, and is not promised.
    let spool =
        "d=$(dirname $(ls -d ../tmp/.wharf/out/*-stdout | tail -1)); mv $d $d.away; touch $d";
    assert_eq!(world.run(spool).await.exit, Exit::Code(0));
    let finished = world.run(flood).await;
    assert_eq!(
        (finished.exit, finished.stdout.spool),
        (Exit::Code(0), None)
    );
    world.remote.close().await;
}

#[tokio::test]
async fn no_terminal_no_pager_no_prompt() {
    let world = World::new().await;
    let (input, terminal) = (
        "cat; read -r x; python3 -c 'input()'; cat - /dev/stdin </dev/stdin; echo over",
        "tty; test -t 0; echo $?; test -t 1; echo $?; test -t 2; echo $?",
    );
    let finished = world.run(input).await;
    assert_eq!(finished.exit, Exit::Code(0));
    assert_eq!(text(&finished.stdout.head), "over\n");
    assert!(note(&finished).contains("EOFError"), "{finished:?}");
    let finished = world.run(terminal).await;
    assert_eq!(text(&finished.stdout.head), "not a tty\n1\n1\n1\n");
    // An editor, a pager or a question would wait for a person until the time is over.
    let line = "git init -q . && git config user.name a && git config user.email a@b && \
        echo 1 > f && git add f && git commit -qm one && git checkout -qb side && echo 2 > f && \
        git commit -qam two && git checkout -q - && echo 3 > g && git add g && git commit -qm three && \
        git merge side && git log -p && git diff HEAD~1 && git commit --amend && echo merged; \
        git clone -q https://127.0.0.1:1/x y; git rebase -i HEAD~1; echo done";
    let finished = world.run(line).await;
    assert_eq!(finished.exit, Exit::Code(0), "{finished:?}");
    let said = [finished.stdout.head, finished.stdout.tail].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.contains("merged\n") && said.ends_with("done\n"),
        "{said}"
    );
    let names =
        "GIT_EDITOR GIT_TERMINAL_PROMPT PAGER DEBIAN_FRONTEND PIP_NO_INPUT npm_config_yes CI";
    let finished = world
        .run(&format!(
            "for n in {names}; do printenv $n || echo no $n; done"
        ))
        .await;
    assert_eq!(
        text(&finished.stdout.head),
        "true\n0\ncat\nnoninteractive\n1\ntrue\nno CI\n"
    );
    world.remote.close().await;
}

#[tokio::test]
async fn a_line_too_long_for_the_kernel_is_told_and_breaks_nothing() {
    let world = World::new().await;
    for background in [false, true] {
        let command = Command {
            line: format!(": {}", "x".repeat(200_000)),
            timeout: Duration::from_secs(20),
            background,
            keep: 4000,
        };
        let finished = world.remote.run(&command, &world.cancel).await.unwrap();
        assert_eq!(finished.exit, Exit::Code(126));
        assert!(note(&finished).contains("was not started"), "{finished:?}");
    }
    assert_eq!(world.run("echo next").await.exit, Exit::Code(0));
    world.remote.close().await;
}

/// A command with a limit in seconds.
async fn ask(sandbox: &dyn Sandbox, line: &str, seconds: u64) -> Finished {
    let command = Command {
        line: line.into(),
        timeout: Duration::from_secs(seconds),
        background: false,
        keep: 4000,
    };
    let cancel = CancellationToken::new();
    sandbox.run(&command, &cancel).await.unwrap()
}

/// Takes every process there may be, so that one is free when it ends: its own.
const CROWD: &str = "exec python3 -c '
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(9999)
    except OSError as error:
        print(error.errno)
        break
'";

#[tokio::test]
async fn a_full_process_table_is_cleared_for_the_next_command_and_told() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let mut few = spec(python(&docker).await, "crowd");
    few.pids = 64;
    let sandbox = open(&docker, &few).await;
    for _ in 0..3 {
        // 11 is EAGAIN.
        assert_eq!(
            run(sandbox.as_ref(), CROWD).await,
            (Exit::Code(0), "11\n".to_owned())
        );
        let finished = ask(sandbox.as_ref(), "echo alive", 20).await;
        assert_eq!(finished.exit, Exit::Code(0), "{finished:?}");
        assert_eq!(text(&finished.stdout.head), "alive\n");
        assert!(note(&finished).contains("process limit"), "{finished:?}");
    }
    let (_, said) = run(sandbox.as_ref(), "echo alive").await;
    assert_eq!(said, "alive\n");
    sandbox.close().await;
}

/// Its name and when it began: another process 1 would have begun at another time.
const FIRST: &str = "cat /proc/1/comm; awk '{print $22}' /proc/1/stat";

/// A signal to all that the sandbox's user may signal, by somebody else than the shell: the kernel leaves out
/// who sends it.
const TO_ALL: [(&str, &str); 3] = [
    ("a child", "echo begun; (kill -9 -1); echo on"),
    (
        "a session of its own",
        "echo begun; setsid -w sh -c 'kill -9 -1'; echo on",
    ),
    (
        "Python",
        "echo begun; python3 -c 'import os; os.kill(-1, 9)'; echo on",
    ),
];

#[tokio::test]
async fn a_kill_of_all_processes_ends_its_command_and_not_process_1() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let sandbox = open(&docker, &spec(python(&docker).await, "all")).await;
    let (exit, first) = run(sandbox.as_ref(), FIRST).await;
    assert_eq!((exit, first.lines().count()), (Exit::Code(0), 2), "{first}");
    for (who, line) in TO_ALL {
        let server = Command {
            line: "sleep 9999".into(),
            timeout: Duration::from_secs(20),
            background: true,
            keep: 4000,
        };
        let cancel = CancellationToken::new();
        let server = sandbox.run(&server, &cancel).await.unwrap();
        let finished = ask(sandbox.as_ref(), line, 20).await;
        assert_eq!(finished.exit, Exit::Code(137), "{who}: {finished:?}");
        assert_eq!(text(&finished.stdout.head), "begun\n", "{who}");
        // What ran beside it is gone, and that is told, too.
        let id = server.background.unwrap();
        let seen = sandbox.process(id, ProcessAction::Output).await.unwrap();
        assert_eq!(seen.unwrap().exit, Exit::Code(137), "{who}");
        let next = run(sandbox.as_ref(), FIRST).await;
        assert_eq!(next, (Exit::Code(0), first.clone()), "{who}");
    }
    // The shell that sends it is left out, but not the process above it, and that is told.
    let finished = ask(sandbox.as_ref(), "kill -9 -1; sleep 20", 60).await;
    assert_eq!(finished.exit, Exit::Code(137), "{finished:?}");
    assert!(note(&finished).contains("was killed"), "{finished:?}");
    let next = run(sandbox.as_ref(), FIRST).await;
    assert_eq!(next, (Exit::Code(0), first));
    run(sandbox.as_ref(), "echo kept > kept").await;
    assert_eq!(sandbox.scan().await.unwrap().puts.len(), 1);
    assert_eq!(crate::container::left(&look, "run-all").await, (1, 0));
    sandbox.close().await;
}

/// The inside of a call that would write a file long after its limit.
const LATE: &str = "echo begun; \
    env -i setsid sh -c 'sleep 6; echo late > late1.txt' & \
    (setsid sh -c '(trap \"\" TERM HUP INT; sleep 6; echo late > late2.txt) &' &); \
    env -i setsid -f nohup sh -c 'sleep 6; echo late > late3.txt'; \
    (sleep 6; echo late > late4.txt) & wait";

fn bash(command: &str, seconds: u64) -> Answer {
    Answer::call(
        "bash",
        json!({"command": command, "timeout_seconds": seconds}),
    )
}

/// One subtask, no acceptance, no verifier.
const PLAN: &str = "version: 1\nname: one\ntask: Do the work\nmodel: openai/fake\n\
    subtasks: [{id: a, role: coder, brief: \"BRIEF a.\"}]\n";

/// The texts of all tool results, in order.
fn results(server: &FakeModel) -> Vec<String> {
    let requests = server.requests();
    let last = requests.last().unwrap();
    let messages = last["messages"].as_array().unwrap().clone();
    messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| message["content"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn a_call_killed_at_its_limit_writes_no_file_later_here_or_in_the_merged_tree() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    let server = FakeModel::start(|ask| match ask.ordinal {
        0 => bash(LATE, 2),
        1 => bash(
            "sleep 8; echo here > here.txt; ls; cat /proc/[0-9]*/comm",
            30,
        ),
        _ => report("done", "made it"),
    })
    .await;
    let said = operator.run(&server, PLAN, &["--no-verify"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let results = results(&server);
    assert!(
        results[0].starts_with("#1 exit code: 124 (timed out after 2 s"),
        "{results:?}"
    );
    assert!(results[0].contains("begun"), "{results:?}");
    assert!(results[1].contains("here.txt"), "{results:?}");
    for word in ["late", "sleep", "nohup"] {
        assert!(!results[1].contains(word), "{word}: {results:?}");
    }
    let patch = operator.of_run("result.patch");
    assert!(
        patch.contains("here.txt") && !patch.contains("late"),
        "{patch}"
    );
}

/// Kilobytes from a line of `/proc/PID/status`.
fn memory(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|one| one.strip_prefix(line));
    let kilobytes = found.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kilobytes.unwrap().parse().unwrap()
}

/// More than a gigabyte in all: lines, one line without an end, both streams at once; process 1 is
/// measured before and after.
fn floods(ordinal: usize) -> Answer {
    match ordinal {
        0 => bash("echo warm; grep VmHWM /proc/1/status", 30),
        // Lines, then one line without an end, then both streams at once.
        1 => bash(
            "yes 0123456789012345678901234567890 | head -c 600M; echo END",
            300,
        ),
        2 => bash("head -c 300M /dev/zero | tr '\\0' x; echo END", 300),
        3 => bash(
            "(yes e | head -c 100M >&2) & yes o | head -c 100M; wait; echo END; grep VmHWM /proc/1/status",
            300,
        ),
        _ => report("done", "saw it"),
    }
}

#[tokio::test]
async fn a_gigabyte_of_output_leaves_wharf_and_process_1_as_small_as_they_were() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    let pid = Arc::new(AtomicU32::new(0));
    let peaks = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (of, seen) = (Arc::clone(&pid), Arc::clone(&peaks));
    let server = FakeModel::start(move |ask| {
        seen.lock()
            .unwrap()
            .push(memory(of.load(Ordering::SeqCst), "VmHWM:"));
        floods(ask.ordinal)
    })
    .await;
    let plan = operator.beside("plan.yaml", PLAN);
    let args = [
        "run",
        "-f",
        &plan,
        "--run-id",
        "run",
        "--json",
        "--no-verify",
    ];
    // A terminal's input that nobody writes to: Wharf must not wait for it.
    let mut command = operator.command(Some(&server), &args);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let _held = child.stdin.take();
    pid.store(child.id().unwrap(), Ordering::SeqCst);
    let said = crate::operator::finish(child).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let results = results(&server);
    for result in &results[1..4] {
        assert!(
            result.starts_with('#') && result.contains("exit code: 0"),
            "{result}"
        );
        assert!(
            result.contains("END") && result.contains("bytes cut here"),
            "{result}"
        );
        assert!(result.chars().count() < 20_000);
    }
    let inside = |text: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kilobytes.parse().unwrap()
    };
    let (before, after) = (inside(&results[0]), inside(&results[3]));
    crate::container::note(&format!(
        "process 1 before and after 1.1 GB: {before} and {after} kB; wharf at each request: {peaks:?}"
    ));
    assert!(
        after < before + 8 * 1024,
        "process 1: {before} and {after} kB"
    );
    let peaks = peaks.lock().unwrap();
    assert!(peaks[4] < peaks[1] + 32 * 1024, "wharf: {peaks:?} kB");
}

#[tokio::test]
async fn a_memory_bomb_of_many_processes_leaves_process_1_alone() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let mut small = spec(python(&docker).await, "bombs");
    small.memory = 320 << 20;
    let sandbox = open(&docker, &small).await;
    let line = "python3 -c '
import os
for _ in range(60):
    if os.fork() == 0:
        b = []
        while True:
            b.append(bytearray(1 << 20))
for _ in range(60):
    os.wait()
'";
    for _ in 0..2 {
        let finished = ask(sandbox.as_ref(), line, 20).await;
        let starved = matches!(finished.exit, Exit::OutOfMemory(_) | Exit::TimedOut);
        assert!(starved, "{finished:?}");
        assert_eq!(
            run(sandbox.as_ref(), "echo alive").await,
            (Exit::Code(0), "alive\n".to_owned())
        );
    }
    let (_, badness) = run(
        sandbox.as_ref(),
        "cat /proc/1/oom_score_adj /proc/self/oom_score_adj",
    )
    .await;
    assert_eq!(badness, "500\n1000\n");
    sandbox.close().await;
}

/// Lengths at which something is cut somewhere.
const CUTS: [usize; 8] = [79, 199, 999, 1999, 3999, 7999, 31_999, 65_535];

/// Bytes that are no text, text cut where a character stands, output too long, no network, no input.
fn odd(ordinal: usize) -> Answer {
    match ordinal {
        0 => bash(
            "printf 'ok\\377\\376\\n'; head -c 4096 /bin/ls; printf 'end\\n'; \
            printf 'a\\000b\\033[2J\\033]0;owned\\007\\r\\033[31mred\\n'; touch \"$(printf 'bad\\377name')\"",
            30,
        ),
        1 => Answer::calls(
            CUTS.iter()
                .map(|n| {
                    let line = format!("python3 -c \"print('x'*{n}+'\u{431}'*50)\"");
                    ("bash", json!({"command": line}))
                })
                .collect(),
        ),
        2 => bash(
            "python3 -c \"print('x'*300000)\"; echo FATAL-AT-END; exit 3",
            30,
        ),
        3 => bash(
            "git ls-remote https://example.org/x; pip install requests; echo over",
            60,
        ),
        4 => bash(
            "cat; read -p 'ok? ' x; echo got=$x; python3 -c 'input()'",
            30,
        ),
        _ => report("done", "saw \u{1b}[2J it"),
    }
}

#[tokio::test]
async fn odd_output_reaches_the_model_whole_and_the_terminal_harmless() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    let server = FakeModel::start(|ask| odd(ask.ordinal)).await;
    let said = operator.run(&server, PLAN, &["--no-verify", "-v"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
    let results = results(&server);
    assert_eq!(results.len(), 4 + CUTS.len());
    for text in [
        "ok\u{fffd}\u{fffd}",
        "end\n",
        "a\u{2400}b\u{241b}[2J",
        "red",
    ] {
        assert!(results[0].contains(text), "{text}: {}", results[0]);
    }
    for (n, result) in CUTS.iter().zip(&results[1..]) {
        assert!(
            result.contains("exit code: 0") && result.ends_with("\u{431}\n"),
            "{n}: {result}"
        );
        assert!(!result.contains('\u{fffd}'), "{n}: {result}");
    }
    let [cut, offline, input] = &results[1 + CUTS.len()..] else {
        panic!("{results:?}");
    };
    assert!(
        cut.contains("exit code: 3") && cut.contains("FATAL-AT-END"),
        "{cut}"
    );
    assert!(
        offline.contains("resolve host") && offline.contains("over"),
        "{offline}"
    );
    assert!(
        input.contains("got=\n") && input.contains("EOFError"),
        "{input}"
    );
    let patch = operator.of_run("result.patch");
    assert!(patch.contains("bad\\377name"), "{patch}");
    let files = ["journal.jsonl", "result.json", "report.md"].map(|name| operator.of_run(name));
    for text in files.iter().chain([&said.stdout, &said.stderr]) {
        assert!(!text.contains(['\0', '\u{1b}', '\u{7}']), "{text}");
    }
    let shown = operator.wharf(None, &["log", "run"]).await.stdout;
    assert!(!shown.contains(['\0', '\u{1b}', '\u{7}']), "{shown}");
}
