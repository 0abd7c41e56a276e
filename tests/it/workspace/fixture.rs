//! Repositories with everything a repository can hold, and a look at every byte of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use wharf::id::CommitId;
use wharf::workspace::{Base, Edit, Git, Mode, Source, Store};

/// File names that break what is not careful.
pub const NAMES: &[&[u8]] = &[
    b"a b.txt",
    "caf\u{e9} \u{fc}.txt".as_bytes(),
    "cafe\u{301}.txt".as_bytes(),
    b"new\nline",
    b"a -> b.txt",
    b"-n",
    b"--help",
    b"\"q\".txt",
    b"back\\slash",
    b"tab\there",
    "u\u{2028}2028".as_bytes(),
    b"bad\xffbyte",
    b"trailing ",
    b"CON",
    b":(glob)x",
    b"x b/y",
    b"$(touch pwn)",
    b"\x01control",
    b"{a,b}*[x]?",
];

/// The git that the machine's search path names.
pub fn operators_git() -> Git {
    Git::at(env!("PATH"))
}

pub struct World {
    /// Removed at the end of the test.
    pub dir: tempfile::TempDir,
    pub store: Store,
}

impl World {
    pub async fn new() -> Self {
        Self::of(tempfile::tempdir().unwrap(), operators_git()).await
    }

    /// In a directory that is there already, with another git.
    pub async fn of(dir: tempfile::TempDir, git: Git) -> Self {
        let store = Store::create(git, dir.path().join("state/store.git"))
            .await
            .unwrap();
        Self { dir, store }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A repository with one commit of the given files.
    pub fn repository(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        repository(&self.path(name), files)
    }

    /// A base commit of exactly these files.
    pub async fn files(&self, files: &[(&str, &str)]) -> CommitId {
        let edits: Vec<Edit> = files
            .iter()
            .map(|(path, content)| put(path, content))
            .collect();
        self.store.commit(&[], &edits, "base").await.unwrap()
    }

    pub async fn child(&self, parent: &CommitId, edits: &[Edit]) -> CommitId {
        let parents = [parent.clone()];
        self.store.commit(&parents, edits, "agent").await.unwrap()
    }

    pub async fn text(&self, commit: &CommitId, path: &str) -> Option<String> {
        let content = self.store.blob(commit, path.as_bytes()).await.unwrap();
        content.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    pub async fn base(&self, dir: &Path) -> Base {
        self.store.base(&source(dir)).await.unwrap()
    }

    /// Every path of a commit with its content.
    pub async fn all(&self, commit: &CommitId) -> BTreeMap<Vec<u8>, (Mode, Bytes)> {
        let mut all = BTreeMap::new();
        for file in self.store.files(commit).await.unwrap() {
            let content = self.store.blob(commit, &file.path).await.unwrap().unwrap();
            assert_eq!(content.len() as u64, file.size);
            all.insert(file.path, (file.mode, content));
        }
        all
    }
}

/// A repository with one commit of the given files.
pub fn repository(dir: &Path, files: &[(&str, &str)]) -> PathBuf {
    init(dir);
    for (path, content) in files {
        write(dir, path.as_bytes(), content.as_bytes());
    }
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "-m", "first"]);
    dir.to_owned()
}

pub fn source(dir: &Path) -> Source {
    Source {
        path: dir.to_owned(),
        hide: vec![".env*".into(), "**/secrets/**".into()],
        include: Vec::new(),
        max_file: 1 << 20,
        max_total: 1 << 26,
        max_files: 10_000,
    }
}

pub fn put(path: &str, content: &str) -> Edit {
    Edit::Put {
        path: path.into(),
        mode: Mode::File,
        content: Bytes::copy_from_slice(content.as_bytes()),
    }
}

pub fn put_as(path: &str, mode: Mode, content: &[u8]) -> Edit {
    Edit::Put {
        path: path.into(),
        mode,
        content: Bytes::copy_from_slice(content),
    }
}

pub fn delete(path: &str) -> Edit {
    Edit::Delete { path: path.into() }
}

pub fn init(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "-q", "-b", "main"]);
    git(dir, &["config", "user.name", "Op"]);
    git(dir, &["config", "user.email", "op@localhost"]);
}

/// The operator's own git, with an ordinary environment; its answer as text.
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn status(dir: &Path) -> String {
    git(
        dir,
        &["status", "--porcelain=v2", "-z", "--ignored", "--branch"],
    )
}

pub fn at(dir: &Path, path: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(path))
}

pub fn write(dir: &Path, path: &[u8], content: &[u8]) {
    let full = at(dir, path);
    std::fs::create_dir_all(full.parent().unwrap()).unwrap();
    std::fs::write(full, content).unwrap();
}

pub fn read(dir: &Path, path: &str) -> String {
    std::fs::read_to_string(dir.join(path)).unwrap()
}

pub fn chmod(dir: &Path, path: &str, mode: u32) {
    std::fs::set_permissions(dir.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn permissions(dir: &Path, path: &str) -> u32 {
    std::fs::symlink_metadata(dir.join(path)).unwrap().mode() & 0o7777
}

/// Everything observable of everything below a directory: mode, size, times, links, content.
pub fn state(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_symlink() {
                std::fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_vec()
            } else if meta.is_file() {
                std::fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            if meta.is_dir() {
                folders.push(path.clone());
            }
            let line = format!(
                "{:o} {} {}.{} {}.{} {}",
                meta.mode(),
                meta.ino(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.ctime(),
                meta.ctime_nsec(),
                content.escape_ascii()
            );
            seen.insert(path.strip_prefix(dir).unwrap().to_owned(), line);
        }
    }
    seen
}

/// The state without what a new branch may add to `.git`.
pub fn working_state(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = state(dir);
    seen.retain(|path, _| {
        let text = path.to_string_lossy();
        !(text.starts_with(".git/objects")
            || text.starts_with(".git/refs/heads")
            || text.starts_with(".git/logs"))
            && text != ".git"
            && text != ".git/refs"
    });
    seen
}

/// A repository that holds all of it at once: dirty, staged, untracked, ignored, hidden, links,
/// modes, a submodule, a nested repository, a FIFO.
pub fn nasty(top: &Path) -> PathBuf {
    let dir = repository(
        &top.join("nasty"),
        &[("tracked.txt", "one\n"), ("gone.txt", "x\n")],
    );
    for name in NAMES {
        write(&dir, name, b"nasty\n");
    }
    write(&dir, &[b'l'; 255], b"long\n");
    write(&dir, b"bin", b"\0\x01\xff\r\n");
    write(&dir, b"crlf.txt", b"a\r\nb\r\n");
    write(&dir, b"empty", b"");
    write(&dir, b"run.sh", b"#!/bin/sh\n");
    chmod(&dir, "run.sh", 0o755);
    write(&dir, b".gitignore", b"ignored/\n*.log\n");
    write(&dir, b".gitattributes", b"* text=auto eol=crlf\n");
    write(&dir, b".env", b"SECRET=canary\n");
    write(&dir, b"sub/secrets/key", b"canary\n");
    symlink("tracked.txt", dir.join("relative")).unwrap();
    symlink("/etc/passwd", dir.join("absolute")).unwrap();
    symlink("nowhere", dir.join("dangling")).unwrap();
    symlink("..", dir.join("up")).unwrap();
    git(&dir, &["-c", "core.safecrlf=false", "add", "-A", "-f"]);
    git(&dir, &["commit", "-q", "-m", "second"]);
    let other = repository(&top.join("other"), &[("lib.c", "int x;\n")]);
    git(
        &dir,
        &[
            "submodule",
            "--quiet",
            "add",
            other.to_str().unwrap(),
            "mod",
        ],
    );
    git(&dir, &["commit", "-q", "-m", "submodule"]);
    write(&dir, b"mod/lib.c", b"int y;\n");
    write(&dir, b"tracked.txt", b"one\ndirty\n");
    write(&dir, b"staged.txt", b"staged\n");
    git(&dir, &["add", "staged.txt"]);
    write(&dir, b"staged.txt", b"staged and more\n");
    write(&dir, b"untracked.txt", b"new\n");
    write(&dir, b"ignored/junk", b"junk\n");
    write(&dir, b"debug.log", b"junk\n");
    std::fs::remove_file(dir.join("gone.txt")).unwrap();
    let nested = dir.join("nested");
    init(&nested);
    write(&nested, b"inner.txt", b"inner\n");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    git(&dir, &["status"]);
    dir
}

/// A file system of one megabyte; gone with it.
pub struct Small(pub PathBuf);

impl Small {
    #[expect(clippy::print_stderr, reason = "a test says aloud what it skips")]
    pub fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(at)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            other => {
                eprintln!("SKIPPED: no small file system can be mounted here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}
