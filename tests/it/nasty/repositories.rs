//! Makes them: every state a repository can be in, and every file a directory can hold.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::fixture::*;

/// One of them.
pub struct Nasty {
    pub name: &'static str,
    /// Everything that could be changed by accident.
    pub top: PathBuf,
    /// What is worked on.
    pub work: PathBuf,
    pub is: Is,
}

/// Makes one in a folder; what is worked on.
type Make = fn(&Path) -> PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// A run on it delivers a branch.
    Repository,
    /// A run on it delivers a patch.
    Plain,
    /// No run begins.
    Refused,
}

/// All of them, each in a folder of its own below `dir`.
pub fn all(dir: &Path) -> Vec<Nasty> {
    let made: &[(&'static str, Is, Make)] = &[
        ("empty", Is::Plain, empty),
        ("plain", Is::Plain, plain),
        ("unborn", Is::Repository, unborn),
        ("detached", Is::Repository, detached),
        ("linked", Is::Repository, linked),
        ("bare", Is::Refused, bare),
        ("worktree-of-bare", Is::Repository, worktree_of_bare),
        ("below", Is::Repository, below),
        ("ignored-whole", Is::Plain, ignored_whole),
        ("submodules", Is::Repository, submodules),
        ("large-file-storage", Is::Repository, pointers),
        ("shallow", Is::Repository, shallow),
        ("merging", Is::Repository, merging),
        ("rebasing", Is::Repository, rebasing),
        ("sparse", Is::Repository, sparse),
        ("nested", Is::Repository, nested),
        ("names", Is::Repository, names),
        ("odd-files", Is::Repository, odd_files),
        ("line-ends", Is::Repository, line_ends),
        ("sha256", Is::Plain, sha256),
        ("everything", Is::Repository, everything),
    ];
    made.iter()
        .map(|&(name, is, make)| {
            let top = dir.join(name);
            std::fs::create_dir(&top).unwrap();
            let work = make(&top);
            Nasty {
                name,
                top,
                work,
                is,
            }
        })
        .collect()
}

/// Everything observable below a directory, less what a new branch adds to a repository.
pub fn photograph(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = state(top);
    seen.retain(|path, _| !is_git_s_own(path));
    seen
}

/// Objects, refs and logs of any repository, and the folders whose times they change.
fn is_git_s_own(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    parts.iter().enumerate().any(|(at, part)| {
        let inner = parts.get(at + 1);
        part.ends_with(".git")
            && (inner.is_none()
                || inner.is_some_and(|inner| ["objects", "refs", "logs"].contains(inner)))
    })
}

fn everything(top: &Path) -> PathBuf {
    nasty(top)
}

fn two_commits(dir: &Path) -> PathBuf {
    repository(dir, &[("a", "1\n"), ("sub/dir/b", "2\n")]);
    write(dir, b"a", b"2\n");
    git(dir, &["commit", "-qam", "second"]);
    dir.to_owned()
}

fn empty(top: &Path) -> PathBuf {
    top.to_owned()
}

fn plain(top: &Path) -> PathBuf {
    write(top, b"a", b"1");
    write(top, b"d/e/f", b"2");
    write(top, b".env", b"canary");
    std::fs::create_dir(top.join("nothing")).unwrap();
    top.to_owned()
}

fn unborn(top: &Path) -> PathBuf {
    init(top);
    write(top, b"staged", b"1\n");
    git(top, &["add", "staged"]);
    write(top, b"untracked", b"2\n");
    top.to_owned()
}

fn detached(top: &Path) -> PathBuf {
    two_commits(top);
    git(top, &["checkout", "-q", "--detach", "HEAD~1"]);
    top.to_owned()
}

fn linked(top: &Path) -> PathBuf {
    let main = two_commits(&top.join("main"));
    let work = top.join("linked");
    git(&main, &["worktree", "add", "-q", work.to_str().unwrap()]);
    write(&work, b"new", b"3\n");
    work
}

fn bare(top: &Path) -> PathBuf {
    let work = top.join("bare.git");
    git(top, &["init", "-q", "--bare", work.to_str().unwrap()]);
    work
}

fn worktree_of_bare(top: &Path) -> PathBuf {
    let main = two_commits(&top.join("main"));
    let bare = top.join("bare.git");
    let (from, to) = (main.to_str().unwrap(), bare.to_str().unwrap());
    git(top, &["clone", "-q", "--bare", from, to]);
    let work = top.join("work");
    git(
        &bare,
        &[
            "worktree",
            "add",
            "-q",
            "-b",
            "other",
            work.to_str().unwrap(),
        ],
    );
    work
}

fn below(top: &Path) -> PathBuf {
    two_commits(top);
    write(top, b"sub/dir/c", b"new\n");
    write(top, b"dirty-outside", b"new\n");
    top.join("sub/dir")
}

fn ignored_whole(top: &Path) -> PathBuf {
    repository(top, &[(".gitignore", "tmp/\n")]);
    write(top, b"tmp/work/a", b"1");
    top.join("tmp/work")
}

pub fn submodules(top: &Path) -> PathBuf {
    let library = two_commits(&top.join("library"));
    let work = repository(&top.join("work"), &[("a", "1\n")]);
    for name in ["inside", "away"] {
        git(
            &work,
            &[
                "submodule",
                "--quiet",
                "add",
                library.to_str().unwrap(),
                name,
            ],
        );
    }
    git(&work, &["commit", "-q", "-m", "submodules"]);
    git(&work, &["submodule", "--quiet", "deinit", "-f", "away"]);
    write(&work, b"inside/a", b"dirty\n");
    write(&work, b"inside/new", b"new\n");
    work
}

fn pointers(top: &Path) -> PathBuf {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    let attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n";
    repository(top, &[("image.bin", pointer), ("a", "1\n")]);
    // Later, so that this git has no filter to look for.
    write(top, b".gitattributes", attributes.as_bytes());
    git(top, &["add", ".gitattributes"]);
    git(top, &["commit", "-q", "-m", "attributes"]);
    top.to_owned()
}

fn shallow(top: &Path) -> PathBuf {
    let main = two_commits(&top.join("main"));
    let (url, work) = (format!("file://{}", main.display()), top.join("work"));
    git(
        top,
        &["clone", "-q", "--depth", "1", &url, work.to_str().unwrap()],
    );
    work
}

/// Two branches that change the same line.
fn apart(top: &Path) {
    repository(top, &[("a", "1\n"), ("b", "1\n")]);
    git(top, &["checkout", "-q", "-b", "other"]);
    write(top, b"a", b"2\n");
    git(top, &["commit", "-qam", "other"]);
    git(top, &["checkout", "-q", "main"]);
    write(top, b"a", b"3\n");
    git(top, &["commit", "-qam", "main"]);
}

fn stops(top: &Path, args: &[&str]) {
    let stopped = Command::new("git")
        .args(["-c", "user.name=Op", "-c", "user.email=op@localhost"])
        .args(args)
        .current_dir(top)
        .output()
        .unwrap();
    assert!(!stopped.status.success(), "{args:?} has a conflict");
}

fn merging(top: &Path) -> PathBuf {
    apart(top);
    stops(top, &["merge", "-q", "other"]);
    assert!(top.join(".git/MERGE_HEAD").exists());
    top.to_owned()
}

fn rebasing(top: &Path) -> PathBuf {
    apart(top);
    stops(top, &["rebase", "-q", "other"]);
    assert!(top.join(".git/rebase-merge").exists());
    top.to_owned()
}

fn sparse(top: &Path) -> PathBuf {
    repository(
        top,
        &[("in/a", "1\n"), ("out/b", "2\n"), ("assumed", "1\n")],
    );
    git(top, &["sparse-checkout", "set", "in"]);
    git(top, &["update-index", "--assume-unchanged", "assumed"]);
    write(top, b"assumed", b"2\n");
    top.to_owned()
}

fn nested(top: &Path) -> PathBuf {
    repository(top, &[("a", "1\n")]);
    repository(&top.join("one"), &[("b", "1\n"), (".gitignore", "*.log\n")]);
    write(top, b"one/x.log", b"ignored by the inner one\n");
    repository(&top.join("one/two"), &[("c", "1\n")]);
    init(&top.join("three"));
    // A `.git` that is none.
    write(top, b"four/.git", b"garbage\n");
    write(top, b"four/d", b"1\n");
    top.to_owned()
}

fn names(top: &Path) -> PathBuf {
    repository(top, &[("a", "1\n")]);
    for name in NAMES {
        write(top, name, b"nasty\n");
    }
    write(top, &[b'l'; 255], b"long\n");
    git(top, &["add", "-A"]);
    git(top, &["commit", "-q", "-m", "names"]);
    for name in NAMES {
        let folder = [b"folder/".as_slice(), name].concat();
        write(top, &folder, b"untracked\n");
    }
    top.to_owned()
}

fn odd_files(top: &Path) -> PathBuf {
    repository(
        top,
        &[
            ("a", "1\n"),
            (".gitignore", "build/\n"),
            ("run.sh", "#!/bin/sh\n"),
        ],
    );
    chmod(top, "run.sh", 0o755);
    chmod(top, "a", 0o600);
    std::fs::hard_link(top.join("a"), top.join("same")).unwrap();
    std::fs::File::create(top.join("holes"))
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    symlink("a", top.join("link")).unwrap();
    symlink("/etc/passwd", top.join("out")).unwrap();
    symlink("loop", top.join("loop")).unwrap();
    symlink("..", top.join("up")).unwrap();
    std::fs::create_dir_all(top.join("silent/inner")).unwrap();
    fifo(&top.join("pipe"));
    fifo(&top.join("silent/inner/pipe"));
    // The file outlives who listened.
    drop(UnixListener::bind(top.join("socket")).unwrap());
    write(top, b"build/out", b"junk\n");
    write(top, b".env", b"canary\n");
    write(top, b"big", &vec![b'x'; 3 << 20]);
    std::fs::create_dir(top.join("nothing")).unwrap();
    top.to_owned()
}

pub fn fifo(at: &Path) {
    let (kind, mode) = (
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
    );
    rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
}

fn line_ends(top: &Path) -> PathBuf {
    repository(
        top,
        &[
            ("a.txt", "1\n2\n"),
            (".gitattributes", "*.txt text eol=crlf\n"),
        ],
    );
    std::fs::remove_file(top.join("a.txt")).unwrap();
    git(top, &["checkout", "-q", "a.txt"]);
    write(top, b"no-end", b"no newline");
    top.to_owned()
}

fn sha256(top: &Path) -> PathBuf {
    git(top, &["init", "-q", "-b", "main", "--object-format=sha256"]);
    git(top, &["config", "user.name", "Op"]);
    git(top, &["config", "user.email", "op@localhost"]);
    write(top, b"a", b"1\n");
    git(top, &["add", "-A"]);
    git(top, &["commit", "-q", "-m", "first"]);
    top.to_owned()
}
