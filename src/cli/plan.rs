//! `wharf plan`: check, draw and describe plan files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::fault::Fault;
use super::plan_file::{self, PlanFile};
use super::wording::status_word;
use super::{find, out, state, text};
use crate::id::{RoleName, SubtaskId};
use crate::journal::{self, Event, SubtaskStatus};
use crate::plan::{Drawing, Subtask};

/// Check, draw or describe plan files
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  wharf plan check plans/*.yaml")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check plan files whole, as `wharf run` would before it starts
    #[command(after_help = "Example:\n  wharf plan check plans/*.yaml")]
    Check {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print one JSON object with a `plans` list
        #[arg(long)]
        json: bool,
    },
    /// Draw the DAG of a plan file's subtasks, or of a run's
    #[command(after_help = "Example:\n  wharf plan draw last --format dot | dot -Tsvg > run.svg")]
    Draw {
        /// A plan file, or a run's id, the beginning of one, or `last`
        #[arg(value_name = "FILE|RUN")]
        what: PathBuf,
        #[arg(long, value_enum, default_value_t = Format::Mermaid)]
        format: Format,
    },
    /// Print the JSON Schema of plan files
    #[command(after_help = "Example:\n  wharf plan schema > wharf.schema.json")]
    Schema,
}

type States = BTreeMap<SubtaskId, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Mermaid,
    Dot,
}

/// Does what the verb below `plan` says.
pub fn act(args: Args) -> Result<i32, Fault> {
    match args.verb {
        Verb::Check { files, json } => check(&files, json),
        Verb::Draw { what, format } => draw(&what, format),
        Verb::Schema => {
            let schema = serde_json::to_string_pretty(&crate::plan::schema())
                .map_err(|error| Fault::new(3, "bug", format!("encode the schema: {error}")))?;
            out::print(&schema)?;
            Ok(0)
        }
    }
}

type Checked = Result<PlanFile, Vec<Fault>>;

/// Every file is looked at, so that one run of it names all faults.
fn check(files: &[PathBuf], json: bool) -> Result<i32, Fault> {
    let look = |file| super::check::check(file).map_err(|faults| of_a_run(file, faults));
    let read: Vec<(&PathBuf, Checked)> = files.iter().map(|file| (file, look(file))).collect();
    if json {
        let plans: Vec<Value> = read
            .iter()
            .map(|(file, plan)| checked(file, plan))
            .collect();
        let first = read
            .iter()
            .find_map(|(_, plan)| plan.as_ref().err()?.first());
        let mut object = json!({ "plans": plans });
        if let Some(fault) = first {
            object["error"] = fault.to_json()["error"].take();
        }
        out::json(&object)?;
    }
    let mut code = 0;
    for (file, plan) in &read {
        match plan {
            Ok(plan) if !json => {
                out::print(&format!("{}: ok: {}", file.display(), about(plan)))?;
                for text in plan.plan.warnings() {
                    out::note(&format!("{}: warning: {text}", file.display()));
                }
            }
            Ok(_) => {}
            Err(faults) => {
                code = 2;
                faults
                    .iter()
                    .for_each(|fault| out::note(&fault.to_string()));
            }
        }
    }
    Ok(code)
}

/// Where a run's name was given for a file, the fault says where that run's plan is.
fn of_a_run(file: &Path, mut faults: Vec<Fault>) -> Vec<Fault> {
    if file.exists() {
        return faults;
    }
    let name = file.to_string_lossy();
    if let Ok(run) = state::directory().and_then(|state| find::one(&state, &name)) {
        for fault in &mut faults {
            fault.hint = format!(
                "this verb checks files; the plan of run {} is {}",
                run.id,
                run.dir.join("plan.yaml").display()
            );
        }
    }
    faults
}

fn about(file: &PlanFile) -> String {
    let subtasks = match file.plan.subtasks.len() {
        0 => "the coordinator plans the subtasks".to_owned(),
        number => text::plural(number, "subtask"),
    };
    format!(
        "{}, {subtasks}",
        text::plural(file.plan.roles.len(), "role")
    )
}

fn checked(path: &Path, read: &Checked) -> Value {
    match read {
        Ok(file) => json!({
            "file": path, "ok": true, "roles": file.plan.roles.len(),
            "subtasks": file.plan.subtasks.len(), "hash": file.plan.hash,
        }),
        Err(faults) => {
            let all: Vec<Value> = faults.iter().map(|f| f.to_json()["error"].take()).collect();
            json!({"file": path, "ok": false, "error": all.first(), "errors": all})
        }
    }
}

fn draw(what: &Path, format: Format) -> Result<i32, Fault> {
    let (subtasks, states) = if what.is_file() {
        (plan_file::read(what)?.plan.subtasks, States::new())
    } else {
        of_run(what)?
    };
    if subtasks.is_empty() {
        return Err(
            Fault::usage(format!("{} has no subtasks to draw", what.display()))
                .hint("the coordinator plans them; draw a run of it: `wharf plan draw last`"),
        );
    }
    let drawing = match format {
        Format::Mermaid => Drawing::Mermaid,
        Format::Dot => Drawing::Dot,
    };
    out::print(&crate::plan::draw(&subtasks, &states, drawing))?;
    Ok(0)
}

/// The subtasks of all accepted plans of a run, and how each ended.
fn of_run(wanted: &Path) -> Result<(Vec<Subtask>, States), Fault> {
    let found = find::one(&state::directory()?, &wanted.to_string_lossy())?;
    let read = journal::read(&found.journal())?;
    let (mut subtasks, mut states) = (Vec::new(), States::new());
    for line in read.lines {
        match line.event {
            Event::PlanAccepted { subtasks: more, .. } => {
                subtasks.extend(more.into_iter().map(planned));
            }
            Event::ConflictFound {
                id,
                files,
                ours_by,
                theirs_by,
                ..
            } => subtasks = with_merge(subtasks, id, &files, [ours_by, theirs_by]),
            Event::ConflictResolved { id, .. } => {
                states.insert(id, status_word(SubtaskStatus::Done).to_owned());
            }
            Event::SubtaskEnded { id, status, .. } => {
                states.insert(id, status_word(status).to_owned());
            }
            _ => {}
        }
    }
    Ok((subtasks, states))
}

/// The DAG with a conflict's node: after both of its sides, and before who needs something of each.
fn with_merge(
    mut subtasks: Vec<Subtask>,
    id: SubtaskId,
    files: &[String],
    sides: [Vec<SubtaskId>; 2],
) -> Vec<Subtask> {
    // Found again by a resumed run, it is the same node.
    if subtasks.iter().any(|subtask| subtask.id == id) {
        return subtasks;
    }
    let meets = |needs: &[SubtaskId], side: &[SubtaskId]| needs.iter().any(|n| side.contains(n));
    for subtask in &mut subtasks {
        if sides.iter().all(|side| meets(&subtask.needs, side)) {
            subtask.needs.push(id.clone());
        }
    }
    subtasks.push(Subtask {
        id,
        role: RoleName::new("merger"),
        title: Some(format!("conflict in {}", files.join(", "))),
        brief: String::new(),
        needs: sides.concat(),
    });
    subtasks
}

/// A journal's subtask as a plan has it.
pub fn planned(task: journal::Subtask) -> Subtask {
    Subtask {
        id: task.id,
        role: task.role,
        title: task.title,
        brief: task.brief,
        needs: task.needs,
    }
}
