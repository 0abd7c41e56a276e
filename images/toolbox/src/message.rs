//! The JSON of control frames: hellos, requests, replies, signals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What Wharf says first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostHello {
    /// `wire::VERSION`.
    pub version: u32,
    /// Bytes that workspace, home and /tmp may hold together.
    pub disk: u64,
    /// Files that they may hold together.
    pub inodes: u64,
    /// Environment of commands, over the one of process 1.
    pub env: BTreeMap<String, String>,
}

/// What the toolbox answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolboxHello {
    /// `wire::VERSION`.
    pub version: u32,
    /// `bash`, `sh`, or none.
    pub shell: Option<String>,
    /// The image has a git.
    pub git: bool,
}

/// What a channel is opened for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// A line for the shell.
    Run {
        /// The line.
        line: String,
        /// Milliseconds after which everything of the call is killed.
        timeout_ms: u64,
        /// Answer at once; the processes live on.
        background: bool,
        /// Bytes of head and of tail of each stream.
        keep: u64,
    },
    /// A background command: its output so far, or its end.
    Process {
        /// From the reply to its `Run`.
        id: u32,
        /// Kill it first.
        stop: bool,
    },
    /// Bytes of a file; they come as data.
    Read {
        /// Absolute, or relative to the workspace.
        path: String,
        /// Where to begin.
        offset: u64,
        /// At most so many bytes.
        limit: u64,
    },
    /// A whole file; its bytes come as data.
    Write {
        /// Absolute, or relative to the workspace.
        path: String,
    },
    /// Paths by glob; lines come as data.
    List {
        /// All when absent.
        pattern: Option<String>,
        /// At most so many lines.
        limit: u64,
    },
    /// Lines that match; they come as data.
    Grep {
        /// A regular expression.
        pattern: String,
        /// Only files that match it.
        glob: Option<String>,
        /// At most so many lines.
        limit: u64,
    },
    /// The whole tree as records: deletions first, then every entry in order of its path.
    Upload {
        /// Make the agent a repository of its own.
        git: bool,
    },
    /// What changed since the upload or the last scan; records come as data.
    Scan,
}

/// How a call ended; what is long came as data before.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "done", rename_all = "snake_case")]
pub enum Reply {
    /// A command ended, or runs in the background.
    Ran(Ran),
    /// The file's whole size.
    Read {
        /// Bytes.
        size: u64,
    },
    /// Written.
    Written,
    /// Lines were given.
    Listed {
        /// There were more than the limit.
        cut: bool,
    },
    /// The tree stands.
    Uploaded {
        /// `record::Manifest` over the tree as it lies on disk.
        manifest: String,
    },
    /// All changes were sent and are the new state.
    Scanned,
    /// What to tell the agent: no such file, not allowed.
    Told {
        /// The words.
        text: String,
    },
    /// The sandbox cannot be relied on any more.
    Failed {
        /// Why.
        reason: String,
    },
}

/// The end of a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// How it ended.
    pub exit: Ended,
    /// Lengths, in the data that came before: head and tail of stdout, then of stderr.
    pub stdout: Printed,
    /// As `stdout`.
    pub stderr: Printed,
    /// From start to answer.
    pub elapsed_ms: u64,
    /// The id of a background command.
    pub background: Option<u32>,
}

/// One stream's figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Printed {
    /// Bytes of the head.
    pub head: u64,
    /// Bytes of the tail.
    pub tail: u64,
    /// Bytes printed in all.
    pub total: u64,
    /// Where the full text is, or its beginning.
    pub spool: Option<Spooled>,
}

/// The text of a stream as a file in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spooled {
    /// Its path.
    pub path: String,
    /// How many bytes of the stream it holds, from the first.
    pub bytes: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The status a shell would show.
    Code(i32),
    /// Its time was over.
    TimedOut,
    /// Wharf asked for its end.
    Cancelled,
    /// The memory limit killed something of it; its own status beside it.
    OutOfMemory(i32),
    /// It has not ended.
    Running,
}

/// A word out of the order of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// On channel 0: extends the lease.
    Ping,
    /// On channel 0: answers a ping.
    Pong,
    /// End the call of this channel and all it started.
    Cancel,
}
