//! The rows of the abuse battery, and what must be seen under each runtime.

/// What a row must come to.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// Exactly these words.
    Is(&'static str),
    /// As under `runc`.
    Same,
    /// Nobody has tried it there: whatever is seen, it is no pass.
    Unknown,
}

/// One abuse.
pub struct Row {
    pub number: u8,
    /// What is done, for a reader.
    pub what: &'static str,
    pub runc: &'static str,
    /// gVisor.
    pub runsc: Wanted,
}

use Wanted::{Is, Same, Unknown};

const fn row(number: u8, what: &'static str, runc: &'static str, runsc: Wanted) -> Row {
    Row {
        number,
        what,
        runc,
        runsc,
    }
}

const BROKEN: Wanted = Is("the sandbox is broken, and says so");
/// All rows, in order. What gVisor allows in rows 14 to 36 it does in a kernel of its own, so that none of it
/// reaches the machine's; what it refuses of process 1 is what the seals of frames stand on.
pub const ROWS: [Row; 38] = [
    row(
        1,
        "a fork bomb",
        "EAGAIN; killed at its time limit; the sandbox answers; another works meanwhile",
        Unknown,
    ),
    row(
        2,
        "a child that takes all memory",
        "out of memory, exit code 137; the sandbox answers",
        BROKEN,
    ),
    row(
        3,
        "the command itself takes all memory",
        "out of memory, exit code 137; the sandbox answers",
        BROKEN,
    ),
    row(
        4,
        "a file without end in /workspace",
        "killed: disk limit 64 MiB reached; the sandbox answers",
        Same,
    ),
    row(
        5,
        "/tmp and the rest larger than the memory",
        "refused before anything starts",
        Same,
    ),
    row(6, "writing to /, /etc and a program", "EACCES", Same),
    row(
        7,
        "files without end in /tmp",
        "ENOSPC near 50,000 files; the sandbox answers",
        Is("no limit on files, only on memory; the sandbox answers"),
    ),
    row(8, "1,500 open files", "EMFILE below 1,024", Same),
    row(9, "filling /dev/shm", "ENOENT", Is("EACCES")),
    row(
        10,
        "printing past the toolbox, on process 1's own streams",
        "EACCES; the engine keeps no log",
        Is("ALLOWED; the engine keeps no log"),
    ),
    row(
        11,
        "output without end",
        "killed at its time limit; head and tail kept; nothing left running",
        Same,
    ),
    row(
        12,
        "a file of 3 GiB of holes; 1 TiB is refused",
        "left out of the change, by its size; nothing of it read",
        Same,
    ),
    row(
        13,
        "programs with a setuid bit",
        "the user stays 1000",
        Unknown,
    ),
    row(
        14,
        "new namespaces, also by 32-bit and x32 calls: 16 ways",
        "all refused",
        Unknown,
    ),
    row(15, "mounting and unmounting: 11 calls", "all refused", Same),
    row(
        16,
        "chroot, setns, the roots of process 1: 5 ways",
        "all refused",
        Is("not refused: setns ENOTSUP"),
    ),
    row(
        17,
        "reading and tracing process 1: 11 ways",
        "all refused",
        Is("not refused: /proc/1/maps ALLOWED, /proc/1/environ ALLOWED, /proc/1/fd/0 ALLOWED"),
    ),
    row(
        18,
        "io_uring, bpf, perf, userfaultfd, handles and their like: 14 calls",
        "all refused",
        Is(
            "not refused: io_uring_setup EFAULT, perf_event_open ENODEV, name_to_handle_at ENOTSUP, open_by_handle_at ENOTSUP",
        ),
    ),
    row(19, "kernel keyrings: 3 calls", "all refused", Same),
    row(
        20,
        "raw, packet, vsock, alg, xdp and other sockets: 11 kinds",
        "all refused",
        Is("not refused: netlink_audit EPROTONOSUPPORT, netlink_netfilter EPROTONOSUPPORT"),
    ),
    row(
        21,
        "making devices and opening the host's: 13 ways",
        "all refused",
        Is(
            "not refused: mknod_character ALLOWED, mknod_block ALLOWED, /dev/fuse ALLOWED, /dev/net/tun ALLOWED",
        ),
    ),
    row(
        22,
        "writing to /proc and /sys: 9 files",
        "all refused",
        Same,
    ),
    row(23, "changing control groups: 9 ways", "all refused", Same),
    row(
        24,
        "reading keys, kernel memory and addresses, firmware: 9 places",
        "all refused",
        Same,
    ),
    row(
        25,
        "metadata service, any address, a resolver, a name: 6 ways",
        "all refused",
        Same,
    ),
    row(
        26,
        "the engine's gateway, another sandbox: 2 addresses",
        "all refused",
        Same,
    ),
    row(
        27,
        "sockets of engines and agents inside",
        "none there",
        Same,
    ),
    row(
        28,
        "every signal to process 1",
        "nothing happens; the sandbox answers",
        Is("signal 1: the sandbox is broken, and says so; the sandbox does not answer"),
    ),
    row(
        29,
        "a command that ignores every signal, at its time limit",
        "killed at its time limit; nothing left running",
        Same,
    ),
    row(
        30,
        "children that hold the output and leave the session",
        "exit code 0 at once; they serve the next command; gone with the sandbox",
        Unknown,
    ),
    row(31, "300 orphans", "none left as a zombie", Same),
    row(
        32,
        "links out, hard links, a FIFO, setuid bits in the change",
        "a link stays a link, a hard link is a file, bits are dropped, the FIFO is left out",
        Same,
    ),
    row(
        33,
        "a folder that turns into a link to /etc while it is read",
        "nothing of /etc in the change",
        Same,
    ),
    row(
        34,
        "file names with newline, ESC, 0xFF, a leading dash",
        "carried byte by byte, shown escaped",
        Same,
    ),
    row(
        35,
        "busy loops with half a processor",
        "throttled at 0.5 of a processor",
        Unknown,
    ),
    row(
        36,
        "reboot, clock, host name, modules, swap and their like: 18 calls",
        "all refused",
        Is("not refused: syslog ALLOWED, personality EINVAL"),
    ),
    row(
        37,
        "hunting for keys in environments and files",
        "nothing of Wharf's environment",
        Same,
    ),
    row(
        38,
        "an exec as root through the engine",
        "not applicable: no exec is ever asked of a sandbox",
        Same,
    ),
];
