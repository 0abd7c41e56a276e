//! New files that nobody may expect in a result, and what agents made that is not in it: named to the
//! verifier, and to the operator before anything is delivered.

use std::collections::BTreeSet;

use crate::agent::first::one_line;
use crate::run::end::words::few;
use crate::run::round::drive::Drive;
use crate::run::shared::Shared;
use crate::workspace::{Difference, DifferenceStatus, Error, Globs, display};

/// Why a new path is left out that ignore rules match.
pub(in crate::run) const IGNORED: &str = "ignored";
/// Most paths named in a row.
const NAMED: usize = 20;

/// New files of names that `workspace.hide` keeps from agents; for display.
pub(in crate::run) fn withheld(
    shared: &Shared,
    differences: &[Difference],
) -> Result<Vec<String>, Error> {
    let workspace = &shared.plan.workspace;
    let (hide, include) = (
        Globs::new(&workspace.hide)?,
        Globs::new(&workspace.include)?,
    );
    let added = differences
        .iter()
        .filter(|difference| difference.status == DifferenceStatus::Added)
        .map(|difference| &difference.path);
    let named = added.filter(|path| hide.matches(path) && !include.matches(path));
    Ok(named.map(|path| display(path)).collect())
}

/// What a verifier is told of it: sections with their headings, none where there is nothing to tell.
pub(in crate::run) fn sections(
    drive: &Drive,
    differences: &[Difference],
) -> Result<Vec<(String, String)>, Error> {
    let mut sections = Vec::new();
    let withheld = withheld(&drive.shared, differences)?;
    if !withheld.is_empty() {
        let body = format!(
            "Files of such names tend to hold secrets, and the plan keeps those of the workspace from agents. \
             Does the task ask for these?\n{}",
            list(&withheld)
        );
        sections.push(("New files of names that are withheld".to_owned(), body));
    }
    let missing = missing(drive);
    if !missing.is_empty() {
        let body = format!(
            "They stood in an agent's sandbox, and are not part of this tree.\n{}",
            list(&missing)
        );
        sections.push((
            "Files that agents made and that were left out".to_owned(),
            body,
        ));
    }
    Ok(sections)
}

/// What agents left out whose work is in the result. A folder that ignore rules match is build output.
fn missing(drive: &Drive) -> Vec<String> {
    let done = drive.nodes.values().filter_map(|node| node.done.as_ref());
    let left_out = done.flat_map(|done| &done.left_out);
    let single = left_out.filter(|(path, why)| why != IGNORED || !path.ends_with('/'));
    let named: BTreeSet<String> = single
        .map(|(path, why)| one_line(&format!("{path}: {why}")))
        .collect();
    named.into_iter().collect()
}

/// Warns of what a result adds, before it is delivered. That it could not be told is a warning, too,
/// and keeps no result from being delivered.
pub(in crate::run) async fn tell(drive: &Drive) {
    let shared = &drive.shared;
    match look(drive).await {
        Ok((withheld, standing)) => {
            if !withheld.is_empty() {
                let named = few(&withheld, NAMED, ", ");
                warn(
                    shared,
                    format!(
                        "the result adds {named}, whose name `workspace.hide` matches: look at what is in it \
                         before you take it over"
                    ),
                );
            }
            if !standing.is_empty() {
                let named = few(&standing, NAMED, ", ");
                warn(
                    shared,
                    format!(
                        "the result adds {named}, where something stands in the workspace that no agent saw; \
                         git replaces what it ignores without asking when a branch is merged"
                    ),
                );
            }
        }
        Err(error) => warn(
            shared,
            format!("whether the result adds what nobody expects could not be told: {error}"),
        ),
    }
}

/// New files of withheld names, and those where something stands in the workspace.
async fn look(drive: &Drive) -> Result<(Vec<String>, Vec<String>), Error> {
    let shared = &drive.shared;
    let (base, merged) = (&shared.base.commit, &drive.merged);
    if base == merged {
        return Ok(Default::default());
    }
    let differences = shared.store.differences(base, merged).await?;
    let withheld = withheld(shared, &differences)?;
    // A replay is about another day's workspace.
    let standing = match shared.script {
        Some(_) => Vec::new(),
        None => shared.store.in_the_way(&shared.workspace, &differences)?,
    };
    Ok((withheld, standing))
}

/// Warns once, however often the run is taken up again.
pub(in crate::run) fn warn(shared: &Shared, text: String) {
    if !shared.past.state().warnings.contains(&text) {
        shared.warn(text);
    }
}

fn list(paths: &[String]) -> String {
    let lines = paths.iter().take(NAMED).map(|path| format!("- {path}\n"));
    let mut lines: String = lines.collect();
    if paths.len() > NAMED {
        lines.push_str(&format!("- … and {} more\n", paths.len() - NAMED));
    }
    lines
}
