"""Tries system calls that a sandbox must refuse; prints `name result` for each (x86-64 numbers)."""
import ctypes
import errno
import os
import socket

libc = ctypes.CDLL(None, use_errno=True)
null = ctypes.c_void_p(0)

CALLS = [
    ("unshare_user", 272, 0x10000000), ("unshare_mount", 272, 0x20000), ("unshare_net", 272, 0x40000000),
    ("clone_newuser", 56, 0x10000011, null, null, null, 0), ("clone3", 435, null, 0),
    ("mount", 165, null, null, null, 0, null), ("fsopen", 430, b"ext4", 0), ("open_tree", 428, -100, b"/", 0),
    ("move_mount", 429, -1, null, -1, null, 0), ("pivot_root", 155, null, null), ("umount2", 166, b"/proc/kcore", 0),
    ("chroot", 161, b"/"), ("setns", 308, 0, 0),
    ("ptrace", 101, 16, 1, 0, 0), ("process_vm_readv", 310, 1, null, 0, null, 0, 0),
    ("io_uring_setup", 425, 1, null), ("userfaultfd", 323, 0), ("bpf", 321, 0, null, 0),
    ("perf_event_open", 298, null, 0, -1, -1, 0), ("memfd_secret", 447, 0),
    ("add_key", 248, null, null, null, 0, 0), ("keyctl", 250, 0), ("request_key", 249, null, null, null, 0),
    ("name_to_handle_at", 303, -1, null, null, null, 0),
    ("reboot", 169, 0, 0, 0, null), ("sethostname", 170, b"x", 1), ("settimeofday", 164, null, null),
    ("init_module", 175, null, 0, null), ("swapon", 167, null, 0), ("acct", 163, null), ("iopl", 172, 3),
    ("personality", 135, 0x40000),
    ("unheard_of", 600),
]
for name, number, *arguments in CALLS:
    ctypes.set_errno(0)
    outcome = libc.syscall(number, *arguments)
    code = ctypes.get_errno()
    print(name, "ALLOWED" if outcome >= 0 else errno.errorcode.get(code, code))

SOCKETS = [("raw", 2, 3, 1), ("packet", 17, 3, 0), ("vsock", 40, 1, 0), ("alg", 38, 5, 0), ("xdp", 44, 3, 0)]
for name, family, kind, protocol in SOCKETS:
    try:
        socket.socket(family, kind, protocol)
        print(name, "ALLOWED")
    except OSError as error:
        print(name, errno.errorcode[error.errno])

for name, action in [
    ("mknod_device", lambda: os.mknod("/tmp/device", 0o020600, 0x0103)),
    ("kmsg", lambda: open("/dev/kmsg")),
    ("sysrq", lambda: open("/proc/sysrq-trigger", "w")),
    ("core_pattern", lambda: open("/proc/sys/kernel/core_pattern", "w")),
    ("connect", lambda: socket.create_connection(("169.254.169.254", 80), 2)),
    ("gateway", lambda: socket.create_connection(("172.17.0.1", 22), 2)),
]:
    try:
        action()
        print(name, "ALLOWED")
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, error.errno))

for name, action in [
    ("fifo", lambda: os.mkfifo("/tmp/fifo")),
    ("unix", lambda: socket.socket(socket.AF_UNIX)),
    ("tcp", lambda: socket.socket()),
    ("memfd", lambda: os.memfd_create("x")),
    ("chmod", lambda: (open("/tmp/f", "w").close(), os.chmod("/tmp/f", 0o755))),
]:
    try:
        action()
        print("may", name, "ALLOWED")
    except OSError as error:
        print("may", name, errno.errorcode[error.errno])
