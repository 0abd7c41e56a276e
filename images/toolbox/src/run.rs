//! The `run` and `process` calls: from a request to `Ran`.

use std::ffi::OsString;
use std::sync::Arc;

use std::time::{Duration, Instant};

use wharf_toolbox::memo::NO_SHELL;
use wharf_toolbox::message::{Ended, Printed, Ran, Reply};

use crate::bell::Bell;
use crate::command::{Commands, Running, crowded};
use crate::limits::Limits;
use crate::link::{Cancelled, Channel};
use crate::oom;
use crate::outcome::{Why, unstarted};
use crate::output::Status;
use crate::reaper::Said;
use crate::watch::Over;

/// How long an answer waits for output after the command has ended.
const DRAIN: Duration = Duration::from_millis(150);

/// Told when room had to be made for a command.
const CLEARED: &str =
    "the process limit was reached, so what earlier commands had left running was killed first";
/// Told when the streams could not be read to their end.
const CUT_SHORT: &str = "the end of the output may be missing";

/// Everything a command needs beside its words.
pub struct Shell {
    /// Absolute path of bash or sh, if the image has one.
    pub program: Option<String>,
    /// Where commands are started.
    pub commands: Arc<Commands>,
    /// Rung on every event.
    pub bell: Arc<Bell>,
    /// The limits of process 1 as they were.
    pub limits: Limits,
    /// What the disk watch says.
    pub over: Arc<Over>,
}

/// What a `Run` request asks.
pub struct Asked {
    /// For the shell.
    pub line: String,
    /// Then everything of it is killed.
    pub timeout: Duration,
    /// Do not wait.
    pub background: bool,
    /// Bytes of head and tail.
    pub keep: usize,
}

/// True for an error that says nothing about the shell: the line is too long, or there is no room.
fn passing(errno: i32) -> bool {
    errno == libc::E2BIG || crowded(errno)
}

/// What was known when a command began, and what to say beside its end.
struct Before {
    /// Kills of the memory limit so far.
    kills: Option<u64>,
    /// Something earlier commands left running was killed to make room.
    cleared: bool,
}

impl Shell {
    /// Runs a line.
    pub fn run(&self, channel: &Channel, asked: &Asked) -> Result<Reply, Cancelled> {
        let Some(program) = &self.program else {
            return self.refusal(channel, NO_SHELL, 127);
        };
        let argv = [program, "-c", &asked.line].map(OsString::from);
        let mut cleared = false;
        loop {
            let kills = oom::kills();
            self.over.clear();
            let running = match self.commands.start(&argv, asked.keep) {
                Ok(running) => running,
                Err(error) if !cleared && error.raw_os_error().is_some_and(crowded) => {
                    cleared = self.clear();
                    continue;
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    return self.refusal(channel, &unstarted(errno), 126);
                }
            };
            if asked.background {
                self.commands.keep(&running);
                return self.answer(channel, &running, Ended::Running, Vec::new());
            }
            let why = self.wait(channel, &running, asked.timeout);
            if !cleared && why.unstarted().is_some_and(crowded) {
                cleared = self.clear();
                continue;
            }
            return self.end(channel, &running, why, &Before { kills, cleared });
        }
    }

    fn wait(&self, channel: &Channel, running: &Running, timeout: Duration) -> Why {
        loop {
            let seen = self.bell.count();
            // First, because the watch kills the command itself.
            if let Some(limit) = self.over.said() {
                return Why::Over(limit);
            }
            let status = running.status();
            if status != Status::Open {
                return Why::Said(status);
            }
            if channel.cancelled() {
                return Why::Cancelled;
            }
            let left = timeout.saturating_sub(running.started.elapsed());
            if left.is_zero() {
                return Why::TimedOut;
            }
            self.bell.wait(seen, left);
        }
    }

    /// Kills what earlier commands left running; they are told of by whoever needed the room.
    fn clear(&self) -> bool {
        self.commands.kill_all();
        self.commands.wait_for_none();
        true
    }

    fn end(
        &self,
        channel: &Channel,
        running: &Running,
        why: Why,
        before: &Before,
    ) -> Result<Reply, Cancelled> {
        if !why.natural() {
            // Without descriptors nobody can be looked for.
            if let Err(reason) = self.limits.restore() {
                return Ok(Reply::Failed { reason });
            }
            if !self.commands.kill(running) {
                let reason = "processes of a command could not be killed".to_owned();
                return Ok(Reply::Failed { reason });
            }
        }
        if let Some(errno) = why.unstarted().filter(|&errno| !passing(errno)) {
            let error = std::io::Error::from_raw_os_error(errno);
            let reason = format!("the shell does not start any more: {error}");
            return Ok(Reply::Failed { reason });
        }
        let whole = self.drain(running);
        let counted = before.kills.zip(oom::kills());
        let starved = counted.map(|(then, now)| now > then);
        let (exit, note) = why.told(starved);
        let mut notes = Vec::from_iter(note);
        if before.cleared {
            notes.push(CLEARED.to_owned());
        }
        if !whole {
            notes.push(CUT_SHORT.to_owned());
        }
        self.answer(channel, running, exit, notes)
    }

    /// Waits until the streams end, but not for what was left running on purpose; false when it is
    /// not sure that all that was printed has been read.
    fn drain(&self, running: &Running) -> bool {
        let until = Instant::now() + DRAIN;
        loop {
            let seen = self.bell.count();
            let left = until.saturating_duration_since(Instant::now());
            if running.quiet() {
                return true;
            }
            if left.is_zero() {
                return self.commands.settle(running);
            }
            self.bell.wait(seen, left);
        }
    }

    /// Output so far of a background command, or its end.
    pub fn process(&self, channel: &Channel, id: u32, stop: bool) -> Result<Reply, Cancelled> {
        let Some(running) = self.commands.find(id) else {
            return Ok(Reply::Told {
                text: format!("there is no background process {id}"),
            });
        };
        let ran_on = running.status() == Status::Open;
        if stop && !self.commands.kill(&running) {
            let reason = format!("background process {id} could not be killed");
            return Ok(Reply::Failed { reason });
        }
        let whole = if stop {
            self.drain(&running)
        } else {
            self.commands.settle(&running)
        };
        let mut notes = Vec::new();
        let exit = match running.status() {
            Status::Open if stop && ran_on => Ended::Code(137),
            Status::Open => Ended::Running,
            Status::Said(Said::Ended(code)) => Ended::Code(code),
            Status::Said(Said::NotStarted(errno)) => {
                notes.push(unstarted(errno));
                Ended::Code(126)
            }
            Status::Silent => Ended::Code(137),
        };
        if !whole {
            notes.push(CUT_SHORT.to_owned());
        }
        // The watch kills all that runs, and says why until the next command begins.
        let limit = self
            .over
            .said()
            .filter(|_| exit == Ended::Code(137) && !stop);
        let Some(limit) = limit else {
            return self.answer(channel, &running, exit, notes);
        };
        notes.push(format!("{limit}; the command was killed"));
        self.answer(channel, &running, Ended::Full(137), notes)
    }

    fn answer(
        &self,
        channel: &Channel,
        running: &Running,
        exit: Ended,
        notes: Vec<String>,
    ) -> Result<Reply, Cancelled> {
        let spool = self.commands.spool();
        let (out_head, out_tail, mut stdout) = running.stdout.so_far(spool);
        let (err_head, mut err_tail, mut stderr) = running.stderr.so_far(spool);
        for note in notes {
            let line = format!(
                "{}[wharf] {note}\n",
                if stderr.total == 0 { "" } else { "\n" }
            );
            err_tail.extend_from_slice(line.as_bytes());
            stderr.tail += line.len() as u64;
            stderr.total += line.len() as u64;
        }
        let parts = [
            (&out_head, &mut stdout.head),
            (&out_tail, &mut stdout.tail),
            (&err_head, &mut stderr.head),
            (&err_tail, &mut stderr.tail),
        ];
        for (part, length) in parts {
            if exit != Ended::Cancelled {
                channel.write(part)?;
            } else if !channel.offer(part) {
                // Whoever cancelled may listen no more, so nothing is waited for.
                *length = 0;
            }
        }
        let elapsed_ms = u64::try_from(running.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let background = (exit == Ended::Running).then_some(running.id);
        Ok(Reply::Ran(Ran {
            exit,
            stdout,
            stderr,
            elapsed_ms,
            background,
        }))
    }

    /// The answer of a command that did not run.
    fn refusal(&self, channel: &Channel, text: &str, code: i32) -> Result<Reply, Cancelled> {
        let line = format!("[wharf] {text}\n");
        channel.write(line.as_bytes())?;
        let bytes = line.len() as u64;
        let stderr = Printed {
            head: bytes,
            tail: 0,
            total: bytes,
            spool: None,
        };
        let (exit, stdout) = (Ended::Code(code), Printed::default());
        Ok(Reply::Ran(Ran {
            exit,
            stdout,
            stderr,
            elapsed_ms: 0,
            background: None,
        }))
    }
}
