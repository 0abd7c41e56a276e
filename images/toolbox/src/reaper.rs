//! The process above every command: it starts it, inherits all it leaves behind, and says how it
//! ended. It is this program again, with one thread and no way to be spoken to.
//!
//! Its standard input is the writing end of a pipe, on which it says `Said` once.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::{
    DumpableBehavior, WaitOptions, set_child_subreaper, set_dumpable_behavior, wait,
};

const BADNESS: &str = "/proc/self/oom_score_adj";

/// The argument that makes this program a reaper.
pub const FLAG: &str = "--reap";

/// What a reaper says of its command, in five bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The status a shell would show.
    Ended(i32),
    /// It could not be started; the error number.
    NotStarted(i32),
}

impl Said {
    fn bytes(self) -> [u8; 5] {
        let (tag, value) = match self {
            Said::Ended(code) => (b'e', code),
            Said::NotStarted(errno) => (b'n', errno),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Reads what was said; anything else is nothing.
    pub fn of(bytes: &[u8]) -> Option<Said> {
        let (tag, value) = bytes.split_first()?;
        let value = i32::from_le_bytes(value.try_into().ok()?);
        match tag {
            b'e' => Some(Said::Ended(value)),
            b'n' => Some(Said::NotStarted(value)),
            _ => None,
        }
    }
}

/// Runs `argv` and lives until nothing under it does.
pub fn main(argv: &[std::ffi::OsString]) {
    // Both can fail only on kernels older than any container engine; the toolbox then sees strays.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
    let badness = Badness::open();
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let Some((program, arguments)) = argv.split_first() else {
        return;
    };
    badness.raise();
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    badness.restore();
    close_outputs();
    match started {
        Ok(child) => outlive(child.id()),
        Err(error) => say(Said::NotStarted(error.raw_os_error().unwrap_or(0))),
    }
}

/// What the kernel goes by when memory is short: commands are to be taken before process 1 and the
/// reapers, which are as large as a small command. Raising needs no privilege, nor does going back.
struct Badness(Option<(File, Vec<u8>)>);

impl Badness {
    /// While the file still belongs to the user; a kernel without it leaves all as it is.
    fn open() -> Badness {
        let open = || {
            let usual = std::fs::read(BADNESS)?;
            let file = std::fs::OpenOptions::new().write(true).open(BADNESS)?;
            Ok::<_, std::io::Error>((file, usual))
        };
        Badness(open().ok())
    }

    fn raise(&self) {
        self.set(b"1000");
    }

    fn restore(&self) {
        self.set(self.0.as_ref().map_or(b"", |(_, usual)| usual));
    }

    fn set(&self, value: &[u8]) {
        if let Some((file, _)) = &self.0 {
            let _ = rustix::io::pwrite(file, value, 0);
        }
    }
}

fn outlive(command: u32) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().unsigned_abs() == command => {
                say(Said::Ended(code(ExitStatus::from_raw(status.as_raw()))));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(-1)
}

fn say(said: Said) {
    // Standard input is a pipe's writing end here; when the toolbox is gone nobody listens.
    let _ = rustix::io::write(std::io::stdin(), &said.bytes());
}

/// The command alone holds its outputs, so that they end when it and its children do.
#[expect(
    unsafe_code,
    reason = "standard outputs have no owner that could be dropped"
)]
fn close_outputs() {
    for descriptor in [1, 2] {
        // SAFETY: nothing in this process writes to 1 or 2 afterwards, and no owner of them lives.
        unsafe { libc::close(descriptor) };
    }
}
