//! Whether commands can take up the streams on which process 1 speaks with Wharf. Under Linux they cannot,
//! since process 1 cannot be dumped; a runtime that does not know of that lets every command write in its
//! name, and then nothing that it says is worth anything.

use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The argument that makes this program one that tries.
pub const FLAG: &str = "--peek";

/// What the program that tries says by its exit code.
const SHUT: i32 = 10;
const OPEN: i32 = 11;
const UNCLEAR: i32 = 12;

/// 0 when the streams are shut to commands, 1 when they are open; None when it could not be told. Waits
/// for a child, so it is asked before anybody else waits for children.
pub fn streams() -> Option<u64> {
    let tried = Command::new("/proc/self/exe")
        .arg(FLAG)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match tried.ok()?.code()? {
        SHUT => Some(0),
        OPEN => Some(1),
        _ => None,
    }
}

/// Tries what a command could try, and gives the exit code that says what came of it.
pub fn main() -> i32 {
    let Some(above) = rustix::process::getppid() else {
        return UNCLEAR;
    };
    let above = above.as_raw_nonzero();
    let ways = [(0, OFlags::RDONLY), (1, OFlags::WRONLY)];
    let found = ways.map(|(stream, way)| {
        let path = format!("/proc/{above}/fd/{stream}");
        let flags = way | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(_) => OPEN,
            // A socket is there and cannot be opened by its name.
            Err(Errno::ACCESS | Errno::PERM | Errno::NXIO) => SHUT,
            Err(_) => UNCLEAR,
        }
    });
    match found {
        [SHUT, SHUT] => SHUT,
        [OPEN, _] | [_, OPEN] => OPEN,
        _ => UNCLEAR,
    }
}
