//! Opening a sandbox: a container of the profile, its toolbox greeted, its tree put in.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::call;
use super::container::{self, Life};
use super::docker::Docker;
use super::doubt;
use super::network;
use super::profile;
use super::remote::{self, Closer, Remote, Start};
use super::{Error, Facts, Network, Sandbox, Spec, Tree};

/// Opens a sandbox at exactly `tree`; on any failure and on cancel nothing is left at the engine.
pub(super) async fn open(
    docker: &Docker,
    spec: &Spec,
    tree: &Tree,
    cancel: &CancellationToken,
) -> Result<Arc<dyn Sandbox>, Error> {
    profile::check(spec, &docker.info.facts)?;
    let network = call::unless(cancel, own_network(docker, spec)).await?;
    match launch(docker, spec, network.as_deref(), cancel).await {
        Ok(remote) => fill(remote, tree, cancel).await,
        Err(error) => {
            network::discard(docker, network.as_deref()).await;
            Err(error)
        }
    }
}

/// The network that the spec asks for, made for this sandbox alone.
async fn own_network(docker: &Docker, spec: &Spec) -> Result<Option<String>, Error> {
    match spec.network {
        Network::None => Ok(None),
        Network::Full => network::create(docker, spec.labels.to_map())
            .await
            .map(Some),
    }
}

/// Starts the container and greets its toolbox.
async fn launch(
    docker: &Docker,
    spec: &Spec,
    network: Option<&str>,
    cancel: &CancellationToken,
) -> Result<Remote, Error> {
    let turn = async { docker.starts.acquire().await.map_err(|_| Error::Cancelled) };
    let _turn = call::unless(cancel, turn).await?;
    let body = profile::profile(spec, &docker.info.facts, network);
    let running = container::start(docker, body, cancel).await?;
    let (life, warnings) = (running.life.clone(), running.warnings);
    let start = Start {
        facts: facts(docker, spec, &life),
        tree_base: None,
        git: true,
        disk: spec.disk,
        inodes: spec.files.inodes,
        closer: closer(&life, docker, network),
    };
    let greeting = remote::start(running.reader, running.writer, start, life.clone().ended());
    let greeted = call::unless(cancel, greeting).await;
    let looked = match greeted {
        Ok(remote) => look(docker, spec, (remote, &life.id), &warnings).await,
        Err(error) => Err(error),
    };
    if looked.is_err() {
        container::remove(docker, &life.id).await;
    }
    looked
}

/// Compares the limits inside with the spec; what does not hold becomes part of the facts.
async fn look(
    docker: &Docker,
    spec: &Spec,
    (remote, id): (Remote, &str),
    warnings: &[String],
) -> Result<Remote, Error> {
    let kept = match doubt::must_ask(remote.held()) {
        true => container::inspect(docker, id).await,
        false => None,
    };
    let facts = &docker.info.facts;
    match doubt::doubts(spec, facts, remote.held(), warnings, kept.as_ref()) {
        Ok(doubts) => Ok(remote.doubted(doubts)),
        Err(error) => {
            remote.close().await;
            Err(error)
        }
    }
}

/// Puts the tree in; a sandbox that does not take it is closed again.
async fn fill(
    remote: Remote,
    tree: &Tree,
    cancel: &CancellationToken,
) -> Result<Arc<dyn Sandbox>, Error> {
    match call::unless(cancel, remote.upload(None, tree)).await {
        Ok(()) => Ok(Arc::new(remote)),
        Err(error) => {
            remote.close().await;
            Err(error)
        }
    }
}

fn facts(docker: &Docker, spec: &Spec, life: &Life) -> Facts {
    let runtime = spec.runtime.clone();
    Facts {
        container: life.id.clone(),
        image: spec.image.name.clone(),
        runtime: runtime.unwrap_or_else(|| docker.info.facts.default_runtime.clone()),
        ..Facts::default()
    }
}

/// What ends the container once its stdin is shut, and the network with it.
fn closer(life: &Life, docker: &Docker, network: Option<&str>) -> Closer {
    let (life, docker) = (life.clone(), docker.clone());
    let network = network.map(str::to_owned);
    Box::new(move || {
        Box::pin(async move {
            life.close().await;
            network::discard(&docker, network.as_deref()).await;
        })
    })
}
