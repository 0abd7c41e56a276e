//! Making images at the engine: the classic builder, an imported root file system, a pull.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bollard::query_parameters::{BuildImageOptions, CreateImageOptions, TagImageOptionsBuilder};
use bytes::Bytes;
use futures::Stream;
use tokio_util::io::ReaderStream;

use super::call::{self, SHORT};
use super::docker::Docker;
use super::drain::{Pulse, drain_sent};
use super::image::inspect;
use super::{Error, Progress};

/// A stream of the engine's that says nothing for so long is given up (a registry that hangs).
pub(super) const SILENCE: Duration = Duration::from_secs(30);
/// The same for a step that works without printing.
const BUILD_SILENCE: Duration = Duration::from_secs(300);
/// The client's own limit counts from the first byte sent, which says nothing about a large body on a slow line:
/// for these two calls, who waits for the answer looks whether anything moves.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
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

/// What the builder is told beside the files.
pub(super) struct Order<'a> {
    /// The name of what comes out.
    pub(super) tag: &'a str,
    /// The name for people.
    pub(super) title: &'a str,
    /// Path within the files.
    pub(super) dockerfile: &'a str,
    pub(super) args: HashMap<String, String>,
    pub(super) labels: HashMap<String, String>,
    /// Ask registries for newer images of the same names first.
    pub(super) pull: bool,
    pub(super) hint: &'a str,
}

/// A context, in memory or as a file at its beginning.
pub(super) enum Files {
    Bytes(Bytes),
    Tar(std::fs::File),
}

/// What helps where our own images do not build.
pub(super) const OURS: &str = "the lines above are the builder's own; an apt failure means that the \
                               engine's containers do not reach Debian's mirrors";

/// Builds files and tags what comes out; the output's last lines go with a failure.
pub(super) async fn build(
    docker: &Docker,
    order: Order<'_>,
    files: Files,
    stage: &mut Stage<'_>,
) -> Result<(), Error> {
    let options = BuildImageOptions {
        dockerfile: order.dockerfile.to_owned(),
        t: Some(order.tag.to_owned()),
        rm: true,
        forcerm: true,
        buildargs: Some(order.args),
        labels: Some(order.labels),
        pull: order.pull.then(|| "true".to_owned()),
        ..BuildImageOptions::default()
    };
    let pulse = Pulse::new();
    let body = match files {
        Files::Bytes(bytes) => bollard::body_full(bytes),
        Files::Tar(file) => {
            let file = ReaderStream::new(tokio::fs::File::from_std(file));
            bollard::body_try_stream(pulse.beaten_by(file))
        }
    };
    let api = docker.api.clone().with_timeout(FOREVER);
    let stream = api.build_image(options, None, Some(body));
    let mut tail = Tail::default();
    let mut broke = None;
    let outcome = drain_sent(stream, BUILD_SILENCE, &pulse, |info| {
        if let Some(fault) = info.error_detail {
            broke.get_or_insert(fault.message.unwrap_or_default());
        }
        let text = info.stream.or(info.status).unwrap_or_default();
        tail.push(&text);
        stage.line(&text);
    })
    .await;
    let failed = |reason: &str, hint: &str| Error::Image {
        image: order.title.to_owned(),
        reason: format!("the build failed: {reason}\n{}", tail.text()),
        hint: hint.to_owned(),
    };
    outcome.map_err(|reason| failed(&reason, order.hint))?;
    if let Some(reason) = broke {
        return Err(failed(&reason, order.hint));
    }
    // An engine that ended in the middle closes the stream as one that is done.
    match inspect(docker, order.tag).await? {
        Some(_) => Ok(()),
        None => Err(failed(
            "the engine's answer ended before the build did",
            "see whether `docker info` answers, then try again",
        )),
    }
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
    let pulse = Pulse::new();
    let body = bollard::body_try_stream(pulse.beaten_by(tar));
    let api = docker.api.clone().with_timeout(FOREVER);
    let stream = api.create_image(Some(options), Some(body), None);
    let failed = |reason| Error::Engine {
        operation: "importing a root file system",
        reason,
    };
    let mut id = None;
    drain_sent(stream, BUILD_SILENCE, &pulse, |info| {
        id = info
            .status
            .map(|status| status.trim().to_owned())
            .or(id.take());
    })
    .await
    .map_err(failed)?;
    // Podman gives it a name of its own making; the last it says is the image's id, as Docker does.
    match (inspect(docker, &format!("{repo}:{tag}")).await?, id) {
        (Some(_), _) => Ok(()),
        (None, Some(id)) => self::tag(docker, &id, repo, tag).await,
        (None, None) => Err(failed("the engine does not say what it made".to_owned())),
    }
}

/// Gives an image another name.
pub(super) async fn tag(docker: &Docker, image: &str, repo: &str, tag: &str) -> Result<(), Error> {
    let options = TagImageOptionsBuilder::new().repo(repo).tag(tag).build();
    let call = docker.api.tag_image(image, Some(options));
    call::bounded("tagging an image", SHORT, call).await
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
    fn a_tail_keeps_the_end_and_whole_characters() {
        let mut tail = Tail::default();
        for n in 0..2000 {
            tail.push(&format!("ä line {n}\n"));
        }
        assert!(tail.text().ends_with("line 1999\n"));
        assert!(tail.text().len() <= Tail::KEEP + 4);
    }
}
