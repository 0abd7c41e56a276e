//! What repository stands around a directory, told without listing it.

use std::path::Path;

use super::git::{Call, Git};
use super::listing::{head, in_repository, prefix};
use super::{Error, GitKind};

/// What kind of repository a listing of the directory would find.
pub(super) async fn kind(git: &Git, dir: &Path) -> Result<GitKind, Error> {
    if !in_repository(dir) {
        return Ok(GitKind::None);
    }
    let tracked = git.ask(Call::new("ls-files", dir).arg("-z"), b"").await?;
    if tracked.is_empty() && !prefix(git, dir).await?.is_empty() && ignored(git, dir).await? {
        return Ok(GitKind::None);
    }
    Ok(match head(git, dir).await? {
        Some(_) => GitKind::Repository,
        None => GitKind::Unborn,
    })
}

/// Where a directory that is taken as one without git lies in the repository around it; empty where
/// there is none.
pub(super) async fn outer(git: &Git, dir: &Path, kind: GitKind) -> Result<String, Error> {
    match (kind, in_repository(dir)) {
        (GitKind::None, true) => prefix(git, dir).await,
        _ => Ok(String::new()),
    }
}

/// True when the repository around a directory ignores it as a whole.
pub(super) async fn ignored(git: &Git, dir: &Path) -> Result<bool, Error> {
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
