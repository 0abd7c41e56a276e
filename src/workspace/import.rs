//! The language of `git fast-import`: how files become objects without any filter seeing them.

use bytes::Bytes;
use futures::Stream;

use super::git::{AUTHOR, Call, DATE, Git, object_id, one_line, unreadable};
use super::{Edit, Error, Mode, path};
use crate::id::{BlobId, CommitId};

/// What a commit starts from.
pub(super) enum From<'a> {
    Nothing,
    /// The first parent gives the tree the edits apply to.
    Commits(&'a [CommitId]),
    /// An earlier commit of the same stream.
    Mark(usize),
}

/// The opening of a commit on a ref, with a mark that later lines can name.
pub(super) fn header(reference: &str, mark: usize, date: u64, message: &str, from: &From) -> Bytes {
    let mut text = format!(
        "commit {reference}\nmark :{mark}\nauthor {AUTHOR} {date} +0000\ncommitter {AUTHOR} {date} +0000\ndata {}\n{message}\n",
        message.len()
    );
    match from {
        From::Nothing => {}
        From::Mark(mark) => text.push_str(&format!("from :{mark}\n")),
        From::Commits(parents) => {
            for (at, parent) in parents.iter().enumerate() {
                let word = if at == 0 { "from" } else { "merge" };
                text.push_str(&format!("{word} {parent}\n"));
            }
        }
    }
    text.into()
}

/// One file with its content.
pub(super) fn put(path: &[u8], mode: Mode, content: &[u8]) -> Bytes {
    let mut line = format!("M {} inline ", octal(mode)).into_bytes();
    line.extend(path::quoted(path));
    line.extend(format!("\ndata {}\n", content.len()).into_bytes());
    line.extend_from_slice(content);
    line.push(b'\n');
    line.into()
}

/// One file whose content the repository already holds.
pub(super) fn link_to(path: &[u8], mode: Mode, blob: &BlobId) -> Bytes {
    let mut line = format!("M {} {blob} ", octal(mode)).into_bytes();
    line.extend(path::quoted(path));
    line.push(b'\n');
    line.into()
}

/// One path, file or folder, that is no more.
pub(super) fn delete(path: &[u8]) -> Bytes {
    let mut line = b"D ".to_vec();
    line.extend(path::quoted(path));
    line.push(b'\n');
    line.into()
}

/// Asks for the id behind a mark.
pub(super) fn ask_mark(mark: usize) -> Bytes {
    format!("get-mark :{mark}\n").into()
}

/// The end of a whole stream; without it the import fails.
pub(super) fn done() -> Bytes {
    Bytes::from_static(b"done\n")
}

/// Edits in the only order that is right for files that become folders and back, each path checked.
pub(super) fn edits(edits: &[Edit]) -> Result<Vec<Bytes>, Error> {
    let mut lines = Vec::with_capacity(edits.len());
    let mut puts = std::collections::BTreeSet::new();
    for edit in edits {
        let (path, mode) = match edit {
            Edit::Put { path, mode, .. } | Edit::Keep { path, mode, .. } => (path, Some(*mode)),
            Edit::Delete { path } => (path, None),
        };
        path::check(path, mode).map_err(|why| refused(path, why))?;
        match edit {
            Edit::Delete { path } => lines.push(delete(path)),
            Edit::Put { path, .. } | Edit::Keep { path, .. } => {
                puts.insert(path.as_slice());
            }
        }
    }
    for edit in edits {
        let (path, line) = match edit {
            Edit::Put {
                path,
                mode,
                content,
            } => (path, put(path, *mode, content)),
            Edit::Keep { path, mode, blob } => (path, link_to(path, *mode, blob)),
            Edit::Delete { .. } => continue,
        };
        if path::parents(path).any(|parent| puts.contains(parent)) {
            return Err(refused(path, "a folder above it is given as a file too"));
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Runs one import; the ids asked for, in order.
pub(super) async fn run(
    git: &Git,
    call: Call,
    lines: impl Stream<Item = Bytes> + Send,
) -> Result<Vec<CommitId>, Error> {
    let call = call.args(["--quiet", "--done", "--force", "--date-format=raw"]);
    let output = git.feed(call, lines).await?;
    if output.code != 0 {
        return Err(output.into_error("fast-import"));
    }
    one_line("fast-import", &output.stdout)?
        .lines()
        .map(|line| object_id("fast-import", line).map(CommitId::new))
        .collect()
}

/// Exactly one id of an import that asked for one.
pub(super) fn only(mut ids: Vec<CommitId>) -> Result<CommitId, Error> {
    match (ids.pop(), ids.is_empty()) {
        (Some(id), true) => Ok(id),
        _ => Err(unreadable("fast-import", "not one commit")),
    }
}

/// The call that imports into a bare repository.
pub(super) fn call(git_dir: &std::path::Path) -> Call {
    Call::bare("fast-import", git_dir)
}

/// The date of commits in the store.
pub(super) const FIXED: u64 = DATE;

fn refused(path: &[u8], why: &str) -> Error {
    Error::Refused {
        what: format!(
            "`{}` cannot be part of a snapshot: {why}",
            path::display(path)
        ),
        hint: "leave this path out".into(),
    }
}

fn octal(mode: Mode) -> &'static str {
    match mode {
        Mode::File => "100644",
        Mode::Executable => "100755",
        Mode::Link => "120000",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_come_first_and_bad_paths_refuse_the_whole() {
        let put = |path: &str| Edit::Put {
            path: path.into(),
            mode: Mode::File,
            content: Bytes::new(),
        };
        let delete = |path: &str| Edit::Delete { path: path.into() };
        let lines = edits(&[put("a/b"), delete("a")]).unwrap();
        assert!(lines[0].starts_with(b"D "), "{lines:?}");
        assert!(edits(&[put("x"), put("a/.git/config")]).is_err());
        assert!(edits(&[delete("../x")]).is_err());
        assert!(edits(&[put("a"), put("a/b")]).is_err());
    }
}
