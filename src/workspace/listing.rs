//! Which paths of the operator's directory the base is made of.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::disk::{self, Found, Root};
use super::git::{Call, Git, object_id, one_line, unreadable};
use super::globs::Globs;
use super::store::fields;
use super::{Error, GitKind, Source, around, passed_by, path};

/// What lies in the operator's directory, before anything is read.
#[derive(Default)]
pub(super) struct Listing {
    pub git: GitKind,
    pub head: Option<String>,
    /// The directory's place in its repository, without a slash at its end.
    pub prefix: String,
    /// Every path that may become a file of the base.
    pub paths: BTreeSet<Vec<u8>>,
    /// Folders that are repositories of their own, walked as files.
    pub foreign: Vec<Vec<u8>>,
    /// Those of them that git ignores and `workspace.include` names.
    pub included: BTreeSet<Vec<u8>>,
    /// Tracked paths that a sparse checkout keeps off the disk.
    pub sparse: BTreeSet<Vec<u8>>,
    /// The place of Wharf's own files, where they lie in the directory; nothing there is listed.
    pub own: Option<Vec<u8>>,
    /// Folders that could not be read, with the reason.
    pub unreadable: Vec<(Vec<u8>, String)>,
}

impl Listing {
    /// True for what is Wharf's own.
    pub fn is_own(&self, at: &[u8]) -> bool {
        let own = self.own.as_deref();
        own.is_some_and(|own| path::is_within(own, at))
    }
}

/// Lists a directory: by git where it is in a repository, else by walking it.
pub(super) async fn list(
    git: &Git,
    source: &Source,
    own: Option<Vec<u8>>,
) -> Result<Listing, Error> {
    let dir = std::fs::canonicalize(&source.path).map_err(|error| Error::Io {
        operation: "open the workspace",
        path: source.path.clone(),
        source: error,
    })?;
    let mut listing = Listing {
        own,
        ..Listing::default()
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
        let empty = listing.paths.is_empty() && queue.is_empty() && !listing.prefix.is_empty();
        if empty && around::ignored(git, &dir).await? {
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
    if listing.git != GitKind::None && !source.include.is_empty() {
        ignored(git, &dir, source, &mut listing).await?;
    }
    within(source.max_files, &listing)?;
    if listing.git != GitKind::None {
        passed_by::add(git, &dir, source.max_files, &mut listing).await?;
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

/// Adds what git lists below `at`; folders that are repositories of their own go to the queue.
async fn files_of(
    git: &Git,
    top: &Path,
    at: &[u8],
    listing: &mut Listing,
    queue: &mut VecDeque<Vec<u8>>,
) -> Result<(), Error> {
    let dir = top.join(path::as_path(at));
    let call = git_list(&dir).args(["-t", "-s", "--cached"]);
    let answer = git.ask(below(call, top, at), b"").await?;
    let root = Root::open(top)?;
    for field in fields(&answer) {
        let (kind, name) =
            listed(field).ok_or_else(|| unreadable("ls-files", &path::display(field)))?;
        let full = path::join(at, name);
        match (kind, root.find(&full)) {
            _ if listing.is_own(&full) => {}
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

/// Adds what git ignores and the operator asked for, nested repositories' own ignored files too.
async fn ignored(
    git: &Git,
    top: &Path,
    source: &Source,
    listing: &mut Listing,
) -> Result<(), Error> {
    let include = Globs::new(&source.include)?;
    let places: Vec<Vec<u8>> = std::iter::once(Vec::new())
        .chain(listing.foreign.iter().cloned())
        .collect();
    for at in places {
        let dir = top.join(path::as_path(&at));
        if !at.is_empty() && std::fs::symlink_metadata(dir.join(".git")).is_err() {
            continue;
        }
        let call = below(git_list(&dir).arg("--ignored"), top, &at);
        // A nested repository that is none was walked whole: nothing of it is ignored.
        let answer = match git.ask(call, b"").await {
            Err(_) if !at.is_empty() => continue,
            answer => answer?,
        };
        for name in fields(&answer) {
            let full = path::join(&at, name.strip_suffix(b"/").unwrap_or(name));
            if name.ends_with(b"/") {
                inner(top, &full, &include, source.max_files, listing)?;
            } else if include.matches(&full)
                && !listing.is_own(&full)
                && listing.paths.insert(full.clone())
            {
                listing.included.insert(full);
            }
        }
        within(source.max_files, listing)?;
    }
    Ok(())
}

/// Adds what is asked for of a repository that lies in an ignored folder, which git names by its folder.
fn inner(
    top: &Path,
    at: &[u8],
    include: &Globs,
    max_files: usize,
    listing: &mut Listing,
) -> Result<(), Error> {
    let mut found = Listing {
        own: listing.own.clone(),
        ..Listing::default()
    };
    let mut queue = VecDeque::from([at.to_vec()]);
    while let Some(next) = queue.pop_front() {
        walk(top, &next, max_files, &mut found, &mut queue)?;
    }
    for full in found.paths {
        if include.matches(&full) && listing.paths.insert(full.clone()) {
            listing.included.insert(full);
        }
    }
    Ok(())
}

fn git_list(dir: &Path) -> Call {
    Call::new("ls-files", dir).args(["-z", "--others", "--exclude-standard"])
}

/// A broken inner repository must not be answered by the outer one.
fn below(call: Call, top: &Path, at: &[u8]) -> Call {
    let dir = top.join(path::as_path(at));
    match at.is_empty() {
        true => call,
        false => call.env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap_or(top)),
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
        if listing.is_own(&folder) {
            continue;
        }
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
