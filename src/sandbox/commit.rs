//! A container's files as an image, under labels that say what it is and whose it is not.

use std::time::Duration;

use bollard::models::ContainerConfig;
use bollard::query_parameters::CommitContainerOptions;

use super::Error;
use super::call::{self, LONG};
use super::docker::Docker;
use super::profile::{self, KIND};

/// Says on the image which name of the plan it was made for.
pub(super) const MADE_FOR: &str = "wharf.image";

/// What a container becomes.
pub(super) struct Committed<'a> {
    pub(super) container: &'a str,
    /// Repository and tag; without them the image has an id only.
    pub(super) name: Option<(&'a str, &'a str)>,
    /// As `KIND` says it.
    pub(super) kind: &'a str,
    /// The plan's name of the image that all this stands on.
    pub(super) made_for: &'a str,
    /// Instructions beyond the labels.
    pub(super) more: Vec<String>,
    /// On top of what a commit may take anyway.
    pub(super) allowance: Duration,
}

/// Commits a container and gives the image's id.
pub(super) async fn commit(docker: &Docker, what: Committed<'_>) -> Result<String, Error> {
    let mut changes = what.more;
    changes.extend([
        format!("LABEL {KIND}={}", what.kind),
        format!("LABEL {MADE_FOR}=\"{}\"", plain(what.made_for)),
    ]);
    // The container's own labels, which the image would hand on, are of one run.
    let of_a_run = [
        profile::MACHINE,
        profile::STATE,
        profile::RUN,
        profile::SUBTASK,
    ];
    changes.push(format!(
        "LABEL {}",
        of_a_run.map(|label| format!("{label}=")).join(" ")
    ));
    let (repo, tag) = what.name.unzip();
    let options = CommitContainerOptions {
        container: Some(what.container.to_owned()),
        repo: repo.map(str::to_owned),
        tag: tag.map(str::to_owned),
        // Nothing runs in it, and a paused process 1 would answer no ping.
        pause: false,
        changes: Some(changes.join("\n")),
        ..CommitContainerOptions::default()
    };
    let call = docker
        .api
        .commit_container(options, ContainerConfig::default());
    let made = call::bounded("committing an image", LONG * 3 + what.allowance, call).await?;
    Ok(made.id)
}

/// Text that is safe between the quotes of a Dockerfile instruction.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() || matches!(c, '"' | '\\' | '$') {
                ' '
            } else {
                c
            }
        })
        .take(400)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_its_quotes() {
        assert_eq!(plain("a\"b\\c$d\ne"), "a b c d e");
    }
}
