//! What merged reaches the operator: a branch in the repository, or a patch.

use std::path::Path;

use crate::journal::{self, Event, State};
use crate::run::Delivery;
use crate::run::end::patch::Root;
use crate::run::end::words;
use crate::run::judge::additions;
use crate::run::round::drive::{Drive, Node};
use crate::run::round::merges::Folded;
use crate::run::shared::Shared;
use crate::workspace::{Error, GitKind, Step};

/// Most paths that a warning names.
const NAMED: usize = 5;

/// What was delivered, and what was asked for and could not be.
pub(in crate::run) struct Delivered {
    pub event: Event,
    /// Why it is not what the operator asked for by name.
    pub failed: Option<String>,
}

/// Delivers the merged tree. Nothing changed: nothing is delivered, and the event says so by naming
/// neither. What cannot be delivered as it should is a patch in the run's directory, and that is said.
pub(in crate::run) async fn deliver(drive: &mut Drive) -> Result<Delivered, Error> {
    let shared = drive.shared.clone();
    let nothing = Event::Delivered {
        branch: None,
        patch: None,
        commit: None,
    };
    if shared.store.tree(&drive.merged).await? == shared.base.tree {
        return Ok(Delivered {
            event: nothing,
            failed: None,
        });
    }
    let in_git = shared.base.git != GitKind::None && !shared.plan.workspace.copy;
    let own = shared.dir.join("result.patch");
    let (what, error) = match &shared.options.delivery {
        Delivery::Patch(path) => match patch(drive, path).await {
            Ok(event) => return Ok(event.into()),
            Err(error) => (format!("the patch {}", path.display()), error),
        },
        Delivery::Branch(name) => match branch(drive, name).await {
            Ok(event) => return Ok(event.into()),
            Err(error) => (format!("the branch {name}"), error),
        },
        Delivery::Default if in_git => {
            let name = format!("wharf/{}", shared.id);
            match branch(drive, &name).await {
                Ok(event) => return Ok(event.into()),
                Err(error) => (format!("the branch {name}"), error),
            }
        }
        Delivery::Default => return Ok(patch(drive, &own).await?.into()),
    };
    let hint = match &error {
        Error::Refused { hint, .. } if !hint.is_empty() => format!("; {hint}"),
        _ => String::new(),
    };
    let said = format!("{what} could not be made: {error}{hint}");
    let event = patch(drive, &own).await?;
    let said = format!("{said}; the result is the patch {}", own.display());
    shared.warn(said.clone());
    let asked = shared.options.delivery != Delivery::Default;
    Ok(Delivered {
        event,
        failed: asked.then_some(said),
    })
}

impl From<Event> for Delivered {
    fn from(event: Event) -> Self {
        Self {
            event,
            failed: None,
        }
    }
}

async fn patch(drive: &Drive, path: &Path) -> Result<Event, Error> {
    let shared = &drive.shared;
    let root = Root::of_run(shared);
    let (base, merged, prefix) = (&shared.base.commit, &drive.merged, root.prefix());
    if path.starts_with(&shared.dir) || delivered_before(shared, path) {
        let store = &shared.store;
        store.deliver_patch(base, merged, prefix, path).await?;
    } else {
        // Whoever made a file of that name meanwhile keeps it.
        let store = &shared.store;
        store.deliver_new_patch(base, merged, prefix, path).await?;
    }
    Ok(Event::Delivered {
        branch: None,
        patch: Some(path.display().to_string()),
        commit: None,
    })
}

/// True when this run itself wrote a patch there, before it was resumed.
fn delivered_before(shared: &Shared, path: &Path) -> bool {
    let read = journal::read(&shared.dir.join("journal.jsonl"));
    let delivered = read.ok().and_then(|read| State::of(&read.lines).delivered);
    let patch = delivered.and_then(|delivered| delivered.patch);
    patch.is_some_and(|patch| Path::new(&patch) == path)
}

async fn branch(drive: &mut Drive, name: &str) -> Result<Event, Error> {
    let steps = steps(drive).await?;
    let shared = &drive.shared;
    let name = &shared.past.branch(name);
    let delivered = shared
        .store
        .deliver_branch(&shared.workspace, &shared.base, name, &steps)
        .await?;
    if !delivered.given.is_empty() {
        let given = words::few(&delivered.given, NAMED, ", ");
        let text = format!(
            "a .gitattributes of the result gives files to a filter that your repository does not know: {given}; \
             the branch holds them as they were made, and git may turn them where you have such a filter"
        );
        additions::warn(shared, text);
    }
    Ok(Event::Delivered {
        branch: Some(delivered.branch),
        patch: None,
        commit: Some(delivered.commit.to_string()),
    })
}

/// One commit for each subtask that changed something, in the DAG's order: the tree after its merge.
async fn steps(drive: &mut Drive) -> Result<Vec<Step>, Error> {
    let store = drive.shared.store.clone();
    let mut steps = Vec::new();
    let mut merged = drive.shared.base.commit.clone();
    let mut last = drive.shared.base.tree.clone();
    for id in drive.schedule.done() {
        let Some(node) = drive.nodes.get(&id) else {
            continue;
        };
        let Some(done) = &node.done else { continue };
        let both = [merged.clone(), done.snapshot.clone()];
        // Every pair was merged before; this only looks the results up again.
        let Folded::Commit(commit) = drive.merges.fold(&store, &both, &mut Vec::new()).await?
        else {
            continue;
        };
        merged.clone_from(&commit);
        if steps
            .last()
            .is_some_and(|step: &Step| step.commit == commit)
        {
            continue;
        }
        let tree = store.tree(&commit).await?;
        if tree != last {
            steps.push(Step {
                commit,
                message: message(node),
            });
            last = tree;
        }
    }
    // Whatever order the rounds merged in, the branch ends at the tree that was judged.
    if store.tree(&drive.merged).await? != last {
        let message = "Merge what the subtasks made".to_owned();
        steps.push(Step {
            commit: drive.merged.clone(),
            message,
        });
    }
    Ok(steps)
}

fn message(node: &Node) -> String {
    let subtask = &node.subtask;
    let title = subtask
        .title
        .as_deref()
        .or(subtask.brief.lines().next())
        .unwrap_or_default();
    let title: String = title.trim().chars().take(72).collect();
    let report = node
        .done
        .as_ref()
        .map(|done| words::report(&done.report))
        .unwrap_or_default();
    format!(
        "{title}\n\n{report}\n\nWharf-Subtask: {}\nWharf-Role: {}\n",
        subtask.id, subtask.role
    )
}
