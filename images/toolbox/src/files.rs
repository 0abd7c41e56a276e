//! The file calls: read, write, list, grep.

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Mode as Permissions, OFlags, openat, statat};
use wharf_toolbox::message::Reply;
use wharf_toolbox::pattern::{Glob, regex, search, shown};

use crate::bell::lock;
use crate::beneath::{self, Allowed, Missing, words};
use crate::calls::stopped;
use crate::link::{Cancelled, Channel};
use crate::tree::Workspace;

/// A larger file is not searched.
const SEARCHED: u64 = 16 << 20;

/// Where files are looked for.
pub struct Files {
    /// The workspace, home and /tmp.
    pub allowed: Allowed,
    /// The workspace as a tree.
    pub workspace: Arc<Mutex<Workspace>>,
}

fn told(text: impl Into<String>) -> Reply {
    Reply::Told { text: text.into() }
}

impl Files {
    /// Bytes of a file from `offset`.
    pub fn read(
        &self,
        channel: &Channel,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<Reply, Cancelled> {
        let mut file = match self.open(path) {
            Ok(file) => file,
            Err(text) => return Ok(told(text)),
        };
        let size = file.metadata().map_or(0, |meta| meta.len());
        if file.seek(SeekFrom::Start(offset)).is_err() {
            return Ok(told(format!("{path}: cannot be read from {offset}")));
        }
        let mut left = file.take(limit);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match left.read(&mut buffer) {
                Ok(0) => return Ok(Reply::Read { size }),
                Ok(got) => channel.write(&buffer[..got])?,
                Err(error) => return Ok(told(format!("{path}: {}", words(&error)))),
            }
        }
    }

    fn open(&self, path: &str) -> Result<std::fs::File, String> {
        let place = self.allowed.place(path)?;
        if place.path.is_empty() {
            return Err(format!("{path}: is a directory"));
        }
        let say = |error: std::io::Error| format!("{path}: {}", words(&error));
        let file = beneath::read(&place.root, &place.path).map_err(|error| say(error.into()))?;
        let meta = file.metadata().map_err(say)?;
        match (meta.is_file(), meta.is_dir()) {
            (true, _) => Ok(file),
            (_, true) => Err(format!("{path}: is a directory")),
            _ => Err(format!("{path}: not a regular file")),
        }
    }

    /// Replaces a file by the bytes that come in.
    pub fn write(&self, channel: &Channel, path: &str) -> Result<Reply, Cancelled> {
        let mut file = self.replace(path);
        while let Some(bytes) = channel.read()? {
            if let Ok(open) = &mut file
                && let Err(error) = open.write_all(&bytes)
            {
                file = Err(format!("{path}: {}", words(&error)));
            }
        }
        Ok(file.map_or_else(told, |_| Reply::Written))
    }

    /// Opens the file emptied, with its mode as it was.
    fn replace(&self, path: &str) -> Result<std::fs::File, String> {
        let place = self.allowed.place(path)?;
        if place.path.is_empty() {
            return Err(format!("{path}: is a directory"));
        }
        let say = |error: rustix::io::Errno| format!("{path}: {}", words(&error.into()));
        let (at, name) = beneath::parent(&place.root, &place.path, Missing::Make).map_err(say)?;
        if let Ok(stat) = statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)
            && !beneath::regular(stat.st_mode)
        {
            let folder = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
            let what = if folder {
                "is a directory"
            } else {
                "not a regular file"
            };
            return Err(format!("{path}: {what}"));
        }
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file = openat(at, name, flags, Permissions::from_raw_mode(0o644)).map_err(say)?;
        Ok(std::fs::File::from(file))
    }

    /// Paths that match a glob.
    pub fn list(
        &self,
        channel: &Channel,
        pattern: Option<&str>,
        limit: u64,
    ) -> Result<Reply, Cancelled> {
        let glob = match pattern.map(Glob::path).transpose() {
            Ok(glob) => glob,
            Err(text) => return Ok(told(text)),
        };
        let mut lines = Lines::new(channel, limit);
        let paths = match lock(&self.workspace).paths() {
            Ok(paths) => paths,
            Err(stop) => return stopped(stop),
        };
        for path in paths {
            let meant = glob.as_ref().is_none_or(|glob| glob.matches(&path));
            if meant && !lines.put(&shown(&path)) {
                break;
            }
        }
        lines.end()
    }

    /// Lines that match a regular expression.
    pub fn grep(
        &self,
        channel: &Channel,
        pattern: &str,
        glob: Option<&str>,
        limit: u64,
    ) -> Result<Reply, Cancelled> {
        let wanted =
            regex(pattern).and_then(|regex| Ok((regex, glob.map(Glob::name).transpose()?)));
        let (regex, glob) = match wanted {
            Ok(wanted) => wanted,
            Err(text) => return Ok(told(text)),
        };
        let mut lines = Lines::new(channel, limit);
        let paths = match lock(&self.workspace).paths() {
            Ok(paths) => paths,
            Err(stop) => return stopped(stop),
        };
        for path in paths {
            if channel.cancelled() {
                return Err(Cancelled);
            }
            if glob.as_ref().is_some_and(|glob| !glob.matches(&path)) {
                continue;
            }
            let Some(content) = self.content(&path) else {
                continue;
            };
            if !search(&regex, &path, &content, &mut |line| lines.put(&line)) {
                break;
            }
        }
        lines.end()
    }

    /// The bytes of a file that is no link and not too large.
    fn content(&self, path: &[u8]) -> Option<Vec<u8>> {
        let file = lock(&self.workspace).read(path)?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.len() > SEARCHED {
            return None;
        }
        let mut content = Vec::new();
        file.take(SEARCHED).read_to_end(&mut content).ok()?;
        Some(content)
    }
}

/// Lines on their way out, up to a limit.
struct Lines<'a> {
    channel: &'a Channel,
    buffer: Vec<u8>,
    left: u64,
    cut: bool,
    cancelled: bool,
}

impl<'a> Lines<'a> {
    fn new(channel: &'a Channel, limit: u64) -> Lines<'a> {
        Lines {
            channel,
            buffer: Vec::new(),
            left: limit,
            cut: false,
            cancelled: false,
        }
    }

    /// False when there is no room for the line.
    fn put(&mut self, line: &str) -> bool {
        if self.left == 0 {
            self.cut = true;
            return false;
        }
        self.left -= 1;
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        if self.buffer.len() > 64 * 1024 {
            self.cancelled |= self.channel.write(&self.buffer).is_err();
            self.buffer.clear();
        }
        !self.cancelled
    }

    fn end(self) -> Result<Reply, Cancelled> {
        self.channel.write(&self.buffer)?;
        Ok(Reply::Listed { cut: self.cut })
    }
}
