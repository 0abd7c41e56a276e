//! Tool results, snapshots and acceptance results of a journal, given again in the place of containers.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::still::Still;
use crate::agent::{self, CallOutput};
use crate::id::{CommitId, TreeId};
use crate::journal::{self, Agent, CommandRun, Event, Line};
use crate::plan::AcceptanceCommand;
use crate::run::judge::acceptance::Accepted;
use crate::run::work::left_out::pair;
use crate::run::work::trees;
use crate::sandbox::{
    Changes, Engine, Error, Facts, Image, ImageSpec, Known, Layer, Progress, Sandbox, Spec, Tree,
    Vacant,
};
use crate::workspace::{self, Store};

/// What was recorded of one conversation's tools.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    results: BTreeMap<u32, CallOutput>,
    turns: Vec<Kept>,
    /// Where it stood at its end, beyond the last turn.
    end: Option<Kept>,
}

/// Where files stand after a turn.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// None: where they stood before.
    snapshot: Option<CommitId>,
    left_out: Vec<String>,
}

/// A journal's results.
#[derive(Default)]
pub(in crate::run) struct Recorded {
    told: HashMap<Agent, Arc<Told>>,
    /// The last of each round.
    accepted: BTreeMap<u32, (TreeId, Accepted)>,
    /// Id and description by name.
    images: BTreeMap<String, (String, String)>,
}

impl Recorded {
    /// Reads the results of the run in `dir`, large ones from beside its journal.
    pub fn of(lines: &[Line], dir: &Path) -> Result<Self, journal::Error> {
        let mut recorded = Self::default();
        for line in lines {
            recorded.take(&line.event, dir)?;
        }
        Ok(recorded)
    }

    fn take(&mut self, event: &Event, dir: &Path) -> Result<(), journal::Error> {
        match event {
            // One that begins again has nothing to do with what it did before.
            Event::AgentStarted { agent, .. } => {
                self.told.insert(agent.clone(), Arc::default());
            }
            Event::TurnDone {
                agent,
                results,
                snapshot,
                left_out,
                ..
            } => {
                let told = Arc::make_mut(self.told.entry(agent.clone()).or_default());
                for result in results {
                    let result = journal::whole(dir, result)?;
                    if let Ok(result) = serde_json::from_value::<CallOutput>(result) {
                        told.results.insert(result.number, result);
                    }
                }
                told.turns.push(Kept {
                    snapshot: snapshot.clone(),
                    left_out: left_out.clone(),
                });
            }
            Event::AgentEnded { agent, end } => {
                let told = Arc::make_mut(self.told.entry(agent.clone()).or_default());
                told.end = Some(Kept {
                    snapshot: end.snapshot.clone(),
                    left_out: end.left_out.clone(),
                });
            }
            Event::AcceptanceRan { .. } => {
                if let Some((round, tree, accepted)) = Accepted::of(event) {
                    self.accepted.insert(round, (tree, accepted));
                }
            }
            Event::ImageReady {
                name,
                id,
                describes,
            } => {
                let known = (id.clone(), describes.clone());
                self.images.insert(name.clone(), known);
            }
            _ => {}
        }
        Ok(())
    }

    /// The sandbox of an agent: it knows what its calls came to, and runs nothing.
    pub fn sandbox(&self, who: &Agent, image: &Image) -> Arc<dyn Sandbox> {
        let facts = Facts {
            container: "recorded".to_owned(),
            image: image.name.clone(),
            runtime: "recorded".to_owned(),
            shell: Some("bash".to_owned()),
            doubts: Vec::new(),
        };
        let told = self.told.get(who).cloned().unwrap_or_default();
        Arc::new(Still::new(told, facts))
    }

    /// What `turn` of an agent changed in its files, which stand at `from`. Past the last turn it is
    /// what its end added.
    pub async fn changes(
        &self,
        store: &Store,
        (who, turn): (&Agent, u32),
        from: &CommitId,
    ) -> Result<Changes, workspace::Error> {
        let Some(told) = self.told.get(who) else {
            return Ok(Changes::default());
        };
        let kept = match usize::try_from(turn).ok().and_then(|n| n.checked_sub(1)) {
            Some(at) if at < told.turns.len() => told.turns.get(at),
            _ => told.end.as_ref(),
        };
        let Some(kept) = kept else {
            return Ok(Changes::default());
        };
        let mut changes = match &kept.snapshot {
            Some(to) => trees::between(store, from, to).await?,
            None => Changes::default(),
        };
        for (path, why) in kept.left_out.iter().map(|line| pair(line)) {
            changes.left_out.push((path.into_bytes(), why));
        }
        Ok(changes)
    }

    /// What the acceptance commands came to on this very tree. On another one nothing is known of them.
    pub fn accepted(&self, round: u32, tree: &TreeId, commands: &[AcceptanceCommand]) -> Accepted {
        if let Some((on, accepted)) = self.accepted.get(&round)
            && on == tree
        {
            return accepted.clone();
        }
        let unknown = |command: &AcceptanceCommand| CommandRun {
            command: command.run.clone(),
            exit_code: None,
            seconds: 0.0,
            output_tail: String::new(),
            tests: None,
            note: Some("not run: no result was recorded on this tree".to_owned()),
        };
        Accepted {
            commands: commands.iter().map(unknown).collect(),
            ..Accepted::default()
        }
    }
}

impl Told {
    /// What a call came to, when it is the one that has this number in the recording.
    pub fn known(&self, number: u32, tool: &str, arguments: &Value) -> Known {
        let Some(result) = self.results.get(&number) else {
            return unknown("no result of this call was recorded");
        };
        if result.tool != tool || result.arguments != *arguments {
            return unknown(&format!(
                "the recording has another call here: {} {}",
                result.tool, result.arguments
            ));
        }
        let prefix = format!("#{number} ");
        let text = agent::bare(&result.text);
        Known {
            text: text.strip_prefix(&prefix).unwrap_or(text).to_owned(),
            failed: result.failed,
            exit_code: result.exit_code,
        }
    }
}

fn unknown(text: &str) -> Known {
    Known {
        text: text.to_owned(),
        failed: true,
        exit_code: None,
    }
}

/// An engine without containers: its images are those that were recorded.
pub(in crate::run) struct Stage(pub Arc<Recorded>);

impl Engine for Stage {
    fn prepare<'a>(
        &'a self,
        image: &'a ImageSpec,
        _progress: &'a dyn Progress,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Image, Error>> {
        let known = self.0.images.get(&image.image).cloned();
        let (id, describes) = known.unwrap_or_else(|| ("recorded".to_owned(), String::new()));
        let image = Image {
            id,
            name: image.image.clone(),
            describes,
        };
        Box::pin(async { Ok(image) })
    }

    fn start<'a>(
        &'a self,
        _spec: &'a Spec,
        _layer: Option<&'a Layer>,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Box<dyn Vacant>, Error>> {
        Box::pin(async { Err(no_container()) })
    }

    fn layer<'a>(
        &'a self,
        _spec: &'a Spec,
        _tree: Arc<Tree>,
        _progress: &'a dyn Progress,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Layer, Error>> {
        Box::pin(async { Err(no_container()) })
    }
}

fn no_container() -> Error {
    Error::Engine {
        operation: "start a container",
        reason: "a replay with recorded tools has none".to_owned(),
    }
}
