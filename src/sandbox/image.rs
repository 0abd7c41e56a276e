//! From the words of a plan to an image at the engine: present, built, bootstrapped or pulled.

use std::collections::{HashMap, HashSet};

use bollard::models::ImageInspect;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::build::{self, Files, Order, Stage};
use super::call::{self, SHORT};
use super::docker::Docker;
use super::facts::image_arch;
use super::profile::{HOME, TOOLBOX_PATH};
use super::pull::{self, Pull};
use super::recipe::{self, Fetching};
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
            let mut fetched = self.builds.lock().await;
            resolve(self, spec, &mut fetched, progress).await
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
    let turn = async { Ok(docker.builds.lock().await) };
    let mut fetched = call::unless(cancel, turn).await?;
    let name = call::unless(cancel, resolve(docker, spec, &mut fetched, progress)).await?;
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
    fetched: &mut HashSet<String>,
    progress: &dyn Progress,
) -> Result<String, Error> {
    if let Some(recipe) = &spec.recipe {
        let fetching = Fetching {
            pull: spec.pull,
            fetched,
        };
        return recipe::ensure(docker, recipe, fetching, progress).await;
    }
    let bare = spec.image.strip_suffix(":latest").unwrap_or(&spec.image);
    match bare {
        BASE => base(docker, spec, progress).await,
        PYTHON => python(docker, spec, progress).await,
        _ => other(docker, spec, fetched, progress).await,
    }
}

async fn base(docker: &Docker, spec: &ImageSpec, progress: &dyn Progress) -> Result<String, Error> {
    let tag = base_key();
    let name = format!("{BASE}:{tag}");
    if inspect(docker, &name).await?.is_none() {
        make_base(docker, &tag, spec, progress).await?;
        build::tag(docker, &name, BASE, "latest").await?;
    }
    Ok(name)
}

async fn make_base(
    docker: &Docker,
    tag: &str,
    spec: &ImageSpec,
    progress: &dyn Progress,
) -> Result<(), Error> {
    progress.say(&format!("base: fetching {DEBIAN} (1/2)"));
    // What our own images stand on is fetched where it is missing, and never asked for again.
    let pull = match spec.pull {
        Pull::Always | Pull::Missing => Pull::Missing,
        Pull::Never => Pull::Never,
    };
    let pulled = pull::ensure(docker, DEBIAN, pull, &mut HashSet::new(), progress).await;
    let Err(fault) = pulled else {
        let mut stage = Stage::new(progress, "base: building (2/2)".to_owned());
        let context = build::context(&[
            ("Dockerfile", BASE_DOCKERFILE),
            ("packages", bootstrap::PACKAGES),
        ])?;
        let name = format!("{BASE}:{tag}");
        let order = order(&name, proxies(docker));
        return build::build(docker, order, Files::Bytes(context), &mut stage).await;
    };
    if !spec.bootstrap {
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
    spec: &ImageSpec,
    progress: &dyn Progress,
) -> Result<String, Error> {
    let tag = short_hash(&[base_key().as_bytes(), PYTHON_DOCKERFILE.as_bytes()]);
    let name = format!("{PYTHON}:{tag}");
    if inspect(docker, &name).await?.is_none() {
        let from = base(docker, spec, progress).await?;
        let mut stage = Stage::new(progress, "python: building".to_owned());
        let context = build::context(&[("Dockerfile", PYTHON_DOCKERFILE)])?;
        let mut args = proxies(docker);
        args.insert("BASE".to_owned(), from);
        let order = order(&name, args);
        build::build(docker, order, Files::Bytes(context), &mut stage).await?;
        build::tag(docker, &name, PYTHON, "latest").await?;
    }
    Ok(name)
}

/// How our own images are built; their Dockerfiles label them.
fn order(name: &str, args: HashMap<String, String>) -> Order<'_> {
    Order {
        tag: name,
        title: name,
        dockerfile: "Dockerfile",
        args,
        labels: HashMap::new(),
        pull: false,
        hint: build::OURS,
    }
}

async fn other(
    docker: &Docker,
    spec: &ImageSpec,
    fetched: &mut HashSet<String>,
    progress: &dyn Progress,
) -> Result<String, Error> {
    let name = &spec.image;
    if name.starts_with("wharf/") {
        return match inspect(docker, name).await? {
            Some(_) => Ok(name.clone()),
            None => Err(Error::Image {
                image: name.clone(),
                reason: "there is no image of that name, here or among the built-in ones"
                    .to_owned(),
                hint: format!("built in are {BASE} and {PYTHON}"),
            }),
        };
    }
    pull::ensure(docker, name, spec.pull, fetched, progress).await?;
    Ok(name.clone())
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
    let covering = volumes.into_iter().flatten().find_map(|volume| {
        let place = KEPT.iter().find(|place| covers(volume, place))?;
        Some((volume, place))
    });
    match covering {
        Some((path, place)) => refuse(
            format!(
                "it declares a VOLUME at {path}, so what is put into {place} would not be kept"
            ),
            "choose an image without that VOLUME, or build one FROM it without",
        ),
        None => Ok(()),
    }
}

/// Where baking puts files that every sandbox of the image must find.
const KEPT: [&str; 3] = ["/workspace", HOME, TOOLBOX_PATH];

/// True for a path and every folder above it.
fn covers(volume: &str, path: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        let parts = text.split('/');
        let parts = parts.filter(|part| !part.is_empty() && *part != ".");
        parts.map(str::to_owned).collect()
    };
    parts(path).starts_with(&parts(volume))
}

/// Proxy settings as build arguments; the engine keeps these names out of an image's history.
pub(super) fn proxies(docker: &Docker) -> HashMap<String, String> {
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
        for path in [
            "/",
            "/workspace",
            "/workspace/",
            "//workspace",
            "/./workspace",
        ] {
            assert!(covers(path, "/workspace"), "{path}");
        }
        for path in ["/data", "/workspace/cache", "/work", "/workspaces"] {
            assert!(!covers(path, "/workspace"), "{path}");
        }
        assert!(covers("/home", HOME) && !covers("/home/other", HOME));
    }

    #[test]
    fn the_boundaries_of_hashed_parts_count() {
        assert_ne!(short_hash(&[b"ab", b"c"]), short_hash(&[b"a", b"bc"]));
        assert_eq!(short_hash(&[b"ab"]).len(), 16);
    }
}
