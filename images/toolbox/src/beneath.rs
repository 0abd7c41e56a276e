//! Files beneath a folder, reached component by component, never through a link.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::{Errno, Result};

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What to do about folders that are not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Fail.
    Refuse,
    /// Make them.
    Make,
}

/// A folder, itself reached by any path.
pub fn root(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(path, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty())
}

/// A folder in a folder.
pub fn folder(at: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
    openat(at, OsStr::from_bytes(name), FOLDER, Mode::empty())
}

/// The folder of `path`'s last component, and that component.
pub fn parent<'a>(
    root: &OwnedFd,
    path: &'a [u8],
    missing: Missing,
) -> Result<(OwnedFd, &'a OsStr)> {
    let mut at = root.try_clone().map_err(|_| Errno::MFILE)?;
    let mut parts = path.split(|&byte| byte == b'/').peekable();
    while let Some(part) = parts.next() {
        if matches!(part, b"" | b"." | b"..") {
            return Err(Errno::INVAL);
        }
        if parts.peek().is_none() {
            return Ok((at, OsStr::from_bytes(part)));
        }
        at = match folder(&at, part) {
            Err(Errno::NOENT) if missing == Missing::Make => {
                mkdirat(&at, OsStr::from_bytes(part), Mode::from_raw_mode(0o755))?;
                folder(&at, part)?
            }
            other => other?,
        };
    }
    Err(Errno::INVAL)
}

/// Opens for reading; a FIFO does not make it wait.
pub fn read(root: &OwnedFd, path: &[u8]) -> Result<File> {
    let (at, name) = parent(root, path, Missing::Refuse)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(at, name, flags, Mode::empty())?))
}

/// Removes what stands at a name: a file, a link, an empty folder; nothing there is well.
pub fn clear(at: impl AsFd, name: &OsStr) -> Result<()> {
    match unlinkat(&at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => unlinkat(&at, name, AtFlags::REMOVEDIR),
        Err(other) => Err(other),
    }
}

/// A new file in the place of whatever stands there.
pub fn create(at: impl AsFd, name: &OsStr, mode: Mode) -> Result<File> {
    clear(&at, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(at, name, flags, mode)?);
    // The mask of the process must not matter.
    rustix::fs::fchmod(&file, mode)?;
    Ok(file)
}

/// Where a path of the agent's leads once links are followed.
pub struct Place {
    /// One of the allowed folders.
    pub root: OwnedFd,
    /// Beneath it, without links.
    pub path: Vec<u8>,
}

/// The folders whose files may be read and written, and how the agent names the first.
pub struct Allowed {
    /// The workspace, then others; all without links.
    folders: Vec<PathBuf>,
}

impl Allowed {
    /// `folders` as they are once links are followed; the first is the workspace.
    pub fn new(folders: &[PathBuf]) -> Allowed {
        let real = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        Allowed {
            folders: folders.iter().map(real).collect(),
        }
    }

    /// Resolves a path for reading or writing; `Err` is what to tell the agent.
    pub fn place(&self, path: &str) -> std::result::Result<Place, String> {
        let Some(workspace) = self.folders.first() else {
            return Err("no workspace".into());
        };
        let given = Path::new(path);
        let full = match given.strip_prefix("/workspace") {
            Ok(rest) => workspace.join(rest),
            Err(_) => workspace.join(given),
        };
        let real = resolve(&full).map_err(|error| format!("{path}: {error}"))?;
        for folder in &self.folders {
            if let Ok(rest) = real.strip_prefix(folder) {
                let root = root(folder).map_err(|error| format!("{path}: {error}"))?;
                return Ok(Place {
                    root,
                    path: rest.as_os_str().as_bytes().to_vec(),
                });
            }
        }
        Err(format!("{path}: leads outside of /workspace"))
    }

    /// The path within the workspace, when it leads there.
    pub fn in_workspace(&self, path: &str) -> Option<Vec<u8>> {
        let workspace = self.folders.first()?;
        let given = Path::new(path);
        let full = match given.strip_prefix("/workspace") {
            Ok(rest) => workspace.join(rest),
            Err(_) => workspace.join(given),
        };
        let real = resolve(&full).ok()?;
        let inner = real.strip_prefix(workspace).ok()?;
        Some(inner.as_os_str().as_bytes().to_vec())
    }
}

/// Follows all links of what exists; what does not exist yet must be plain names.
fn resolve(path: &Path) -> std::result::Result<PathBuf, String> {
    match std::fs::canonicalize(path) {
        Ok(real) => return Ok(real),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(words(&error)),
        Err(_) => {}
    }
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
        return Err("a link to nothing".into());
    }
    let (Some(parent), Some(Component::Normal(name))) =
        (path.parent(), path.components().next_back())
    else {
        return Err("no such file".into());
    };
    Ok(resolve(parent)?.join(name))
}

/// An error of the system in the words of a shell.
pub fn words(error: &std::io::Error) -> String {
    use std::io::ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound => "no such file".into(),
        Kind::PermissionDenied => "permission denied".into(),
        Kind::IsADirectory => "is a directory".into(),
        Kind::NotADirectory => "not a directory".into(),
        Kind::StorageFull => "no space left".into(),
        _ => error.to_string(),
    }
}

/// True for a regular file by its mode.
pub fn regular(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}
