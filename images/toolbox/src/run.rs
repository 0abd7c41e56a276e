//! The `run` and `process` calls: from a request to `Ran`.

use std::ffi::OsString;
use std::sync::Arc;

use std::time::{Duration, Instant};

use wharf_toolbox::memo::NO_SHELL;
use wharf_toolbox::message::{Ended, Printed, Ran, Reply};

use crate::bell::Bell;
use crate::command::{Commands, Running};
use crate::limits::Limits;
use crate::link::{Cancelled, Channel};
use crate::oom;
use crate::output::Status;
use crate::reaper::Said;
use crate::watch::Over;

/// How long an answer waits for output after the command has ended.
const DRAIN: Duration = Duration::from_millis(150);

/// Said of a command that was killed where the memory limit does not count its kills.
const UNCOUNTED: &str = "it was killed; whether by the memory limit cannot be read here";

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

/// Why a wait for a command ended.
enum Why {
    Said(Status),
    TimedOut,
    Cancelled,
    Over(String),
}

impl Shell {
    /// Runs a line.
    pub fn run(&self, channel: &Channel, asked: &Asked) -> Result<Reply, Cancelled> {
        if let Err(reason) = self.limits.restore() {
            return Ok(Reply::Failed { reason });
        }
        let Some(program) = &self.program else {
            return self.refusal(channel, NO_SHELL, 127);
        };
        let argv = [program, "-c", &asked.line].map(OsString::from);
        let kills = oom::kills();
        self.over.clear();
        let running = match self.commands.start(&argv, asked.keep) {
            Ok(running) => running,
            Err(error) => {
                return self.refusal(
                    channel,
                    &format!("the command was not started: {error}"),
                    126,
                );
            }
        };
        if asked.background {
            self.commands.keep(&running);
            return self.answer(channel, &running, Ended::Running, None);
        }
        let why = self.wait(channel, &running, asked.timeout);
        self.end(channel, &running, why, kills)
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

    fn end(
        &self,
        channel: &Channel,
        running: &Running,
        why: Why,
        kills: Option<u64>,
    ) -> Result<Reply, Cancelled> {
        let natural = matches!(why, Why::Said(Status::Said(_)));
        if !natural && !self.commands.kill(running) {
            let reason = "processes of a command could not be killed".to_owned();
            return Ok(Reply::Failed { reason });
        }
        self.drain(running);
        let counted = kills.zip(oom::kills());
        let killed = counted.is_some_and(|(before, after)| after > before);
        let (exit, note) = match why {
            Why::Said(Status::Said(Said::Ended(code))) if killed => {
                (Ended::OutOfMemory(code), None)
            }
            // Without the counter the memory limit may be why, and nobody knows.
            Why::Said(Status::Said(Said::Ended(137))) if counted.is_none() => {
                (Ended::Code(137), Some(UNCOUNTED.to_owned()))
            }
            Why::Said(Status::Said(Said::Ended(code))) => (Ended::Code(code), None),
            Why::Said(Status::Said(Said::NotStarted(errno))) => {
                let error = std::io::Error::from_raw_os_error(errno);
                if errno == libc::E2BIG {
                    (
                        Ended::Code(126),
                        Some(format!("the command was not started: {error}")),
                    )
                } else {
                    let reason = format!("the shell does not start any more: {error}");
                    return Ok(Reply::Failed { reason });
                }
            }
            Why::Said(_) if killed => (Ended::OutOfMemory(137), None),
            Why::Said(_) => {
                let note = "the process above this command was killed, and the command with it";
                (Ended::Code(137), Some(note.to_owned()))
            }
            Why::TimedOut => (Ended::TimedOut, None),
            Why::Cancelled => (Ended::Cancelled, None),
            Why::Over(limit) => (
                Ended::Full(137),
                Some(format!("{limit}; the command was killed")),
            ),
        };
        self.answer(channel, running, exit, note.as_deref())
    }

    /// Waits until the streams end, but not for what was left running on purpose.
    fn drain(&self, running: &Running) {
        let until = Instant::now() + DRAIN;
        loop {
            let seen = self.bell.count();
            let left = until.saturating_duration_since(Instant::now());
            if running.quiet() || left.is_zero() {
                return;
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
        if stop {
            self.drain(&running);
        }
        let exit = match running.status() {
            Status::Open if stop && ran_on => Ended::Code(137),
            Status::Open => Ended::Running,
            Status::Said(Said::Ended(code)) => Ended::Code(code),
            Status::Said(Said::NotStarted(_)) => Ended::Code(126),
            Status::Silent => Ended::Code(137),
        };
        // The watch kills all that runs, and says why until the next command begins.
        let limit = self
            .over
            .said()
            .filter(|_| exit == Ended::Code(137) && !stop);
        match limit {
            Some(limit) => {
                let note = format!("{limit}; the command was killed");
                self.answer(channel, &running, Ended::Full(137), Some(&note))
            }
            None => self.answer(channel, &running, exit, None),
        }
    }

    fn answer(
        &self,
        channel: &Channel,
        running: &Running,
        exit: Ended,
        note: Option<&str>,
    ) -> Result<Reply, Cancelled> {
        let (out_head, out_tail, mut stdout) = running.stdout.so_far();
        let (err_head, mut err_tail, mut stderr) = running.stderr.so_far();
        if let Some(note) = note {
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
