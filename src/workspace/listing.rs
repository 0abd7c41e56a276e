//! Which paths of the operator's directory the base is made of.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::disk::{self, Found, Root};
use super::git::{Call, Git, object_id, one_line, unreadable};
use super::store::fields;
use super::{Error, GitKind, Source, path};

/// What lies in the operator's directory, before anything is read.
pub(super) struct Listing {
    pub git: GitKind,
    pub head: Option<String>,
    /// The directory's place in its repository, without a slash at its end.
    pub prefix: String,
    /// Every path that may become a file of the base.
    pub paths: BTreeSet<Vec<u8>>,
    /// Folders that are repositories of their own, walked as files.
    pub foreign: Vec<Vec<u8>>,
    /// Tracked paths that a sparse checkout keeps off the disk.
    pub sparse: BTreeSet<Vec<u8>>,
    /// Folders that could not be read, with the reason.
    pub unreadable: Vec<(Vec<u8>, String)>,
}

/// Lists a directory: by git where it is in a repository, else by walking it.
pub(super) async fn list(git: &Git, source: &Source) -> Result<Listing, Error> {
    let dir = std::fs::canonicalize(&source.path).map_err(|error| Error::Io {
        operation: "open the workspace",
        path: source.path.clone(),
        source: error,
    })?;
    let mut listing = Listing {
        git: GitKind::None,
        head: None,
        prefix: String::new(),
        paths: BTreeSet::new(),
        foreign: Vec::new(),
        sparse: BTreeSet::new(),
        unreadable: Vec::new(),
    };
    refuse_inner(&dir)?;
    let mut queue = VecDeque::new();
    if in_repository(&dir) {
        listing.prefix = prefix(git, &dir).await?;
        listing.head = head(git, &dir).await?;
        listing.git = match listing.head {
            Some(_) => GitKind::Repository,
            None => GitKind::Unborn,
        };
        files_of(git, &dir, b"", &mut listing, &mut queue).await?;
        if listing.paths.is_empty() && queue.is_empty() && is_ignored(git, &dir, &listing).await? {
            listing.git = GitKind::None;
            listing.head = None;
            listing.prefix.clear();
        }
    }
    if listing.git == GitKind::None {
        walk(&dir, b"", source.max_files, &mut listing, &mut queue)?;
    }
    while let Some(nested) = queue.pop_front() {
        enter(git, &dir, nested, source, &mut listing, &mut queue).await?;
        within(source.max_files, &listing)?;
    }
    within(source.max_files, &listing)?;
    if listing.git != GitKind::None {
        passed_by(&dir, &mut listing);
    }
    Ok(listing)
}

/// A repository's own inside is no workspace.
fn refuse_inner(dir: &Path) -> Result<(), Error> {
    let bare =
        dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir();
    if bare || dir.components().any(|part| part.as_os_str() == ".git") {
        return Err(Error::Refused {
            what: format!("{} is the inside of a git repository", dir.display()),
            hint: "name a directory with files, such as a clone of it".into(),
        });
    }
    Ok(())
}

/// True when git has something to find; then git must answer, and its failure is an error.
pub(super) fn in_repository(dir: &Path) -> bool {
    dir.ancestors()
        .any(|at| std::fs::symlink_metadata(at.join(".git")).is_ok())
}

pub(super) async fn prefix(git: &Git, dir: &Path) -> Result<String, Error> {
    let answer = git
        .ask(Call::new("rev-parse", dir).arg("--show-prefix"), b"")
        .await?;
    let answer = answer.strip_suffix(b"\n").unwrap_or(&answer);
    let bytes = answer.strip_suffix(b"/").unwrap_or(answer);
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Refused {
        what: format!("the workspace's path {} is no UTF-8", path::display(bytes)),
        hint: "rename the directory or work from the repository's top".into(),
    })
}

/// The commit HEAD names; None only where the branch it names has none yet.
pub(super) async fn head(git: &Git, dir: &Path) -> Result<Option<String>, Error> {
    let call = Call::new("rev-parse", dir).args(["--verify", "-q", "HEAD^{commit}"]);
    let output = git.try_ask(call, b"").await?;
    if output.code == 0 {
        let line = one_line("rev-parse", &output.stdout)?;
        return object_id("rev-parse", &line).map(|id| Some(id.to_owned()));
    }
    let branch = git
        .line(Call::new("symbolic-ref", dir).args(["-q", "HEAD"]))
        .await?;
    let call = Call::new("for-each-ref", dir).args(["--format=%(refname)", &branch]);
    let refs = git.try_ask(call, b"").await?;
    match (refs.code, refs.stdout.is_empty(), refs.stderr.is_empty()) {
        (0, true, true) => Ok(None),
        (0, ..) => Err(unreadable(
            "rev-parse",
            &format!("HEAD names {branch}, which has no commit"),
        )),
        _ => Err(refs.into_error("for-each-ref")),
    }
}

/// A workspace that its repository ignores as a whole is a directory like any other.
async fn is_ignored(git: &Git, dir: &Path, listing: &Listing) -> Result<bool, Error> {
    if listing.prefix.is_empty() {
        return Ok(false);
    }
    // check-ignore refuses to run with literal pathspecs.
    let call = Call::new("check-ignore", dir)
        .args(["-q", "."])
        .env("GIT_LITERAL_PATHSPECS", "0");
    let output = git.try_ask(call, b"").await?;
    match output.code {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(output.into_error("check-ignore")),
    }
}

/// Adds what git lists below `at`; folders that are repositories of their own go to the queue.
async fn files_of(
    git: &Git,
    top: &Path,
    at: &[u8],
    listing: &mut Listing,
    queue: &mut VecDeque<Vec<u8>>,
) -> Result<(), Error> {
    let dir = top.join(path::as_path(at));
    let mut call = Call::new("ls-files", &dir).args([
        "-z",
        "-t",
        "-s",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    if !at.is_empty() {
        // A broken inner repository must not be answered by the outer one.
        call = call.env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap_or(top));
    }
    let answer = git.ask(call, b"").await?;
    let root = Root::open(top)?;
    for field in fields(&answer) {
        let (kind, name) =
            listed(field).ok_or_else(|| unreadable("ls-files", &path::display(field)))?;
        let full = path::join(at, name);
        match (kind, root.find(&full)) {
            (Listed::Repository, Ok(Found::Directory)) => queue.push_back(full),
            // A tracked file's place taken by a folder: the folder's files are listed themselves.
            (_, Ok(Found::Directory)) => {}
            (Listed::Sparse, Ok(Found::Absent)) => {
                listing.sparse.insert(full);
            }
            _ => {
                listing.paths.insert(full);
            }
        }
    }
    Ok(())
}

/// Adds what git's listing passes by in silence beside the files it names: FIFOs, sockets and
/// devices, and folders that may not be read.
fn passed_by(dir: &Path, listing: &mut Listing) {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileTypeExt;
    let mut folders: BTreeSet<Vec<u8>> = BTreeSet::from([Vec::new()]);
    for at in &listing.paths {
        folders.extend(path::parents(at).next().map(<[u8]>::to_vec));
    }
    for folder in folders {
        // A folder that is a link by now holds nothing of the workspace's.
        let full = dir.join(path::as_path(&folder));
        let real = std::fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_dir());
        let Ok(entries) = std::fs::read_dir(&full) else {
            continue;
        };
        for entry in entries.filter_map(Result::ok).filter(|_| real) {
            let at = path::join(&folder, entry.file_name().as_bytes());
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                if let Err(error) = std::fs::read_dir(entry.path()) {
                    listing.unreadable.push((at, error.kind().to_string()));
                }
            } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() {
                listing.paths.insert(at);
            }
        }
    }
}

enum Listed {
    File,
    /// A submodule, or an untracked folder with a `.git` of its own.
    Repository,
    Sparse,
}

/// Reads `? path`, or `TAG MODE ID STAGE<tab>path` of a tracked one.
fn listed(field: &[u8]) -> Option<(Listed, &[u8])> {
    let rest = field.get(2..)?;
    if field.starts_with(b"? ") {
        return Some(match rest.strip_suffix(b"/") {
            Some(folder) => (Listed::Repository, folder),
            None => (Listed::File, rest),
        });
    }
    let tab = rest.iter().position(|&byte| byte == b'\t')?;
    let kind = match (field[0], rest.starts_with(b"160000 ")) {
        (_, true) => Listed::Repository,
        (b'S', _) => Listed::Sparse,
        _ => Listed::File,
    };
    Some((kind, &rest[tab + 1..]))
}

/// A folder that is a repository of its own: listed by git, or walked where it is not one after all.
async fn enter(
    git: &Git,
    top: &Path,
    nested: Vec<u8>,
    source: &Source,
    listing: &mut Listing,
    queue: &mut VecDeque<Vec<u8>>,
) -> Result<(), Error> {
    if listing.foreign.contains(&nested) {
        return Ok(());
    }
    listing.foreign.push(nested.clone());
    let dir: PathBuf = top.join(path::as_path(&nested));
    let own = std::fs::symlink_metadata(dir.join(".git")).is_ok();
    if own && files_of(git, top, &nested, listing, queue).await.is_ok() {
        return Ok(());
    }
    walk(top, &nested, source.max_files, listing, queue)
}

/// Walks a folder without git; `.git` is passed by, folders that hold one go to the queue.
fn walk(
    top: &Path,
    at: &[u8],
    max_files: usize,
    listing: &mut Listing,
    queue: &mut VecDeque<Vec<u8>>,
) -> Result<(), Error> {
    use std::os::unix::ffi::OsStrExt;
    let mut folders = vec![at.to_vec()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(top.join(path::as_path(&folder))) {
            Ok(entries) => entries,
            Err(error) if folder.is_empty() => return Err(disk::failed("list", &folder, error)),
            Err(error) => {
                listing.unreadable.push((folder, error.kind().to_string()));
                continue;
            }
        };
        for entry in entries {
            let entry = entry.map_err(|error| disk::failed("list", &folder, error))?;
            let name = entry.file_name();
            if name == ".git" {
                continue;
            }
            let full = path::join(&folder, name.as_bytes());
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match is_folder {
                true if entry.path().join(".git").exists() => queue.push_back(full),
                true => folders.push(full),
                false => {
                    listing.paths.insert(full);
                }
            }
        }
        within(max_files, listing)?;
    }
    Ok(())
}

fn within(max_files: usize, listing: &Listing) -> Result<(), Error> {
    if listing.paths.len() > max_files {
        return Err(too_large(format!("more than {max_files} files")));
    }
    Ok(())
}

/// The refusal of a workspace past a limit: half of it would be taken for all of it.
pub(super) fn too_large(what: String) -> Error {
    Error::Refused {
        what: format!("the workspace holds {what}"),
        hint: "name a smaller directory with -C, or keep what is not needed out by .gitignore or workspace.hide".into(),
    }
}
