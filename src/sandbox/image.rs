//! From the words of a plan to an image at the engine: present, built, bootstrapped or pulled.

use std::collections::HashMap;

use bollard::models::ImageInspect;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::build::{self, Stage};
use super::call::{self, SHORT};
use super::connect::image_arch;
use super::docker::Docker;
use super::{Error, Image, ImageSpec, Progress};
use super::{bake, bootstrap};

const BASE: &str = "wharf/base";
const PYTHON: &str = "wharf/python";
/// What base and its bootstrap are made from.
const DEBIAN: &str = "debian:bookworm-slim";
const BASE_DOCKERFILE: &str = include_str!("../../images/base/Dockerfile");
const PYTHON_DOCKERFILE: &str = include_str!("../../images/python/Dockerfile");

/// The names of the images this program makes itself.
pub const BUILT_IN: [&str; 2] = [BASE, PYTHON];

impl Docker {
    /// Makes or fetches an image by its name in a plan; gives the name it has at the engine.
    pub async fn ensure(
        &self,
        spec: &ImageSpec,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<String, Error> {
        let work = async {
            let _turn = self.builds.acquire().await.map_err(|_| Error::Cancelled)?;
            resolve(self, spec, progress).await
        };
        call::unless(cancel, work).await
    }
}

/// Makes the image of a spec ready to open; one preparation at a time.
pub(super) async fn prepare(
    docker: &Docker,
    spec: &ImageSpec,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<Image, Error> {
    let turn = async { docker.builds.acquire().await.map_err(|_| Error::Cancelled) };
    let _turn = call::unless(cancel, turn).await?;
    let name = call::unless(cancel, resolve(docker, spec, progress)).await?;
    let found = inspect(docker, &name).await?.ok_or_else(|| Error::Image {
        image: name.clone(),
        reason: "it vanished while it was being prepared".to_owned(),
        hint: "try again".to_owned(),
    })?;
    suits(docker, &spec.image, &found)?;
    let job = bake::Job {
        docker,
        spec,
        cancel,
    };
    bake::bake(&job, &found, progress).await
}

/// The name under which the plan's image is at the engine, after making or fetching it.
async fn resolve(
    docker: &Docker,
    spec: &ImageSpec,
    progress: &dyn Progress,
) -> Result<String, Error> {
    let bare = spec.image.strip_suffix(":latest").unwrap_or(&spec.image);
    match bare {
        BASE => base(docker, spec.bootstrap, progress).await,
        PYTHON => python(docker, spec.bootstrap, progress).await,
        _ => other(docker, &spec.image, progress).await,
    }
}

async fn base(docker: &Docker, bootstrap: bool, progress: &dyn Progress) -> Result<String, Error> {
    let tag = base_key();
    let name = format!("{BASE}:{tag}");
    if inspect(docker, &name).await?.is_none() {
        make_base(docker, &tag, bootstrap, progress).await?;
        build::tag(docker, &name, BASE, "latest").await?;
    }
    Ok(name)
}

async fn make_base(
    docker: &Docker,
    tag: &str,
    bootstrap: bool,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let mut stage = Stage::new(progress, format!("base: fetching {DEBIAN} (1/2)"));
    let pulled = match inspect(docker, DEBIAN).await? {
        Some(_) => Ok(()),
        None => build::pull(docker, DEBIAN, &mut stage).await,
    };
    let Err(fault) = pulled else {
        let mut stage = Stage::new(progress, "base: building (2/2)".to_owned());
        let context = build::context(&[
            ("Dockerfile", BASE_DOCKERFILE),
            ("packages", bootstrap::PACKAGES),
        ])?;
        let name = format!("{BASE}:{tag}");
        return build::build(docker, &name, context, proxies(docker), &mut stage).await;
    };
    if !bootstrap {
        return Err(Error::Image {
            image: BASE.to_owned(),
            reason: format!("{fault}; making it from Debian's packages was not allowed"),
            hint: "allow the bootstrap, or load an image named wharf/base".to_owned(),
        });
    }
    tracing::debug!(%fault, "no registry; the base is made from packages");
    let title = "base: no registry is reached, making it from Debian's packages (2/2)";
    let mut stage = Stage::new(progress, title.to_owned());
    bootstrap::base(docker, BASE, tag, &mut stage).await
}

async fn python(
    docker: &Docker,
    bootstrap: bool,
    progress: &dyn Progress,
) -> Result<String, Error> {
    let tag = short_hash(&[base_key().as_bytes(), PYTHON_DOCKERFILE.as_bytes()]);
    let name = format!("{PYTHON}:{tag}");
    if inspect(docker, &name).await?.is_none() {
        let from = base(docker, bootstrap, progress).await?;
        let mut stage = Stage::new(progress, "python: building".to_owned());
        let context = build::context(&[("Dockerfile", PYTHON_DOCKERFILE)])?;
        let mut args = proxies(docker);
        args.insert("BASE".to_owned(), from);
        build::build(docker, &name, context, args, &mut stage).await?;
        build::tag(docker, &name, PYTHON, "latest").await?;
    }
    Ok(name)
}

async fn other(docker: &Docker, name: &str, progress: &dyn Progress) -> Result<String, Error> {
    if inspect(docker, name).await?.is_some() {
        return Ok(name.to_owned());
    }
    if name.starts_with("wharf/") {
        return Err(Error::Image {
            image: name.to_owned(),
            reason: "there is no image of that name, here or among the built-in ones".to_owned(),
            hint: format!("built in are {BASE} and {PYTHON}"),
        });
    }
    let mut stage = Stage::new(progress, format!("image: pulling {name}"));
    build::pull(docker, name, &mut stage).await?;
    Ok(name.to_owned())
}

/// The engine's view of an image, or that there is none.
pub(super) async fn inspect(docker: &Docker, name: &str) -> Result<Option<ImageInspect>, Error> {
    call::found("looking up an image", SHORT, docker.api.inspect_image(name)).await
}

/// Refuses an image that could not start here, or whose /workspace would commit to nothing.
fn suits(docker: &Docker, name: &str, image: &ImageInspect) -> Result<(), Error> {
    let refuse = |reason: String, hint: &str| {
        Err(Error::Image {
            image: name.to_owned(),
            reason,
            hint: hint.to_owned(),
        })
    };
    let arch = image.architecture.as_deref().unwrap_or_default();
    let engine = docker.info.facts.arch.as_str();
    let toolbox = image_arch(std::env::consts::ARCH);
    if !arch.is_empty() && arch != engine {
        let reason = format!("it is made for {arch}, and this engine runs {engine}");
        return refuse(reason, "choose an image for the engine's architecture");
    }
    if engine != toolbox {
        let reason =
            format!("the engine runs {engine}, and this wharf holds a toolbox for {toolbox}");
        return refuse(reason, "use a wharf built for the engine's architecture");
    }
    if image.os.as_deref().is_some_and(|os| os != "linux") {
        return refuse("it is not a Linux image".to_owned(), "choose a Linux image");
    }
    let volumes = image
        .config
        .as_ref()
        .and_then(|config| config.volumes.as_ref());
    match volumes
        .into_iter()
        .flatten()
        .find(|path| covers_workspace(path))
    {
        Some(path) => refuse(
            format!(
                "it declares a VOLUME at {path}, so what is put into /workspace would not be kept"
            ),
            "choose an image without that VOLUME",
        ),
        None => Ok(()),
    }
}

/// True for /workspace and every folder above it.
fn covers_workspace(volume: &str) -> bool {
    let parts: Vec<&str> = volume
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    parts.is_empty() || parts == ["workspace"]
}

/// Proxy settings as build arguments; the engine keeps these names out of an image's history.
fn proxies(docker: &Docker) -> HashMap<String, String> {
    docker.options.proxies.iter().cloned().collect()
}

fn base_key() -> String {
    short_hash(&[
        BASE_DOCKERFILE.as_bytes(),
        bootstrap::SCRIPT.as_bytes(),
        bootstrap::PACKAGES.as_bytes(),
    ])
}

/// The first 16 hex digits over parts whose boundaries count.
pub(super) fn short_hash(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_matters_only_at_or_above_the_workspace() {
        for path in ["/", "/workspace", "/workspace/", "//workspace"] {
            assert!(covers_workspace(path), "{path}");
        }
        for path in ["/data", "/workspace/cache", "/work", "/workspaces"] {
            assert!(!covers_workspace(path), "{path}");
        }
    }

    #[test]
    fn the_boundaries_of_hashed_parts_count() {
        assert_ne!(short_hash(&[b"ab", b"c"]), short_hash(&[b"a", b"bc"]));
        assert_eq!(short_hash(&[b"ab"]).len(), 16);
    }
}
