//! What dead runs left at the engine: found by label, removed only when surely theirs and dead.

use std::collections::HashMap;

use bollard::models::{ContainerSummaryStateEnum, Network};
use bollard::query_parameters::{ListContainersOptions, ListNetworksOptions};

use super::call::{self, SHORT};
use super::container;
use super::docker::Docker;
use super::network;
use super::profile::{KIND, MACHINE, RUN};
use super::{Error, Labels};

/// Seconds after which a container of an image build outside of runs that runs no more is nobody's: no
/// lock tells of its builder.
const STALE_BUILD: i64 = 3600;

/// Something with our labels at the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub kind: LeftoverKind,
    /// The engine's id or name.
    pub id: String,
    /// None for what was made while an image was built.
    pub labels: Option<Labels>,
    /// Why it may or may not be removed.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftoverKind {
    Container,
    Network,
}

/// What may be removed and what is left alone.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    pub dead: Vec<Leftover>,
    pub left: Vec<Leftover>,
}

/// What a sweep did.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    pub removed: Vec<Leftover>,
    /// Not ours, not dead, or not removable, each with its reason.
    pub left: Vec<Leftover>,
}

impl Docker {
    /// Lists containers (merely created ones too) and networks with our labels. Dead are those of
    /// this machine and state directory whose run `is_dead` says so of.
    pub async fn leftovers(
        &self,
        is_dead: &(dyn Fn(&Labels) -> bool + Sync),
    ) -> Result<Leftovers, Error> {
        let mut found = Leftovers::default();
        for (item, dead) in self.labelled_containers(is_dead).await? {
            if dead {
                found.dead.push(item)
            } else {
                found.left.push(item)
            }
        }
        for (item, dead) in self.labelled_networks(is_dead).await? {
            if dead {
                found.dead.push(item)
            } else {
                found.left.push(item)
            }
        }
        Ok(found)
    }

    /// Removes what dead runs left, containers before the networks they hold.
    pub async fn sweep(&self, is_dead: &(dyn Fn(&Labels) -> bool + Sync)) -> Result<Swept, Error> {
        let found = self.leftovers(is_dead).await?;
        let mut swept = Swept {
            removed: Vec::new(),
            left: found.left,
        };
        for mut item in found.dead {
            let done = match item.kind {
                LeftoverKind::Container => container::try_remove(self, &item.id).await,
                LeftoverKind::Network => network::remove(self, &item.id).await,
            };
            match done {
                Ok(()) => swept.removed.push(item),
                Err(error) => {
                    item.reason = error.to_string();
                    swept.left.push(item);
                }
            }
        }
        Ok(swept)
    }

    async fn labelled_containers(
        &self,
        is_dead: &(dyn Fn(&Labels) -> bool + Sync),
    ) -> Result<Vec<(Leftover, bool)>, Error> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(our_label()),
            ..ListContainersOptions::default()
        };
        let call = self.api.list_containers(Some(options));
        let list = call::bounded("listing containers", SHORT, call).await?;
        let judged = list.into_iter().map(|summary| {
            let labels = summary.labels.unwrap_or_default();
            let running = summary.state == Some(ContainerSummaryStateEnum::RUNNING);
            let made = Made {
                at: summary.created.unwrap_or(i64::MAX),
                busy: running,
            };
            let (dead, reason) = self.judge(&labels, &made, is_dead);
            let item = Leftover {
                kind: LeftoverKind::Container,
                id: summary.id.unwrap_or_default(),
                labels: Labels::from_map(&labels),
                reason,
            };
            (item, dead)
        });
        Ok(judged.collect())
    }

    async fn labelled_networks(
        &self,
        is_dead: &(dyn Fn(&Labels) -> bool + Sync),
    ) -> Result<Vec<(Leftover, bool)>, Error> {
        let options = ListNetworksOptions {
            filters: Some(our_label()),
        };
        let call = self.api.list_networks(Some(options));
        let list = call::bounded("listing networks", SHORT, call).await?;
        let judged = list.into_iter().map(|network: Network| {
            let labels = network.labels.unwrap_or_default();
            let made = Made {
                at: network
                    .created
                    .map_or(i64::MAX, |at| seconds_of(&at.to_string())),
                busy: false,
            };
            let (dead, reason) = self.judge(&labels, &made, is_dead);
            let item = Leftover {
                kind: LeftoverKind::Network,
                id: network.name.unwrap_or_default(),
                labels: Labels::from_map(&labels),
                reason,
            };
            (item, dead)
        });
        Ok(judged.collect())
    }

    /// Whether a labelled thing may be removed, and why or why not.
    fn judge(
        &self,
        map: &HashMap<String, String>,
        made: &Made,
        is_dead: &(dyn Fn(&Labels) -> bool + Sync),
    ) -> (bool, String) {
        let no = |why: &str| (false, why.to_owned());
        if map.get(MACHINE) != Some(&self.options.machine) {
            return no("made from another machine");
        }
        if map.get(super::profile::STATE).map(String::as_str) != self.options.state.to_str() {
            return no("belongs to another state directory");
        }
        if map.get(KIND).is_some_and(|kind| kind == "build") {
            if let Some(run) = map.get(RUN).filter(|run| !run.is_empty()) {
                let builder = Labels {
                    machine: self.options.machine.clone(),
                    state: self.options.state.display().to_string(),
                    run: run.clone(),
                    subtask: "build".to_owned(),
                };
                return match is_dead(&builder) {
                    true => (
                        true,
                        format!("left by an image build of run {run}, which is dead"),
                    ),
                    false => no("an image build is using it"),
                };
            }
            let old = seconds_now().saturating_sub(made.at) > STALE_BUILD;
            return match old && !made.busy {
                true => (true, "left by an image build".to_owned()),
                false => no("an image build may be using it"),
            };
        }
        match Labels::from_map(map) {
            None => no("its labels are incomplete"),
            Some(labels) if is_dead(&labels) => (true, format!("run {} is dead", labels.run)),
            Some(labels) => (false, format!("run {} is alive", labels.run)),
        }
    }
}

/// When a thing was made, in seconds since 1970, and whether it is at work.
struct Made {
    at: i64,
    busy: bool,
}

fn our_label() -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![MACHINE.to_owned()])])
}

fn seconds_now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A time that does not parse is taken for now: then nothing is old.
fn seconds_of(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>()
        .map_or_else(|_| seconds_now(), jiff::Timestamp::as_second)
}
