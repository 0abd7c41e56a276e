"""Tries what a sandbox must refuse, and what it must allow; prints `name outcome` for each.

The argument is a row of the battery (`14`), or `may` for what has to work. Numbers are of x86-64.
An outcome is the name of the error, or ALLOWED.
"""
import ctypes
import errno
import mmap
import os
import select
import signal
import socket
import sys
import tempfile
import threading

libc = ctypes.CDLL(None, use_errno=True)
null = ctypes.c_void_p(0)
# What Wharf's list answers to a call that is gone, and nothing else does.
MARK = "MARK"
USER, MOUNT, NET, PID = 0x10000000, 0x20000, 0x40000000, 0x20000000
IPC, UTS, CGROUP, TIME, X32 = 0x08000000, 0x04000000, 0x02000000, 0x80, 0x40000000


def call(number, *arguments):
    ctypes.set_errno(0)
    outcome = libc.syscall(number, *arguments)
    if outcome == 0 and number in (56, 57):
        os._exit(0)
    if outcome < 0:
        raise OSError(ctypes.get_errno(), "")


def old_unshare():
    """The same by the calls of 32-bit programs; a kernel without them ends the process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = bytes.fromhex("53b836010000bb00000010cd805bc3")
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        at = ctypes.addressof(ctypes.c_char.from_buffer(page))
        os.write(write, str(ctypes.CFUNCTYPE(ctypes.c_int)(at)()).encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 20)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise OSError(errno.ENOSYS, "")
    if int(said) < 0:
        raise OSError(-int(said), "")


def calls(table):
    return [(name, lambda a=arguments: call(*a)) for name, *arguments in table]


def opens(mode, *paths):
    return [(path, lambda p=path: open(p, mode).close()) for path in paths]


def writes(text, *paths):
    def write(path):
        with open(path, "w") as file:
            file.write(text)
    return [(path, lambda p=path: write(p)) for path in paths]


def tells(path):
    """Reading it tells something; kernel addresses that are all zero tell nothing."""
    if os.path.isdir(path):
        if os.listdir(path):
            return
    elif any(set(line.split(b" ")[0]) - set(b"0\n") for line in open(path, "rb")):
        return
    raise OSError(errno.ENODATA, "")


def sockets(*table):
    return [(name, lambda a=arguments: socket.socket(*a).close()) for name, *arguments in table]


def reach(host, port=80):
    socket.create_connection((host, port), 3).close()


def send(host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"x", (host, 53))


def thread():
    one = threading.Thread(target=lambda: None)
    one.start()
    one.join()


def rename():
    with tempfile.TemporaryDirectory() as folder:
        old, new = folder + "/a", folder + "/b"
        open(old, "w").close()
        os.chmod(old, 0o755)
        os.rename(old, new)
        os.link(new, old)
        os.symlink(new, folder + "/c")


def fifo():
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(folder + "/fifo")


ROWS = {
    "14": calls([
        ("unshare_user", 272, USER), ("unshare_mount", 272, MOUNT), ("unshare_net", 272, NET),
        ("unshare_pid", 272, PID), ("unshare_ipc", 272, IPC), ("unshare_uts", 272, UTS),
        ("unshare_cgroup", 272, CGROUP), ("unshare_time", 272, TIME),
        ("unshare_x32", X32 | 272, USER),
        ("clone_user", 56, USER | 17, null, null, null, 0),
        ("clone_mount", 56, MOUNT | 17, null, null, null, 0),
        ("clone_pid", 56, PID | 17, null, null, null, 0),
        ("clone_net", 56, NET | 17, null, null, null, 0),
        ("clone3", 435, null, 0), ("unheard_of", 600),
    ]) + [("unshare_32_bit", old_unshare)],
    "15": calls([
        ("mount", 165, null, null, null, 0, null), ("mount_bind", 165, b"/", b"/tmp", null, 4096, null),
        ("umount", 166, b"/proc/kcore", 0), ("pivot_root", 155, null, null),
        ("fsopen", 430, b"tmpfs", 0), ("fsconfig", 431, -1, 0, null, null, 0),
        ("fsmount", 432, -1, 0, 0), ("fspick", 433, -100, b"/", 0),
        ("open_tree", 428, -100, b"/", 0), ("move_mount", 429, -1, null, -1, null, 0),
        ("mount_setattr", 442, -1, b"", 0, null, 0),
    ]),
    "16": calls([("chroot", 161, b"/"), ("setns", 308, 0, 0)])
    + opens("rb", "/proc/1/ns/mnt", "/proc/1/root/etc/passwd", "/proc/1/cwd/x"),
    "17": calls([
        ("ptrace_attach", 101, 16, 1, 0, 0), ("ptrace_seize", 101, 0x4206, 1, 0, 0),
        ("process_vm_readv", 310, 1, null, 0, null, 0, 0),
        ("process_vm_writev", 311, 1, null, 0, null, 0, 0),
        ("kcmp", 312, 1, 1, 0, 0, 0), ("pidfd_getfd", 438, -1, 0, 0),
        ("process_madvise", 440, -1, null, 0, 0, 0),
    ]) + opens("rb", "/proc/1/mem", "/proc/1/maps", "/proc/1/environ", "/proc/1/fd/0"),
    "18": calls([
        ("io_uring_setup", 425, 1, null), ("io_uring_enter", 426, -1, 0, 0, 0, null, 0),
        ("io_uring_register", 427, -1, 0, null, 0), ("userfaultfd", 323, 0),
        ("bpf", 321, 0, null, 0), ("perf_event_open", 298, null, 0, -1, -1, 0),
        ("memfd_secret", 447, 0), ("fanotify_init", 300, 0, 0),
        ("name_to_handle_at", 303, -1, null, null, null, 0),
        ("open_by_handle_at", 304, -1, null, 0), ("modify_ldt", 154, 0, null, 0),
        ("lookup_dcookie", 212, 0, null, 0), ("quotactl", 179, 0, null, 0, null),
        ("nfsservctl", 180, 0, null, null),
    ]),
    "19": calls([
        ("add_key", 248, null, null, null, 0, 0), ("request_key", 249, null, null, null, 0),
        ("keyctl", 250, 0),
    ]),
    "20": sockets(
        ("raw", 2, 3, 1), ("raw6", 10, 3, 58), ("packet", 17, 3, 0), ("vsock", 40, 1, 0),
        ("alg", 38, 5, 0), ("xdp", 44, 3, 0), ("bluetooth", 31, 3, 0), ("can", 29, 3, 1),
        ("tipc", 30, 5, 0), ("netlink_audit", 16, 3, 9), ("netlink_netfilter", 16, 3, 12),
    ),
    "21": [
        ("mknod_character", lambda: os.mknod("/tmp/c", 0o020600, os.makedev(1, 3))),
        ("mknod_block", lambda: os.mknod("/tmp/b", 0o060600, os.makedev(8, 0))),
    ] + opens("rb", "/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/port", "/dev/kvm", "/dev/vda",
              "/dev/sda", "/dev/fuse", "/dev/loop-control", "/dev/net/tun", "/dev/vsock"),
    "22": writes("0", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern",
                 "/proc/sys/vm/drop_caches", "/proc/sys/kernel/modprobe",
                 "/proc/sys/net/ipv4/ip_forward", "/proc/1/oom_score_adj", "/proc/irq/0/smp_affinity",
                 "/sys/kernel/uevent_helper", "/sys/power/state"),
    "23": writes("1", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                 "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/pids/pids.max",
                 "/sys/fs/cgroup/devices/devices.allow", "/sys/fs/cgroup/memory.max",
                 "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/cgroup.procs")
    + [("mkdir", lambda: os.mkdir("/sys/fs/cgroup/x")),
       ("mkdir_memory", lambda: os.mkdir("/sys/fs/cgroup/memory/x"))],
    "24": [(path, lambda p=path: tells(p)) for path in (
        "/proc/keys", "/proc/kcore", "/proc/timer_list", "/proc/sched_debug", "/proc/kallsyms",
        "/sys/firmware", "/proc/acpi", "/proc/scsi", "/proc/kmsg")],
    "25": [
        ("metadata", lambda: reach("169.254.169.254")), ("address", lambda: reach("192.0.2.1", 443)),
        ("resolver", lambda: reach("192.0.2.53", 53)), ("datagram", lambda: send("192.0.2.1")),
        ("address6", lambda: reach("2001:db8::1")), ("name", lambda: reach("example.org")),
    ],
    "26": [(host, lambda h=host: reach(h, 22)) for host in sys.argv[2:]],
    "36": calls([
        ("reboot", 169, 0, 0, 0, null), ("kexec_load", 246, 0, 0, null, 0),
        ("kexec_file_load", 320, -1, -1, 0, null, 0), ("settimeofday", 164, null, null),
        ("clock_settime", 227, 0, null), ("sethostname", 170, b"x", 1),
        ("setdomainname", 171, b"x", 1), ("init_module", 175, null, 0, null),
        ("finit_module", 313, -1, null, 0), ("delete_module", 176, b"x", 0),
        ("swapon", 167, null, 0), ("swapoff", 168, null), ("acct", 163, null), ("iopl", 172, 3),
        ("ioperm", 173, 0, 1, 1), ("vhangup", 153), ("syslog", 103, 3, null, 0),
        ("personality", 135, 0x40000),
    ]),
    "may": [
        ("fifo", fifo), ("rename", rename), ("thread", thread),
        ("fork", lambda: os.waitpid(os.fork() or os._exit(0), 0)),
        ("memfd", lambda: os.close(os.memfd_create("x"))),
        ("epoll", lambda: select.epoll().close()),
        ("eventfd", lambda: os.close(os.eventfd(0))),
        ("pidfd", lambda: os.close(os.pidfd_open(os.getpid()))),
        ("personality_asked", lambda: call(135, ctypes.c_ulong(0xFFFFFFFF))),
        ("signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        ("affinity", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
        ("random", lambda: os.getrandom(8)),
        ("loopback", lambda: socket.create_server(("127.0.0.1", 0)).close()),
    ] + sockets(("unix", 1, 1, 0), ("tcp", 2, 1, 0), ("udp", 2, 2, 0), ("tcp6", 10, 1, 0),
                ("netlink_route", 16, 3, 0)),
}

for name, action in ROWS[sys.argv[1]]:
    try:
        action()
        print(name, "ALLOWED")
    except socket.gaierror:
        print(name, "ENONAME")
    except OSError as error:
        print(name, MARK if error.errno == 219 else errno.errorcode.get(error.errno, error.errno))
