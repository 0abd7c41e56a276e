//! What `run` would refuse of a plan file: all of it at once, and nothing begun.

use std::path::{Path, PathBuf};

use super::fault::Fault;
use super::plan_file::{self, PlanFile};
use super::{order, state};
use crate::config::Flags;
use crate::{ops, run};

/// Reads and checks a plan file as `run` does before it starts. A key that is missing here is no
/// fault of the plan.
pub fn check(path: &Path) -> Result<PlanFile, Vec<Fault>> {
    let file = plan_file::read(path).map_err(|fault| plan_file::all(path, fault))?;
    let mut faults = Vec::new();
    faults.extend(directory(&file).err());
    match models(&file) {
        Ok(refused) => faults.extend(refused),
        Err(fault) => faults.push(fault),
    }
    if faults.is_empty() {
        return Ok(file);
    }
    // One that stands at a place begins with the file's name.
    let placed = |fault: &Fault| fault.message.starts_with(&format!("{}:", path.display()));
    let named = |fault: Fault| match placed(&fault) {
        true => fault,
        false => Fault {
            message: format!("{}: {}", path.display(), fault.message),
            ..fault
        },
    };
    Err(faults.into_iter().map(named).collect())
}

/// The directory that the plan names is there.
fn directory(file: &PlanFile) -> Result<(), Fault> {
    let named: Option<PathBuf> = order::named(file);
    named.map_or(Ok(()), |path| order::whole(&path).map(|_| ()))
}

/// What is wrong with the plan's models, each told once.
fn models(file: &PlanFile) -> Result<Vec<Fault>, Fault> {
    let mut config = state::settings(&Flags::default())?;
    let mut plan = file.plan.clone();
    config.apply(&mut plan, &file.text, file.path.as_deref())?;
    let providers = config.model_providers();
    let of_roles = plan.roles.values().flat_map(|role| &role.model);
    let names = plan.model.iter().chain(of_roles);
    let mut names: Vec<&String> = names.chain(&plan.compaction.model).collect();
    names.sort();
    names.dedup();
    let mut faults = Vec::new();
    for name in names {
        match ops::open_models(std::slice::from_ref(name), &providers, &[]) {
            Ok(models) => {
                let models = config.priced(models);
                let about = models.iter().map(|model| model.about());
                faults.extend(run::unpriced(&plan, about).map(Fault::from));
            }
            Err(error) if error.code() == 2 => {
                faults.push(plan_file::unopened(Some(file), error));
            }
            // Its key may be where the plan is run.
            Err(_) => {}
        }
    }
    Ok(faults)
}
