//! A sandbox's own way out: one labelled bridge for each, never the engine's default one.
//!
//! What it does not hide: the bridge's gateway is the host, so a service of the host that listens on
//! all addresses is reachable from inside.

use std::collections::HashMap;

use bollard::models::NetworkCreateRequest;
use tokio_util::sync::CancellationToken;

use super::call::{self, SHORT};
use super::docker::Docker;
use super::{Error, unique};

const MTU: &str = "com.docker.network.driver.mtu";

/// Makes a network with these labels and gives its name; one whose making failed or was cancelled is
/// removed, in case the engine made it all the same.
pub(super) async fn create(
    docker: &Docker,
    labels: HashMap<String, String>,
    cancel: &CancellationToken,
) -> Result<String, Error> {
    let name = unique::name();
    let made = call::unless(cancel, make(docker, &name, labels)).await;
    if made.is_err() {
        discard(docker, Some(&name)).await;
    }
    made.map(|()| name)
}

async fn make(docker: &Docker, name: &str, labels: HashMap<String, String>) -> Result<(), Error> {
    let mut options = HashMap::from([(
        "com.docker.network.bridge.enable_icc".to_owned(),
        "false".to_owned(),
    )]);
    if let Some(mtu) = host_mtu(docker).await {
        options.insert(MTU.to_owned(), mtu);
    }
    let request = NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        attachable: Some(false),
        internal: Some(false),
        labels: Some(labels),
        options: Some(options),
        ..NetworkCreateRequest::default()
    };
    let call = docker.api.create_network(request);
    call::bounded("creating a network", SHORT, call).await?;
    Ok(())
}

/// Removes a network; one already gone is fine.
pub(super) async fn remove(docker: &Docker, name: &str) -> Result<(), Error> {
    let call = docker.api.remove_network(name);
    call::found("removing a network", SHORT, call).await?;
    Ok(())
}

/// Removes a network and only tells of a failure: the sweep of a later start tries again.
pub(super) async fn discard(docker: &Docker, name: Option<&str>) {
    let Some(name) = name else { return };
    if let Err(error) = remove(docker, name).await {
        tracing::warn!(network = %name, %error, "left behind; the next sweep removes it");
    }
}

/// The packet size the operator gave the default bridge: networks made by name do not inherit it,
/// and too large a one lets big answers vanish.
async fn host_mtu(docker: &Docker) -> Option<String> {
    let call = docker.api.inspect_network("bridge", None);
    let bridge = call::found("reading the default bridge", SHORT, call)
        .await
        .ok()??;
    bridge.options?.remove(MTU)
}
