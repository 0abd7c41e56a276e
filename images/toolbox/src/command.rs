//! Commands: start under a reaper, wait, kill whole, answer.
//!
//! What a command leaves running when its shell ends well (`server &`) stays under its reaper and
//! lives as long as the sandbox, as a background command does; timeout, cancel and a limit kill
//! all of the call, and the answer waits until none of it is left.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, wait};

use crate::bell::{Bell, lock};
use crate::output::{Capture, Collector, Sink, Status};
use crate::reaper;
use crate::spool::Spool;
use crate::table;

/// Ended background commands that can still be asked for.
const REMEMBERED: usize = 64;

/// How long a reaper may take to end once nothing is under it: on a machine with much to do that is
/// seconds, and one given up too early breaks a sound sandbox. Far less than the 15 s that Wharf waits
/// for an answer beyond a command's own limit.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long reading what lies in a command's pipes may take.
const SETTLING: Duration = Duration::from_secs(5);

/// True for an error that room in the process table, or in memory, would mend.
pub fn crowded(errno: i32) -> bool {
    matches!(
        errno,
        libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE
    )
}

/// All commands of the sandbox.
pub struct Commands {
    root: PathBuf,
    environment: Vec<(OsString, OsString)>,
    bell: Arc<Bell>,
    collector: Arc<Collector>,
    /// Reapers that have not been waited for; held while one is started, so that the waiter never
    /// sees a child before it stands here.
    reapers: Mutex<BTreeSet<i32>>,
    background: Mutex<BTreeMap<u32, Arc<Running>>>,
    next: AtomicU32,
}

/// A command that was started.
pub struct Running {
    /// Numbers the commands of a sandbox.
    pub id: u32,
    reaper: i32,
    status: Arc<Mutex<Status>>,
    /// Standard output.
    pub stdout: Arc<Capture>,
    /// Standard error.
    pub stderr: Arc<Capture>,
    /// When it was started.
    pub started: Instant,
}

impl Commands {
    /// None yet; they will run in `root` with exactly `environment`.
    pub fn new(
        root: PathBuf,
        environment: Vec<(OsString, OsString)>,
        bell: Arc<Bell>,
        collector: Arc<Collector>,
    ) -> Arc<Commands> {
        Arc::new(Commands {
            root,
            environment,
            bell,
            collector,
            reapers: Mutex::default(),
            background: Mutex::default(),
            next: AtomicU32::new(1),
        })
    }

    /// The folder that commands start in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Starts a program with its arguments.
    pub fn start(&self, argv: &[OsString], keep: usize) -> std::io::Result<Arc<Running>> {
        self.start_with(argv, keep, &[])
    }

    /// `start` with more variables.
    pub fn start_with(
        &self,
        argv: &[OsString],
        keep: usize,
        more: &[(&str, &str)],
    ) -> std::io::Result<Arc<Running>> {
        let (status_end, said) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout_end, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr_end, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let ends = [status_end, stdout_end, stderr_end];
        for end in &ends {
            // Ours alone: the writing end of a pipe has flags of its own.
            rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK)?;
        }
        let mut reapers = lock(&self.reapers);
        let child = std::process::Command::new("/proc/self/exe")
            .arg(reaper::FLAG)
            .args(argv)
            .env_clear()
            .envs(self.environment.iter().cloned())
            .envs(more.iter().copied())
            .current_dir(&self.root)
            .stdin(Stdio::from(said))
            .stdout(Stdio::from(stdout))
            .stderr(Stdio::from(stderr))
            .process_group(0)
            .spawn()?;
        let reaper = i32::try_from(child.id()).unwrap_or(0);
        reapers.insert(reaper);
        drop(reapers);
        Ok(self.watch(reaper, keep, ends))
    }

    fn watch(&self, reaper: i32, keep: usize, pipes: [OwnedFd; 3]) -> Arc<Running> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let budget = Arc::default();
        let running = Arc::new(Running {
            id,
            reaper,
            status: Arc::new(Mutex::new(Status::Open)),
            stdout: Capture::new(keep, format!("{id}-stdout"), Arc::clone(&budget)),
            stderr: Capture::new(keep, format!("{id}-stderr"), budget),
            started: Instant::now(),
        });
        let [status, stdout, stderr] = pipes;
        self.collector.add(vec![
            (status, Sink::Status(Arc::clone(&running.status))),
            (stdout, Sink::Output(Arc::clone(&running.stdout))),
            (stderr, Sink::Output(Arc::clone(&running.stderr))),
        ]);
        running
    }

    /// Reads what a command has printed up to now; false when that took too long to be sure.
    pub fn settle(&self, running: &Running) -> bool {
        let streams = [&running.stdout, &running.stderr];
        self.collector.settle(streams);
        self.wait_until(SETTLING, || streams.iter().all(|stream| stream.settled()))
    }

    /// The texts of what commands printed.
    pub fn spool(&self) -> &Spool {
        self.collector.spool()
    }

    /// Makes a command one that `find` finds.
    pub fn keep(&self, running: &Arc<Running>) {
        let mut background = lock(&self.background);
        background.insert(running.id, Arc::clone(running));
        while background.len() > REMEMBERED {
            let ended = background
                .iter()
                .find(|(_, one)| one.status() != Status::Open)
                .map(|(id, _)| *id);
            let Some(id) = ended else { return };
            background.remove(&id);
        }
    }

    /// A background command.
    pub fn find(&self, id: u32) -> Option<Arc<Running>> {
        lock(&self.background).get(&id).cloned()
    }

    /// Kills all of a command; true when none of it is left.
    pub fn kill(&self, running: &Running) -> bool {
        let until = Instant::now() + FAREWELL;
        while self.lives(running) && Instant::now() < until {
            // A reaper without children ends by itself, and it alone is told so by the kernel; the
            // agent may have stopped it.
            if !table::kill_under(running.reaper) {
                return false;
            }
            table::wake(running.reaper);
            self.wait_until(Duration::from_millis(100), || !self.lives(running));
        }
        // One that lives on has children that no look at the table finds: nobody can say that they are gone.
        !self.lives(running) && self.kill_strays()
    }

    /// Until it is so, looking at each ring of the bell; false when it was not within `limit`.
    fn wait_until(&self, limit: Duration, so: impl Fn() -> bool) -> bool {
        let until = Instant::now() + limit;
        loop {
            let seen = self.bell.count();
            let left = until.saturating_duration_since(Instant::now());
            if so() {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            self.bell.wait(seen, left);
        }
    }

    /// Kills all that any command left running.
    pub fn kill_all(&self) -> bool {
        let reapers = lock(&self.reapers).clone();
        let mut gone = true;
        for reaper in reapers {
            gone &= table::kill_under(reaper);
            table::wake(reaper);
        }
        self.kill_strays() && gone
    }

    /// Until no reaper is left, since each takes up room; bounded.
    pub fn wait_for_none(&self) {
        self.wait_until(FAREWELL, || !self.any());
    }

    /// Kills processes under no living call: those whose reaper was killed from inside.
    pub fn kill_strays(&self) -> bool {
        let begun = Instant::now();
        let mut clear = 0;
        while begun.elapsed() < table::PATIENCE {
            let strays = {
                let reapers = lock(&self.reapers);
                table::strays(&reapers)
            };
            match strays {
                // One look can miss a process that moves while it is taken.
                Some(strays) if strays.is_empty() && clear == 1 => return true,
                Some(strays) if strays.is_empty() => clear += 1,
                Some(strays) => {
                    clear = 0;
                    self.kill_each(&strays);
                }
                None if begun.elapsed() > table::BLIND => return false,
                None => clear = 0,
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    fn kill_each(&self, strays: &BTreeSet<i32>) {
        for &stray in strays {
            table::kill_under(stray);
        }
        table::kill(strays);
    }

    /// True while anything may run.
    pub fn any(&self) -> bool {
        !lock(&self.reapers).is_empty()
    }

    fn lives(&self, running: &Running) -> bool {
        lock(&self.reapers).contains(&running.reaper)
    }

    /// Waits for every child there is, for ever; the only place that does.
    pub fn reap(&self) {
        loop {
            let seen = self.bell.count();
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, _))) => self.reaped(pid),
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.bell.wait(seen, Duration::from_secs(1)),
            }
        }
    }

    fn reaped(&self, pid: Pid) {
        if lock(&self.reapers).remove(&pid.as_raw_nonzero().get()) {
            self.bell.ring();
        }
    }
}

impl Running {
    /// What its reaper has said.
    pub fn status(&self) -> Status {
        *lock(&self.status)
    }

    /// True when both streams have ended.
    pub fn quiet(&self) -> bool {
        self.stdout.ended() && self.stderr.ended()
    }
}
