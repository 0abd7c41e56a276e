//! One walk over the workspace: what is there, without following a link or entering a `.git`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom, statat};
use rustix::io::Errno;
use wharf_toolbox::ignore::{Rules, junk_file, junk_folder};
use wharf_toolbox::memo::{BY_RULES, IGNORED};
use wharf_toolbox::record::{MAX_PATH, Mode};
use wharf_toolbox::stamp::Stamp;

use crate::lent;

/// Deeper folders are left out, since each level holds a descriptor.
const DEEPEST: usize = 200;
/// Why a `.git` below the top is left out.
const REPOSITORY: &str = "a repository's own data, of which only the files around it are taken";
/// Most bytes read of a `.gitignore`.
const RULES: u64 = 1 << 20;

/// What is known of a path since the upload or the last scan.
#[derive(Clone, Debug)]
pub struct Known {
    /// As it was then.
    pub stamp: Stamp,
    /// SHA-256 of the content, where it was seen.
    pub hash: Option<[u8; 32]>,
    /// Part of the tree, rather than of the image.
    pub carried: bool,
    /// Changed so shortly before that another change may have the same stamp.
    pub young: bool,
}

/// All that is known, by path.
pub type Tree = BTreeMap<Vec<u8>, Known>;

/// What a walk found.
#[derive(Default)]
pub struct Found {
    /// Files and links.
    pub entries: Vec<(Vec<u8>, Stamp, Mode)>,
    /// Not carried, with the reason; a folder has a slash at its end.
    pub left_out: Vec<(Vec<u8>, String)>,
    /// Folders that could not be looked into: nothing beneath them counts as gone.
    pub closed: Vec<Vec<u8>>,
}

/// Walks all of `root`; `known` and `gone` say which paths are carried whatever the rules say, those
/// there are and those that were taken away meanwhile.
pub fn walk(root: &OwnedFd, known: &Tree, gone: &BTreeSet<Vec<u8>>) -> Found {
    let mut walk = Walk {
        known,
        gone,
        rules: Rules::default(),
        found: Found::default(),
        top: None,
        space: Vec::new(),
    };
    match lent::root(root) {
        Ok(root) => walk.folder(root.fd(), &mut Vec::new(), 0, false),
        Err(_) => walk.found.closed.push(Vec::new()),
    }
    walk.found.entries.sort_by(|a, b| a.0.cmp(&b.0));
    walk.found
}

struct Walk<'a> {
    known: &'a Tree,
    gone: &'a BTreeSet<Vec<u8>>,
    rules: Rules,
    found: Found,
    /// The outermost ignored folder that the walk is in.
    top: Option<Top>,
    /// For the names of a folder as the kernel gives them.
    space: Vec<u8>,
}

/// An ignored folder.
struct Top {
    path: Vec<u8>,
    why: &'static str,
    /// It was said already.
    said: bool,
}

impl Top {
    fn of(path: &[u8], why: &'static str) -> Top {
        Top {
            path: [path, b"/"].concat(),
            why,
            said: false,
        }
    }
}

/// True for a folder that calls itself a cache and shuts itself out of git.
fn is_cache(names: &[Vec<u8>]) -> bool {
    let holds = |file: &[u8]| names.iter().any(|name| name == file);
    holds(b"CACHEDIR.TAG") && holds(b".gitignore")
}

impl Walk<'_> {
    fn folder(&mut self, at: &OwnedFd, path: &mut Vec<u8>, deep: usize, mut ignored: bool) {
        let names = match names(at, &mut self.space) {
            Ok(names) => names,
            Err(error) => return self.close(path, &format!("cannot be listed ({error})")),
        };
        if !ignored && !path.is_empty() && is_cache(&names) {
            self.top = Some(Top::of(path, IGNORED));
            ignored = true;
        }
        let rules = self.rules.len();
        if names.iter().any(|name| name == b".gitignore") {
            self.read_rules(at, path);
        }
        for name in names {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            self.entry(at.as_fd(), path, &name, deep, ignored);
            path.truncate(length);
        }
        self.rules.truncate(rules);
    }

    fn entry(
        &mut self,
        at: BorrowedFd<'_>,
        path: &mut Vec<u8>,
        name: &[u8],
        deep: usize,
        ignored: bool,
    ) {
        // The agent's own repository, which lies at the top, is no work.
        if path == b".git" {
            return;
        }
        if path.len() > MAX_PATH {
            return self.leave_within(path, "a path in it is too long");
        }
        let os_name = std::os::unix::ffi::OsStrExt::from_bytes(name);
        let os_name: &std::ffi::OsStr = os_name;
        let stat = match statat(at, os_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return,
            Err(error) => return self.blind(path, error),
        };
        let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if name.eq_ignore_ascii_case(b".git") {
            return match (ignored, folder) {
                (true, _) => self.leave_top(),
                (false, true) => self.leave(&[path, &b"/"[..]].concat(), REPOSITORY),
                (false, false) => self.leave(path, REPOSITORY),
            };
        }
        if folder {
            return self.inner(at, path, name, deep, ignored);
        }
        let stamp = Stamp::of(&stat);
        let Some(kind) = stamp.kind() else {
            return self.leave(path, "neither file nor link");
        };
        // Almost every file is plain: then nobody need ask whether the tree carries it all the same.
        let junk = junk_file(name);
        if (ignored || junk || !self.rules.is_empty()) && !self.is_carried(path) {
            if ignored {
                return self.leave_top();
            }
            if junk {
                return self.leave(path, IGNORED);
            }
            if self.rules.leave_out(path, false) {
                return self.leave(path, BY_RULES);
            }
        }
        self.found.entries.push((path.clone(), stamp, kind));
    }

    fn inner(
        &mut self,
        at: BorrowedFd<'_>,
        path: &mut Vec<u8>,
        name: &[u8],
        deep: usize,
        ignored: bool,
    ) {
        if deep >= DEEPEST {
            return self.close(path, "too deep");
        }
        let inner = match lent::folder(at, name) {
            Ok(inner) => inner,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return,
            Err(error) => return self.close(path, &format!("cannot be opened ({error})")),
        };
        let holds = |file: &str| statat(inner.fd(), file, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let junk = ignored || junk_folder(name, &holds);
        let ignore = junk || self.rules.leave_out(path, true);
        if ignore && !ignored {
            self.top = Some(Top::of(path, if junk { IGNORED } else { BY_RULES }));
        }
        if !ignore || self.carries(path) {
            self.folder(inner.fd(), path, deep + 1, ignore);
        } else {
            self.leave_top();
        }
    }

    fn is_carried(&self, path: &[u8]) -> bool {
        self.known.get(path).is_some_and(|known| known.carried) || self.gone.contains(path)
    }

    /// One line for all that is left out of an ignored folder.
    fn leave_top(&mut self) {
        if let Some(top) = self.top.as_mut().filter(|top| !top.said) {
            top.said = true;
            let (path, why) = (top.path.clone(), top.why);
            self.leave(&path, why);
        }
    }

    /// True when the tree has, or had, something beneath the folder.
    fn carries(&self, folder: &[u8]) -> bool {
        let from = [folder, b"/"].concat();
        let range = (Bound::Included(from.clone()), Bound::Unbounded);
        let gone = self.gone.range::<Vec<u8>, _>(range.clone()).next();
        let mut beneath = self.known.range::<Vec<u8>, _>(range);
        gone.is_some_and(|path| path.starts_with(&from))
            || beneath
                .by_ref()
                .take_while(|(path, _)| path.starts_with(&from))
                .any(|(_, known)| known.carried)
    }

    fn read_rules(&mut self, at: &OwnedFd, folder: &[u8]) {
        let Ok(file) = lent::read(at, b".gitignore") else {
            return;
        };
        if !file.metadata().is_ok_and(|meta| meta.is_file()) {
            return;
        }
        let mut text = Vec::new();
        if file.take(RULES).read_to_end(&mut text).is_ok() {
            self.rules.add(folder, &text);
        }
    }

    fn leave(&mut self, path: &[u8], why: &str) {
        self.found.left_out.push((path.to_vec(), why.to_owned()));
    }

    /// Something in the path's folder, which cannot be named itself; said once.
    fn leave_within(&mut self, path: &[u8], why: &str) {
        let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let mut folder = path[..slash].to_vec();
        if folder.len() < MAX_PATH {
            folder.push(b'/');
        }
        let said = self.found.left_out.last();
        if said.is_none_or(|(last, _)| *last != folder) {
            self.leave(&folder, why);
        }
    }

    /// A folder that may be listed and not entered: what it names is there, and cannot be looked at.
    fn blind(&mut self, path: &[u8], error: Errno) {
        let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let folder = &path[..slash];
        if self.found.closed.last().is_none_or(|last| last != folder) {
            self.close(folder, &format!("cannot be looked into ({error})"));
        }
    }

    fn close(&mut self, path: &[u8], why: &str) {
        self.leave(&[path, b"/"].concat(), why);
        self.found.closed.push(path.to_vec());
    }
}

/// Bytes of names asked for at a time. A file system in user space answers each asking by itself, and
/// one that gives the figures of files with their names does so for the first answer only.
const NAMES: usize = 128 << 10;

/// The names in a folder, sorted.
fn names(at: &OwnedFd, space: &mut Vec<u8>) -> rustix::io::Result<Vec<Vec<u8>>> {
    // The workspace's own descriptor has been read to its end before.
    rustix::fs::seek(at, SeekFrom::Start(0))?;
    space.clear();
    space.reserve(NAMES);
    let mut names = Vec::new();
    let mut entries = RawDir::new(at, space.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    names.sort();
    // What is renamed meanwhile may be listed twice.
    names.dedup();
    Ok(names)
}
