//! Whether a result can go where it is to go: looked at before anything is connected or asked.

use std::io::ErrorKind;
use std::path::Path;

use super::fault::Fault;
use crate::config::Config;
use crate::run::Delivery;
use crate::workspace;

/// What may stand at the place of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Nothing,
    /// Nothing, or an empty file, as `mktemp` makes it.
    Empty,
}

/// Refuses a branch that cannot be made and a patch that cannot be written.
pub async fn check(config: &Config, directory: &Path) -> Result<(), Fault> {
    match &config.delivery {
        Delivery::Default => Ok(()),
        Delivery::Patch(path) => new_file("--patch", path, Room::Empty),
        Delivery::Branch(name) => workspace::branch_free(&config.git(), directory, name)
            .await
            .map_err(|error| refused(name, error)),
    }
}

/// Refuses the name of a file that cannot be made there, or that would replace one.
pub fn new_file(flag: &str, path: &Path, room: Room) -> Result<(), Fault> {
    let fault = |why: String| Fault::usage(format!("{flag} {}: {why}", path.display()));
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => {
            return Err(fault("it is a directory".to_owned()).hint("name a file in it"));
        }
        Ok(meta) if meta.is_file() && meta.len() == 0 && room == Room::Empty => {}
        Ok(_) => {
            return Err(fault("there is a file".to_owned())
                .hint("name a file that does not exist yet, or remove that one first"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(fault(error.to_string()).hint("name another file")),
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Only writing tells whether one may write.
    match tempfile::Builder::new()
        .prefix(".wharf-")
        .tempfile_in(folder)
    {
        Ok(_) => Ok(()),
        Err(error) => {
            let error = match error.kind() {
                ErrorKind::NotFound => "there is no such folder".to_owned(),
                _ => error.to_string(),
            };
            Err(fault(format!("{}: {error}", folder.display()))
                .hint("name a file in a folder that can be written"))
        }
    }
}

fn refused(name: &str, error: workspace::Error) -> Fault {
    match error {
        workspace::Error::Refused { what, hint } => {
            Fault::usage(format!("--branch {name}: {what}")).hint(hint)
        }
        other => Fault::environment(format!("--branch {name}: {other}"))
            .hint("`wharf doctor` checks git"),
    }
}
