//! Fetching images: once each, to a proven end, with the ways it can fail told apart.

use std::collections::HashSet;

use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;

use super::build::{SILENCE, Stage};
use super::docker::Docker;
use super::drain::drain;
use super::image::inspect;
use super::{Error, Progress};

/// When an image is fetched from its registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pull {
    /// When the engine does not have it.
    #[default]
    Missing,
    /// Once by each process of this program, even if the engine has it.
    Always,
    /// Not at all.
    Never,
}

/// Has an image at the engine as the policy wants it; `fetched` keeps what was fetched already.
pub(super) async fn ensure(
    docker: &Docker,
    name: &str,
    pull: Pull,
    fetched: &mut HashSet<String>,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let there = inspect(docker, name).await?.is_some();
    match pull {
        Pull::Missing | Pull::Never if there => return Ok(()),
        Pull::Never => return Err(forbidden(name)),
        Pull::Always if there && fetched.contains(name) => return Ok(()),
        Pull::Missing | Pull::Always => {}
    }
    if is_id(name) {
        return Err(Error::Image {
            image: name.to_owned(),
            reason: "the engine has no image of that id, and no registry goes by ids".to_owned(),
            hint: "name the image instead, or load it with `docker load`".to_owned(),
        });
    }
    let mut stage = Stage::new(progress, format!("image: pulling {name}"));
    let proven = fetch(docker, name, &mut stage).await?;
    if !proven || inspect(docker, name).await?.is_none() {
        // An engine that ended in the middle closes the stream as one that is done.
        return Err(refused(
            name,
            "the engine's answer ended before the pull did",
        ));
    }
    fetched.insert(name.to_owned());
    Ok(())
}

fn forbidden(name: &str) -> Error {
    Error::Image {
        image: name.to_owned(),
        reason: "the engine does not have it, and `pull: never` forbids to fetch it".to_owned(),
        hint: "load it (`docker pull`, `docker load`), or say `pull: missing`".to_owned(),
    }
}

/// True for what names an image at one engine only.
fn is_id(name: &str) -> bool {
    let digits = name.strip_prefix("sha256:");
    let hex = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
    digits.is_some_and(hex) || (name.len() == 64 && hex(name))
}

/// Reads a pull to its end; what registries answer inside the stream is an error here. False when the
/// end came without the engine's last word.
async fn fetch(docker: &Docker, reference: &str, stage: &mut Stage<'_>) -> Result<bool, Error> {
    let (name, tag) = split(reference);
    let mut options = CreateImageOptionsBuilder::new().from_image(name);
    if let Some(tag) = tag {
        options = options.tag(tag);
    }
    let stream = docker.api.create_image(Some(options.build()), None, None);
    // Podman has no last word of its own; there, that the image stands is all that can be seen.
    let mut proven = docker.info.product == "Podman";
    let mut nameless = false;
    let outcome = drain(stream, SILENCE, |info| {
        nameless |= info.error_detail.is_some();
        let status = info.status.as_deref().unwrap_or_default();
        proven |= status.starts_with("Status: ");
        stage.line(&line(&info));
    })
    .await;
    outcome.map_err(|reason| refused(reference, &reason))?;
    if nameless {
        return Err(refused(reference, "the engine names no reason"));
    }
    Ok(proven)
}

/// One item of a pull's progress for a person: which layer, what becomes of it, how far.
fn line(info: &CreateImageInfo) -> String {
    let status = info.status.as_deref().unwrap_or_default();
    let layer = info.id.as_deref().filter(|id| !id.is_empty());
    let layer = layer.map_or_else(String::new, |id| format!("{id}: "));
    let far = info.progress_detail.as_ref();
    match far.and_then(|far| Some((far.current?, far.total?))) {
        Some((done, all)) if all > 0 => {
            format!(
                "{layer}{status} {} of {} MB",
                done / 1_000_000,
                all / 1_000_000
            )
        }
        _ => format!("{layer}{status}"),
    }
}

/// A reference's name and its tag; without a tag the engine would fetch every one.
fn split(reference: &str) -> (&str, Option<&str>) {
    if reference.contains('@') {
        return (reference, None);
    }
    match reference.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (reference, Some("latest")),
    }
}

/// Words by which a cause is known, what it is, and what helps. The first that fits counts, so the
/// surer ones come first.
const CAUSES: [(&[&str], &str, &str); 9] = [
    (
        &["toomanyrequests", "too many requests", "rate limit"],
        "the registry limits how often it may be asked",
        "wait, or fetch it logged in with `docker pull`",
    ),
    (
        &["no space left on device", "disk quota exceeded"],
        "the engine's disk is full",
        "free some space there: `wharf clean`, `docker system df`",
    ),
    (
        &[
            "no such host",
            "server misbehaving",
            "name resolution",
            "name or service not known",
        ],
        "the registry is not reached: its name does not resolve",
        "check the name and the engine's resolver, or load the image with `docker load`",
    ),
    (
        &["x509:", "certificate", "server gave http response to https"],
        "the engine does not trust the registry",
        "set the registry's certificate up at the engine, or load the image with `docker load`",
    ),
    (
        &[
            "no matching manifest",
            "does not match the specified platform",
        ],
        "the image is not made for this engine's architecture",
        "choose an image for this architecture",
    ),
    (
        &[
            "unauthorized",
            "authentication required",
            "no basic auth",
            "access denied",
            "denied:",
            "incorrect username or password",
            "403 forbidden",
        ],
        "the registry refuses access, or has no such repository",
        "fetch it logged in with `docker pull`; Wharf sends no registry credentials",
    ),
    (
        &[
            "manifest unknown",
            "name unknown",
            "not found",
            "does not exist",
            "invalid reference format",
        ],
        "the registry has no such image",
        "check the name and the tag",
    ),
    (
        &[
            "dial tcp",
            "connection refused",
            "connection reset",
            "i/o timeout",
            "no route",
            "nothing was heard",
            "unreachable",
            "awaiting headers",
            "unexpected eof",
        ],
        "the registry is not reached",
        "check the name and the engine's network, or load the image with `docker load`",
    ),
    (
        &[
            "engine's answer ended",
            "connection closed",
            "incomplete message",
        ],
        "the engine broke the pull off",
        "see whether `docker info` answers, then try again",
    ),
];

/// Tells the ways a pull fails apart: waiting helps one, logging in another, a new name the third.
fn refused(reference: &str, reason: &str) -> Error {
    let text = reason.to_lowercase();
    let known = CAUSES
        .iter()
        .find(|(words, ..)| words.iter().any(|word| text.contains(word)));
    let (what, hint) = known.map_or(
        ("the pull failed", "try `docker pull` with the same name"),
        |(_, what, hint)| (*what, *hint),
    );
    Error::Image {
        image: reference.to_owned(),
        reason: format!("{what} ({reason})"),
        hint: hint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_splits_at_its_tag_and_not_at_a_port() {
        assert_eq!(split("alpine"), ("alpine", Some("latest")));
        assert_eq!(split("host:5000/a"), ("host:5000/a", Some("latest")));
        assert_eq!(split("host:5000/a:v1"), ("host:5000/a", Some("v1")));
        assert_eq!(split("a@sha256:0"), ("a@sha256:0", None));
    }

    #[test]
    fn an_id_is_told_from_a_name() {
        assert!(is_id("sha256:0af") && is_id(&"a".repeat(64)));
        assert!(!is_id("sha256") && !is_id("alpine:3") && !is_id("sha256:v1"));
    }

    #[test]
    fn pull_failures_are_told_apart() {
        let said = |reason: &str| refused("x:y", reason).to_string();
        for (reason, what) in [
            (
                "toomanyrequests: You have reached your pull rate limit",
                "limits",
            ),
            (
                "pull access denied for x, repository does not exist or may require 'docker login': \
                 denied: requested access to the resource is denied",
                "refuses access",
            ),
            (
                "manifest for x:y not found: manifest unknown: manifest unknown",
                "no such image",
            ),
            (
                "Get \"https://nosuch.invalid/v2/\": dial tcp: lookup nosuch.invalid: no such host",
                "does not resolve",
            ),
            (
                "Get \"https://r/v2/\": dial tcp 10.0.0.1:443: connect: connection refused",
                "not reached (",
            ),
            (
                "Get \"https://r/v2/\": x509: certificate signed by unknown authority",
                "does not trust",
            ),
            (
                "no matching manifest for linux/amd64 in the manifest list entries",
                "architecture",
            ),
            ("write /var/lib/x: no space left on device", "disk is full"),
            ("strange", "the pull failed (strange)"),
        ] {
            assert!(said(reason).contains(what), "{}", said(reason));
        }
    }

    #[test]
    fn progress_says_which_layer_and_how_far() {
        let item = serde_json::json!({"status": "Downloading", "id": "3f4c",
            "progressDetail": {"current": 12_000_000, "total": 30_000_000}});
        assert_eq!(
            line(&serde_json::from_value(item).unwrap()),
            "3f4c: Downloading 12 of 30 MB"
        );
    }
}
