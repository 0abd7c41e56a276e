//! The one place that starts git: a closed environment, answers as bytes, a failure never an empty answer.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use super::{Error, path};

/// No single git process may take longer; the largest workspace's import is far below.
pub(super) const LIMIT: Duration = Duration::from_secs(30 * 60);
/// What is kept of a failed command's own words, in bytes.
const WORDS: usize = 2_000;
/// Author and committer of everything Wharf commits.
pub(super) const AUTHOR: &str = "Wharf <wharf@localhost>";
/// The date of every commit in the store, so that equal content has equal ids (2000-01-01).
pub(super) const DATE: u64 = 946_684_800;

/// Settings that no repository's own configuration may undo.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.quotePath=true",
    "core.compression=1",
    "core.fsync=committed,loose-object",
    "core.fsyncMethod=batch",
    "protocol.allow=never",
    "safe.directory=*",
    "gc.auto=0",
    "maintenance.auto=false",
    "merge.directoryRenames=false",
    "merge.conflictStyle=merge",
    "merge.renames=true",
    "diff.renames=false",
    "submodule.recurse=false",
];

/// The git program and how often it was started.
#[derive(Clone, Debug)]
pub struct Git {
    search: OsString,
    /// Where it is in the search path, looked up once.
    program: Arc<OnceLock<PathBuf>>,
    started: Arc<AtomicU64>,
}

/// One git command before it is started.
pub(super) struct Call {
    operation: &'static str,
    directory: PathBuf,
    git_dir: Option<PathBuf>,
    args: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    settings: Vec<&'static str>,
}

/// What a command that may say no came to.
pub(super) struct Output {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// The version of the git program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    /// The oldest git whose `merge-tree` writes trees.
    pub const NEEDED: Self = Self {
        major: 2,
        minor: 38,
    };

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().strip_prefix("git version ")?.split('.');
        Some(Self {
            major: numbers.next()?.parse().ok()?,
            minor: numbers.next()?.parse().ok()?,
        })
    }
}

impl Git {
    /// The git found in a search path of the form of PATH, which git's own parts keep.
    pub fn at(search: impl Into<OsString>) -> Self {
        Self {
            search: search.into(),
            program: Arc::default(),
            started: Arc::default(),
        }
    }

    /// The program's own path: a name that is looked up in another search path than this process's
    /// costs a copy of all its pages at each start. The mere name where it is not found, for the error.
    fn program(&self) -> &Path {
        self.program.get_or_init(|| {
            let folders = std::env::split_paths(&self.search).filter(|folder| folder.is_absolute());
            let runs =
                |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
            let mut found = folders.map(|folder| folder.join("git"));
            let found = found.find(|path| path.is_file() && runs(path));
            found.unwrap_or_else(|| PathBuf::from("git"))
        })
    }

    /// Its version; an error when there is none in the search path or it cannot be read.
    pub async fn version(&self) -> Result<Version, Error> {
        let call = Call::new("version", Path::new("/"));
        let answer = self.ask(call, b"").await?;
        let text = String::from_utf8_lossy(&answer);
        Version::parse(&text).ok_or_else(|| unreadable("version", &text))
    }

    /// How many processes were started so far.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// Runs a command that must exit with 0; its answer.
    pub(super) async fn ask(&self, call: Call, input: &[u8]) -> Result<Vec<u8>, Error> {
        let operation = call.operation;
        let output = self.try_ask(call, input).await?;
        match output.code {
            0 => Ok(output.stdout),
            _ => Err(output.into_error(operation)),
        }
    }

    /// Like `ask` for a command that answers one line.
    pub(super) async fn line(&self, call: Call) -> Result<String, Error> {
        let operation = call.operation;
        let answer = self.ask(call, b"").await?;
        one_line(operation, &answer)
    }

    /// Runs a command whose exit code is part of the answer.
    pub(super) async fn try_ask(&self, call: Call, input: &[u8]) -> Result<Output, Error> {
        let input = Bytes::copy_from_slice(input);
        self.feed(call, futures::stream::iter([input])).await
    }

    /// Runs a command that reads a stream; the stream is dropped when the command stops reading.
    pub(super) async fn feed(
        &self,
        call: Call,
        input: impl Stream<Item = Bytes> + Send,
    ) -> Result<Output, Error> {
        let operation = call.operation;
        let directory = call.directory.clone();
        let mut child = self.spawn(&call, Stdio::piped(), Stdio::piped())?;
        let stdin = child.stdin.take();
        let work = async {
            let (_, output) = tokio::join!(pour(stdin, input), collect(&mut child));
            output
        };
        let failed = |source| Error::Io {
            operation: "run git in",
            path: directory.clone(),
            source,
        };
        match tokio::time::timeout(LIMIT, work).await {
            Ok(output) => output.map_err(failed),
            Err(_) => Err(failed(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("git {operation} did not end within {} s", LIMIT.as_secs()),
            ))),
        }
    }

    /// Runs a command between two files; it must exit with 0.
    pub(super) async fn through(
        &self,
        call: Call,
        input: Stdio,
        output: Option<File>,
    ) -> Result<Vec<u8>, Error> {
        let operation = call.operation;
        let directory = call.directory.clone();
        let stdout = output.map_or_else(Stdio::piped, Stdio::from);
        let mut child = self.spawn(&call, input, stdout)?;
        let io = |source| Error::Io {
            operation: "run git in",
            path: directory.clone(),
            source,
        };
        let ended = tokio::time::timeout(LIMIT, collect(&mut child)).await;
        let output = ended.map_err(|_| io(std::io::ErrorKind::TimedOut.into()))?;
        let output = output.map_err(io)?;
        match output.code {
            0 => Ok(output.stdout),
            _ => Err(output.into_error(operation)),
        }
    }

    /// Starts a command; dropping the child kills it.
    pub(super) fn spawn(&self, call: &Call, input: Stdio, output: Stdio) -> Result<Child, Error> {
        self.started.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(self.program());
        command
            .env_clear()
            .env("PATH", &self.search)
            .env("HOME", "/nonexistent")
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_AUTHOR_NAME", "Wharf")
            .env("GIT_AUTHOR_EMAIL", "wharf@localhost")
            .env("GIT_AUTHOR_DATE", format!("{DATE} +0000"))
            .env("GIT_COMMITTER_NAME", "Wharf")
            .env("GIT_COMMITTER_EMAIL", "wharf@localhost")
            .env("GIT_COMMITTER_DATE", format!("{DATE} +0000"))
            .envs(call.environment.iter().map(|(name, value)| (name, value)));
        for setting in SETTINGS.iter().chain(&call.settings) {
            command.arg("-c").arg(setting);
        }
        if let Some(dir) = &call.git_dir {
            let mut arg = OsString::from("--git-dir=");
            arg.push(dir);
            command.arg(arg);
        }
        command
            .arg(call.operation)
            .args(&call.args)
            .current_dir(&call.directory)
            .stdin(input)
            .stdout(output)
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().map_err(|source| Error::Io {
            operation: "start git in",
            path: call.directory.clone(),
            source,
        })
    }
}

impl Call {
    /// A command in a directory, where git finds the repository itself.
    pub(super) fn new(operation: &'static str, directory: &Path) -> Self {
        Self {
            operation,
            directory: directory.to_owned(),
            git_dir: None,
            args: Vec::new(),
            environment: Vec::new(),
            settings: Vec::new(),
        }
    }

    /// A command on exactly this bare repository.
    pub(super) fn bare(operation: &'static str, git_dir: &Path) -> Self {
        Self {
            git_dir: Some(git_dir.to_owned()),
            ..Self::new(operation, git_dir)
        }
    }

    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(super) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// A setting of this command alone; it wins over those of all.
    pub(super) fn set(mut self, setting: &'static str) -> Self {
        self.settings.push(setting);
        self
    }

    pub(super) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }
}

impl Output {
    pub(super) fn into_error(self, operation: &'static str) -> Error {
        Error::Git {
            operation,
            code: self.code,
            stderr: self.stderr,
        }
    }
}

/// The error for an answer that is not what the command's manual promises.
pub(super) fn unreadable(operation: &'static str, what: &str) -> Error {
    let what: String = what.chars().take(200).collect();
    Error::Unreadable { operation, what }
}

pub(super) fn one_line(operation: &'static str, answer: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(answer)
        .map_err(|_| unreadable(operation, &String::from_utf8_lossy(answer)))?;
    Ok(text.strip_suffix('\n').unwrap_or(text).to_owned())
}

/// A git object's name as an answer holds it.
pub(super) fn object_id<'a>(operation: &'static str, text: &'a str) -> Result<&'a str, Error> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hex && (text.len() == 40 || text.len() == 64) {
        Ok(text)
    } else {
        Err(unreadable(operation, text))
    }
}

/// Writes until the stream or the reader ends. A reader that went away shows in its exit code.
async fn pour(stdin: Option<ChildStdin>, input: impl Stream<Item = Bytes> + Send) {
    let Some(mut stdin) = stdin else { return };
    let mut input = std::pin::pin!(input);
    while let Some(chunk) = input.next().await {
        if stdin.write_all(&chunk).await.is_err() {
            return;
        }
    }
    // A failed flush is a broken pipe too: the child's exit code tells.
    let _ = stdin.shutdown().await;
}

async fn collect(child: &mut Child) -> std::io::Result<Output> {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let read_out = async {
        match out.as_mut() {
            Some(pipe) => pipe.read_to_end(&mut stdout).await,
            None => Ok(0),
        }
    };
    let read_err = async {
        match err.as_mut() {
            Some(pipe) => pipe.read_to_end(&mut stderr).await,
            None => Ok(0),
        }
    };
    tokio::try_join!(read_out, read_err)?;
    let status = child.wait().await?;
    stderr.truncate(WORDS);
    Ok(Output {
        code: code_of(status),
        stdout,
        stderr: said(&stderr),
    })
}

/// A command's own words on one line.
pub(super) fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<String> = lines.map(|line| path::display(line.as_bytes())).collect();
    lines.join("; ")
}

/// The exit code, or 128 + the signal as shells count; never 0 for what was killed.
fn code_of(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(127))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_or_refused() {
        let apple = Version::parse("git version 2.39.5 (Apple Git-154)\n").unwrap();
        assert!(apple >= Version::NEEDED);
        assert!(Version::parse("git version 2.37.9").unwrap() < Version::NEEDED);
        assert_eq!(Version::parse("git version two"), None);
        assert_eq!(Version::parse(""), None);
    }

    #[test]
    fn several_lines_of_a_failure_read_as_one() {
        let stderr = b"fatal: no space\n\n  fatal: cannot go on\x1b[2J\n";
        assert_eq!(
            said(stderr),
            "fatal: no space; fatal: cannot go on\\u{1b}[2J"
        );
    }

    #[tokio::test]
    async fn failure_is_an_error_and_never_an_empty_answer() {
        let git = Git::at("/usr/local/bin:/usr/bin:/bin");
        let call = Call::bare("ls-tree", Path::new("/")).args(["-r", "HEAD"]);
        let error = git.ask(call, b"").await.unwrap_err();
        assert!(matches!(error, Error::Git { code: 128, .. }), "{error}");
        assert_eq!(git.started(), 1);
    }

    #[tokio::test]
    async fn a_missing_git_is_an_error() {
        let git = Git::at("/nonexistent");
        let error = git
            .ask(Call::new("version", Path::new("/")), b"")
            .await
            .unwrap_err();
        assert!(error.to_string().starts_with("start git in"), "{error}");
    }
}
