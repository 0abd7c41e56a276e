//! One container's life at the engine: created, waited for, attached, started, gone.

use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as Fault;
use bollard::models::{ContainerCreateBody, ContainerCreateResponse, HostConfig};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptionsBuilder, RemoveContainerOptions,
    WaitContainerOptions,
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::io::AsyncWrite;
use tokio::sync::watch;
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;

use super::call::{self, LONG, SHORT};
use super::docker::Docker;
use super::{Break, Cause, Error, unique};

/// How long process 1 may take to end after its stdin closed.
const GRACE: Duration = Duration::from_secs(5);
/// How long the engine may take to answer that a container is removed.
const REMOVAL: Duration = SHORT;
/// How often an engine is asked that may be starting again, and how long it is left alone between.
const LOOKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(700);

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
    let ContainerCreateResponse { id, warnings } = make(docker, body, cancel).await?;
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
pub(super) async fn create(
    docker: &Docker,
    body: ContainerCreateBody,
    cancel: &CancellationToken,
) -> Result<String, Error> {
    Ok(make(docker, body, cancel).await?.id)
}

/// Creates a container under a name of its own: by it, what the engine made although its answer was
/// lost, late or no longer wanted is removed.
async fn make(
    docker: &Docker,
    body: ContainerCreateBody,
    cancel: &CancellationToken,
) -> Result<ContainerCreateResponse, Error> {
    let name = unique::name();
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    let mut asked = std::pin::pin!(docker.api.create_container(Some(options), body));
    let asked = tokio::select! {
        asked = tokio::time::timeout(LONG, &mut asked) => asked,
        () = cancel.cancelled() => tokio::time::timeout(GRACE, &mut asked).await,
    };
    let error = match asked {
        Ok(Ok(made)) if !cancel.is_cancelled() => return Ok(made),
        Ok(Ok(made)) => {
            remove(docker, &made.id).await;
            return Err(Error::Cancelled);
        }
        // The engine refused, so there is nothing.
        Ok(Err(fault @ Fault::DockerResponseServerError { .. })) => {
            return Err(call::engine("creating a container", &fault));
        }
        Ok(Err(fault)) => call::engine("creating a container", &fault),
        Err(_) if cancel.is_cancelled() => Error::Cancelled,
        Err(_) => call::silent("creating a container", LONG),
    };
    unmake(docker, &name).await;
    Err(error)
}

/// Removes what may be there or come to be there: an engine that lost a caller goes on for a while.
async fn unmake(docker: &Docker, name: &str) {
    for _ in 0..LOOKS {
        match asked_away(docker, name).await {
            Removal::Done => return,
            Removal::Absent => tokio::time::sleep(PAUSE).await,
            Removal::Failed(_) => tokio::time::sleep(PAUSE).await,
            Removal::Silent(error) => {
                tracing::warn!(container = %name, %error, "whether it was made is not known");
                return;
            }
        }
    }
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

    /// Waits until the engine has cleared away a container that ended; what it does not confirm is
    /// removed by hand.
    async fn gone(&self) {
        let options = WaitContainerOptions {
            condition: "removed".to_owned(),
        };
        let mut wait = std::pin::pin!(self.docker.api.wait_container(&self.id, Some(options)));
        let confirmed = match tokio::time::timeout(GRACE, wait.next()).await {
            Ok(Some(
                Ok(_)
                | Err(
                    // Its exit code was not 0.
                    Fault::DockerContainerWaitError { .. }
                    | Fault::DockerResponseServerError {
                        status_code: 404, ..
                    },
                ),
            )) => true,
            Ok(_) | Err(_) => false,
        };
        if !confirmed {
            remove(&self.docker, &self.id).await;
        }
    }
}

/// Removes a container whatever its state, with its anonymous volumes; one already gone is fine. An
/// engine that is starting again is asked a few times. A failure is only told: the sweep of a later
/// start tries again.
pub(super) async fn remove(docker: &Docker, id: &str) {
    let mut looks = 0;
    let error = loop {
        looks += 1;
        match asked_away(docker, id).await {
            Removal::Done | Removal::Absent => return,
            Removal::Failed(_) if looks < LOOKS => tokio::time::sleep(PAUSE).await,
            Removal::Failed(error) | Removal::Silent(error) => break error,
        }
    };
    tracing::warn!(container = %id, %error, "left behind; the next sweep removes it");
}

/// As `remove`, once, with the engine's refusal.
pub(super) async fn try_remove(docker: &Docker, id: &str) -> Result<(), Error> {
    match asked_away(docker, id).await {
        Removal::Done | Removal::Absent => Ok(()),
        Removal::Failed(error) | Removal::Silent(error) => Err(error),
    }
}

enum Removal {
    /// Gone, or going.
    Done,
    /// There is none.
    Absent,
    /// The engine answers, or cannot be reached; it may be starting again.
    Failed(Error),
    /// It was asked, and has not answered in time.
    Silent(Error),
}

async fn asked_away(docker: &Docker, id: &str) -> Removal {
    let options = RemoveContainerOptions {
        v: true,
        force: true,
        link: false,
    };
    let call = docker.api.remove_container(id, Some(options));
    let status = |wanted: u16, fault: &Fault| matches!(fault, Fault::DockerResponseServerError { status_code, .. } if *status_code == wanted);
    match tokio::time::timeout(REMOVAL, call).await {
        Ok(Ok(())) => Removal::Done,
        Ok(Err(fault)) if status(404, &fault) => Removal::Absent,
        // Its removal is already in progress.
        Ok(Err(fault)) if status(409, &fault) => Removal::Done,
        Ok(Err(fault)) => Removal::Failed(call::engine("removing a container", &fault)),
        Err(_) => Removal::Silent(call::silent("removing a container", REMOVAL)),
    }
}
