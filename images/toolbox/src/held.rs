//! What process 1 reads of the limits it stands under, as it tells Wharf in its hello.

use serde::{Deserialize, Serialize};

/// No limit is set.
pub const UNLIMITED: u64 = u64::MAX;

/// What `nfsservctl`, a call that Linux no longer has, answers behind Wharf's list of system calls
/// (`docker/seccomp.json`) and nowhere else: an error number that stands for nothing.
pub const MARK: i32 = 219;

/// Each is absent when it could not be read, and then says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// Bytes of memory, by the control group.
    pub memory: Option<u64>,
    /// Bytes of swap on top; none can be used on a machine without swap.
    pub swap: Option<u64>,
    /// Thousandths of a processor, by the control group.
    pub cpus: Option<u64>,
    /// Processes and threads, by the control group.
    pub pids: Option<u64>,
    /// Files one process may have open at most.
    pub open: Option<u64>,
    /// Bytes of the largest file.
    pub file: Option<u64>,
    /// User id.
    pub user: Option<u64>,
    /// Capabilities that are or may come to be in force, as a set of bits.
    pub capabilities: Option<u64>,
    /// 1 when nothing that is executed gains privileges.
    pub no_new_privileges: Option<u64>,
    /// 2 when system calls are filtered.
    pub seccomp: Option<u64>,
    /// 1 when it is Wharf's own list by which they are, 0 when it is not.
    pub listed: Option<u64>,
    /// 1 when a route leads out of the container, 0 when none does.
    pub network: Option<u64>,
    /// 1 when commands can take up the streams of process 1, 0 when they cannot.
    pub streams: Option<u64>,
    /// 1 when commands can trace process 1 or read its memory, 0 when they cannot.
    pub traced: Option<u64>,
}
