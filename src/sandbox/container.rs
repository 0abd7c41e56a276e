//! One container's life at the engine: created, waited for, attached, started, gone.

use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as Fault;
use bollard::models::{ContainerCreateBody, ContainerCreateResponse, HostConfig};
use bollard::query_parameters::{
    AttachContainerOptions, RemoveContainerOptions, WaitContainerOptions,
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::io::AsyncWrite;
use tokio::sync::watch;
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;

use super::call::{self, LONG, SHORT};
use super::docker::Docker;
use super::{Break, Cause, Error};

/// How long process 1 may take to end after its stdin closed.
const GRACE: Duration = Duration::from_secs(5);

type Chunks = Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>;
/// What process 1 writes to its stdout.
pub(super) type Reader = StreamReader<Chunks, Bytes>;
/// Process 1's stdin; the container ends when it is shut down or the connection drops.
pub(super) type Writer = Pin<Box<dyn AsyncWrite + Send>>;

/// A started container and the only connection there will ever be to it.
pub(super) struct Running {
    pub(super) life: Life,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// What the engine warned of when it made the container.
    pub(super) warnings: Vec<String>,
}

/// What is known of a container's end.
#[derive(Clone)]
pub(super) struct Life {
    docker: Docker,
    pub(super) id: String,
    /// Why it ended, once it has.
    ended: watch::Receiver<Option<Break>>,
}

/// Creates and starts a container; one that fails to start, or whose start is cancelled, is removed.
pub(super) async fn start(
    docker: &Docker,
    body: ContainerCreateBody,
    cancel: &CancellationToken,
) -> Result<Running, Error> {
    let ContainerCreateResponse { id, warnings } = make(docker, body).await?;
    match call::unless(cancel, begin(docker, &id)).await {
        Ok(running) => Ok(Running {
            warnings,
            ..running
        }),
        Err(error) => {
            remove(docker, &id).await;
            Err(error)
        }
    }
}

/// Creates a container and gives its id.
pub(super) async fn create(docker: &Docker, body: ContainerCreateBody) -> Result<String, Error> {
    Ok(make(docker, body).await?.id)
}

async fn make(
    docker: &Docker,
    body: ContainerCreateBody,
) -> Result<ContainerCreateResponse, Error> {
    let call = docker.api.create_container(None, body);
    call::bounded("creating a container", LONG, call).await
}

/// What the engine itself holds of a container; None when it does not say.
pub(super) async fn inspect(docker: &Docker, id: &str) -> Option<HostConfig> {
    let call = docker.api.inspect_container(id, None);
    let asked = call::bounded("looking at a container", SHORT, call).await;
    asked.ok()?.host_config
}

/// Waits, attaches and starts, in this order: a container that removes itself can be asked nothing
/// later, and what it says before somebody is attached is lost.
pub(super) async fn begin(docker: &Docker, id: &str) -> Result<Running, Error> {
    let ended = watch_end(docker, id);
    let options = AttachContainerOptions {
        stream: true,
        stdin: true,
        stdout: true,
        stderr: true,
        ..AttachContainerOptions::default()
    };
    let call = docker.api.attach_container(id, Some(options));
    let attached = call::bounded("attaching to a container", SHORT, call).await?;
    let call = docker.api.start_container(id, None);
    call::bounded("starting a container", LONG, call).await?;
    let short = id.get(..12).unwrap_or(id).to_owned();
    let chunks: Chunks = Box::pin(attached.output.filter_map(move |item| {
        let chunk = stdout_only(item, &short);
        async move { chunk }
    }));
    Ok(Running {
        life: Life {
            docker: docker.clone(),
            id: id.to_owned(),
            ended,
        },
        reader: StreamReader::new(chunks),
        writer: attached.input,
        warnings: Vec::new(),
    })
}

/// The protocol is on stdout; stderr is process 1 complaining.
fn stdout_only(item: Result<LogOutput, Fault>, container: &str) -> Option<std::io::Result<Bytes>> {
    match item {
        Ok(LogOutput::StdOut { message } | LogOutput::Console { message }) => Some(Ok(message)),
        Ok(LogOutput::StdErr { message }) => {
            let text = String::from_utf8_lossy(&message);
            tracing::debug!(container, stderr = %text.escape_debug(), "process 1");
            None
        }
        Ok(LogOutput::StdIn { .. }) => None,
        Err(fault) => Some(Err(std::io::Error::other(fault))),
    }
}

/// Asks the engine for the container's next exit; the answer comes when it has ended. The task ends
/// with the container, or with the engine's connection.
fn watch_end(docker: &Docker, id: &str) -> watch::Receiver<Option<Break>> {
    let (tell, ended) = watch::channel(None);
    let (api, id) = (docker.api.clone(), id.to_owned());
    tokio::spawn(async move {
        let options = WaitContainerOptions {
            condition: "next-exit".to_owned(),
        };
        let mut wait = std::pin::pin!(api.wait_container(&id, Some(options)));
        let why = match wait.next().await {
            Some(Ok(answer)) => Break::ended(answer.status_code),
            Some(Err(Fault::DockerContainerWaitError { code, .. })) => Break::ended(code),
            Some(Err(fault)) => {
                let why = format!("the engine lost sight of it: {}", call::words(&fault));
                Break::new(Cause::Engine, why)
            }
            None => Break::new(Cause::Engine, "the engine stopped answering for it"),
        };
        tell.send_replace(Some(why));
    });
    ended
}

impl Life {
    /// Resolves with the reason once the container has ended.
    pub(super) async fn ended(self) -> Break {
        let mut ended = self.ended.clone();
        let unwatched = || Break::new(Cause::Engine, "nobody watches it any more");
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_else(unwatched),
            Err(_) => unwatched(),
        }
    }

    /// Waits a moment for process 1 to end by itself, then removes what is left; bounded.
    /// Its stdin must have been shut down before.
    pub(super) async fn close(self) {
        let end = self.clone().ended();
        if tokio::time::timeout(GRACE, end).await.is_err() {
            tracing::debug!(container = %self.id, "did not end by itself and is removed");
            remove(&self.docker, &self.id).await;
            return;
        }
        self.gone().await;
    }

    /// Waits until the engine has cleared away a container that ended.
    async fn gone(&self) {
        let options = WaitContainerOptions {
            condition: "removed".to_owned(),
        };
        let mut wait = std::pin::pin!(self.docker.api.wait_container(&self.id, Some(options)));
        if tokio::time::timeout(GRACE, wait.next()).await.is_err() {
            remove(&self.docker, &self.id).await;
        }
    }
}

/// Removes a container whatever its state, with its anonymous volumes; one already gone is fine.
/// A failure is only told: the sweep of a later start tries again.
pub(super) async fn remove(docker: &Docker, id: &str) {
    if let Err(error) = try_remove(docker, id).await {
        tracing::warn!(container = %id, %error, "left behind; the next sweep removes it");
    }
}

/// As `remove`, with the engine's refusal.
pub(super) async fn try_remove(docker: &Docker, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptions {
        v: true,
        force: true,
        link: false,
    };
    let call = docker.api.remove_container(id, Some(options));
    match tokio::time::timeout(SHORT, call).await {
        Ok(Ok(())) => Ok(()),
        // 404: gone. 409: its removal is already in progress.
        Ok(Err(Fault::DockerResponseServerError {
            status_code: 404 | 409,
            ..
        })) => Ok(()),
        Ok(Err(fault)) => Err(call::engine("removing a container", &fault)),
        Err(_) => Err(Error::Engine {
            operation: "removing a container",
            reason: "the engine did not answer".to_owned(),
        }),
    }
}
