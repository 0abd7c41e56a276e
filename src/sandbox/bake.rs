//! The image a sandbox really starts from: a plan's image with toolbox, home, workspace and the
//! results of the setup commands, baked once.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{ContainerCreateBody, ImageInspect};
use bollard::query_parameters::UploadToContainerOptionsBuilder;

use tokio_util::sync::CancellationToken;

use super::build::Stage;
use super::call::{self, LONG};
use super::commit::{Committed, commit, plain};
use super::docker::Docker;
use super::image::{inspect, short_hash};
use super::profile::{self, HOME, KIND, TOOLBOX_PATH};
use super::toolbox::TOOLBOX;
use super::{Error, FileLimits, Image, ImageSpec, Labels, Network, Progress, Spec};
use super::{bench, layer, network, shelf};

/// The repository of baked images; a tag is the key of what went in.
pub(super) const BAKED: &str = "wharf/baked";
const DESCRIBES: &str = "wharf.describes";
/// Changes when baking itself changes, so that older images are not taken for equal.
const FORMAT: &[u8] = b"1";
/// Where programs are looked for in an image that does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Memory and processes of a setup command.
const SETUP_MEMORY: u64 = 4 << 30;
const SETUP_PIDS: u64 = 1024;

/// What is baked, where, and what may stop it.
pub(super) struct Job<'a> {
    pub(super) docker: &'a Docker,
    pub(super) spec: &'a ImageSpec,
    pub(super) cancel: &'a CancellationToken,
}

/// Gives the baked image of `found`, made now unless the engine has it.
pub(super) async fn bake(
    job: &Job<'_>,
    found: &ImageInspect,
    progress: &dyn Progress,
) -> Result<Image, Error> {
    let (docker, spec) = (job.docker, job.spec);
    let base = found.id.clone().unwrap_or_default();
    let key = key(&base, spec);
    let name = format!("{BAKED}:{key}");
    if inspect(docker, &name).await?.is_some() {
        shelf::used(docker, &name).await;
    } else {
        let mut stage = Stage::new(progress, format!("image: baking {}", spec.image));
        let oven = Oven {
            job,
            base,
            path: path_of(found),
            key,
        };
        oven.run(&mut stage).await?;
    }
    let baked = inspect(docker, &name).await?.ok_or_else(|| Error::Image {
        image: name.clone(),
        reason: "it vanished right after it was baked".to_owned(),
        hint: "try again".to_owned(),
    })?;
    let labels = baked.config.and_then(|config| config.labels);
    Ok(Image {
        id: baked.id.unwrap_or_default(),
        name: spec.image.clone(),
        describes: labels
            .and_then(|mut labels| labels.remove(DESCRIBES))
            .unwrap_or_default(),
    })
}

/// Everything that changes what a baked image holds.
fn key(base: &str, spec: &ImageSpec) -> String {
    let mut parts: Vec<&[u8]> = vec![FORMAT, base.as_bytes(), TOOLBOX];
    parts.extend(spec.setup.iter().map(|line| line.as_bytes()));
    parts.push(b"files");
    for (path, bytes) in &spec.setup_files {
        parts.push(path.as_bytes());
        parts.push(bytes);
    }
    short_hash(&parts)
}

/// The image's own PATH with the agent's programs before it.
fn path_of(image: &ImageInspect) -> String {
    let env = image.config.as_ref().and_then(|config| config.env.as_ref());
    let own = env
        .into_iter()
        .flatten()
        .find_map(|pair| pair.strip_prefix("PATH="))
        .unwrap_or(PATH);
    format!("{HOME}/.local/bin:{own}")
}

/// One baking: the image it starts from, the PATH inside, the tag it gets.
struct Oven<'a> {
    job: &'a Job<'a>,
    base: String,
    path: String,
    key: String,
}

impl Oven<'_> {
    async fn run(&self, stage: &mut Stage<'_>) -> Result<(), Error> {
        let network = match self.job.spec.setup.is_empty() {
            true => None,
            false => {
                let (docker, cancel) = (self.job.docker, self.job.cancel);
                Some(network::create(docker, self.labels(), cancel).await?)
            }
        };
        let outcome = self.fill(network.as_deref(), stage).await;
        network::discard(self.job.docker, network.as_deref()).await;
        outcome
    }

    /// Fills a container and commits it; the container is gone afterwards, cancelled or not.
    async fn fill(&self, network: Option<&str>, stage: &mut Stage<'_>) -> Result<(), Error> {
        let (docker, cancel) = (self.job.docker, self.job.cancel);
        let id = super::container::create(docker, self.body(network), cancel).await?;
        let outcome = call::unless(cancel, self.fill_created(&id, stage)).await;
        super::container::remove(docker, &id).await;
        outcome
    }

    async fn fill_created(&self, id: &str, stage: &mut Stage<'_>) -> Result<(), Error> {
        let files = layer::of(self.job.docker, id, &self.job.spec.setup_files).await?;
        let options = UploadToContainerOptionsBuilder::new().path("/").build();
        let body = bollard::body_full(files);
        let call = self
            .job
            .docker
            .api
            .upload_to_container(id, Some(options), body);
        call::bounded("putting the toolbox into an image", LONG, call).await?;
        if !layer::exists(self.job.docker, id, "/bin/sh").await? {
            return self.without_shell(id).await;
        }
        let running = super::container::begin(self.job.docker, id).await?;
        let bench = bench::Bench::new(self.job.docker, id, &self.path).await?;
        let describes = bench.describe().await;
        let outcome = match bench.setup(self.job.spec, stage).await {
            Ok(()) => self.commit(id, &describes).await,
            Err(error) => Err(error),
        };
        drop(running);
        outcome
    }

    async fn without_shell(&self, id: &str) -> Result<(), Error> {
        if !self.job.spec.setup.is_empty() {
            return Err(Error::Image {
                image: self.job.spec.image.clone(),
                reason: "it has no /bin/sh to run the setup commands with".to_owned(),
                hint: "choose an image with a shell, or drop sandbox.setup".to_owned(),
            });
        }
        self.commit(id, "no shell").await
    }

    async fn commit(&self, id: &str, describes: &str) -> Result<(), Error> {
        let committed = Committed {
            container: id,
            name: Some((BAKED, &self.key)),
            kind: "baked",
            made_for: &self.job.spec.image,
            more: vec![
                format!("ENV PATH={}", self.path),
                format!("ENTRYPOINT [\"{TOOLBOX_PATH}\"]"),
                "CMD []".to_owned(),
                format!("LABEL {DESCRIBES}=\"{}\"", plain(describes)),
            ],
            allowance: Duration::ZERO,
        };
        commit(self.job.docker, committed).await.map(drop)
    }

    /// The profile of a sandbox, with a shell that lives as long as its stdin as process 1.
    fn body(&self, network: Option<&str>) -> ContainerCreateBody {
        let facts = &self.job.docker.info.facts;
        let spec = Spec {
            image: Image {
                id: self.base.clone(),
                name: self.job.spec.image.clone(),
                describes: String::new(),
            },
            env: std::collections::BTreeMap::new(),
            cpus: f64::from(facts.cores),
            memory: SETUP_MEMORY,
            pids: SETUP_PIDS,
            disk: u64::MAX,
            files: FileLimits {
                size: u64::MAX,
                ..FileLimits::default()
            },
            strict: false,
            history: None,
            network: if network.is_some() {
                Network::Full
            } else {
                Network::None
            },
            runtime: None,
            labels: Labels {
                machine: String::new(),
                state: String::new(),
                run: String::new(),
                subtask: String::new(),
            },
        };
        let words = ["/bin/sh", "-c", "read -r line"].map(str::to_owned);
        ContainerCreateBody {
            entrypoint: Some(words.to_vec()),
            working_dir: Some("/".to_owned()),
            labels: Some(self.labels()),
            ..profile::profile(&spec, facts, network)
        }
    }

    /// A run is named only for the sweep, which takes what a dead one left: the image is nobody's.
    fn labels(&self) -> HashMap<String, String> {
        let options = &self.job.docker.options;
        let run = self.job.spec.run.clone();
        let mut labels = HashMap::from([
            (profile::MACHINE.to_owned(), options.machine.clone()),
            (
                profile::STATE.to_owned(),
                options.state.display().to_string(),
            ),
            (KIND.to_owned(), "build".to_owned()),
        ]);
        labels.extend(run.map(|run| (profile::RUN.to_owned(), run)));
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(setup: &[&str], files: &[(&str, &'static str)]) -> ImageSpec {
        ImageSpec {
            image: "x".into(),
            setup: setup.iter().map(|s| (*s).to_owned()).collect(),
            setup_files: files
                .iter()
                .map(|(path, text)| {
                    (
                        (*path).to_owned(),
                        bytes::Bytes::from_static(text.as_bytes()),
                    )
                })
                .collect(),
            ..ImageSpec::default()
        }
    }

    #[test]
    fn every_input_changes_the_key() {
        let keys = [
            key("a", &spec(&[], &[])),
            key("b", &spec(&[], &[])),
            key("a", &spec(&["x", "y"], &[])),
            key("a", &spec(&["xy"], &[])),
            key("a", &spec(&[], &[("x", "y")])),
            key("a", &spec(&[], &[("x", "z")])),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], key("a", &spec(&[], &[])));
    }

    #[test]
    fn the_images_own_path_is_kept() {
        let mut image = ImageInspect::default();
        assert_eq!(path_of(&image), format!("/home/agent/.local/bin:{PATH}"));
        image.config = Some(bollard::models::ImageConfig {
            env: Some(vec!["A=1".into(), "PATH=/go/bin:/bin".into()]),
            ..Default::default()
        });
        assert_eq!(path_of(&image), "/home/agent/.local/bin:/go/bin:/bin");
    }
}
