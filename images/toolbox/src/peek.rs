//! Whether commands can take up the streams on which process 1 speaks with Wharf, and whether they can look
//! into process 1 itself. Under Linux they can do neither, since process 1 cannot be dumped. A runtime that
//! does not know of that for the streams lets every command write in its name: then frames are sealed, with a
//! key that is safe only where the second is not possible either.

use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The argument that makes this program one that tries.
pub const FLAG: &str = "--peek";

/// What the program that tries says by its exit code: `BASE`, three times what it found of the streams, and
/// what it found of the memory.
const BASE: i32 = 10;
const SHUT: i32 = 0;
const OPEN: i32 = 1;
const UNCLEAR: i32 = 2;

/// 0 where something is shut to commands, 1 where it is open; None when it could not be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Standard input and output of process 1.
    pub streams: Option<u64>,
    /// Its memory and registers.
    pub traced: Option<u64>,
}

/// Has a child try. Waits for it, so this is asked before anybody else waits for children.
pub fn look() -> Seen {
    let tried = Command::new("/proc/self/exe")
        .arg(FLAG)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let code = tried.ok().and_then(|status| status.code());
    code.map(seen).unwrap_or_default()
}

fn seen(code: i32) -> Seen {
    let told = |found| match found {
        SHUT => Some(0),
        OPEN => Some(1),
        _ => None,
    };
    let code = code - BASE;
    match code {
        0..9 => Seen {
            streams: told(code / 3),
            traced: told(code % 3),
        },
        _ => Seen::default(),
    }
}

/// Tries what a command could try, and gives the exit code that says what came of it.
pub fn main() -> i32 {
    let Some(above) = rustix::process::getppid() else {
        return BASE + 3 * UNCLEAR + UNCLEAR;
    };
    let above = above.as_raw_nonzero().get();
    let streams = [(0, OFlags::RDONLY), (1, OFlags::WRONLY)]
        .map(|(stream, way)| opened(&format!("/proc/{above}/fd/{stream}"), way));
    let memory = opened(&format!("/proc/{above}/mem"), OFlags::RDONLY);
    BASE + 3 * together(&streams) + together(&[memory, read(above), seized(above)])
}

/// One that is open is enough; all must be seen to be shut.
fn together(found: &[i32]) -> i32 {
    match (found.contains(&OPEN), found.contains(&UNCLEAR)) {
        (true, _) => OPEN,
        (_, true) => UNCLEAR,
        _ => SHUT,
    }
}

fn opened(path: &str, way: OFlags) -> i32 {
    let flags = way | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(_) => OPEN,
        // A socket is there and cannot be opened by its name.
        Err(Errno::ACCESS | Errno::PERM | Errno::NXIO) => SHUT,
        Err(_) => UNCLEAR,
    }
}

/// Whether the memory can be read by the call for it; no byte is.
#[expect(unsafe_code, reason = "rustix has no word for it")]
fn read(above: i32) -> i32 {
    let mut byte = 0_u8;
    let ours = libc::iovec {
        iov_base: std::ptr::from_mut(&mut byte).cast(),
        iov_len: 1,
    };
    // An address where nothing is: whoever may read is told of the address, and nobody else.
    let theirs = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 1,
    };
    // SAFETY: both lists have one entry, and ours leads to a byte that outlives the call.
    let got = unsafe { libc::process_vm_readv(above, &raw const ours, 1, &raw const theirs, 1, 0) };
    refused(i64::try_from(got).unwrap_or(0))
}

/// Whether it can be traced. It is not stopped by this, and let go of when this program ends.
#[expect(unsafe_code, reason = "rustix has no word for it")]
fn seized(above: i32) -> i32 {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the call takes a process and no memory of ours.
    refused(unsafe { libc::ptrace(libc::PTRACE_SEIZE, above, nothing, nothing) })
}

/// A call that answered anything but a refusal may have found a way in.
fn refused(answer: i64) -> i32 {
    let error = std::io::Error::last_os_error().raw_os_error();
    match (answer < 0, error) {
        (true, Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) => SHUT,
        (true, Some(libc::EFAULT)) | (false, _) => OPEN,
        _ => UNCLEAR,
    }
}
