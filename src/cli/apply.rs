//! `wharf apply`: a run's result into the operator's directory.

use super::fault::Fault;
use super::find::Found;
use super::{find, out, state, text};
use crate::config::Flags;
use crate::id::CommitId;
use crate::journal;
use crate::run::{Put, Status, VerdictStatus};
use crate::workspace::{Applied, Force, Git, Store};

/// Put a run's result into the directory it worked on
///
/// Merges with what you changed meanwhile, file by file, and changes nothing at all when one file
/// conflicts. Your index, branch and commits are not touched. What a run made on a copy goes into the
/// copied directory only by --force; `wharf show` names the git command that applies its patch.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf apply last")]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// Also a result that did not pass, and over conflicting changes of yours
    #[arg(long)]
    force: bool,
    /// Answer with one JSON object
    #[arg(long)]
    json: bool,
}

/// Applies the result; a refusal is exit 1.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let config = state::settings(&Flags::default())?;
    let found = find::one(&config.state, &args.run)?;
    let force = if args.force {
        Force::Overwrite
    } else {
        Force::No
    };
    let Put {
        directory,
        recovered,
        applied,
    } = apply(config.git(), &found, force).await?;
    let place = text::line(&directory, 200);
    if !recovered.is_empty() {
        out::note(&undone(&place, &recovered));
    }
    if args.json {
        out::json(&match &applied {
            Applied::Done { paths } => {
                serde_json::json!({"applied": true, "directory": directory, "paths": paths, "undone": recovered})
            }
            Applied::Refused { paths } => {
                let refused: Vec<_> = paths
                    .iter()
                    .map(|(path, reason)| serde_json::json!({"path": path, "reason": reason}))
                    .collect();
                serde_json::json!({"applied": false, "directory": directory, "refused": refused, "undone": recovered})
            }
        })?;
    }
    match applied {
        Applied::Done { paths } => {
            if !args.json {
                out::print(&done(&place, &paths))?;
            }
            Ok(0)
        }
        Applied::Refused { paths } => {
            let mut page = format!(
                "nothing was changed in {place}: these paths conflict with your own changes\n"
            );
            for (path, reason) in &paths {
                page.push_str(&format!(
                    "  {}: {}\n",
                    text::line(path, 200),
                    text::line(reason, 200)
                ));
            }
            page.push_str(
                "hint: commit or undo your changes to them and apply again, or merge the run's branch; --force \
                 puts the run's version in place of yours, and yours is kept nowhere",
            );
            out::note(&page);
            Ok(1)
        }
    }
}

fn undone(place: &str, paths: &[String]) -> String {
    let mut page = format!("an apply to {place} had been cut off and was undone first:\n");
    let lines = paths
        .iter()
        .map(|path| format!("  {}\n", text::line(path, 200)));
    page.extend(lines);
    page.trim_end().to_owned()
}

fn done(place: &str, paths: &[String]) -> String {
    if paths.is_empty() {
        return format!("already there: nothing to change in {place}\n");
    }
    let mut page = format!("changed {} in {place}\n", text::plural(paths.len(), "path"));
    paths
        .iter()
        .for_each(|path| page.push_str(&format!("  {}\n", text::line(path, 200))));
    page
}

/// Applies what passed its verification; anything else only by force.
async fn apply(git: Git, found: &Found, force: Force) -> Result<Put, Fault> {
    if force == Force::No && !passed(&git, found).await? {
        return Err(
            Fault::new(1, "not_passed", format!("run {} has not passed", found.id)).hint(format!(
                "`wharf show {0}` says why; `wharf apply {0} --force` applies it all the same",
                found.id
            )),
        );
    }
    Ok(crate::run::apply(git, &found.dir, force).await?)
}

/// True for a run that passed, and for one that failed at its delivery alone, where the verdict was
/// given on exactly the tree that is to be applied.
async fn passed(git: &Git, found: &Found) -> Result<bool, Fault> {
    // The journal says it, not result.json: only a change of the journal would be seen.
    let lines = journal::read(&found.journal())?.lines;
    let Some(summary) = find::result(&lines) else {
        return Ok(false);
    };
    let (Status::Passed | Status::Error, Some(verdict), Some(snapshot)) =
        (summary.status, &summary.verdict, &summary.snapshot)
    else {
        return Ok(false);
    };
    let Ok(store) = Store::open(git.clone(), found.dir.join("store.git")) else {
        return Ok(false);
    };
    let tree = store.tree(&CommitId::new(snapshot)).await;
    let judged = tree.is_ok_and(|tree| tree.as_str() == verdict.tree);
    Ok(judged && verdict.status == VerdictStatus::Pass)
}
