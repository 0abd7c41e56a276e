//! Plan files on disk: which one is meant, its text, and the files it names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::fault::Fault;
use crate::ops;
use crate::plan::{self, Plan};

/// No plan, prompt or role file is larger. Bytes.
const LIMIT: u64 = 1 << 20;

/// A checked plan and where it came from.
pub struct PlanFile {
    pub plan: Plan,
    pub text: String,
    /// As it was named, for messages.
    pub name: String,
    /// None: the built-in plan.
    pub path: Option<PathBuf>,
    /// The files that it names, by the name it gives them.
    pub files: BTreeMap<String, String>,
}

impl PlanFile {
    /// The directory its relative paths start from; None for the built-in plan.
    pub fn directory(&self) -> Option<&Path> {
        self.path.as_deref().and_then(Path::parent)
    }
}

/// The plan named or found, else the built-in one.
pub fn find(path: Option<&Path>) -> Result<PlanFile, Fault> {
    match path {
        Some(path) => read(path),
        None => Ok(PlanFile {
            plan: Plan::built_in().map_err(|error| fault(&error))?,
            text: plan::DEFAULT.to_owned(),
            name: String::new(),
            path: None,
            files: BTreeMap::new(),
        }),
    }
}

/// Reads and checks one plan file.
pub fn read(path: &Path) -> Result<PlanFile, Fault> {
    let bytes = bytes_of(path).map_err(|reason| {
        Fault::new(
            2,
            "plan",
            format!("read the plan {}: {reason}", path.display()),
        )
        .hint("`wharf init` writes a first plan")
    })?;
    let text = plan::text(&path.display().to_string(), bytes).map_err(|error| fault(&error))?;
    let whole = std::path::absolute(path)
        .map_err(|error| Fault::new(2, "plan", format!("find {}: {error}", path.display())))?;
    let directory = whole.parent().unwrap_or(Path::new("/")).to_owned();
    let files = RefCell::new(BTreeMap::new());
    let load = |name: &str| {
        let text = load(&directory, name)?;
        files.borrow_mut().insert(name.to_owned(), text.clone());
        Ok(text)
    };
    let mut plan =
        plan::parse(&text, &path.display().to_string(), &load).map_err(|error| fault(&error))?;
    plan.anchor(&directory);
    Ok(PlanFile {
        plan,
        text,
        name: path.display().to_string(),
        path: Some(whole),
        files: files.into_inner(),
    })
}

/// A plan as a run kept it: its text and the files it names. What it builds lies where it lay.
pub fn kept(text: &str, path: &Path, files: &BTreeMap<String, String>) -> Result<Plan, Fault> {
    let load = |name: &str| {
        let text = files.get(name).cloned();
        text.ok_or_else(|| "the run did not keep it".to_owned())
    };
    let name = path.display().to_string();
    let mut plan = plan::parse(text, &name, &load).map_err(|error| fault(&error))?;
    plan.anchor(path.parent().unwrap_or(Path::new("")));
    Ok(plan)
}

/// Every fault of a file that `read` refused with this one.
pub fn all(path: &Path, first: Fault) -> Vec<Fault> {
    let directory = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directory = directory.parent().unwrap_or(Path::new("/")).to_owned();
    let Ok(text) = text_of(path) else {
        return vec![first];
    };
    let load = |name: &str| load(&directory, name);
    let found = plan::faults(&text, &path.display().to_string(), &load);
    match found.is_empty() {
        true => vec![first],
        false => found.iter().map(fault).collect(),
    }
}

/// A plan's error as the person sees it: several lines with place, source and hint.
fn fault(error: &plan::Error) -> Fault {
    let message = error.to_string();
    // The text ends with its own hint line; for programs the hint stands apart.
    let whole = message.strip_suffix(&format!("\nhint: {}", error.hint));
    Fault::new(2, "plan", whole.unwrap_or(&message)).hint(error.hint.clone())
}

/// What a plan gets when it names a file: its text, or for a pattern the paths it stands for.
fn load(directory: &Path, name: &str) -> Result<String, String> {
    if !name.contains(['*', '?', '[']) {
        return text_of(&directory.join(name));
    }
    let fixed: PathBuf = Path::new(name)
        .components()
        .take_while(|part| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']))
        .collect();
    let depth = Path::new(name).components().count() - fixed.components().count();
    let pattern = globset::GlobBuilder::new(name.trim_start_matches("./"))
        .literal_separator(true)
        .build()
        .map_err(|error| error.to_string())?
        .compile_matcher();
    let mut found = Vec::new();
    let levels = if name.contains("**") { 8 } else { depth };
    walk(directory, &fixed, levels, &mut found).map_err(|error| error.to_string())?;
    found.retain(|path| pattern.is_match(path.trim_start_matches("./")));
    found.sort();
    Ok(found.join("\n"))
}

/// The files below `at`, as paths relative to `directory`, at most `levels` deep.
fn walk(
    directory: &Path,
    at: &Path,
    levels: usize,
    found: &mut Vec<String>,
) -> std::io::Result<()> {
    if levels == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir(directory.join(at))? {
        let entry = entry?;
        let path = at.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            walk(directory, &path, levels - 1, found)?;
        } else if let Some(text) = path.to_str() {
            found.push(text.to_owned());
        }
    }
    Ok(())
}

/// What keeps a model from being opened, at its place where the plan names it.
pub fn unopened(file: Option<&PlanFile>, error: ops::Error) -> Fault {
    let placed = match (file, &error) {
        (
            Some(PlanFile {
                path: Some(_),
                name: shown,
                text,
                files,
                ..
            }),
            ops::Error::Model {
                name, key: false, ..
            },
        ) => {
            let load = |name: &str| {
                files
                    .get(name)
                    .cloned()
                    .ok_or_else(|| "it was not read".to_owned())
            };
            let told = (error.to_string(), error.hint());
            plan::model_fault((text, shown), &load, name, (&told.0, &told.1))
        }
        _ => None,
    };
    match placed {
        Some(placed) => Fault {
            kind: error.kind(),
            ..fault(&placed)
        },
        None => error.into(),
    }
}

/// The text of a file of a sane size.
fn text_of(path: &Path) -> Result<String, String> {
    let text = plan::text(&path.display().to_string(), bytes_of(path)?);
    text.map_err(|error| {
        let plan::Error {
            line,
            column,
            message,
            ..
        } = error;
        format!("{message} at line {line}, column {column}")
    })
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let meta = file.metadata().map_err(|error| error.to_string())?;
    if meta.is_dir() {
        return Err("it is a directory".to_owned());
    }
    // What comes from a device or a pipe has no size before it is read.
    let mut bytes = Vec::new();
    let read = file.take(LIMIT + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    match bytes.len() as u64 > LIMIT {
        true => Err(format!("it is larger than {} MiB", LIMIT >> 20)),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_the_files_of_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("roles/deep")).unwrap();
        for file in ["roles/b.md", "roles/a.md", "roles/x.txt", "roles/deep/c.md"] {
            std::fs::write(dir.path().join(file), file).unwrap();
        }
        let found = load(dir.path(), "./roles/*.md").unwrap();
        let names: Vec<_> = found.lines().map(|l| l.trim_start_matches("./")).collect();
        assert_eq!(names, ["roles/a.md", "roles/b.md"]);
        assert_eq!(load(dir.path(), "roles/x.txt").unwrap(), "roles/x.txt");
        assert_eq!(load(dir.path(), "roles").unwrap_err(), "it is a directory");
        let endless = load(dir.path(), "/dev/zero").unwrap_err();
        assert_eq!(endless, "it is larger than 1 MiB");
    }
}
