//! A power loss: what a line of the journal relies on is on disk before the line is. Seen by the system
//! calls of a whole run, git's included; without strace on this machine it is said and not looked at.

#![expect(clippy::print_stderr, reason = "a look that is left out is said aloud")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::json;
use wharf::run::Status;

use crate::server::{Answer, Role};
use crate::world::{World, passes, report, write};

/// Lines that a resumed run relies on, each with what it names.
const LINES: [&str; 7] = [
    "run_started",
    "base_taken",
    "turn_done",
    "agent_ended",
    "merged",
    "delivered",
    "run_ended",
];

const PLAN: &str = "version: 1\ntask: Do the work\nrun: {parallel: 1}\n\
    acceptance: {commands: [\"test -f a.txt\"], criteria: [\"It is done\"]}\nsubtasks:\n  \
    - {id: a, role: coder, brief: \"Make a.txt.\"}\n  - {id: b, role: coder, brief: \"Make b.txt.\"}\n";

/// What is not on disk yet, by the calls so far.
#[derive(Default)]
struct Disk {
    /// Files with bytes that no sync followed.
    contents: BTreeSet<String>,
    /// Names that no sync of their folder followed.
    names: BTreeSet<String>,
    /// How often each kind of line was written.
    lines: BTreeMap<String, u32>,
    /// What was not on disk when a line was written.
    lost: Vec<String>,
}

/// One call as strace has it: name, arguments, whether it went well.
struct Call<'a> {
    name: &'a str,
    arguments: &'a str,
    well: bool,
}

impl<'a> Call<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_once('(')?;
        let (arguments, result) = rest.rsplit_once(") = ").unwrap_or((rest, "0"));
        Some(Self {
            name,
            arguments,
            well: !result.trim_start().starts_with('-'),
        })
    }

    /// The path behind its first descriptor.
    fn descriptor(&self) -> Option<&'a str> {
        let path = self.arguments.split_once('<')?.1;
        Some(path.split_once('>')?.0.trim_end_matches(" (deleted)"))
    }

    /// The paths that it names; relative ones begin at the folder of its descriptor, else, as git's do, at
    /// the store.
    fn paths(&self, store: &str) -> Vec<String> {
        let at = self.name.ends_with("at") || self.name == "renameat2";
        let folder = self.descriptor().filter(|_| at).unwrap_or(store);
        let mut pieces = self.arguments.split('"');
        let mut paths = Vec::new();
        while let (Some(_), Some(path)) = (pieces.next(), pieces.next()) {
            paths.push(match path.strip_prefix("./").unwrap_or(path) {
                path if path.starts_with('/') => path.replace("/./", "/"),
                path => format!("{folder}/{path}"),
            });
        }
        paths
    }
}

impl Disk {
    /// Takes every call of a trace in; `run` is the run's directory.
    fn of(trace: &str, run: &str) -> Self {
        let store = format!("{run}/store.git");
        let mut disk = Self::default();
        let mut cut: BTreeMap<&str, String> = BTreeMap::new();
        for line in trace.lines() {
            let Some((pid, line)) = line.split_once(' ') else {
                continue;
            };
            let line = line.trim_start();
            if let Some(begin) = line.strip_suffix(" <unfinished ...>") {
                disk.journaled(begin, run);
                cut.insert(pid, begin.to_owned());
            } else if let Some((_, end)) = line.split_once(" resumed>") {
                let whole = cut.remove(pid).unwrap_or_default() + end;
                disk.take(&whole, &store);
            } else {
                disk.journaled(line, run);
                disk.take(line, &store);
            }
        }
        disk
    }

    fn take(&mut self, line: &str, store: &str) {
        let Some(call) = Call::of(line).filter(|call| call.well) else {
            return;
        };
        let descriptor = call.descriptor().map(str::to_owned);
        match (call.name, call.paths(store).as_slice(), descriptor) {
            ("write" | "pwrite64" | "writev" | "ftruncate" | "copy_file_range", _, Some(at)) => {
                self.contents.insert(at);
            }
            ("fsync" | "fdatasync", _, Some(at)) => {
                self.contents.remove(&at);
                self.names
                    .retain(|name| Path::new(name).parent() != Some(Path::new(&at)));
            }
            ("openat", [at], _) if call.arguments.contains("O_CREAT") => {
                self.names.insert(at.clone());
            }
            ("mkdir" | "mkdirat", [at], _) => {
                self.names.insert(at.clone());
            }
            ("rename" | "renameat" | "renameat2" | "link" | "linkat", [from, to], _) => {
                let moved = call.name.starts_with("rename");
                let dirty = match moved {
                    true => self.contents.remove(from),
                    false => self.contents.contains(from),
                };
                match dirty {
                    true => self.contents.insert(to.clone()),
                    false => self.contents.remove(to),
                };
                if moved {
                    self.names.remove(from);
                }
                self.names.insert(to.clone());
            }
            ("unlink" | "unlinkat" | "rmdir", [at], _) => {
                let below = format!("{at}/");
                let gone = |path: &String| path == at || path.starts_with(&below);
                self.contents.retain(|path| !gone(path));
                self.names.retain(|path| !gone(path));
            }
            _ => {}
        }
    }

    /// Where a call writes lines, all that they may rely on must be on disk by now.
    fn journaled(&mut self, line: &str, run: &str) {
        let journal = format!("{run}/journal.jsonl");
        let call = Call::of(line).filter(|call| call.name == "write");
        let Some(call) = call.filter(|call| call.descriptor() == Some(journal.as_str())) else {
            return;
        };
        for kind in LINES {
            // strace writes quotes of a text with a backslash before each.
            if !call.arguments.contains(&format!(r#"\"type\":\"{kind}\""#)) {
                continue;
            }
            *self.lines.entry(kind.to_owned()).or_default() += 1;
            let open = self.contents.iter().map(|at| ("content", at));
            let open = open.chain(self.names.iter().map(|at| ("name", at)));
            let lost = open.filter(|(_, at)| lasts(at, run));
            let lost = lost.map(|(what, at)| format!("{kind}: the {what} of {at}"));
            self.lost.extend(lost.collect::<Vec<_>>());
        }
    }
}

/// True for what a resumed run reads, and for the folders above it.
fn lasts(at: &str, run: &str) -> bool {
    let Some(inside) = at.strip_prefix(run) else {
        // The state directory and its folder of runs.
        let mut above = Path::new(run).ancestors().skip(1).take(2);
        return above.any(|folder| folder == Path::new(at));
    };
    let passing = |part: &str| {
        let begins = ["merging-", "delivery-", "tmp_", ".tmp", ".wharf-patch-"];
        begins.iter().any(|begin| part.starts_with(begin)) || part.ends_with(".lock")
    };
    // Refs of a time of day only keep objects from being taken for garbage, which nobody collects.
    let of_a_time = inside
        .strip_prefix("/store.git/refs/wharf/")
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()));
    let own = ["/journal.jsonl", "/lock"].contains(&inside);
    !own && !of_a_time && !inside.split('/').any(passing)
}

/// Started by the test below, under strace.
#[tokio::test]
#[ignore = "the run that the test of the journal's order looks at"]
async fn a_run_to_look_at() {
    let world = World::new(&[("list.txt", "1\n"), ("deep/er/x.txt", "x\n")]);
    let ran = world
        .run(PLAN, |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, 0) => Answer::call("list_files", json!({})),
            (Role::Verifier, _) => passes(&["It is done"], "#1"),
            (_, 0) if ask.first.contains("Make a.txt") => write("a.txt", &"a line\n".repeat(3_000)),
            (_, 0) => write("b.txt", "b\n"),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            (_, 2) if ask.first.contains("Make a.txt") => {
                Answer::call("read_file", json!({"path": "a.txt"}))
            }
            _ => report("done", "made it"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
}

#[test]
fn what_a_line_of_the_journal_relies_on_is_on_disk_before_it() {
    let strace = Command::new("strace").arg("-V").output();
    if !strace.is_ok_and(|out| out.status.success()) {
        eprintln!("NOT LOOKED AT: there is no strace here, so the order of syncs was not seen");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let calls = "openat,write,pwrite64,writev,ftruncate,copy_file_range,fsync,fdatasync,rename,renameat,\
                 renameat2,link,linkat,mkdir,mkdirat,unlink,unlinkat,rmdir";
    let ran = Command::new("strace")
        .args([
            "-f",
            "-y",
            "-qq",
            "-s",
            "10000000",
            "-e",
            "signal=none",
            "-e",
        ])
        .arg(format!("trace={calls}"))
        .arg("-o")
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["durable::a_run_to_look_at", "--exact", "--ignored"])
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    let trace = String::from_utf8_lossy(&std::fs::read(&trace).unwrap()).into_owned();
    let run = trace.lines().find_map(|line| {
        let path = line.split_once("mkdir(\"")?.1.split_once('"')?.0;
        path.ends_with("/runs/run").then(|| path.to_owned())
    });
    assert!(
        trace.contains("/calls/"),
        "no output was kept beside the journal"
    );
    let disk = Disk::of(&trace, &run.expect("the run made its directory"));
    for kind in LINES {
        assert!(disk.lines.contains_key(kind), "{kind}: {:?}", disk.lines);
    }
    assert_eq!(disk.lost, [""; 0]);
}

/// The look itself sees what is missing.
#[test]
fn a_sync_that_is_missing_is_seen() {
    let line = r#"1 write(3</s/runs/run/journal.jsonl>, "{\"type\":\"turn_done\"}\n", 9) = 9"#;
    let lost = |calls: &[&str]| {
        let calls: Vec<String> = calls.iter().map(|call| format!("2 {call}")).collect();
        Disk::of(&format!("{}\n{line}\n", calls.join("\n")), "/s/runs/run").lost
    };
    let pack = r#"openat(AT_FDCWD</s/runs/run/store.git>, "./objects/pack/tmp_pack_1", O_RDWR|O_CREAT) = 3"#;
    let bytes = r#"write(3</s/runs/run/store.git/objects/pack/tmp_pack_1>, "x", 1) = 1"#;
    let synced = "fsync(3</s/runs/run/store.git/objects/pack/tmp_pack_1>) = 0";
    let named = r#"link("objects/pack/tmp_pack_1", "./objects/pack/pack-1.pack") = 0"#;
    let folder = "fsync(3</s/runs/run/store.git/objects/pack>) = 0";
    assert_eq!(lost(&[pack, bytes, synced, named, folder]), [""; 0]);
    assert_eq!(lost(&[pack, bytes, synced, named]).len(), 1);
    assert_eq!(lost(&[pack, bytes, named, folder]).len(), 1);
    assert_eq!(lost(&[r#"mkdir("/s/runs", 0777) = 0"#]).len(), 1);
    assert_eq!(
        lost(&[r#"mkdir("/s/runs", 0777) = -1 EEXIST (File exists)"#]),
        [""; 0]
    );
    let unfinished = "fsync(3</s/runs/run/store.git/objects/pack> <unfinished ...>";
    assert_eq!(lost(&[pack, bytes, synced, named, unfinished]).len(), 1);
    let both = [
        pack,
        bytes,
        synced,
        named,
        unfinished,
        "<... fsync resumed>) = 0",
    ];
    assert_eq!(lost(&both), [""; 0]);
}
