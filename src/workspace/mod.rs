//! The operator's directory and the run's own store of trees.
//!
//! Owns: every git command, base snapshots, commits, merges, patches, delivery, apply.
//! Takes: paths on the host, contents and changes as plain bytes.
//! Gives: commit ids, conflicts with both sides, a branch or a patch.
//! Never: a container; a git command inside a directory an agent wrote to.

mod additions;
mod apply;
mod around;
mod attributes;
mod base;
mod branch;
mod commits;
mod contents;
mod deliver;
mod differences;
mod disk;
mod durable;
mod folders;
mod git;
mod globs;
mod history;
mod import;
mod laid;
mod landing;
mod listing;
mod losses;
mod merge;
mod object;
mod over;
mod own;
mod packs;
mod passed_by;
mod path;
mod place;
mod protect;
mod quarantine;
mod reader;
mod resolve;
mod settled;
mod stage;
mod start;
mod store;
mod swap;
mod undo;

use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::apply::Force;
pub use self::branch::branch_free;
pub use self::deliver::Delivered;
pub use self::differences::{Patch, Removed};
pub use self::git::{Git, Version};
pub use self::globs::Globs;
pub use self::history::{History, Reach};
pub use self::merge::{Folded, conflict_ref};
pub use self::path::{check as check_path, display};
pub use self::reader::{Amount, Taking, Tell};
pub use self::resolve::{Dropped, Loss, Resolution, Side};
pub use self::store::Store;
use crate::id::{BlobId, CommitId, TreeId};

/// What becomes the base snapshot.
#[derive(Clone, Debug)]
pub struct Source {
    pub path: PathBuf,
    /// Globs withheld from agents.
    pub hide: Vec<String>,
    /// Globs of what agents see although git ignores it or `hide` withholds it.
    pub include: Vec<String>,
    /// Files larger than this are left out and named. Bytes.
    pub max_file: u64,
    pub max_total: u64,
    pub max_files: usize,
}

/// The base snapshot and what an operator should know about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Base {
    /// What agents start from.
    pub commit: CommitId,
    pub tree: TreeId,
    /// HEAD of the operator's repository, where there is one.
    pub head: Option<String>,
    pub git: GitKind,
    /// The working tree differed from HEAD.
    pub dirty: bool,
    pub files: usize,
    pub bytes: u64,
    /// Paths withheld by `hide`, for display.
    pub hidden: Vec<String>,
    /// Paths that agents see only because `include` names them, for display.
    #[serde(default)]
    pub included: Vec<String>,
    /// Paths left out, each with the reason (FIFO, unreadable, too large).
    pub left_out: Vec<(String, String)>,
    /// The workspace's place inside its repository, empty at the top: `sub/dir`.
    pub prefix: String,
    /// The place of a workspace that the repository around it ignores as a whole, else empty: the
    /// base is taken as without git, and git still finds that repository from inside.
    #[serde(default)]
    pub outer: String,
    /// The place of Wharf's own files where they lie in the workspace, for display, else empty.
    #[serde(default)]
    pub own: String,
    /// The commits that agents' own repositories begin with, where they were asked for and taken.
    #[serde(default)]
    pub history: Option<History>,
    /// `hidden` as bytes, while the base is taken.
    #[serde(skip)]
    pub(crate) withheld: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitKind {
    #[default]
    None,
    /// A repository without a commit.
    Unborn,
    Repository,
}

/// One file of a tree in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: Vec<u8>,
    pub mode: Mode,
    pub blob: BlobId,
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    File,
    Executable,
    Link,
}

/// A change to be committed on top of a commit.
#[derive(Clone, Debug)]
pub enum Edit {
    Put {
        path: Vec<u8>,
        mode: Mode,
        content: Bytes,
    },
    /// A content that the store has already.
    Keep {
        path: Vec<u8>,
        mode: Mode,
        blob: BlobId,
    },
    Delete {
        path: Vec<u8>,
    },
}

/// How two commits merge.
#[derive(Clone, Debug)]
pub enum Merged {
    Clean(CommitId),
    Conflict(Conflict),
}

/// What a merge could not decide.
#[derive(Clone, Debug)]
pub struct Conflict {
    pub ours: CommitId,
    pub theirs: CommitId,
    /// A commit whose parents are both sides and whose files hold conflict markers: where the merger starts.
    pub start: CommitId,
    pub files: Vec<ConflictFile>,
}

/// One path in conflict with the three versions; None where that side has no such file.
#[derive(Clone, Debug)]
pub struct ConflictFile {
    pub path: Vec<u8>,
    /// git's words: `content`, `add/add`, `modify/delete`, `rename/rename`, `binary` …
    pub kind: String,
    pub base: Option<Bytes>,
    pub ours: Option<Bytes>,
    pub theirs: Option<Bytes>,
}

/// One path that differs between two commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub path: Vec<u8>,
    pub status: DifferenceStatus,
    pub added_lines: Option<u64>,
    pub removed_lines: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceStatus {
    Added,
    Changed,
    Deleted,
    ModeChanged,
}

/// A commit to be made on the delivered branch, in order.
#[derive(Clone, Debug)]
pub struct Step {
    /// A commit of the store whose tree this step shows.
    pub commit: CommitId,
    pub message: String,
}

/// What applying to the operator's directory did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Every path written or removed, for display.
    Done { paths: Vec<String> },
    /// Nothing was written; each path with the reason.
    Refused { paths: Vec<(String, String)> },
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{operation} {path}: {source}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("git {operation} exited with {code}: {stderr}")]
    Git {
        operation: &'static str,
        code: i32,
        stderr: String,
    },
    #[error("git {operation} gave an answer that could not be read: {what}")]
    Unreadable {
        operation: &'static str,
        what: String,
    },
    #[error("{what}")]
    Refused { what: String, hint: String },
}
