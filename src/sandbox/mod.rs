//! Containers, seen by the rest of the program as calls on the toolbox inside.
//!
//! Owns: the engine's API, the container profile, images, the link to process 1, the sweep.
//! Takes: a `Spec`, a `Tree` to open at, and where its bytes come from.
//! Gives: a `Sandbox`, whose calls either answer or say that the sandbox broke.
//! Never: a model, a git command, a fall-back to the host.

mod bake;
mod bench;
mod bootstrap;
mod broken;
mod build;
mod call;
mod claims;
mod commit;
mod connect;
mod container;
mod context;
mod credits;
mod dial;
mod docker;
mod doubt;
mod drain;
pub mod egress;
mod engine;
mod error;
mod facts;
mod filter;
mod history;
mod ignore_file;
mod image;
mod known;
mod layer;
mod limits;
mod link;
mod link_call;
pub mod memory;

mod network;
mod open;
mod outbox;
mod pace;
mod pool;
mod profile;
mod pull;
mod recipe;
pub mod remote;
mod remote_layer;
mod remote_run;
mod remote_tree;
mod seals;
mod shelf;
mod spare;
mod sweep;
pub mod toolbox;
mod tunnel;
mod unique;
mod vacant;
mod workspace_layer;

pub use broken::{Break, Cause};
pub use connect::{Candidate, Options, Tls, connect};
pub use docker::Docker;
pub use doubt::{Doubt, Holds, Limit};
pub use engine::Engine;
pub use error::Error;
pub use facts::{EngineFacts, Info};
pub use filter::Dialect;
pub use history::History;
pub use image::BUILT_IN;
pub use known::Known;
pub use limits::FileLimits;
pub use pool::{Pool, Wanted};
pub use profile::profile;
pub use pull::Pull;
pub use recipe::Recipe;
pub use shelf::ImageRow;
pub use sweep::{Leftover, LeftoverKind, Leftovers, Swept};
pub use vacant::{Layer, Vacant};
pub use wharf_toolbox::ignore::Rules as IgnoreRules;
pub use wharf_toolbox::memo::BY_RULES;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

/// Calls on one container. A call that fails with `Error` means the sandbox is broken and must be
/// closed; what went wrong inside it (a missing file, a failed command) is part of the answer.
pub trait Sandbox: Send + Sync {
    /// Runs a command with the shell of the image (`bash -c`, else `sh -c`) in /workspace.
    /// On timeout or cancel everything the command started is killed before this returns.
    fn run<'a>(
        &'a self,
        command: &'a Command,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Finished, Error>>;

    /// Output so far of a background process, or its end.
    fn process(
        &self,
        id: u32,
        action: ProcessAction,
    ) -> BoxFuture<'_, Result<Answer<Finished>, Error>>;

    /// The bytes of a file from `offset`, at most `limit`, with the file's whole size.
    fn read<'a>(
        &'a self,
        path: &'a str,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Answer<Read>, Error>>;

    /// Writes a whole file, making parent folders; keeps an existing file's mode.
    fn write<'a>(
        &'a self,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Result<Answer<()>, Error>>;

    /// Paths under /workspace that match the glob (`**` crosses folders), sorted, less `.git` and
    /// what the workspace's .gitignore files leave out; at most `limit`.
    fn list<'a>(
        &'a self,
        pattern: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Answer<Listing>, Error>>;

    /// Lines that match a regular expression, as `path:line:text`; at most `limit`.
    fn grep<'a>(&'a self, search: &'a Search) -> BoxFuture<'a, Result<Answer<Listing>, Error>>;

    /// What differs from the tree the sandbox was opened at, or from the last scan that was taken
    /// as the new state: paths, modes, bytes. Never follows a link.
    fn scan(&self) -> BoxFuture<'_, Result<Changes, Error>>;

    /// What call `number` of the conversation came to, in a sandbox that only gives recorded results.
    fn known(&self, _number: u32, _tool: &str, _arguments: &serde_json::Value) -> Option<Known> {
        None
    }

    /// What the container is: for prompts, spans and messages.
    fn facts(&self) -> &Facts;

    /// Ends the container and waits until it is gone (bounded). Calling it twice is harmless.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// `Err` holds what to tell the agent: "no such file", "is a directory", "permission denied".
pub type Answer<T> = Result<T, String>;

/// An image by the words of a plan, and what is baked on top of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ImageSpec {
    /// `wharf/python`, or any reference the engine has or can pull; for a recipe, what people call it.
    pub image: String,
    /// Builds the image instead of naming it.
    pub recipe: Option<Recipe>,
    /// When registries are asked.
    pub pull: Pull,
    /// Commands run once as the agent's user in /workspace's place, with network, in order.
    pub setup: Vec<String>,
    /// Files of the workspace that the setup commands may read (requirements, lock files): path and bytes.
    pub setup_files: Vec<(String, Bytes)>,
    /// `images/base/bootstrap.sh` may run where no registry is reached; without it that is an error.
    pub bootstrap: bool,
    /// The run that it is made for: what is left of a making belongs to nobody once that run is dead.
    pub run: Option<String>,
}

/// An image that is ready to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The id the engine knows, `sha256:…`.
    pub id: String,
    /// The name a person would recognise.
    pub name: String,
    /// One line on what is in it (versions of git, python …), for the agent's first message; may be empty.
    pub describes: String,
}

/// Everything that decides how a container is made.
#[derive(Clone, Debug)]
pub struct Spec {
    pub image: Image,
    /// Environment inside, on top of the fixed one (HOME, PATH, LANG, PAGER=cat …).
    pub env: BTreeMap<String, String>,
    pub cpus: f64,
    /// Bytes; no swap on top.
    pub memory: u64,
    pub pids: u64,
    /// Bytes that workspace, home and /tmp may hold together.
    pub disk: u64,
    pub files: FileLimits,
    /// The engine must be seen to hold these limits, or the sandbox is refused.
    pub strict: bool,
    pub network: Network,
    /// Docker's name of a runtime (`runsc`), or the engine's default.
    pub runtime: Option<String>,
    /// What the agent's own repository in /workspace begins with; without it, it has one commit, and none
    /// where the tree has more than 20,000 files.
    pub history: Option<Arc<History>>,
    pub labels: Labels,
}

/// What the sweep later reads to tell whose container this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    pub machine: String,
    /// The state directory (`WHARF_HOME`), absolute.
    pub state: String,
    pub run: String,
    pub subtask: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    None,
    /// A network of its own with a way out.
    Full,
    /// None, and a proxy inside through which Wharf reaches the hosts of a policy.
    Allow(egress::Policy),
}

/// A set of files: what a sandbox is opened at.
#[derive(Clone)]
pub struct Tree {
    /// By path relative to /workspace, bytes, `/`-separated, never with a `.git` component.
    pub entries: BTreeMap<Vec<u8>, Entry>,
    /// Where the bytes are.
    pub contents: Arc<dyn Contents>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub mode: Mode,
    /// Bytes of content (for a link: of its target).
    pub size: u64,
    /// Names the content for `Contents`; equal ids mean equal bytes.
    pub id: String,
}

/// As git tells modes apart.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    File,
    Executable,
    Link,
}

/// A reader of the bytes that a tree's entries name.
pub trait Contents: Send + Sync {
    /// The contents of `ids`, one after another without separators, in chunks of any size.
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>>;
}

/// Wharf's word to a command.
#[derive(Clone, Debug)]
pub struct Command {
    pub line: String,
    pub timeout: Duration,
    /// Return at once with the process's id; it lives until stopped or the sandbox ends.
    pub background: bool,
    /// Bytes of head and of tail kept of each stream.
    pub keep: usize,
}

/// How a command ended, with what it printed.
#[derive(Clone, Debug)]
pub struct Finished {
    pub exit: Exit,
    pub stdout: Stream,
    pub stderr: Stream,
    pub elapsed: Duration,
    /// The id for `process`, for a background command.
    pub background: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The status a shell would show; a signal is 128 + its number.
    Code(i32),
    TimedOut,
    Cancelled,
    /// The memory limit killed a process of this command; the command's own status beside it.
    OutOfMemory(i32),
    /// Killed because the disk or the number of files was over its limit; its status beside it.
    Full(i32),
    /// A background command that has not ended.
    Running,
}

/// One stream's output: its beginning and end as bytes, and how much there was.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub head: Bytes,
    /// Empty when the head holds all.
    pub tail: Bytes,
    /// Bytes printed in all.
    pub total: u64,
    /// Where inside the sandbox the text is, when head and tail do not hold all.
    pub spool: Option<Spooled>,
}

/// The text of a long output as a file inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spooled {
    pub path: String,
    /// Bytes of the stream that it holds, from the first; fewer than were printed when they were too many.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessAction {
    Output,
    Stop,
}

#[derive(Clone, Debug)]
pub struct Read {
    pub bytes: Bytes,
    /// The file's size in bytes.
    pub size: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub lines: Vec<String>,
    /// There was more than the limit.
    pub cut: bool,
}

#[derive(Clone, Debug)]
pub struct Search {
    pub pattern: String,
    pub glob: Option<String>,
    pub limit: usize,
}

/// What an agent did to its tree.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub puts: Vec<Put>,
    pub deletes: Vec<Vec<u8>>,
    /// Paths not carried, each with the reason (too large, a FIFO, a name with a `.git` component …).
    pub left_out: Vec<(Vec<u8>, String)>,
    /// Those of them that a full disk cut, and that nobody has written again; all there are, at each scan.
    pub torn: Vec<Vec<u8>>,
}

impl Changes {
    /// True when nothing was put or deleted.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty()
    }
}

#[derive(Clone, Debug)]
pub struct Put {
    pub path: Vec<u8>,
    pub mode: Mode,
    pub content: Bytes,
}

/// What a container is.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub container: String,
    pub image: String,
    pub runtime: String,
    /// `bash`, `sh`, or none.
    pub shell: Option<String>,
    /// Limits that were not seen to hold.
    pub doubts: Vec<Doubt>,
}

/// Says where a long preparation stands, one short line a call ("base: importing (2/3)").
pub trait Progress: Send + Sync {
    fn say(&self, line: &str);
}
