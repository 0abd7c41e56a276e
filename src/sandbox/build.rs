//! Making images at the engine: the classic builder, an imported root file system, a pull.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bollard::errors::Error as Fault;
use bollard::query_parameters::{
    BuildImageOptions, CreateImageOptions, CreateImageOptionsBuilder, TagImageOptionsBuilder,
};
use bytes::Bytes;
use futures::{Stream, StreamExt};

use super::call::{self, SHORT};
use super::docker::Docker;
use super::{Error, Progress};

/// A stream of the engine's that says nothing for so long is given up (a registry that hangs).
const SILENCE: Duration = Duration::from_secs(30);
/// The same for a step that works without printing.
const BUILD_SILENCE: Duration = Duration::from_secs(300);
/// One line of progress in so long.
const RATE: Duration = Duration::from_millis(500);

/// A stage of a preparation: says its name and, now and then, the last line of its output.
pub(super) struct Stage<'a> {
    progress: &'a dyn Progress,
    title: String,
    last: Option<Instant>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(progress: &'a dyn Progress, title: String) -> Self {
        progress.say(&title);
        Stage {
            progress,
            title,
            last: Some(Instant::now()),
        }
    }

    /// Shows the last line of `text`, unless one was shown a moment ago.
    pub(super) fn line(&mut self, text: &str) {
        let Some(line) = text
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty())
        else {
            return;
        };
        if self.last.is_some_and(|at| at.elapsed() < RATE) {
            return;
        }
        self.last = Some(Instant::now());
        let plain: String = line.chars().filter(|c| !c.is_control()).take(120).collect();
        self.progress.say(&format!("{}: {plain}", self.title));
    }
}

/// A folder of text files for the builder, as a tar in memory with fixed times.
pub(super) fn context(files: &[(&str, &str)]) -> Result<Bytes, Error> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, path, text.as_bytes())
            .map_err(packing)?;
    }
    Ok(Bytes::from(tar.into_inner().map_err(packing)?))
}

pub(super) fn packing(source: std::io::Error) -> Error {
    Error::Engine {
        operation: "packing files for an image",
        reason: source.to_string(),
    }
}

/// Builds a folder and tags it; the output's last lines go with a failure.
pub(super) async fn build(
    docker: &Docker,
    tag: &str,
    context: Bytes,
    args: HashMap<String, String>,
    stage: &mut Stage<'_>,
) -> Result<(), Error> {
    let options = BuildImageOptions {
        dockerfile: "Dockerfile".to_owned(),
        t: Some(tag.to_owned()),
        rm: true,
        forcerm: true,
        buildargs: Some(args),
        ..BuildImageOptions::default()
    };
    let body = bollard::body_full(context);
    let stream = docker.api.build_image(options, None, Some(body));
    let mut tail = Tail::default();
    let outcome = drain(stream, BUILD_SILENCE, |info| {
        let text = info.stream.or(info.status).unwrap_or_default();
        tail.push(&text);
        stage.line(&text);
    })
    .await;
    outcome.map_err(|reason| Error::Image {
        image: tag.to_owned(),
        reason: format!("the build failed: {reason}\n{}", tail.text()),
        hint: "the lines above are the builder's own; an apt failure means that the engine's \
               containers do not reach Debian's mirrors"
            .to_owned(),
    })
}

/// Makes an image of a root file system in a tar.
pub(super) async fn import<S>(docker: &Docker, repo: &str, tag: &str, tar: S) -> Result<(), Error>
where
    S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
{
    let options = CreateImageOptions {
        from_src: Some("-".to_owned()),
        repo: Some(repo.to_owned()),
        tag: Some(tag.to_owned()),
        changes: vec![
            "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            "LABEL wharf.kind=base".to_owned(),
        ],
        ..CreateImageOptions::default()
    };
    let body = bollard::body_try_stream(tar);
    let stream = docker.api.create_image(Some(options), Some(body), None);
    drain(stream, BUILD_SILENCE, |_| ())
        .await
        .map_err(|reason| Error::Engine {
            operation: "importing a root file system",
            reason,
        })
}

/// Fetches a reference; what registries answer inside the stream is an error here.
pub(super) async fn pull(
    docker: &Docker,
    reference: &str,
    stage: &mut Stage<'_>,
) -> Result<(), Error> {
    let (name, tag) = split(reference);
    let mut options = CreateImageOptionsBuilder::new().from_image(name);
    if let Some(tag) = tag {
        options = options.tag(tag);
    }
    let stream = docker.api.create_image(Some(options.build()), None, None);
    let outcome = drain(stream, SILENCE, |info| {
        stage.line(&info.status.unwrap_or_default());
    })
    .await;
    outcome.map_err(|reason| refused(reference, &reason))
}

/// Gives an image another name.
pub(super) async fn tag(docker: &Docker, image: &str, repo: &str, tag: &str) -> Result<(), Error> {
    let options = TagImageOptionsBuilder::new().repo(repo).tag(tag).build();
    let call = docker.api.tag_image(image, Some(options));
    call::bounded("tagging an image", SHORT, call).await
}

/// Reads a stream of progress to its end; the first fault in it, or silence, is the outcome.
async fn drain<T>(
    stream: impl Stream<Item = Result<T, Fault>>,
    silence: Duration,
    mut each: impl FnMut(T),
) -> Result<(), String> {
    let mut stream = std::pin::pin!(stream);
    loop {
        match tokio::time::timeout(silence, stream.next()).await {
            Ok(Some(Ok(item))) => each(item),
            Ok(Some(Err(fault))) => return Err(call::words(&fault)),
            Ok(None) => return Ok(()),
            Err(_) => return Err(format!("nothing was heard for {} s", silence.as_secs())),
        }
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

/// Tells the ways a pull fails apart: waiting helps one, logging in another, a new name the third.
fn refused(reference: &str, reason: &str) -> Error {
    let text = reason.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let (what, hint) = if any(&["toomanyrequests", "too many requests", "rate limit"]) {
        (
            "the registry limits how often it may be asked",
            "wait, or fetch it logged in with `docker pull`",
        )
    } else if any(&[
        "no such host",
        "dial tcp",
        "connection refused",
        "i/o timeout",
        "no route",
        "server misbehaving",
        "nothing was heard",
        "unreachable",
        "awaiting headers",
    ]) {
        (
            "the registry is not reached",
            "check the name and the engine's network, or load the image with `docker load`",
        )
    } else if any(&[
        "unauthorized",
        "authentication required",
        "no basic auth",
        "access denied",
        "denied:",
        "pull access denied",
    ]) {
        (
            "the registry refuses access, or has no such repository",
            "fetch it logged in with `docker pull`; Wharf sends no registry credentials",
        )
    } else if any(&["manifest unknown", "not found", "does not exist"]) {
        (
            "the registry has no such image",
            "check the name and the tag",
        )
    } else if any(&["no matching manifest"]) {
        (
            "the image is not made for this engine's architecture",
            "choose an image for this architecture",
        )
    } else {
        ("the pull failed", "try `docker pull` with the same name")
    };
    Error::Image {
        image: reference.to_owned(),
        reason: format!("{what} ({reason})"),
        hint: hint.to_owned(),
    }
}

/// The last lines of an output, for a message.
#[derive(Default)]
pub(super) struct Tail {
    text: String,
}

impl Tail {
    /// Characters kept.
    const KEEP: usize = 2000;

    pub(super) fn push(&mut self, more: &str) {
        self.text.push_str(more);
        if self.text.len() > 2 * Self::KEEP {
            let cut = self.text.floor_char_boundary(self.text.len() - Self::KEEP);
            self.text.drain(..cut);
        }
    }

    pub(super) fn text(&self) -> &str {
        let start = self.text.len().saturating_sub(Self::KEEP);
        &self.text[self.text.floor_char_boundary(start)..]
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
    fn pull_failures_are_told_apart() {
        let said = |reason: &str| refused("x:y", reason).to_string();
        assert!(said("toomanyrequests: You have reached your pull rate limit").contains("limits"));
        assert!(said("pull access denied for x, repository does not exist or may require 'docker login': denied: requested").contains("refuses access"));
        assert!(said("manifest for x:y not found: manifest unknown").contains("no such image"));
        assert!(
            said("Get https://nosuch.invalid/v2/: dial tcp: lookup nosuch.invalid: no such host")
                .contains("not reached")
        );
        assert!(said("strange").contains("strange"));
    }

    #[test]
    fn a_tail_keeps_the_end_and_whole_characters() {
        let mut tail = Tail::default();
        for n in 0..2000 {
            tail.push(&format!("ä line {n}\n"));
        }
        assert!(tail.text().ends_with("line 1999\n"));
        assert!(tail.text().len() <= Tail::KEEP + 4);
    }

    #[tokio::test]
    async fn a_stream_that_falls_silent_is_given_up() {
        let stream = futures::stream::pending::<Result<(), Fault>>();
        let outcome = drain(stream, Duration::from_millis(5), |()| ()).await;
        assert_eq!(outcome, Err("nothing was heard for 0 s".to_owned()));
    }

    #[tokio::test]
    async fn an_error_inside_a_stream_is_the_outcome() {
        let fault = Fault::DockerStreamError {
            error: "denied".into(),
        };
        let stream = futures::stream::iter([Ok(()), Err(fault), Ok(())]);
        let mut seen = 0;
        let outcome = drain(stream, SILENCE, |()| seen += 1).await;
        assert_eq!((outcome, seen), (Err("denied".to_owned()), 1));
    }
}
