//! The container engine as an operator deals with it: who it is, its images, what dead runs left.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::lock::{Held, held};
use crate::sandbox::{self, Docker};

/// A connected engine.
#[derive(Clone)]
pub struct Engine {
    docker: Docker,
}

/// What an engine says of itself.
#[derive(Clone, Debug, Default, Serialize)]
pub struct About {
    /// `Docker` or `Podman`.
    pub product: &'static str,
    pub address: String,
    /// By certificates; what ssh and a socket carry needs none.
    pub encrypted: bool,
    /// Why it was looked for there.
    pub found_by: String,
    /// Places that were tried before and did not answer, each with its reason.
    pub passed_over: Vec<String>,
    pub version: String,
    pub api: String,
    pub cgroup: String,
    pub storage: String,
    pub arch: String,
    pub runtimes: Vec<String>,
    /// Limits of a sandbox that it says it cannot set.
    pub unable: Vec<String>,
}

/// One of our images.
#[derive(Clone, Debug, Serialize)]
pub struct ImageLine {
    pub name: String,
    pub id: String,
    pub bytes: u64,
    /// Bytes above the image it stands on.
    pub own_bytes: u64,
    pub in_use: bool,
    /// Made by runs, and made again when it is missing: what `cache` limits.
    pub cached: bool,
    /// When a run last began to use it; RFC 3339.
    pub last_used: String,
    /// For a cached image: the image it was made from.
    pub made_for: Option<String>,
}

/// Whether a sweep removes or only looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Look,
    Remove,
}

/// What a sweep removed or would remove, and what it left; each line says why.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Swept {
    pub removed: Vec<String>,
    pub left: Vec<String>,
}

impl Engine {
    /// Finds the engine; a few seconds for each address at most.
    pub async fn connect(options: &sandbox::Options) -> Result<Self, Error> {
        let docker = sandbox::connect(options).await?;
        Ok(Self { docker })
    }

    /// As a run takes it.
    pub fn to_run(&self) -> Arc<dyn sandbox::Engine> {
        Arc::new(self.docker.clone())
    }

    /// What it says of itself.
    pub fn about(&self) -> About {
        let info = self.docker.info();
        About {
            product: info.product,
            address: info.address.clone(),
            encrypted: info.encrypted,
            found_by: info.found_by.clone(),
            passed_over: info.passed_over.clone(),
            version: info.version.clone(),
            api: info.api.clone(),
            cgroup: info.cgroup.clone(),
            storage: info.storage.clone(),
            arch: info.facts.arch.clone(),
            runtimes: info.facts.runtimes.iter().cloned().collect(),
            unable: info
                .facts
                .unable
                .iter()
                .map(|limit| limit.word().to_owned())
                .collect(),
        }
    }

    /// Our images, newest first.
    pub async fn images(&self) -> Result<Vec<ImageLine>, Error> {
        let rows = self.docker.images().await?;
        let line = |row: sandbox::ImageRow| ImageLine {
            name: row.name,
            id: row.id,
            bytes: row.size,
            own_bytes: row.own,
            in_use: row.in_use,
            cached: row.cached,
            last_used: jiff::Timestamp::from_second(row.last_used)
                .map_or_else(|_| String::new(), |at| at.to_string()),
            made_for: row.made_for,
        };
        Ok(rows.into_iter().map(line).collect())
    }

    /// Builds an image of ours, or makes sure that another one is there; its id.
    pub async fn build(
        &self,
        name: &str,
        bootstrap: Bootstrap,
        progress: &(dyn Fn(&str) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<String, Error> {
        let spec = sandbox::ImageSpec {
            image: name.to_owned(),
            bootstrap: bootstrap == Bootstrap::Allowed,
            ..sandbox::ImageSpec::default()
        };
        let engine: &dyn sandbox::Engine = &self.docker;
        let image = engine.prepare(&spec, &Said(progress), cancel).await?;
        Ok(image.id)
    }

    /// Removes the containers and networks of dead runs, as every new run does first; a line for
    /// each that is gone.
    pub async fn bury(&self, state: &Path) -> Result<Vec<String>, Error> {
        let dead = |labels: &sandbox::Labels| is_dead(state, labels);
        let swept = self.docker.sweep(&dead).await?;
        Ok(swept.removed.iter().map(line).collect())
    }

    /// `bury`, and what an earlier process of `run` left too: the caller holds that run's lock, so
    /// that nobody else works on it.
    pub async fn bury_before(&self, state: &Path, run: &str) -> Result<Vec<String>, Error> {
        let dead = |labels: &sandbox::Labels| labels.run == run || is_dead(state, labels);
        let swept = self.docker.sweep(&dead).await?;
        Ok(swept.removed.iter().map(line).collect())
    }

    /// Removes cached images, oldest last use first, until the rest has at most `cache` bytes; a line
    /// for each that is gone.
    pub async fn trim(&self, cache: u64) -> Result<Vec<String>, Error> {
        let gone = self.docker.clean_images(cache).await?;
        Ok(gone.iter().map(image_line).collect())
    }

    /// Containers and networks of dead runs, and cached images past `cache` bytes.
    pub async fn sweep(&self, state: &Path, cache: u64, mode: Mode) -> Result<Swept, Error> {
        let dead = |labels: &sandbox::Labels| is_dead(state, labels);
        let (gone, left, images) = match mode {
            Mode::Look => {
                let found = self.docker.leftovers(&dead).await?;
                (
                    found.dead,
                    found.left,
                    self.docker.spare_images(cache).await?,
                )
            }
            Mode::Remove => {
                let swept = self.docker.sweep(&dead).await?;
                (
                    swept.removed,
                    swept.left,
                    self.docker.clean_images(cache).await?,
                )
            }
        };
        let mut removed: Vec<String> = gone.iter().map(line).collect();
        removed.extend(images.iter().map(image_line));
        Ok(Swept {
            removed,
            left: left.iter().map(line).collect(),
        })
    }
}

/// Dead is a run whose lock can be taken; what cannot be told is alive.
fn is_dead(state: &Path, labels: &sandbox::Labels) -> bool {
    crate::id::is_valid(&labels.run) && held(&state.join("runs").join(&labels.run)) == Held::No
}

/// Whether a missing base may be made from Debian's packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bootstrap {
    Allowed,
    Refused,
}

/// A closure as the sandbox room's listener.
struct Said<'a>(&'a (dyn Fn(&str) + Send + Sync));

impl sandbox::Progress for Said<'_> {
    fn say(&self, line: &str) {
        (self.0)(line);
    }
}

fn image_line(row: &sandbox::ImageRow) -> String {
    format!("image {}", row.name)
}

fn line(item: &sandbox::Leftover) -> String {
    let kind = match item.kind {
        sandbox::LeftoverKind::Container => "container",
        sandbox::LeftoverKind::Network => "network",
    };
    let id = item.id.get(..12).unwrap_or(&item.id);
    match &item.labels {
        Some(labels) => format!(
            "{kind} {id} of run {} ({}): {}",
            labels.run, labels.subtask, item.reason
        ),
        None => format!("{kind} {id}: {}", item.reason),
    }
}
