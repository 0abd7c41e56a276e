//! Starting a sandbox: a container of the profile, its toolbox greeted.

use bollard::models::ContainerCreateBody;
use tokio_util::sync::CancellationToken;

use super::call;
use super::container::{self, Life};
use super::docker::Docker;
use super::doubt;
use super::egress;
use super::network;
use super::profile;
use super::remote::{self, Closer, Remote, Start};
use super::vacant::{Layer, Vacancy};
use super::{Error, Facts, Network, Sandbox, Spec};

/// Starts a sandbox that holds what its image does, or the layer's tree; on any failure and on
/// cancel nothing is left at the engine.
pub(super) async fn start(
    docker: &Docker,
    spec: &Spec,
    layer: Option<&Layer>,
    cancel: &CancellationToken,
) -> Result<Vacancy, Error> {
    profile::check(spec, &docker.info.facts)?;
    let standing = layer.map(|layer| layer.standing(spec)).transpose()?;
    let network = own_network(docker, spec, cancel).await?;
    let body = ContainerCreateBody {
        image: Some(layer.map_or(&spec.image.id, |layer| &layer.image).clone()),
        ..profile::profile(spec, &docker.info.facts, network.as_deref())
    };
    let launched = launch(docker, spec, (body, network.as_deref()), cancel).await;
    match begun(launched, spec, layer, cancel).await {
        Ok(remote) => Ok(Vacancy::new(remote, standing)),
        Err(error) => {
            network::discard(docker, network.as_deref()).await;
            Err(error)
        }
    }
}

/// Gives the history that the spec asks for; a layer holds it already.
async fn begun(
    launched: Result<Remote, Error>,
    spec: &Spec,
    layer: Option<&Layer>,
    cancel: &CancellationToken,
) -> Result<Remote, Error> {
    let remote = launched?;
    if let Some(history) = spec.history.as_ref().filter(|_| layer.is_none())
        && let Err(error) = call::unless(cancel, remote.give(history)).await
    {
        remote.close().await;
        return Err(error);
    }
    Ok(remote)
}

/// The network that the spec asks for, made for this sandbox alone.
async fn own_network(
    docker: &Docker,
    spec: &Spec,
    cancel: &CancellationToken,
) -> Result<Option<String>, Error> {
    match spec.network {
        Network::None | Network::Allow(_) => Ok(None),
        Network::Full => network::create(docker, spec.labels.to_map(), cancel)
            .await
            .map(Some),
    }
}

/// Starts the container and greets its toolbox.
async fn launch(
    docker: &Docker,
    spec: &Spec,
    (body, network): (ContainerCreateBody, Option<&str>),
    cancel: &CancellationToken,
) -> Result<Remote, Error> {
    let turn = async { docker.starts.acquire().await.map_err(|_| Error::Cancelled) };
    let _turn = call::unless(cancel, turn).await?;
    let running = container::start(docker, body, cancel).await?;
    let (life, warnings) = (running.life.clone(), running.warnings);
    let start = Start {
        facts: facts(docker, spec, &life),
        tree_base: None,
        git: true,
        disk: spec.disk,
        inodes: spec.files.inodes,
        egress: exit(docker, spec),
        closer: closer(&life, docker, network),
    };
    let streams = (running.reader, running.writer);
    let lease = docker.options.lease;
    let greeting = remote::greet(streams, start, lease, life.clone().ended());
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

/// The way out that the spec asks for.
fn exit(docker: &Docker, spec: &Spec) -> Option<egress::Exit> {
    match &spec.network {
        Network::Allow(policy) => Some(egress::Exit {
            policy: policy.clone(),
            way: docker.way.clone(),
            port: egress::PORT,
        }),
        Network::None | Network::Full => None,
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
