//! The JSON of control frames: hellos, requests, replies, signals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::held::Held;
use crate::seal::Key;

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
    /// Listen for those who want out, at this port of the loopback; 0 takes any that is free.
    #[serde(default)]
    pub proxy: Option<u16>,
    /// What frames are sealed with where they have to be.
    #[serde(default)]
    pub key: Option<Key>,
    /// Milliseconds without a ping after which Wharf is taken for gone; the toolbox's own when absent.
    #[serde(default)]
    pub lease_ms: Option<u64>,
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
    /// Frames after this one are sealed in both directions.
    #[serde(default)]
    pub sealed: bool,
    /// The limits that hold inside.
    #[serde(default)]
    pub held: Held,
    /// The port of the proxy on the loopback, where one was asked for.
    #[serde(default)]
    pub proxy: Option<u16>,
}

/// A way out of the sandbox that a program inside asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// A name or an address, as it was asked for; addresses of version 6 without brackets.
    pub host: String,
    /// Of the server.
    pub port: u16,
    /// What will be said on it.
    pub form: Form,
}

/// What crosses a way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Bytes of any protocol.
    Tunnel,
    /// One HTTP request, from its head on, and its response.
    Request,
}

/// Wharf's word on a way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The server is connected.
    Accepted,
    /// It is not, and the channel is over.
    Refused {
        /// For programs.
        why: Why,
        /// For people.
        reason: String,
    },
}

/// Why a way out was refused, as far as a program can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The plan does not allow it.
    Forbidden,
    /// The server was not found or did not answer.
    Unreachable,
    /// Too many at once.
    Busy,
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
    /// Commits that the agent's repository begins with, before any upload: the bytes of a pack, then
    /// those of its index, come as data.
    History {
        /// The last commit, in hex.
        tip: String,
        /// Bytes of the pack.
        pack: u64,
        /// Bytes of its index.
        index: u64,
    },
    /// A tree as records: deletions first, then every entry in order of its path.
    Upload {
        /// Make the agent a repository of its own.
        git: bool,
        /// Only what differs comes, from the tree that lies there under this name: the manifest of
        /// the upload before, or the name of the image's layer.
        #[serde(default)]
        above: Option<String>,
    },
    /// What is known of the workspace, as entries of a ledger; they come as data.
    Ledger,
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
    /// All that is known was sent.
    Known,
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
    /// It was killed because the disk, or the number of files, was over its limit; its status beside it.
    Full(i32),
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
