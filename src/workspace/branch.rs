//! Whether a branch of a name can be made in the operator's repository: looked at, nothing made.

use std::path::Path;

use super::git::{Call, Git, one_line};
use super::{Error, GitKind, around, path};

/// Refuses a name that cannot be a branch's or is taken, and a directory whose repository can hold
/// no delivery.
pub async fn branch_free(git: &Git, dir: &Path, name: &str) -> Result<(), Error> {
    if around::kind(git, dir).await? == GitKind::None {
        return Err(none());
    }
    let reference = reference(git, dir, name).await?;
    object_format(git, dir).await?;
    // A file of that name, and folders above and below it, stand in a branch's way.
    let above = reference.match_indices('/').skip(1);
    let above: Vec<&str> = above.map(|(at, _)| &reference[..at]).collect();
    let call = Call::new("for-each-ref", dir)
        .args(["--format=%(refname)", &reference])
        .args(&above);
    let answer = git.ask(call, b"").await?;
    let below = format!("{reference}/");
    for line in one_line("for-each-ref", &answer)?.lines() {
        if line == reference || line.starts_with(&below) || above.contains(&line) {
            return Err(exists(name));
        }
    }
    let call = Call::new("symbolic-ref", dir).args(["-q", "HEAD"]);
    let standing = git.try_ask(call, b"").await?;
    if standing.stdout.strip_suffix(b"\n") == Some(reference.as_bytes()) {
        return Err(exists(name));
    }
    Ok(())
}

/// The ref of a branch; refused where git would not have the name.
pub(super) async fn reference(git: &Git, dir: &Path, name: &str) -> Result<String, Error> {
    let reference = format!("refs/heads/{name}");
    let call = Call::new("check-ref-format", dir).arg(&reference);
    let output = git.try_ask(call, b"").await?;
    if output.code != 0 || name.starts_with('-') || name == "HEAD" {
        let what = format!(
            "`{}` cannot be the name of a branch",
            path::display(name.as_bytes())
        );
        return Err(refused(&what, "choose another with --branch"));
    }
    Ok(reference)
}

/// Refuses a repository whose objects are not named as the store's are.
pub(super) async fn object_format(git: &Git, dir: &Path) -> Result<(), Error> {
    let call = Call::new("rev-parse", dir).arg("--show-object-format");
    let format = git.line(call).await?;
    if format != "sha1" {
        let what = format!("the repository names its objects by {format}, not by sha1");
        return Err(refused(&what, "use --patch FILE"));
    }
    Ok(())
}

pub(super) fn none() -> Error {
    refused(
        "the workspace is in no git repository",
        "use --patch FILE, or work on a directory that git does not ignore",
    )
}

pub(super) fn exists(name: &str) -> Error {
    let what = format!("a branch `{name}`, or one above or below that name, exists already");
    refused(
        &what,
        "choose another name with --branch, or delete that branch",
    )
}

pub(super) fn refused(what: &str, hint: &str) -> Error {
    Error::Refused {
        what: what.to_owned(),
        hint: hint.to_owned(),
    }
}
